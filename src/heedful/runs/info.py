"""What a folder holds, in words."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from torch import nn

from heedful.config import read_toml
from heedful.data import tokenizer as wordpiece
from heedful.data.vocabularies import load_vocabularies
from heedful.durable import alone
from heedful.errors import UserError
from heedful.formats import word2vec
from heedful.formats.documents import read_document, require_folder
from heedful.formats.huggingface import MIXED_TYPE, Model, load_model
from heedful.formats.sentence_transformers import read_pooling
from heedful.formats.translators import load_translator
from heedful.formats.vit import load_vit
from heedful.models import rnn, transformer, vit
from heedful.models.bert import SIZES, Bert, BertForPretraining
from heedful.models.heads import TASKS, BertForTask
from heedful.models.rnn import RnnConfig
from heedful.models.transformer import TransformerConfig
from heedful.models.vit import ViTClassifier, ViTConfig
from heedful.predict.loading import sees, translates
from heedful.runs.folder import DIVERGED_FILE, RESULT_FILE, VERSIONS
from heedful.runs.recipe_files import RUN_FILE, how_made
from heedful.runs.training import resume_command
from heedful.train import checkpoint, log
from heedful.train.distributed import World

POOLS = {"cls": "[CLS]", "mean": "the mean of all states"}
MOST_LABELS = 12
EXPORTED = ("onnx", "ctranslate2", "ctranslate2-int8")
"""Folders within a model's that `heedful export` writes."""


class Fact(NamedTuple):
    """Something about a folder."""

    name: str
    text: str | None
    """For people; None where the others say it already."""
    value: Any = None
    """For programs; None where the text is all there is."""


def describe(folder: Path) -> list[tuple[str, str]]:
    """Each thing about a model folder and what is to say of it."""
    return [(one.name, one.text) for one in _facts(folder) if one.text is not None]


def as_json(folder: Path) -> dict[str, Any]:
    """The same for programs: numbers as numbers, and whole lists."""
    return {one.name: one.text if one.value is None else one.value for one in _facts(folder)}


def _facts(folder: Path) -> list[Fact]:
    require_folder(folder)
    if (folder / word2vec.FILE).is_file():
        vectors = word2vec.load(folder)
        shown = ", ".join(vectors.words[:MOST_LABELS]) + (", …" if len(vectors.words) > MOST_LABELS else "")
        sizes = f"word2vec: {len(vectors.words):,} words, each a vector of {vectors.matrix.shape[1]}"
        counts = {"words": len(vectors.words), "dim": vectors.matrix.shape[1]}
        return [Fact("vectors", sizes, counts), Fact("words", shown, list(vectors.words)), *_made(folder)]
    if not (folder / "config.json").is_file() and (folder / RUN_FILE).is_file():
        return _unfinished(folder)
    if translates(folder):
        return _translator(folder) + _made(folder)
    if sees(folder):
        return _classifier(folder)
    inner, _ = read_pooling(folder)
    model = load_model(inner)
    config = model.config
    shape = (config.layers, config.dim, config.heads)
    size = next((name for name, known in SIZES.items() if known == shape), "of its own size")
    encoder = model if isinstance(model, Bert) else model.bert
    sizes = f"{config.layers} layers, {config.dim} wide, {config.heads} heads"
    mixed = read_document(inner).get("model_type") == MIXED_TYPE
    family = "ModernBERT" if config.modern and not mixed else "BERT"
    lines = [
        Fact("model", ", ".join([f"{family} {size}: {sizes}", *config.variations])),
        _shape(config, "layers", "dim", "heads"),
        _parameters(model),
        *_heads(model),
        Fact(
            "pooler",
            f"yes, reads {POOLS[config.pool]}" if encoder.pooler is not None else "no",
            encoder.pooler is not None,
        ),
        Fact(
            "reads",
            f"{config.max_length} tokens at most, {config.segments or 'no'} segments",
            {"tokens": config.max_length, "segments": config.segments},
        ),
    ]
    if mixed:
        lines.append(Fact("transformers", "has no architecture that equals this one; heedful opens it"))
    return lines + _tokenizer(inner) + _made(folder)


