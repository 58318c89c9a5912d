"""Very small models of every kind, in which every parameter counts, with a tokenizer that knows pieces of words."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from heedful import predict
from heedful.data import tokenizer as wordpiece
from heedful.data.tokenizer import Tokenizer
from heedful.formats.huggingface import Model, save_model
from heedful.models.bert import Bert, BertConfig, BertForPretraining
from heedful.models.heads import BertForTask, Head
from heedful.predict import Predictor

SENTENCES = [
    "The river runs quietly past the old stone mill.",
    "A baker carries warm bread across the wooden bridge, and the ferry waits!",
    "Nobody in the café noticed the cafe next door.",
    "강가에 있는 오래된 물레방아가 천천히 돌아갑니다.",
    "빵집 아저씨는 따뜻한 빵을 들고 다리를 건넜습니다.",
]
HEADS = {
    "classify": Head(task="classify", labels=("sport", "politics", "weather", "가십", "other")),
    "mean": Head(task="classify", labels=("no", "yes", "perhaps")),
    "multilabel": Head(task="multilabel", labels=("long", "old", "warm", "wooden")),
    "regress": Head(task="regress", labels=("price", "weight")),
    "tag": Head(task="tag", labels=("O", "B-PER", "I-PER", "B-LOC", "I-LOC"), length=19, overlap=5),
    "plain": Head(task="tag", labels=("NOUN", "VERB", "ADJ")),
    "answer": Head(task="answer", labels=("start", "end"), length=23, overlap=4),
    "unanswerable": Head(task="answer", labels=("start", "end"), length=23, overlap=4, may_be_empty=True),
}


@pytest.fixture(scope="session")
def small_tokenizer() -> Tokenizer:
    return wordpiece.train(lambda: SENTENCES * 2, 211)


@pytest.fixture(scope="session")
def small_model(small_tokenizer: Tokenizer) -> Callable[..., Model]:
    """Makes a model of a kind; options change its shape."""

    def make(kind: str, **options: int | float | str) -> Model:
        config = BertConfig(
            vocab_size=small_tokenizer.vocab_size,
            layers=2,
            dim=24,
            heads=3,
            ffn_dim=41,
            max_length=37,
            pool="mean" if kind == "mean" else "cls",
        )
        config = dataclasses.replace(config, **options)  # type: ignore[arg-type]
        model: Model
        if kind in HEADS:
            model = BertForTask(config, HEADS[kind])
        else:
            model = BertForPretraining(config) if kind == "words" else Bert(config)
        generator = torch.Generator().manual_seed(11)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter.normal_(0.0, 0.3, generator=generator)
                if name.endswith("norm.weight"):
                    parameter.add_(1.0)
        return model.eval()

    return make


@pytest.fixture(scope="session")
def small_folder(
    tmp_path_factory: pytest.TempPathFactory, small_tokenizer: Tokenizer, small_model: Callable[..., Model]
) -> Callable[[str], Path]:
    """The folder of a model of a kind."""
    made: dict[str, Path] = {}

    def make(kind: str) -> Path:
        if kind not in made:
            made[kind] = tmp_path_factory.mktemp("models") / kind
            save_model(small_model(kind), made[kind])
            wordpiece.save(small_tokenizer, made[kind], 37)
        return made[kind]

    return make


@pytest.fixture(scope="session")
def small_predictor(small_folder: Callable[[str], Path]) -> Callable[[str], Predictor]:
    """What `heedful.load` makes of such a folder."""
    made: dict[str, Predictor] = {}

    def make(kind: str) -> Predictor:
        if kind not in made:
            made[kind] = predict.load(small_folder(kind), "cpu")
        return made[kind]

    return make
