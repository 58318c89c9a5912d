"""Pretraining speed on a GPU beside `transformers`; `bench/pretrain.py` calls it.

Three kinds of real text: `full` sequences (dense: every one has all the length), BERT's own `packed` pairs, whose
sentences nearly fill the length, and plain `pairs` of two sentences, which are short and of all lengths, so that a
padded batch is half empty. Every side takes the same examples and steps without dropout in bf16, with clipping and
fused AdamW. The peer is `BertForPreTraining` with scaled-dot-product attention, padded to the longest of each batch,
eager and compiled, at its best batch size. Ours is what `heedful pretrain` runs, and what it runs with `--fp8`. The
share of the ceiling counts the arithmetic of the model for real tokens (masked words alone are scored), whatever a
side computes besides; behind it, what is left without the part of the last layer that ours leaves out, since nobody
reads it.
"""

import argparse
import gc
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
import transformers

from bench.pretrain import padded, peer_config
from heedful.data.batch import PretrainingBatch
from heedful.data.sampler import Sampler
from heedful.data.shards import Shards, Split
from heedful.models.bert import BertConfig
from heedful.nn import fp8
from heedful.nn.shortage import short_of_memory
from heedful.nn.transfer import on_device
from heedful.runs.device import choose
from heedful.runs.objective import terms_of
from heedful.runs.options import ModelPart, ObjectivePart, OptimizerPart, PretrainRun, Recipe, resolved
from heedful.runs.pretrain import build, optimizer_for
from heedful.runs.sizing import flops_a_token, matmul_rate
from heedful.train.distributed import World
from heedful.train.loop import ahead
from heedful.train.optim import adamw, clip

DEVICE = torch.device("cuda")
MASKED = 0.15
WARMING = 6
"""Steps that are not measured: kernels are chosen, layers compiled, steps recorded."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Case:
    """One side's run: a model, a kind of text, and how many tokens a batch has."""

    side: str
    size: str
    length: int
    kind: str
    tokens: int
    found: Shards

    @property
    def ours(self) -> bool:
        return self.side.startswith("ours")

    @property
    def recipe(self) -> Recipe:
        return resolved(
            Recipe(
                model=ModelPart(size=self.size, dropout=0.0, attention_dropout=0.0),  # pyrefly: ignore
                objective=ObjectivePart(length=self.length),
                optimizer=OptimizerPart(batch_tokens=self.tokens),
                run=PretrainRun(steps=1000, compile=True, fp8="fp8" in self.side),
            )
        )

    @property
    def sampler(self) -> Sampler:
        return Sampler(
            split=texts(self.found, self.kind),
            tokenizer=self.found.tokenizer,
            length=self.length,
            batch_tokens=self.tokens,
            nsp=True,
            mask_rate=MASKED,
            whole_words=False,
            seed=0,
        )


class Measured(NamedTuple):
    """Real tokens a second, their share of the ceiling, memory, the share of waiting, seconds of the first steps."""

    speed: float
    share: float
    computed: float
    """The share without what ours leaves out."""
    gibibytes: float
    waiting: float
    warming: float


def compare(found: Shards, arguments: argparse.Namespace) -> None:
    """Print a line for each side with its best batch size, for every case and kind of text."""
    choose("cuda", "bf16").repeatable()
    ceiling = matmul_rate(DEVICE, torch.bfloat16)
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, transformers {transformers.__version__}")
    print(f"matmul ceiling (bf16, 8,192 square): {ceiling / 1e12:.0f} TFLOP/s\n")
    print("| model | text | side | real tokens/s | ceiling | GiB | waits for data | first steps |")
    print("|---|---|---|---:|---:|---:|---:|---:|")
    sides = [side for side in arguments.sides if "fp8" not in side or fp8.possible(DEVICE)]
    for name in arguments.cases:
        size, length = name.split("-")
        for kind in arguments.text:
            for side in sides:
                own = side.startswith("ours")
                tried = [
                    Case(side=side, size=size, length=int(length), kind=kind, tokens=tokens, found=found)
                    for tokens in (arguments.tokens if own else arguments.peer_tokens)
                ]
                told = best(tried, arguments.steps, ceiling)
                print(f"| {name} | {kind} | {side}, {told or 'every batch is too large |'}", flush=True)


def best(tried: Iterable[Case], steps: int, ceiling: float) -> str | None:
    """The line of the fastest; None if there is too little memory for each."""
    found: dict[Case, Measured] = {}
    for case in tried:
        torch.use_deterministic_algorithms(case.ours)  # as it is by default, on either side
        torch._dynamo.reset()
        gc.collect()  # what was compiled or recorded refers to itself, and would keep its memory
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        try:
            found[case] = measured(case, steps, ceiling)
        except RuntimeError as error:
            if short_of_memory(error) is None:
                raise
    if not found:
        return None
    case = max(found, key=lambda case: found[case].speed)
    one = found[case]
    computed = f" ({one.computed:.1%})" if case.ours else ""
    return (
        f"{case.tokens:,} | {one.speed:,.0f} | {one.share:.1%}{computed} | {one.gibibytes:.0f} | {one.waiting:.2%} | "
        f"{one.warming:.0f} s |"
    )


