import dataclasses
import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import sentencepiece
import torch
from hypothesis import given
from hypothesis import strategies as st

import heedful
from heedful.data import subwords
from heedful.data.parallel import PairExample
from heedful.errors import UserError
from heedful.formats.translators import load_translator as load_net
from heedful.formats.translators import save_translator
from heedful.models.transformer import Transformer, TransformerConfig, initialise
from heedful.predict import Translator, load_predictor, load_translator
from heedful.predict.searching import TorchSearcher
from heedful.predict.translator import EMPTY, NOTHING, Alignment

Make = Callable[[str], Path]
TEXTS = ["three one four", "nine", "", "two seven one eight two", "six zero"]
ANSWERS = ["삼 일 사", "구", "", "이 칠 일 팔 이", "육 영"]
MARIAN_WORDS = ["the", "river", "mill", "baker", "bridge", "강가에", "다리를", "건넜습니다"]


@pytest.fixture(scope="module")
def good(translator: Make) -> Translator:
    return heedful.load(translator("good"), "cpu")


def test_texts_are_translated_in_their_order_and_one_alone_as_well(good: Translator):
    assert [one.text for one in good.translate(TEXTS)] == ANSWERS
    assert good.translate("nine").text == "구"
    assert good.translate("  three \n one\tfour ").text == "삼 일 사"
    assert good.translate([]) == []


def test_the_score_is_the_mean_log_probability_of_tokens_and_end(good: Translator):
    found = good.translate("two seven")
    assert found.pieces == ["▁이", "▁칠"]
    assert found.score == pytest.approx(found.log_prob / 3)
    (scored,) = good.score(["two seven"], ["이 칠"])
    assert (scored.log_prob, scored.score) == pytest.approx((found.log_prob, found.score), abs=1e-5)
    (wrong,) = good.score(["two seven"], ["칠 이"])
    assert wrong.log_prob < scored.log_prob - 3


def test_n_best_are_different_and_the_best_comes_first(good: Translator):
    (best,) = good.n_best(["two seven"], beam=5, n_best=3)
    assert len({one.text for one in best}) == 3
    assert [one.score for one in best] == sorted((one.score for one in best), reverse=True)
    for one, same in zip(best, good.score(["two seven"] * 3, [one.text for one in best]), strict=True):
        assert one.log_prob == pytest.approx(same.log_prob, abs=1e-4)


def test_words_are_aligned_with_the_words_they_stand_for(good: Translator):
    found = good.translate("two seven one", align=True).alignment
    assert found is not None
    assert found.source == ["▁two", "▁seven", "▁one", "</s>"]
    assert found.target == ["▁이", "▁칠", "▁일", "</s>"]
    assert found.weights.shape == (4, 4)
    np.testing.assert_allclose(found.weights.sum(1), 1, atol=1e-5)
    assert found.words() == [(0, 0), (1, 1), (2, 2)]
    (scored,) = good.score(["two seven one"], ["이 칠 일"], align=True)
    assert scored.alignment is not None
    np.testing.assert_allclose(scored.alignment.weights, found.weights, atol=1e-5)
    assert good.translate("two").alignment is None


def test_words_gather_the_weights_of_their_pieces():
    # Each piece of the second word looks at another word most, both together at the first.
    weights = np.array([[0.1, 0.2, 0.6, 0.1], [0.3, 0.2, 0.4, 0.1], [0.4, 0.1, 0.1, 0.4], [0, 0, 0, 1]])
    found = Alignment(["▁a", "b", "▁c", "</s>"], ["▁x", "▁y", "z", "</s>"], weights, [0, 0, 1], [0, 1, 1])
    assert found.words() == [(1, 0), (0, 1)]
    assert Alignment(["</s>"], ["▁x", "</s>"], np.ones((2, 1)), [], [0]).words() == []