def _translator(folder: Path) -> list[Fact]:
    model = load_translator(folder)
    config = model.config
    most = config.max_length - 1
    return [
        Fact("model", _recurrent(config) if isinstance(config, RnnConfig) else _attentive(config)),
        _shape(config, "encoder_layers", "decoder_layers", "layers", "dim", "heads", "cell", "score"),
        _parameters(model),
        Fact("reads", f"{most:,} tokens at most, and writes as many", {"tokens": most}),
        *_vocabulary(folder),
        _exported(folder),
    ]


def _classifier(folder: Path) -> list[Fact]:
    model = load_vit(folder)
    config = model.config
    lines = [
        Fact("model", _of_patches(config)),
        _shape(config, "layers", "dim", "heads", "patch_size"),
        _parameters(model),
        Fact("head", "tells images apart" if isinstance(model, ViTClassifier) else "none: an encoder alone"),
        *([Fact("labels", _listed(model.labels), list(model.labels))] if isinstance(model, ViTClassifier) else []),
        Fact("reads", _of_pixels(config), {"pixels": config.image_size, "channels": config.channels}),
        _exported(folder),
    ]
    if not config.published:
        lines.append(Fact("transformers", "has no architecture that equals this one; heedful opens it"))
    return lines + _made(folder)


def _parameters(model: nn.Module) -> Fact:
    count = sum(p.numel() for p in model.parameters())
    return Fact("parameters", f"{count:,}", count)


def _shape(config: Any, *names: str) -> Fact:
    """What of these a model has, for programs; people read it in words."""
    return Fact("shape", None, {name: getattr(config, name) for name in names if hasattr(config, name)})


def _of_patches(config: ViTConfig) -> str:
    shape = (config.layers, config.dim, config.heads)
    size = next((name for name, known in vit.SIZES.items() if known == shape), "of its own size")
    layers = f"ViT {size}: {config.layers} layers, {config.dim} wide, {config.heads} heads"
    patches = f"{config.side} x {config.side} patches of {config.patch_size} x {config.patch_size} pixels"
    return ", ".join([layers, patches, *config.variations])


def _of_pixels(config: ViTConfig) -> str:
    colours = {1: "grey", 3: "RGB"}.get(config.channels, f"{config.channels} channels")
    edge = config.pixels.edge
    others = "stretched" if edge is None else "cut to the middle" if edge <= config.image_size else "cut closer"
    return f"{config.image_size} x {config.image_size} pixels, {colours}; images of other shapes are {others}"


def _exported(folder: Path) -> Fact:
    exported = [name for name in EXPORTED if (folder / name).is_dir()]
    return Fact("exported", f"for {', '.join(exported)}" if exported else "no", exported)


def _listed(labels: Sequence[str]) -> str:
    return f"{len(labels)}: {', '.join(labels[:MOST_LABELS])}{', …' if len(labels) > MOST_LABELS else ''}"


def _attentive(config: TransformerConfig) -> str:
    shape = (config.encoder_layers, config.dim, config.heads, config.ffn_dim)
    size = next((name for name, known in transformer.SIZES.items() if known == shape), "of its own size")
    layers = f"{config.encoder_layers}+{config.decoder_layers} layers, {config.dim} wide, {config.heads} heads"
    return f"Transformer {size}: {layers}, norms {'before the sublayers' if config.pre_norm else 'as published'}"


def _recurrent(config: RnnConfig) -> str:
    size = next(
        (name for name, known in rnn.SIZES.items() if known == (config.layers, config.dim)), "of its own size"
    )
    layers = f"{config.layers}+{config.layers} {config.cell.upper()} layers, {config.dim} wide"
    ways = "read both ways" if config.bidirectional else "read one way"
    return f"RNN {size}: {layers}, {ways}, {config.score} attention"


def _vocabulary(folder: Path) -> list[Fact]:
    try:
        source, target = load_vocabularies(folder, sos=read_document(folder).get("decoder_start_token_id"))
    except UserError as error:
        return [Fact("vocabulary", str(error))]
    counts = {"kind": source.kind, "source": source.vocab_size, "target": target.vocab_size}
    if source is target or source.fingerprint == target.fingerprint:
        said = f"{source.vocab_size:,} {source.kind} pieces for both languages"
    else:
        said = f"{source.vocab_size:,} {source.kind} pieces to read, {target.vocab_size:,} to write"
    return [Fact("vocabulary", said, counts)]


