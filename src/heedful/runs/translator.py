"""Training a translator, from sentence pairs to a model folder: reads, trains, averages, saves, resumes exactly."""

import json
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import tokenizers
import torch

from heedful.data import subwords
from heedful.data.batch import PairBatch
from heedful.data.bitext import Bitext
from heedful.data.subwords import Subwords
from heedful.data.vocabularies import TARGET_FILE, load_subwords
from heedful.durable import write_file
from heedful.formats.translators import save_translator
from heedful.models import rnn, transformer
from heedful.models.rnn import Rnn, RnnConfig
from heedful.models.transformer import Transformer, TransformerConfig
from heedful.runs.agreement import require_alike, require_same_data, share_weights
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
from heedful.runs.translator_judge import TranslatorJudge
from heedful.runs.translator_material import TranslatorMaterial, gather
from heedful.runs.translator_options import (
    TranslatorLearningPart,
    TranslatorOptions,
    TranslatorRecipe,
    check,
    read_recipe,
    resolved,
)
from heedful.runs.watching import keeper, watcher
from heedful.tasks.term import Term
from heedful.tasks.translation import Translating, translation_counts, translation_terms
from heedful.train import checkpoint
from heedful.train.distributed import World, restarts
from heedful.train.log import Log, describe, summary_writer
from heedful.train.loop import Job, Metrics, Plan, Progress, step_seed
from heedful.train.optim import adamw
from heedful.train.replay_pairs import PairReplay
from heedful.train.schedule import seconds
from heedful.wording import counted

POSITIONS = {"transformer": 1024, "rnn": 512}
"""Of a new model, unless it learns from longer sentences."""


def train_translator(options: TranslatorOptions) -> Metrics:
    """Make the model folder; how well its model did on the pairs to evaluate on."""
    told, out = options.settings, options.out
    if options.resume and not restarts():  # started again by torchrun, it may well be complete
        require_unfinished(out, "train for longer, start a new one in another --out")
    check(told, begun=options.resume)
    refuse_sharding(told.run)
    if told.run.tensorboard:
        summary_writer()  # said now, if it is missing, and not after the data is read
    recipe = resolved(told, dim=_dim(told))
    make_plan(recipe)  # said now, if it can't be made
    options = replace(options, settings=recipe)
    with computing(recipe.run, out) as (ranks, compute):
        require_alike(options, ranks)
        if is_over(out, recipe, read_recipe, ranks):
            return {}
        options = replace(options, resume=goes_on(out, ranks, resume=options.resume))
        if ranks.leads and not options.resume:
            require_free(out)
        log = Log(out, leads=ranks.leads)
        material = _material(options, log, ranks)
        with taken(out, recipe, told, read_recipe, ranks, resume=options.resume):
            judge = ranks.in_turn(partial(_judge, recipe, material, out, compute, log))
            share_weights(judge.model, ranks)
        for remark in judge.remarks:
            log.note(remark)
        return _train(options, judge, material, compute, log, ranks)


def _material(options: TranslatorOptions, log: Log, ranks: World) -> TranslatorMaterial:
    """What to train on: everybody reads the pairs, with the vocabularies that the leading rank has or makes."""
    first, sides = None, []
    if ranks.leads:
        first = gather(options.settings, log, _vocabularies(options.out) if options.resume else None)
        sides = [first.source] if first.target is first.source else [first.source, first.target]
    texts = ranks.share([side.backend.to_str() for side in sides])

    def read() -> TranslatorMaterial:
        both = [Subwords(tokenizers.Tokenizer.from_str(text)) for text in texts]
        return gather(options.settings, log, (both[0], both[-1]))

    material = ranks.in_turn(lambda: first or read())
    require_same_data(material.digest, ranks)
    return material


