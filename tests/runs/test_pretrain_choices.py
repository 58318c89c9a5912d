"""What a pretraining run may choose besides its model: optimizer, schedules, batches that fit."""

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch

from heedful.commands.making import pretrain_options
from heedful.data import tokenizer as wordpiece
from heedful.data.sampler import Sampler
from heedful.errors import UserError
from heedful.models.bert import BertConfig, BertForPretraining
from heedful.runs import corpus, objective, pretrain, undecided
from heedful.runs.device import Compute
from heedful.runs.folder import claim
from heedful.runs.options import (
    LEARNING_RATES,
    ModelPart,
    ObjectivePart,
    OptimizerPart,
    PretrainOptions,
    PretrainRun,
    Recipe,
    TextPart,
    VocabularyPart,
    read_recipe,
    resolved,
)
from heedful.train import loop
from heedful.train.distributed import World

CHOICES = {
    "muon": {"optimizer__name": "muon"},
    "trapezoid": {"optimizer__schedule": "trapezoid", "optimizer__decay": 0.25},
    "cosine": {"optimizer__schedule": "cosine"},
    "rates": {"objective__mask_rate": 0.6, "objective__final_mask_rate": 0.1},
    "all": {"optimizer__name": "muon", "optimizer__accumulation": 2, "objective__final_mask_rate": 0.7},
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a text and a tokenizer for it."""
    folder = tmp_path_factory.mktemp("home")
    random = Random(0)
    words = ["".join(random.choices("bdfgklmnaeiou", k=random.randint(1, 6))) for _ in range(300)]
    text = "\n\n".join(
        "\n".join(" ".join(random.choices(words, k=random.randint(3, 9))) for _ in range(random.randint(2, 6)))
        for _ in range(47)
    )
    (folder / "text.txt").write_text(text, encoding="utf-8")
    made = corpus.train_tokenizer([folder / "text.txt"], TextPart(), VocabularyPart(vocab_size=200))
    wordpiece.save(made, folder / "tokenizer")
    return folder


def recipe_of(home: Path, **changes: Any) -> Recipe:
    """A very small run; `part__field=value` or `field=value` changes it."""
    recipe = Recipe(
        corpus=(str(home / "text.txt"),),
        text=TextPart(held_out=0.2),
        vocabulary=VocabularyPart(tokenizer=str(home / "tokenizer")),
        model=ModelPart(size="tiny", max_length=64),
        objective=ObjectivePart(length=32),
        optimizer=OptimizerPart(batch_tokens=256),
        run=PretrainRun(steps=6, evaluations=1, checkpoint_every="3", device="cpu"),
    )
    parts: dict[str, dict[str, Any]] = {}
    whole: dict[str, Any] = {}
    for name, value in changes.items():
        part, _, field = name.partition("__")
        if field:
            parts.setdefault(part, {})[field] = value
        else:
            whole[part] = value
    changed = {part: replace(getattr(recipe, part), **values) for part, values in parts.items()}
    return replace(recipe, **whole, **changed)


def go(home: Path, out: Path, *, resume: bool = False, **changes: Any) -> dict[str, float]:
    options = PretrainOptions(settings=recipe_of(home, **changes), out=out, resume=resume, cache=home / "cache")
    return pretrain.pretrain(options)


def weights(folder: Path) -> bytes:
    return (folder / "model.safetensors").read_bytes()


def reports(folder: Path, kind: str = "train") -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return [line for line in lines if line["kind"] == kind]


def failing(step: int, error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the run fail when it comes to a step (of one batch)."""
    real: Callable[..., Any] = objective.pretraining_terms
    seen = []

    def terms(*arguments: Any) -> Any:
        if torch.is_grad_enabled():
            seen.append(1)
        if len(seen) > step:
            raise error
        return real(*arguments)

    monkeypatch.setattr(objective, "pretraining_terms", terms)


@pytest.mark.parametrize("choice", CHOICES)
def test_a_choice_makes_another_model_and_resumes_exactly(
    choice: str, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    go(home, tmp_path / "plain")
    go(home, tmp_path / "whole", **CHOICES[choice])
    assert weights(tmp_path / "whole") != weights(tmp_path / "plain")
    with monkeypatch.context() as patch:
        failing(4 * CHOICES[choice].get("optimizer__accumulation", 1), KeyboardInterrupt(), patch)
        with pytest.raises(KeyboardInterrupt):
            go(home, tmp_path / "parts", **CHOICES[choice])
    assert [path.name for path in (tmp_path / "parts" / "checkpoints").iterdir()] == ["step-00000003"]
    go(home, tmp_path / "parts", resume=True, **CHOICES[choice])
    assert weights(tmp_path / "parts") == weights(tmp_path / "whole")


def test_the_rate_falls_at_the_end_of_a_trapezoid(home: Path, tmp_path: Path):
    go(home, tmp_path / "out", optimizer__schedule="trapezoid", optimizer__decay=0.5, optimizer__lr=0.006)
    rates = [line["lr"] for line in reports(tmp_path / "out")]
    assert rates == pytest.approx([0.005, 0.006, 0.006, 0.005, 0.003, 0.001])  # 0.1 of warm-up: 1/12 of 1/10


def test_the_masking_rate_goes_from_one_to_the_other(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """By the middle of each step, also when several batches make a step."""
    asked, real = [], Sampler._batch

    def batch(self: Sampler, examples: Any, epoch: int, number: int, rate: float) -> Any:
        asked.append(rate)
        return real(self, examples, epoch, number, rate)

    monkeypatch.setattr(Sampler, "_batch", batch)
    changes = {"run__steps": 4, "optimizer__accumulation": 2, "objective__mask_rate": 0.5}
    go(home, tmp_path / "out", **changes, objective__final_mask_rate=0.1, text__held_out=0.0)
    assert asked[:8] == pytest.approx([0.45, 0.45, 0.35, 0.35, 0.25, 0.25, 0.15, 0.15])
    asked.clear()
    go(home, tmp_path / "still", **changes, text__held_out=0.0)
    assert set(asked) == {0.5}


def test_evaluations_keep_their_masks(home: Path, tmp_path: Path):
    same = {"optimizer__lr": 1e-30, "run__steps": 1}
    scores = [
        go(home, tmp_path / "one", **same),
        go(home, tmp_path / "two", **same, objective__mask_rate=0.9, objective__final_mask_rate=0.8),
    ]
    assert scores[0] == pytest.approx(scores[1], rel=1e-6)


def test_under_a_budget_time_decides(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    asked, real = [], Sampler._batch

    def batch(self: Sampler, examples: Any, epoch: int, number: int, rate: float) -> Any:
        asked.append(rate)
        return real(self, examples, epoch, number, rate)

    monkeypatch.setattr(Sampler, "_batch", batch)
    steps = count()
    monkeypatch.setattr(loop._Clock, "elapsed", lambda _: next(steps) / 10)
    run = {"run__steps": None, "run__budget": "1s"}
    go(home, tmp_path / "out", **run, objective__mask_rate=0.6, objective__final_mask_rate=0.2, text__held_out=0.0)
    assert asked == sorted(asked, reverse=True)
    assert 0.59 < asked[0] < 0.6
    assert 0.2 <= asked[-1] < 0.4  # made while the step before it was under way


def test_batch_tokens_are_found_said_noted_and_kept(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(undecided, "find_tokens", lambda *_, **__: 512)
    with monkeypatch.context() as patch:
        failing(4, KeyboardInterrupt(), patch)
        with pytest.raises(KeyboardInterrupt):
            go(home, tmp_path / "out", optimizer__batch_tokens="auto")
    assert "--batch-tokens auto: 512, as usual on a CPU\n" in capsys.readouterr().out
    assert read_recipe(tmp_path / "out" / "heedful.toml").optimizer.batch_tokens == 512

    def never(*_: object, **__: object) -> int:
        raise AssertionError("it is known already")

    monkeypatch.setattr(undecided, "find_tokens", never)
    go(home, tmp_path / "out", resume=True, optimizer__batch_tokens="auto")
    go(home, tmp_path / "told", optimizer__batch_tokens=512)
    assert weights(tmp_path / "out") == weights(tmp_path / "told")


def test_a_size_is_chosen_said_noted_and_kept(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    asked = {"model__size": "auto", "run__budget": "1h", "run__steps": None}
    monkeypatch.setattr(undecided, "worthwhile", lambda *_, **__: ("mini", 3.4e6))
    monkeypatch.setattr(undecided, "matmul_rate", lambda *_: 1e9)
    with monkeypatch.context() as patch:
        failing(2, KeyboardInterrupt(), patch)
        with pytest.raises(KeyboardInterrupt):
            go(home, tmp_path / "out", **asked)
    assert "--size auto: mini; sees about 3.4 million tokens in the time\n" in capsys.readouterr().out
    noted = read_recipe(tmp_path / "out" / "heedful.toml")
    assert (noted.model.size, noted.optimizer.lr) == ("mini", LEARNING_RATES["mini"])
    monkeypatch.setattr(undecided, "worthwhile", lambda *_, **__: ("large", 1.0))
    with monkeypatch.context() as patch:
        failing(1, KeyboardInterrupt(), patch)
        with pytest.raises(KeyboardInterrupt):
            go(home, tmp_path / "out", resume=True, **asked)
    assert read_recipe(tmp_path / "out" / "heedful.toml").model.size == "mini"


def test_a_size_is_chosen_for_a_time(home: Path, tmp_path: Path):
    with pytest.raises(UserError, match="--size auto chooses for a time; give a --budget instead of --steps"):
        go(home, tmp_path / "out", model__size="auto")
    said = "--size auto and --batch-tokens budget choose for a time; give a --budget instead of --steps, or both"
    with pytest.raises(UserError, match=said):  # at once what the recipe modern leaves open
        go(home, tmp_path / "out", model__size="auto", optimizer__batch_tokens="budget")


def test_batches_that_suit_the_time_are_chosen_said_noted_and_kept(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    asked = {"optimizer__batch_tokens": "budget", "run__budget": "1h", "run__steps": None}
    sizes = []

    def worthwhile(*_: object, **named: Any) -> tuple[str, float]:
        sizes.append(tuple(named["sizes"]))
        return "tiny", 9e7

    monkeypatch.setattr(undecided, "worthwhile", worthwhile)
    monkeypatch.setattr(undecided, "matmul_rate", lambda *_: 1e9)
    for resume in (False, True):
        with monkeypatch.context() as patch:
            failing(2, KeyboardInterrupt(), patch)
            with pytest.raises(KeyboardInterrupt):
                go(home, tmp_path / "out", resume=resume, **asked)
        noted = read_recipe(tmp_path / "out" / "heedful.toml")
        assert (noted.model.size, noted.optimizer.batch_tokens) == ("tiny", 16384)
    assert sizes == [("tiny",)]  # as asked for, and once
    said = "--batch-tokens budget: 16384; sees about 90 million tokens in the time\n"
    assert capsys.readouterr().out.count(said) == 1
    with monkeypatch.context() as patch:
        failing(2, KeyboardInterrupt(), patch)
        with pytest.raises(KeyboardInterrupt):
            go(home, tmp_path / "added", **asked, optimizer__accumulation=2)
    assert read_recipe(tmp_path / "added" / "heedful.toml").optimizer.batch_tokens == 8192  # as many steps


def test_the_time_and_the_speed_of_all_processes_decide(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    asked: list[tuple[Any, ...]] = []
    monkeypatch.setattr(World, "share", lambda _, value: value)
    monkeypatch.setattr(undecided, "worthwhile", lambda *told, **_: asked.append(told) or ("mini", 1e9))
    monkeypatch.setattr(undecided, "matmul_rate", lambda *_: 7e11)
    changes = {"model__size": "auto", "optimizer__batch_tokens": "budget", "optimizer__accumulation": 4}
    recipe = resolved(recipe_of(home, **changes, run__budget="90s", run__steps=None))
    claim(tmp_path / "out", recipe)
    cpu = Compute(torch.device("cpu"), torch.float32)
    made = undecided.for_the_time(recipe, tmp_path / "out", 300, cpu, World(ranks=3))
    assert asked == [(90.0, 2.1e12, "cpu")]
    assert made.optimizer.batch_tokens == 16384  # 5,086 steps of 12 such batches


def test_batches_are_those_that_every_gpu_can_take(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(undecided, "find_tokens", lambda *_, **__: 4096)
    monkeypatch.setattr(World, "sum_numbers", lambda _, mine: [*mine[:1], 1024.0, *mine[2:]])
    recipe = resolved(recipe_of(home, optimizer__batch_tokens="auto"))
    claim(tmp_path / "out", recipe)
    model = BertForPretraining(BertConfig(vocab_size=61, layers=1, dim=8, heads=1, ffn_dim=8, max_length=32))
    optimizer = torch.optim.SGD(model.parameters())
    cpu = Compute(torch.device("cpu"), torch.float32)
    made = undecided.with_tokens(recipe, tmp_path / "out", model, optimizer, cpu, World(ranks=2))
    assert made.optimizer.batch_tokens == 1024


def test_batches_suit_a_time():
    recipe = Recipe(optimizer=OptimizerPart(batch_tokens="budget"), run=PretrainRun(steps=3))
    with pytest.raises(UserError, match="--batch-tokens budget is for a --budget; with --steps, give a number"):
        undecided.check_undecided(recipe)


@pytest.mark.parametrize(
    ("noted", "length", "batch", "why"),
    [
        ("[optimizer]\nbatch_tokens = 320\n", 32, 320, "as in {}/heedful.toml"),
        ('optimizer = "adamw"\n', 32, 8192, "which is usual, since {} does not say what it was trained with"),
        ("[optimizer]\nbatch_tokens = 48\n", 64, 64, "the least that its sequences fit into"),
        ("[learning]\nbatch = 16\n", 32, 8192, "which is usual, since {} does not say what it was trained with"),
        (None, 32, 8192, "which is usual, since {} does not say what it was trained with"),
    ],
)
def test_a_model_goes_on_with_the_batches_that_it_had(
    home: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    noted: str | None,
    length: int,
    batch: int,
    why: str,
):
    go(home, tmp_path / "model", run__steps=1)
    file = tmp_path / "model" / "heedful.toml"
    file.unlink() if noted is None else file.write_text(noted, encoding="utf-8")
    failing(1, KeyboardInterrupt(), monkeypatch)
    asked: dict[str, Any] = {"optimizer__batch_tokens": "budget", "run__budget": "1h", "run__steps": None}
    asked |= {"start_from": str(tmp_path / "model"), "vocabulary": VocabularyPart(), "model": ModelPart()}
    capsys.readouterr()
    with pytest.raises(KeyboardInterrupt):
        go(home, tmp_path / "out", **asked, objective__length=length)
    assert f"--batch-tokens budget: {batch}, {why.format(tmp_path / 'model')}\n" in capsys.readouterr().out
    assert read_recipe(tmp_path / "out" / "heedful.toml").optimizer.batch_tokens == batch


def test_a_run_killed_before_it_knew_finds_out_again(home: Path, tmp_path: Path):
    claim(tmp_path / "out", resolved(recipe_of(home, optimizer__batch_tokens="auto")))
    assert read_recipe(tmp_path / "out" / "heedful.toml").optimizer.batch_tokens == "auto"
    go(home, tmp_path / "out", resume=True, optimizer__batch_tokens="auto")
    assert read_recipe(tmp_path / "out" / "heedful.toml").optimizer.batch_tokens == 8192  # a CPU's


def test_finding_out_leaves_the_run_as_it_was(home: Path, tmp_path: Path):
    go(home, tmp_path / "found", optimizer__batch_tokens="auto", run__steps=2)
    go(home, tmp_path / "told", optimizer__batch_tokens=8192, run__steps=2)
    assert weights(tmp_path / "found") == weights(tmp_path / "told")


def test_what_is_tried_is_like_the_run(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The model's own vocabulary, the higher of the masking rates, the optimizer of the run."""
    seen: dict[str, Any] = {}

    def find(model: Any, optimizer: Any, terms: Any, batch: Any, **options: Any) -> int:
        seen.update(optimizer=type(optimizer).__name__, batch=batch(320), terms=terms(batch(320)), **options)
        return 256

    monkeypatch.setattr(undecided, "find_tokens", find)
    changes = {"optimizer__name": "muon", "optimizer__accumulation": 3, "objective__final_mask_rate": 0.4}
    go(home, tmp_path / "out", optimizer__batch_tokens="auto", run__steps=1, **changes)
    assert (seen["optimizer"], seen["length"], seen["accumulation"]) == ("Both", 32, 3)
    assert (len(seen["batch"].ids), len(seen["batch"].places), seen["batch"].ids.max() < 200) == (320, 128, True)
    assert {name: term.count for name, term in seen["terms"].items()} == {"mlm": 128, "nsp": 10}


@pytest.mark.parametrize("step", [0, 4])
@pytest.mark.parametrize(
    ("error", "whose"),
    [
        (torch.OutOfMemoryError("CUDA out of memory"), "the GPU's memory"),
        (
            RuntimeError("[x.cpp:3] DefaultCPUAllocator: can't allocate memory: you"),
            "this machine's free",
        ),
        (MemoryError(), "this machine's free memory"),
    ],
    ids=["gpu", "cpu", "python"],
)
def test_out_of_memory_says_what_would_fit(
    error: Exception, whose: str, step: int, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    with monkeypatch.context() as patch:
        failing(step, error, patch)
        with pytest.raises(UserError) as caught:
            go(home, tmp_path / "out")
    said = str(caught.value)
    assert said.startswith(whose)
    assert "memory is too small for this; try --batch-tokens 128 --accumulation 2, in a new --out" in said
    assert "\n" not in said
    assert ("; when more memory is free, go on with: heedful pretrain --resume --out" in said) == (step > 3)
    go(home, tmp_path / "out", resume=True)
    go(home, tmp_path / "whole")
    assert weights(tmp_path / "out") == weights(tmp_path / "whole")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning")  # torch's own
@pytest.mark.parametrize("dropout", [0.0, 0.1])
@pytest.mark.parametrize("choice", ["muon", "rates"])
def test_a_compiled_run_repeats_and_resumes_exactly(
    choice: str, dropout: float, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    from heedful.train.replay_pretraining import PretrainingReplay

    changes = {"run__device": "cuda", "model__dropout": dropout, "model__attention_dropout": dropout}
    changes |= CHOICES[choice]
    for name in ("whole", "again"):
        torch._dynamo.reset()
        go(home, tmp_path / name, **changes)
    assert weights(tmp_path / "whole") == weights(tmp_path / "again")
    real, calls = PretrainingReplay.terms, []

    def terms(self: PretrainingReplay, batch: Any) -> Any:
        calls.append(1)
        if len(calls) > 4:
            raise KeyboardInterrupt
        return real(self, batch)

    with monkeypatch.context() as patch:
        patch.setattr(PretrainingReplay, "terms", terms)
        with pytest.raises(KeyboardInterrupt):
            go(home, tmp_path / "parts", **changes)
    torch._dynamo.reset()
    go(home, tmp_path / "parts", resume=True, **changes)
    assert weights(tmp_path / "parts") == weights(tmp_path / "whole")


def typed(*arguments: str) -> Recipe:
    return resolved(pretrain_options(["text.txt", "--out", "out", *arguments]).settings)


def test_the_choices_have_flags():
    made = typed("--optimizer", "muon", "--schedule", "trapezoid", "--decay", "0.3", "--batch-tokens", "auto")
    assert made.optimizer == OptimizerPart(
        name="muon", schedule="trapezoid", decay=0.3, batch_tokens="auto", lr=made.optimizer.lr
    )
    assert typed("--batch-tokens", "4096").optimizer.batch_tokens == 4096
    rates = typed("--mask-rate", "0.3", "--final-mask-rate", "0.15").objective
    assert (rates.mask_rate, rates.final_mask_rate) == (0.3, 0.15)
    assert typed("--schedule", "trapezoid").optimizer.decay == 0.2
    assert typed("--schedule", "trapezoid", "--warmup", "0.9").optimizer.decay == pytest.approx(0.1)
    assert typed().optimizer.decay is None


def test_another_schedule_puts_the_decay_of_a_recipe_aside(tmp_path: Path):
    (tmp_path / "mine.toml").write_text('[optimizer]\nschedule = "trapezoid"\ndecay = 0.3\nbatch_tokens = "auto"\n')
    mine = ("--recipe", str(tmp_path / "mine.toml"))
    assert typed(*mine).optimizer.decay == 0.3
    assert typed(*mine).optimizer.batch_tokens == "auto"
    assert typed(*mine, "--schedule", "cosine").optimizer.decay is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--batch-tokens", "many"), "^--batch-tokens is 'many' but must be a whole number, auto or budget"),
        (("--optimizer", "sgd"), "^--optimizer is 'sgd'; choose from adamw, muon"),
        (("--schedule", "flat"), "^--schedule is 'flat'; choose from cosine, linear, trapezoid"),
        (("--decay", "0.2"), "^--decay is for --schedule trapezoid; leave it out: linear falls all along"),
        (
            ("--schedule", "trapezoid", "--decay", "0.95"),
            "^--decay 0.95 is a share of the run and must be above 0, and at most 0.9 after a warmup of 0.1",
        ),
        (("--schedule", "trapezoid", "--decay", "0"), "^--decay 0.0 is a share of the run and must be above 0"),
        (("--final-mask-rate", "1"), "^--final-mask-rate 1.0 must lie between 0 and 1"),
        (("--mask-rate", "0"), "^--mask-rate 0.0 must lie between 0 and 1"),
        (
            ("--fp8", "--no-compile"),
            "^--fp8 is for layers that are compiled; leave --no-compile out, or",
        ),
        (("--fp8", "--shard"), "^--fp8 is for a model in one piece; leave --shard out, or add --no-fp8"),
        (
            ("--fp8", "--precision", "fp32"),
            "^--fp8 and --precision fp32 exclude each other; leave --precision",
        ),
    ],
)
def test_what_is_no_choice_is_refused_in_a_line(arguments: tuple[str, ...], message: str):
    with pytest.raises(UserError, match=message):
        typed(*arguments)
