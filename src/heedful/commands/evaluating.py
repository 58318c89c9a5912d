"""The command that measures a model: one for all kinds, whose options depend on what the model does."""

import json as json_module
from pathlib import Path
from typing import Annotated, Any, Literal

from tyro.conf import FlagCreatePairsOff, Positional, UseAppendAction, arg

from heedful.arguments import optional
from heedful.commands.output import say, warn
from heedful.errors import UserError

Flag = Annotated[bool, FlagCreatePairsOff]
Column = Annotated[str | None, optional(metavar="COLUMN")]
BEAM, WORST = 5, 5


def evaluate(
    model: Annotated[Positional[Path], arg(metavar="MODEL")],
    file: Annotated[Positional[tuple[str, ...]], optional(metavar="FILE…")] = (),
    text: Column = None,
    pair: Column = None,
    label: Annotated[UseAppendAction[tuple[str, ...]], optional(metavar="COLUMN")] = (),
    separator: Annotated[str | None, optional(metavar="TEXT")] = None,
    source: Column = None,
    target: Column = None,
    language: Annotated[str | None, optional(metavar="CODE")] = None,
    tokenised: Flag = False,
    beam: Annotated[int | None, optional(metavar="N")] = None,
    length_penalty: Annotated[float | None, optional(metavar="A")] = None,
    length: Annotated[int | None, optional(metavar="N")] = None,
    worst: Annotated[int | None, optional(metavar="N")] = None,
    predictions: Annotated[Path | None, optional(metavar="FILE")] = None,
    picture: Annotated[Path | None, optional(metavar="FILE")] = None,
    json: Flag = False,
    truncate: Flag = False,
    skip_bad: Flag = False,
    errors: Literal["strict", "replace"] = "strict",
    engine: Literal["torch", "onnx", "ctranslate2"] = "torch",
    int8: Flag = False,
    device: Literal["auto", "cpu", "cuda"] = "auto",
    precision: Literal["auto", "fp32", "fp16", "bf16"] = "auto",
) -> None:
    """How good a model is: on labelled data, or a pretrained one on text. Metrics, confusions, the worst mistakes.

    Args:
        model: A model folder: a pretrained model, a fine-tuned one, a translator, or an image classifier.
        file: Labelled data as `heedful finetune` takes it; for a pretrained model plain text, or prepared shards, of
            which what they hold out is asked about; for a translator tables of pairs, or a file of sources and the
            file of their translations; for an image classifier what `heedful train-vision` takes, or nothing if it
            was trained on the digits.
        text: Column of the text. By default as in training where the file has it, or else found by itself when its
            name is usual, like the others.
        pair: Column of the second text, for pairs.
        label: Column of the label or the number; several times for several numbers.
        separator: What separates several labels in a column of text (by default as in training).
        source: Translators: column of the source.
        target: Translators: column of the reference.
        language: Translators: language of the references (ko, ja, zh, …), by which BLEU cuts them into words.
        tokenised: Translators: also the BLEU of older papers, lower-cased and tokenised.
        beam: Translators: hypotheses that are followed at once (5 by default).
        length_penalty: Translators: higher favours longer translations (1 by default).
        length: Pretrained models: tokens in a sequence, special ones included (128 by default).
        worst: Mistakes to show (5 by default): those that the model was surest of, of a translator those with the
            lowest chrF.
        predictions: Write truth and answer of every example here, one JSON object a line.
        picture: Draw the confusion matrix here, as png, svg or pdf.
        json: Everything as one JSON object.
        truncate: Cut texts that are too long, where else they are refused.
        skip_bad: Pass over rows or image files that can't be used. How many is said.
        errors: Texts: what to do with bytes that are not UTF-8.
        engine: What computes: torch, or what `heedful export` wrote.
        int8: With --engine onnx or ctranslate2, the smaller and faster file.
        device: Where torch computes.
        precision: How exactly: fp16 by default on a GPU, always fp32 on a CPU.
    """
    from heedful.predict import ImagePredictor, Predictor, Translator, load
    from heedful.runs.finetune_options import DataPart, trained_with

    if worst is not None and worst < 0:
        raise UserError(f"worst {worst} must not be negative; 0 shows no mistakes")
    if picture is not None:
        from heedful.runs.pictures import check_format

        check_format(picture)
    if predictions is not None and not predictions.parent.is_dir():
        raise UserError(f"{predictions} can't be written: there is no folder {predictions.parent}; make it first")
    file = file or _own(model)
    mistakes = WORST if worst is None else worst
    loaded = load(model, device, precision=precision, engine=engine, int8=int8)
    of_texts = {"text": text, "pair": pair, "label": label, "separator": separator}
    of_translators = {"source": source, "target": target, "language": language, "tokenised": tokenised}
    of_translators |= {"beam": beam, "length-penalty": length_penalty}
    pretrained = isinstance(loaded, Predictor) and loaded.head is None and loaded.words is not None
    if not pretrained:
        _refuse({"length": length}, f"is for pretrained models, which {model} is not")
    if isinstance(loaded, Translator):
        _refuse(of_texts | {"picture": picture}, f"says nothing to {model}, which translates")
        from heedful.decode import SearchOptions
        from heedful.runs import translator_evaluate as run
        from heedful.runs.translator_options import PairsPart

        test = run.TranslationTest(
            source=source,
            target=target,
            pairs=PairsPart(errors=errors, skip_bad=skip_bad),
            search=SearchOptions(
                beam=BEAM if beam is None else beam, length_penalty=1.0 if length_penalty is None else length_penalty
            ),
            language=language,
            tokenised=tokenised,
            truncate=truncate,
            worst=mistakes,
        )
        _tell(run, run.evaluate(loaded, file, test), json, predictions)
        return
    _refuse(of_translators, f"is for translators, which {model} is not")
    if isinstance(loaded, ImagePredictor):
        of_texts |= {"truncate": truncate, "errors": errors != "strict"}
        _refuse(of_texts, f"says nothing to {model}, which reads images")
        _of_images(loaded, model, file, mistakes, json, predictions, picture, skip_bad)
        return
    if pretrained:
        others = {
            "pair": pair,
            "label": label,
            "separator": separator,
            "picture": picture,
            "predictions": predictions,
            "worst": worst,
        }
        others |= {"truncate": truncate, "skip-bad": skip_bad}
        _refuse(others, f"says nothing to {model}, which fills blanks")
        from heedful.runs import pretrained_evaluate as run
        from heedful.runs.options import TextPart

        _tell(run, run.evaluate(loaded, file, TextPart(text=text, errors=errors), length), json, None)
        return
    if loaded.head is None and engine != "torch":
        raise UserError(f"a model without a head of its own is evaluated with torch; leave --engine {engine} out")
    trained = trained_with(model)
    part = DataPart(
        text=text,
        pair=pair,
        label=label,
        separator=trained.separator if separator is None else separator,
        errors=errors,
        truncate=truncate,
        skip_bad=skip_bad,
    )
    _with_head(loaded, file, part, trained.columns, mistakes, json, predictions, picture)


