"""From what a user names to prepared shards: finds the files, trains or loads the tokenizer, fills the cache."""

import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from heedful.data import shards, sources
from heedful.data import tokenizer as wordpiece
from heedful.data.examples import SAMPLED, SENTENCES, true_share
from heedful.data.heldout import held_out
from heedful.data.lines import KEPT, packing
from heedful.data.shards import Shards
from heedful.data.tables import is_table
from heedful.data.tokenizer import Tokenizer
from heedful.errors import UserError
from heedful.runs.cache import kept_in, require_folder
from heedful.runs.options import TextPart, VocabularyPart
from heedful.wording import counted

VOCAB_SIZE = 16000
TOKENIZER_BYTES = 100 << 20
"""A vocabulary is trained on a sample of about this much text: more changes it little and costs memory."""

MOST_HELD_OUT = 0.1
"""The largest share that is held out unless the user asks for more."""
ENOUGH = 3
"""Documents that a share must be expected to hold out to be worth naming: which ones it does, only they decide."""
FEWEST_TRUE = 0.4
"""The share of pairs that must be true successors: of fewer, a model knows the answer before it reads."""

Say = Callable[[str], None]


def find_files(corpus: Sequence[str], stdin_folder: Path, text: TextPart) -> list[Path]:
    """The files of a corpus; standard input is kept in the folder, and found there when asked again.

    A column is refused where there is no table that it could be in.
    """
    if sys.stdin is None and "-" in corpus:
        raise UserError("standard input is closed; pipe text into it, or name a file instead of -")
    if "-" not in corpus:
        files = sources.expand(corpus)
        if text.text is not None and not any(is_table(file) for file in files):
            raise UserError(f"--text {text.text} names a column, but there is no table; leave it out")
        return files
    if text.text is not None:
        raise UserError(f"standard input is read as plain text, which has no column {text.text}; name a file")
    if len(corpus) > 1:
        raise UserError("standard input (-) can't be mixed with files; give one or the other")
    kept = stdin_folder / KEPT
    return [kept if kept.is_file() else sources.spool(sys.stdin.buffer, stdin_folder)]


def asked_share(text: TextPart, files: Sequence[Path]) -> float:
    """The share asked for; or enough for about half a megabyte of text, between 1 and 10 percent."""
    if text.held_out is not None:
        return text.held_out
    return min(MOST_HELD_OUT, max(0.01, 500_000 / max(1, _bytes(files))))


def held_out_share(text: TextPart, files: Sequence[Path]) -> float:
    """The share that is held out: the one asked for.

    Or nothing, if that would be the only document: there would be none to learn from. Who asks to hold out every
    one of several is told.
    """
    share = asked_share(text, files)
    if share == 0:
        return share
    count = 0
    for document in sources.documents(files, text_options(text)):
        if not held_out(document, share):
            return share
        count += 1
    if count > 1 and text.held_out is not None:
        raise UserError(f"--held-out {share:g} leaves none of the {count:,} documents to train on; use less")
    return 0.0


def hold_out_more(documents: int, share: float) -> str:
    """What helps if a share of so many documents is too few of them."""
    larger = [one for one in (0.1, 0.2) if one > share and one * documents >= ENOUGH]
    if larger:
        return f"--held-out {larger[0]} holds out more"
    count = "only one document" if documents == 1 else f"only {documents} documents"
    return f"whole documents are held out, and this text is {count}: add some; in a file, blank lines separate them"


def hold_out_more_of(names: Sequence[str], text: TextPart, found: Shards) -> str:
    """The same for what a corpus has become."""
    kept, held = (len(split.documents) - 1 for split in (found.train, found.heldout))
    if shards.is_shards(Path(names[0])):  # which do not say what share they were made with, but show it
        return f"prepare the text again: {hold_out_more(kept + held, held / (kept + held))}"
    return hold_out_more(kept + held, MOST_HELD_OUT if text.held_out is None else text.held_out)


def _bytes(files: Sequence[Path]) -> int:
    """About how much text the files hold; packed, text takes about a quarter of its room."""
    return sum(file.stat().st_size * (4 if packing(file) else 1) for file in files)


def text_options(text: TextPart) -> sources.TextOptions:
    """What the reader needs to know of the text."""
    return sources.TextOptions(text=text.text, errors=text.errors)


