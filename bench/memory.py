"""The memory of a pretraining step on a GPU, predicted and measured, for every size and length.

    python -m bench.memory [--sizes tiny … large] [--lengths 128 512] [--tokens 8192 65536] [--compiled]

A BERT as published without dropout, in bf16, with AdamW, on made-up batches that are full: the most that torch has
allocated in two steps. The prediction is that of docs/scaling.md, for steps that are not compiled: 16 bytes a
parameter, and what the forward pass leaves for the backward pass. With `--compiled` the steps are those that
`heedful pretrain` takes by default, which need less.
"""

import argparse
import gc

import torch

from heedful.data.batch import PretrainingBatch
from heedful.models.bert import SIZES, BertConfig, BertForPretraining, initialise
from heedful.nn.shortage import short_of_memory
from heedful.runs.device import choose
from heedful.runs.fitting import made_up, take_step
from heedful.runs.memory import of_a_token
from heedful.tasks.pretraining import pretraining_terms
from heedful.tasks.term import Term
from heedful.train.optim import adamw
from heedful.train.replay_pretraining import PretrainingReplay, Shape

VOCABULARY, MASKED = 16_384, 0.15
GIB = 2**30


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--lengths", nargs="+", type=int, default=[128, 512])
    parser.add_argument("--tokens", nargs="+", type=int, default=[8192, 65536])
    parser.add_argument("--compiled", action="store_true")
    arguments = parser.parse_args()
    heads = [f"{tokens:,} tokens of length {length}" for tokens in arguments.tokens for length in arguments.lengths]
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}; GiB, measured (predicted)\n")
    print(f"| size | {' | '.join(heads)} |\n|---|{'---:|' * len(heads)}")
    for size in arguments.sizes:
        cells = []
        for tokens in arguments.tokens:
            for length in arguments.lengths:
                config = BertConfig.of_size(size, vocab_size=VOCABULARY, dropout=0.0, attention_dropout=0.0)
                found = measured(config, tokens, length, compiled=arguments.compiled)
                cells.append(f"{found:.2f} ({predicted(config, tokens, length):.2f})")
        print(f"| {size} | {' | '.join(cells)} |", flush=True)


def predicted(config: BertConfig, tokens: int, length: int) -> float:
    """By the formula of docs/scaling.md."""
    with torch.device("meta"):
        parameters = sum(one.numel() for one in BertForPretraining(config).parameters())
    return (16 * parameters + tokens * of_a_token(config, length, MASKED, choose("cuda", "bf16"))) / GIB


def measured(config: BertConfig, tokens: int, length: int, *, compiled: bool) -> float:
    """The most that was allocated; not a number where it was too much."""
    torch.compiler.reset()
    gc.collect()  # what was compiled or recorded refers to itself, and would count
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    compute = choose("cuda", "bf16")
    compute.repeatable()  # as every run is
    model = BertForPretraining(config)
    initialise(model, config.init_std, torch.Generator().manual_seed(0))
    model = model.to("cuda").train()
    optimizer = adamw(model, lr=1e-4, betas=(0.9, 0.98), eps=1e-6, decay=0.01)
    batch = made_up(tokens, length=length, vocab_size=config.vocab_size, mask_rate=MASKED, nsp=True)
    shape = Shape.of(tokens, len(batch.offsets) - 1, len(batch.places), length)
    replay = PretrainingReplay(model, shape, compute.dtype) if compiled else None

    def terms(batch: PretrainingBatch) -> dict[str, Term]:
        if replay is not None and (found := replay.terms(batch)) is not None:
            return found
        with compute.autocast():
            return pretraining_terms(model, batch, compute.device)

    try:
        for _ in range(2):
            take_step(model, optimizer, terms, batch, 1)
    except RuntimeError as error:
        if short_of_memory(error) is None:
            raise
        return float("nan")
    return torch.cuda.max_memory_allocated() / GIB


if __name__ == "__main__":
    main()
