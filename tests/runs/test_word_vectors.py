import json
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from pydoc_data.topics import topics
from random import Random

import numpy as np
import pytest
import torch

from heedful.config import read_toml
from heedful.data import shards, words
from heedful.data import tokenizer as wordpiece
from heedful.errors import Interrupted, UserError
from heedful.formats import word2vec
from heedful.runs import shards as shards_run
from heedful.runs import word_vectors
from heedful.runs.info import describe
from heedful.runs.nearest import nearest
from heedful.runs.options import TextPart
from heedful.runs.word_options import WordOptions, WordRecipe, WordRunPart, WordTextPart, WordVectorsPart, read_recipe
from heedful.train import checkpoint, log

WATER, STONE = "river ferry heron harbour tide", "mill wall quarry tower bridge"


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """Two companies of words, each sentence of one of them."""
    random = Random(0)
    lines = [" ".join(random.choices(random.choice((WATER, STONE)).split(), k=7)) + "." for _ in range(1201)]
    path = tmp_path / "text.txt"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., WordOptions]:
    """Makes the options of a short run over several pieces of text."""
    monkeypatch.setattr(words, "PIECE", 997)

    def make(corpus: Path, out: str = "out", *, resume: bool = False, lr: float = 0.05, **run: object) -> WordOptions:
        vectors = WordVectorsPart(dim=11, window=3, lr=lr, subsample=0.0)
        part = WordRunPart(**{"epochs": 2, "device": "cpu", **run})  # pyrefly: ignore
        recipe = WordRecipe(corpus=(str(corpus),), vectors=vectors, run=part)
        return WordOptions(settings=recipe, out=tmp_path / out, resume=resume, cache=tmp_path / "cache")

    return make


