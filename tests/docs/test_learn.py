"""The pages of docs/learn: what they say runs, leads somewhere, and is true in numbers."""

import contextlib
import importlib
import io
import itertools
import math
import re
from pathlib import Path
from types import ModuleType

import matplotlib.image
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from heedful.cli import COMMANDS, main
from heedful.models.bert import Bert, BertConfig
from heedful.nn.scores import SCORES, Score

ROOT = Path(__file__).parents[2]
LEARN = ROOT / "docs" / "learn"
CODE = LEARN / "code"
ENGLISH = sorted(LEARN.glob("*.md"))
PAGES = [*ENGLISH, *sorted(LEARN.glob("ko/*.md"))]
PATH = [page for page in PAGES if page.name[0].isdigit()]
RUNS = re.compile(r"```python\n(.*?)```\n\n```text\n(.*?)```", re.DOTALL)
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*")
COMMAND = re.compile(r"\bheedful ([a-z][a-z-]*)([^|]*)")
SLOW = {"translator", "warmup", "patches_compared", "look_up"}
"""What trains when it draws; the tests run miniatures instead."""
DRAWING = {page.name: re.findall(r"python docs/learn/code/(\w+)\.py", page.read_text("utf-8"))[0] for page in PATH}


def named(page: Path) -> str:
    return page.relative_to(LEARN).as_posix()


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(CODE))


def lesson(name: str) -> ModuleType:
    return importlib.import_module(name)


def inline(page: Path) -> list[str]:
    """What stands between backticks, outside of blocks."""
    return re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL))


def links(page: Path) -> list[str]:
    text = re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL)
    return [link for link in re.findall(r"\]\(([^)#\s]+)", text) if "://" not in link]


# the pages


def test_the_path_has_no_gap():
    numbers = [int(page.name[:2]) for page in PATH if page.parent == LEARN]
    assert numbers == list(range(1, 13))
    for page, following in itertools.pairwise(PATH[:12]):
        assert following.name in links(page)
        assert page.name in links(following)
    assert [link for link in links(LEARN / "README.md") if link[0].isdigit()][:12] == [
        page.name for page in PATH[:12]
    ]


def test_a_language_is_whole_or_not_there():
    assert {page.name for page in PAGES if page.parent != LEARN} in (set(), {page.name for page in ENGLISH})


@pytest.mark.parametrize("page", PATH, ids=named)
def test_code_prints_what_the_page_says(page: Path):
    blocks = RUNS.findall(page.read_text("utf-8"))
    assert blocks
    assert page.read_text("utf-8").count("```python") == len(blocks)
    for code, says in blocks:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, page.name, "exec"), {})
        assert printed.getvalue() == says


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_links_lead_somewhere(page: Path):
    assert links(page)
    assert [link for link in links(page) if not (page.parent / link).is_file()] == []


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_commands_and_flags_exist(page: Path, capsys: pytest.CaptureFixture):
    used = [(found[1], set(FLAG.findall(found[2]))) for line in inline(page) for found in COMMAND.finditer(line)]
    known = {}
    for command, asked in used:
        assert command in COMMANDS
        with pytest.raises(SystemExit):
            main([command, "--help"])
        known[command] = set(FLAG.findall(capsys.readouterr().out))
        assert asked <= known[command], command
    alone = {flag for line in inline(page) if line.startswith("--") for flag in FLAG.findall(line)}
    assert alone <= set().union(*known.values()), "a flag of no command on the page"


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_files_and_modules_that_are_named_exist(page: Path):
    for line in inline(page):
        for module in re.findall(r"python -m ([\w.]+)", line):
            assert (ROOT / module.replace(".", "/")).with_suffix(".py").is_file(), module
        for path in re.findall(r"\b(?:docs|scripts|src|bench)/[\w./-]+", line):
            assert (ROOT / path).exists(), path
        for path in re.findall(r"\bcode/\w+\.py", line):
            assert (CODE / Path(path).name).is_file(), path


