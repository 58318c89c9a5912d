"""What a head begins with when the model that it is put on has none like it."""

import dataclasses
from pathlib import Path

import pytest
import torch

from heedful.formats.huggingface import save_model
from heedful.models.bert import BertConfig, BertForPretraining, Transform, initialise
from heedful.models.heads import Head
from heedful.runs.finetune_options import FinetuneRecipe, LearningPart
from heedful.runs.start import build, optimizer_for

PLAIN = BertConfig(vocab_size=31, layers=2, dim=12, heads=2, ffn_dim=13, max_length=11)
MODERN = dataclasses.replace(PLAIN, pre_norm=True, positions="rotary", gated=True, bias=False, segments=0)
CLASSES, TAGS = (Head(task=task, labels=("x", "y")) for task in ("classify", "tag"))


def pretrained(folder: Path, config: BertConfig, *, nsp: bool) -> BertForPretraining:
    model = BertForPretraining(config, nsp=nsp)
    initialise(model, 0.3, torch.Generator().manual_seed(1))
    save_model(model, folder)
    return model


@pytest.mark.parametrize("head", [CLASSES, TAGS])
def test_a_modern_head_begins_with_how_words_are_read(tmp_path: Path, head: Head):
    words = pretrained(tmp_path, MODERN, nsp=False)
    made = build(FinetuneRecipe(start_from=str(tmp_path)), head)
    found = made.bert.pooler if head.reads_sequence else made.transform
    assert isinstance(found, Transform)
    assert words.mlm is not None
    assert torch.equal(found.dense.weight, words.mlm.transform.dense.weight)
    assert torch.equal(found.norm.weight, words.mlm.transform.norm.weight)
    assert torch.equal(made.bert.final_norm.weight, words.bert.final_norm.weight)


def test_a_pooler_that_has_learnt_pairs_is_kept(tmp_path: Path):
    words = pretrained(tmp_path, MODERN, nsp=True)
    made = build(FinetuneRecipe(start_from=str(tmp_path)), CLASSES)
    assert torch.equal(made.bert.pooler.dense.weight, words.bert.pooler.dense.weight)
    assert not torch.equal(made.bert.pooler.dense.weight, words.mlm.transform.dense.weight)


def test_a_published_model_without_a_pooler_gets_a_new_one(tmp_path: Path):
    words = pretrained(tmp_path, PLAIN, nsp=False)
    first, again = (build(FinetuneRecipe(start_from=str(tmp_path)), CLASSES) for _ in range(2))
    assert torch.equal(first.bert.pooler.weight, again.bert.pooler.weight)
    assert not torch.equal(first.bert.pooler.weight, words.mlm.transform.dense.weight)


@pytest.mark.parametrize(
    ("freeze", "learning"), [(-1, {"output", "pooler"}), (1, {"layers.1", "final_norm", "output", "pooler"})]
)
def test_what_is_frozen(tmp_path: Path, freeze: int, learning: set[str]):
    pretrained(tmp_path, MODERN, nsp=False)
    made = build(FinetuneRecipe(start_from=str(tmp_path)), CLASSES)
    optimizer_for(made, LearningPart(lr=1e-3, freeze=freeze))
    names = {name.removeprefix("bert.") for name, parameter in made.named_parameters() if parameter.requires_grad}
    assert names
    assert {next(part for part in learning if name.startswith(part)) for name in names} == learning
