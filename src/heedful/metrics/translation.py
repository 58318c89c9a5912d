"""How good translations are: BLEU (Papineni et al. 2002) and chrF (Popović 2015), counted by sacrebleu alone.

A number of BLEU means nothing without how the text was cut into tokens, hence a figure carries its signature (Post
2018). Figures run from 0 to 100, as the field writes them. Knows nothing of subwords: it compares plain text with
plain text, one reference a translation.
"""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from heedful.errors import UserError

if TYPE_CHECKING:
    from sacrebleu.metrics.bleu import BLEU

TOKENIZERS = {
    **dict.fromkeys(("zh", "zho", "cmn"), "zh"),
    **dict.fromkeys(("ja", "jpn"), "ja-mecab"),
    **dict.fromkeys(("ko", "kor"), "ko-mecab"),
    **dict.fromkeys(("th", "tha", "lo", "lao", "km", "khm", "my", "mya"), "char"),
}
"""How sacrebleu cuts languages that spaces alone do not cut into words; 13a serves the others."""

PLAIN = str.maketrans(
    {**dict.fromkeys("„“”«»", '"'), **dict.fromkeys("’‘‚´`", "'"), **dict.fromkeys("–—", "-"), "…": "..."}
)
"""Typographic punctuation and what a plain keyboard has for it."""

INNER_APOSTROPHE = re.compile(r"(?<=\w)'(?=\w)")


class Figure(NamedTuple):
    """What was measured, how much of 100, and the signature from which anyone can measure it again."""

    name: str
    score: float
    signature: str


def bleu(hypotheses: Sequence[str], references: Sequence[str], *, language: str | None = None) -> Figure:
    """BLEU of text as people write it: cased, detokenised, cut by sacrebleu as the target language asks.

    Japanese and Korean need MeCab (`pip install sacrebleu[ja]` or `[ko]`). Without it BLEU counts characters, which
    gives higher numbers; the name says so.
    """
    _check(hypotheses, references)
    scorer, name = _scorer(language)
    score = scorer.corpus_score(hypotheses, [references]).score
    return Figure(name, score, str(scorer.get_signature()))


def chrf(hypotheses: Sequence[str], references: Sequence[str]) -> Figure:
    """chrF2: the F-score of character n-grams up to 6. No tokenizer has a say in it."""
    from sacrebleu.metrics.chrf import CHRF

    _check(hypotheses, references)
    scorer = CHRF()
    found = scorer.corpus_score(hypotheses, [references])
    return Figure(found.name, found.score, str(scorer.get_signature()))


def tokenised_bleu(hypotheses: Sequence[str], references: Sequence[str]) -> Figure:
    """BLEU as older papers have it: lower-cased, punctuation normalised, tokenised, not smoothed.

    They used scripts of Moses. Plain punctuation, a cut after an apostrophe inside a word (l'eau) and then 13a come
    within 0.1 of that in English, German and French; without the cut French loses more than a point. For languages
    that put spaces between words.
    """
    from sacrebleu.metrics.bleu import BLEU

    _check(hypotheses, references)
    scorer = BLEU(lowercase=True, tokenize="13a", smooth_method="none", force=True)
    score = scorer.corpus_score([_plain(text) for text in hypotheses], [[_plain(text) for text in references]]).score
    signature = f"{scorer.get_signature()}|before:plain-punctuation,cut-apostrophes"
    return Figure("BLEU, lower-cased and tokenised (as in older papers)", score, signature)


def corpus(
    hypotheses: Sequence[str], references: Sequence[str], *, language: str | None = None, tokenised: bool = False
) -> list[Figure]:
    """BLEU and chrF of a whole test set, and on request the BLEU of older papers."""
    figures = [bleu(hypotheses, references, language=language), chrf(hypotheses, references)]
    return [*figures, tokenised_bleu(hypotheses, references)] if tokenised else figures


def bleu_score(hypotheses: Sequence[str], references: Sequence[str], *, language: str | None = None) -> float:
    """The number alone, to compare states of one model while it trains.

    As `bleu`, but where no translation is four tokens long, n-grams as long as there are count, so that perfect
    answers of two words score 100 and not 0.
    """
    _check(hypotheses, references)
    scorer, _ = _scorer(language, effective_order=True)
    return scorer.corpus_score(hypotheses, [references]).score


def _scorer(language: str | None, effective_order: bool = False) -> tuple["BLEU", str]:
    """What counts BLEU in a language, and what its figure is called."""
    from sacrebleu.metrics.bleu import BLEU

    code = re.split("[-_]", (language or "").lower())[0]
    tokenizer = TOKENIZERS.get(code, "13a")
    try:
        scorer, name = BLEU(tokenize=tokenizer, effective_order=effective_order), "BLEU"
    except (RuntimeError, AssertionError):  # how sacrebleu says that MeCab or its dictionary is not there
        scorer = BLEU(tokenize="char", effective_order=effective_order)
        name = f"BLEU of characters ({tokenizer} is not installed)"
    return scorer, name


def _plain(text: str) -> str:
    return INNER_APOSTROPHE.sub("' ", text.translate(PLAIN))


def _check(hypotheses: Sequence[str], references: Sequence[str]) -> None:
    if len(hypotheses) != len(references):
        raise UserError(
            f"{len(hypotheses)} translations and {len(references)} references are not as many; "
            "give a reference a translation, in the same order"
        )
    if not hypotheses:
        raise UserError("there are no translations to score; give at least one")
