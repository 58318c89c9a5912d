"""Pretraining from raw text to a model folder: prepares, trains, evaluates, saves, and resumes exactly."""

import platform
import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import torch

import heedful
from heedful.config import differences, to_toml
from heedful.data import tokenizer as wordpiece
from heedful.data.batch import PretrainingBatch
from heedful.data.sampler import Position, Sampler
from heedful.data.shards import Shards, Split
from heedful.data.tokenizer import Tokenizer
from heedful.durable import write_file
from heedful.errors import Interrupted, UserError
from heedful.formats.huggingface import load_model, read_config, save_model
from heedful.models.bert import Bert, BertConfig, BertForPretraining, initialise
from heedful.runs import corpus
from heedful.runs.device import Compute, choose
from heedful.runs.options import LEARNING_RATES, RUN_FILE, PretrainOptions, Recipe, read_recipe
from heedful.tasks.pretraining import Term, pretraining_counts, pretraining_terms
from heedful.train import checkpoint
from heedful.train.checkpoint import Checkpoint
from heedful.train.distributed import World, world
from heedful.train.log import Log, describe
from heedful.train.loop import Diverged, Job, Metrics, Plan, Progress, evaluate, train
from heedful.train.optim import adamw, load_state_tensors, state_tensors
from heedful.train.schedule import seconds

EVALUATION_TOKENS = 200_000
"""The most held-out tokens of one evaluation."""
EVALUATION_SHARES = (0.02, 0.1)
"""Held-out tokens of an evaluation on the way, and of the last, for each token of training so far."""
EVALUATION_SEED = 1
"""Every run is evaluated on the same pairs with the same masks, 15% of the tokens, whatever it trains with."""
CONTINUED_RATE = 1e-4
"""The peak rate of a model that goes on training: gentle, so that it keeps what it knows."""
FREE_ON_RESUME = ("run.tensorboard", "run.keep", "run.checkpoint_every")
"""What a resumed run may be told anew without becoming another run."""


def pretrain(options: PretrainOptions) -> Metrics:
    """Make the model folder; the metrics of the last evaluation."""
    recipe, out = options.settings, options.out
    plan = make_plan(recipe)
    check_length(recipe)
    with world(choose(recipe.run.device, recipe.run.precision).device.type) as ranks:
        compute = choose(recipe.run.device, recipe.run.precision, ranks.local_rank)
        compute.repeatable()
        if ranks.leads:
            claim(out, recipe, resume=options.resume)
        ranks.barrier()
        if options.resume and (out / "model.safetensors").is_file():
            raise UserError(f"the run in {out} is complete; to go on training its model, use --from {out}")
        try:
            shards = _shards(options, ranks)
            model = build(recipe, shards.tokenizer).to(compute.device)
            training = sampler(recipe, shards.train, shards.tokenizer)
        except BaseException:
            if ranks.leads and not options.resume:
                _give_back(out)
            raise
        return _train(options, plan, model, shards, training, compute, ranks)


def make_plan(recipe: Recipe) -> Plan:
    """The schedule that the options ask for."""
    run, optimizer = recipe.run, recipe.optimizer
    budget = None if run.steps is not None else seconds(run.budget or "10m")
    every_steps = int(run.checkpoint_every) if run.checkpoint_every.isdecimal() else None
    if every_steps == 0:
        raise UserError("checkpoint_every 0 would never go on; write steps like 500 or a time like 5m")
    rate = CONTINUED_RATE if recipe.start_from else LEARNING_RATES[recipe.model.size or "small"]
    return Plan(
        steps=run.steps,
        budget=budget,
        lr=optimizer.lr or rate,
        warmup=optimizer.warmup,
        accumulation=optimizer.accumulation,
        clip=optimizer.clip,
        seed=run.seed,
        evaluations=run.evaluations,
        checkpoint_steps=every_steps,
        checkpoint_seconds=None if every_steps else seconds(run.checkpoint_every),
    )


def check_length(recipe: Recipe) -> None:
    """Refuse sequences that the model has no positions for, before anything is prepared."""
    length, positions = recipe.objective.length, _positions(recipe)
    if length > positions:
        way_out = f"use --length {positions} or less"
        if not recipe.start_from:
            way_out += f", or --max-length {length}"
        raise UserError(f"length {length} is beyond the model's {positions} positions; {way_out}")


def _positions(recipe: Recipe) -> int:
    """The longest input of the model."""
    if recipe.start_from:
        return read_config(Path(recipe.start_from)).max_length
    return recipe.model.max_length or 512


