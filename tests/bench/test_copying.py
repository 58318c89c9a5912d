"""The copy task: what is asked, what models start with, and that distance matters to recurrence alone."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bench import copying
from bench.copying import (
    ASKED,
    FIRST_MARK,
    KINDS,
    SYMBOLS,
    Copies,
    Learned,
    Reader,
    best,
    copies,
    initialise,
    learn,
    size,
    table,
    width,
)
from bench.recurrence import main

CPU = torch.device("cpu")
TOLD = "LSTM, told the distance"


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@given(st.integers(1, 13), st.integers(1, 17), st.integers(0, 5))
def test_a_sequence_is_symbols_noise_and_marks(count: int, distance: int, seed: int):
    given = copies(count, distance, generator(seed))
    assert given.ids.shape == (count, distance + 8)
    assert torch.equal(given.ids[:, :4], given.symbols)
    assert ((given.symbols >= 0) & (given.symbols < SYMBOLS)).all()
    noise = given.ids[:, 4:-4]
    assert ((noise >= SYMBOLS) & (noise < FIRST_MARK)).all()
    assert given.ids[:, -4:].tolist() == [[16, 17, 18, 19]] * count


def test_all_symbols_and_noise_occur():
    given = copies(1009, 3, generator())
    assert given.symbols.unique().tolist() == list(range(SYMBOLS))
    assert given.ids[:, ASKED:-ASKED].unique().tolist() == list(range(SYMBOLS, FIRST_MARK))


@pytest.mark.parametrize("kind", KINDS)
def test_models_have_the_same_size(kind: str):
    asked = size(Reader("attention", 32))
    # 20 embeddings; attention 4 x (32² + 32), feed-forward 2 x 2 x 32² + 64 + 32, two norms; read-out
    assert asked == 20 * 32 + 4 * (32**2 + 32) + 4 * 32**2 + 96 + 4 * 32 + 8 * 33
    dim = width(kind, asked)
    assert abs(size(Reader(kind, dim)) / asked - 1) < 0.03
    assert Reader(kind, dim)(torch.zeros(3, 11, dtype=torch.long)).shape == (3, ASKED, SYMBOLS)


@pytest.mark.parametrize(("kind", "gates"), [("LSTM", 4), ("GRU", 3), (TOLD, 4)])
def test_gates_start_open_to_the_past(kind: str, gates: int):
    model = Reader(kind, 13)
    initialise(model, kind, 101, generator())
    bias = model.body.get_parameter("bias_ih_l0").detach().view(gates, 13)
    assert not model.body.get_parameter("bias_hh_l0").any()
    if kind == TOLD:
        assert torch.equal(bias[0], -bias[1])
        assert 0 < bias[1].min() < bias[1].max() < math.log(101)
        assert not bias[2:].any()
    else:
        assert bias.sum(1).tolist() == [0, 13, *[0] * (gates - 2)]
    for gate in model.body.get_parameter("weight_hh_l0").detach().split(13):
        torch.testing.assert_close(gate @ gate.T, torch.eye(13))


@pytest.mark.parametrize("kind", KINDS)
def test_where_a_model_starts_follows_from_the_seed_alone(kind: str):
    models = []
    for noise in (1, 2):
        torch.manual_seed(noise)
        models.append(Reader(kind, 12))
        initialise(models[-1], kind, 7, generator(3))
    for one, two in zip(*(model.parameters() for model in models), strict=True):
        assert torch.equal(one, two)


def test_models_of_all_kinds_and_sizes_see_the_same_sequences(monkeypatch: pytest.MonkeyPatch):
    seen: dict[tuple[str, int], list[list[list[int]]]] = {}
    for kind, dim in (("attention", 6), ("attention", 10), ("GRU", 7), (TOLD, 5)):
        batches = seen.setdefault((kind, dim), [])

        def noted(*arguments: Any, batches: list[list[list[int]]] = batches) -> Copies:
            made = copies(*arguments)
            batches.append(made.ids.tolist())
            return made

        monkeypatch.setattr(copying, "copies", noted)
        learn(kind, dim, 3, rate=1e-3, seed=5, steps=2, batch=500, device=CPU)
    first, *others = seen.values()
    assert len(first) == 2 + 2  # batches to learn from, then those of the test
    assert others == [first] * 3
    assert len({str(batch) for batch in first}) == 4


@pytest.mark.parametrize("kind", KINDS)
def test_a_short_distance_is_learned_by_all(kind: str):
    found = learn(kind, width(kind, 9448), 1, rate=1e-2, seed=0, steps=400, batch=32, device=CPU)
    assert found.accuracy > 0.9
    assert (found.kind, found.distance, found.rate, found.seed) == (kind, 1, 1e-2, 0)


def test_a_long_one_is_learned_by_attention_and_not_by_recurrence():
    attention, lstm = (
        learn(kind, width(kind, 9448), 31, rate=1e-2, seed=0, steps=200, batch=32, device=CPU)
        for kind in ("attention", "LSTM")
    )
    assert attention.accuracy > 0.98
    assert lstm.accuracy < 0.3
    assert lstm.steps == 200 > attention.steps


def learned(kind: str, rate: float, seed: int, accuracy: float, steps: int = 100, distance: int = 8) -> Learned:
    return Learned(
        kind=kind,
        distance=distance,
        rate=rate,
        seed=seed,
        parameters=1234,
        steps=steps,
        accuracy=accuracy,
        seconds=1.0,
    )


def test_the_rate_with_the_best_mean_counts_and_not_the_luckiest_run():
    runs = [learned("GRU", 0.1, 0, 1.0), learned("GRU", 0.1, 1, 0.1)]
    runs += [learned("GRU", 0.2, 0, 0.7), learned("GRU", 0.2, 1, 0.8)]
    assert best(runs) == runs[2:]
    faster = [learned("GRU", 0.3, 0, 0.8, 40), learned("GRU", 0.3, 1, 0.7, 60)]
    assert best([*runs, *faster]) == faster


def test_the_table_by_hand():
    runs = [learned("attention", 0.1, 0, 1.0, 50), learned("attention", 0.1, 1, 1.0, 53)]
    runs += [learned("GRU", 0.1, 0, 0.125, 400), learned("GRU", 0.1, 1, 0.5, 400)]
    assert table(runs).splitlines() == [
        "| model | parameters | 8 |",
        "|---|---:|---:|",
        "| attention | 1,234 | 100 (52) |",
        "| GRU | 1,234 | 12 to 50 (400) |",
    ]


def test_a_miniature(tmp_path: Path, capsys: pytest.CaptureFixture):
    asked = "copy --device cpu --distances 2 3 --seeds 2 --rates 0.01 --steps 3 --batch 101 --dim 8 --out"
    main([*asked.split(), str(tmp_path)])
    runs = [
        json.loads(line) for line in (tmp_path / "recurrence-copy.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    assert len(runs) == 2 * 4 * 2
    assert {run["steps"] for run in runs} == {3}
    assert (tmp_path / "recurrence-copy.png").read_bytes().startswith(b"\x89PNG")
    assert "| attention | 832 |" in capsys.readouterr().out
