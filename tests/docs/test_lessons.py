"""What the pages of docs/learn claim, in numbers."""

import math
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from heedful.models.bert import Bert, BertConfig
from heedful.nn.scores import SCORES, Score

Lesson = Callable[[str], ModuleType]


@pytest.mark.parametrize(
    ("kind", "question", "finds"),
    [
        ("dot", 0, True),
        ("scaled", 0, True),
        ("dot", 1, False),
        ("general", 1, True),
        ("concat", 0, True),
        ("general", 2, False),
        ("location", 0, False),
        ("location", 2, True),
    ],
)
def test_which_score_finds_what(kind: str, question: int, finds: bool, lesson: Lesson):
    look_up = lesson("look_up")
    share = look_up.found(kind, look_up.QUESTIONS[question], steps=200)
    assert share > 0.9 if finds else share < 0.4


def test_look_up_draws_every_score(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lesson: Lesson):
    look_up = lesson("look_up")
    shares = look_up.measure(steps=1)
    assert shares.shape == (len(SCORES), 3)
    monkeypatch.setattr(lesson("drawing"), "PICTURES", tmp_path)
    monkeypatch.setattr(look_up, "measure", lambda steps: shares)
    look_up.main()
    assert (tmp_path / "look-up.png").is_file()


def test_location_does_not_see_the_keys():
    query, keys = torch.randn(2, 1, 5), torch.randn(2, 7, 5)
    location, dot = Score("location", 5, 5, 7), Score("dot", 5, 5, 7)
    assert torch.equal(location(query, keys), location(query, keys.flip(1)))
    assert torch.allclose(dot(query, keys).flip(2), dot(query, keys.flip(1)))


def test_numbers_as_words(lesson: Lesson):
    translator = lesson("translator")
    english = ["three", "hundred", "forty", "thousand", "and", "seventy"]
    assert translator.words(340_070) == (english, ["sam", "sip", "sa", "man", "chil", "sip"])
    source, target = translator.batch([7, 21])
    assert [translator.VOCABULARY[token] for token in source[0]] == ["seven", "<eos>", ""]
    assert [translator.VOCABULARY[token] for token in target[1]] == ["<sos>", "i", "sip", "il", "<eos>"]


def test_held_out_numbers_are_never_learned(lesson: Lesson):
    translator = lesson("translator")
    assert translator.held_out(translator.SHOWN)
    assert not any(map(translator.held_out, translator.drawn(500, translator.random.Random(0))))
    assert all(map(translator.held_out, translator.unseen(50)))


def test_a_translator_learns_and_looks_at_its_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lesson: Lesson):
    translator = lesson("translator")
    monkeypatch.setattr(translator, "DIGITS", 1)
    digits = [digit for digit in range(1, 10) if not translator.held_out(digit)]
    assert translator.share_right(translator.train("general", steps=0, dim=32), digits) < 0.2
    model = translator.train("general", steps=400, dim=32)
    assert translator.share_right(model, digits) > 0.6
    weights = translator.alignment(model, translator.SHOWN)
    assert weights.shape == (7, 7)
    assert weights.sum(1) == pytest.approx(np.ones(7), abs=1e-5)
    monkeypatch.setattr(lesson("drawing"), "PICTURES", tmp_path)
    translator.draw(weights)
    assert (tmp_path / "translator.png").is_file()


def test_recurrence_forgets_with_distance_and_attention_does_not(lesson: Lesson):
    influence = lesson("influence")
    torch.manual_seed(0)
    for cell in (nn.LSTM, nn.GRU):
        sizes = influence.influence(influence.Recurrent(cell, 28), 41, 28)
        assert sizes[10] < 0.02 * sizes[0]
        assert sizes[40] < 1e-5 * sizes[0]
    sizes = influence.influence(influence.Attention(28), 41, 28)
    assert sizes[1:].min() > 0.5 * sizes[1:].max()


@pytest.mark.parametrize("width", [8, 31, 128])
def test_the_variance_of_scores_is_the_width_unless_divided(width: int, lesson: Lesson):
    scale = lesson("scale")
    assert scale.spread(width, divided=False).variance == pytest.approx(width, rel=0.2)
    assert scale.spread(width, divided=True).variance == pytest.approx(1.0, rel=0.2)


def test_undivided_scores_make_weights_one_hot(lesson: Lesson):
    scale = lesson("scale")
    plain, divided = ([scale.spread(width, divided=each) for width in (4, 64, 512)] for each in (False, True))
    assert plain[0].entropy > 2 * plain[1].entropy > 4 * plain[2].entropy
    assert plain[2].gradient < 0.2 < 0.9 < divided[2].gradient
    assert min(each.entropy for each in divided) > 0.85


