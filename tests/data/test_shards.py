import errno
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.data import shards, sources
from heedful.data import tokenizer as wordpiece
from heedful.data.heldout import held_out
from heedful.data.shards import Shards, Split, check_tokenizer, is_shards, load, prepare
from heedful.data.sources import TextOptions
from heedful.errors import UserError

SHARE = 0.3


def write(path: Path, documents: list[list[str]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join("".join(s + "\n" for s in document) + "\n" for document in documents), encoding="utf-8")
    return path


def make(file: Path, tokenizer, cache: Path, share: float = SHARE, **options: str) -> Shards:
    return prepare([file], TextOptions(**options), tokenizer, share=share, cache=cache)


def text(split: Split) -> list[list[list[int]]]:
    """The ids of each sentence of each document."""
    sentences = [ids.tolist() for ids in np.split(split.tokens, split.sentences[1:-1])] if len(split.tokens) else []
    return [sentences[a:b] for a, b in zip(split.documents[:-1], split.documents[1:], strict=True)]


@pytest.fixture(scope="module")
def corpus() -> list[list[str]]:
    numbers = ["river", "mill", "bread", "heron", "강가", "다리", "café"]
    return [
        [f"the {numbers[(i * j) % 7]} of the {numbers[(i + j) % 7]}" for j in range(1 + i % 5)] for i in range(1, 104)
    ]


@pytest.fixture
def file(tmp_path, corpus) -> Path:
    return write(tmp_path / "text.txt", corpus)


@pytest.fixture
def made(file, trained, tmp_path) -> Shards:
    return make(file, trained, tmp_path / "cache")


def test_what_was_written_is_what_was_read(made, corpus, trained):
    kept = [trained.encode(document) for document in corpus if not held_out(document, SHARE)]
    out = [trained.encode(document) for document in corpus if held_out(document, SHARE)]
    assert 0 < len(out) < len(kept)
    assert text(made.train) == kept
    assert text(made.heldout) == out
    for split in (made.train, made.heldout):
        assert split.tokens.dtype == np.uint16
        assert split.sentences[0] == split.documents[0] == 0
        assert split.sentences[-1] == len(split.tokens)
        assert split.documents[-1] == len(split.sentences) - 1
        assert split.has_pairs()


@settings(max_examples=25, deadline=None)
@given(st.lists(st.lists(st.sampled_from(["the mill", "a", "다리", "\u200b", "\ufe0e\u00ad", "bread!"]), min_size=1)))
def test_sentences_and_documents_without_tokens_are_left_out(trained, tmp_path_factory, documents):
    folder = tmp_path_factory.mktemp("shards")
    first = ["the river"]
    shards.write([first, *documents], trained, folder, key="k", share=0)
    real = [[ids for ids in trained.encode(document) if ids] for document in [first, *documents]]
    assert text(load(folder).train) == [document for document in real if document]


def test_some_sentences_have_no_tokens(trained):
    assert trained.encode(["\u200b"]) == [[]]


def test_chunks_leave_no_seam(file, trained, tmp_path, corpus, monkeypatch):
    whole = make(file, trained, tmp_path / "whole")
    monkeypatch.setattr(shards, "CHUNK", 37)
    pieces = make(file, trained, tmp_path / "pieces")
    for ours, theirs in zip((*whole.train, *whole.heldout), (*pieces.train, *pieces.heldout), strict=True):
        assert np.array_equal(ours, theirs)


def test_nothing_need_be_held_out(file, trained, tmp_path, corpus):
    made = make(file, trained, tmp_path, share=0)
    assert text(made.train) == [trained.encode(document) for document in corpus]
    assert len(made.heldout.tokens) == 0
    assert not made.heldout.has_pairs()


def test_a_text_that_is_all_held_out_is_refused(file, trained, tmp_path):
    with pytest.raises(UserError, match=r"too few documents.*--held-out"):
        make(file, trained, tmp_path / "cache", share=0.999999)
    assert list((tmp_path / "cache" / "shards").iterdir()) == []


def test_the_key_follows_the_content_alone(file, made, corpus, trained, tmp_path):
    cache = tmp_path / "cache"
    os.utime(file, (1, 1))
    assert make(file, trained, cache).key == made.key
    elsewhere = write(tmp_path / "deep" / "down" / "other.v2.TXT", corpus)
    assert make(elsewhere, trained, cache).key == made.key
    assert [path.name for path in (cache / "shards").iterdir()] == [made.key]


def test_the_key_changes_with_all_that_counts(file, made, corpus, sentences, trained, tmp_path):
    cache = tmp_path / "cache"
    changed = write(tmp_path / "changed.txt", [*corpus[:-1], ["the mill"]])
    other = wordpiece.train(lambda: sentences, 241)
    keys = [
        made.key,
        make(changed, trained, cache).key,
        make(file, other, cache).key,
        make(file, trained, cache, share=0.31).key,
        make(file, trained, cache, errors="replace").key,
        prepare([file, changed], TextOptions(), trained, share=SHARE, cache=cache).key,
        prepare([changed, file], TextOptions(), trained, share=SHARE, cache=cache).key,
    ]
    assert len(set(keys)) == len(keys)
    assert {path.name for path in (cache / "shards").iterdir()} == set(keys)


def test_a_table_is_not_taken_for_text_of_the_same_bytes(trained, tmp_path):
    content = [["text", "the mill", "the river"]]
    plain = make(write(tmp_path / "a.txt", content), trained, tmp_path / "cache", share=0)
    table = make(write(tmp_path / "a.csv", content), trained, tmp_path / "cache", share=0)
    assert plain.key != table.key
    assert len(plain.train.tokens) > len(table.train.tokens)


def test_the_second_time_nothing_is_written(file, made, trained, tmp_path, monkeypatch):
    def state() -> dict[str, tuple[int, int]]:
        return {p.name: (p.stat().st_ino, p.stat().st_mtime_ns) for p in [made.folder, *made.folder.iterdir()]}

    before = state()
    monkeypatch.setattr(shards, "write", lambda *_, **__: pytest.fail("written again"))
    again = make(file, trained, tmp_path / "cache")
    assert state() == before
    assert again.folder == made.folder
    assert np.array_equal(again.train.tokens, made.train.tokens)


def test_an_interruption_leaves_nothing_behind(file, trained, tmp_path, corpus, monkeypatch):
    def broken(*_: object) -> Iterator[list[str]]:
        yield from corpus[:50]
        raise KeyboardInterrupt

    monkeypatch.setattr(shards, "CHUNK", 37)
    with monkeypatch.context() as patch:
        patch.setattr(sources, "documents", broken)
        with pytest.raises(KeyboardInterrupt):
            make(file, trained, tmp_path / "cache")
    assert list((tmp_path / "cache" / "shards").iterdir()) == []
    assert text(make(file, trained, tmp_path / "cache").train)


@pytest.mark.parametrize("writer", [2**22 + 7, os.getpid()], ids=["dead", "alive"])  # no process has so high a number
def test_what_a_killed_run_left_is_no_shards_and_in_nobodys_way(file, made, trained, tmp_path, writer):
    left = made.folder.with_name(f".{made.key}.{writer}@{platform.node()}.tmp")
    made.folder.rename(left)
    (left / "meta.json").unlink()
    assert not is_shards(left)
    again = make(file, trained, tmp_path / "cache")
    assert is_shards(again.folder)
    assert [path.name for path in again.folder.parent.iterdir()] == [made.key]


def test_whoever_is_first_wins(file, trained, tmp_path, monkeypatch):
    """Two processes prepare the same text; the other one is done while this one writes."""
    theirs = make(file, trained, tmp_path / "other").folder
    real = shards.write

    def slow(*args: object, **options: object) -> None:
        real(*args, **options)
        theirs.rename(tmp_path / "cache" / "shards" / theirs.name)

    monkeypatch.setattr(shards, "write", slow)
    made = make(file, trained, tmp_path / "cache")
    assert [path.name for path in (tmp_path / "cache" / "shards").iterdir()] == [made.key]


def test_a_folder_of_the_users_own(file, made, trained, tmp_path):
    folder = tmp_path / "here" / "mine"
    mine = prepare([file], TextOptions(), trained, share=SHARE, folder=folder)
    assert mine.folder == folder
    assert mine.key == made.key
    assert np.array_equal(mine.train.tokens, made.train.tokens)
    assert load(folder).tokenizer.fingerprint == trained.fingerprint


def test_wide_tokens_for_a_large_vocabulary(trained, tmp_path, monkeypatch):
    monkeypatch.setattr(type(trained), "vocab_size", property(lambda _: (1 << 16) + 1))
    shards.write([["the mill"]], trained, tmp_path, key="k", share=0)
    found = load(tmp_path)
    assert found.train.tokens.dtype == np.uint32
    assert text(found.train) == [trained.encode(["the mill"])]


def test_narrow_tokens_up_to_the_last_id(trained, tmp_path, monkeypatch):
    monkeypatch.setattr(type(trained), "vocab_size", property(lambda _: 1 << 16))
    shards.write([["the mill"]], trained, tmp_path, key="k", share=0)
    assert load(tmp_path).train.tokens.dtype == np.uint16


@pytest.mark.parametrize("name", ["train.tokens", "train.sentences", "heldout.documents"])
def test_a_file_cut_short_is_refused(made, name):
    path = made.folder / name
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(UserError, match=f"damaged \\({name} has .*delete the folder"):
        load(made.folder)


@pytest.mark.parametrize("name", ["train.tokens", "heldout.tokens", "train.documents"])
def test_a_missing_file_is_refused(made, name):
    (made.folder / name).unlink()
    assert is_shards(made.folder)  # not text, for want of a file
    with pytest.raises(UserError, match="damaged"):
        load(made.folder)


@pytest.mark.parametrize("name", ["train.tokens", "train.sentences", "heldout.tokens", "heldout.documents"])
def test_a_changed_byte_is_found_by_whoever_verifies(file, made, trained, tmp_path, name):
    path = made.folder / name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    load(made.folder)  # reads nothing that it does not need
    with pytest.raises(UserError, match=rf"damaged \({name} is not as it was written\); delete the folder"):
        load(made.folder, verify=True)
    again = make(file, trained, tmp_path / "cache")  # what the cache has lost can be made anew
    assert again.folder == made.folder
    load(made.folder, verify=True)


@pytest.mark.parametrize("name", ["meta.json", "train.tokens", "tokenizer.json"])
def test_what_is_gone_from_the_cache_is_made_anew(file, made, trained, tmp_path, name):
    expected = text(made.train)
    (made.folder / name).unlink()
    assert text(make(file, trained, tmp_path / "cache").train) == expected


def test_what_comes_in_the_moment_it_is_missed_stays(file, made, trained, tmp_path, monkeypatch):
    """Another process completes the folder after this one has looked for it."""
    away = made.folder.rename(tmp_path / "away")
    real = shards.is_shards
    monkeypatch.setattr(shards, "is_shards", lambda path: real(away.rename(path) if away.exists() else path))
    before = (away / "meta.json").stat().st_ino
    assert make(file, trained, tmp_path / "cache").folder == made.folder
    assert (made.folder / "meta.json").stat().st_ino == before


def test_a_disk_that_fails_for_a_while_costs_nothing(file, made, trained, tmp_path, monkeypatch):
    def fail(folder: Path, _: object) -> None:
        raise OSError(errno.EIO, "Input/output error", str(folder / "train.tokens"))

    before = (made.folder / "meta.json").stat().st_ino
    with monkeypatch.context() as failing:
        failing.setattr(shards, "_verify", fail)
        with pytest.raises(UserError, match=r"cannot read .*\(train.tokens: Input/output error\)"):
            make(file, trained, tmp_path / "cache")
    assert make(file, trained, tmp_path / "cache").folder == made.folder
    assert (made.folder / "meta.json").stat().st_ino == before


def test_nor_does_one_that_fails_at_the_tokenizer(file, made, trained, tmp_path, monkeypatch):
    real = Path.read_text

    def fail(path: Path, **options: str) -> str:
        if path == made.folder / "tokenizer.json":
            raise OSError(errno.EIO, "Input/output error")  # as reading does, where opening would name the file
        return real(path, **options)

    before = (made.folder / "meta.json").stat().st_ino
    with monkeypatch.context() as failing:
        failing.setattr(Path, "read_text", fail)
        with pytest.raises(UserError, match=r"cannot read .*tokenizer\.json \(Input/output error\); mend that"):
            make(file, trained, tmp_path / "cache")
    assert make(file, trained, tmp_path / "cache").folder == made.folder
    assert (made.folder / "meta.json").stat().st_ino == before


def test_a_folder_of_the_users_own_is_left_as_it_is(file, trained, tmp_path):
    folder = tmp_path / "mine"
    prepare([file], TextOptions(), trained, share=SHARE, folder=folder)
    (folder / "train.tokens").write_bytes(b"")
    with pytest.raises(UserError, match="damaged"):
        prepare([file], TextOptions(), trained, share=SHARE, folder=folder)


def test_shards_of_before_there_were_checksums_are_read(made):
    path = made.folder / "meta.json"
    path.write_text(json.dumps({k: v for k, v in json.loads(path.read_text()).items() if k != "checksums"}))
    assert text(load(made.folder, verify=True).train) == text(made.train)


@pytest.mark.parametrize("checksums", [None, [], {}, {"train.tokens": 7}])
def test_damaged_checksums_are_refused(made, checksums):
    path = made.folder / "meta.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"checksums": checksums}))
    with pytest.raises(UserError, match="damaged"):
        load(made.folder, verify=True)


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"format": 1, "splits": {}}', "null"])
def test_a_damaged_description_is_refused(made, content):
    (made.folder / "meta.json").write_text(content)
    with pytest.raises(UserError, match="damaged"):
        load(made.folder)