def claim(out: Path, recipe: Recipe, *, resume: bool) -> None:
    """Take the output folder for this run: an empty or new one, or the run's own when it is resumed."""
    path = out / RUN_FILE
    if resume:
        if not path.is_file():
            raise UserError(f"{out} holds no run to resume: it has no {RUN_FILE}")
        changed = [name for name in differences(read_recipe(path), recipe) if name not in FREE_ON_RESUME]
        if changed:
            raise UserError(
                f"the run in {out} was started with another {', '.join(changed)}; "
                "leave it out to resume, or start a new run in another --out"
            )
        return
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        if path.is_file():
            raise UserError(f"{out} already holds a run; go on with --resume, or choose another --out")
        raise UserError(f"{out} exists and is not empty; choose another --out")
    made = {"heedful": heedful.__version__, "torch": torch.__version__, "python": platform.python_version()}
    lines = "".join(f'{name} = "{version}"\n' for name, version in made.items())
    content = f"{to_toml(recipe)}\n[made]\n{lines}".encode()
    out.mkdir(parents=True, exist_ok=True)
    write_file(path, content)


def _give_back(out: Path) -> None:
    """Empty the folder of a run that never began, so that the same command can be given again."""
    shutil.rmtree(out)


def build(recipe: Recipe, tokenizer: Tokenizer) -> BertForPretraining:
    """The model to train: a new one, or the one to go on with, given the heads that it lacks."""
    generator = torch.Generator().manual_seed(recipe.run.seed)
    if not recipe.start_from:
        config = BertConfig.of_size(
            recipe.model.size or "small",
            vocab_size=tokenizer.vocab_size,
            max_length=_positions(recipe),
            dropout=recipe.model.dropout,
            attention_dropout=recipe.model.attention_dropout,
        )
        model = BertForPretraining(config, nsp=recipe.objective.nsp)
        initialise(model, config.init_std, generator)
        return model
    loaded = load_model(recipe.start_from)
    if tokenizer.vocab_size > loaded.config.vocab_size:
        raise UserError(
            f"{recipe.start_from}: the tokenizer has {tokenizer.vocab_size} tokens, "
            f"more than the model's {loaded.config.vocab_size}"
        )
    model = BertForPretraining(loaded.config, nsp=recipe.objective.nsp)
    initialise(model, loaded.config.init_std, generator)
    prefix = "bert." if isinstance(loaded, Bert) else ""
    known = model.state_dict().keys()
    weights = {prefix + name: tensor for name, tensor in loaded.state_dict().items() if prefix + name in known}
    model.load_state_dict(weights, strict=False)  # a head that the old model lacks stays as initialised
    return model


def sampler(recipe: Recipe, split: Split, tokenizer: Tokenizer) -> Sampler:
    """The training batches."""
    return Sampler(
        split=split,
        tokenizer=tokenizer,
        length=recipe.objective.length,
        batch_tokens=recipe.optimizer.batch_tokens,
        nsp=recipe.objective.nsp,
        mask_rate=recipe.objective.mask_rate,
        whole_words=recipe.objective.whole_words,
        seed=recipe.run.seed,
    )


def evaluation_sampler(recipe: Recipe, split: Split, tokenizer: Tokenizer) -> Sampler:
    """The held-out batches, alike for every run at a length."""
    return Sampler(
        split=split,
        tokenizer=tokenizer,
        length=recipe.objective.length,
        batch_tokens=max(8192, recipe.objective.length),
        nsp=recipe.objective.nsp,
        mask_rate=0.15,
        whole_words=False,
        seed=EVALUATION_SEED,
    )


def _shards(options: PretrainOptions, ranks: World) -> Shards:
    """The leading rank prepares the text; the others then find it prepared."""
    log = Log(options.out, leads=ranks.leads)
    found = _prepared(options, log) if ranks.leads else None
    ranks.barrier()
    found = found or _prepared(options, log)
    if ranks.leads:
        wordpiece.save(found.tokenizer, options.out, _positions(options.settings))
    return found


def _prepared(options: PretrainOptions, log: Log) -> Shards:
    recipe = options.settings
    given = None
    for folder in (recipe.start_from, recipe.vocabulary.tokenizer, options.out):
        if folder is not None and (folder != options.out or (options.out / "tokenizer.json").is_file()):
            given = wordpiece.load(folder)
            break

    def trained(files: Sequence[Path]) -> Tokenizer:
        log.note("training the tokenizer")
        return corpus.train_tokenizer(files, recipe.text, recipe.vocabulary)

    found = corpus.prepare(
        recipe.corpus,
        recipe.text,
        tokenizer=trained,
        given=given,
        stdin_folder=options.out / "checkpoints",  # kept for as long as the run may be resumed
        cache=options.cache or corpus.default_cache(),
        say=log.note,
    )
    if recipe.objective.nsp and not found.train.has_pairs():
        raise UserError(
            "next-sentence prediction needs two documents or more, some of them of several sentences; "
            "separate documents by a blank line, or train without it (--no-nsp)"
        )
    return found


