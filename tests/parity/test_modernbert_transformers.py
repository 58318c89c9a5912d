"""Encoders with all of the newer options: ours opened by transformers as ModernBERTs, and theirs here."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn

from heedful.formats.huggingface import Model, load_model, save_model
from heedful.models.bert import Bert, BertConfig, BertForPretraining
from heedful.models.heads import BertForTask, Head
from heedful.nn.layout import Packed

TOLERANCE = 1e-5
LENGTHS = (13, 31, 2, 7)
SMALL = BertConfig(
    vocab_size=211,
    layers=3,
    dim=36,
    heads=3,
    ffn_dim=41,
    max_length=67,
    segments=0,
    norm_eps=1e-5,
    pre_norm=True,
    positions="rotary",
    rotary_base=1234.0,
    gated=True,
    bias=False,
)
CONFIGS = {
    "usual": SMALL,
    "biases": dataclasses.replace(SMALL, bias=True),
    "one layer": dataclasses.replace(SMALL, layers=1, activation="silu", norm_eps=1e-12),
    "untied": dataclasses.replace(SMALL, tied=False),
}
HEADS = {
    "classify": Head(task="classify", labels=("sport", "politics", "가십")),
    "multilabel": Head(task="multilabel", labels=("long", "old", "warm", "wooden")),
    "regress": Head(task="regress", labels=("price",)),
    "tag": Head(task="tag", labels=("O", "B-PER", "I-PER")),
    "answer": Head(task="answer", labels=("start", "end"), length=31, overlap=7),
}
AUTO = {
    "encoder": transformers.AutoModel,
    "words": transformers.AutoModelForMaskedLM,
    "tag": transformers.AutoModelForTokenClassification,
    "answer": transformers.AutoModelForQuestionAnswering,
}
CLASSES = {
    "encoder": transformers.ModernBertModel,
    "words": transformers.ModernBertForMaskedLM,
    "classify": transformers.ModernBertForSequenceClassification,
    "multilabel": transformers.ModernBertForSequenceClassification,
    "regress": transformers.ModernBertForSequenceClassification,
    "tag": transformers.ModernBertForTokenClassification,
    "answer": transformers.ModernBertForQuestionAnswering,
}


def fill_at_random(model: nn.Module) -> Any:
    """Every parameter counts: biases are not zero, norms not one."""
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(0.0, 0.1, generator=generator)
            if name.endswith("orm.weight"):
                parameter.add_(1.0)
    return model.eval()


def made(kind: str, config: BertConfig = SMALL) -> Model:
    if kind in HEADS:
        return fill_at_random(BertForTask(config, HEADS[kind]))
    return fill_at_random(BertForPretraining(config, nsp=False) if kind == "words" else Bert(config, pooler=False))


def their_config(config: BertConfig = SMALL, **others: Any) -> transformers.ModernBertConfig:
    return transformers.ModernBertConfig(
        vocab_size=config.vocab_size,
        num_hidden_layers=config.layers,
        hidden_size=config.dim,
        num_attention_heads=config.heads,
        intermediate_size=config.ffn_dim,
        max_position_embeddings=config.max_length,
        hidden_activation=config.activation,
        classifier_activation=config.activation,
        norm_eps=config.norm_eps,
        tie_word_embeddings=config.tied,
        **dict.fromkeys(("norm_bias", "attention_bias", "mlp_bias", "classifier_bias"), config.bias),
        layer_types=["full_attention"] * config.layers,
        rope_parameters={"full_attention": {"rope_type": "default", "rope_theta": config.rotary_base}},
        pad_token_id=0,
        **others,
    )


def batch() -> tuple[Tensor, Tensor, Packed]:
    mask = torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS)[:, None]
    generator = torch.Generator().manual_seed(5)
    ids = torch.randint(1, SMALL.vocab_size, mask.shape, generator=generator).masked_fill(~mask, 0)
    offsets = torch.tensor([0, *LENGTHS]).cumsum(0).int()
    return ids, mask, Packed.from_offsets(offsets, max(LENGTHS), sum(LENGTHS))


def output(found: Any) -> Tensor:
    """What either side's model says, under whatever name."""
    if isinstance(found, Tensor):
        return found
    for name in ("mlm_logits", "hidden", "logits", "last_hidden_state"):
        if getattr(found, name, None) is not None:
            return getattr(found, name)
    return torch.stack([found.start_logits, found.end_logits], -1)


@torch.inference_mode()
def assert_same(ours: Model, theirs: nn.Module) -> None:
    ids, mask, layout = batch()
    expected = output(theirs(ids, attention_mask=mask.long()))
    assert expected.abs().max() > 0.3  # else zeros would do
    assert expected.std() > 0.1
    padded = output(ours(ids, mask=mask))
    packed = output(ours(layout.pack(ids), packed=layout))
    assert padded.shape == expected.shape
    if expected.dim() == 3:  # a token's, where there is one
        expected, padded = expected[mask], padded[mask]
    assert (padded - expected).abs().max() <= TOLERANCE
    assert (packed - expected).abs().max() <= TOLERANCE