def test_another_format_is_refused(made):
    path = made.folder / "meta.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": 2}))
    with pytest.raises(UserError, match="format 2, not 1; delete"):
        load(made.folder)


def test_another_format_is_told_from_damage(made):
    """A later format may have other fields altogether."""
    (made.folder / "meta.json").write_text('{"format": 2}')
    with pytest.raises(UserError, match="format 2, not 1; delete"):
        load(made.folder)


def test_a_folder_without_shards_is_refused(tmp_path):
    assert not is_shards(tmp_path)
    with pytest.raises(UserError, match="no shards"):
        load(tmp_path)


def test_another_tokenizer_is_refused(made, sentences):
    check_tokenizer(made.tokenizer, made.tokenizer.fingerprint, made.folder)
    other = wordpiece.train(lambda: sentences, 241)
    with pytest.raises(UserError, match="another one"):
        check_tokenizer(other, made.tokenizer.fingerprint, made.folder)
    wordpiece.save(other, made.folder)
    with pytest.raises(UserError, match="another one"):
        load(made.folder)


# The process's own peak: getrusage would count what its parent had when it was forked.
PEAK = r"""
import re, sys
from pathlib import Path
from heedful.data import shards, sources, tokenizer
made = tokenizer.load(sys.argv[2])
found = shards.prepare([Path(sys.argv[1])], sources.TextOptions(), made, share=0.1, cache=Path(sys.argv[3]))
peak = re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1]
print(len(found.train.documents), int(peak) // 1024)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="no /proc to read a process's peak memory from")
def test_memory_does_not_grow_with_the_text(trained, tmp_path):
    wordpiece.save(trained, tmp_path / "tokenizer")
    line = "wooden lanterns above the river mill 12345 "
    peaks = []
    for size in (3_000_000, 30_000_000):
        file = tmp_path / f"{size}.txt"
        with file.open("w") as out:
            for number in range(size // (7 * len(line) * 7)):
                out.write((f"{number} " + line * 7 + "\n") * 7 + "\n")
        arguments = [file, tmp_path / "tokenizer", tmp_path / "cache"]
        done = subprocess.run(
            [sys.executable, "-c", PEAK, *map(str, arguments)], capture_output=True, text=True, check=True
        )
        documents, peak = map(int, done.stdout.split())
        assert documents > size // 3000
        peaks.append(peak)
    assert peaks[1] < 200
    assert peaks[1] - peaks[0] < 30
