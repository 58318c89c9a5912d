"""Folders of models that translate, whichever family they are of."""

from collections.abc import Callable
from pathlib import Path

from heedful.errors import UserError
from heedful.formats import marian
from heedful.formats.documents import read_document
from heedful.formats.rnn import RNN_TYPE, load_rnn, save_rnn
from heedful.models.rnn import Rnn
from heedful.models.transformer import Transformer

LOADERS: dict[str, Callable[[Path], Transformer | Rnn]] = {
    **dict.fromkeys(marian.ARCHITECTURES, marian.load_transformer),
    RNN_TYPE: load_rnn,
}
"""What opens a folder, by the type of model that its config.json names."""


def load_translator(folder: str | Path) -> Transformer | Rnn:
    """The model of a translator's folder, ready to use."""
    folder = Path(folder)
    kind = read_document(folder).get("model_type")
    if kind not in LOADERS:
        raise UserError(
            f"{folder} holds a model of type {kind!r}, which does not translate; those that do are "
            f"{', '.join(LOADERS)}"
        )
    return LOADERS[kind](folder)


def save_translator(model: Transformer | Rnn, folder: str | Path, *, unk: int | None = None) -> None:
    """Write a model that translates; `unk` is what stands for unknown characters, which nobody should write."""
    if isinstance(model, Rnn):
        save_rnn(model, folder)
    else:
        marian.save_transformer(model, folder, never=() if unk is None else (unk,))
