"""Training an image classifier, from images to a model folder: reads, trains, keeps the best, and resumes exactly."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from heedful.data.batch import ImageBatch
from heedful.data.image_sampler import ImageSampler, even_batch
from heedful.durable import write_file
from heedful.formats.vit import save_vit
from heedful.models.vit import ViTClassifier, ViTConfig, initialise
from heedful.runs.agreement import require_alike, require_as_many, require_same_data, share_weights
from heedful.runs.cache import cache_of
from heedful.runs.device import Compute
from heedful.runs.folder import RESULT_FILE, require_free, require_unfinished
from heedful.runs.training import (
    computing,
    goes_on,
    interval,
    introduce,
    is_over,
    last_checkpoint,
    refuse_sharding,
    reporter,
    restore,
    resume_command,
    run,
    taken,
    tell_of_ranks,
)
from heedful.runs.vision_judge import METRIC, VisionJudge
from heedful.runs.vision_material import VisionMaterial, gather
from heedful.runs.vision_options import VisionOptions, VisionRecipe, check, read_recipe
from heedful.runs.watching import State, keeper, watcher
from heedful.tasks.term import Term
from heedful.tasks.vision import vision_counts, vision_terms
from heedful.train.distributed import World, restarts
from heedful.train.log import Log, describe, summary_writer
from heedful.train.loop import Job, Metrics, Plan, Progress, step_seed
from heedful.train.optim import OPTIMIZERS
from heedful.train.replay_images import MOST_TOKENS, ImageReplay, fits
from heedful.train.schedule import seconds
from heedful.wording import counted

EPS = 1e-8


def train_vision(options: VisionOptions) -> Metrics:
    """Make the model folder; how well its model did on the images held out."""
    recipe, out = options.settings, options.out
    if options.resume and not restarts():  # started again by torchrun, it may well be complete
        require_unfinished(out, "train for longer, start a new one in another --out")
    check(recipe)
    interval(recipe.run.checkpoint_every)  # said now, if it is none, like all that follows
    refuse_sharding(recipe.run)
    if recipe.run.tensorboard:
        summary_writer()
    with computing(recipe.run, out) as (ranks, compute):
        require_alike(options, ranks)
        if is_over(out, recipe, read_recipe, ranks):
            return {}
        options = replace(options, resume=goes_on(out, ranks, resume=options.resume))
        if ranks.leads and not options.resume:
            require_free(out)
        log = Log(out, leads=ranks.leads)
        read = partial(gather, recipe, cache_of(out, options.cache), log, gpu=compute.device.type == "cuda")
        material = ranks.in_turn(read)
        require_same_data(material.digest, ranks)
        options = replace(options, settings=material.recipe)
        with taken(out, material.recipe, recipe, read_recipe, ranks, resume=options.resume, cache=options.cache):
            judge = ranks.in_turn(partial(_judge, material, compute))
            share_weights(judge.model, ranks)
        return _train(options, judge, ranks, log)


def _judge(material: VisionMaterial, compute: Compute) -> VisionJudge:
    """The model to train, in the hands of who evaluates it."""
    make_plan(material.recipe, 1)  # said now, if it can't be made
    return VisionJudge(compute.holding(build(material)), material, compute)


def build(material: VisionMaterial) -> ViTClassifier:
    """A new model, its weights drawn from the seed."""
    part, images = material.recipe.model, material.train
    assert part.size is not None
    config = ViTConfig.of_size(
        part.size,
        image_size=images.height,
        patch_size=part.patch_size,
        channels=images.channels,
        pool=part.pool,
        dropout=part.dropout,
        attention_dropout=part.attention_dropout,
        stochastic_depth=part.stochastic_depth,
        shifted_patches=part.shifted_patches,
        convolutional_stem=part.convolutional_stem,
        locality=part.locality,
        pixels=material.read_as,
    )
    config = replace(config, init_std=part.init_std or config.dim**-0.5)
    model = ViTClassifier(config, images.classes)
    initialise(model, torch.Generator().manual_seed(step_seed(material.recipe.run.seed, 0, 2**31)))
    return model


def make_plan(recipe: VisionRecipe, batches: int, ranks: int = 1) -> Plan:
    """The schedule that a resolved recipe asks for, with so many batches an epoch; a step takes one a rank."""
    learning, part = recipe.learning, recipe.run
    assert learning.lr is not None
    every_steps, every_seconds = interval(part.checkpoint_every)
    return Plan(
        steps=part.steps if part.epochs is None else -(-part.epochs * batches // ranks),
        budget=None if part.budget is None else seconds(part.budget),
        lr=learning.lr,
        warmup=learning.warmup,
        accumulation=1,
        clip=learning.clip,
        seed=part.seed,
        evaluations=part.evaluations,
        checkpoint_steps=every_steps,
        checkpoint_seconds=every_seconds,
        schedule=learning.schedule,
    )


def _train(options: VisionOptions, judge: VisionJudge, ranks: World, log: Log) -> Metrics:
    recipe, out, model, material, compute = options.settings, options.out, judge.model, judge.material, judge.compute
    folder, learning = out / "checkpoints", recipe.learning
    assert learning.batch is not None
    batch = even_batch(len(material.train), learning.batch)
    data = ImageSampler(images=material.train, batch=batch, seed=recipe.run.seed, even=True)
    plan = make_plan(recipe, data.batches, ranks.ranks)
    make = OPTIMIZERS[learning.name]
    optimizer = make(model, lr=plan.lr, betas=(0.9, learning.beta2), eps=EPS, decay=learning.weight_decay)
    progress = _restore(folder, judge, optimizer, ranks, log) if options.resume else Progress()

    # Gradients of a recording lie where it put them; those that are summed over ranks lie elsewhere.
    alone = compute.device.type == "cuda" and ranks.ranks == 1
    recorded = alone and fits(model.config, batch)
    compiled = recorded and recipe.run.compile and compute.compiles
    scores: Callable[[Tensor], Tensor] = model
    if alone:
        scores = ImageReplay(model, batch, compute.dtype, compiled=compiled)

    def terms(batch: ImageBatch) -> dict[str, Term]:
        with compute.autocast():
            return vision_terms(
                scores,
                batch,
                compute.device,
                material.read_as,
                recipe.augmentation,
                seed=recipe.run.seed,
                smoothing=learning.smoothing,
            )

    def epoch(step: int) -> str:
        return f"epoch {step * ranks.ranks / data.batches:.3g}"

    tell, tokens = reporter(plan, log), model.config.tokens

    def report(now: Progress, metrics: Metrics) -> None:
        """Images are counted, of which each is as many tokens."""
        others = {name: value for name, value in metrics.items() if name != "tokens_per_second"}
        speed = metrics["tokens_per_second"] / tokens
        tell(now, {**others, "images": now.tokens // tokens, "images_per_second": speed})

    job = Job(
        model=model,
        optimizer=optimizer,
        batches=lambda position, _: data.stream(position, ranks.rank, ranks.ranks),
        tokens=lambda batch: len(batch.labels) * tokens,
        counts=vision_counts,
        terms=terms,
        plan=plan,
        world=ranks,
        report=report,
        evaluate=watcher(judge, METRIC, learning.patience, plan, epoch, ranks, log),
        save=keeper(
            judge.states, optimizer, digest=material.digest, folder=folder, keep=recipe.run.keep, ranks=ranks
        ),
        recorded=recorded,
    )
    introduce(log, model, _shape(model.config), compute, ranks, progress)
    log.note(
        f"training: {counted(data.batches, 'batch', 'batches')} of {counted(batch, 'image')} an epoch, "
        f"{_length(recipe)}, learning rate {plan.lr:g}; the best {METRIC} on the held-out images is kept"
    )
    if recipe.run.compile and compute.dtype is torch.bfloat16 and not compiled:
        needs = f"one process, batches of at most {MOST_TOKENS:,} patches, Triton and a C compiler (gcc or clang)"
        log.note(f"layers are not compiled: that needs {needs}")
    run(
        job,
        progress,
        log,
        folder=folder,
        resume=resume_command("train-vision", out, ranks),
        smaller=f"--batch {max(1, learning.batch // 2)}",
        tensorboard=recipe.run.tensorboard,
    )
    if ranks.leads:
        best = judge.states.best
        _save(judge, best, out)
        shutil.rmtree(folder, ignore_errors=True)
        log.note(f"best, after {epoch(best.step)}: {describe(best.scores)}")
    log.note(f"saved {out}")
    return ranks.share(judge.states.best.scores if ranks.leads else {})


def _save(judge: VisionJudge, best: State, out: Path) -> None:
    """Write the best model, and how good it is."""
    judge.model.load_state_dict(best.weights)
    found = judge.report()
    result = {
        "metric": METRIC,
        "step": best.step,
        "examples": len(judge.material.heldout),
        "trained_on": judge.material.trained_on,
        "scores": {name: score for name, score in found.scores.items() if name != "loss"},
        "classes": [one._asdict() for one in found.classes],
    }
    write_file(out / RESULT_FILE, (json.dumps(result, indent=2, ensure_ascii=False) + "\n").encode())
    save_vit(judge.model, out)


def _restore(folder: Path, judge: VisionJudge, optimizer: torch.optim.Optimizer, ranks: World, log: Log) -> Progress:
    found = last_checkpoint(folder, judge.material.digest, log, ranks)
    if found is None:
        return Progress()
    before = found.state["ranks"]
    if judge.material.recipe.run.epochs is not None:
        require_as_many(before, ranks)
    tell_of_ranks(before, ranks, log)
    judge.states.recall(found, judge.compute.device)
    return restore(found, judge.model, optimizer)


def _shape(config: ViTConfig) -> str:
    sizes = f"{config.layers} layers, {config.dim} wide, {config.heads} heads"
    patches = f"{config.side} x {config.side} patches of {config.patch_size} x {config.patch_size} pixels"
    return ", ".join([sizes, patches, *config.variations])


def _length(recipe: VisionRecipe) -> str:
    """How long a run is, in words."""
    part = recipe.run
    if part.epochs is not None:
        return counted(part.epochs, "epoch")
    return counted(part.steps, "step") if part.steps is not None else f"for {part.budget}"
