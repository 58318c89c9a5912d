"""Arrays as JSON carries them: shape, type, and the numbers in base64, little endian, row by row."""

import base64
import json
from typing import Any

import numpy as np

from heedful.errors import UserError


def packed(array: np.ndarray) -> dict[str, Any]:
    """An array of bytes as it is, any other in single precision."""
    name = "uint8" if array.dtype == np.uint8 else "float32"
    laid = np.ascontiguousarray(array, np.dtype(name).newbyteorder("<"))
    return {"shape": list(array.shape), "dtype": name, "data": base64.b64encode(laid.tobytes()).decode()}


def unpacked(table: dict[str, Any]) -> np.ndarray:
    """The array again."""
    flat = np.frombuffer(base64.b64decode(table["data"]), np.dtype(table["dtype"]).newbyteorder("<"))
    return flat.reshape(table["shape"])


def written(table: Any) -> str:
    """A table as JSON, which has no word for numbers that are none."""
    try:
        return json.dumps(table, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except ValueError:
        raise UserError("the model's numbers are too large or none at all here; try --precision fp32") from None