def _train(
    options: PretrainOptions,
    plan: Plan,
    model: BertForPretraining,
    shards: Shards,
    training: Sampler,
    compute: Compute,
    ranks: World,
) -> Metrics:
    recipe, out = options.settings, options.out
    folder = out / "checkpoints"
    rate = recipe.optimizer
    optimizer = adamw(model, lr=plan.lr, betas=(rate.beta1, rate.beta2), eps=1e-6, decay=rate.weight_decay)
    log = Log(out, leads=ranks.leads)
    progress = _restore(folder, model, optimizer, shards, log) if options.resume else Progress()
    testing = evaluation_sampler(recipe, shards.heldout, shards.tokenizer)
    can_test = shards.heldout.has_pairs() if recipe.objective.nsp else len(shards.heldout.tokens) > 0
    last: Metrics = {}

    def terms(batch: PretrainingBatch) -> dict[str, Term]:
        with compute.autocast():
            return pretraining_terms(model, batch, compute.device)

    def report(now: Progress, metrics: Metrics) -> None:
        done = plan.done(now)
        left = now.elapsed * (1 - done) / done
        log.metrics("train", now.step, {**metrics, "tokens": now.tokens, "elapsed": now.elapsed})
        log.progress(done, now.step, {**metrics, "left": left})

    def test(now: Progress) -> None:
        if not can_test:
            return
        names = ("mlm", "nsp") if recipe.objective.nsp else ("mlm",)
        share = EVALUATION_SHARES[plan.done(now) >= 1.0]
        most = min(EVALUATION_TOKENS, max(4 * 8192, int(share * now.tokens)))
        last.update(evaluate(model, testing.once(most), terms, names, ranks))
        log.metrics("heldout", now.step, {**last, "tokens": now.tokens, "elapsed": now.elapsed})
        log.note(f"step {now.step}, held out: {describe(last)}")

    def save(now: Progress) -> None:
        if ranks.leads:
            checkpoint.save(folder, _snapshot(now, model, optimizer, shards), recipe.run.keep)

    job = Job(
        model=model,
        optimizer=optimizer,
        batches=partial(training.stream, rank=ranks.rank, ranks=ranks.ranks),
        tokens=lambda batch: len(batch.ids),
        counts=pretraining_counts,
        terms=terms,
        plan=plan,
        world=ranks,
        report=report,
        evaluate=test,
        save=save,
    )
    _introduce(log, model, compute, ranks, progress, can_test=can_test)
    with log.opened(step=progress.step, tensorboard=recipe.run.tensorboard):
        try:
            train(job, progress)
        except Diverged as error:
            raise UserError(_diverged(error, folder, plan)) from None
        except Interrupted as stop:
            raise Interrupted(f"{stop}; go on with: heedful pretrain --resume --out {out}") from None
    if ranks.leads:
        save_model(model, out)
        shutil.rmtree(folder, ignore_errors=True)
    return last


def _introduce(
    log: Log, model: BertForPretraining, compute: Compute, ranks: World, progress: Progress, *, can_test: bool
) -> None:
    config = model.config
    parameters = sum(p.numel() for p in model.parameters())
    where = compute.device.type if ranks.ranks == 1 else f"{ranks.ranks} processes ({compute.device.type})"
    log.note(
        f"model: {config.layers} layers, {config.dim} wide, {config.heads} heads, {config.vocab_size:,} tokens, "
        f"{parameters / 1e6:.1f}M parameters, on {where} in {str(compute.dtype).removeprefix('torch.')}"
    )
    if progress.step:
        log.note(f"resuming at step {progress.step}")
    if not can_test:
        log.note("too few documents are held out to evaluate on; --held-out 0.1 holds out more")


def _diverged(error: Diverged, folder: Path, plan: Plan) -> str:
    good = checkpoint.steps(folder)
    where = f"the last good checkpoint is {good[-1]}" if good else "there is no checkpoint yet"
    remedy = f"try a lower --lr (now {plan.lr:g}), a longer --warmup, or a smaller --clip, in a new --out"
    return f"{error}; {where}; {remedy}"


def _snapshot(
    now: Progress, model: BertForPretraining, optimizer: torch.optim.Optimizer, shards: Shards
) -> Checkpoint:
    return Checkpoint(
        step=now.step,
        tensors={"model": dict(model.state_dict()), "optimizer": state_tensors(optimizer, model)},
        state={
            "position": list(now.position),
            "tokens": now.tokens,
            "elapsed": now.elapsed,
            "shards": shards.key,
        },
    )


def _restore(
    folder: Path, model: BertForPretraining, optimizer: torch.optim.Optimizer, shards: Shards, log: Log
) -> Progress:
    checkpoint.clean(folder)
    found = checkpoint.load_last(folder, log.warn)
    if found is None:
        return Progress()
    if found.state["shards"] != shards.key:
        raise UserError(
            "the text has changed since the run began, so it can't be resumed; start again in another --out"
        )
    model.load_state_dict(found.tensors["model"])
    load_state_tensors(optimizer, model, found.tensors["optimizer"])
    return Progress(
        step=found.step,
        position=Position(*found.state["position"]),
        tokens=found.state["tokens"],
        elapsed=found.state["elapsed"],
    )