def test_entropy_and_gradient_of_even_weights(monkeypatch: pytest.MonkeyPatch, lesson: Lesson):
    scale = lesson("scale")
    monkeypatch.setattr(scale, "scaled", lambda query, key: torch.zeros(1, query.shape[1], key.shape[1]))
    found = scale.spread(4, divided=True, queries=3, keys=5)
    assert found == pytest.approx((0.0, 1.0, 0.8))  # 5 weights of 1/5: 5 · 1/5 · 4/5


def test_heads_of_a_trained_model_look_at_different_things(lesson: Lesson):
    heads = lesson("heads")
    model, reader = heads.read(heads.bundled())
    shares = torch.stack([heads.kinds(heads.look(model, reader, each)) for each in heads.SENTENCES]).mean(0)
    assert shares.shape == (6, 12, 4)
    assert shares[0, 2, 0] > 0.95
    assert shares[1, 8, 1] > 0.5
    assert shares[..., 3].max() > 0.8
    untrained = Bert(BertConfig(vocab_size=reader.vocab_size, layers=2, dim=48, heads=4, ffn_dim=48)).eval()
    assert heads.kinds(heads.look(untrained, reader, heads.PRONOUN)).max() < 0.3


def test_a_head_finds_what_it_means(lesson: Lesson):
    heads = lesson("heads")
    model, reader = heads.read(heads.bundled())
    found = {}
    for sentence in (heads.PRONOUN, heads.PRONOUN.replace("tired", "wide")):
        seen = heads.look(model, reader, sentence)
        of_it = heads.attended(seen, "it")[3, 1]
        found[sentence] = [round(float(of_it[seen.tokens.index(word)]), 2) for word in ("animal", "street")]
    assert list(found.values()) == [[0.68, 0.05], [0.28, 0.12]]


def test_many_frequencies_are_bounded_unique_and_alike_when_near(lesson: Lesson):
    positions = lesson("positions_compared")
    encoding = positions.sinusoidal(512, 64)
    assert encoding.abs().max() <= 1.0
    assert torch.equal(positions.sinusoidal(9, 64), encoding[:9])
    assert positions.apart(encoding) == pytest.approx(positions.apart(encoding[:8]), rel=0.05)
    near = positions.similarity(encoding, 64)[64:69]
    assert (near.diff() < 0).all()
    assert positions.similarity(encoding, 64)[80:].max() < near[2]


def test_one_sine_comes_round_and_a_sigmoid_flattens(lesson: Lesson):
    positions = lesson("positions_compared")
    sine, sigmoid = positions.single_sine(64, 6), positions.sigmoid_ramp(256, 6)
    assert torch.allclose(sine[3], sine[3 + positions.PERIOD], atol=1e-6)
    assert positions.apart(sine[: positions.PERIOD]) > 0.1
    assert positions.apart(sine) < 1e-6
    assert positions.apart(sigmoid[:8]) > 1e-2
    assert positions.apart(sigmoid) == 0.0


@settings(deadline=None, max_examples=50)
@given(distance=st.integers(0, 300), start=st.integers(0, 300))
def test_a_turned_product_depends_on_the_distance_alone(distance: int, start: int, lesson: Lesson):
    positions = lesson("positions_compared")
    expected = positions.turned_product(distance, 0)
    assert positions.turned_product(distance, start) == pytest.approx(expected, abs=1e-4)
    assert positions.turned_product(0, start) == pytest.approx(1.0, abs=1e-5)


def test_without_residuals_tokens_become_one(lesson: Lesson):
    blocks = lesson("blocks")
    likeness = {kind: blocks.passage(kind, 4).likeness[-1] for kind in blocks.KINDS}
    assert likeness["no residuals"] > 0.99
    assert max(likeness["post-norm"], likeness["pre-norm"]) < 0.8


def test_states_grow_before_norms_and_gradients_stay_after_them(lesson: Lesson):
    blocks = lesson("blocks")
    post, pre = ([blocks.passage(kind, depth) for depth in (2, 32)] for kind in ("post-norm", "pre-norm"))
    assert post[1].states == pytest.approx([1.0] * 32, abs=0.01)
    assert pre[1].states[-1] > 3 * pre[1].states[0]
    assert post[1].gradient == pytest.approx(post[0].gradient, rel=0.3)
    assert pre[1].gradient == pytest.approx(pre[0].gradient / 4, rel=0.3)


def test_the_causal_mask_hides_the_future_and_rows_still_add_up(lesson: Lesson):
    weights = lesson("decoding").causal_weights(7)
    assert torch.equal(weights, weights.tril())
    assert weights.sum(1).tolist() == pytest.approx([1.0] * 7)
    assert (weights[6] > 0).all()


