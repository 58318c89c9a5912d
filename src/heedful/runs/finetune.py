"""Fine-tuning from labelled files to a model folder: reads, trains, keeps the best, saves, and resumes exactly."""

import hashlib
import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from heedful.data import tokenizer as wordpiece
from heedful.data.batch import LabelledBatch
from heedful.data.flaws import Flaw, sound, told
from heedful.data.shuffled import Shuffled
from heedful.data.tagged import scheme
from heedful.data.tokenizer import Tokenizer
from heedful.durable import file_digest, write_file
from heedful.errors import UserError
from heedful.formats.huggingface import load_model, read_config, save_model
from heedful.formats.sentence_transformers import read_pooling
from heedful.models.bert import Bert, BertConfig, initialise
from heedful.models.heads import BertForTask, Head
from heedful.predict.engine import TorchEngine
from heedful.predict.predictor import METHODS, Predictor
from heedful.runs import dataset
from heedful.runs.dataset import Dataset, Scale
from heedful.runs.device import Compute, choose
from heedful.runs.evaluation import measure
from heedful.runs.finetune_options import (
    LOWER_IS_BETTER,
    FinetuneOptions,
    FinetuneRecipe,
    LearningPart,
    check,
    read_recipe,
    resolved,
)
from heedful.runs.folder import claim, give_back, reclaim, require_free, require_unfinished
from heedful.runs.training import introduce, reporter, restore, resume_command, run, snapshot
from heedful.tasks.finetuning import finetuning_counts, finetuning_terms
from heedful.tasks.term import Term
from heedful.train import checkpoint
from heedful.train.distributed import World
from heedful.train.log import Log, describe, summary_writer
from heedful.train.loop import Job, Metrics, Plan, Progress
from heedful.train.optim import adamw
from heedful.train.replay import Replay
from heedful.train.schedule import seconds

RESULT_FILE = "evaluation.json"


@dataclass(frozen=True, kw_only=True)
class Material:
    """What a run works with, once its data is read."""

    recipe: FinetuneRecipe
    """Its defaults written out."""
    head: Head
    tokenizer: Tokenizer
    training: Dataset
    dev: list[Any]
    scaling: Scale | None
    digest: str
    """Differs when any file does."""


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
        model = build(recipe, material.head, material.scaling).to(compute.device)
        judge = Judge(model, material)
        make_plan(recipe, 1)  # said now, if it can't be made
        wordpiece.save(material.tokenizer, out, model.config.max_length)
    except BaseException:
        if not options.resume:
            give_back(out, remove=new)
        raise
    if judge.skipped:
        log.note(f"not evaluated on {told(judge.skipped)}")
    resume = resume_command("finetune", whole or out)
    return _train(replace(options, settings=recipe), judge, compute, log, resume)


def gather(recipe: FinetuneRecipe, log: Log) -> Material:
    """Read the data, and decide what the recipe leaves open."""
    part = recipe.data
    assert recipe.task is not None
    folder, _ = read_pooling(Path(recipe.start_from or ""))
    config = read_config(folder)
    tokenizer = wordpiece.load(folder)
    _check_fit(recipe, config, tokenizer)
    files = dataset.files(recipe.train)
    dev_files = dataset.files([recipe.dev]) if recipe.dev else []
    task = dataset.task_of(recipe.task, files, part)
    skipped: list[Flaw] = []
    examples = dataset.all_sound(dataset.read(task, files, part), part, skipped)
    if not examples:
        raise UserError(f"{', '.join(map(str, files))} holds no examples to learn from{_because(skipped)}")
    head = dataset.make_head(task, examples, part, config.max_length)
    if dev_files:
        dev = dataset.all_sound(dataset.known(head, dataset.read(task, dev_files, part)), part, skipped)
        if not dev:
            raise UserError(f"{recipe.dev} holds no examples to evaluate on{_because(skipped)}")
    else:
        examples, dev = dataset.split(examples, part.held_out)
        log.note(f"held out {len(dev):,} of {len(dev) + len(examples):,} examples to evaluate on: there is no --dev")
    scaling = dataset.scale(examples) if task == "regress" else None
    training = dataset.prepare(
        head,
        examples,
        tokenizer,
        length=min(part.length or config.max_length, config.max_length),
        truncate=part.truncate,
        scaling=scaling,
        bad=lambda flaw: skipped.extend(_refused(flaw, part.skip_bad)),
    )
    if not training.inputs:
        raise UserError(f"every example was skipped, so nothing is left to learn from{_because(skipped)}")
    _tell(log, head, training, len(examples), skipped)
    kind = "plain" if task == "tag" and scheme(head.labels) == "plain" else task
    digest = hashlib.sha256("".join(file_digest(file) for file in [*files, *dev_files]).encode()).hexdigest()
    return Material(
        recipe=resolved(recipe, task=kind, examples=len(training.inputs), dim=config.dim),
        head=head,
        tokenizer=tokenizer,
        training=training,
        dev=dev,
        scaling=scaling,
        digest=digest,
    )


