"""Pretraining from raw text to a model folder: prepares, trains, evaluates, saves, and resumes exactly."""

import math
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from heedful.data import tokenizer as wordpiece
from heedful.data.batch import PretrainingBatch
from heedful.data.sampler import Position, Sampler, check_batch_tokens
from heedful.data.shards import Shards, Split
from heedful.data.shards import load as load_shards
from heedful.data.tokenizer import Tokenizer
from heedful.errors import UserError
from heedful.formats.huggingface import load_model, opens_elsewhere, read_config, save_model
from heedful.models.bert import Bert, BertConfig, BertForPretraining, initialise
from heedful.nn.shortage import enough_memory
from heedful.runs import corpus, samples
from heedful.runs.agreement import require_alike, require_of_all, require_same_data, share_weights
from heedful.runs.cache import cache_of
from heedful.runs.checkpoints import Checkpoints
from heedful.runs.device import Compute, free_memory
from heedful.runs.folder import require_unfinished
from heedful.runs.memory import less_memory, likely_tokens, of_a_token
from heedful.runs.objective import check_fp8, compiles, terms_of, unrecorded
from heedful.runs.options import DECAY, PretrainOptions, Recipe, read_recipe, resolved
from heedful.runs.training import (
    bert_shape,
    computing,
    goes_on,
    interval,
    introduce,
    is_over,
    reporter,
    resume_command,
    run,
    taken,
)
from heedful.runs.undecided import check_undecided, for_the_time, noted, with_tokens
from heedful.tasks.pretraining import pretraining_counts
from heedful.train import sharding
from heedful.train.distributed import World
from heedful.train.log import Log, describe, summary_writer
from heedful.train.loop import Job, Metrics, Plan, Progress, evaluate
from heedful.train.optim import OPTIMIZERS
from heedful.train.schedule import between, seconds

EVALUATION_TOKENS = 100_000
"""The most held-out tokens of one evaluation."""
EVALUATION_SEED = 1
"""Every run is evaluated on the same pairs with the same masks, 15% of the tokens, whatever it trains with."""
EVALUATION_TIME = 0.1
"""Under a budget, evaluations on the way are left out while they have taken more than this share of the time."""


def pretrain(options: PretrainOptions) -> Metrics:
    """Make the model folder; the metrics of the last evaluation."""
    told, out = options.settings, options.out
    recipe = resolved(told)
    options = replace(options, settings=recipe)
    make_plan(recipe)  # what is wrong with it is said now, and not after an hour of preparation
    check_undecided(recipe)
    check_length(recipe)
    check_pairs(recipe)
    check_fp8(recipe)
    if recipe.run.tensorboard:
        summary_writer()  # likewise
    with computing(recipe.run, out) as (ranks, compute):
        require_alike(options, ranks)
        if recipe.run.fp8:
            require_of_all(compute.require_fp8, ranks)
        if is_over(out, recipe, read_recipe, ranks):
            return {}
        options = replace(options, resume=goes_on(out, ranks, resume=options.resume))
        if options.resume:
            if ranks.leads:
                require_unfinished(out)
            recipe = noted(recipe, out, ranks)
            options = replace(options, settings=recipe)
        with taken(out, recipe, told, read_recipe, ranks, resume=options.resume, cache=options.cache):
            shards = _shards(options, ranks)
            recipe = for_the_time(recipe, out, shards.tokenizer.vocab_size, compute, ranks)
            say = Log(out, leads=ranks.leads and not options.resume).note
            model = compute.holding(ranks.in_turn(partial(build, recipe, shards.tokenizer, say)))
            share_weights(model, ranks)
            recipe = with_tokens(recipe, out, model, optimizer_for(recipe, model), compute, ranks)
            options = replace(options, settings=recipe)
            training = sampler(recipe, shards.train, shards.tokenizer)
        if recipe.run.shard:
            ranks = sharding.shard(model, model.bert.layers, compute.device, ranks)
        return _train(options, make_plan(recipe), model, shards, training, compute, ranks)