@pytest.mark.parametrize("kind", subwords.KINDS)
def test_pieces_of_unknown_words_count_as_words_of_the_text(translator: Make, kind: str):
    vocabulary = subwords.train(lambda: ["three one four", "three one", "삼 일 사"] * 3, 41, kind)
    searcher = load_translator(translator("good"), "cpu").searcher
    made = Translator(searcher, vocabulary, vocabulary)
    text = "three ☃☃ one"
    (ids,) = vocabulary.encode([text])
    assert vocabulary.unk in ids
    found = made.alignment((ids, []), (text, ""), np.ones((1, len(ids) + 1)))
    words = found.source_words
    assert len(words) == len(ids)
    assert words == sorted(words)
    assert set(words) == {0, 1, 2}
    assert words.count(2) == len(vocabulary.encode(["one"])[0])


@given(pieces=st.lists(st.sampled_from(["▁삼", "▁", "일", "▁three"]), max_size=7))
def test_what_the_model_writes_has_the_words_of_its_text(translator: Make, pieces: list[str]):
    made = _cached(translator("good"))
    ids = [made.target.vocabulary.index(piece) for piece in pieces]
    text = made.target.decode(ids)
    words = made.alignment(([], ids), ("", text), np.ones((len(ids) + 1, 1))).target_words
    assert words == sorted(words)
    assert set(words) <= set(range(max(1, len(text.split()))))
    if text.split():
        assert max(words) == len(text.split()) - 1


_LOADED: dict[Path, Translator] = {}


def _cached(folder: Path) -> Translator:
    return _LOADED.setdefault(folder, load_translator(folder, "cpu"))


def test_a_prefix_begins_every_translation(good: Translator):
    for best in good.n_best(["two seven", "nine"], prefix="일", n_best=2):
        assert all(one.text.startswith("일") for one in best)
    with pytest.raises(UserError) as caught:
        good.translate("two", prefix="☃ 일")
    assert str(caught.value) == "no translation can begin with '☃ 일': the model can't write ☃"
    with pytest.raises(UserError, match=r"it may have 1 tokens, this has 2$"):
        good.translate("two", prefix="일 이", max_length=1)
    with pytest.raises(UserError, match=r"it may have 28 tokens, this has 29$"):
        good.translate("two", prefix="일 " * 29)


def test_what_is_too_long_is_refused_or_cut(good: Translator):
    with pytest.raises(UserError, match=r"^'nine nine .*…': 29 tokens are beyond the model's 28; split it, cut it"):
        good.translate("nine " * 29)
    assert good.translate("nine " * 28).pieces
    assert good.translate("nine " * 29, truncate=True) == good.translate("nine " * 28)
    with pytest.raises(UserError, match="29 tokens are beyond the model's 28"):
        good.score(["nine"], ["구 " * 29])
    (cut,) = good.score(["nine"], ["구 " * 29], truncate=True)
    assert len(cut.pieces) == 28


def test_what_can_not_be_asked_is_refused(good: Translator):
    with pytest.raises(UserError, match=r"^'beams' is no option of a search; help\(heedful.SearchOptions\)$"):
        good.translate("one", beams=3)
    with pytest.raises(UserError, match="'beam' stands beside options"):
        good.translate("one", options=heedful.SearchOptions(), beam=3)
    with pytest.raises(UserError, match=r"^7 is not a text; give a text, or a list of them$"):
        good.translate(["one", 7])
    with pytest.raises(UserError, match=r"^2 sources but 1 translations; give one for each$"):
        good.score(["one", "two"], ["일"])
    with pytest.raises(UserError, match="the translation is empty, but the source is not"):
        good.score(["one"], [""])
    assert good.score([""], [""])[0].log_prob == 0
    with pytest.raises(UserError, match=r"^'one' is one text; give a list of texts$"):
        good.n_best("one")
    with pytest.raises(UserError, match=r"^'one' is one text; give a list of texts$"):
        good.score("one", "일")
    with pytest.raises(UserError, match=r"^5 is neither a text nor a list of them$"):
        good.translate(5)


def test_draws_differ_from_text_to_text_and_follow_the_seed(good: Translator):
    options = heedful.SearchOptions(sample=True, temperature=9.0, max_length=7)
    texts = ["one two"] * 19
    reader, again = (good.reader(options) for _ in range(2))
    asked = [PairExample("", text, None) for text in texts]
    first, second = (reader.answer(reader.prepare(asked)) for _ in range(2))  # two chunks of one stream
    assert again.answer(again.prepare(asked)) == first
    assert len({best[0].text for best in first}) > 10
    assert first != second


