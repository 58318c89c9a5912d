"""`heedful prepare`: text to shards, in a folder of the user's."""

import shlex
import tempfile
from collections.abc import Sequence
from pathlib import Path

from heedful.data import shards
from heedful.data import tokenizer as wordpiece
from heedful.errors import UserError
from heedful.runs import corpus
from heedful.runs.options import TextPart


def make(inputs: Sequence[str], text: TextPart, tokenizer: Path, out: Path) -> str:
    """Prepare and save; what there is to say of the result."""
    if out.exists():  # the shards take their name when they are complete
        raise UserError(f"{out} exists already; choose another --out")
    made = wordpiece.load(tokenizer)
    with tempfile.TemporaryDirectory() as scratch:
        files = corpus.find_files(inputs, Path(scratch), text)
        share = corpus.held_out_share(text, files)
        shards.prepare(files, corpus.text_options(text), made, share=share, folder=out)
    found = shards.load(out)
    return f"{corpus.describe(found)}; saved in {out}: heedful pretrain {shlex.quote(str(out))} --out FOLDER"
