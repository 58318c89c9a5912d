"""BERT folders in Hugging Face's layout: `config.json` and `model.safetensors` with transformers' names.

This file holds BERT's table of names, `modernbert.py` that of encoders with all of the newer options. transformers
has no BERT that classifies by the mean of the states: such a folder carries the few lines that teach it
(`modeling_heedful.py`), under a model type of its own, so that nobody opens it as a BERT that reads `[CLS]` and gets
other numbers. For any other mix of options it has nothing equal: the folder has a type of its own too, and says so.
"""

import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from heedful.durable import write_file
from heedful.errors import UserError
from heedful.formats import documents, modernbert
from heedful.formats.weights import check_weights, folded, read_weights
from heedful.models.bert import Bert, BertConfig, BertForPretraining
from heedful.models.heads import ANSWER_ENDS, BertForTask, Head

Model = Bert | BertForPretraining | BertForTask

NAMES = {
    "bert.embeddings.tokens": "bert.embeddings.word_embeddings",
    "bert.embeddings.positions": "bert.embeddings.position_embeddings",
    "bert.embeddings.segments": "bert.embeddings.token_type_embeddings",
    "bert.embeddings.norm": "bert.embeddings.LayerNorm",
    "bert.layers.#.attention.query": "bert.encoder.layer.#.attention.self.query",
    "bert.layers.#.attention.key": "bert.encoder.layer.#.attention.self.key",
    "bert.layers.#.attention.value": "bert.encoder.layer.#.attention.self.value",
    "bert.layers.#.attention.output": "bert.encoder.layer.#.attention.output.dense",
    "bert.layers.#.attention_norm": "bert.encoder.layer.#.attention.output.LayerNorm",
    "bert.layers.#.feed_forward.inner": "bert.encoder.layer.#.intermediate.dense",
    "bert.layers.#.feed_forward.outer": "bert.encoder.layer.#.output.dense",
    "bert.layers.#.feed_forward_norm": "bert.encoder.layer.#.output.LayerNorm",
    "bert.pooler": "bert.pooler.dense",
    "bert.pooler.dense": "bert.pooler.transform.dense",
    "bert.pooler.norm": "bert.pooler.transform.LayerNorm",
    "bert.final_norm": "bert.encoder.final_norm",
    "mlm.transform.dense": "cls.predictions.transform.dense",
    "mlm.transform.norm": "cls.predictions.transform.LayerNorm",
    "mlm": "cls.predictions",
    "nsp": "cls.seq_relationship",
    "output": "classifier",
}
"""Our modules and transformers'; # stands for the layer's number. Parameters keep their last name. What transformers'
BERT lacks, the final norm and another pooler, has names after the same manner."""

PARAMETERS = {"mlm.decoder": "cls.predictions.decoder.weight"}
"""The parameters whose last name differs too."""

WORD_BIASES = ("cls.predictions.bias", "cls.predictions.decoder.bias")
"""Two names of one bias. Where the decoder is tied transformers adds the first, else the second."""

OLD_ENDINGS = {"gamma": "weight", "beta": "bias"}
ANSWER_HEAD = "qa_outputs."
"""The head that finds answers; every other one is the `classifier`."""
HEADS = ("classifier.", ANSWER_HEAD)
ARCHITECTURES = {
    "classify": "BertForSequenceClassification",
    "multilabel": "BertForSequenceClassification",
    "regress": "BertForSequenceClassification",
    "tag": "BertForTokenClassification",
    "answer": "BertForQuestionAnswering",
}
PROBLEMS = {
    "classify": "single_label_classification",
    "multilabel": "multi_label_classification",
    "regress": "regression",
}
"""transformers' words for what is asked of a sequence."""
HEAD_KEYS = ("length", "overlap", "may_be_empty", "pairs")
"""What our folders say of a head besides, which transformers passes over."""
MEAN_TYPE, MEAN_ARCHITECTURE = "heedful_bert", "HeedfulBertForSequenceClassification"
MEAN_CODE = "modeling_heedful.py"
MIXED_TYPE = "heedful_mixed_bert"
"""Encoders that are neither the published BERT nor a ModernBERT."""
MIXED_NOTE = "a mix of options that no architecture of transformers equals; heedful opens it"
MIXED_KEYS = ("pool", "pre_norm", "positions", "rotary_base", "gated", "bias")
"""What only their folders say, under our own names."""
TYPES = ("bert", modernbert.TYPE, MEAN_TYPE, MIXED_TYPE)
"""The types of model that this module opens."""
CONFIG_KEYS = {
    "vocab_size": "vocab_size",
    "layers": "num_hidden_layers",
    "dim": "hidden_size",
    "heads": "num_attention_heads",
    "ffn_dim": "intermediate_size",
    "max_length": "max_position_embeddings",
    "segments": "type_vocab_size",
    "activation": "hidden_act",
    "dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
    "norm_eps": "layer_norm_eps",
    "init_std": "initializer_range",
    "tied": "tie_word_embeddings",
}