def _judge(
    recipe: TranslatorRecipe, material: TranslatorMaterial, out: Path, compute: Compute, log: Log
) -> TranslatorJudge:
    """The model to train, in the hands of who evaluates it; its vocabularies are saved."""
    model = compute.holding(build(recipe, material))
    judge = TranslatorJudge(model, material, recipe)
    if log.leads:
        if material.target is not material.source:
            subwords.save(material.target, out, TARGET_FILE)
        subwords.save(material.source, out, max_length=model.config.max_length)
    return judge


def build(recipe: TranslatorRecipe, material: TranslatorMaterial) -> Translating:
    """A new model, its weights drawn from the seed."""
    part = recipe.model
    assert part.share is not None
    assert part.dropout is not None
    sizes: dict[str, Any] = {
        "vocab_size": material.source.vocab_size,
        "target_vocab_size": None if material.target is material.source else material.target.vocab_size,
        "share": part.share,
        "dropout": part.dropout,
        "max_length": max(POSITIONS[part.model], recipe.pairs.length + 1),  # a sentence and its end
        **material.marks._asdict(),
    }
    generator = torch.Generator().manual_seed(step_seed(recipe.run.seed, 0, 2**31))
    if part.model == "rnn":
        config = RnnConfig.of_size(
            part.size,
            **sizes,
            score=part.score,
            cell=part.cell,
            bidirectional=part.bidirectional,
            input_feeding=part.input_feeding,
        )
        recurrent = Rnn(config)
        rnn.initialise(recurrent, config, generator)
        return recurrent
    shape = TransformerConfig.of_size(
        part.size, **sizes, pre_norm=part.pre_norm, attention_dropout=part.attention_dropout
    )
    model = Transformer(shape)
    transformer.initialise(model, generator)
    return model


def make_plan(recipe: TranslatorRecipe) -> Plan:
    """The schedule that a resolved recipe asks for."""
    learning, run_part = recipe.learning, recipe.run
    assert learning.lr is not None
    every_steps, every_seconds = interval(run_part.checkpoint_every)
    warmup = learning.warmup
    if warmup >= 1:
        assert run_part.steps is not None
        warmup /= run_part.steps
    return Plan(
        steps=run_part.steps,
        budget=None if run_part.budget is None else seconds(run_part.budget),
        lr=learning.lr,
        warmup=warmup,
        accumulation=learning.accumulation,
        clip=learning.clip,
        seed=run_part.seed,
        evaluations=run_part.evaluations,
        checkpoint_steps=every_steps,
        checkpoint_seconds=every_seconds,
        schedule=learning.schedule,
    )