def test_a_folder_is_made_whose_neighbours_make_sense(text: Path, options: Callable[..., WordOptions]):
    given = options(text)
    word_vectors.train_vectors(given)
    assert sorted(path.name for path in given.out.iterdir()) == ["heedful.toml", "metrics.jsonl", "vectors.txt"]
    found = word2vec.load(given.out)
    assert set(found.words) == {*WATER.split(), *STONE.split(), "."}
    assert found.matrix.shape == (11, 11)
    for company in (WATER.split(), STONE.split()):
        for word in company:
            near = [one.word for one in nearest(found, [word], top=5)[0] if one.word != "."]
            assert {*near[:4]} == {*company} - {word}
    reports = [json.loads(line) for line in (given.out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    assert reports[-1]["loss"] < reports[0]["loss"]
    assert reports[-1]["tokens"] == 2 * 1201 * 8
    assert reports[-1]["words_per_second"] > 0
    assert reports[0]["lr"] > reports[-1]["lr"] == 0.0
    assert len(reports) == reports[-1]["step"] > 10
    assert read_recipe(given.out / "heedful.toml") == given.settings


def test_the_same_seed_gives_the_same_vectors(text: Path, options: Callable[..., WordOptions]):
    made = {}
    for out, seed in (("one", 3), ("same", 3), ("other", 5)):
        word_vectors.train_vectors(options(text, out, seed=seed))
        made[out] = (options(text, out).out / "vectors.txt").read_bytes()
    assert made["one"] == made["same"] != made["other"]


def test_too_little_memory_says_what_to_try(
    text: Path, options: Callable[..., WordOptions], monkeypatch: pytest.MonkeyPatch
):
    def fail(*_: object) -> None:
        raise torch.OutOfMemoryError

    monkeypatch.setattr(word_vectors.Run, "_learn", fail)
    with pytest.raises(UserError, match=r"too small for 11 words of dim 11; try a smaller --dim or a larger --min-"):
        word_vectors.train_vectors(options(text))


# For a number of a vector: 11 words x 2 tables x 4 bytes x 3 copies, and 3 copies of the rows of 4 blocks, each of
# which has 32 words and 2 x 3 around them, the 32 again, and 96 of noise.
NEEDED = 11 * 2 * 4 * 3 + 3 * 4 * 4 * (32 + 2 * 3 + 32 + 96)


@pytest.mark.parametrize(
    ("free", "way_out"),
    [
        (11 * NEEDED - 1, "try --dim 10 or less, or a larger --min-count"),
        (7 * NEEDED, "try --dim 7 or less, or a larger --min-count"),
        (NEEDED - 1, "try a larger --min-count"),
        (11 * NEEDED, None),
    ],
)
def test_vectors_that_memory_can_not_hold_are_refused_before_any_is_made(
    text: Path,
    options: Callable[..., WordOptions],
    monkeypatch: pytest.MonkeyPatch,
    free: int,
    way_out: str | None,
):
    monkeypatch.setattr(word_vectors, "MARGIN", 0.0)
    monkeypatch.setattr(word_vectors, "free_memory", lambda device: free)
    given = options(text)
    if way_out is None:
        word_vectors.train_vectors(given)
        assert word2vec.load(given.out).matrix.shape == (11, 11)
        return
    monkeypatch.setattr(word_vectors, "SkipGram", None)
    with pytest.raises(UserError) as refused:
        word_vectors.train_vectors(given)
    line = "11 words of dim 11 are too large for the 0.0 GiB of memory that can be had; "
    assert str(refused.value) == line + way_out
    assert not given.out.exists()


def test_a_gpu_needs_room_for_the_tables_and_the_host_for_a_checkpoint(monkeypatch: pytest.MonkeyPatch):
    part, gpu = WordVectorsPart(dim=300, window=5), torch.device("cuda", 0)
    room = {"cpu": 10 * 2**30, "cuda": 10 * 2**30}
    monkeypatch.setattr(word_vectors, "free_memory", lambda device: room[device.type])
    word_vectors.require_room(1_000_003, part, gpu)  # 2.2 GiB of tables
    room["cuda"] = 2**30
    line = "1,000,003 words of dim 300 are too large for the 0.9 GiB of GPU memory that can be had; try --dim 120 or"
    with pytest.raises(UserError, match=line):
        word_vectors.require_room(1_000_003, part, gpu)
    room.update(cpu=5 * 2**30, cuda=10 * 2**30)
    with pytest.raises(UserError, match=r"the 4\.5 GiB of memory .*; try --dim 200 or less.*, in a new --out"):
        word_vectors.require_room(1_000_003, part, gpu, resume=True)


def test_prepared_shards_give_the_vectors_of_their_text(
    tmp_path: Path, text: Path, options: Callable[..., WordOptions]
):
    tokenizer = wordpiece.train(lambda: text.read_text(encoding="utf-8").splitlines(), 41)
    assert tokenizer.encode(["harbour"])[0] != [tokenizer.backend.token_to_id("harbour")]  # in pieces
    wordpiece.save(tokenizer, tmp_path / "tokenizer")
    shards_run.make([str(text)], TextPart(held_out=0.0), tmp_path / "tokenizer", tmp_path / "shards")
    assert shards.is_shards(tmp_path / "shards")
    word_vectors.train_vectors(options(text, "one"))
    word_vectors.train_vectors(options(tmp_path / "shards", "other"))
    one, other = word2vec.load(tmp_path / "one"), word2vec.load(tmp_path / "other")
    assert one.words == other.words
    assert [len(row) for row in (one.matrix, other.matrix)] == [11, 11]


def test_a_run_that_is_stopped_and_resumed_equals_one_that_was_not(
    text: Path, options: Callable[..., WordOptions], monkeypatch: pytest.MonkeyPatch
):
    word_vectors.train_vectors(options(text, "whole"))
    stopped, real, seen = options(text, "stopped"), word_vectors.learn, []

    def learn(*arguments: object) -> object:
        seen.append(1)
        if len(seen) == 13:
            signal.raise_signal(signal.SIGTERM)
        return real(*arguments)  # pyrefly: ignore

    monkeypatch.setattr(word_vectors, "learn", learn)
    with pytest.raises(Interrupted, match=r"at step 13; go on with: heedful train-vectors --resume --out \S+$"):
        word_vectors.train_vectors(stopped)
    assert not (stopped.out / "vectors.txt").exists()
    assert len(checkpoint.steps(stopped.out / "checkpoints")) == 1
    word_vectors.train_vectors(options(text, "stopped", resume=True))
    assert len(seen) == len((stopped.out / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
    whole = options(text, "whole").out
    assert (stopped.out / "vectors.txt").read_bytes() == (whole / "vectors.txt").read_bytes()
    assert not (stopped.out / "checkpoints").exists()


def test_checkpoints_are_kept_as_told(
    text: Path, options: Callable[..., WordOptions], monkeypatch: pytest.MonkeyPatch
):
    saved = []
    monkeypatch.setattr(word_vectors.checkpoint, "save", lambda folder, made, keep: saved.append((made.step, keep)))
    word_vectors.train_vectors(options(text, checkpoint_every="7", keep=3))
    assert saved == [(7, 3), (14, 3)]


def test_a_run_on_other_text_is_not_resumed(
    text: Path, options: Callable[..., WordOptions], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(word_vectors, "learn", lambda *_: signal.raise_signal(signal.SIGTERM) or 0.0)
    with pytest.raises(Interrupted):
        word_vectors.train_vectors(options(text))
    with pytest.raises(UserError, match=r"was started with another --lr"):
        word_vectors.train_vectors(options(text, resume=True, lr=0.01))
    text.write_text(text.read_text(encoding="utf-8") * 2, encoding="utf-8")
    with pytest.raises(UserError, match="the data has changed since the run began"):
        word_vectors.train_vectors(options(text, resume=True))


def test_a_budget_ends_a_run(text: Path, options: Callable[..., WordOptions]):
    given = options(text, epochs=None, budget="1s")
    word_vectors.train_vectors(given)
    last = json.loads((given.out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()[-1])
    assert last["elapsed"] >= 1.0
    assert last["step"] > 20
    assert read_toml(given.out / "heedful.toml")["run"]["budget"] == "1s"


@pytest.mark.parametrize("lr", [1e30, 3.0])
def test_a_run_that_diverges_saves_nothing_and_says_what_to_do(
    text: Path, options: Callable[..., WordOptions], monkeypatch: pytest.MonkeyPatch, lr: float
):
    monkeypatch.setattr("heedful.models.word2vec.STEADY", 1e35)
    given = options(text, lr=lr)
    way_on = r"the loss became .* at step \d+.*; try a lower --lr \(now .*\), in a new --out$"
    with pytest.raises(UserError, match=way_on) as error:
        word_vectors.train_vectors(given)
    assert ("of vectors that know nothing it is 4.159" in str(error.value)) == (lr == 3.0)  # 6 ln 2
    assert not (given.out / "vectors.txt").exists()
    told = dict(describe(given.out))
    assert told["run"] == "diverged, no checkpoint yet"
    assert told["why"] == str(error.value)
    assert "go on with" not in told


def test_vectors_that_are_no_numbers_are_not_saved(
    text: Path, options: Callable[..., WordOptions], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(word_vectors.Run, "_learn", lambda self, model, progress: model.read.fill_(float("inf")))
    with pytest.raises(UserError, match="the vectors are no numbers any more; try a lower --lr"):
        word_vectors.train_vectors(options(text))
    assert not (options(text).out / "vectors.txt").exists()


def test_a_run_that_diverged_can_still_be_tried_again(
    text: Path, options: Callable[..., WordOptions], monkeypatch: pytest.MonkeyPatch
):
    with monkeypatch.context() as patch:
        patch.setattr("heedful.models.word2vec.STEADY", 1e35)
        with pytest.raises(UserError, match="the loss became"):
            word_vectors.train_vectors(options(text, lr=3.0))
    given = options(text, lr=3.0, resume=True)
    word_vectors.train_vectors(given)
    assert sorted(path.name for path in given.out.iterdir()) == ["heedful.toml", "metrics.jsonl", "vectors.txt"]


@pytest.mark.parametrize("seed", [0, 1])
def test_text_with_rules_and_tables_in_it_is_learnt(tmp_path: Path, seed: int):
    """Python's own topics: in a grammar or a table the same sign comes far more often than in the text as a whole."""
    corpus = tmp_path / "topics.txt"
    corpus.write_text("\n".join(topics.values()) + "\n", encoding="utf-8")
    recipe = WordRecipe(corpus=(str(corpus),), run=WordRunPart(device="cpu", seed=seed))
    word_vectors.train_vectors(WordOptions(settings=recipe, out=tmp_path / "out", cache=tmp_path / "cache"))
    losses = [report["loss"] for report in log.read(tmp_path / "out")]
    assert max(losses) < 4.16  # that of vectors that know nothing
    assert losses[-1] < 2.6
    found = word2vec.load(tmp_path / "out")
    lengths = np.linalg.norm(found.matrix, axis=1)
    assert 0.8 < lengths.mean() < 2.0
    assert lengths.max() < 6.0
    for word, kin in (("left", "right"), ("true", "false"), ("except", "finally"), ("keys", "values")):
        assert kin in [near.word for near in nearest(found, [word], top=3)[0]]


def test_folders_that_are_taken_are_left_alone(text: Path, options: Callable[..., WordOptions]):
    with pytest.raises(UserError, match="holds no run to resume"):
        word_vectors.train_vectors(options(text, resume=True))
    word_vectors.train_vectors(options(text))
    before = (options(text).out / "vectors.txt").stat().st_mtime_ns
    with pytest.raises(UserError, match="already holds word vectors; choose another --out"):
        word_vectors.train_vectors(options(text))
    with pytest.raises(UserError, match="already holds word vectors; to train for longer, start a new one"):
        word_vectors.train_vectors(options(text, resume=True))
    assert (options(text).out / "vectors.txt").stat().st_mtime_ns == before


def test_a_run_that_can_not_begin_leaves_nothing(tmp_path: Path, options: Callable[..., WordOptions]):
    short = tmp_path / "short.txt"
    short.write_text("one word\n", encoding="utf-8")
    given = options(short)
    with pytest.raises(UserError, match="0 words occur 5 times or more"):
        word_vectors.train_vectors(given)
    assert not given.out.exists()


def test_torchrun_is_refused(text: Path, options: Callable[..., WordOptions], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UserError, match="trained by one process"):
        word_vectors.train_vectors(options(text))


@pytest.mark.parametrize(
    ("part", "value", "complaint"),
    [
        ("dim", 0, "dim 0 must be at least 1"),
        ("window", 0, "window 0 must be at least 1"),
        ("window", 101, "window 101 is wider than sentences are"),
        ("negatives", 0, "negatives 0 must be at least 1"),
        ("min_count", 0, "--min-count 0 must be at least 1"),
        ("subsample", 1.0, "subsample 1.0 must be at least 0 and less than 1"),
        ("lr", 0.0, "lr 0.0 must be above 0"),
        ("lr", float("nan"), "lr nan must be above 0"),
    ],
)
def test_options_that_make_no_sense_are_refused(part: str, value: float, complaint: str):
    with pytest.raises(UserError, match=complaint):
        WordVectorsPart(**{part: value})  # pyrefly: ignore


def test_shards_are_cased_or_not_whatever_is_said(text: Path, options: Callable[..., WordOptions]):
    given = options(text)
    found = word_vectors.prepare(given)
    told = replace(given.settings, corpus=(str(found.folder),), text=WordTextPart(cased=True))
    with pytest.raises(UserError, match="prepared already, with upper case or without; leave --cased out"):
        word_vectors.prepare(replace(given, settings=told))


def test_epochs_and_a_budget_exclude_each_other():
    with pytest.raises(UserError, match="exclude each other"):
        WordRunPart(epochs=3, budget="1m")
    with pytest.raises(UserError, match="epochs 0 must be at least 1"):
        WordRunPart(epochs=0)
    assert WordTextPart().cased is False


def test_vectors_are_finite_where_a_word_is_alone_in_its_sentence(
    tmp_path: Path, options: Callable[..., WordOptions]
):
    lonely = tmp_path / "lonely.txt"
    lonely.write_text("solo\nduo\n" * 7, encoding="utf-8")
    given = options(lonely)
    word_vectors.train_vectors(given)
    assert np.isfinite(word2vec.load(given.out).matrix).all()