def build(recipe: FinetuneRecipe, head: Head, scaling: Scale | None = None) -> BertForTask:
    """The model to train: the encoder of the one to start from, and its head if that is for the same."""
    loaded = load_model(read_pooling(Path(recipe.start_from or ""))[0])
    learning = recipe.learning
    config = replace(
        loaded.config,
        pool=recipe.head.pool,
        dropout=loaded.config.dropout if learning.dropout is None else learning.dropout,
        attention_dropout=(
            loaded.config.attention_dropout if learning.attention_dropout is None else learning.attention_dropout
        ),
    )
    if learning.freeze > config.layers:
        raise UserError(f"freeze {learning.freeze} is more than the model's {config.layers} layers; -1 means all")
    model = BertForTask(config, head)
    initialise(model, config.init_std, torch.Generator().manual_seed(recipe.run.seed))
    prefix = "bert." if isinstance(loaded, Bert) else ""
    weights = {prefix + name: tensor for name, tensor in loaded.state_dict().items()}
    same = (
        isinstance(loaded, BertForTask)
        and (loaded.head.task, loaded.head.labels) == (head.task, head.labels)
        and loaded.config.pool == config.pool
    )
    known = {name for name in model.state_dict() if same or not name.startswith("output.")}
    # What the old model lacks, as the head, stays as initialised.
    model.load_state_dict({name: weights[name] for name in known & weights.keys()}, strict=False)
    if same and scaling is not None:
        rescale(model.output, scaling)
    return model


def optimizer_for(model: BertForTask, learning: LearningPart) -> torch.optim.Optimizer:
    """AdamW over what is not frozen; lower layers learn slower if that is asked for."""
    layers = model.config.layers
    frozen = layers if learning.freeze == -1 else learning.freeze
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(not (learning.freeze and depth(name, layers) <= frozen))
    assert learning.lr is not None
    return adamw(
        model,
        lr=learning.lr,
        betas=(0.9, 0.999),
        eps=1e-8,
        decay=learning.weight_decay,
        scale=lambda name: learning.layer_decay ** (layers + 1 - depth(name, layers)),
    )


def depth(name: str, layers: int) -> int:
    """How far from the input a parameter is: 0 for the embeddings, then the layers, then the head."""
    if name.startswith("bert.embeddings."):
        return 0
    return int(name.split(".")[2]) + 1 if name.startswith("bert.layers.") else layers + 1


def make_plan(recipe: FinetuneRecipe, batches: int) -> Plan:
    """The schedule that a resolved recipe asks for, with so many batches an epoch."""
    learning, every = recipe.learning, recipe.run.checkpoint_every
    assert learning.lr is not None
    assert learning.epochs is not None
    assert learning.evaluations is not None
    every_steps = int(every) if every.isdecimal() else None
    if every_steps == 0:
        raise UserError("checkpoint_every 0 would never go on; write steps like 500 or a time like 5m")
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
        checkpoint_seconds=None if every_steps else seconds(every),
    )


