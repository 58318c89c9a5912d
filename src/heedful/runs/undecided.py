"""What a recipe leaves to the machine, decided: the size, and how many tokens a batch has. Said aloud, and noted."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from heedful.config import read_toml
from heedful.data.batch import PretrainingBatch
from heedful.errors import UserError
from heedful.models.bert import SIZES, BertForPretraining
from heedful.runs.device import Compute
from heedful.runs.fitting import find_tokens, made_up
from heedful.runs.folder import amend
from heedful.runs.options import Recipe, read_recipe, resolved
from heedful.runs.recipe_files import RUN_FILE
from heedful.runs.sizing import matmul_rate, suited, worthwhile
from heedful.tasks.pretraining import pretraining_terms
from heedful.tasks.term import Term
from heedful.train.distributed import World
from heedful.train.log import Log
from heedful.train.schedule import seconds

USUAL = 8192
"""Tokens of a batch."""


def check_undecided(recipe: Recipe) -> None:
    """Refuse what can't be decided later."""
    if recipe.run.budget is not None:
        return
    open_size, open_batch = recipe.model.size == "auto", recipe.optimizer.batch_tokens == "budget"
    if open_size and open_batch:  # as in the recipe modern
        raise UserError(
            "--size auto and --batch-tokens budget choose for a time; give a --budget instead of --steps, or both "
            f"a size and a number of tokens: {USUAL} is usual"
        )
    if open_size:
        raise UserError("--size auto chooses for a time; give a --budget instead of --steps, or a size")
    if open_batch:
        raise UserError(f"--batch-tokens budget is for a --budget; with --steps, give a number: {USUAL} is usual")


def noted(recipe: Recipe, out: Path, ranks: World) -> Recipe:
    """The recipe with what was decided when its run began."""
    open_batch = isinstance(recipe.optimizer.batch_tokens, str)
    if not open_batch and recipe.model.size != "auto":
        return recipe
    then = ranks.share(read_recipe(out / RUN_FILE) if ranks.leads else recipe)
    if open_batch:
        recipe = replace(recipe, optimizer=replace(recipe.optimizer, batch_tokens=then.optimizer.batch_tokens))
    if recipe.model.size == "auto":
        recipe = resolved(replace(recipe, model=replace(recipe.model, size=then.model.size)))
    return recipe


def for_the_time(recipe: Recipe, out: Path, vocab_size: int, compute: Compute, ranks: World) -> Recipe:
    """The recipe with the size that is worth its time here, and with batches that suit it."""
    given, size, open_batch = recipe, recipe.model.size, recipe.optimizer.batch_tokens == "budget"
    if size != "auto" and not open_batch:
        return recipe
    if recipe.start_from is not None:
        batch, why = ranks.share(_earlier_batch(Path(recipe.start_from)) if ranks.leads else (0, ""))
        if batch < recipe.objective.length:
            batch, why = recipe.objective.length, "the least that its sequences fit into"
        recipe = replace(recipe, optimizer=replace(recipe.optimizer, batch_tokens=batch))
        _note(recipe, given, out, ranks, f"--batch-tokens budget: {batch}, {why}")
        return recipe
    assert recipe.run.budget is not None
    assert size is not None
    rate = matmul_rate(compute.device, compute.dtype) * ranks.ranks
    size, tokens = ranks.share(
        worthwhile(
            seconds(recipe.run.budget),
            rate,
            compute.device.type,
            sizes=SIZES if size == "auto" else (size,),
            vocab_size=vocab_size,
            length=recipe.objective.length,
            mask_rate=recipe.objective.mask_rate,
            gated=recipe.model.gated,
        )
    )
    recipe = resolved(replace(recipe, model=replace(recipe.model, size=size)))  # pyrefly: ignore
    said = [f"--size auto: {size}"] if given.model.size == "auto" else []
    if open_batch:
        batch = suited(tokens / (ranks.ranks * recipe.optimizer.accumulation), recipe.objective.length)
        recipe = replace(recipe, optimizer=replace(recipe.optimizer, batch_tokens=batch))
        said.append(f"--batch-tokens budget: {batch}")
    about = float(f"{tokens:.2g}")
    many = f"{about / 1e6:,g} million" if about >= 1e6 else f"{about:,.0f}"
    _note(recipe, given, out, ranks, f"{', '.join(said)}; sees about {many} tokens in the time")
    return recipe


def _earlier_batch(folder: Path) -> tuple[int, str]:
    """The tokens of a batch that a model was trained with so far, or else the usual ones, and why."""
    noted = read_toml(folder / RUN_FILE) if (folder / RUN_FILE).is_file() else {}
    part = noted.get("optimizer")
    batch = part.get("batch_tokens") if isinstance(part, dict) else None
    if isinstance(batch, int):
        return batch, f"as in {folder / RUN_FILE}"
    return USUAL, f"which is usual, since {folder} does not say what it was trained with"


def with_tokens(
    recipe: Recipe,
    out: Path,
    model: BertForPretraining,
    optimizer: torch.optim.Optimizer,
    compute: Compute,
    ranks: World,
) -> Recipe:
    """The recipe with as many batch tokens as fit everybody's GPU."""
    if recipe.optimizer.batch_tokens != "auto":
        return recipe
    given, objective = recipe, recipe.objective

    def terms(batch: PretrainingBatch) -> dict[str, Term]:
        with compute.autocast():
            return pretraining_terms(model, batch, compute.device)

    mine = find_tokens(
        model,
        optimizer,
        terms,
        partial(
            made_up,
            length=objective.length,
            vocab_size=model.config.vocab_size,
            mask_rate=max(objective.mask_rate, objective.final_mask_rate or 0.0),
            nsp=objective.nsp,
        ),
        length=objective.length,
        accumulation=recipe.optimizer.accumulation,
    )
    everybodys = ranks.sum_numbers([mine if rank == ranks.rank else 0 for rank in range(ranks.ranks)])
    recipe = replace(recipe, optimizer=replace(recipe.optimizer, batch_tokens=int(min(everybodys))))
    why = ", as usual on a CPU" if compute.device.type == "cpu" else ""
    _note(recipe, given, out, ranks, f"--batch-tokens auto: {recipe.optimizer.batch_tokens}{why}")
    return recipe


def _note(recipe: Recipe, given: Recipe, out: Path, ranks: World, said: str) -> None:
    if ranks.leads:
        amend(out, recipe, told=given)
    Log(out, leads=ranks.leads).note(said)