def _own(model: Path) -> tuple[str, ...]:
    """What a model is evaluated on where nothing is named, if there is such a thing."""
    from heedful.predict.loading import sees

    if not sees(model):
        raise UserError("FILE… is missing: name data to evaluate on (heedful evaluate --help says more)")
    from heedful.runs.image_evaluate import own_images

    return (own_images(model),)


def _with_head(
    predictor: Any,
    names: tuple[str, ...],
    part: Any,
    trained: Any,
    worst: int,
    json: bool,
    rows: Path | None,
    picture: Path | None,
) -> None:
    from heedful.runs import dataset
    from heedful.runs import evaluate as run

    if picture is not None and not run.has_confusion(predictor):
        raise UserError("this task has no confusion matrix to draw; leave --picture out")
    result = run.evaluate(predictor, dataset.files(names), part, worst=worst, trained=trained)
    _tell(run, result, json, rows)
    _draw(result.report.confusion, result.head.labels, picture, json)


def _of_images(
    predictor: Any,
    folder: Path,
    names: tuple[str, ...],
    worst: int,
    json: bool,
    rows: Path | None,
    picture: Path | None,
    skip_bad: bool,
) -> None:
    from heedful.runs import image_evaluate as run

    if len(names) != 1:
        raise UserError(f"{len(names)} names, but images are evaluated one folder or file at a time; give one")
    result = run.evaluate(predictor, names[0], folder=folder, worst=worst, skip_bad=skip_bad, every=rows is not None)
    _tell(run, result, json, rows)
    _draw(result.report.confusion, predictor.labels, picture, json)


def _tell(run: Any, result: Any, json: bool, rows: Path | None) -> None:
    """Say what was found, as the module that found it words it, and write every answer if that is asked for."""
    if json:
        say(json_module.dumps(run.as_json(result), ensure_ascii=False, indent=2))
    else:
        for line in run.lines(result):
            say(line)
    if rows is not None:
        run.write_predictions(result, rows)
        if not json:
            say(f"wrote {rows}")


def _draw(confusion: Any, labels: Any, picture: Path | None, json: bool) -> None:
    """Draw what is taken for what, if that is asked for and the task has such a thing."""
    if picture is None or confusion is None:
        return
    from heedful.runs import pictures

    if lacks := pictures.confusion(confusion, labels, picture):
        warn(lacks)
    if not json:
        say(f"drew {picture}")


def _refuse(given: dict[str, Any], why: str) -> None:
    """Refuse options that this kind of model has no use for."""
    for flag, value in given.items():
        if value is not None and value is not False and value != ():
            raise UserError(f"--{flag} {why}; leave it out")
