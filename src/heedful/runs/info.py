"""What a folder holds, in words."""

import json
from collections.abc import Sequence
from pathlib import Path

from heedful.config import read_toml
from heedful.data import tokenizer as wordpiece
from heedful.data.vocabularies import load_vocabularies
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
from heedful.runs.folder import RESULT_FILE
from heedful.runs.options import RUN_FILE
from heedful.train import checkpoint, log

POOLS = {"cls": "[CLS]", "mean": "the mean of all states"}
MOST_LABELS = 12
EXPORTED = ("onnx", "ctranslate2", "ctranslate2-int8")
"""Folders within a model's that `heedful export` writes."""


def describe(folder: Path) -> list[tuple[str, str]]:
    """Each thing about a model folder and what is to say of it."""
    require_folder(folder)
    if (folder / word2vec.FILE).is_file():
        vectors = word2vec.load(folder)
        shown = ", ".join(vectors.words[:MOST_LABELS]) + (", …" if len(vectors.words) > MOST_LABELS else "")
        sizes = f"word2vec: {len(vectors.words):,} words, each a vector of {vectors.matrix.shape[1]}"
        return [("vectors", sizes), ("words", shown), *_made(folder)]
    if not (folder / "config.json").is_file() and (folder / RUN_FILE).is_file():
        return _unfinished(folder)
    if translates(folder):
        return _translator(folder) + _made(folder)
    if sees(folder):
        return _classifier(folder) + _made(folder)
    inner, _ = read_pooling(folder)
    model = load_model(inner)
    config = model.config
    shape = (config.layers, config.dim, config.heads)
    size = next((name for name, known in SIZES.items() if known == shape), "of its own size")
    encoder = model if isinstance(model, Bert) else model.bert
    sizes = f"{config.layers} layers, {config.dim} wide, {config.heads} heads"
    lines = [
        ("model", ", ".join([f"{'ModernBERT' if config.modern else 'BERT'} {size}: {sizes}", *config.variations])),
        ("parameters", f"{sum(p.numel() for p in model.parameters()):,}"),
        *_heads(model),
        ("pooler", f"yes, reads {POOLS[config.pool]}" if encoder.pooler is not None else "no"),
        ("reads", f"{config.max_length} tokens at most, {config.segments or 'no'} segments"),
    ]
    if read_document(inner).get("model_type") == MIXED_TYPE:
        lines.append(("transformers", "has no architecture that equals this one; heedful opens it"))
    return lines + _tokenizer(inner) + _made(folder)


def _translator(folder: Path) -> list[tuple[str, str]]:
    model = load_translator(folder)
    config = model.config
    return [
        ("model", _recurrent(config) if isinstance(config, RnnConfig) else _attentive(config)),
        ("parameters", f"{sum(p.numel() for p in model.parameters()):,}"),
        ("reads", f"{config.max_length - 1:,} tokens at most, and writes as many"),
        *_vocabulary(folder),
        _exported(folder),
    ]


def _classifier(folder: Path) -> list[tuple[str, str]]:
    model = load_vit(folder)
    config = model.config
    lines = [
        ("model", _of_patches(config)),
        ("parameters", f"{sum(p.numel() for p in model.parameters()):,}"),
        ("head", "tells images apart" if isinstance(model, ViTClassifier) else "none: an encoder alone"),
        *([("labels", _listed(model.labels))] if isinstance(model, ViTClassifier) else []),
        ("reads", _of_pixels(config)),
        _exported(folder),
    ]
    if not config.published:
        lines.append(("transformers", "has no architecture that equals this one; heedful opens it"))
    return lines


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


def _exported(folder: Path) -> tuple[str, str]:
    exported = [name for name in EXPORTED if (folder / name).is_dir()]
    return "exported", f"for {', '.join(exported)}" if exported else "no"


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


def _vocabulary(folder: Path) -> list[tuple[str, str]]:
    try:
        source, target = load_vocabularies(folder, sos=read_document(folder).get("decoder_start_token_id"))
    except UserError as error:
        return [("vocabulary", str(error))]
    if source is target or source.fingerprint == target.fingerprint:
        return [("vocabulary", f"{source.vocab_size:,} {source.kind} pieces for both languages")]
    return [("vocabulary", f"{source.vocab_size:,} {source.kind} pieces to read, {target.vocab_size:,} to write")]


def _heads(model: Model) -> list[tuple[str, str]]:
    if isinstance(model, BertForTask):
        head = model.head
        return [("head", f"{head.task}: {TASKS[head.task]}"), ("labels", _listed(head.labels))]
    heads = []
    if isinstance(model, BertForPretraining):
        heads += ["masked words"] if model.mlm else []
        heads += ["next sentence"] if model.nsp else []
    return [("heads", ", ".join(heads) or "none: an encoder alone")]


def _unfinished(folder: Path) -> list[tuple[str, str]]:
    saved = checkpoint.steps(folder / "checkpoints")
    at = f"last checkpoint {saved[-1].name}" if saved else "no checkpoint yet"
    return [
        ("run", f"unfinished, {at}"),
        ("go on with", f"heedful {_command(folder)} --resume --out {folder}"),
        *_made(folder),
    ]


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
    read = tables.get("corpus") or tables.get("train") or [*tables.get("source", []), *tables.get("target", [])]
    read = [tables["data"]] if "data" in tables else read
    lines = [("trained on", ", ".join(read) or "not said")]
    if tables.get("start_from"):
        lines.append(("started from", tables["start_from"]))
    if (folder / log.FILE).is_file():
        reports = log.read(folder)
        tests = [line for line in reports if line["kind"] == "heldout"]
        if reports:
            lines.append(("steps", f"{reports[-1]['step']:,}, {reports[-1]['tokens']:,} tokens"))
        if (folder / RESULT_FILE).is_file():  # of the best checkpoint, which need not be the last
            scores = json.loads((folder / RESULT_FILE).read_text(encoding="utf-8"))["scores"]
            lines.append(("held out", log.describe(scores)))
        elif tests:
            numbers = {name: value for name, value in tests[-1].items() if not isinstance(value, str)}
            lines.append(("held out", log.describe(numbers)))
    made = tables.get("made", {})
    if made:
        lines.append(("made with", ", ".join(f"{name} {version}" for name, version in made.items())))
    return lines