@pytest.mark.parametrize("page", PATH, ids=named)
def test_a_page_shows_the_picture_of_its_code(page: Path):
    (picture,) = [link for link in links(page) if link.endswith(".png")]
    source = (CODE / f"{DRAWING[page.name]}.py").read_text("utf-8")
    assert f'save(figure, "{Path(picture).stem}")' in source
    assert (page.parent / picture).stat().st_size < 100_000


def test_no_code_and_no_picture_is_left_over():
    assert {path.stem for path in CODE.glob("*.py")} == {*DRAWING.values(), "drawing"}
    shown = {Path(link).name for page in ENGLISH for link in links(page) if link.endswith(".png")}
    assert {path.name for path in (LEARN / "pictures").iterdir()} == shown


@pytest.mark.parametrize("name", sorted(set(DRAWING.values()) - SLOW))
def test_main_draws_the_picture_again(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(lesson("drawing"), "PICTURES", tmp_path)
    lesson(name).main()
    (drawn,) = tmp_path.iterdir()
    again, kept = (matplotlib.image.imread(path) for path in (drawn, LEARN / "pictures" / drawn.name))
    assert again.shape == kept.shape
    assert np.abs(again - kept).mean() < 0.02


# 1: look-up


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
def test_which_score_finds_what(kind: str, question: int, finds: bool):
    look_up = lesson("look_up")
    share = look_up.found(kind, look_up.QUESTIONS[question], steps=200)
    assert share > 0.9 if finds else share < 0.4


def test_look_up_draws_a_number_for_every_score_and_question(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
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


# 2: the recurrent translator


def test_numbers_as_words():
    translator = lesson("translator")
    english = ["three", "hundred", "forty", "thousand", "and", "seventy"]
    assert translator.words(340_070) == (english, ["sam", "sip", "sa", "man", "chil", "sip"])
    source, target = translator.batch([7, 21])
    assert [translator.VOCABULARY[token] for token in source[0]] == ["seven", "<eos>", ""]
    assert [translator.VOCABULARY[token] for token in target[1]] == ["<sos>", "i", "sip", "il", "<eos>"]


def test_held_out_numbers_are_never_learned():
    translator = lesson("translator")
    assert translator.held_out(translator.SHOWN)
    assert not any(map(translator.held_out, translator.drawn(500, translator.random.Random(0))))
    assert all(map(translator.held_out, translator.unseen(50)))


def test_a_translator_learns_the_digits_and_looks_at_its_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
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


# 3: why not recurrence


def test_recurrence_forgets_with_distance_and_attention_does_not():
    influence = lesson("influence")
    torch.manual_seed(0)
    for cell in (nn.LSTM, nn.GRU):
        sizes = influence.influence(influence.Recurrent(cell, 28), 41, 28)
        assert sizes[10] < 0.02 * sizes[0]
        assert sizes[40] < 1e-5 * sizes[0]
    sizes = influence.influence(influence.Attention(28), 41, 28)
    assert sizes[1:].min() > 0.5 * sizes[1:].max()


# 4: the scale


@pytest.mark.parametrize("width", [8, 31, 128])
def test_the_variance_of_scores_is_the_width_unless_divided(width: int):
    scale = lesson("scale")
    assert scale.spread(width, divided=False).variance == pytest.approx(width, rel=0.2)
    assert scale.spread(width, divided=True).variance == pytest.approx(1.0, rel=0.2)


def test_undivided_scores_make_weights_one_hot():
    scale = lesson("scale")
    plain, divided = ([scale.spread(width, divided=each) for width in (4, 64, 512)] for each in (False, True))
    assert plain[0].entropy > 2 * plain[1].entropy > 4 * plain[2].entropy
    assert plain[2].gradient < 0.2 < 0.9 < divided[2].gradient
    assert min(each.entropy for each in divided) > 0.85


def test_entropy_and_gradient_of_even_weights(monkeypatch: pytest.MonkeyPatch):
    scale = lesson("scale")
    monkeypatch.setattr(scale, "scaled", lambda query, key: torch.zeros(1, query.shape[1], key.shape[1]))
    found = scale.spread(4, divided=True, queries=3, keys=5)
    assert found == pytest.approx((0.0, 1.0, 0.8))  # 5 weights of 1/5: 5 · 1/5 · 4/5


# 5: heads


def test_heads_of_a_trained_model_look_at_different_things():
    heads = lesson("heads")
    model, reader = heads.read(heads.bundled())
    shares = torch.stack([heads.kinds(heads.look(model, reader, each)) for each in heads.SENTENCES]).mean(0)
    assert shares.shape == (6, 12, 4)
    assert shares[0, 2, 0] > 0.95
    assert shares[1, 8, 1] > 0.5
    assert shares[..., 3].max() > 0.8
    untrained = Bert(BertConfig(vocab_size=reader.vocab_size, layers=2, dim=48, heads=4, ffn_dim=48)).eval()
    assert heads.kinds(heads.look(untrained, reader, heads.PRONOUN)).max() < 0.3


def test_a_head_finds_what_it_means():
    heads = lesson("heads")
    model, reader = heads.read(heads.bundled())
    found = {}
    for sentence in (heads.PRONOUN, heads.PRONOUN.replace("tired", "wide")):
        seen = heads.look(model, reader, sentence)
        of_it = heads.attended(seen, "it")[3, 1]
        found[sentence] = [round(float(of_it[seen.tokens.index(word)]), 2) for word in ("animal", "street")]
    assert list(found.values()) == [[0.68, 0.05], [0.28, 0.12]]


# 6: positions


def test_many_frequencies_are_bounded_unique_and_alike_when_near():
    positions = lesson("positions_compared")
    encoding = positions.sinusoidal(512, 64)
    assert encoding.abs().max() <= 1.0
    assert torch.equal(positions.sinusoidal(9, 64), encoding[:9])
    assert positions.apart(encoding) == pytest.approx(positions.apart(encoding[:8]), rel=0.05)
    near = positions.similarity(encoding, 64)[64:69]
    assert (near.diff() < 0).all()
    assert positions.similarity(encoding, 64)[80:].max() < near[2]


def test_one_sine_comes_round_and_a_sigmoid_flattens():
    positions = lesson("positions_compared")
    sine, sigmoid = positions.single_sine(64, 6), positions.sigmoid_ramp(256, 6)
    assert torch.allclose(sine[3], sine[3 + positions.PERIOD], atol=1e-6)
    assert positions.apart(sine[: positions.PERIOD]) > 0.1
    assert positions.apart(sine) < 1e-6
    assert positions.apart(sigmoid[:8]) > 1e-2
    assert positions.apart(sigmoid) == 0.0


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 300), st.integers(0, 300))
def test_a_turned_product_depends_on_the_distance_alone(distance: int, start: int):
    positions = lesson("positions_compared")
    expected = positions.turned_product(distance, 0)
    assert positions.turned_product(distance, start) == pytest.approx(expected, abs=1e-4)
    assert positions.turned_product(0, start) == pytest.approx(1.0, abs=1e-5)


