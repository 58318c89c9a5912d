"""`heedful tokenizer`: a vocabulary for a user's text, and how well it fits text that it has not seen."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

from heedful.data import sources
from heedful.data import tokenizer as wordpiece
from heedful.data.heldout import held_out
from heedful.data.tokenizer import Tokenizer
from heedful.runs import corpus
from heedful.runs.folder import require_free
from heedful.runs.options import TextPart, VocabularyPart


def make(inputs: Sequence[str], text: TextPart, vocabulary: VocabularyPart, out: Path) -> list[str]:
    """Train and save; what there is to say of the result."""
    require_free(out)
    with tempfile.TemporaryDirectory() as scratch:
        files = corpus.find_files(inputs, Path(scratch), text)
        made = corpus.train_tokenizer(files, text, vocabulary)
        unknown, tokens, characters = coverage(made, files, text)
        advice = "" if tokens else corpus.hold_out_more(_documents(files, text), corpus.asked_share(text, files))
    wordpiece.save(made, out)
    lines = [f"{made.vocab_size:,} tokens, {wordpiece.case(made)}, saved in {out}"]
    if not tokens:
        return [*lines, f"no document is held out to test on; {advice}"]
    return [
        *lines,
        f"on held-out text: {unknown / tokens:.3%} [UNK], {characters / tokens:.2f} characters a token "
        f"({tokens:,} tokens)",
    ]


def coverage(tokenizer: Tokenizer, files: Sequence[Path], text: TextPart) -> tuple[int, int, int]:
    """Unknown tokens, tokens and characters of the held-out documents."""
    share = corpus.held_out_share(text, files)
    unknown = tokens = characters = 0
    for document in sources.documents(files, corpus.text_options(text)):
        if held_out(document, share):
            for ids in tokenizer.encode(document):
                unknown += ids.count(tokenizer.unk)
                tokens += len(ids)
            characters += sum(map(len, document))
    return unknown, tokens, characters


def _documents(files: Sequence[Path], text: TextPart) -> int:
    return sum(1 for _ in sources.documents(files, corpus.text_options(text)))