def make_plan(recipe: Recipe) -> Plan:
    """The schedule that a resolved recipe asks for."""
    run, optimizer = recipe.run, recipe.optimizer
    every_steps, every_seconds = interval(run.checkpoint_every)
    return Plan(
        steps=run.steps,
        budget=None if run.budget is None else seconds(run.budget),
        lr=optimizer.lr or 0.0,  # as long as the size is open
        schedule=optimizer.schedule,
        warmup=optimizer.warmup,
        decay=optimizer.decay or DECAY,
        accumulation=optimizer.accumulation,
        clip=optimizer.clip,
        seed=run.seed,
        evaluations=run.evaluations,
        checkpoint_steps=every_steps,
        checkpoint_seconds=every_seconds,
    )


def check_length(recipe: Recipe) -> None:
    """Refuse sequences that the model has no positions for, before anything is prepared."""
    length, positions = recipe.objective.length, _positions(recipe)
    if length > positions:
        way_out = f"use --length {positions} or less"
        if not recipe.start_from:
            way_out += f", or --max-length {length}"
        raise UserError(f"--length {length} is beyond the model's {positions} positions; {way_out}")
    if not isinstance(recipe.optimizer.batch_tokens, str):
        check_batch_tokens(recipe.optimizer.batch_tokens, length)


def check_pairs(recipe: Recipe) -> None:
    """Refuse next sentences where the model can't tell two sentences apart."""
    if recipe.start_from and recipe.objective.nsp and read_config(Path(recipe.start_from)).segments == 1:
        raise UserError(f"{recipe.start_from} has one segment, so it can't tell two sentences apart; use --no-nsp")


def _positions(recipe: Recipe) -> int:
    """The longest input of the model."""
    if recipe.start_from:
        return read_config(Path(recipe.start_from)).max_length
    assert recipe.model.max_length is not None
    return recipe.model.max_length


def build(recipe: Recipe, tokenizer: Tokenizer, say: Callable[[str], None] = lambda _: None) -> BertForPretraining:
    """The model to train: a new one, or the one to go on with, given the heads that it lacks, which is said."""
    generator = torch.Generator().manual_seed(recipe.run.seed)
    part = recipe.model
    if not recipe.start_from:
        assert part.size is not None
        assert part.dropout is not None
        assert part.attention_dropout is not None
        config = BertConfig.of_size(
            part.size,
            vocab_size=tokenizer.vocab_size,
            max_length=_positions(recipe),
            dropout=part.dropout,
            attention_dropout=part.attention_dropout,
            gated=part.gated,
        )
        config = replace(
            config,
            pre_norm=part.pre_norm,
            positions=part.positions,
            rotary_base=part.rotary_base,
            bias=part.bias,
            segments=part.segments,
        )
        with enough_memory("the model", "take a smaller --size or --max-length"):
            model = BertForPretraining(config, nsp=recipe.objective.nsp)
            initialise(model, config.init_std, generator, config.layers if part.init == "scaled" else None)
        return model
    loaded = load_model(recipe.start_from)
    if tokenizer.vocab_size > loaded.config.vocab_size:
        raise UserError(
            f"{recipe.start_from}: the tokenizer has {tokenizer.vocab_size} tokens, "
            f"more than the model's {loaded.config.vocab_size}"
        )
    config = replace(loaded.config, pool="cls")  # where the next sentence is read
    if part.dropout is not None:
        config = replace(config, dropout=part.dropout)
    if part.attention_dropout is not None:
        config = replace(config, attention_dropout=part.attention_dropout)
    model = BertForPretraining(config, nsp=recipe.objective.nsp)
    initialise(model, config.init_std, generator)
    prefix = "bert." if isinstance(loaded, Bert) else ""
    known = model.state_dict().keys()
    weights = {prefix + name: tensor for name, tensor in loaded.state_dict().items() if prefix + name in known}
    model.load_state_dict(weights, strict=False)  # a head that the old model lacks stays as initialised
    for name, what in (("mlm", "masked words"), ("nsp", "next sentences")):
        if getattr(model, name) is not None and not any(one.startswith(f"{name}.") for one in weights):
            say(f"{recipe.start_from} has no head for {what}: a new one is trained")
    if model.nsp is None and isinstance(loaded, BertForPretraining) and loaded.nsp is not None:
        say(f"the head for next sentences of {recipe.start_from} is left behind; --nsp would go on with it")
    return model


