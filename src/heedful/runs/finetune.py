"""Fine-tuning from labelled files to a model folder: reads, trains, keeps the best, saves, and resumes exactly."""

import json
import os
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from heedful.data import tokenizer as wordpiece
from heedful.data.batch import LabelledBatch
from heedful.data.flaws import told
from heedful.data.shuffled import Shuffled
from heedful.durable import write_file
from heedful.errors import UserError
from heedful.formats.huggingface import save_model
from heedful.models.heads import BertForTask
from heedful.runs import dataset
from heedful.runs.device import Compute, choose
from heedful.runs.finetune_options import FinetuneOptions, FinetuneRecipe, check, read_recipe
from heedful.runs.folder import claim, give_back, reclaim, require_free, require_unfinished
from heedful.runs.judge import Judge
from heedful.runs.material import gather
from heedful.runs.start import build, optimizer_for, unscale
from heedful.runs.training import (
    bert_shape,
    interval,
    introduce,
    last_checkpoint,
    reporter,
    restore,
    resume_command,
    run,
    snapshot,
)
from heedful.tasks.finetuning import finetuning_counts, finetuning_terms
from heedful.tasks.term import Term
from heedful.train import checkpoint
from heedful.train.distributed import World
from heedful.train.log import Log, counted, describe, summary_writer
from heedful.train.loop import Job, Metrics, Plan, Progress
from heedful.train.replay import Replay

RESULT_FILE = "evaluation.json"


def finetune(options: FinetuneOptions, whole: Path | None = None) -> Metrics:
    """Make the model folder; how well its model did on the examples to evaluate on.

    `whole` is the folder of the run that this one is a part of.
    """
    recipe, out = options.settings, options.out
    if options.resume:
        require_unfinished(out, "start a new one with MODEL")
    check(recipe)
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise UserError("fine-tuning runs in one process; start it without torchrun")
    if recipe.run.tensorboard:
        summary_writer()  # said now, if it is missing, and not after the data is read
    compute = choose(recipe.run.device, recipe.run.precision)
    compute.repeatable()
    if not options.resume:
        require_free(out)
    log = Log(out, leads=True)
    material = gather(recipe, log)
    recipe = material.recipe
    new = False
    if options.resume:
        reclaim(out, recipe, read_recipe)
    else:
        new = claim(out, recipe)
    try:
        model = build(recipe, material.head, material.scaling, log.note).to(compute.device)
        judge = Judge(model, material)
        make_plan(recipe, 1)  # said now, if it can't be made
        wordpiece.save(material.tokenizer, out, model.config.max_length)
    except BaseException:
        if not options.resume:
            give_back(out, remove=new)
        raise
    if judge.cut:
        log.note(f"to evaluate on, {judge.cut}")
    if judge.skipped:
        log.note(f"not evaluated on {told(judge.skipped)}")
    resume = resume_command("finetune", whole or out)
    return _train(replace(options, settings=recipe), judge, compute, log, resume)


def make_plan(recipe: FinetuneRecipe, batches: int) -> Plan:
    """The schedule that a resolved recipe asks for, with so many batches an epoch."""
    learning, every = recipe.learning, recipe.run.checkpoint_every
    assert learning.lr is not None
    assert learning.epochs is not None
    assert learning.evaluations is not None
    every_steps, every_seconds = interval(every)
    return Plan(
        steps=learning.epochs * batches,
        budget=None,
        lr=learning.lr,
        warmup=learning.warmup,
        accumulation=1,
        clip=learning.clip,
        seed=recipe.run.seed,
        evaluations=learning.evaluations,
        checkpoint_steps=every_steps,
        checkpoint_seconds=every_seconds,
    )


def _train(options: FinetuneOptions, judge: Judge, compute: Compute, log: Log, resume: str) -> Metrics:
    recipe, out, model, material = options.settings, options.out, judge.model, judge.material
    head = material.head
    folder, learning = out / "checkpoints", recipe.learning
    assert learning.batch is not None
    data = Shuffled(
        inputs=material.training.inputs, targets=material.training.targets, batch=learning.batch, seed=recipe.run.seed
    )
    plan = make_plan(recipe, data.batches)
    optimizer = optimizer_for(model, learning)
    progress = _restore(folder, model, optimizer, judge, log, compute) if options.resume else Progress()
    weights = None
    if recipe.head.balance:
        weights = torch.from_numpy(dataset.weights(head, material.training)).to(compute.device)

    replay = Replay(model, learning.batch, compute.dtype) if compute.device.type == "cuda" else None

    def terms(batch: LabelledBatch) -> dict[str, Term]:
        scores = None if replay is None else replay.score(batch.inputs)
        with compute.autocast():
            return finetuning_terms(model, batch, compute.device, weights, scores)

    def test(now: Progress) -> bool:
        found = judge.look(now.step)
        log.metrics("heldout", now.step, {**found, "tokens": now.tokens, "elapsed": now.elapsed})
        log.note(f"epoch {now.step / data.batches:.3g}, held out: {describe(found)}")
        if learning.patience and judge.stale >= learning.patience and now.step < (plan.steps or 0):
            log.note(f"stopping early: no better {judge.metric} in {judge.stale} evaluations")
            return True
        return False

    def save(now: Progress) -> None:
        state = {
            "data": material.digest,
            "best": judge.best,
            "best_step": judge.best_step,
            "stale": judge.stale,
        }
        tensors = {"best": judge.best_weights} if judge.best_weights else {}
        checkpoint.save(folder, snapshot(now, model, optimizer, state=state, tensors=tensors), recipe.run.keep)

    job = Job(
        model=model,
        optimizer=optimizer,
        batches=data.stream,
        tokens=lambda batch: len(batch.inputs.ids),
        counts=partial(finetuning_counts, head.task),
        terms=terms,
        plan=plan,
        world=World(),
        report=reporter(plan, log),
        evaluate=test,
        save=save,
    )
    introduce(log, model, bert_shape(model.config), compute, World(), progress)
    log.note(
        f"training: {counted(len(material.training.inputs), 'input')}, {counted(learning.epochs or 0, 'epoch')} of "
        f"{counted(data.batches, 'batch', 'batches')}, learning rate {plan.lr:g}; "
        f"the best {judge.metric} on {counted(len(judge.examples), 'example')} is kept"
    )
    run(
        job,
        progress,
        log,
        folder=folder,
        resume=resume,
        smaller=f"--batch {max(1, learning.batch // 2)}",
        tensorboard=recipe.run.tensorboard,
    )
    model.load_state_dict(judge.best_weights)
    if material.scaling is not None:
        unscale(model.output, material.scaling)
    result = {"metric": judge.metric, "step": judge.best_step, "examples": len(judge.examples), "scores": judge.best}
    write_file(out / RESULT_FILE, (json.dumps(result, indent=2) + "\n").encode())
    save_model(model, out)
    shutil.rmtree(folder, ignore_errors=True)
    log.note(f"best, after epoch {judge.best_step / data.batches:.3g}: {describe(judge.best)}")
    log.note(f"saved {out}")
    return judge.best


def _restore(
    folder: Path,
    model: BertForTask,
    optimizer: torch.optim.Optimizer,
    judge: Judge,
    log: Log,
    compute: Compute,
) -> Progress:
    found = last_checkpoint(folder, judge.material.digest, log)
    if found is None:
        return Progress()
    judge.best, judge.best_step, judge.stale = (found.state[name] for name in ("best", "best_step", "stale"))
    judge.best_weights = {name: tensor.to(compute.device) for name, tensor in found.tensors.get("best", {}).items()}
    return restore(found, model, optimizer)
