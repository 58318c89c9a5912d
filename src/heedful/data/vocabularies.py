"""The vocabularies of a translator's folder: the one to read with and the one to write with, often the same.

Ours are a tokenizer.json and, where the target has its own, a target_tokenizer.json; those of Marian folders from
elsewhere are sentencepiece files.
"""

from pathlib import Path

from heedful.data import subwords
from heedful.data.sentencepiece import Vocabulary, load_marian
from heedful.data.subwords import Subwords

TARGET_FILE = "target_tokenizer.json"
"""The vocabulary to write with, where it is another than the one to read with."""


def load_subwords(folder: Path) -> tuple[Subwords, Subwords]:
    """The vocabularies that we write; twice the same where both languages have one."""
    source = subwords.load(folder)
    return source, subwords.load(folder, TARGET_FILE) if (folder / TARGET_FILE).is_file() else source


def load_vocabularies(folder: Path, *, sos: int | None = None) -> tuple[Vocabulary, Vocabulary]:
    """The vocabularies of source and target; `sos` is what a Marian model starts with, if not with its padding."""
    if (folder / "source.spm").is_file():  # which we never write; a tokenizer.json beside it is a conversion
        return load_marian(folder, sos=sos)
    return load_subwords(folder)