def optimizer_for(recipe: Recipe, model: BertForPretraining) -> torch.optim.Optimizer:
    """The optimizer that a resolved recipe asks for."""
    part = recipe.optimizer
    make = OPTIMIZERS[part.name]
    return make(model, lr=part.lr, betas=(part.beta1, part.beta2), eps=1e-6, decay=part.weight_decay)


def sampler(recipe: Recipe, split: Split, tokenizer: Tokenizer) -> Sampler:
    """The training batches."""
    assert isinstance(recipe.optimizer.batch_tokens, int)
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


def evaluation_sampler(split: Split, tokenizer: Tokenizer, *, length: int, nsp: bool) -> Sampler:
    """The held-out batches, alike for every run at a length."""
    return Sampler(
        split=split,
        tokenizer=tokenizer,
        length=length,
        batch_tokens=max(8192, length),
        nsp=nsp,
        mask_rate=0.15,
        whole_words=False,
        seed=EVALUATION_SEED,
    )


def _shards(options: PretrainOptions, ranks: World) -> Shards:
    """The leading rank prepares the text; the others then take what it prepared."""
    folder = Path()
    if ranks.leads:
        found = _prepared(options, Log(options.out, leads=True))
        wordpiece.save(found.tokenizer, options.out, _positions(options.settings))
        folder = found.folder.absolute()
    folder = ranks.share(folder)
    # Each node's disk is read once, the first one's above.
    shards = ranks.in_turn(partial(load_shards, folder, verify=ranks.local_rank == 0 and not ranks.leads))
    require_same_data(shards.key, ranks)
    return shards


