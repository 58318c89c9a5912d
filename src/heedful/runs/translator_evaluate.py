"""How good a translator is on sentence pairs: BLEU and chrF with their signatures, and the worst translations."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from heedful.data.flaws import Flaw, told
from heedful.data.parallel import PairExample
from heedful.decode import SearchOptions
from heedful.durable import write_file
from heedful.errors import UserError
from heedful.metrics.translation import Figure, chrf, corpus
from heedful.predict.reading import answers
from heedful.predict.translator import Translation, Translator, remarks
from heedful.runs.translator_material import read_pairs
from heedful.runs.translator_options import PairsPart
from heedful.wording import SHOWN, shortened

KEYS = ("bleu", "chrf", "tokenised_bleu")
"""What programs call the figures, in the order in which they are counted."""


@dataclass(frozen=True, kw_only=True)
class TranslationTest:
    """What to evaluate on, and how."""

    source: str | None = None
    """The column of a table, like the next."""
    target: str | None = None
    pairs: PairsPart
    search: SearchOptions
    language: str | None = None
    """That of the targets, which decides how BLEU cuts them into words."""
    tokenised: bool = False
    """Count the BLEU of older papers too."""
    truncate: bool = False
    worst: int = 5


class Miss(NamedTuple):
    """A translation that differs from its reference."""

    where: str
    chrf: float
    source: str
    translation: str
    reference: str


@dataclass(frozen=True, kw_only=True)
class TranslationEvaluation:
    """What there is to say of a translator on a file."""

    figures: list[Figure]
    examples: list[PairExample]
    translations: list[Translation]
    misses: list[Miss]
    skipped: list[Flaw]
    remarks: list[str]
    beam: int


def evaluate(translator: Translator, names: Sequence[str], test: TranslationTest) -> TranslationEvaluation:
    """Translate every source, and compare with the references."""
    skipped, examples, found = list[Flaw](), list[PairExample](), list[Translation]()
    reader = translator.reader(test.search, truncate=test.truncate)
    for one in answers(reader, read_pairs(names, (test.source, test.target), test.pairs)):
        if isinstance(one, Flaw):
            if not test.pairs.skip_bad:
                raise UserError(str(one))
            skipped.append(one)
            continue
        examples.append(one[0])
        found.append(one[1][0])
    if not examples:
        why = f": {told(skipped)}" if skipped else ""
        raise UserError(f"{', '.join(names)} holds no pairs to evaluate on{why}")
    texts, references = [one.text for one in found], [one.target or "" for one in examples]
    return TranslationEvaluation(
        figures=corpus(texts, references, language=test.language, tokenised=test.tokenised),
        examples=examples,
        translations=found,
        misses=_misses(examples, texts)[: test.worst] if test.worst else [],
        skipped=skipped,
        remarks=list(remarks(reader, "source")),
        beam=test.search.beam,
    )


def lines(result: TranslationEvaluation) -> list[str]:
    """The evaluation for people."""
    count = "1 pair" if len(result.examples) == 1 else f"{len(result.examples):,} pairs"
    said = [f"{count}, translated {'greedily' if result.beam == 1 else f'with a beam of {result.beam}'}"]
    if result.skipped:
        said.append(f"skipped {told(result.skipped)}")
    said += result.remarks
    width = max(len(one.name) for one in result.figures)
    said += ["", *(f"{one.name:<{width}}  {one.score:5.2f}  {one.signature}" for one in result.figures)]
    if result.misses:
        said += ["", "worst mistakes, by chrF:"]
        for one in result.misses:
            source, wrote, right = (shortened(text, SHOWN) for text in (one.source, one.translation, one.reference))
            said.append(f"  {one.chrf:5.2f}  {source}  ({one.where})")
            said += [f"    wrote  {wrote or '(nothing)'}", f"    right  {right}"]
    return said


def as_json(result: TranslationEvaluation) -> dict[str, Any]:
    """The evaluation for programs."""
    return {
        "examples": len(result.examples),
        "skipped": len(result.skipped),
        "scores": {key: one.score for key, one in zip(KEYS, result.figures, strict=False)},
        "figures": {key: one._asdict() for key, one in zip(KEYS, result.figures, strict=False)},
        "worst": [one._asdict() for one in result.misses],
    }


def write_predictions(result: TranslationEvaluation, path: Path) -> None:
    """One JSON object a pair: where it stands, its texts, what the model wrote and how sure it was."""
    rows = (
        {
            "where": example.where,
            "source": example.source,
            "reference": example.target,
            "translation": one.text,
            "score": one.score if math.isfinite(one.score) else None,
        }
        for example, one in zip(result.examples, result.translations, strict=True)
    )
    write_file(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode())


def _misses(examples: Sequence[PairExample], texts: Sequence[str]) -> list[Miss]:
    """All translations that are not the reference itself, the worst first."""
    found = [
        Miss(one.where, chrf([text], [one.target]).score, one.source, text, one.target)
        for one, text in zip(examples, texts, strict=True)
        if one.target is not None and text != one.target
    ]
    return sorted(found, key=lambda one: one.chrf)
