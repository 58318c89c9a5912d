"""Where a model is put."""

import pytest
import torch
from torch import nn

from heedful.errors import UserError
from heedful.runs.device import Compute

CPU = Compute(torch.device("cpu"), torch.float32)


class TooLarge(nn.Linear):
    """Stands in for a model that a GPU has no room for."""

    def to(self, *_: object, **__: object) -> nn.Module:  # pyrefly: ignore
        raise torch.OutOfMemoryError


def test_a_model_is_moved():
    model = nn.Linear(2, 3)
    assert CPU.holding(model) is model


def test_a_gpu_without_room_is_told_in_a_line():
    with pytest.raises(UserError, match=r"no room for the model's 1\.0M parameters; end what else uses it"):
        CPU.holding(TooLarge(1000, 1000))
