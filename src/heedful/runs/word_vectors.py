"""Training word vectors, from text to a folder: prepares, trains, saves, resumes exactly.

The loop is a short one of its own. The other runs take one step for a batch, through autograd, and a gradient of the
whole model; here thousands of small steps follow each other, each on a few rows of two large tables.

Shapes: as in models/word2vec.py; N words.
"""

import math
import shlex
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from heedful import launch
from heedful.data import shards, sources, words
from heedful.data.sampler import Position
from heedful.data.shards import Shards
from heedful.data.tokenizer import Tokenizer
from heedful.data.words import Stretch, Text, Windows
from heedful.errors import Interrupted, UserError
from heedful.formats import word2vec
from heedful.models.word2vec import BLOCK, DRAWS, TOGETHER, Blocks, SkipGram, blocks, initialise, learn
from heedful.nn.shortage import enough_memory
from heedful.nn.transfer import on_device
from heedful.runs import corpus
from heedful.runs.cache import cache_of
from heedful.runs.device import choose, free_memory
from heedful.runs.folder import note_diverged
from heedful.runs.options import TextPart
from heedful.runs.recipe_files import RUN_FILE
from heedful.runs.training import interval, last_checkpoint, numbers, progress_of, reporter, resume_command, taken
from heedful.runs.word_options import WordOptions, WordRecipe, WordVectorsPart, read_recipe, resolved
from heedful.train import checkpoint
from heedful.train.checkpoint import Checkpoint
from heedful.train.distributed import World
from heedful.train.log import Log
from heedful.train.loop import REPORTS, Plan, Progress, ahead, crossed, due, reseed, signals, step_seed
from heedful.train.replay_words import RECORDED, WordReplay
from heedful.train.schedule import linear, seconds

IN_MEMORY = 1 << 27
"""Words of a text that is kept in memory after it was read once: 1 GiB of it."""
COPIES = 3
"""Of the tables while a checkpoint is written (the model's, their bytes, the file's), and about as many of the rows
that an update works with."""
FEW = 100_000
"""Words of a text that are too few to learn much from."""
FAR = 5.0
"""Times the loss of vectors that know nothing, beyond which a run has come to nothing."""
MARGIN = 0.1
"""Share of the free memory that is left alone."""


def train_vectors(options: WordOptions) -> None:
    """Make the folder: vectors.txt, heedful.toml, metrics.jsonl."""
    out, recipe = options.out, resolved(options.settings)
    if not launch.alone():
        raise UserError("word vectors are trained by one process; start it without torchrun")
    if (out / word2vec.FILE).is_file():
        again = "choose another --out" if not options.resume else "to train for longer, start a new one"
        raise UserError(f"{out} already holds word vectors; {again}")
    if options.resume and not (out / RUN_FILE).is_file():
        raise UserError(f"{out} holds no run to resume: it has no {RUN_FILE}")
    device = choose(recipe.run.device, "fp32").device
    make_plan(recipe, 1)  # said now, if it can't be made
    log = Log(out, leads=True)
    with taken(out, recipe, options.settings, read_recipe, World(), resume=options.resume, cache=options.cache):
        found = prepare(replace(options, settings=recipe))
        text = words.read(found.train, found.tokenizer, recipe.vectors.min_count)
        require_room(len(text.lexicon.words), recipe.vectors, device, resume=options.resume)
    go_on = resume_command("train-vectors", out)
    run = Run(recipe=recipe, out=out, text=text, key=found.key, device=device, log=log, go_on=go_on)
    size = f"{len(text.lexicon.words):,} words of dim {recipe.vectors.dim}"
    with enough_memory(size, "try a smaller --dim or a larger --min-count, in a new --out"):
        run.train(resume=options.resume)


def prepare(options: WordOptions) -> Shards:
    """The text on disk: shards that are there, or new ones in which every frequent word is one piece."""
    recipe = options.settings
    given, cased = recipe.text, recipe.text.cased
    part = TextPart(text=given.text, errors=given.errors)
    if not any(shards.is_shards(Path(name)) for name in recipe.corpus):
        part = replace(part, held_out=0.0)  # nothing is evaluated, so nothing is held out

    def tokenizer(files: Sequence[Path]) -> Tokenizer:
        def sentences() -> Iterator[str]:
            for document in sources.documents(files, corpus.text_options(part)):
                yield from document

        return words.train(sentences, recipe.vectors.min_count, cased=cased)

    return corpus.prepare(
        recipe.corpus,
        part,
        tokenizer=tokenizer,
        given=None,
        stdin_folder=options.out / "checkpoints",  # kept for as long as the run may be resumed
        cache=cache_of(options.out, options.cache),
        say=lambda _: None,
        cased=cased,
    )


