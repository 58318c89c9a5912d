"""heedful trains, looks into and serves attention models on a modest budget.

`heedful.load(folder)` gives a predictor, a translator or a classifier of images; `heedful.load_model(folder)` the
bare torch module, which `heedful.save_model(model, folder)` writes again.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from heedful.decode.options import SearchOptions
    from heedful.errors import UserError
    from heedful.formats.folders import load_model, save_model
    from heedful.predict import load

__version__ = "0.1.0"
__all__ = ["SearchOptions", "UserError", "load", "load_model", "save_model"]

_HOMES = {
    "SearchOptions": "heedful.decode.options",
    "UserError": "heedful.errors",
    "load": "heedful.predict",
    "load_model": "heedful.formats.folders",
    "save_model": "heedful.formats.folders",
}


def __getattr__(name: str) -> Any:
    # Imported when first used: `heedful --help` must not wait for torch.
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'heedful' has no attribute {name!r}")
