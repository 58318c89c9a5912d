"""Whether kernels of our own can do something: they need Triton and a GPU that computes in half precision."""

import os
import shutil
from importlib.util import find_spec

import torch
from torch import Tensor

HALF = (torch.float16, torch.bfloat16)
HAVE_TRITON = find_spec("triton") is not None and bool(
    os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")
)
"""Triton needs a C compiler to start what it made."""
LONGEST = 128
"""The longest sequence of `nn/short_attention.py`, whose weights must find room on the chip."""
WIDTHS = (32, 64, 128)
"""Of its heads: the halves of a narrower one are too small for matrix units."""


def half(x: Tensor) -> bool:
    """Whether a product with x is computed in half precision on a GPU, where our kernels run."""
    if not (HAVE_TRITON and x.is_cuda):
        return False
    return (torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else x.dtype) in HALF


def short(x: Tensor, longest: int, width: int) -> bool:
    """Whether `short_attention` can serve sequences of that length with heads of that width."""
    return half(x) and longest <= LONGEST and width in WIDTHS