def train_tokenizer(files: Sequence[Path], text: TextPart, vocabulary: VocabularyPart) -> Tokenizer:
    """A vocabulary for the text, from the documents that are not held out."""
    share = held_out_share(text, files)
    sample = min(1.0, TOKENIZER_BYTES / max(1, _bytes(files)))

    def sentences() -> Iterator[str]:
        for document in sources.documents(files, text_options(text)):
            # The held-out documents are the lowest hashes; the sample lies just above them.
            if not held_out(document, share) and held_out(document, share + (1 - share) * sample):
                yield from document

    size = vocabulary.vocab_size
    return wordpiece.train(
        sentences, VOCAB_SIZE if size is None else size, cased=vocabulary.cased, exactly=size is not None
    )


def prepare(
    corpus: Sequence[str],
    text: TextPart,
    *,
    tokenizer: Callable[[Sequence[Path]], Tokenizer],
    given: Tokenizer | None,
    stdin_folder: Path,
    cache: Path,
    say: Say,
    cased: bool = False,
) -> Shards:
    """The shards of a corpus, or those that the corpus already is.

    `given` is a tokenizer that must be used; `tokenizer` makes one from the files otherwise. Those who ask for it to
    be `cased` learn that shards have theirs.
    """
    if not corpus:
        raise UserError("no text was given; name files, folders or - for standard input")
    prepared = [name for name in corpus if shards.is_shards(Path(name))]
    if prepared and len(corpus) > 1:
        raise UserError(f"{prepared[0]} is prepared already and can't be mixed with other text; give it alone")
    if prepared:
        replaces = text.errors if text.errors != "strict" else None
        for flag, value in (("--text", text.text), ("--held-out", text.held_out), ("--errors", replaces)):
            if value is not None:
                raise UserError(f"{prepared[0]} is prepared already; leave {flag} out")
        if cased:
            raise UserError(f"{prepared[0]} is prepared already, with upper case or without; leave --cased out")
        found = shards.load(Path(corpus[0]), verify=True)
        if given is not None:
            shards.check_tokenizer(given, found.tokenizer.fingerprint, found.folder)
        return found
    require_folder(cache)
    if "-" in corpus and (stdin_folder / KEPT).is_file():
        say("the text is what came on standard input when the run began")
    files = find_files(corpus, stdin_folder, text)
    made = given or tokenizer(files)
    share = held_out_share(text, files)
    with kept_in(cache):
        found = shards.prepare(files, text_options(text), made, share=share, cache=cache)
    say(describe(found))
    return found


def check_pairs(found: Shards, length: int, say: Say) -> None:
    """Refuse text that next sentences can't be learned from, and tell of text that has few of them.

    Pairs that are nearly all unrelated are soon told, and have taught nothing.
    """
    documents = len(found.train.documents) - 1
    if documents < 2:
        less = ", hold out less (--held-out)" if len(found.heldout.documents) > 1 else ""
        raise UserError(
            "next-sentence prediction needs two documents or more to train on, and there is one; separate documents "
            f"by a blank line{less}, or train without it (--no-nsp)"
        )
    if not found.train.has_pairs():
        raise UserError(
            f"next-sentence prediction needs documents of several sentences, and each of these {documents:,} is a "
            "single one; train without it (--no-nsp), or put blank lines between documents alone"
        )
    share = true_share(found.train.sentences, found.train.documents, length)
    if share < FEWEST_TRUE:
        all_seen = documents <= SAMPLED and np.diff(found.train.documents).max() <= SENTENCES
        none = share == 0 and all_seen
        few = "none" if none else "hardly any" if share < 0.0005 else f"only {share:.1%}"
        line = (
            f"{few} of the pairs are true successors in --length {length}: sentences are too long for it, or "
            "documents too short; use a longer --length, longer documents, or --no-nsp"
        )
        if none:
            raise UserError(line)
        say(line)


def describe(found: Shards) -> str:
    """How much text there is, and how much of it means nothing to its tokenizer."""
    strange = wordpiece.strange(found.tokenizer.unknown(found.train.tokens))
    return (
        f"text: {counted(len(found.train.documents) - 1, 'document')}, {counted(len(found.train.tokens), 'token')}; "
        f"held out: {counted(len(found.heldout.documents) - 1, 'document')}, "
        f"{counted(len(found.heldout.tokens), 'token')}{f'; {strange}' if strange else ''}"
    )