def test_where_nothing_is_found_there_is_nothing(good: Translator):
    narrow = Translator(_Few(good.searcher), good.source, good.target)
    assert narrow.n_best(["one", ""]) == [[NOTHING], [EMPTY]]
    assert narrow.translate("one").log_prob == -math.inf


class _Few:
    """Finds nothing."""

    def __init__(self, searcher: TorchSearcher) -> None:
        self.longest = searcher.longest

    def search(self, sentences: list[object], *_: object) -> list[list[object]]:
        return [[] for _ in sentences]


def test_two_translators_decide_together(translator: Make):
    one, two = (load_translator(translator(kind), "cpu") for kind in ("good", "fair"))
    both = heedful.load([translator("good"), translator("fair")], "cpu")
    (found,) = both.score(["two seven"], ["이 칠"])
    each = [
        made.searcher.score([(made.source.encode(["two seven"])[0], made.target.encode(["이 칠"])[0])])[0]
        for made in (one, two)
    ]
    assert found.log_prob == pytest.approx(np.log((np.exp(each[0]) + np.exp(each[1])) / 2).sum(), abs=1e-5)
    assert both.translate("two seven").log_prob == pytest.approx(found.log_prob, abs=1e-5)
    assert heedful.load([translator("good")], "cpu").translate("nine").text == "구"


def test_an_ensemble_needs_one_vocabulary_and_one_way_to_begin(translator: Make, tmp_path: Path):
    good, other = translator("good"), translator("other")
    with pytest.raises(UserError) as caught:
        heedful.load([good, other])
    assert str(caught.value) == f"an ensemble needs one vocabulary: {good} and {other} have different ones"
    net = load_net(good)
    assert isinstance(net, Transformer)
    changed = Transformer(dataclasses.replace(net.config, sos=3))
    save_translator(changed, tmp_path)
    shutil.copy(good / "tokenizer.json", tmp_path)
    with pytest.raises(UserError, match=r"has the ids \(0, 1, 2\) for padding, start and end, .* has \(0, 3, 2\)"):
        heedful.load([good, tmp_path])
    with pytest.raises(UserError, match="there is no folder to load"):
        heedful.load([])


def test_two_vocabularies_and_the_recurrent_model_are_loaded(translator: Make):
    two = load_translator(translator("two"), "cpu")
    assert two.source.vocab_size != two.target.vocab_size
    assert two.target.unknown("three") == ["t", "h", "r", "e"]
    assert set(two.translate("three one").text) <= set("영일이삼사오육칠팔구 ")
    assert load_translator(translator("rnn"), "cpu").translate("three one").pieces


@pytest.mark.parametrize("kind", ["good", "rnn"])
def test_marks_and_the_unknown_are_never_written(translator: Make, kind: str):
    made = load_translator(translator(kind), "cpu")
    drawn = made.n_best(["one two"], sample=True, n_best=97, temperature=9.0)
    pieces = {piece for one in drawn[0] for piece in one.pieces}
    assert len(pieces) > 30
    assert not pieces & set(subwords.SPECIAL)


def test_ids_without_a_piece_are_never_written(translator: Make, tmp_path: Path):
    net = load_net(translator("good"))
    assert isinstance(net, Transformer)
    wider = Transformer(dataclasses.replace(net.config, vocab_size=net.config.vocab_size + 11))
    initialise(wider, torch.Generator().manual_seed(3))
    save_translator(wider, tmp_path)
    shutil.copy(translator("good") / "tokenizer.json", tmp_path)
    drawn = load_translator(tmp_path, "cpu").n_best(["one"], sample=True, n_best=53, temperature=9.0)
    assert all(piece for one in drawn[0] for piece in one.pieces)