def load_model(folder: str | Path, *, outline: bool = False) -> Model:
    """The model in a BERT folder, ours or anyone's, ready to use: with the heads that its weights have.

    For an `outline` its numbers are not read: it has parts and shapes, and computes nothing.
    """
    folder = Path(folder)
    document = read_document(folder)
    config = _config(folder, document)
    theirs = read_weights(folder, outline=outline)
    head = _head(folder, document, theirs)
    if head is None:
        for name in sorted({name.split(".")[0] for name in theirs if name.startswith(HEADS)}):
            warnings.warn(f"the weights of the head {name!r} are left out", stacklevel=2)
        theirs = {name: tensor for name, tensor in theirs.items() if not name.startswith(HEADS)}
    modern = document["model_type"] == modernbert.TYPE
    weights = modernbert.ours(theirs, head) if modern else _ours(theirs, config.tied)
    mlm, nsp = "mlm.bias" in weights, "nsp.weight" in weights
    pooler = any(name.startswith("bert.pooler.") for name in weights)
    if (nsp or (head is not None and head.reads_sequence)) and not pooler:
        kind = "next-sentence head" if nsp else "head for sequences"
        raise UserError(f"{folder} has a {kind} but no pooler to feed it; its weights are incomplete")
    with torch.device("meta"):
        if head is None:
            model = BertForPretraining(config, mlm=mlm, nsp=nsp, pooler=pooler)
        else:
            model = BertForTask(config, head)
            weights = {name: tensor for name, tensor in weights.items() if not name.startswith(("mlm.", "nsp."))}
            if not head.reads_sequence:  # an old version keeps a pooler that nothing reads
                weights = {name: tensor for name, tensor in weights.items() if not name.startswith("bert.pooler.")}
    _check(folder, weights, model, modern)
    model.load_state_dict(weights, assign=True)
    for parameter in model.parameters():
        parameter.requires_grad_()
    model.eval()
    return model.bert if isinstance(model, BertForPretraining) and not mlm and not nsp else model


def save_model(model: Model, folder: str | Path) -> None:
    """Write `config.json` and `model.safetensors`; the weights take their name last, when they are whole."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    modern = modernbert.fits(model)
    document = {
        "architectures": [_architecture(model)],
        "model_type": "bert",
        "pad_token_id": 0,
        "dtype": "float32",
        **({} if modern else {theirs: getattr(model.config, ours) for ours, theirs in CONFIG_KEYS.items()}),
        **(_head_document(model.head) if isinstance(model, BertForTask) else {}),
    }
    document |= modernbert.document(model.config, _architecture(model)) if modern else _unlike_bert(model)
    if document["model_type"] == MEAN_TYPE:
        write_file(folder / MEAN_CODE, Path(__file__).with_name(MEAN_CODE).read_bytes())
    documents.write_document(folder / "config.json", document)
    documents.write_weights(folder, modernbert.theirs(model) if modern else _theirs(model))


def opens_elsewhere(model: Model) -> bool:
    """Whether transformers has an architecture that equals the model's."""
    return model.config.published or modernbert.fits(model)


def _unlike_bert(model: Model) -> dict[str, Any]:
    """What the config.json says of a model that no BERT of transformers equals; nothing if one does."""
    config = model.config
    encoder = model if isinstance(model, Bert) else model.bert
    if config.published:
        return _mean_document() if config.pool == "mean" and encoder.pooler is not None else {}
    return {
        "model_type": MIXED_TYPE,
        "architectures": [f"Heedful{_architecture(model)}"],
        "note": MIXED_NOTE,
        **{name: getattr(config, name) for name in MIXED_KEYS},
        **({CONFIG_KEYS["segments"]: 0} if config.segments == 1 else {}),  # it is in every token: see `_theirs`
    }


