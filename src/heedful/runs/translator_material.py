"""What a translator is trained on: its pairs, read and split, its vocabularies, and the ids of both sides."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from heedful.data import parallel, subwords
from heedful.data.bitext import Marks, Pairs
from heedful.data.bpe_dropout import Dropout
from heedful.data.flaws import Flaw, sound, told
from heedful.data.heldout import apart, require_both
from heedful.data.parallel import PairExample
from heedful.data.subwords import Subwords
from heedful.durable import file_digest
from heedful.errors import UserError
from heedful.runs.dataset import files, one_file
from heedful.runs.material import because
from heedful.runs.translator_options import PairsPart, SubwordsPart, TranslatorRecipe
from heedful.train.log import Log

HELD_OUT, MOST_HELD_OUT = 0.05, 2000
VOCABULARY = 8000


@dataclass(frozen=True, kw_only=True)
class TranslatorMaterial:
    """What a run works with, once its data is read."""

    source: Subwords
    target: Subwords
    """The same as the source's where both languages have one vocabulary."""
    pairs: Callable[[int], Pairs]
    """The training pairs of an epoch."""
    count: int
    dev: list[PairExample]
    digest: str
    """Differs when any file does."""

    @property
    def marks(self) -> Marks:
        """The ids that frame a sentence."""
        return Marks(self.target.pad, self.target.sos, self.target.eos)


def gather(recipe: TranslatorRecipe, log: Log, ready: tuple[Subwords, Subwords] | None = None) -> TranslatorMaterial:
    """Read the pairs and take them apart, with vocabularies that are ready or ones that are made now."""
    part, skipped = recipe.pairs, list[Flaw]()
    training = list(sound(_training(recipe), part.skip_bad, skipped))
    used = [*_names(recipe), *files(recipe.dev)]
    if not training:
        raise UserError(f"{', '.join(map(str, used))}: no pairs to learn from{because(skipped)}")
    if recipe.dev:
        dev = list(sound(_dev(recipe), part.skip_bad, skipped))
        if not dev:
            raise UserError(f"{', '.join(recipe.dev)}: no pairs to evaluate on{because(skipped)}")
    else:
        training, dev = _split(training, part.held_out)
        log.note(f"held out {len(dev):,} of {len(dev) + len(training):,} pairs to evaluate on: there is no --dev")
    if skipped:
        log.note(f"skipped {told(skipped)}")
    source, target = ready or _vocabularies(training, recipe.vocabulary, log)
    pairs, count = _encoded(training, source, target, recipe, log)
    digest = hashlib.sha256("".join(file_digest(file) for file in used).encode()).hexdigest()
    return TranslatorMaterial(source=source, target=target, pairs=pairs, count=count, dev=dev, digest=digest)


def read_pairs(
    names: Sequence[str], columns: tuple[str | None, str | None], part: PairsPart
) -> Iterator[PairExample | Flaw]:
    """The pairs of tables, or of a source and a target file."""
    found = files(names)
    if len(found) == 2 and not any(parallel.is_table(file) for file in found):
        if any(columns):
            flags = " and ".join(flag for flag, name in zip(("--source", "--target"), columns, strict=True) if name)
            raise UserError(f"{found[0]} and {found[1]} are no tables, hence have no columns; leave out {flags}")
        yield from parallel.aligned(*found, errors=part.errors)
        return
    for file in found:
        if not parallel.is_table(file):
            raise UserError(f"{file} is neither a table of pairs nor one of two files, a source and a target")
        yield from parallel.table(file, *columns, errors=part.errors)


def columns(recipe: TranslatorRecipe) -> tuple[str | None, str | None]:
    """The columns of tables that were named."""
    if not recipe.train:
        return None, None
    return next(iter(recipe.source), None), next(iter(recipe.target), None)


def _names(recipe: TranslatorRecipe) -> list[Path]:
    if recipe.train:
        return files(recipe.train)
    return [file for both in _aligned(recipe) for file in both]