def test_vocabularies_that_do_not_belong_to_the_model_are_refused(translator: Make, tmp_path: Path):
    shutil.copytree(translator("other"), tmp_path / "small")
    shutil.copy(translator("good") / "tokenizer.json", tmp_path / "small")
    with pytest.raises(UserError) as caught:
        heedful.load(tmp_path / "small")
    assert str(caught.value) == (
        f"{tmp_path / 'small'}: its source vocabulary has 75 tokens but the model only 61; "
        "they do not belong together"
    )
    shutil.copytree(translator("good"), tmp_path / "end")
    document = json.loads((tmp_path / "end/config.json").read_text())
    (tmp_path / "end/config.json").write_text(json.dumps({**document, "eos_token_id": 5}))
    with pytest.raises(UserError, match="a sentence ends with 2 in its source vocabulary but with 5 in the model"):
        heedful.load(tmp_path / "end")
    shutil.copytree(translator("good"), tmp_path / "none")
    (tmp_path / "none/tokenizer.json").unlink()
    with pytest.raises(UserError, match=r"has no tokenizer.json; give the folder of a translator$"):
        heedful.load(tmp_path / "none")


def test_each_kind_of_folder_says_which_way_it_is_asked(translator: Make, encoder: Path, tmp_path: Path):
    with pytest.raises(UserError, match=r"good translates; use `heedful translate`, in Python heedful.load$"):
        load_predictor(translator("good"))
    with pytest.raises(
        UserError, match="does not translate, it is a model of type 'bert'; ask it with `heedful pred"
    ):
        load_translator(encoder)
    with pytest.raises(UserError, match="does not translate"):
        heedful.load([translator("good"), encoder])
    with pytest.raises(
        UserError, match=r"the engine ctranslate2 is for translators; for .* there are torch and onnx"
    ):
        heedful.load(encoder, engine="ctranslate2")
    with pytest.raises(UserError, match=r"the engine onnx is for encoders; for .* there are torch and ctranslate2"):
        heedful.load(translator("good"), engine="onnx")
    with pytest.raises(UserError, match=r"int8 is for the ctranslate2 engine; .*--engine ctranslate2"):
        heedful.load(translator("good"), int8=True)
    with pytest.raises(UserError, match="nowhere is not a model folder: there is no such folder; name"):
        heedful.load([translator("good"), tmp_path / "nowhere"])


def test_a_marian_folder_from_elsewhere_starts_with_what_its_config_says(tmp_path: Path):
    pieces: list[str] = []
    for name in ("source", "target"):
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter([" ".join(MARIAN_WORDS)] * 31),
            model_prefix=str(tmp_path / name),
            vocab_size=41,
            model_type="unigram",
            hard_vocab_limit=False,
            minloglevel=2,
            num_threads=1,
        )
        peer = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / f"{name}.model"))
        pieces = [peer.id_to_piece(number) for number in range(3, peer.get_piece_size())]
        (tmp_path / f"{name}.model").rename(tmp_path / f"{name}.spm")
    names = ["</s>", "<unk>", *pieces, "<pad>"]
    (tmp_path / "vocab.json").write_text(json.dumps({piece: number for number, piece in enumerate(names)}))
    pad = len(names) - 1
    config = TransformerConfig(
        vocab_size=len(names),
        encoder_layers=1,
        decoder_layers=1,
        dim=12,
        heads=2,
        ffn_dim=17,
        max_length=23,
        pad=pad,
        sos=pad,
        eos=0,
        output_bias=True,
    )
    net = Transformer(config)
    initialise(net, torch.Generator().manual_seed(5))
    save_translator(net, tmp_path)
    made = heedful.load(tmp_path, "cpu")
    assert (made.source.sos, made.target.sos) == (pad, pad)
    found = made.translate("the river", beam=1, max_length=3)
    assert found.pieces
    source = torch.tensor([[*made.source.encode(["the river"])[0], 0]])
    with torch.no_grad():
        scores = net.eval()(source, torch.ones_like(source, dtype=torch.bool), torch.tensor([[pad]]))[0, -1]
    scores[[1, pad]] = -math.inf
    assert found.pieces[0] == names[int(scores.argmax())]