@pytest.mark.parametrize("kind", CLASSES)
def test_our_folder_is_a_modernbert(tmp_path: Path, kind: str):
    ours = made(kind)
    save_model(ours, tmp_path)
    auto = AUTO.get(kind, transformers.AutoModelForSequenceClassification)
    theirs, info = auto.from_pretrained(tmp_path, output_loading_info=True)
    assert type(theirs) is CLASSES[kind]
    assert not any(info[keys] for keys in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert_same(ours, theirs.eval())
    if kind in HEADS and kind != "answer":
        assert tuple(theirs.config.id2label.values()) == HEADS[kind].labels


@pytest.mark.parametrize("name", CONFIGS)
def test_our_words_are_theirs_whatever_the_settings(tmp_path: Path, name: str):
    ours = made("words", CONFIGS[name])
    save_model(ours, tmp_path)
    assert_same(ours, transformers.AutoModelForMaskedLM.from_pretrained(tmp_path).eval())


@pytest.mark.parametrize("kind", ["classify", "tag"])
def test_the_mean_is_theirs_too(tmp_path: Path, kind: str):
    ours = made(kind, dataclasses.replace(SMALL, pool="mean"))
    save_model(ours, tmp_path)
    auto = AUTO.get(kind, transformers.AutoModelForSequenceClassification)
    theirs = auto.from_pretrained(tmp_path).eval()
    assert theirs.config.classifier_pooling == "mean"
    assert_same(ours, theirs)
    assert load_model(tmp_path).config == ours.config


@pytest.mark.parametrize("name", CONFIGS)
def test_their_words_are_ours(tmp_path: Path, name: str):
    theirs = fill_at_random(transformers.ModernBertForMaskedLM(their_config(CONFIGS[name])))
    theirs.save_pretrained(tmp_path)
    ours = load_model(tmp_path)
    assert isinstance(ours, BertForPretraining)
    assert ours.nsp is None
    assert dataclasses.replace(ours.config, dropout=0.1, attention_dropout=0.1) == CONFIGS[name]
    assert_same(ours, theirs)


@pytest.mark.parametrize("kind", [kind for kind in CLASSES if kind != "words"])
def test_their_folder_opens_here(tmp_path: Path, kind: str):
    settings = {"problem_type": "multi_label_classification"} if kind == "multilabel" else {}
    outputs = {"num_labels": len(HEADS[kind].labels)} if kind in HEADS else {}
    theirs = fill_at_random(CLASSES[kind](their_config(**settings, **outputs)))
    theirs.save_pretrained(tmp_path)
    ours = load_model(tmp_path)
    assert isinstance(ours, BertForTask if kind in HEADS else Bert)
    if isinstance(ours, BertForTask):
        assert ours.head.task == kind
    assert_same(ours, theirs)


def test_their_published_settings_open_here_if_no_layer_is_local(tmp_path: Path):
    """What is not said is what ModernBERT-base has: only the size is smaller."""
    config = transformers.ModernBertConfig(
        vocab_size=211,
        num_hidden_layers=1,
        hidden_size=36,
        num_attention_heads=3,
        intermediate_size=41,
        pad_token_id=0,
    )
    theirs = fill_at_random(transformers.ModernBertForMaskedLM(config))
    theirs.save_pretrained(tmp_path)
    ours = load_model(tmp_path)
    assert (ours.config.rotary_base, ours.config.max_length, ours.config.norm_eps) == (160_000.0, 8192, 1e-5)
    assert_same(ours, theirs)


def test_far_positions_agree_too(tmp_path: Path):
    ours = made("encoder", dataclasses.replace(SMALL, max_length=4099, rotary_base=10.0))
    save_model(ours, tmp_path)
    theirs = transformers.AutoModel.from_pretrained(tmp_path).eval()
    ids = torch.randint(1, 211, (1, 2003), generator=torch.Generator().manual_seed(3))
    with torch.inference_mode():
        gap = (ours(ids).hidden - theirs(ids).last_hidden_state).abs().max()
    assert gap <= TOLERANCE


def test_a_head_for_words_becomes_any_other_as_in_transformers(tmp_path: Path):
    """The layers between a state and its scores have one name, whatever the head."""
    save_model(made("words"), tmp_path)
    theirs = transformers.AutoModelForTokenClassification.from_pretrained(tmp_path)
    assert torch.equal(theirs.head.dense.weight, load_model(tmp_path).mlm.transform.dense.weight)


def test_what_has_no_equal_is_not_mistaken_for_one(tmp_path: Path):
    save_model(Bert(dataclasses.replace(SMALL, gated=False), pooler=False), tmp_path)
    with pytest.raises(ValueError, match="heedful_mixed_bert"):
        transformers.AutoModel.from_pretrained(tmp_path)
