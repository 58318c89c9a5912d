"""From what a user names to prepared shards: finds the files, trains or loads the tokenizer, fills the cache."""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from heedful.data import shards, sources
from heedful.data import tokenizer as wordpiece
from heedful.data.heldout import held_out
from heedful.data.shards import Shards
from heedful.data.tokenizer import Tokenizer
from heedful.errors import UserError
from heedful.runs.options import TextPart, VocabularyPart

VOCAB_SIZE = 16000
TOKENIZER_BYTES = 100 << 20
"""A vocabulary is trained on a sample of about this much text: more changes it little and costs memory."""

Say = Callable[[str], None]


def default_cache() -> Path:
    """Where prepared text is kept unless the user says otherwise."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "heedful"


def find_files(corpus: Sequence[str], stdin_folder: Path) -> list[Path]:
    """The files of a corpus; standard input is kept in the folder, and found there when asked again."""
    if "-" not in corpus:
        return sources.expand(corpus)
    if len(corpus) > 1:
        raise UserError("standard input (-) can't be mixed with files; give one or the other")
    kept = stdin_folder / "stdin.txt"
    return [kept if kept.is_file() else sources.spool(sys.stdin.buffer, stdin_folder)]


def held_out_share(text: TextPart, files: Sequence[Path]) -> float:
    """The share asked for; or enough for about half a megabyte of text, between 1 and 10 percent."""
    if text.held_out is not None:
        return text.held_out
    size = sum(file.stat().st_size for file in files)
    return min(0.1, max(0.01, 500_000 / max(1, size)))


def text_options(text: TextPart) -> sources.TextOptions:
    """What the reader needs to know of the text."""
    return sources.TextOptions(text=text.text, errors=text.errors)


def train_tokenizer(files: Sequence[Path], text: TextPart, vocabulary: VocabularyPart) -> Tokenizer:
    """A vocabulary for the text, from the documents that are not held out."""
    share = held_out_share(text, files)
    size = sum(file.stat().st_size for file in files)
    sample = min(1.0, TOKENIZER_BYTES / max(1, size))

    def sentences() -> Iterator[str]:
        for document in sources.documents(files, text_options(text)):
            # The held-out documents are the lowest hashes; the sample lies just above them.
            if not held_out(document, share) and held_out(document, share + (1 - share) * sample):
                yield from document

    return wordpiece.train(sentences, vocabulary.vocab_size or VOCAB_SIZE, cased=vocabulary.cased)


def prepare(
    corpus: Sequence[str],
    text: TextPart,
    *,
    tokenizer: Callable[[Sequence[Path]], Tokenizer],
    given: Tokenizer | None,
    stdin_folder: Path,
    cache: Path,
    say: Say,
) -> Shards:
    """The shards of a corpus, or those that the corpus already is.

    `given` is a tokenizer that must be used; `tokenizer` makes one from the files otherwise.
    """
    if not corpus:
        raise UserError("no text was given; name files, folders or - for standard input")
    if len(corpus) == 1 and shards.is_shards(Path(corpus[0])):
        found = shards.load(Path(corpus[0]))
        if given is not None:
            shards.check_tokenizer(given, found.tokenizer.fingerprint, found.folder)
        return found
    files = find_files(corpus, stdin_folder)
    made = given or tokenizer(files)
    share = held_out_share(text, files)
    found = shards.prepare(files, text_options(text), made, share=share, cache=cache)
    say(describe(found))
    return found


def describe(found: Shards) -> str:
    """How much text there is."""
    return (
        f"text: {len(found.train.documents) - 1:,} documents, {len(found.train.tokens):,} tokens; "
        f"held out: {len(found.heldout.documents) - 1:,} documents, {len(found.heldout.tokens):,} tokens"
    )
