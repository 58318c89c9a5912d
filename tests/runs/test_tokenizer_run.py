import io
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from heedful.data import sources
from heedful.data import tokenizer as wordpiece
from heedful.data.heldout import held_out
from heedful.errors import UserError
from heedful.runs import corpus, shards, tokenizer
from heedful.runs.options import TextPart, VocabularyPart

TEXT = TextPart(held_out=0.3)
SMALL = VocabularyPart(vocab_size=47)


@pytest.fixture
def file(tmp_path) -> Path:
    """Documents of two sentences, each different from the others."""
    words = ["mill", "river", "bread", "heron", "다리"]
    lines = [f"the {words[i % 5]} and {words[i // 5 % 5]}\nno {words[i // 25 % 5]} here\n" for i in range(125)]
    path = tmp_path / "text.txt"
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def typed(monkeypatch, content: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(content)))


def test_the_vocabulary_is_saved_and_its_fit_told(file, tmp_path):
    out = tmp_path / "out"
    first, second = tokenizer.make([str(file)], TEXT, SMALL, out)
    assert first == f"47 tokens, uncased, saved in {out}"
    made = wordpiece.load(out)
    assert made.vocab_size == 47
    documents = [d for d in sources.documents([file], sources.TextOptions()) if held_out(d, 0.3)]
    sentences = [sentence for document in documents for sentence in document]
    tokens = sum(map(len, made.encode(sentences)))
    assert tokens > 100
    characters = sum(map(len, sentences)) / tokens
    assert second == f"on held-out text: 0.000% [UNK], {characters:.2f} characters a token ({tokens:,} tokens)"


def test_what_the_vocabulary_lacks_is_told(file, tmp_path):
    """A letter that only held-out documents have: one [UNK] in each."""
    known = [document for document in sources.documents([file], sources.TextOptions()) if not held_out(document, 0.3)]
    strange = [d for i in range(31) if held_out(d := ["the mill" + " and bread" * i, "ж"], 0.3)]
    assert strange
    file.write_text("\n\n".join("\n".join(document) for document in known + strange), encoding="utf-8")
    made = corpus.train_tokenizer([file], TEXT, SMALL)
    unknown, tokens, characters = tokenizer.coverage(made, [file], TEXT)
    assert unknown == len(strange)
    assert characters == sum(len(sentence) for document in strange for sentence in document)
    lines = tokenizer.make([str(file)], TEXT, SMALL, tmp_path / "out")
    assert f"{unknown / tokens:.3%} [UNK]" in lines[1]


def test_held_out_text_does_not_shape_the_vocabulary(file):
    seen = corpus.train_tokenizer([file], TEXT, SMALL)
    kept = [s for d in sources.documents([file], sources.TextOptions()) if not held_out(d, 0.3) for s in d]
    assert seen.fingerprint == wordpiece.train(lambda: kept, 47).fingerprint


def test_nothing_held_out_is_told(file, tmp_path):
    lines = tokenizer.make([str(file)], TextPart(held_out=0), SMALL, tmp_path / "out")
    assert lines[1] == "no document is held out to test on; --held-out 0.1 holds out more"


def test_case_is_kept_on_request(file, tmp_path):
    vocabulary = VocabularyPart(vocab_size=47, cased=True)
    lines = tokenizer.make([str(file)], TEXT, vocabulary, tmp_path / "out")
    assert "cased" in lines[0]
    assert "uncased" not in lines[0]


def test_a_tokenizer_is_never_overwritten(file, tmp_path):
    tokenizer.make([str(file)], TEXT, SMALL, tmp_path / "out")
    before = (tmp_path / "out" / "tokenizer.json").read_bytes()
    with pytest.raises(UserError, match="exists and is not empty; choose another --out"):
        tokenizer.make([str(file)], TEXT, VocabularyPart(vocab_size=43), tmp_path / "out")
    assert (tmp_path / "out" / "tokenizer.json").read_bytes() == before