class Judge:
    """Evaluates a model while it trains, and remembers the best so far."""

    def __init__(self, model: BertForTask, material: Material) -> None:
        self.model = model
        self.material = material
        predictor = Predictor(TorchEngine(model), material.tokenizer)
        # Long texts are cut here if anywhere: what they say at their beginning is a fair question.
        self.reader = predictor.reader(METHODS[material.head.task], truncate=True)
        prepared = self.reader.prepare(material.dev)
        sides = [
            (one, ready) for one, ready in zip(material.dev, prepared, strict=True) if not isinstance(ready, Flaw)
        ]
        self.skipped: list[Flaw] = []
        list(sound(prepared, material.recipe.data.skip_bad, self.skipped))
        if not sides:
            raise UserError(f"no example is left to evaluate on{_because(self.skipped)}")
        self.examples, self.prepared = [one for one, _ in sides], [ready for _, ready in sides]
        self.best: Metrics = {}
        self.best_step = 0
        self.best_weights: dict[str, Tensor] = {}
        self.stale = 0

    @property
    def metric(self) -> str:
        """What tells the best."""
        assert self.material.recipe.head.metric is not None
        return self.material.recipe.head.metric

    def scores(self) -> Metrics:
        """How well the model does now."""
        answers: Sequence[Any] = self.reader.answer(self.prepared)
        if self.material.scaling is not None:
            answers = [_unscaled(one, self.material.scaling) for one in answers]
        return measure(self.material.head, self.examples, answers).scores

    def look(self, step: int) -> Metrics:
        """Evaluate, and keep the weights if they are the best so far."""
        now = self.scores()
        sign = -1 if self.metric in LOWER_IS_BETTER else 1
        if not self.best or sign * now[self.metric] > sign * self.best[self.metric]:
            self.best, self.best_step, self.stale = now, step, 0
            self.best_weights = {name: tensor.clone() for name, tensor in self.model.state_dict().items()}
        else:
            self.stale += 1
        return now


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
    introduce(log, model, model.config, compute, World(), progress)
    log.note(
        f"training: {_count(len(material.training.inputs), 'input')}, {_count(learning.epochs or 0, 'epoch')} of "
        f"{_count(data.batches, 'batch', 'batches')}, learning rate {plan.lr:g}; "
        f"the best {judge.metric} on {_count(len(judge.examples), 'example')} is kept"
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


def unscale(output: nn.Linear, scaling: Scale) -> None:
    """Have the last layer give numbers in the units that they came in."""
    with torch.no_grad():
        deviation = torch.from_numpy(scaling.deviation).to(output.weight)
        output.weight.mul_(deviation[:, None])
        output.bias.mul_(deviation).add_(torch.from_numpy(scaling.mean).to(output.bias))


def rescale(output: nn.Linear, scaling: Scale) -> None:
    """Have a last layer that gives numbers in the units that they came in learn on scaled ones: undoes `unscale`."""
    with torch.no_grad():
        deviation = torch.from_numpy(scaling.deviation).to(output.weight)
        output.weight.div_(deviation[:, None])
        output.bias.sub_(torch.from_numpy(scaling.mean).to(output.bias)).div_(deviation)


def _unscaled(answer: dict[str, float], scaling: Scale) -> dict[str, float]:
    numbers = np.array(list(answer.values())) * scaling.deviation + scaling.mean
    return dict(zip(answer, numbers.tolist(), strict=True))


def _restore(
    folder: Path,
    model: BertForTask,
    optimizer: torch.optim.Optimizer,
    judge: Judge,
    log: Log,
    compute: Compute,
) -> Progress:
    found = checkpoint.load_last(folder, log.warn)
    if found is None:
        return Progress()
    if found.state["data"] != judge.material.digest:
        raise UserError(
            "the data has changed since the run began, so it can't be resumed; start again in another --out"
        )
    judge.best, judge.best_step, judge.stale = (found.state[name] for name in ("best", "best_step", "stale"))
    judge.best_weights = {name: tensor.to(compute.device) for name, tensor in found.tensors.get("best", {}).items()}
    return restore(found, model, optimizer)


def _check_fit(recipe: FinetuneRecipe, config: BertConfig, tokenizer: Tokenizer) -> None:
    length = recipe.data.length
    if length is not None and length > config.max_length:
        raise UserError(f"length {length} is beyond the model's {config.max_length} positions; use that or less")
    if tokenizer.vocab_size > config.vocab_size:
        raise UserError(
            f"{recipe.start_from}: its tokenizer has {tokenizer.vocab_size} tokens but the model only "
            f"{config.vocab_size}; they do not belong together"
        )
    if recipe.task == "answer" and config.segments < 2:
        raise UserError(f"{recipe.start_from} has one segment, so it can't tell a question from its context")


def _count(number: int, noun: str, many: str | None = None) -> str:
    return f"{number:,} {noun if number == 1 else many or noun + 's'}"


def _because(skipped: list[Flaw]) -> str:
    return f": {told(skipped)}" if skipped else ""


def _refused(flaw: Flaw, skip: bool) -> list[Flaw]:
    if not skip:
        raise UserError(str(flaw))
    return [flaw]


def _tell(log: Log, head: Head, training: Dataset, examples: int, skipped: list[Flaw]) -> None:
    if skipped:
        log.note(f"skipped {told(skipped)}")
    if training.cut:
        log.note(f"{training.cut:,} of {examples:,} texts are too long; only their beginning is read")
    if head.task in ("classify", "multilabel", "tag"):
        shown = ", ".join(head.labels[:8]) + (", …" if len(head.labels) > 8 else "")
        log.note(f"{len(head.labels)} labels: {shown}")
