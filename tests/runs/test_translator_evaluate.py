import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sacrebleu

from heedful.data import subwords
from heedful.decode import Hypothesis, SearchOptions
from heedful.errors import UserError
from heedful.predict.searching import Sentence
from heedful.predict.translator import Translator
from heedful.runs.translator_evaluate import TranslationTest, as_json, evaluate, lines, write_predictions
from heedful.runs.translator_options import PairsPart

PAIRS = (
    ("the cat sat on the mat today", "the cat sat on the mat today"),
    ("a dog ran over the long bridge", "A dog ran over the bridge."),
    ("one two three four", "five six seven"),
    ("l'eau est froide ici", "l'eau est froide là-bas"),
)


class Echo:
    """Translates by writing the source again."""

    longest = 61

    def __init__(self) -> None:
        self.asked: list[SearchOptions] = []

    def search(self, sentences: Sequence[Sentence], options: SearchOptions, *_: object) -> list[list[Hypothesis]]:
        self.asked.append(options)
        return [[Hypothesis(tuple(one.ids), -len(one.ids), -0.25)] for one in sentences]

    def score(self, pairs: Sequence[Any]) -> list[np.ndarray]:
        raise AssertionError

    def align(self, pairs: Sequence[Any]) -> list[np.ndarray]:
        raise AssertionError


@pytest.fixture(scope="module")
def echo() -> Translator:
    pieces = subwords.train(lambda: [side for pair in PAIRS for side in pair] * 2, 97)
    return Translator(Echo(), pieces, pieces)


@pytest.fixture
def table(tmp_path: Path) -> str:
    path = tmp_path / "a.tsv"
    path.write_text("source\ttarget\n" + "".join("\t".join(pair) + "\n" for pair in PAIRS), encoding="utf-8")
    return str(path)


def asked(**changes: Any) -> TranslationTest:
    return TranslationTest(pairs=changes.pop("pairs", PairsPart()), search=SearchOptions(beam=3), **changes)


def test_the_figures_are_sacrebleus(echo: Translator, table: str):
    result = evaluate(echo, [table], asked(tokenised=True))
    sources, references = map(list, zip(*PAIRS, strict=True))
    bleu, chrf, tokenised = result.figures
    assert bleu.score == pytest.approx(sacrebleu.corpus_bleu(sources, [references]).score)
    assert chrf.score == pytest.approx(sacrebleu.corpus_chrf(sources, [references]).score)
    assert tokenised.score > bleu.score  # one reference has a capital and a full stop
    assert "case:mixed" in bleu.signature
    assert "case:lc" in tokenised.signature
    assert "lower-cased and tokenised" in tokenised.name
    searcher = echo.searcher
    assert isinstance(searcher, Echo)
    assert searcher.asked[-1].beam == 3
    assert len(evaluate(echo, [table], asked()).figures) == 2


def test_the_language_decides_how_bleu_cuts(echo: Translator, table: str):
    (found, _), (other, _) = (evaluate(echo, [table], asked(language=code)).figures for code in ("en", "zh"))
    assert "tok:13a" in found.signature
    assert "tok:zh" in other.signature


def test_the_worst_are_those_with_the_lowest_chrf(echo: Translator, table: str):
    result = evaluate(echo, [table], asked())
    scores = {
        number: sacrebleu.sentence_chrf(source, [reference]).score
        for number, (source, reference) in enumerate(PAIRS, 2)
        if source != reference
    }
    worst = sorted(scores, key=lambda number: scores[number])
    assert [one.where for one in result.misses] == [f"{table}:{number}" for number in worst]
    assert [one.chrf for one in result.misses] == pytest.approx([scores[number] for number in worst])
    assert evaluate(echo, [table], asked(worst=1)).misses == result.misses[:1]
    assert evaluate(echo, [table], asked(worst=0)).misses == []


def test_for_people(echo: Translator, table: str):
    said = lines(evaluate(echo, [table], asked(worst=1)))
    assert said[0] == "4 pairs, translated with a beam of 3"
    assert [line.split("  ")[0] for line in said[2:4]] == ["BLEU", "chrF2"]
    assert all("version:" in line for line in said[2:4])
    assert said[5] == "worst mistakes, by chrF:"
    assert said[6].endswith(f"one two three four  ({table}:4)")
    assert said[7:] == ["    wrote  one two three four", "    right  five six seven"]


def test_for_programs_and_every_translation(echo: Translator, table: str, tmp_path: Path):
    result = evaluate(echo, [table], asked(tokenised=True, worst=2))
    found = json.loads(json.dumps(as_json(result)))
    assert (found["examples"], found["skipped"]) == (4, 0)
    assert list(found["scores"]) == ["bleu", "chrf", "tokenised_bleu"] == list(found["figures"])
    assert found["figures"]["chrf"]["signature"] == result.figures[1].signature
    assert [one["reference"] for one in found["worst"]] == [one.reference for one in result.misses]
    write_predictions(result, tmp_path / "rows.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [(row["source"], row["reference"]) for row in rows] == list(PAIRS)
    assert [row["translation"] for row in rows] == [source for source, _ in PAIRS]
    assert {row["score"] for row in rows} == {-0.25}
    assert rows[2]["where"] == f"{table}:4"


def test_columns_two_files_and_what_cannot_be_read(echo: Translator, tmp_path: Path):
    (tmp_path / "a.x").write_text("the cat\n\u2603 one\n" + "the " * 67 + "\n", encoding="utf-8")
    (tmp_path / "a.y").write_text("the cat\none\nthe\n", encoding="utf-8")
    both = [str(tmp_path / "a.x"), str(tmp_path / "a.y")]
    with pytest.raises(UserError, match=r"a\.x:3: 67 tokens are beyond the model's 61"):
        evaluate(echo, both, asked())
    result = evaluate(echo, both, asked(pairs=PairsPart(skip_bad=True)))
    assert (len(result.examples), len(result.skipped)) == (2, 1)
    said = lines(result)
    assert said[1].startswith("skipped 1 bad row: ")
    assert said[2] == "never seen: ☃; the model reads <unk> there"
    result = evaluate(echo, both, asked(truncate=True))
    assert len(result.examples) == 3
    assert "1 source is too long; only the beginning is read" in lines(result)
    with pytest.raises(UserError, match="are no tables, hence have no columns; leave out --source and --target"):
        evaluate(echo, both, asked(source="x", target="y"))
    (tmp_path / "a.tsv").write_text("no\tde\ten\n1\tdas\tthe\n", encoding="utf-8")
    result = evaluate(echo, [str(tmp_path / "a.tsv")], asked(source="en", target="de"))
    assert (result.examples[0].source, result.examples[0].target) == ("the", "das")
    (tmp_path / "a.tsv").write_text("en\tde\n", encoding="utf-8")
    with pytest.raises(UserError, match="holds no pairs to evaluate on"):
        evaluate(echo, [str(tmp_path / "a.tsv")], asked())