def test_a_failed_training_leaves_no_folder(file, tmp_path):
    with pytest.raises(UserError, match="--vocab-size"):
        tokenizer.make([str(file)], TEXT, VocabularyPart(vocab_size=10007), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_shards_are_prepared_in_the_users_folder(file, tmp_path):
    tokenizer.make([str(file)], TEXT, SMALL, tmp_path / "tokenizer")
    out = tmp_path / "shards"
    said = shards.make([str(file)], TEXT, tmp_path / "tokenizer", out)
    kept = [d for d in sources.documents([file], sources.TextOptions()) if not held_out(d, 0.3)]
    assert said.startswith(f"text: {len(kept)} documents, ")
    assert f"held out: {125 - len(kept)} documents, " in said
    assert said.endswith(f"saved in {out}: heedful pretrain {out} --out FOLDER")
    told = int(re.search(r"documents, ([\d,]+) tokens;", said)[1].replace(",", ""))
    made = wordpiece.load(tmp_path / "tokenizer")
    assert told == sum(len(ids) for document in kept for ids in made.encode(document))


def test_shards_are_never_overwritten(file, tmp_path):
    tokenizer.make([str(file)], TEXT, SMALL, tmp_path / "tokenizer")
    (tmp_path / "there").mkdir()
    with pytest.raises(UserError, match="exists already; choose another --out"):
        shards.make([str(file)], TEXT, tmp_path / "tokenizer", tmp_path / "there")


@pytest.mark.parametrize(
    ("plain", "packed", "share"),
    [
        (0, 0, 0.1),
        (1, 0, 0.1),
        (5_000_000, 0, 0.1),
        (10_000_000, 0, 0.05),
        (2_000_000, 2_000_000, 0.05),  # packed, text takes a quarter of its room
        (50_000_000, 0, 0.01),
        (0, 12_500_000, 0.01),
        (10**10, 0, 0.01),
    ],
)
def test_a_larger_text_has_a_smaller_part_held_out(tmp_path, plain, packed, share):
    sizes = {"one.txt": plain // 2, "two.csv": plain - plain // 2, "three.txt.gz": packed}
    for name, size in sizes.items():
        with (tmp_path / name).open("wb") as file:
            file.truncate(size)  # nothing is written, and no room taken
    assert corpus.asked_share(TextPart(), [tmp_path / name for name in sizes]) == pytest.approx(share)


def test_the_share_asked_for_is_held_out(file):
    assert corpus.held_out_share(TextPart(held_out=0.37), [file]) == 0.37
    assert corpus.held_out_share(TextPart(held_out=0), [file]) == 0


def test_every_document_is_never_held_out(file, tmp_path):
    """Nor is the only one: it would leave a vocabulary of nothing."""
    one = tmp_path / "one.txt"
    one.write_text(file.read_text(encoding="utf-8").replace("\n\n", "\n"), encoding="utf-8")
    [document] = sources.documents([one], sources.TextOptions())
    assert held_out(document, 0.999)
    assert corpus.held_out_share(TextPart(held_out=0.999), [one]) == 0
    with pytest.raises(
        UserError, match=r"--held-out 0\.999999 leaves none of the 125 documents to train on; use less"
    ):
        corpus.held_out_share(TextPart(held_out=0.999999), [file])
    said = tokenizer.make([str(one)], TextPart(held_out=0.999), SMALL, tmp_path / "tokenizer")
    assert said[0].startswith("47 tokens")
    advice = "this text is only one document: add some; in a file, blank lines separate them"
    assert said[1] == f"no document is held out to test on; whole documents are held out, and {advice}"
    said = shards.make([str(one)], TextPart(held_out=0.999), tmp_path / "tokenizer", tmp_path / "shards")
    assert said.startswith("text: 1 document, ")
    assert "held out: 0 documents, 0 tokens" in said


@pytest.mark.parametrize(
    ("documents", "share", "advice"),
    [
        (125, 0.0, "--held-out 0.1 "),
        (125, 0.01, "--held-out 0.1 "),
        (125, 0.1, "--held-out 0.2 "),
        (29, 0.0, "--held-out 0.2 "),
        (15, 0.1, "--held-out 0.2 "),
        (14, 0.1, "only 14 documents: add some; in a file, blank lines separate them"),  # and not half of the text
        (5, 0.1, "only 5 documents: add some; in a file, blank lines separate them"),
        (1, 0.0, "only one document: add some; in a file, blank lines separate them"),
    ],
)
def test_a_larger_share_is_named_where_it_helps(documents, share, advice):
    assert advice in corpus.hold_out_more(documents, share)
    assert ("--held-out" in advice) == ("--held-out" in corpus.hold_out_more(documents, share))


@pytest.mark.parametrize("share", [-0.1, 1, 1.5, float("nan")])
def test_an_impossible_share_is_refused(share):
    with pytest.raises(UserError, match="--held-out"):
        TextPart(held_out=share)


def test_standard_input_is_read_once_and_kept(tmp_path, monkeypatch):
    typed(monkeypatch, b"the mill\n")
    [kept] = corpus.find_files(["-"], tmp_path, TextPart())
    assert kept.read_bytes() == b"the mill\n"
    assert kept.parent == tmp_path
    typed(monkeypatch, b"")
    assert corpus.find_files(["-"], tmp_path, TextPart()) == [kept]


def test_standard_input_stands_alone(tmp_path, file):
    with pytest.raises(UserError, match=r"standard input \(-\) can't be mixed"):
        corpus.find_files(["-", str(file)], tmp_path, TextPart())


def test_empty_standard_input_is_refused(tmp_path, monkeypatch):
    typed(monkeypatch, b"")
    with pytest.raises(UserError, match="standard input is empty"):
        tokenizer.make(["-"], TEXT, SMALL, tmp_path / "out")


def test_a_vocabulary_and_shards_from_standard_input(file, tmp_path, monkeypatch):
    typed(monkeypatch, file.read_bytes())
    piped = tokenizer.make(["-"], TEXT, SMALL, tmp_path / "piped")
    named = tokenizer.make([str(file)], TEXT, SMALL, tmp_path / "named")
    assert piped[1] == named[1]
    typed(monkeypatch, file.read_bytes())
    shards.make(["-"], TEXT, tmp_path / "piped", tmp_path / "one")
    shards.make([str(file)], TEXT, tmp_path / "piped", tmp_path / "two")
    assert np.array_equal(*(np.fromfile(tmp_path / name / "train.tokens", np.uint16) for name in ("one", "two")))


def test_only_a_sample_of_a_large_text_is_used(file, monkeypatch):
    used: list[str] = []
    monkeypatch.setattr(wordpiece, "train", lambda sentences, *_, **__: used.extend(sentences()))
    corpus.train_tokenizer([file], TEXT, SMALL)
    everything = list(used)
    used.clear()
    monkeypatch.setattr(corpus, "TOKENIZER_BYTES", file.stat().st_size // 3)
    corpus.train_tokenizer([file], TEXT, SMALL)
    assert set(used) <= set(everything)
    assert len(used) / len(everything) == pytest.approx(1 / 3, abs=0.15)


def test_prepared_shards_are_taken_as_they_are(file, tmp_path):
    tokenizer.make([str(file)], TEXT, SMALL, tmp_path / "tokenizer")
    tokenizer.make([str(file)], TEXT, VocabularyPart(vocab_size=43), tmp_path / "other")
    shards.make([str(file)], TEXT, tmp_path / "tokenizer", tmp_path / "shards")

    def prepared(given=None, text=TextPart(), more=()):  # noqa: B008 (frozen)
        return corpus.prepare(
            [str(tmp_path / "shards"), *more],
            text,
            tokenizer=lambda _: pytest.fail("trained"),
            given=given,
            stdin_folder=tmp_path,
            cache=tmp_path / "cache",
            say=lambda _: pytest.fail("prepared"),
        )

    assert prepared().folder == tmp_path / "shards"
    assert prepared(wordpiece.load(tmp_path / "tokenizer")).folder == tmp_path / "shards"
    with pytest.raises(UserError, match="another one"):
        prepared(wordpiece.load(tmp_path / "other"))
    with pytest.raises(UserError, match="is prepared already; leave --held-out out"):
        prepared(text=TEXT)
    with pytest.raises(UserError, match="is prepared already; leave --text out"):
        prepared(text=TextPart(text="column"))
    with pytest.raises(UserError, match="is prepared already and can't be mixed with other text; give it alone"):
        prepared(more=[str(file)])


def test_no_text_is_refused(tmp_path):
    with pytest.raises(UserError, match="no text was given"):
        corpus.prepare(
            [],
            TEXT,
            tokenizer=lambda _: pytest.fail("trained"),
            given=None,
            stdin_folder=tmp_path,
            cache=tmp_path,
            say=print,
        )


def test_a_vocabulary_of_no_given_size_is_as_large_as_the_text_supports(file):
    supported = corpus.train_tokenizer([file], TEXT, VocabularyPart()).vocab_size
    assert 47 < supported < corpus.VOCAB_SIZE
    assert corpus.train_tokenizer([file], TEXT, VocabularyPart(vocab_size=supported)).vocab_size == supported
    with pytest.raises(UserError, match=f"larger than this text supports .* use --vocab-size {supported}"):
        corpus.train_tokenizer([file], TEXT, VocabularyPart(vocab_size=supported + 1))


def test_a_folder_that_holds_anything_is_not_taken(file, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "note").write_text("mine", encoding="utf-8")
    with pytest.raises(UserError, match="exists and is not empty; choose another --out"):
        tokenizer.make([str(file)], TEXT, SMALL, tmp_path / "mine")
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["note"]


def test_closed_standard_input_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(UserError, match="standard input is closed"):
        corpus.find_files(["-"], tmp_path, TextPart())
