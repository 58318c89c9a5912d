"""Commands that ask a model."""

import itertools
import json as json_module
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import FlagCreatePairsOff, Positional, arg

from heedful.arguments import optional, several
from heedful.commands.output import say, warn
from heedful.data.columns import Columns
from heedful.errors import UserError
from heedful.wording import shortened

LONGEST_HIT = 300
"""Characters of a text that was found, on a terminal."""
FORMATS: dict[str, Literal["jsonl", "tsv"]] = {
    "": "jsonl",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".txt": "jsonl",
    ".tsv": "tsv",
}
"""How answers are written to a file with such an ending."""

Flag = Annotated[bool, FlagCreatePairsOff]
Column = Annotated[str | None, optional(metavar="COLUMN")]
Model = Annotated[Positional[Path], arg(metavar="MODEL")]


def fill(
    model: Annotated[Positional[Path], arg(metavar="MODEL")],
    text: Annotated[Positional[tuple[str, ...]], optional(metavar="TEXT…")] = (),
    top: int = 5,
    json: Annotated[bool, FlagCreatePairsOff] = False,
) -> None:
    """Fill the blanks of a text: the most probable words for every [MASK].

    Args:
        model: A model folder.
        text: Texts with [MASK] in them; without any, or for -, lines from standard input.
        top: Candidates to show for each blank.
        json: One JSON object a text.
    """
    from heedful.predict import load_predictor

    predictor = load_predictor(model)
    answered = 0
    for chunk in _chunks(_checked(_lines() if text in ((), ("-",)) else text)):
        try:
            answers = predictor.fill(chunk, top)
        except UserError:  # one of them is wrong: answer those before it
            answers = (predictor.fill(one, top) for one in chunk)
        for one, blanks in zip(chunk, answers, strict=True):
            answered += 1
            if json:
                found = [[candidate._asdict() for candidate in blank] for blank in blanks]
                say(json_module.dumps({"text": one, "blanks": found}, ensure_ascii=False))
                continue
            say(one)
            for number, blank in enumerate(blanks, 1):
                if len(blanks) > 1:
                    say(f"  blank {number}")
                for candidate in blank:
                    say(f"  {candidate.probability:6.1%}  {candidate.token}")
    if not answered:
        raise UserError("there is no text to fill; give it as an argument or on standard input")


def predict(
    model: Model,
    file: Annotated[Positional[str], arg(metavar="FILE|-")] = "-",
    out: Annotated[Path | None, optional(metavar="FILE")] = None,
    format: Annotated[Literal["jsonl", "tsv"] | None, optional(metavar="jsonl|tsv")] = None,  # noqa: A002
    text: Column = None,
    pair: Column = None,
    all: Flag = False,  # noqa: A002
    echo: Flag = False,
    n_best: int = 1,
    top: int = 5,
    truncate: Flag = False,
    skip_bad: Flag = False,
    errors: Literal["strict", "replace"] = "strict",
    engine: Literal["torch", "onnx"] = "torch",
    int8: Flag = False,
    device: Literal["auto", "cpu", "cuda"] = "auto",
    precision: Literal["auto", "fp32", "fp16", "bf16"] = "auto",
) -> None:
    """What a model says of each text of a file: labels, numbers, tags, answers, or words for blanks.

    Args:
        model: A model folder.
        file: Texts: one a line, or csv, tsv, jsonl, parquet; words as CoNLL; questions as SQuAD json or jsonl.
        out: Where the answers go (standard output by default), one line a text, in the order of the texts.
        format: How they are written (by default as --out ends, as with .jsonl or .tsv; jsonl on standard output).
        text: Column of the text. By default as in training where the file has it, or else found by itself when its
            name is usual.
        pair: Column of the second text, for pairs.
        all: The probabilities of every label too.
        echo: The text beside its answer.
        n_best: Answers to each question.
        top: Candidates for each blank.
        truncate: Cut texts that are too long, where else they are refused.
        skip_bad: Go on after a row that can't be answered: its line says why in jsonl, and is empty in tsv.
        errors: What to do with bytes that are not UTF-8.
        engine: What computes: torch, or what `heedful export` wrote.
        int8: With --engine onnx, the smaller and faster file.
        device: Where torch computes.
        precision: How exactly: fp16 by default on a GPU, always fp32 on a CPU.
    """
    from heedful.predict import load_predictor
    from heedful.predict.loading import require_texts
    from heedful.runs.dataset import one_file
    from heedful.runs.finetune_options import trained_with
    from heedful.runs.prediction import Asking
    from heedful.runs.prediction import predict as run

    require_texts(model)  # before a file that only another model could read
    asking = Asking(
        columns=Columns(text=text, pair=pair, trained=trained_with(model).columns),
        errors=errors,
        truncate=truncate,
        skip_bad=skip_bad,
        n_best=n_best,
        top=top,
        every=all,
        echo=echo,
    )
    form = format or FORMATS.get("" if out is None else out.suffix.lower())
    if form is None:
        assert out is not None
        raise UserError(
            f"answers are written as jsonl or tsv, not as {out.suffix[1:]}; "
            "end the name of --out with .jsonl or .tsv, or say --format"
        )
    if form == "tsv" and n_best > 1:
        raise UserError("a line of tsv holds one answer; leave --n-best out, or write jsonl")
    source = None if file == "-" else one_file(file)
    if remark := run(
        load_predictor(model, device, precision=precision, engine=engine, int8=int8), source, out, form, asking
    ):
        warn(remark)
    if out is not None:
        say(f"wrote {out}")


