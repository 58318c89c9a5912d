"""Any model folder, whichever family of models it holds."""

from collections.abc import Callable
from pathlib import Path

from heedful.errors import UserError
from heedful.formats import huggingface, translators
from heedful.formats.documents import read_document
from heedful.models.rnn import Rnn
from heedful.models.transformer import Transformer

Model = huggingface.Model | Transformer | Rnn

LOADERS: dict[str, Callable[[Path], Model]] = {
    **dict.fromkeys(huggingface.TYPES, huggingface.load_model),
    **translators.LOADERS,
}
"""What opens a folder, by the type of model that its config.json names."""


def load_model(folder: str | Path) -> Model:
    """The model in a folder, ours or anyone's, ready to use."""
    folder = Path(folder)
    kind = read_document(folder).get("model_type")
    if kind not in LOADERS:
        raise UserError(f"{folder} holds a model of type {kind!r}; those that can be loaded are {', '.join(LOADERS)}")
    return LOADERS[kind](folder)


def save_model(model: Model, folder: str | Path) -> None:
    """Write `config.json` and `model.safetensors`, in the layout that the ecosystem has for such a model."""
    if isinstance(model, Transformer | Rnn):
        translators.save_translator(model, folder)
    else:
        huggingface.save_model(model, folder)