def _train(
    options: TranslatorOptions,
    judge: TranslatorJudge,
    material: TranslatorMaterial,
    compute: Compute,
    log: Log,
    ranks: World,
) -> Metrics:
    recipe, out, model = options.settings, options.out, judge.model
    folder, learning, plan = out / "checkpoints", recipe.learning, make_plan(recipe)
    replay = None
    # Gradients of a recording lie where it put them; those that are added up or summed over ranks lie elsewhere.
    recorded = compute.device.type == "cuda" and learning.accumulation == ranks.ranks == 1
    if recorded and isinstance(model, Transformer):
        replay = PairReplay(model, learning.label_smoothing, learning.agreement, compute.dtype)
    data = Bitext(
        pairs=material.pairs,
        marks=material.marks,
        batch_tokens=learning.batch_tokens,
        seed=recipe.run.seed,
        whole=replay is not None,
    )
    optimizer = adamw(model, lr=plan.lr, betas=(0.9, learning.beta2), eps=1e-9, decay=learning.weight_decay)
    progress = _restore(folder, judge, optimizer, material, log, compute, ranks) if options.resume else Progress()

    def terms(batch: PairBatch) -> dict[str, Term]:
        found = None if replay is None else replay.terms(batch)
        if found is not None:
            return found
        with compute.autocast():
            return translation_terms(model, batch, compute.device, learning.label_smoothing, learning.agreement)

    job = Job(
        model=model,
        optimizer=optimizer,
        batches=lambda position, _: data.stream(position, ranks.rank, ranks.ranks),
        tokens=lambda batch: batch.tokens,
        counts=translation_counts,
        terms=terms,
        plan=plan,
        world=ranks,
        report=reporter(plan, log),
        evaluate=watcher(judge, "BLEU", learning.patience, plan, lambda step: f"step {step}", ranks, log),
        save=keeper(
            judge.states, optimizer, digest=material.digest, folder=folder, keep=recipe.run.keep, ranks=ranks
        ),
    )
    introduce(log, model, _shape(model), compute, ranks, progress)
    log.note(
        f"training: {counted(material.count, 'pair')}, {counted(data.batches(), 'batch', 'batches')} an epoch, "
        f"learning rate {plan.lr:g}"
    )
    log.note(f"BLEU is counted on {counted(len(judge.examples), 'pair')}; {_result(learning)}")
    run(
        job,
        progress,
        log,
        folder=folder,
        resume=resume_command("train-translator", out, ranks),
        smaller=f"--batch-tokens {max(1, learning.batch_tokens // 2)}",
        tensorboard=recipe.run.tensorboard,
    )
    found = ranks.share(_save(judge, material, out, log) if ranks.leads else {})
    if ranks.leads:
        shutil.rmtree(folder, ignore_errors=True)
    log.note(f"saved {out}")
    if material.target is not material.source:
        log.note("in transformers, AutoTokenizer reads with it; what it writes is decoded with " + TARGET_FILE)
    return found


def _save(judge: TranslatorJudge, material: TranslatorMaterial, out: Path, log: Log) -> Metrics:
    """Write the model that is the result, and how good it is."""
    bleu, averaged = judge.settle()
    result = {"metric": "bleu", "averaged": averaged, "examples": len(judge.examples), "scores": {"bleu": bleu}}
    write_file(out / RESULT_FILE, (json.dumps(result, indent=2) + "\n").encode())
    save_translator(judge.model, out, unk=material.target.unk)
    states = f"step {averaged[0]}" if len(averaged) == 1 else f"the mean of steps {', '.join(map(str, averaged))}"
    log.note(f"in the end, {states}, greedily on the dev set: {describe({'bleu': bleu})}")
    return {"bleu": bleu}


def _restore(
    folder: Path,
    judge: TranslatorJudge,
    optimizer: torch.optim.Optimizer,
    material: TranslatorMaterial,
    log: Log,
    compute: Compute,
    ranks: World,
) -> Progress:
    found = last_checkpoint(folder, material.digest, log, ranks)
    if found is None:
        return Progress()
    tell_of_ranks(found.state.get("ranks", 1), ranks, log)
    judge.states.recall(found, compute.device)
    return restore(found, judge.model, optimizer)


def _vocabularies(out: Path) -> tuple[Subwords, Subwords] | None:
    """Those of an interrupted run; one without a checkpoint begins anew, with the data as it is now."""
    return load_subwords(out) if checkpoint.steps(out / "checkpoints") else None


def _dim(recipe: TranslatorRecipe) -> int:
    sizes = rnn.SIZES if recipe.model.model == "rnn" else transformer.SIZES
    return sizes[recipe.model.size][1]


def _result(learning: TranslatorLearningPart) -> str:
    """Which state becomes the model, in words."""
    if learning.average == 1:
        return "the best state is the result" if learning.average_of == "best" else "the last state is the result"
    return f"the mean of the {learning.average_of} {learning.average} states is the result"


def _shape(model: Translating) -> str:
    config = model.config
    if isinstance(config, TransformerConfig):
        return f"{config.encoder_layers}+{config.decoder_layers} layers, {config.dim} wide, {config.heads} heads"
    return (
        f"{config.layers}+{config.layers} {config.cell.upper()} layers, {config.dim} wide, {config.score} attention"
    )