def embed(
    model: Model,
    file: Annotated[Positional[str], arg(metavar="FILE|-")],
    out: Annotated[Path, arg(metavar="FILE")],
    pool: Annotated[Literal["cls", "mean"] | None, optional(metavar="cls|mean")] = None,
    normalise: Annotated[bool | None, optional(metavar="True|False")] = None,
    text: Column = None,
    pair: Column = None,
    truncate: Flag = False,
    skip_bad: Flag = False,
    errors: Literal["strict", "replace"] = "strict",
    engine: Literal["torch", "onnx"] = "torch",
    int8: Flag = False,
    device: Literal["auto", "cpu", "cuda"] = "auto",
    precision: Literal["auto", "fp32", "fp16", "bf16"] = "auto",
) -> None:
    """Write a vector for each text of a file: a .npy with one row a text.

    Args:
        model: A model folder; one of sentence-transformers embeds as it does there.
        file: Texts: one a line, or csv, tsv, jsonl, parquet; - for standard input.
        out: The .npy file; what it was made of is noted beside it.
        pool: The mean of all states, or the state of [CLS] (by default as the folder says, else the mean).
        normalise: Vectors of length 1, so that products are cosines (by default as the folder says, else so).
        text: Column of the text. By default as in training where the file has it, or else found by itself when its
            name is usual.
        pair: Column of the second text, for pairs.
        truncate: Cut texts that are too long, where else they are refused.
        skip_bad: Go on after a row that can't be read; its vector is zero.
        errors: What to do with bytes that are not UTF-8.
        engine: What computes: torch, or what `heedful export` wrote.
        int8: With --engine onnx, the smaller and faster file.
        device: Where torch computes.
        precision: How exactly: fp16 by default on a GPU, always fp32 on a CPU.
    """
    from heedful.predict import load_predictor
    from heedful.runs import vectors
    from heedful.runs.dataset import one_file
    from heedful.runs.finetune_options import trained_with

    source = None if file == "-" else one_file(file)
    predictor = load_predictor(model, device, precision=precision, engine=engine, int8=int8)
    said = vectors.embed(
        predictor,
        source,
        out,
        columns=Columns(text=text, pair=pair, trained=trained_with(model).columns),
        pool=pool,
        normalise=normalise,
        truncate=truncate or None,
        skip_bad=skip_bad,
        errors=errors,
    )
    say(said)