def texts(found: Shards, kind: str) -> Split:
    """The training text; for plain pairs, as if every two sentences were a document."""
    if kind != "pairs":
        return found.train
    sentences = len(found.train.sentences) - 1
    return found.train._replace(documents=np.arange(0, sentences + 1, 2))


def measured(case: Case, steps: int, ceiling: float) -> Measured:
    """The median of three rounds of so many steps, after steps that do not count."""
    loss, parameters, optimizer = (ours if case.ours else peer)(case)
    stream = (dense(batch, case.length) if case.kind == "full" else batch for _, batch in case.sampler.stream())
    batches = ahead(stream)
    seen: list[tuple[int, float, int]] = []
    waited = 0.0

    def step() -> None:
        nonlocal waited
        begun = time.perf_counter()
        batch = next(batches)
        waited += time.perf_counter() - begun
        lengths = np.diff(batch.offsets).astype(float)
        seen.append((len(batch.ids), float((lengths**2).sum()), len(batch.places) + len(lengths)))
        loss(batch).backward()
        clip(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad()

    begun = time.perf_counter()
    for _ in range(WARMING):
        step()
    torch.cuda.synchronize()
    warming = time.perf_counter() - begun
    speeds, waited = [], 0.0
    began = time.perf_counter()
    for _ in range(3):
        seen.clear()
        begun = time.perf_counter()
        for _ in range(steps):
            step()
        torch.cuda.synchronize()
        speeds.append(sum(count for count, _, _ in seen) / (time.perf_counter() - begun))
    waiting = waited / (time.perf_counter() - began)
    speed = statistics.median(speeds)
    count, squares, read = (sum(one) for one in zip(*seen, strict=True))
    config = BertConfig.of_size(case.size, vocab_size=case.found.tokenizer.vocab_size)
    whole, computed = (flops_a_token(config, squares / count, MASKED, share) for share in (1.0, read / count))
    memory = torch.cuda.max_memory_allocated() / 2**30
    return Measured(speed, speed * whole / ceiling, speed * computed / ceiling, memory, waiting, warming)


def dense(batch: PretrainingBatch, length: int) -> PretrainingBatch:
    """The batch's tokens, cut anew into sequences that all have the whole length; the first of each is not asked."""
    offsets = np.arange(0, len(batch.ids) + 1, length, dtype=np.int32)
    within = (batch.places < offsets[-1]) & (batch.places % length > 0)
    assert batch.unrelated is not None
    return batch._replace(
        ids=batch.ids[: offsets[-1]],
        segments=batch.segments[: offsets[-1]],
        offsets=offsets,
        longest=length,
        places=batch.places[within],
        labels=batch.labels[within],
        unrelated=np.resize(batch.unrelated, len(offsets) - 1),
    )


Side = tuple[Callable[[PretrainingBatch], torch.Tensor], list[torch.nn.Parameter], torch.optim.Optimizer]


def ours(case: Case) -> Side:
    """What `heedful pretrain` runs, compiled by itself."""
    recipe = case.recipe
    model = build(recipe, case.found.tokenizer).to(DEVICE).train()
    terms = terms_of(recipe, model, case.sampler, choose("cuda", "bf16"), World())

    def loss(batch: PretrainingBatch) -> torch.Tensor:
        return torch.stack([term.loss / term.count for term in terms(batch).values()]).sum()

    return loss, list(model.parameters()), optimizer_for(recipe, model)


def peer(case: Case) -> Side:
    """`BertForPreTraining` as it comes."""
    config = peer_config(case.recipe, case.found)
    model = transformers.BertForPreTraining._from_config(config, attn_implementation="sdpa")
    model = model.to(DEVICE).train()  # pyrefly: ignore
    parameters = list(model.parameters())
    run = torch.compile(model) if "compiled" in case.side else model

    def loss(batch: PretrainingBatch) -> torch.Tensor:
        inputs = {name: on_device(one.numpy(), DEVICE) for name, one in padded(batch).items()}
        if all(inputs["attention_mask"].shape[1] == length for length in np.diff(batch.offsets)):
            del inputs["attention_mask"]  # nothing is padded: without a mask it takes the faster kernel
        with torch.autocast(DEVICE.type, torch.bfloat16, enabled=DEVICE.type == "cuda"):
            return run(**inputs).loss

    return loss, parameters, adamw(model, lr=1e-4, betas=(0.9, 0.98), eps=1e-6, decay=0.01)