def require_room(count: int, part: WordVectorsPart, device: torch.device, *, resume: bool = False) -> None:
    """Refuse vectors of so many words if there is no memory for them, before any of it is taken."""
    tables, host = 2 * 4 * count, torch.device("cpu")  # bytes for each number of a vector, as all of these
    work = 4 * COPIES * TOGETHER[device.type] * (BLOCK + 2 * part.window + BLOCK + DRAWS)
    needs = {host: COPIES * tables}
    needs[device] = work + (tables if device.type == "cuda" else needs[host])
    for place, need in needs.items():
        free = int((1 - MARGIN) * free_memory(place))
        if need * part.dim <= free:
            continue
        most, whose = _two_digits(free // need), "GPU memory" if place.type == "cuda" else "memory"
        smaller = f"--dim {most} or less, or a larger --min-count" if most else "a larger --min-count"
        raise UserError(
            f"{count:,} words of dim {part.dim} are too large for the {free / 2**30:,.1f} GiB of {whose} that can be "
            f"had; try {smaller}{', in a new --out' if resume else ''}"
        )


def _two_digits(number: int) -> int:
    """A number rounded down, since what is free changes all the time: 98,765 to 98,000."""
    return number - number % 10 ** max(0, len(str(number)) - 2)


def make_plan(recipe: WordRecipe, pieces: int) -> Plan:
    """The schedule that a resolved recipe asks for, over a text of so many pieces; a step is one of them."""
    run = recipe.run
    every_steps, every_seconds = interval(run.checkpoint_every)
    return Plan(
        steps=None if run.epochs is None else run.epochs * pieces,
        budget=None if run.budget is None else seconds(run.budget),
        lr=recipe.vectors.lr,
        warmup=0.0,
        accumulation=1,
        clip=math.inf,
        seed=run.seed,
        evaluations=1,
        checkpoint_steps=every_steps,
        checkpoint_seconds=every_seconds,
    )


@dataclass(frozen=True, kw_only=True)
class Run:
    """A run whose text is at hand."""

    recipe: WordRecipe
    out: Path
    text: Text
    key: str
    """Differs when the text does."""
    device: torch.device
    log: Log
    go_on: str
    """The command that resumes it."""

    @property
    def folder(self) -> Path:
        """Where the checkpoints are."""
        return self.out / "checkpoints"

    def train(self, *, resume: bool) -> None:
        """Train to the end, and write the vectors."""
        part, log, lexicon = self.recipe.vectors, self.log, self.text.lexicon
        model = SkipGram(len(lexicon.words), part.dim)
        initialise(model, torch.Generator().manual_seed(step_seed(self.recipe.run.seed, 0, 2**31)))
        progress = self._restored(model) if resume else Progress()
        log.note(
            f"text: {self.text.words:,} words, {len(lexicon.words):,} different ones that occur {part.min_count} "
            f"times or more; vectors of {part.dim} numbers, on {self.device.type}"
        )
        if self.text.words < FEW:
            log.note("so few words say little: neighbours will be all alike; a few million words are usual")
        if progress.step:
            log.note(f"resuming at step {progress.step}")
        model.to(self.device)
        with log.opened(step=progress.step, tensorboard=False):
            self._learn(model, progress)
        if not bool(model.read.isfinite().all()):
            raise self._diverged("the vectors are no numbers any more")
        word2vec.save(lexicon.words, model.read.cpu().numpy(), self.out / word2vec.FILE)
        shutil.rmtree(self.folder, ignore_errors=True)
        some = lexicon.words[min(100, len(lexicon.words) - 1)]
        log.note(f"saved {self.out}; try: heedful nearest {shlex.join([str(self.out), some])}")

    def _restored(self, model: SkipGram) -> Progress:
        """Where the run stood, with the tables as they were; its beginning if there is no checkpoint."""
        found = last_checkpoint(self.folder, self.key, self.log, World())
        if found is None:
            return Progress()
        model.load_state_dict(found.tensors["model"])
        return progress_of(found.step, found.state)

    def _learn(self, model: SkipGram, progress: Progress) -> None:
        plan = make_plan(self.recipe, self.text.pieces)
        report = reporter(plan, self.log)
        noise = torch.from_numpy(words.noise(self.text.lexicon.counts)).to(self.device)
        replay = WordReplay(model) if self.device.type == "cuda" else None
        begun, saved = time.perf_counter() - progress.elapsed, progress
        since, lap, told = 0, time.perf_counter(), torch.zeros(2, device=self.device)
        with signals() as stop, closing(ahead(self._pieces(progress.position))) as pieces:
            for position, (size, windows) in pieces:
                if plan.done(progress) >= 1.0:
                    break
                before, elapsed = plan.done(progress), time.perf_counter() - begun
                text = self._blocks(windows, noise, plan, replace(progress, elapsed=elapsed))
                told += replay.learn(text) if replay else learn(model, text, text.size // TOGETHER["cpu"])
                since += size
                progress = Progress(
                    step=progress.step + 1, position=position, tokens=progress.tokens + size, elapsed=elapsed
                )
                last = plan.done(progress) >= 1.0 or bool(stop)
                if last or crossed(before, plan.done(progress), REPORTS):
                    loss = self._check(told, progress)  # which waits for a GPU to have done it
                    now = time.perf_counter()
                    progress = replace(progress, elapsed=now - begun)
                    speed = since / (now - lap)
                    report(
                        progress,
                        {"loss": loss, "pair_loss": loss, "lr": _rate(plan, progress), "words_per_second": speed},
                    )
                    since, lap, told = 0, now, torch.zeros_like(told)
                if stop or (plan.done(progress) < 1.0 and due(plan, saved, progress)):
                    self._check(told, progress)
                    self._save(model, progress)
                    saved = progress
                if stop and plan.done(progress) < 1.0:
                    raise Interrupted(f"stopped and saved at step {progress.step}; go on with: {self.go_on}")

    def _pieces(self, position: Position) -> Iterator[tuple[Position, tuple[int, Windows]]]:
        """The text, over and over: how many words a piece has, and what is left of them; with the place after it."""
        part, (epoch, first) = self.recipe.vectors, position
        keep = words.keep_rates(self.text.lexicon.counts, part.subsample)
        read: dict[int, Stretch] = {}
        while True:
            for piece in range(first, self.text.pieces):
                random = np.random.default_rng([self.recipe.run.seed, epoch, piece])
                stretch = read.get(piece) or self.text.read(piece)
                if self.text.words <= IN_MEMORY:
                    read[piece] = stretch
                after = Position(epoch, piece + 1)
                yield after, (len(stretch.ids), words.windows(stretch, keep, part.window, random))
            epoch, first = epoch + 1, 0

    def _blocks(self, windows: Windows, noise: Tensor, plan: Plan, now: Progress) -> Blocks:
        """The blocks of a piece, filled up to whole updates, or recordings of them; the rate falls along."""
        part, whole = self.recipe.vectors, RECORDED if self.device.type == "cuda" else TOGETHER["cpu"]
        count = max(1, -(-len(windows.ids) // (BLOCK * whole))) * whole
        short = (0, count * BLOCK - len(windows.ids))
        ids, sentences, reach = (
            F.pad(on_device(array, self.device), short)
            for array in (windows.ids.astype(np.int64), windows.sentences, windows.reach.astype(np.int16))
        )
        first, last = _rate(plan, now), _rate(plan, replace(now, step=now.step + 1))
        reseed(step_seed(plan.seed, now.step, 0), self.device)
        return blocks(
            ids,
            sentences,
            reach,
            window=part.window,
            negatives=part.negatives,
            noise=noise,
            uniform=torch.rand(count, DRAWS, device=self.device, dtype=noise.dtype),  # fine enough for rare words
            rates=torch.linspace(first, last, count + 1, device=self.device)[:-1],
        )

    def _check(self, told: Tensor, progress: Progress) -> float:
        """The mean loss since the last report."""
        total, count = told.tolist()
        loss = total / count if count else 0.0
        untaught = (1 + self.recipe.vectors.negatives) * math.log(2)  # every score is 0 then
        if not loss <= FAR * untaught:
            at_first = f", and of vectors that know nothing it is {untaught:.3f}" if math.isfinite(loss) else ""
            raise self._diverged(f"the loss became {loss:g} at step {progress.step}{at_first}")
        return loss

    def _diverged(self, what: str) -> UserError:
        """Noted in the folder, since to resume the same run would end the same way."""
        line = f"{what}; try a lower --lr (now {self.recipe.vectors.lr:g}), in a new --out"
        note_diverged(self.out, line)
        return UserError(line)

    def _save(self, model: SkipGram, progress: Progress) -> None:
        state = {**numbers(progress), "data": self.key}
        tensors = {"model": dict(model.state_dict())}
        checkpoint.save(
            self.folder, Checkpoint(step=progress.step, tensors=tensors, state=state), self.recipe.run.keep
        )


def _rate(plan: Plan, now: Progress) -> float:
    """The learning rate at a moment between two steps."""
    return plan.lr * linear(plan.done(now), 0.0)
