"""Fine-tuning from labelled files to a model folder: reads, trains, keeps the best, saves, and resumes exactly."""

import json
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
from heedful.formats.huggingface import save_model
from heedful.models.heads import BertForTask
from heedful.runs import dataset
from heedful.runs.agreement import require_alike, require_as_many, require_same_data, share_weights
from heedful.runs.device import Compute
from heedful.runs.finetune_options import FinetuneOptions, FinetuneRecipe, check, read_recipe
from heedful.runs.folder import RESULT_FILE, require_free, require_unfinished
from heedful.runs.judge import Judge
from heedful.runs.material import Material, gather
from heedful.runs.start import build, optimizer_for, unscale
from heedful.runs.training import (
    bert_shape,
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
)
from heedful.runs.watching import State, keeper, watcher
from heedful.tasks.finetuning import finetuning_counts, finetuning_terms
from heedful.tasks.term import Term
from heedful.train.distributed import World, restarts
from heedful.train.log import Log, describe, summary_writer
from heedful.train.loop import Job, Metrics, Plan, Progress
from heedful.train.replay import Replay
from heedful.wording import counted


def finetune(options: FinetuneOptions, whole: Path | None = None) -> Metrics:
    """Make the model folder; how well its model did on the examples to evaluate on.

    `whole` is the folder of the run that this one is a part of.
    """
    recipe, out = options.settings, options.out
    if options.resume and not restarts():  # started again by torchrun, it may well be complete
        require_unfinished(out, f"go on training its model, start a new one with MODEL {out}")
    check(recipe, begun=options.resume or whole is not None)
    refuse_sharding(recipe.run)
    if recipe.run.tensorboard:
        summary_writer()  # said now, if it is missing, and not after the data is read
    with computing(recipe.run, out) as (ranks, compute):
        require_alike(options, ranks)
        if is_over(out, recipe, read_recipe, ranks):
            return {}
        options = replace(options, resume=goes_on(out, ranks, resume=options.resume))
        if ranks.leads and not options.resume:
            require_free(out)
        log = Log(out, leads=ranks.leads)
        material = ranks.in_turn(partial(gather, recipe, log))
        require_same_data(material.digest, ranks)
        options = replace(options, settings=material.recipe)
        with taken(out, material.recipe, recipe, read_recipe, ranks, resume=options.resume):
            judge = ranks.in_turn(partial(_judge, material, out, compute, log))
            share_weights(judge.model, ranks)
        if judge.cut:
            log.note(f"to evaluate on, {judge.cut}")
        if judge.skipped:
            log.note(f"not evaluated on {told(judge.skipped)}")
        return _train(options, judge, compute, log, resume_command("finetune", whole or out, ranks), ranks)


def _judge(material: Material, out: Path, compute: Compute, log: Log) -> Judge:
    """The model to train, in the hands of who evaluates it; its tokenizer is saved."""
    model = compute.holding(build(material.recipe, material.head, material.scaling, log.note))
    judge = Judge(model, material)
    make_plan(material.recipe, 1)  # said now, if it can't be made
    if log.leads:
        wordpiece.save(material.tokenizer, out, model.config.max_length)
    return judge


def make_plan(recipe: FinetuneRecipe, batches: int, ranks: int = 1) -> Plan:
    """The schedule that a resolved recipe asks for, with so many batches an epoch; a step takes one a rank."""
    learning, every = recipe.learning, recipe.run.checkpoint_every
    assert learning.lr is not None
    assert learning.epochs is not None
    assert learning.evaluations is not None
    every_steps, every_seconds = interval(every)
    return Plan(
        steps=-(-learning.epochs * batches // ranks),
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


def _train(options: FinetuneOptions, judge: Judge, compute: Compute, log: Log, resume: str, ranks: World) -> Metrics:
    recipe, out, model, material = options.settings, options.out, judge.model, judge.material
    head = material.head
    folder, learning = out / "checkpoints", recipe.learning
    assert learning.batch is not None
    data = Shuffled(
        inputs=material.training.inputs, targets=material.training.targets, batch=learning.batch, seed=recipe.run.seed
    )
    plan = make_plan(recipe, data.batches, ranks.ranks)
    optimizer = optimizer_for(model, learning)
    progress = _restore(folder, model, optimizer, judge, log, compute, ranks) if options.resume else Progress()
    weights = None
    if recipe.head.balance:
        weights = torch.from_numpy(dataset.weights(head, material.training)).to(compute.device)

    # Gradients of a recording lie where it put them; those that are summed over ranks lie elsewhere.
    recorded = compute.device.type == "cuda" and ranks.ranks == 1
    replay = Replay(model, learning.batch, compute.dtype) if recorded else None

    def terms(batch: LabelledBatch) -> dict[str, Term]:
        scores = None if replay is None else replay.score(batch.inputs)
        with compute.autocast():
            return finetuning_terms(model, batch, compute.device, weights, scores)

    def epoch(step: int) -> str:
        return f"epoch {step * ranks.ranks / data.batches:.3g}"

    job = Job(
        model=model,
        optimizer=optimizer,
        batches=lambda position, _: data.stream(position, ranks.rank, ranks.ranks),
        tokens=lambda batch: len(batch.inputs.ids),
        counts=partial(finetuning_counts, head.task),
        terms=terms,
        plan=plan,
        world=ranks,
        report=reporter(plan, log),
        evaluate=watcher(judge, judge.states.metric, learning.patience, plan, epoch, ranks, log),
        save=keeper(
            judge.states, optimizer, digest=material.digest, folder=folder, keep=recipe.run.keep, ranks=ranks
        ),
    )
    introduce(log, model, bert_shape(model.config), compute, ranks, progress)
    log.note(
        f"training: {counted(len(material.training.inputs), 'input')}, {counted(learning.epochs or 0, 'epoch')} of "
        f"{counted(data.batches, 'batch', 'batches')}, learning rate {plan.lr:g}; "
        f"the best {judge.states.metric} on {counted(len(judge.examples), 'example')} is kept"
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
    if ranks.leads:
        best = judge.states.best
        _save(judge, best, out)
        shutil.rmtree(folder, ignore_errors=True)
        log.note(f"best, after {epoch(best.step)}: {describe(best.scores)}")
    log.note(f"saved {out}")
    return ranks.share(judge.states.best.scores if ranks.leads else {})


def _save(judge: Judge, best: State, out: Path) -> None:
    """Write the best model, and how good it is."""
    model, material = judge.model, judge.material
    model.load_state_dict(best.weights)
    if material.scaling is not None:
        unscale(model.output, material.scaling)
    told = {"metric": judge.states.metric, "step": best.step, "examples": len(judge.examples), "scores": best.scores}
    write_file(out / RESULT_FILE, (json.dumps(told, indent=2) + "\n").encode())
    save_model(model, out)


def _restore(
    folder: Path,
    model: BertForTask,
    optimizer: torch.optim.Optimizer,
    judge: Judge,
    log: Log,
    compute: Compute,
    ranks: World,
) -> Progress:
    found = last_checkpoint(folder, judge.material.digest, log, ranks)
    if found is None:
        return Progress()
    require_as_many(found.state.get("ranks", 1), ranks)
    judge.states.recall(found, compute.device)
    return restore(found, model, optimizer)
