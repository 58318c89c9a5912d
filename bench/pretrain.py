"""Pretraining speed beside a plain `transformers` loop, in one run, on the same examples.

    python -m bench.pretrain [--vocab-size 16000] [--data FILE|FOLDER …]
    with a GPU: [--cases base-128 …] [--text full packed pairs] [--sides …]
    without, or with --device cpu: [--size small] [--batch-tokens 8192]

The text is the embedded corpus, or any that `heedful pretrain` takes. With a GPU it is another comparison, see
`bench/pretrain_gpu.py`. On a CPU both sides train on the same real sentence pairs in the same order, with the same
dropout, clipping and fused AdamW. The peer pads each batch to its longest sequence and is measured at several batch
sizes, of which its best counts. Steps alternate, so that both sides meet the same weather. "Real" tokens are those
that are not padding.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from unittest.mock import patch

import torch
import transformers

from heedful.data.batch import PretrainingBatch
from heedful.data.shards import Shards
from heedful.models.bert import SIZES
from heedful.nn.layout import Packed
from heedful.runs import corpus
from heedful.runs.cache import default_cache
from heedful.runs.demo import builtin_corpus
from heedful.runs.options import ModelPart, OptimizerPart, PretrainRun, Recipe, VocabularyPart, resolved
from heedful.runs.pretrain import build, make_plan, sampler
from heedful.tasks.pretraining import pretraining_counts, pretraining_terms
from heedful.train import loop, stepping
from heedful.train.distributed import World
from heedful.train.optim import adamw

DEVICE = torch.device("cpu")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="*", default=[], help="text or prepared shards, not the embedded corpus")
    parser.add_argument("--vocab-size", type=int, default=16000)
    parser.add_argument("--steps", type=int, default=6, help="measured steps of each side")
    here = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument("--device", choices=["cpu", "cuda"], default=here)
    on_cpu = parser.add_argument_group("on a CPU")
    on_cpu.add_argument("--size", default="small")
    on_cpu.add_argument("--batch-tokens", type=int, default=8192)
    on_cpu.add_argument("--dropout", type=float, default=0.1)
    on_gpu = parser.add_argument_group("on a GPU")
    on_gpu.add_argument("--cases", nargs="+", default=["base-128", "base-512", "large-512"])
    on_gpu.add_argument("--text", nargs="+", choices=["full", "packed", "pairs"], default=["full", "pairs"])
    sides = ["ours", "ours, fp8", "transformers", "transformers, compiled"]
    told = f"any of {', '.join(map(repr, sides))}"
    on_gpu.add_argument("--sides", nargs="+", choices=sides, default=sides, metavar="SIDE", help=told)
    on_gpu.add_argument("--tokens", nargs="+", type=int, default=[65536, 131072], help="batches of ours")
    on_gpu.add_argument("--peer-tokens", nargs="+", type=int, default=[16384, 32768, 65536, 131072])
    arguments = parser.parse_args()
    asked = Recipe(
        corpus=tuple(arguments.data) or (str(builtin_corpus(default_cache(), print)),),
        vocabulary=VocabularyPart(vocab_size=arguments.vocab_size),
        model=ModelPart(size=arguments.size, dropout=arguments.dropout, attention_dropout=arguments.dropout),
        optimizer=OptimizerPart(batch_tokens=arguments.batch_tokens),
        run=PretrainRun(steps=arguments.steps, checkpoint_every="1000000"),
    )
    recipe = resolved(asked)
    shards = corpus.prepare(
        recipe.corpus,
        recipe.text,
        tokenizer=lambda files: corpus.train_tokenizer(files, recipe.text, recipe.vocabulary),
        given=None,
        stdin_folder=Path(),
        cache=default_cache(),
        say=print,
    )
    if arguments.device == "cuda":
        from bench.pretrain_gpu import compare as compare_on_gpu

        compare_on_gpu(shards, arguments)
        return

    sizes = sorted({arguments.batch_tokens // 4, arguments.batch_tokens // 2, arguments.batch_tokens})
    speeds = compare(recipe, shards, sizes, arguments.steps)
    best = max(speed for name, speed in speeds.items() if name.startswith("transformers"))
    print(f"\n{arguments.size}, vocabulary {shards.tokenizer.vocab_size}, length 128, dropout {arguments.dropout}")
    for name, speed in speeds.items():
        print(f"  {name:<40} {speed:8,.0f} real tokens/s")
    print(f"  ours / transformers' best                {speeds['heedful'] / best:8.2f} x")
    share = overhead(recipe, shards)
    print(f"  outside forward, backward and optimizer  {share:8.2%} of a step")


def compare(recipe: Recipe, shards: Shards, peer_sizes: list[int], steps: int) -> dict[str, float]:
    """Real tokens a second of each side: the median of its steps, which take turns."""
    sides = {"heedful": Side.ours(recipe, shards)}
    for size in peer_sizes:
        smaller = replace(recipe, optimizer=replace(recipe.optimizer, batch_tokens=size))
        sides[f"transformers, batches of {size} tokens"] = Side.peer(smaller, shards)
    speeds: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(steps + 2):
        for name, side in sides.items():
            begun = time.perf_counter()
            tokens = side.step()
            if number >= 2:  # the first steps warm up
                speeds[name].append(tokens / (time.perf_counter() - begun))
        print(f"\rstep {number + 1} of {steps + 2}", end="", file=sys.stderr, flush=True)
    return {name: statistics.median(found) for name, found in speeds.items()}


@dataclass
class Side:
    """A model that takes a training step and says how many real tokens it saw."""

    step: Callable[[], int]

    @classmethod
    def ours(cls, recipe: Recipe, shards: Shards) -> "Side":
        model = build(recipe, shards.tokenizer).train()
        batches = _batches(recipe, shards)

        def loss(batch: PretrainingBatch) -> torch.Tensor:
            terms = pretraining_terms(model, batch, DEVICE)
            return torch.stack([term.loss / term.count for term in terms.values()]).sum()

        return cls(partial(_step, model, _optimizer(model), loss, batches))

    @classmethod
    def peer(cls, recipe: Recipe, shards: Shards) -> "Side":
        model = transformers.BertForPreTraining(peer_config(recipe, shards)).train()
        batches = _batches(recipe, shards)

        def loss(batch: PretrainingBatch) -> torch.Tensor:
            return model(**padded(batch)).loss

        return cls(partial(_step, model, _optimizer(model), loss, batches))


def peer_config(recipe: Recipe, shards: Shards) -> transformers.BertConfig:
    """The same model, as transformers is told of it."""
    layers, dim, heads = SIZES[recipe.model.size or "small"]
    return transformers.BertConfig(
        vocab_size=shards.tokenizer.vocab_size,
        num_hidden_layers=layers,
        hidden_size=dim,
        num_attention_heads=heads,
        intermediate_size=4 * dim,
        hidden_dropout_prob=recipe.model.dropout or 0.0,
        attention_probs_dropout_prob=recipe.model.attention_dropout or 0.0,
    )


def padded(batch: PretrainingBatch) -> dict[str, torch.Tensor]:
    """The batch as a plain collator makes it: padded to its longest, -100 where nothing is to predict."""
    layout = Packed.from_offsets(torch.from_numpy(batch.offsets), batch.longest, len(batch.ids))
    mask = layout.mask()
    labels = torch.full(mask.shape, -100)
    labels.view(-1)[layout.slots[torch.from_numpy(batch.places)]] = torch.from_numpy(batch.labels)
    assert batch.unrelated is not None
    return {
        "input_ids": layout.unpack(torch.from_numpy(batch.ids)),
        "token_type_ids": layout.unpack(torch.from_numpy(batch.segments)),
        "attention_mask": mask.long(),
        "labels": labels,
        "next_sentence_label": torch.from_numpy(batch.unrelated),
    }


def overhead(recipe: Recipe, shards: Shards) -> float:
    """The share of our own loop's time that is not forward, backward or optimizer."""
    model = build(recipe, shards.tokenizer)
    optimizer = _optimizer(model)
    inside = [0.0]
    report: list[float] = []

    @contextmanager
    def timed() -> Iterator[None]:
        begun = time.perf_counter()
        yield
        inside[0] += time.perf_counter() - begun

    def within(function: Callable) -> Callable:
        def call(*positional, **named):
            with timed():
                return function(*positional, **named)

        return call

    job = loop.Job(
        model=model,
        optimizer=optimizer,
        batches=lambda position, _: sampler(recipe, shards.train, shards.tokenizer).stream(position),
        tokens=lambda batch: len(batch.ids),
        counts=pretraining_counts,
        terms=within(lambda batch: pretraining_terms(model, batch, DEVICE)),
        plan=replace(make_plan(recipe), evaluations=1),
        world=World(),
        report=lambda _, metrics: report.append(metrics["loss"]),
        evaluate=lambda _: None,
        save=lambda _: None,
    )
    with (
        patch.object(torch.Tensor, "backward", within(torch.Tensor.backward)),
        patch.object(stepping, "clip", within(stepping.clip)),
        patch.object(optimizer, "step", within(optimizer.step)),
    ):
        begun = time.perf_counter()
        loop.train(job, loop.Progress())
        return 1 - inside[0] / (time.perf_counter() - begun)


def _step(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    loss: Callable[[PretrainingBatch], torch.Tensor],
    batches: Iterator[PretrainingBatch],
) -> int:
    batch = next(batches)
    loss(batch).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    return len(batch.ids)


def _batches(recipe: Recipe, shards: Shards) -> Iterator[PretrainingBatch]:
    return (batch for _, batch in sampler(recipe, shards.train, shards.tokenizer).stream())


def _optimizer(model: torch.nn.Module) -> torch.optim.AdamW:
    return adamw(model, lr=1e-4, betas=(0.9, 0.98), eps=1e-6, decay=0.01)


if __name__ == "__main__":
    main()
