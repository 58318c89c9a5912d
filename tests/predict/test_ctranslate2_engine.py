"""The ctranslate2 engine against torch, on a model that has learnt something; and the export that it needs."""

import dataclasses
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import ctranslate2
import numpy as np
import pytest
import torch

import heedful
from heedful.decode import Hypothesis, SearchOptions
from heedful.errors import UserError
from heedful.formats.ctranslate2 import all_tokens, read_card
from heedful.formats.translators import load_translator as load_net
from heedful.formats.translators import save_translator
from heedful.models.transformer import Transformer
from heedful.predict import Translator, load_translator
from heedful.predict.ctranslate2 import CTranslate2Searcher
from heedful.predict.searching import Sentence
from heedful.runs import export_translator as runs
from heedful.runs.export import export

Make = Callable[[str], Path]
TEXTS = ["three one four", "nine", "", "two seven one eight two", "six zero", "five ☃ five"]


@pytest.fixture(scope="module")
def folder(translator: Make, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A translator with both exports."""
    folder = tmp_path_factory.mktemp("exported") / "good"
    shutil.copytree(translator("good"), folder)
    export(folder, to=None, int8=False, out=None)
    export(folder, to="ctranslate2", int8=True, out=None)
    return folder


@pytest.fixture(scope="module")
def ours(folder: Path) -> Translator:
    return load_translator(folder, "cpu")


@pytest.fixture(scope="module")
def theirs(folder: Path) -> Translator:
    return heedful.load(folder, "cpu", engine="ctranslate2")


@pytest.mark.parametrize(
    "options",
    [
        {"beam": 1},
        {"beam": 4, "early": True},
        {"beam": 4, "length_penalty": 0.5, "early": True},
        {"beam": 4, "penalty": "none", "length_penalty": 2.0, "early": True},
        {"beam": 1, "min_length": 7},
        {"beam": 1, "max_length": 2},
        {"beam": 1, "block_ngrams": 1, "min_length": 5},
        {"beam": 3, "prefix": "칠", "early": True},
    ],
    ids=str,
)
def test_both_write_the_same(ours: Translator, theirs: Translator, options: dict[str, object]):
    # As many as the beam is wide: asked for one alone, ctranslate2 may end with the first that does, however bad.
    asked = {**options, "n_best": options["beam"]}
    expected, found = ([best[0] for best in made.n_best(TEXTS, **asked)] for made in (ours, theirs))
    assert [one.text for one in found] == [one.text for one in expected]
    if "min_length" not in options and "max_length" not in options:  # which change probabilities
        assert [one.score for one in found] == pytest.approx([one.score for one in expected], rel=0.05)
        assert [one.log_prob for one in found] == pytest.approx([one.log_prob for one in expected], rel=0.05)


def test_n_best_are_given_the_best_first(theirs: Translator):
    (best,) = theirs.n_best(["two seven"], beam=5, n_best=3)
    assert best[0].text == "이 칠"
    assert len({one.text for one in best}) == 3
    assert [one.score for one in best] == sorted((one.score for one in best), reverse=True)


def test_given_translations_and_alignments_are_torchs(ours: Translator, theirs: Translator):
    sources, targets = ["two seven one", "nine", "", "six"], ["이 칠", "구 구 구 구", "", "육"]
    for one, two in zip(
        ours.score(sources, targets, align=True), theirs.score(sources, targets, align=True), strict=True
    ):
        assert two.log_prob == pytest.approx(one.log_prob, abs=1e-4)
        assert (one.alignment is None) == (two.alignment is None) == (not one.text)
        if one.alignment is not None and two.alignment is not None:
            np.testing.assert_allclose(two.alignment.weights, one.alignment.weights, atol=1e-5)
            assert two.alignment[:2] == one.alignment[:2]


@pytest.mark.parametrize("room", [1, 11, 1024])
def test_batches_of_any_size_keep_the_order(
    ours: Translator, folder: Path, monkeypatch: pytest.MonkeyPatch, room: int
):
    monkeypatch.setattr("heedful.predict.ctranslate2.BATCH_TOKENS", {"cpu": room})
    found = heedful.load(folder, "cpu", engine="ctranslate2").translate(TEXTS * 3, beam=1, align=True)
    for one, two in zip(ours.translate(TEXTS * 3, beam=1, align=True), found, strict=True):
        assert one.text == two.text
        if one.alignment is not None and two.alignment is not None:
            np.testing.assert_allclose(two.alignment.weights, one.alignment.weights, atol=1e-5)


def test_each_sentence_keeps_to_its_own_limit(theirs: Translator):
    # Words that can't end: 1 and 3 tokens, of which half as many may be written, and ten.
    asked = [Sentence(ids) for ids in theirs.source.encode(["one", "one two three four five"])]
    options = SearchOptions(beam=1, min_length=28, max_ratio=0.5)
    assert [len(best[0].ids) for best in theirs.searcher.search(asked, options)] == [11, 13]
    assert theirs.searcher.search([], options) == []


def test_a_prefix_is_written_whole_however_short_the_source(ours: Translator, theirs: Translator):
    prefix = "일 이 삼 사 오 육 칠 팔 구 일 이 삼 사"
    for one in (ours, theirs):
        assert one.translate("one", prefix=prefix, max_ratio=0.1).text.startswith(prefix)


def test_draws_are_bold_and_never_marks(theirs: Translator):
    (drawn,) = theirs.n_best(["one two"], sample=True, n_best=61, temperature=9.0)
    pieces = {piece for one in drawn for piece in one.pieces}
    assert len(pieces) > 20
    assert not pieces & {"<pad>", "<s>", "</s>", "<unk>"}
    (sure,) = theirs.n_best(["one two"], sample=True, n_best=3, top_k=1)
    assert {one.text for one in sure} == {"일 이"}


def test_eight_bits_write_the_same_here(folder: Path, ours: Translator):
    small = heedful.load(folder, "cpu", engine="ctranslate2", int8=True)
    assert [one.text for one in small.translate(TEXTS[:5])] == [one.text for one in ours.translate(TEXTS[:5])]
    assert isinstance(small.searcher, CTranslate2Searcher)
    assert small.searcher.translator.compute_type.startswith("int8")
    sizes = [(folder / name / "model.bin").stat().st_size for name in ("ctranslate2-int8", "ctranslate2")]
    assert sizes[0] < 0.5 * sizes[1]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"penalty": "gnmt"}, "ctranslate2 has no GNMT penalty; use --penalty average, or --engine torch"),
        ({"coverage_penalty": 0.2}, "ctranslate2 takes padding for words that are not covered; leave out --coverage"),
        (
            {"min_ratio": 0.5},
            "ctranslate2 has one least length for all sentences; use --min-length instead of --min-",
        ),
    ],
)
def test_what_the_engine_can_not_do_is_refused(theirs: Translator, options: dict[str, object], said: str):
    with pytest.raises(UserError, match=f"^{re.escape(said)}"):
        theirs.translate("one", **options)


def test_an_export_says_what_it_is(folder: Path, tmp_path: Path):
    said = export(folder, to=None, int8=False, out=tmp_path / "new")
    assert re.fullmatch(
        rf"wrote {tmp_path}/new \(\d+ kB; writes what torch does, its log-probabilities differ by at most \de-0\d\)",
        said,
    )
    card = read_card(tmp_path / "new")
    assert card is not None
    assert (card.longest, tuple(card.marks)) == (28, (0, 1, 2))
    assert ctranslate2.Translator(str(tmp_path / "new")).translate_batch([["▁nine"]])[0].hypotheses == [["▁구"]]
    said = export(folder, to=None, int8=True, out=tmp_path / "small")
    assert re.search(r"its tokens' log-probabilities differ from torch's by \d\.\d\d at most\)$", said)
    export(folder, to=None, int8=False, out=tmp_path / "new")  # ours may be written over


def test_an_export_that_writes_something_else_is_taken_back(
    translator: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    real = runs.export_ctranslate2

    def wrong(model: Transformer, *arguments: object, **named: object) -> None:
        with torch.no_grad():
            changed = Transformer(model.config).eval()
            changed.load_state_dict(model.state_dict())
            changed.source_embedding.weight[7:].mul_(1.01)
        real(changed, *arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(runs, "export_ctranslate2", wrong)
    with pytest.raises(
        UserError, match=r"new is taken back: its log-probabilities differ from torch's by up to \de-"
    ):
        export(translator("good"), to=None, int8=False, out=tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_what_can_not_be_exported_is_refused(translator: Make, encoder: Path, tmp_path: Path):
    good = translator("good")
    with pytest.raises(
        UserError, match=r"good is a translator, which goes to ctranslate2; export it with --to ctran"
    ):
        export(good, to="onnx", int8=False, out=None)
    with pytest.raises(UserError, match=r"is an encoder, which goes to onnx; export it with --to onnx$"):
        export(encoder, to="ctranslate2", int8=False, out=None)
    with pytest.raises(UserError, match=r"rnn is a recurrent model, but ctranslate2 runs Transformers only"):
        export(translator("rnn"), to=None, int8=False, out=None)
    with pytest.raises(UserError, match=r"rnn is a recurrent model, but ctranslate2 .*; use --engine torch$"):
        heedful.load(translator("rnn"), engine="ctranslate2")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/note").write_text("kept")
    with pytest.raises(
        UserError, match="mine exists and was not written by heedful; move it away, or choose another"
    ):
        export(good, to=None, int8=False, out=tmp_path / "mine")
    assert (tmp_path / "mine/note").read_text() == "kept"


def test_a_folder_that_is_missing_old_or_not_ours_says_what_to_do(folder: Path, translator: Make, tmp_path: Path):
    with pytest.raises(UserError) as caught:
        heedful.load(translator("good"), engine="ctranslate2", int8=True)
    good = translator("good")
    again = f"`heedful export {good} --to ctranslate2 --int8`"
    assert str(caught.value) == f"{good} has no folder ctranslate2-int8; write it with {again}"
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    net = load_net(copy)
    with torch.no_grad():
        next(net.parameters()).add_(0.1)
    save_translator(net, copy)
    with pytest.raises(
        UserError, match=r"ctranslate2 was made from other weights than .*; write it again with `heed"
    ):
        heedful.load(copy, engine="ctranslate2")
    document = json.loads((copy / "ctranslate2/config.json").read_text())
    del document["heedful"]
    (copy / "ctranslate2/config.json").write_text(json.dumps(document))
    with pytest.raises(UserError, match="was not written by heedful; move it away and write it with `heedful export"):
        heedful.load(copy, engine="ctranslate2")
    broken = tmp_path / "broken"
    shutil.copytree(folder, broken)
    (broken / "ctranslate2/model.bin").write_bytes(b"nothing")
    with pytest.raises(UserError, match=r"ctranslate2 can't be read \(\w+\); export the model again$"):
        heedful.load(broken, engine="ctranslate2")
    other = tmp_path / "other"
    shutil.copytree(folder, other)
    tokens = json.loads((other / "ctranslate2/shared_vocabulary.json").read_text(encoding="utf-8"))
    (other / "ctranslate2/shared_vocabulary.json").write_text(json.dumps([*tokens[:-2], tokens[-1], tokens[-2]]))
    with pytest.raises(UserError, match="ctranslate2 has another vocabulary than the model; export it again"):
        heedful.load(other, engine="ctranslate2")
    with pytest.raises(UserError, match="ctranslate2 runs one model, not an ensemble; use the engine torch"):
        heedful.load([folder, folder], engine="ctranslate2")


def test_a_gpu_that_can_not_be_used_is_refused_or_done_without(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ctranslate2, "get_cuda_device_count", lambda: 0)
    with pytest.raises(UserError, match=r"^ctranslate2 can't use cuda here \(there is none\); the device cpu"):
        heedful.load(folder, "cuda", engine="ctranslate2")
    with pytest.raises(UserError, match=r"^ctranslate2 can't use cuda:1 here \(there is none\); the device cpu"):
        heedful.load(folder, "cuda:1", engine="ctranslate2")
    real, asked = ctranslate2.Translator, []

    def broken(path: str, device: str, **options: int) -> ctranslate2.Translator:
        asked.append((device, options.get("device_index")))
        if device == "cuda":
            raise RuntimeError("Library libcublas is not found\nor else")
        return real(path, device, **options)

    monkeypatch.setattr(ctranslate2, "get_cuda_device_count", lambda: 1)
    monkeypatch.setattr(ctranslate2, "Translator", broken)
    with pytest.raises(UserError, match=r"^ctranslate2 can't use cuda here \(Library libcublas is not found\);"):
        heedful.load(folder, "cuda", engine="ctranslate2")
    for device in ("auto", torch.device("cpu")):
        assert heedful.load(folder, device, engine="ctranslate2").translate("nine").text == "구"
    with pytest.raises(UserError, match=r"^ctranslate2 can't use cuda:1 here \(there are 1, from 0 on\)"):
        heedful.load(folder, "cuda:1", engine="ctranslate2")
    monkeypatch.setattr(ctranslate2, "get_cuda_device_count", lambda: 2)
    with pytest.raises(UserError, match=r"^ctranslate2 can't use cuda:1 here \(Library"):
        heedful.load(folder, "cuda:1", engine="ctranslate2")
    assert asked == [("cuda", 0), ("cuda", 0), ("cpu", None), ("cpu", None), ("cuda", 1)]


def test_two_vocabularies_and_ids_without_a_piece_go_through(translator: Make, tmp_path: Path):
    assert all_tokens(["a", "b"], 4) == ["a", "b", "<unused 2>", "<unused 3>"]
    for kind in ("two", "good"):
        folder = tmp_path / kind
        shutil.copytree(translator(kind), folder)
        net = load_net(folder)
        assert isinstance(net, Transformer)
        if kind == "good":
            net = Transformer(dataclasses.replace(net.config, vocab_size=net.config.vocab_size + 7)).eval()
            save_translator(net, folder)
        export(folder, to=None, int8=False, out=None)
        ours, theirs = heedful.load(folder, "cpu"), heedful.load(folder, "cpu", engine="ctranslate2")
        asked = [Sentence(ids) for ids in ours.source.encode(["three one", "nine"])]
        options = SearchOptions(beam=1, max_length=5)
        assert _ids(theirs.searcher.search(asked, options)) == _ids(ours.searcher.search(asked, options))


def _ids(found: list[list[Hypothesis]]) -> list[list[tuple[int, ...]]]:
    return [[one.ids for one in best] for best in found]


def test_memory_that_is_too_small_for_it_is_no_damaged_file(folder: Path, monkeypatch: pytest.MonkeyPatch):
    def full(*_: object, **__: object) -> None:
        raise RuntimeError("CUDA failed with error out of memory")

    monkeypatch.setattr(ctranslate2, "get_cuda_device_count", lambda: 1)
    monkeypatch.setattr(ctranslate2, "Translator", full)
    for device in ("auto", "cuda", "cpu"):
        with pytest.raises(RuntimeError, match="out of memory"):
            load_translator(folder, device, engine="ctranslate2")