def _theirs(model: Model) -> dict[str, Tensor]:
    prefix = "bert." if isinstance(model, Bert) else ""
    config, state = model.config, model.state_dict()
    if config.segments == 1 and not config.published:  # so that it can learn to read pairs
        state = folded(state)
    weights = {_name_in(model, prefix + name).removeprefix(prefix): tensor for name, tensor in state.items()}
    if not model.config.tied and WORD_BIASES[0] in weights:
        weights[WORD_BIASES[1]] = weights[WORD_BIASES[0]].clone()
    return weights


def their_name(name: str) -> str:
    """transformers' name for one of our parameters."""
    if name in PARAMETERS:
        return PARAMETERS[name]
    module, _, ending = name.rpartition(".")
    number = re.search(r"\.(\d+)\.", module)
    their_module = NAMES[re.sub(r"\.\d+\.", ".#.", module)]
    return f"{their_module.replace('#', number[1]) if number else their_module}.{ending}"


def _name_in(model: nn.Module, name: str) -> str:
    """transformers' name for a parameter of this model, whose head may be the one that finds answers."""
    answers = isinstance(model, BertForTask) and model.head.task == "answer"
    return their_name(name).replace(HEADS[0], ANSWER_HEAD) if answers else their_name(name)


def read_config(folder: Path) -> BertConfig:
    """The shape of the model in a folder."""
    return _config(folder, read_document(folder))


def read_document(folder: Path) -> dict[str, Any]:
    """A folder's config.json, as long as it is a BERT's."""
    document = documents.read_document(folder)
    kind = document.get("model_type")
    if kind not in TYPES:
        raise UserError(f"{folder} holds a model of type {kind!r}; only 'bert' and 'modernbert' can be loaded")
    if document.get("position_embedding_type", "absolute") != "absolute":
        raise UserError(
            f"{folder} uses {document['position_embedding_type']} positions; only absolute ones are known"
        )
    if document.get("is_decoder"):
        raise UserError(f"{folder} is a decoder; only encoders can be loaded")
    return document


def _config(folder: Path, document: dict[str, Any]) -> BertConfig:
    config = _told(folder, document)
    if config.dim % config.heads:
        problem = f"num_attention_heads {config.heads} does not divide hidden_size {config.dim}"
        raise UserError(f"{folder / 'config.json'}: {problem}; the folder is damaged")
    return config


def _told(folder: Path, document: dict[str, Any]) -> BertConfig:
    if document["model_type"] == modernbert.TYPE:
        return modernbert.read_config(folder, document)
    path = folder / "config.json"
    known = {ours: document[theirs] for ours, theirs in CONFIG_KEYS.items() if document.get(theirs) is not None}
    if "vocab_size" not in known:
        raise UserError(f"{path} has no vocab_size; the folder is damaged")
    for ours, value in known.items():
        kind = BertConfig.__annotations__[ours]
        if not isinstance(value, int | float if kind is float else kind):
            raise UserError(f"{path}: {CONFIG_KEYS[ours]} is {value!r} but must be of type {kind.__name__}")
    if document["model_type"] == MIXED_TYPE:
        kinds = BertConfig.__annotations__
        return BertConfig(
            **known, **{name: documents.setting(path, document, name, kinds[name]) for name in MIXED_KEYS}
        )
    return BertConfig(**known, pool="mean" if document["model_type"] == MEAN_TYPE else "cls")


