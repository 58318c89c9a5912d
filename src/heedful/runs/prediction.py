"""What a model says of a file, line by line, in the order of the file and in constant memory."""

import io
import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from heedful.data import labelled, questions, tagged
from heedful.data.columns import Columns, refuse_named, usual
from heedful.data.flaws import Flaw, reason, told
from heedful.data.labelled import TextExample
from heedful.data.lines import Errors, lines
from heedful.data.tables import ending, is_table, rows
from heedful.durable import new_file
from heedful.errors import UserError
from heedful.predict.engine import TorchEngine
from heedful.predict.predictor import METHODS, Predictor
from heedful.predict.reading import Pace, answers
from heedful.predict.tags import sentence
from heedful.predict.texts import cut_remark

STREAM_CHUNK = 256
"""Lines of standard input that are answered together; of what a person types, each alone."""
TAGGED_FILES = (".conll", ".conllu", ".bio", ".iob", ".iob2", ".bioes", ".ner")


@dataclass(frozen=True, kw_only=True)
class Asking:
    """How a file is read and answered."""

    columns: Columns
    errors: Errors = "strict"
    truncate: bool = False
    skip_bad: bool = False
    n_best: int = 1
    top: int = 5
    every: bool = False
    """The probabilities of all labels too."""
    echo: bool = False
    """What was asked, beside the answer."""


@dataclass
class Skipped:
    """Rows without an answer: how many, and the first of them, however many there are."""

    count: int = 0
    first: Flaw | None = None

    def add(self, flaw: Flaw) -> None:
        """One more."""
        self.count += 1
        self.first = self.first or flaw


def predict(predictor: Predictor, source: Path | None, out: Path | None, form: str, asking: Asking) -> str | None:
    """Answer a file, or standard input; what there is to say of it in the end."""
    method = METHODS[predictor.head.task] if predictor.head else "fill"
    if predictor.head is None and predictor.words is None:
        if not isinstance(predictor.engine, TorchEngine):
            raise UserError(
                f"{predictor.origin} has no head that this engine asks; "
                "blanks are filled with --engine torch alone, vectors come from `heedful embed`"
            )
        raise UserError(
            f"{predictor.origin} is an encoder without a head: `heedful embed` gives its vectors, "
            "`heedful finetune` gives it a head"
        )
    reader = predictor.reader(method, truncate=asking.truncate, n_best=asking.n_best, top=asking.top)
    items = read(predictor, source, asking)
    pace = predictor.pace(reader) if source else of_standard_input()
    found = answers(reader, items, pace)
    written, skipped = 0, Skipped()
    header = _header(predictor, asking) if form == "tsv" else ""
    with nullcontext(sys.stdout) if out is None else whole_file(out) as file:
        file.write(header and header + "\n")
        for line in _rendered(predictor, found, form, asking, skipped):
            file.write(line + "\n")
            written += 1
            if written % pace.chunk == 0:
                file.flush()
        file.flush()
        if not written and source is not None:
            raise UserError(f"{source} holds nothing to answer; give a file that does")
    remarks = [f"no answer to {told([skipped.first], skipped.count)}"] if skipped.first is not None else []
    if cut := cut_remark(reader):
        remarks.append(cut)
    if not written:
        remarks.append("there was nothing to read")
    return "; ".join(remarks) or None


def read(predictor: Predictor, source: Path | None, asking: Asking) -> Iterator[Any | Flaw]:
    """The examples of a file as the model's head takes them."""
    task = predictor.head.task if predictor.head else "fill"
    if task == "answer":
        refuse_named(asking.columns, task)
        if source is None:
            raise UserError("questions come from a file (SQuAD json, jsonl, parquet), not from standard input")
        return questions.examples(source, errors=asking.errors, required=False)
    if task == "tag":
        if source is not None and _has_words(source, predictor, asking.errors):
            refuse_named(asking.columns, task)
            return tagged.examples(source, errors=asking.errors, required=False)
        if asking.columns.pair is not None:
            raise UserError("words are tagged in one text, not in a pair; leave --pair out")
        found = labelled.texts(source, asking.columns, errors=asking.errors)
        return (one if isinstance(one, Flaw) else sentence(predictor.tokenizer, one.text, one.where) for one in found)
    return labelled.texts(source, asking.columns, errors=asking.errors)


