"""What a folder holds, in words."""

from pathlib import Path

from heedful.config import read_toml
from heedful.data import tokenizer as wordpiece
from heedful.errors import UserError
from heedful.formats.huggingface import load_model
from heedful.models.bert import SIZES, Bert
from heedful.runs.options import RUN_FILE
from heedful.train import checkpoint, log


def describe(folder: Path) -> list[tuple[str, str]]:
    """Each thing about a model folder and what is to say of it."""
    if not folder.is_dir():
        raise UserError(f"{folder} is not a model folder: there is no such folder")
    if not (folder / "config.json").is_file() and (folder / RUN_FILE).is_file():
        return _unfinished(folder)
    model = load_model(folder)
    config = model.config
    shape = (config.layers, config.dim, config.heads)
    size = next((name for name, known in SIZES.items() if known == shape), "of its own size")
    heads = ["masked words"] if not isinstance(model, Bert) and model.mlm else []
    heads += ["next sentence"] if not isinstance(model, Bert) and model.nsp else []
    encoder = model if isinstance(model, Bert) else model.bert
    lines = [
        ("model", f"BERT {size}: {config.layers} layers, {config.dim} wide, {config.heads} heads"),
        ("parameters", f"{sum(p.numel() for p in model.parameters()):,}"),
        ("heads", ", ".join(heads) or "none: an encoder alone"),
        ("pooler", "yes" if encoder.pooler is not None else "no"),
        ("reads", f"{config.max_length} tokens at most, {config.segments} segments"),
    ]
    return lines + _tokenizer(folder) + _made(folder)


def _unfinished(folder: Path) -> list[tuple[str, str]]:
    saved = checkpoint.steps(folder / "checkpoints")
    at = f"last checkpoint {saved[-1].name}" if saved else "no checkpoint yet"
    return [
        ("run", f"unfinished, {at}"),
        ("go on with", f"heedful pretrain --resume --out {folder}"),
        *_made(folder),
    ]


def _tokenizer(folder: Path) -> list[tuple[str, str]]:
    try:
        found = wordpiece.load(folder)
    except UserError as error:
        return [("tokenizer", str(error))]
    return [("tokenizer", f"{found.vocab_size:,} tokens, {wordpiece.case(found)}")]


def _made(folder: Path) -> list[tuple[str, str]]:
    if not (folder / RUN_FILE).is_file():
        return []
    tables = read_toml(folder / RUN_FILE)
    lines = [("trained on", ", ".join(tables.get("corpus", [])) or "not said")]
    if tables.get("start_from"):
        lines.append(("started from", tables["start_from"]))
    if (folder / log.FILE).is_file():
        reports = log.read(folder)
        tests = [line for line in reports if line["kind"] == "heldout"]
        if reports:
            lines.append(("steps", f"{reports[-1]['step']:,}, {reports[-1]['tokens']:,} tokens"))
        if tests:
            numbers = {name: value for name, value in tests[-1].items() if not isinstance(value, str)}
            lines.append(("held out", log.describe(numbers)))
    made = tables.get("made", {})
    if made:
        lines.append(("made with", ", ".join(f"{name} {version}" for name, version in made.items())))
    return lines
