"""What a step takes of memory, by hand; and that what is named where it was too little does fit."""

import os
import re
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest
import torch

from heedful.models.bert import BertConfig
from heedful.runs.device import Compute
from heedful.runs.memory import less_memory, likely_tokens, of_a_token

CPU = Compute(torch.device("cpu"), torch.float32)
CONFIG = BertConfig(vocab_size=101, layers=3, dim=20, heads=2, ffn_dim=80, max_length=64)
STILL = BertConfig(
    vocab_size=101, layers=3, dim=20, heads=2, ffn_dim=80, max_length=64, dropout=0.0, attention_dropout=0.0
)


@pytest.mark.parametrize(
    ("config", "compute", "layers"),
    [
        (CONFIG, Compute(torch.device("cuda"), torch.bfloat16), 38 * 60),
        (STILL, Compute(torch.device("cuda"), torch.bfloat16), 36 * 60),
        (CONFIG, Compute(torch.device("cuda"), torch.float32), 66 * 60),
        (STILL, CPU, 98 * 60),
        (CONFIG, CPU, (98 + 22 + 9) * 60),
    ],
)
def test_bytes_of_a_token_by_hand(config: BertConfig, compute: Compute, layers: int):
    assert of_a_token(config, 50, 0.5, compute) == pytest.approx(layers + 14 * 0.5 * 101)


def test_tokens_are_a_power_of_two_that_leaves_a_margin_and_the_optimizers_room():
    free = 10_000 + (64 << 20) / 0.9
    assert likely_tokens(free, 100, 75.0) == 64  # (9,000 - 1,200) / 75 are 104
    assert likely_tokens(free, 100, 60.9) == 128
    assert likely_tokens(free, 100, 7799.0) == 1
    assert likely_tokens(free, 100, 7801.0) == 0
    assert likely_tokens(60 << 20, 100, 1.0) == 0


def test_what_to_try_after_a_batch_that_was_too_large():
    def told(batch: int, length: int, accumulation: int, likely: int, *, tries: bool = False):
        return less_memory(batch, length, accumulation, likely, tries=tries, smaller="a smaller --size")

    assert told(8192, 128, 3, 2048) == "--batch-tokens 2048 --accumulation 12"
    assert told(8192, 128, 3, 2**20) == "--batch-tokens 4096 --accumulation 6"  # since all was too much
    assert told(5000, 128, 1, 2048, tries=True) == (
        "--batch-tokens 2048 --accumulation 3, or --batch-tokens auto, which finds what fits"
    )
    assert told(8192, 512, 1, 256) == "a --length below 512, or a smaller --size"
    assert told(1023, 512, 1, 2**20) == "--batch-tokens 512 --accumulation 2"
    assert told(512, 512, 1, 2**20) == "a --length below 512, or a smaller --size"
    assert told(8192, 128, 1, 0) == "a smaller --size"  # which not even its optimizer finds room for


LIMITED = """
import resource, sys
import psutil
from heedful.cli import main
from heedful.runs import objective, pretrain

resource.setrlimit(resource.RLIMIT_DATA, (psutil.Process().memory_info().data + (400 << 20),) * 2)
main(sys.argv[1:])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="as Linux limits it")
def test_what_is_named_where_memory_was_too_small_does_fit(tmp_path: Path):
    random = Random(0)
    words = ["".join(random.choices("abcdefgh", k=3)) for _ in range(500)]
    documents = ("\n".join(" ".join(random.choices(words, k=40)) for _ in range(40)) for _ in range(40))
    (tmp_path / "text.txt").write_text("\n\n".join(documents), encoding="utf-8")

    def run(out: str, *more: str) -> subprocess.CompletedProcess[str]:
        told = ["--size", "tiny", "--vocab-size", "300", "--steps", "1", "--device", "cpu", *more]
        folders = ["--out", str(tmp_path / out), "--cache", str(tmp_path / "cache")]
        return subprocess.run(
            [sys.executable, "-c", LIMITED, "pretrain", str(tmp_path / "text.txt"), *told, *folders],
            capture_output=True,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            check=False,
            timeout=200,
        )

    failed = run("large", "--batch-tokens", "32768")
    assert failed.returncode == 2
    said = re.fullmatch(
        r"heedful: this machine's free memory is too small for this; "
        r"try (--batch-tokens (\d+) --accumulation (\d+)), in a new --out\n",
        failed.stderr,
    )
    assert said, failed.stderr
    assert int(said[2]) * int(said[3]) == 32768
    fits = run("small", *said[1].split())
    assert (fits.returncode, fits.stderr) == (0, "")