def _heads(model: Model) -> list[Fact]:
    if isinstance(model, BertForTask):
        head = model.head
        labels = Fact("labels", _listed(head.labels), list(head.labels))
        return [Fact("head", f"{head.task}: {TASKS[head.task]}"), labels]
    heads = []
    if isinstance(model, BertForPretraining):
        heads += ["masked words"] if model.mlm else []
        heads += ["next sentence"] if model.nsp else []
    return [Fact("heads", ", ".join(heads) or "none: an encoder alone", heads)]


def _unfinished(folder: Path) -> list[Fact]:
    saved = checkpoint.steps(folder / "checkpoints")
    at = f"last checkpoint {saved[-1].name}" if saved else "no checkpoint yet"
    if (folder / DIVERGED_FILE).is_file():
        why = (folder / DIVERGED_FILE).read_text(encoding="utf-8").strip()
        return [Fact("run", f"diverged, {at}"), Fact("why", why), *_made(folder)]
    try:
        with alone(folder):
            pass
    except UserError:  # somebody is in it
        return [Fact("run", f"going on, {at}"), *_made(folder)]
    again = resume_command(_command(folder), folder, World(ranks=_processes(saved)))
    return [Fact("run", f"unfinished, {at}"), Fact("go on with", again), *_made(folder)]


def _processes(saved: Sequence[Path]) -> int:
    """How many a run had when it saved its last checkpoint."""
    try:
        return json.loads((saved[-1] / "state.json").read_text(encoding="utf-8"))["ranks"]
    except (OSError, ValueError, LookupError, TypeError):
        return 1


TELLING = {
    "pairs": "train-translator",
    "images": "train-vision",
    "vectors": "train-vectors",
    "task": "finetune",
}
"""A table of heedful.toml that one command alone writes."""


def _command(folder: Path) -> str:
    """What makes a folder like this."""
    told = read_toml(folder / RUN_FILE)
    for part, command in TELLING.items():
        if part in told:
            return command
    return "pretrain"


def _tokenizer(folder: Path) -> list[Fact]:
    try:
        found = wordpiece.load(folder)
    except UserError as error:
        return [Fact("tokenizer", str(error))]
    counts = {"tokens": found.vocab_size, "case": wordpiece.case(found)}
    return [Fact("tokenizer", f"{found.vocab_size:,} tokens, {wordpiece.case(found)}", counts)]


def _made(folder: Path) -> list[Fact]:
    """How a folder came about."""
    if not (folder / RUN_FILE).is_file():
        return []
    tables = read_toml(folder / RUN_FILE)
    read = tables.get("corpus") or tables.get("train") or [*tables.get("source", []), *tables.get("target", [])]
    if isinstance(tables.get("data"), str):  # what a ViT saw; for texts it is a table of options
        read = [tables["data"]]
    read = [str(one) for one in (read if isinstance(read, list) else [read])]
    lines = [Fact("trained on", ", ".join(read) or "not said", read)]
    if tables.get("start_from"):
        lines.append(Fact("started from", tables["start_from"]))
    if (folder / log.FILE).is_file():
        reports = log.read(folder)
        tests = [line for line in reports if line["kind"] == "heldout"]
        if reports:
            step = reports[-1]["step"]
            counts = {unit: [line[unit] for line in reports if unit in line] for unit in ("images", "tokens")}
            unit, seen = next(((unit, each[-1]) for unit, each in counts.items() if each), ("tokens", 0))
            lines += [Fact("steps", f"{step:,}, {seen:,} {unit}", step), Fact(unit, None, seen)]
        if (folder / RESULT_FILE).is_file():  # of the best checkpoint, which need not be the last
            scores = json.loads((folder / RESULT_FILE).read_text(encoding="utf-8"))["scores"]
            lines.append(Fact("held out", log.describe(scores), scores))
        elif tests:
            numbers = {name: value for name, value in tests[-1].items() if not isinstance(value, str)}
            lines.append(Fact("held out", log.describe(numbers), numbers))
    made = {name: version for name, version in how_made(tables, folder / RUN_FILE).items() if name in VERSIONS}
    if made:
        lines.append(Fact("made with", ", ".join(f"{name} {version}" for name, version in made.items()), made))
    return lines