def _prepared(options: PretrainOptions, log: Log) -> Shards:
    recipe = options.settings
    given = None
    if recipe.start_from or recipe.vocabulary.tokenizer:
        given = wordpiece.load(recipe.start_from or recipe.vocabulary.tokenizer or "")
    elif (options.out / "tokenizer.json").is_file():  # the run's own, when it is resumed
        given = wordpiece.load(options.out)

    def trained(files: Sequence[Path]) -> Tokenizer:
        log.note("training the tokenizer")
        return corpus.train_tokenizer(files, recipe.text, recipe.vocabulary)

    found = corpus.prepare(
        recipe.corpus,
        recipe.text,
        tokenizer=trained,
        given=given,
        stdin_folder=options.out / "checkpoints",  # kept for as long as the run may be resumed
        cache=cache_of(options.out, options.cache),
        say=log.note,
        cased=recipe.vocabulary.cased and not options.resume,  # a run that began with it goes on
    )
    if recipe.vocabulary.vocab_size not in (None, found.tokenizer.vocab_size):
        raise UserError(f"{found.folder} is prepared already, with its own vocabulary; leave --vocab-size out")
    if recipe.objective.nsp:
        corpus.check_pairs(found, recipe.objective.length, log.note)
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
    optimizer = optimizer_for(recipe, model)
    log = Log(out, leads=ranks.leads)
    kept = Checkpoints(folder=folder, keep=recipe.run.keep, sharded=recipe.run.shard, shards=shards.key, ranks=ranks)
    progress = kept.restore(model, optimizer, log) if options.resume else Progress()
    objective = recipe.objective
    testing = evaluation_sampler(shards.heldout, shards.tokenizer, length=objective.length, nsp=objective.nsp)
    can_test = shards.heldout.has_pairs() if recipe.objective.nsp else len(shards.heldout.tokens) > 0
    last: Metrics = {}
    spent = [0.0]  # seconds of evaluations, for everybody alike

    terms = terms_of(recipe, model, training, compute, ranks)

    def batches(position: Position, moment: Callable[[int], float]) -> Iterator[tuple[Position, PretrainingBatch]]:
        def mask_rate(number: int) -> float:
            step = number // plan.accumulation  # its own, however early the batch is made
            return between(moment(step), objective.mask_rate, objective.final_mask_rate or 0.0)

        changing = None if objective.final_mask_rate is None else mask_rate
        return training.stream(position, ranks.rank, ranks.ranks, changing)

    def test(now: Progress) -> None:
        if not can_test:
            return
        if plan.budget and plan.done(now) < 1.0 and spent[0] > EVALUATION_TIME * now.elapsed:
            return
        names = ("mlm", "nsp") if recipe.objective.nsp else ("mlm",)
        begun = time.perf_counter()
        sharers = World() if ranks.sharded else ranks  # a model in parts is used by all ranks at once
        last.update(evaluate(model, testing.once(EVALUATION_TOKENS), terms, names, sharers))
        last["perplexity"] = math.exp(min(last["mlm_loss"], 700.0))
        spent[0] += ranks.sum_numbers([time.perf_counter() - begun])[0] / ranks.ranks
        log.metrics("heldout", now.step, {**last, "tokens": now.tokens, "elapsed": now.elapsed})
        log.note(f"step {now.step}, held out: {describe(last)}")
        if ranks.leads and not ranks.sharded:
            with unrecorded(recipe, compute, ranks):
                log.samples(now.step, samples.filled(model, shards.tokenizer, shards.heldout))

    job = Job(
        model=model,
        optimizer=optimizer,
        batches=batches,
        tokens=lambda batch: len(batch.ids),
        counts=pretraining_counts,
        terms=terms,
        plan=plan,
        world=ranks,
        report=reporter(plan, log),
        evaluate=test,
        save=lambda now: kept.save(now, model, optimizer),
    )
    introduce(log, model, bert_shape(model.config), compute, ranks, progress)
    if recipe.start_from and not progress.step:
        log.note(f"goes on with masked words{' and next sentences' if model.nsp is not None else ' alone'}")
    if not opens_elsewhere(model):
        hint = "; with --no-nsp it would be a ModernBERT" if model.config.modern else ""
        log.note(f"transformers has no architecture that equals this model, so its folder opens here alone{hint}")
    if recipe.run.compile and compute.dtype is torch.bfloat16 and not compiles(recipe, compute, ranks):
        log.note("layers are not compiled: that needs a model in one piece, Triton and a C compiler (gcc or clang)")
    if recipe.run.shard and ranks.ranks == 1 and not options.resume:
        log.note("--shard spreads a model over several processes, and there is one; torchrun starts more")
    if not can_test and recipe.text.held_out != 0:
        more = corpus.hold_out_more_of(recipe.corpus, recipe.text, shards)
        log.note(f"too few documents are held out to evaluate on; {more}")
    run(
        job,
        progress,
        log,
        folder=folder,
        resume=resume_command("pretrain", out, ranks),
        smaller=_smaller(recipe, model, training, compute, ranks),
        tensorboard=recipe.run.tensorboard,
    )
    weights = sharding.gathered(model, ranks) if ranks.sharded else None
    if ranks.leads:
        if weights is not None:
            model = build(recipe, shards.tokenizer)
            model.load_state_dict(weights)
        save_model(model, out)
        shutil.rmtree(folder, ignore_errors=True)
    log.note(f"saved {out}")
    return last


def _smaller(recipe: Recipe, model: BertForPretraining, training: Sampler, compute: Compute, ranks: World) -> str:
    """What to type if the memory turns out to be too small."""
    on_gpu = compute.device.type == "cuda"
    sharers = 1 if on_gpu else ranks.here or ranks.ranks
    parameters = sum(parameter.numel() for parameter in model.parameters()) // (ranks.ranks if ranks.sharded else 1)
    rate = max(training.mask_rate, recipe.objective.final_mask_rate or 0.0)
    smaller = "a smaller --vocab-size" if recipe.model.size == "tiny" else "a smaller --size"
    if recipe.start_from:
        smaller = "a smaller model"
    token = of_a_token(model.config, training.length, rate, compute)
    return less_memory(
        training.batch_tokens,
        training.length,
        recipe.optimizer.accumulation,
        likely_tokens(free_memory(compute.device, sharers), parameters, token),
        tries=on_gpu and not ranks.sharded,
        smaller=smaller,
    )