def _aligned(recipe: TranslatorRecipe) -> list[tuple[Path, Path]]:
    """The files with sources, each with that of its translations."""
    names = [*recipe.source, *recipe.target]
    for name in names:
        if not Path(name).exists() and not Path(name).suffix:
            raise UserError(f"there is no file {name}; if it is a column, give the table that has it as TRAIN")
    return [(one_file(one), one_file(other)) for one, other in zip(recipe.source, recipe.target, strict=True)]


def _training(recipe: TranslatorRecipe) -> Iterator[PairExample | Flaw]:
    if recipe.train:
        yield from read_pairs(recipe.train, columns(recipe), recipe.pairs)
        return
    for one, other in _aligned(recipe):
        yield from parallel.aligned(one, other, errors=recipe.pairs.errors)


def _dev(recipe: TranslatorRecipe) -> Iterator[PairExample | Flaw]:
    names = files(recipe.dev)
    # Two files of text beside tables whose columns are named are a source and a target.
    named = columns(recipe) if any(map(parallel.is_table, names)) else (None, None)
    return read_pairs(recipe.dev, named, recipe.pairs)


def _split(pairs: list[PairExample], share: float | None) -> tuple[list[PairExample], list[PairExample]]:
    """Pairs to train on and those held out, by the source alone: all translations of one sentence stay together."""
    part = min(HELD_OUT, MOST_HELD_OUT / len(pairs)) if share is None else share
    training, dev = apart(pairs, [one.source for one in pairs], part)
    require_both(training, dev, part, "pairs")
    return training, dev


def _vocabularies(pairs: list[PairExample], part: SubwordsPart, log: Log) -> tuple[Subwords, Subwords]:
    size = part.vocab_size or VOCABULARY
    exactly = part.vocab_size is not None

    def sources() -> Iterator[str]:
        return (one.source for one in pairs)

    def targets() -> Iterator[str]:
        return (one.target or "" for one in pairs)

    def both() -> Iterator[str]:
        yield from sources()
        yield from targets()

    if part.joint:
        made = subwords.train(both, size, part.subwords, exactly=exactly)
        log.note(f"vocabulary: {made.vocab_size:,} {part.subwords} pieces for both languages")
        return made, made
    one, other = (subwords.train(side, size, part.subwords, exactly=exactly) for side in (sources, targets))
    log.note(f"vocabularies: {one.vocab_size:,} {part.subwords} pieces to read, {other.vocab_size:,} to write")
    return one, other


def _encoded(
    pairs: list[PairExample], source: Subwords, target: Subwords, recipe: TranslatorRecipe, log: Log
) -> tuple[Callable[[int], Pairs], int]:
    """The ids of each epoch, and how many pairs there are; those too long are left out."""
    ones, twos = [pair.source for pair in pairs], [pair.target or "" for pair in pairs]
    fixed = Pairs(*([np.array(ids, np.int32) for ids in side] for side in (source.encode(ones), target.encode(twos))))
    longest = recipe.pairs.length
    kept = [number for number, both in enumerate(zip(*fixed, strict=True)) if max(map(len, both)) <= longest]
    if not kept:
        raise UserError(f"every pair has a sentence of more than {longest} tokens; use a larger --length")
    if len(kept) < len(pairs):
        gone = len(pairs) - len(kept)
        noun = "1 pair" if gone == 1 else f"{gone:,} pairs"
        log.note(f"left out {noun} with more than {longest:,} tokens on a side")
    fixed = Pairs(*([side[number] for number in kept] for side in fixed))
    rate = recipe.vocabulary.bpe_dropout
    if not rate:
        return lambda _: fixed, len(kept)
    seed = recipe.run.seed
    left = Dropout(source, rate, [ones[number] for number in kept], seed=2 * seed)
    right = Dropout(target, rate, [twos[number] for number in kept], seed=2 * seed + 1)

    def drawn(epoch: int) -> Pairs:
        # A sentence that falls into too many pieces keeps its usual ones.
        return Pairs(
            *(
                [one if len(one) <= longest else usual for one, usual in zip(side.encode(epoch), plain, strict=True)]
                for side, plain in ((left, fixed.sources), (right, fixed.targets))
            )
        )

    return drawn, len(kept)