def search(
    model: Model,
    file: Annotated[Positional[str], arg(metavar="FILE")],
    query: Annotated[Positional[tuple[str, ...]], several(metavar="QUERY…")],
    vectors: Annotated[Path | None, optional(metavar="FILE")] = None,
    top: int = 5,
    pool: Annotated[Literal["cls", "mean"] | None, optional(metavar="cls|mean")] = None,
    text: Column = None,
    pair: Column = None,
    truncate: Flag = False,
    skip_bad: Flag = False,
    json: Flag = False,
    errors: Literal["strict", "replace"] = "strict",
    device: Literal["auto", "cpu", "cuda"] = "auto",
) -> None:
    """Find the texts of a file that are nearest to a query.

    Args:
        model: A model folder.
        file: Texts: one a line, or csv, tsv, jsonl, parquet.
        query: What to look for, once or several times.
        vectors: What `heedful embed` wrote for the same file, so that it need not be read anew.
        top: Texts to show.
        pool: The mean of all states, or the state of [CLS] (by default as the vectors or the folder say).
        text: Column of the text. By default as in training where the file has it, or else found by itself when its
            name is usual.
        pair: Column of the second text, where vectors of pairs were made.
        truncate: Cut texts that are too long, where else they are refused.
        skip_bad: Pass over rows that can't be read.
        json: One JSON object a query, with whole texts.
        errors: What to do with bytes that are not UTF-8.
        device: Where to compute.
    """
    from heedful.predict import load_predictor
    from heedful.runs import vectors as run
    from heedful.runs.dataset import one_file
    from heedful.runs.finetune_options import trained_with

    if not query:
        raise UserError("there is nothing to look for; give a QUERY after the file, or several")
    found = run.search(
        load_predictor(model, device),
        one_file(file),
        query,
        vectors=vectors,
        top=top,
        columns=Columns(text=text, pair=pair, trained=trained_with(model).columns),
        pool=pool,
        truncate=truncate or None,
        skip_bad=skip_bad,
        errors=errors,
    )
    for one, hits in zip(query, found, strict=True):
        if json:
            table = {"query": one, "hits": [hit._asdict() for hit in hits]}
            say(json_module.dumps(table, ensure_ascii=False))
            continue
        say(one)
        for hit in hits:
            say(f"  {hit.similarity:6.3f}  {shortened(' '.join(hit.text.split()), LONGEST_HIT)}  ({hit.where})")


def generate(
    model: Model,
    text: Annotated[Positional[str], arg(metavar="TEXT")] = "",
    tokens: int = 12,
    order: Literal["mask-predict", "gibbs"] = "mask-predict",
    steps: Annotated[int | None, optional(metavar="N")] = None,
    temperature: Annotated[float | None, optional(metavar="T")] = None,
    top_k: Annotated[int | None, optional(metavar="N")] = None,
    seed: int = 0,
    watch: Flag = False,
    json: Flag = False,
    device: Literal["auto", "cpu", "cuda"] = "auto",
) -> None:
    """Write text with a masked model, by filling blanks and emptying them again.

    Args:
        model: A model folder that fills blanks.
        text: What to go on from; [MASK] where words are to be written, else they follow the text.
        tokens: Tokens to write after a text without blanks.
        order: All blanks at once, then the least sure again; or one after the other, drawn given all others.
        steps: Rounds (10 by default, fewer for few blanks).
        temperature: 0 always takes the most probable token; higher is bolder (by default 0 and, for gibbs, 1).
        top_k: Draw among so many of the most probable tokens.
        seed: Another seed, another text.
        watch: The text after each round.
        json: As one JSON object.
        device: Where to compute.
    """
    from heedful.predict import load_predictor

    found = load_predictor(model, device).generate(
        text, tokens=tokens, order=order, steps=steps, temperature=temperature, top_k=top_k, seed=seed
    )
    if json:
        say(json_module.dumps(found._asdict(), ensure_ascii=False))
        return
    for number, step in enumerate(found.steps if watch else (), 1):
        say(f"  {number:>3}  {step}")
    say(found.text)


def _lines() -> Iterator[str]:
    if sys.stdin is None:
        raise UserError("standard input is closed; give the text as an argument")
    try:
        yield from (line.rstrip("\r\n") for line in sys.stdin if line.strip())
    except UnicodeDecodeError as error:
        raise UserError(
            f"standard input is not UTF-8 ({error.reason} at byte {error.start}); convert it first"
        ) from None


def _checked(texts: Iterable[str]) -> Iterator[str]:
    """The same texts, each checked when it is its turn."""
    from heedful.data.tokenizer import check_texts

    for text in texts:
        check_texts([text])
        yield text


def _chunks(texts: Iterable[str], size: int = 64) -> Iterator[list[str]]:
    """A few texts at a time, which is quicker than one by one; what is typed is answered line by line."""
    waiting = iter(texts)
    typed = sys.stdin is not None and sys.stdin.isatty()
    while chunk := list(itertools.islice(waiting, 1 if typed else size)):
        yield chunk