def as_table(answer: Any, head: str, *, every: bool = False) -> dict[str, Any]:
    """An answer as JSON knows it."""
    match head:
        case "classify":
            table = {"label": answer.label, "probability": answer.probability}
            return {**table, "probabilities": answer.probabilities} if every else table
        case "multilabel":
            given = {label: answer.probabilities[label] for label in answer.labels}
            return {"labels": answer.labels, "probabilities": answer.probabilities if every else given}
        case "regress":
            return dict(answer)
        case "tag":
            entities = [one._asdict() for one in answer.entities]
            return {"words": answer.words, "tags": answer.tags, "entities": entities}
        case "answer":
            best = [one._asdict() for one in answer]
            return best[0] if len(best) == 1 else {**best[0], "n_best": best}
    return {"blanks": [[one._asdict() for one in blank] for blank in answer]}


def of_standard_input() -> Pace:
    """Its pace: whoever writes to it may wait for answers before writing more, so it is never read ahead."""
    return Pace(1 if sys.stdin is not None and sys.stdin.isatty() else STREAM_CHUNK)


def _rendered(
    predictor: Predictor, found: Iterable[Any], form: str, asking: Asking, skipped: "Skipped"
) -> Iterator[str]:
    task = predictor.head.task if predictor.head else "fill"
    for one in found:
        if isinstance(one, Flaw):
            if not asking.skip_bad:
                raise UserError(str(one))
            skipped.add(one)
            if form == "jsonl":
                yield json.dumps({"error": reason(one)}, ensure_ascii=False)
            else:
                yield "" if task == "tag" else "\t" * _header(predictor, asking).count("\t")
            continue
        example, answer = one
        table = as_table(answer, task, every=asking.every)
        if form == "jsonl":
            asked = _asked(example) if asking.echo else {}
            known = {"id": example.id} if task == "answer" else {}
            yield json.dumps({**known, **asked, **table}, ensure_ascii=False)
        else:
            yield _tsv(task, table, example, asking)


def _header(predictor: Predictor, asking: Asking) -> str:
    task = predictor.head.task if predictor.head else "fill"
    labels = predictor.head.labels if predictor.head else ()
    names = {
        "classify": ["label", "probability", *(labels if asking.every else ())],
        "multilabel": ["labels", *(labels if asking.every else ())],
        "regress": list(labels),
        "answer": ["id", "answer", "probability"],
        "fill": ["blanks"],
        "tag": [],
    }[task]
    if asking.echo and names:
        names = ["text", *names]
    return "\t".join(map(_field, names))


def _tsv(task: str, table: dict[str, Any], example: Any, asking: Asking) -> str:
    every = list(table.get("probabilities", {}).values()) if asking.every else []
    match task:
        case "classify":
            fields = [table["label"], table["probability"], *every]
        case "multilabel":
            fields = [",".join(table["labels"]), *every]
        case "regress":
            fields = list(table.values())
        case "answer":
            fields = [example.id, table["text"], table["probability"]]
        case "fill":
            fields = [" ".join(blank[0]["token"] for blank in table["blanks"])]
        case _:  # a word a line, as in CoNLL, and an empty line after each text
            return "".join(
                f"{_field(word)}\t{tag}\n" for word, tag in zip(table["words"], table["tags"], strict=True)
            )
    if asking.echo:
        fields = [" | ".join(_asked(example).values()), *fields]
    return "\t".join(map(_field, fields))


def _field(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else " ".join(str(value).split())


def _asked(example: Any) -> dict[str, str]:
    if isinstance(example, TextExample):
        return {"text": example.text, **({} if example.pair is None else {"pair": example.pair})}
    if hasattr(example, "question"):
        return {"question": example.question}
    return {"text": getattr(example, "text", None) or " ".join(example.words)}


def _has_words(file: Path, predictor: Predictor, errors: Errors) -> bool:
    """Whether a file holds words already, and not texts: by its name, its columns, or tags behind tabs."""
    if ending(file) in TAGGED_FILES:
        return True
    if ending(file) in (".jsonl", ".parquet"):
        first = next((one for one in rows(file, errors=errors) if not isinstance(one, Flaw)), None)
        return first is not None and usual(list(first[1]), tagged.USUAL_WORDS) is not None
    if is_table(file):
        return False
    line = next((line for _, line in lines(file, errors) if line.strip()), "")
    assert predictor.head is not None
    return "\t" in line and line.split("\t")[-1].strip() in predictor.head.labels


@contextmanager
def whole_file(path: Path) -> Iterator[TextIO]:
    """A file that is there only when every answer is in it."""
    if path.exists():
        raise UserError(f"{path} exists already; choose another --out")
    with new_file(path) as raw:
        file = io.TextIOWrapper(raw, encoding="utf-8", newline="\n")
        try:
            yield file
        finally:
            file.detach()  # or it would close what is still to be flushed to disk