# 7: the encoder block


def test_without_residuals_tokens_become_one():
    blocks = lesson("blocks")
    likeness = {kind: blocks.passage(kind, 4).likeness[-1] for kind in blocks.KINDS}
    assert likeness["no residuals"] > 0.99
    assert max(likeness["post-norm"], likeness["pre-norm"]) < 0.8


def test_states_grow_before_norms_and_gradients_stay_after_them():
    blocks = lesson("blocks")
    post, pre = ([blocks.passage(kind, depth) for depth in (2, 32)] for kind in ("post-norm", "pre-norm"))
    assert post[1].states == pytest.approx([1.0] * 32, abs=0.01)
    assert pre[1].states[-1] > 3 * pre[1].states[0]
    assert post[1].gradient == pytest.approx(post[0].gradient, rel=0.3)
    assert pre[1].gradient == pytest.approx(pre[0].gradient / 4, rel=0.3)


# 8: the decoder


def test_the_causal_mask_hides_the_future_and_rows_still_add_up():
    weights = lesson("decoding").causal_weights(7)
    assert torch.equal(weights, weights.tril())
    assert weights.sum(1).tolist() == pytest.approx([1.0] * 7)
    assert (weights[6] > 0).all()


def test_beams_find_what_greedy_search_loses():
    decoding = lesson("decoding")
    every = {branch.ids: branch.chance for branch in decoding.branches(1e-4) if branch.ids[-1] == decoding.EOS}
    best = max(every, key=every.__getitem__)
    assert (decoding.SOS, *decoding.found(2).ids, decoding.EOS) == best
    assert math.exp(decoding.found(2).log_prob) == pytest.approx(0.4 * 0.95 * 0.9)
    assert math.exp(decoding.found(1).log_prob) == pytest.approx(0.55 * 0.5 * 0.95 * 0.9)
    assert decoding.CHANCES.sum(1).tolist() == pytest.approx([1.0] * 5)