def test_beams_find_what_greedy_search_loses(lesson: Lesson):
    decoding = lesson("decoding")
    every = {branch.ids: branch.chance for branch in decoding.branches(1e-4) if branch.ids[-1] == decoding.EOS}
    best = max(every, key=every.__getitem__)
    assert (decoding.SOS, *decoding.found(2).ids, decoding.EOS) == best
    assert math.exp(decoding.found(2).log_prob) == pytest.approx(0.4 * 0.95 * 0.9)
    assert math.exp(decoding.found(1).log_prob) == pytest.approx(0.55 * 0.5 * 0.95 * 0.9)
    assert decoding.CHANCES.sum(1).tolist() == pytest.approx([1.0] * 5)


def test_the_first_steps_without_warmup_throw_a_post_norm_model_back(lesson: Lesson):
    warmup = lesson("warmup")
    steps = 50
    slow = warmup.Setting(name="", warmup=0.5 * warmup.STEPS / steps)  # the same slope as on the page
    with_it, without = (
        np.mean(warmup.losses(setting, seed=0, steps=steps)[-10:]) for setting in (slow, warmup.Setting(name=""))
    )
    assert with_it < 2.05 < 2.25 < without


def test_the_plateau_is_knowing_the_bag_and_not_the_order(monkeypatch: pytest.MonkeyPatch, lesson: Lesson):
    warmup = lesson("warmup")
    assert warmup.bag() == pytest.approx(1.60, abs=0.01)
    monkeypatch.setattr(warmup, "SYMBOLS", 2)
    monkeypatch.setattr(warmup, "LENGTH", 2)
    assert warmup.bag() == pytest.approx(math.log(2) / 2, abs=0.02)  # in half of the draws both are the same


@pytest.mark.parametrize("change", [{"pre_norm": True}, {"small_start": True}])
def test_what_needs_no_warmup(change: dict[str, bool], lesson: Lesson):
    warmup = lesson("warmup")
    found = warmup.losses(warmup.Setting(name="", lr=1e-3, **change), seed=0, steps=60, layers=2)
    assert len(found) == 60
    assert found[0] > 2.2
    assert np.mean(found[-10:]) < 1.9


def test_masking_and_pairs_keep_their_shares(lesson: Lesson):
    bert_input = lesson("bert_input")
    assert bert_input.masking(500, 100) == pytest.approx((0.15, 0.8, 0.1, 0.1), abs=0.015)
    assert bert_input.unrelated(500) == pytest.approx(0.5, abs=0.01)
    assert len(bert_input.TOKENS) == len(bert_input.SEGMENTS)
    assert bert_input.SEGMENTS.index(1) == bert_input.TOKENS.index("[SEP]") + 1


def test_context_parts_what_a_table_cannot(lesson: Lesson):
    contextual = lesson("contextual")
    static, states = contextual.vectors(*contextual.read(contextual.bundled()), contextual.WORD, contextual.SENTENCES)
    assert torch.allclose(contextual.cosines(static), torch.ones(7, 7))
    cosines = contextual.cosines(states)
    snakes, languages = slice(1, contextual.SNAKES), slice(contextual.SNAKES, 7)
    for same in (cosines[snakes, snakes], cosines[languages, languages]):
        assert same.min() > cosines[snakes, languages].max() - 1e-6
    assert cosines[0, languages].mean() > cosines[0, snakes].mean()


def test_the_two_models_are_of_one_size(lesson: Lesson):
    patches = lesson("patches_compared")
    sizes = [sum(each.numel() for each in make().parameters()) for make in patches.MODELS.values()]
    assert max(sizes) < 1.05 * min(sizes)


def test_shuffling_is_a_question_of_positions_to_attention_and_not_to_convolution(lesson: Lesson):
    patches = lesson("patches_compared")
    torch.manual_seed(0)
    images = torch.rand(5, 1, 8, 8)
    order = torch.randperm(16)
    mixed = patches.shuffled(images, order)
    assert torch.equal(patches.shuffled(mixed, order.argsort()), images)
    assert not torch.equal(mixed, images)
    attending, convolving = patches.Attending(), patches.convolving()
    before = attending(images)
    assert not torch.allclose(convolving(images), convolving(mixed), atol=1e-4)
    with torch.no_grad():
        attending.positions.copy_(attending.positions[order].clone())
    assert torch.allclose(attending(mixed), before, atol=1e-5)


@pytest.mark.parametrize(("name", "steps"), [("convolution", 50), ("attention", 150)])
def test_both_learn_digits(name: str, steps: int, lesson: Lesson):
    patches = lesson("patches_compared")
    assert patches.measure(name, 1200, mixed=False, steps=steps, seed=0) > 0.5
    assert patches.measure(name, 50, mixed=True, steps=1, seed=0) < 0.4
