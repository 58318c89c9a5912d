"""The demonstration's translator: English number words to Korean ones, learned in about a minute on two cores."""

import math
import shlex
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from heedful.data import numbers
from heedful.data.parallel import PairExample
from heedful.decode import SearchOptions
from heedful.models import transformer
from heedful.predict import Translator, load_translator
from heedful.runs import pictures
from heedful.runs.cache import default_cache
from heedful.runs.demo import once
from heedful.runs.translator import train_translator
from heedful.runs.translator_options import TranslatorOptions, TranslatorRecipe, load_recipe, read_recipe, resolved

LARGEST = 10**9 - 1
TRAINING, DEV, HELD_OUT = 20_000, 200, 1000
"""Numbers to learn from, to choose the weights by, and to ask for in the end."""
SEARCH = SearchOptions(beam=5, n_best=3, max_length=32)
"""No number here takes more than 18 pieces; one that has learned little would go on without end."""
SHOWN = (342_007, 70_015, 120_000_300)
"""Numbers to show translations of; the first one's alignment is drawn. They are never learned from."""
MISTAKES = 3
ROMAN: dict[str, str] = {
    "영": "yeong",
    "일": "il",
    "이": "i",
    "삼": "sam",
    "사": "sa",
    "오": "o",
    "육": "yuk",
    "칠": "chil",
    "팔": "pal",
    "구": "gu",
    "십": "sip",
    "백": "baek",
    "천": "cheon",
    "만": "man",
    "억": "eok",
}
"""How Korean numbers sound, for pictures where no font has their letters."""

Say = Callable[[str], None]


def demo(out: Path, *, steps: int | None, seed: int, cache: Path | None, say: Say) -> None:
    """Train, or go on training, or take what is trained; translate what it has never seen, draw an alignment."""
    begun = time.monotonic()
    usual = load_recipe("numbers")
    training, dev, asked = split(seed)
    tables = [_written(cache or default_cache(), seed, *part) for part in (("train", training), ("dev", dev))]
    recipe = replace(
        usual,
        train=(str(tables[0]),),
        dev=(str(tables[1]),),
        source=("english",),
        target=("korean",),
        run=replace(usual.run, seed=seed, steps=usual.run.steps if steps is None else steps),
    )
    _train(recipe, out, say)
    translator = load_translator(out)
    say("")
    say(f"Numbers that it has never seen, from English to Korean, with a beam of {SEARCH.beam}:")
    share = _examine(translator, asked, say)
    if share < 0.99 and steps is not None:
        say(f"  It had {steps:,} steps to learn; leave --steps out to give it the usual {usual.run.steps:,}.")
    say(f"  It knows numbers up to {LARGEST:,} only: none that it learned from was larger.")
    say("")
    say("Its three best translations of each, by probability for their length, and how probable it takes them for:")
    found = translator.n_best([numbers.english(number) for number in SHOWN], align=True, options=SEARCH)
    for number, best in zip(SHOWN, found, strict=True):
        say(f"  {number:,}: {numbers.english(number)}")
        for each in best:
            mark = "right" if each.text == numbers.korean(number) else "wrong"
            say(f"      {math.exp(each.log_prob):7.2%}  {mark}  {each.text}")
    picture = out / "alignment.png"
    assert found[0][0].alignment is not None
    lacks = pictures.alignment(found[0][0].alignment, picture, ROMAN)
    say("")
    minutes, seconds = divmod(round(time.monotonic() - begun), 60)
    say(f"That took {minutes} min {seconds} s.")
    say(f"The translator is in {out}, its alignment of {SHOWN[0]:,} in {picture}.")
    if lacks:
        say(f"About that picture: {lacks}.")
    say("Now try:")
    say(f'  echo "nine hundred thousand and twelve" | heedful translate {shlex.quote(str(out))} - --n-best 3')
    say("  heedful train-translator your-pairs.tsv --out my-translator --budget 10m")


def split(seed: int) -> tuple[list[PairExample], list[PairExample], list[PairExample]]:
    """Pairs to learn from, to choose the weights by, and to ask for: no number is in two of them."""
    training, rest = numbers.dataset(seed, TRAINING, DEV + HELD_OUT, LARGEST)
    shown = {numbers.english(number) for number in SHOWN}
    training, dev = ([pair for pair in part if pair.source not in shown] for part in (training, rest[:DEV]))
    return training, dev, rest[DEV:]


def folder(out: Path) -> Path:
    """Where the translator goes when the BERT goes to `out`: beside it."""
    named = out if out.name not in ("", "..") else out.resolve()
    return named.with_name(f"{named.name}-translator")


def _train(recipe: TranslatorRecipe, out: Path, say: Say) -> None:
    recipe = resolved(recipe, dim=transformer.SIZES[recipe.model.size][1])

    def train(resume: bool) -> None:
        say("a translator from English number words to Korean ones")
        train_translator(TranslatorOptions(settings=recipe, out=out, resume=resume))

    once(out, recipe, read_recipe, train, say)


def _examine(translator: Translator, asked: list[PairExample], say: Say) -> float:
    """Say how many numbers come out exactly right, and what some others became; the share that is right."""
    found = translator.translate([pair.source for pair in asked], options=SEARCH)
    wrong = [(pair, each.text) for pair, each in zip(asked, found, strict=True) if each.text != pair.target]
    share = 1 - len(wrong) / len(asked)
    say(f"  exactly right  {share:6.1%}   of {len(asked):,}")
    for pair, text in wrong[:MISTAKES]:
        say(f"  mistaken: {pair.source}")
        say(f"      wrote {text or 'nothing'}, should have written {pair.target}")
    return share


def _written(cache: Path, seed: int, name: str, pairs: list[PairExample]) -> Path:
    """The pairs as a table in the cache, where a run that goes on finds them again."""
    path = cache / "corpora" / f"numbers-{LARGEST}-{seed}-{len(pairs)}-{name}.tsv"
    numbers.write(path, pairs)
    return path