# 9: warm-up


def test_the_first_steps_without_warmup_throw_a_post_norm_model_back():
    warmup = lesson("warmup")
    steps = 50
    slow = warmup.Setting(name="", warmup=0.5 * warmup.STEPS / steps)  # the same slope as on the page
    with_it, without = (
        np.mean(warmup.losses(setting, seed=0, steps=steps)[-10:]) for setting in (slow, warmup.Setting(name=""))
    )
    assert with_it < 2.05 < 2.25 < without


@pytest.mark.parametrize("change", [{"pre_norm": True}, {"small_start": True}])
def test_what_needs_no_warmup(change: dict[str, bool]):
    warmup = lesson("warmup")
    found = warmup.losses(warmup.Setting(name="", lr=1e-3, **change), seed=0, steps=60, layers=2)
    assert len(found) == 60
    assert found[0] > 2.2
    assert np.mean(found[-10:]) < 1.9


# 10: BERT


def test_masking_and_pairs_keep_their_shares():
    bert_input = lesson("bert_input")
    assert bert_input.masking(500, 100) == pytest.approx((0.15, 0.8, 0.1, 0.1), abs=0.015)
    assert bert_input.unrelated(500) == pytest.approx(0.5, abs=0.01)
    assert len(bert_input.TOKENS) == len(bert_input.SEGMENTS)
    assert bert_input.SEGMENTS.index(1) == bert_input.TOKENS.index("[SEP]") + 1


# 11: context


def test_context_parts_what_a_table_cannot():
    contextual = lesson("contextual")
    static, states = contextual.vectors(*contextual.read(contextual.bundled()), contextual.WORD, contextual.SENTENCES)
    assert torch.allclose(contextual.cosines(static), torch.ones(7, 7))
    cosines = contextual.cosines(states)
    snakes, languages = slice(1, contextual.SNAKES), slice(contextual.SNAKES, 7)
    for same in (cosines[snakes, snakes], cosines[languages, languages]):
        assert same.min() > cosines[snakes, languages].max() - 1e-6
    assert cosines[0, languages].mean() > cosines[0, snakes].mean()


# 12: patches


def test_the_two_models_are_of_one_size():
    patches = lesson("patches_compared")
    sizes = [sum(each.numel() for each in make().parameters()) for make in patches.MODELS.values()]
    assert max(sizes) < 1.05 * min(sizes)


def test_shuffling_is_a_question_of_positions_to_attention_and_not_to_convolution():
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
def test_both_learn_digits(name: str, steps: int):
    patches = lesson("patches_compared")
    assert patches.measure(name, 1200, mixed=False, steps=steps, seed=0) > 0.5
    assert patches.measure(name, 50, mixed=True, steps=1, seed=0) < 0.4
