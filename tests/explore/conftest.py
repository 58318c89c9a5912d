"""Very small models of every family, in which every parameter counts, as `heedful.load` would give them."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

import heedful
from heedful.data import subwords
from heedful.data import tokenizer as wordpiece
from heedful.data.bitext import Marks
from heedful.data.subwords import Subwords
from heedful.data.tokenizer import SPECIAL, Tokenizer
from heedful.formats.huggingface import save_model
from heedful.models.bert import BertConfig, BertForPretraining
from heedful.models.rnn import Rnn, RnnConfig
from heedful.models.transformer import Transformer, TransformerConfig
from heedful.models.vit import ViTClassifier, ViTConfig
from heedful.predict import ImagePredictor, Predictor
from heedful.predict.engine import TorchEngine
from heedful.predict.image_engine import TorchImageEngine
from heedful.predict.loading import never
from heedful.predict.searching import TorchSearcher
from heedful.predict.translator import Translator
from heedful.tasks.translation import Translating

WORDS = ("the", "animal", "street", "it", "was", "tired", "cross", "bank", "river", "money", "sat", "by", "fer")
BERTS = {
    "published": {},
    "pre-norm": {"pre_norm": True},
    "rotary": {"positions": "rotary"},
    "gated": {"gated": True},
    "no biases": {"bias": False},
    "modern": {"pre_norm": True, "positions": "rotary", "gated": True, "bias": False, "segments": 0},
}
"""The options of an encoder."""


def filled(model: nn.Module, seed: int = 11) -> nn.Module:
    """A model whose parameters are all drawn."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(0.0, 0.2, generator=generator)
            if name.endswith("norm.weight"):
                parameter.add_(1.0)
    return model.eval()


@pytest.fixture(scope="session")
def small_words(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    folder = tmp_path_factory.mktemp("words")
    (folder / "vocab.txt").write_text("\n".join([*SPECIAL, *WORDS, "##ry", ".", "강", "##가", ""]), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text('{"strip_accents": false}')
    return wordpiece.load(folder)


@pytest.fixture(scope="session")
def bert(small_words: Tokenizer) -> Callable[[str], Predictor]:
    """An encoder that fills blanks, with some of the options."""
    made: dict[str, Predictor] = {}

    def make(kind: str = "published") -> Predictor:
        if kind not in made:
            sizes = {"layers": 3, "dim": 28, "heads": 2, "ffn_dim": 37, "max_length": 41}
            config = BertConfig(vocab_size=small_words.vocab_size, **sizes, **BERTS[kind])  # pyrefly: ignore
            made[kind] = Predictor(TorchEngine(filled(BertForPretraining(config))), small_words, kind)
        return made[kind]

    return make


@pytest.fixture(scope="session")
def modern_folder(tmp_path_factory: pytest.TempPathFactory, bert: Callable[[str], Predictor]) -> Predictor:
    """The modern one as a ModernBERT folder, loaded again."""
    folder = tmp_path_factory.mktemp("modern")
    predictor = bert("modern")
    assert predictor.words is not None
    save_model(predictor.words, folder)
    wordpiece.save(predictor.tokenizer, folder, 41)
    return heedful.load(folder, "cpu")


@pytest.fixture(scope="session")
def pieces() -> Subwords:
    return subwords.train(lambda: ["one two three four five", "하나 둘 셋 넷 다섯", "one three five seven"] * 3, 71)


def as_translator(model: Translating, vocabulary: Subwords, origin: str) -> Translator:
    """A translator that reads and writes with one vocabulary."""
    config = model.config
    marks = Marks(config.pad, config.sos, config.eos)
    return Translator(TorchSearcher([model], marks, never(model, vocabulary)), vocabulary, vocabulary, origin)


@pytest.fixture(scope="session")
def transformer(pieces: Subwords) -> Callable[[bool], Translator]:
    """A Transformer with norms after the residuals, or before them."""
    made: dict[bool, Translator] = {}

    def make(pre_norm: bool = False) -> Translator:
        if pre_norm not in made:
            config = TransformerConfig(
                vocab_size=pieces.vocab_size, encoder_layers=2, decoder_layers=3, dim=28, heads=2, ffn_dim=37,
                pre_norm=pre_norm, max_length=31, dropout=0.0,
            )  # fmt: skip
            model = filled(Transformer(config), 7 + pre_norm)
            made[pre_norm] = as_translator(model, pieces, "transformer")  # pyrefly: ignore
        return made[pre_norm]

    return make


@pytest.fixture(scope="session")
def rnn(pieces: Subwords) -> Callable[[str], Translator]:
    """A recurrent translator with one of the five scores."""
    made: dict[str, Translator] = {}

    def make(score: str = "general") -> Translator:
        if score not in made:
            config = RnnConfig(vocab_size=pieces.vocab_size, layers=2, dim=22, score=score, max_length=31)
            made[score] = as_translator(filled(Rnn(config), 5), pieces, "rnn")  # pyrefly: ignore
        return made[score]

    return make


@pytest.fixture(scope="session")
def vit() -> Callable[..., ImagePredictor]:
    """A classifier of images."""

    def make(**options: bool | str) -> ImagePredictor:
        config = ViTConfig(
            image_size=15, patch_size=5, layers=2, dim=22, heads=2, ffn_dim=31, **options  # pyrefly: ignore
        )  # fmt: skip
        model = filled(ViTClassifier(config, ("red", "green", "blue", "grey")))
        return ImagePredictor(TorchImageEngine(model), "vit")  # pyrefly: ignore

    return make


class Loaded:
    """Models by name, as a server has them."""

    def __init__(self, **models: object) -> None:
        self.models = models

    def names(self) -> list[str]:
        return list(self.models)

    def get(self, name: str) -> object:
        return self.models[name]


@pytest.fixture(scope="session")
def loaded(
    bert: Callable[[str], Predictor],
    transformer: Callable[[bool], Translator],
    rnn: Callable[[str], Translator],
    vit: Callable[..., ImagePredictor],
) -> Loaded:
    """One of each family."""
    return Loaded(bert=bert("published"), transformer=transformer(False), rnn=rnn("general"), vit=vit())


@pytest.fixture(scope="session")
def image_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small picture, wider than high."""
    import numpy as np
    from PIL import Image

    path = tmp_path_factory.mktemp("image") / "picture.png"
    pixels = np.random.default_rng(3).integers(0, 256, (17, 23, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)
    return path