def _head(folder: Path, document: dict[str, Any], theirs: Mapping[str, Tensor]) -> Head | None:
    """What the weights of a folder's head are for; None without one that is known."""
    known = document.get("heedful")
    extra = {name: known[name] for name in HEAD_KEYS if name in known} if isinstance(known, dict) else {}
    if ANSWER_HEAD + "weight" in theirs:
        return Head(task="answer", labels=ANSWER_ENDS, **extra)
    if "classifier.weight" not in theirs:
        return None
    outputs = len(theirs["classifier.weight"])
    labels = documents.read_labels(folder, document, outputs)
    named = document.get("architectures")
    architecture = str(named[0]) if isinstance(named, list) and named else ARCHITECTURES["classify"]
    architecture = architecture.removeprefix("Heedful").removeprefix("Modern")
    if architecture == ARCHITECTURES["answer"] and outputs == len(ANSWER_ENDS):
        return Head(task="answer", labels=ANSWER_ENDS, **extra)
    if architecture == ARCHITECTURES["tag"]:
        return Head(task="tag", labels=labels, **extra)
    if architecture == ARCHITECTURES["classify"]:
        problem = document.get("problem_type") or ("regression" if outputs == 1 else PROBLEMS["classify"])
        for task, word in PROBLEMS.items():
            if word == problem:
                return Head(task=task, labels=labels, **extra)
        raise UserError(
            f"{folder / 'config.json'}: problem_type {problem!r} is not known; try {PROBLEMS['classify']}"
        )
    return None


def _head_document(head: Head) -> dict[str, Any]:
    document = {"heedful": {name: getattr(head, name) for name in HEAD_KEYS if getattr(head, name) is not None}}
    if head.task == "answer":
        return document
    return {
        **document,
        "id2label": dict(enumerate(head.labels)),
        "label2id": {label: number for number, label in enumerate(head.labels)},
        **({"problem_type": PROBLEMS[head.task]} if head.task in PROBLEMS else {}),
    }


def _mean_document() -> dict[str, Any]:
    module = MEAN_CODE.removesuffix(".py")
    return {
        "model_type": MEAN_TYPE,
        "architectures": [MEAN_ARCHITECTURE],
        "auto_map": {
            "AutoConfig": f"{module}.HeedfulBertConfig",
            "AutoModelForSequenceClassification": f"{module}.{MEAN_ARCHITECTURE}",
        },
    }


def _architecture(model: Model) -> str:
    if isinstance(model, Bert):
        return "BertModel"
    if isinstance(model, BertForTask):
        return ARCHITECTURES[model.head.task]
    if model.mlm is not None and model.nsp is not None:
        return "BertForPreTraining"
    return "BertForMaskedLM" if model.mlm is not None else "BertForNextSentencePrediction"


def _ours(theirs: Mapping[str, Tensor], tied: bool) -> dict[str, Tensor]:
    """The weights under our names: a bare encoder's gain their prefix, old endings are renewed."""
    bare = not any(name.startswith("bert.") for name in theirs)
    back = {their: our for our, their in NAMES.items()} | {their: our for our, their in PARAMETERS.items()}
    bias = next((name for name in WORD_BIASES[:: 1 if tied else -1] if name in theirs), None)
    weights: dict[str, Tensor] = {}
    for name, tensor in theirs.items():
        full = f"bert.{name}" if bare and not name.startswith(("cls.", *HEADS)) else name
        full = full.replace(ANSWER_HEAD, HEADS[0])
        if full == bias:
            full = WORD_BIASES[0]
        elif full in WORD_BIASES or full.endswith("position_ids"):
            continue  # a second name; a buffer of old versions
        module, _, ending = full.rpartition(".")
        number = re.search(r"\.(\d+)\.", module)
        pattern = re.sub(r"\.\d+\.", ".#.", module)
        if full in back:
            our_name = back[full]
        elif pattern in back:
            our_module = back[pattern].replace("#", number[1]) if number else back[pattern]
            our_name = f"{our_module}.{OLD_ENDINGS.get(ending, ending)}"
        else:
            our_name = full
        weights[our_name] = tensor.float()
    return weights


def _check(folder: Path, weights: dict[str, Tensor], model: nn.Module, modern: bool) -> None:
    """Make the weights fit the model exactly, or say which do not."""
    shapes = {name: tensor.shape for name, tensor in model.state_dict().items()}
    if "mlm.decoder" not in shapes:
        weights.pop("mlm.decoder", None)  # tied: a second copy of the token embeddings
    named = modernbert.their_name if modern else lambda name: _name_if_any(model, name)
    check_weights(folder, weights, shapes, "ModernBERT" if modern else "BERT", named)


def _name_if_any(model: nn.Module, name: str) -> str:
    try:
        return _name_in(model, name)
    except KeyError:
        return name
