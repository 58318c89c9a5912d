import pytest
import torch

from heedful.models.bert import SIZES, BertConfig, BertForPretraining
from heedful.runs.sizing import (
    ENOUGH,
    LARGEST_BATCH,
    LEAST_BATCH,
    REACHED,
    STEPS,
    flops_a_token,
    layer_parameters,
    matmul_rate,
    suited,
    worthwhile,
)

ASKED = {"vocab_size": 16384, "length": 128, "mask_rate": 0.15, "gated": False}


def test_the_arithmetic_of_a_token_by_hand():
    config = BertConfig(vocab_size=11, layers=2, dim=4, heads=2, ffn_dim=7)
    # A layer: 4 matrices of 16 and 2 of 28 numbers, each multiplied and added; 3 tokens, score and mix of 4 each.
    layer = 2 * (4 * 16 + 2 * 28) + 2 * 2 * 3 * 4
    words = 0.5 * 2 * (16 + 44)
    assert flops_a_token(config, 3, 0.5) == 3 * (2 * layer + words)
    # After its attention the last one has a matrix of 16 and 2 of 28 for three tokens in four less.
    assert flops_a_token(config, 3, 0.5, 0.25) == 3 * (2 * layer - 0.75 * 2 * (16 + 2 * 28) + words)


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("size", ["tiny", "base"])
def test_parameters_of_layers_are_those_of_their_matrices(size: str, gated: bool):
    config = BertConfig.of_size(size, vocab_size=31, gated=gated)
    with torch.device("meta"):
        model = BertForPretraining(config)
    matrices = [one for one in model.bert.layers.parameters() if one.dim() > 1]
    assert layer_parameters(config) == sum(one.numel() for one in matrices)


def test_more_time_and_faster_machines_bear_larger_models():
    order = list(SIZES)
    chosen = [worthwhile(60.0 * 2**power, 1e14, "cuda", **ASKED)[0] for power in range(12)]
    assert chosen == sorted(chosen, key=order.index)
    assert (chosen[0], chosen[-1]) == ("mini", "large")
    assert worthwhile(600.0, 1e9, "cpu", **ASKED)[0] == "tiny"
    assert worthwhile(600.0, 8e14, "cuda", **ASKED)[0] in ("medium", "base")


@pytest.mark.parametrize("rate", [7e14, 7.5e14, 8e14, 8.5e14])
def test_one_kind_of_gpu_gets_one_size_whatever_its_mood(rate: float):
    """For the times that docs/results.md tells of."""
    asked = {**ASKED, "mask_rate": 0.3, "gated": True}
    assert [worthwhile(seconds, rate, "cuda", **asked)[0] for seconds in (150.0, 600.0)] == ["medium", "base"]


def test_the_chosen_size_sees_enough_and_the_next_would_not():
    size, tokens = worthwhile(3600.0, 1e14, "cuda", **ASKED)
    larger = list(SIZES)[list(SIZES).index(size) + 1]

    def config(name: str) -> BertConfig:
        return BertConfig.of_size(name, vocab_size=16384)

    assert tokens >= ENOUGH * layer_parameters(config(size))
    fewer = 3600.0 * REACHED["cuda"][larger] * 1e14 / flops_a_token(config(larger), 128, 0.15)
    assert fewer < ENOUGH * layer_parameters(config(larger))


def test_only_the_sizes_asked_for_are_looked_at():
    assert worthwhile(1.0, 1e9, "cpu", sizes=("base",), **ASKED)[0] == "base"


@pytest.mark.parametrize(
    ("tokens", "length", "batch"),
    [
        (0.0, 128, LEAST_BATCH),
        (2 * LEAST_BATCH * STEPS - 1, 128, LEAST_BATCH),
        (2 * LEAST_BATCH * STEPS, 128, 2 * LEAST_BATCH),
        (1e15, 128, LARGEST_BATCH),
        (0.0, 5000, 8192),
    ],
)
def test_batches_leave_enough_steps(tokens: float, length: int, batch: int):
    assert suited(tokens, length) == batch


def test_this_machine_multiplies():
    assert 1e9 < matmul_rate(torch.device("cpu"), torch.float32) < 1e14
