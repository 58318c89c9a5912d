"""What turns a pretraining batch into the sums of its objectives: as it is written, or compiled and recorded."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from heedful.data.batch import PretrainingBatch
from heedful.data.sampler import Sampler
from heedful.errors import UserError
from heedful.formats.huggingface import read_config
from heedful.models.bert import BertConfig, BertForPretraining
from heedful.nn import fp8, kernels
from heedful.runs.device import Compute
from heedful.runs.options import ModelPart, Recipe
from heedful.tasks.pretraining import pretraining_terms
from heedful.tasks.term import Term
from heedful.train.distributed import World


def terms_of(
    recipe: Recipe, model: BertForPretraining, training: Sampler, compute: Compute, ranks: World
) -> Callable[[PretrainingBatch], dict[str, Term]]:
    """On a GPU in half precision compiled and recorded."""

    def plain(batch: PretrainingBatch) -> dict[str, Term]:
        with compute.autocast():
            return pretraining_terms(model, batch, compute.device)

    if not compiles(recipe, compute, ranks):
        return plain
    from heedful.train.replay_pretraining import PretrainingReplay, Shape, uncompiled

    rate = max(training.mask_rate, recipe.objective.final_mask_rate or 0.0)
    replay = PretrainingReplay(
        model,
        Shape.of(training.batch_tokens, *training.most(rate), training.length),
        compute.dtype,
        # The gradients of a recording can't be added up, neither over batches nor over processes.
        recording=recipe.optimizer.accumulation == 1 and ranks.ranks == 1,
        fp8_words=_words_of_a_step(recipe, training, ranks) if recipe.run.fp8 else None,
    )

    def fast(batch: PretrainingBatch) -> dict[str, Term]:
        found = replay.terms(batch) if model.training else None
        if found is None:
            with uncompiled():
                found = plain(batch)
        return found

    return fast


def check_fp8(recipe: Recipe) -> None:
    """Refuse a model of which nothing can be multiplied in 8 bits."""
    if not recipe.run.fp8:
        return
    shape: ModelPart | BertConfig = recipe.model
    attention = recipe.objective.length <= kernels.LONGEST  # all new models have heads of one width, which suits
    if recipe.start_from is not None:
        shape = read_config(Path(recipe.start_from))
        if not fp8.suits(shape.dim, shape.ffn_dim):
            raise UserError(
                f"--fp8 needs widths that are multiples of {fp8.MULTIPLE}, and {recipe.start_from} has "
                f"{shape.dim} and {shape.ffn_dim}; use --no-fp8"
            )
        if shape.activation != "gelu":
            raise UserError(f"--fp8 needs GELU, and {recipe.start_from} has {shape.activation}; use --no-fp8")
        attention = attention and shape.dim // shape.heads in kernels.WIDTHS
    if not (attention or shape.gated or shape.bias):
        raise UserError(
            "--fp8 finds nothing to multiply: feed-forward layers need biases or a gate for it, and attention "
            f"sequences of up to {kernels.LONGEST} tokens and heads of a usual width; use --no-fp8"
        )


def _words_of_a_step(recipe: Recipe, training: Sampler, ranks: World) -> float:
    """About how many masked words it has in all."""
    return training.batch_tokens * training.mask_rate * recipe.optimizer.accumulation * ranks.ranks


def unrecorded(recipe: Recipe, compute: Compute, ranks: World) -> AbstractContextManager[None]:
    """The model as it is written, for inputs of any shape."""
    if not compiles(recipe, compute, ranks):
        return nullcontext()
    from heedful.train.replay_pretraining import uncompiled

    return uncompiled()


def compiles(recipe: Recipe, compute: Compute, ranks: World) -> bool:
    """Whether the layers are compiled."""
    return recipe.run.compile and compute.compiles and not ranks.sharded
