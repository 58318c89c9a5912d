"""What tests of several folders need: a small encoder, and labelled files that it can learn from in seconds."""

import json
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any, Literal

import hypothesis
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heedful.data import subwords
from heedful.data import tokenizer as wordpiece
from heedful.data.subwords import Subwords
from heedful.data.token_workers import TokenWorkers
from heedful.data.tokenizer import SPECIAL, Tokenizer
from heedful.data.vocabularies import TARGET_FILE
from heedful.formats.huggingface import load_model, save_model
from heedful.formats.translators import save_translator
from heedful.formats.vit import save_vit
from heedful.models import rnn, transformer, vit
from heedful.models.bert import Bert, BertConfig, BertForPretraining, initialise
from heedful.models.heads import BertForTask, Head
from heedful.models.rnn import Rnn, RnnConfig
from heedful.models.transformer import Transformer, TransformerConfig
from heedful.models.vit import ViTClassifier, ViTConfig
from heedful.nn.pixels import Pixels, normalised

hypothesis.settings.register_profile("machines are shared", deadline=None)
hypothesis.settings.load_profile("machines are shared")

GOOD, BAD = ("fine", "bright", "warm", "kind"), ("dull", "grim", "cold", "harsh")
NOUNS = ("river", "mill", "baker", "bridge", "ferry", "heron", "lantern", "harbour")
NAMES = ("anna", "bruno", "clara", "david")
PLACES = ("oslo", "lima", "cairo", "delhi")
SMALL_WORDS = ("the", "a", "is", "and", "in", "of", "who", "where", "lives", "was", "word", "1", "2", "3", ".", "?")


@pytest.fixture(scope="session")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a very small BERT without a head, whose words are those of `labelled_files`."""
    words = [*SMALL_WORDS, *GOOD, *BAD, *NOUNS, *NAMES, *PLACES]
    return _write_bert(tmp_path_factory.mktemp("encoder"), words, outputs=None, max_length=48)


@pytest.fixture(scope="session")
def write_bert() -> Callable[..., Path]:
    """Writes the folder of a very small BERT that was never trained."""
    return _write_bert


def _write_bert(
    folder: Path,
    words: Sequence[str],
    *,
    outputs: Literal["words", "both"] | None = "words",
    deviation: float = 0.3,
    **shape: Any,
) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "vocab.txt").write_text("\n".join([*SPECIAL, *words]) + "\n", encoding="utf-8")
    tokenizer = wordpiece.load(folder)
    sizes = {"layers": 2, "dim": 24, "heads": 2, "ffn_dim": 37, "max_length": 19, **shape}
    config = BertConfig(vocab_size=tokenizer.vocab_size, **sizes)  # pyrefly: ignore
    model = Bert(config) if outputs is None else BertForPretraining(config, nsp=outputs == "both")
    initialise(model, deviation, torch.Generator().manual_seed(0))
    save_model(model, folder)
    wordpiece.save(tokenizer, folder, config.max_length)
    return folder


@pytest.fixture(scope="session")
def labelled_files(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, int, int], Path]:
    """Makes a file of a kind with a number of examples: what they say follows from the kind and a seed."""
    folder = tmp_path_factory.mktemp("labelled")

    def make(kind: str, count: int, seed: int = 0) -> Path:
        ending = {"classify": "csv", "pairs": "tsv", "regress": "csv", "conll": "conll", "answer": "json"}
        path = folder / f"{kind}-{count}-{seed}.{ending.get(kind, 'jsonl')}"
        if not path.exists():
            path.write_text(_CONTENT[kind](Random(seed), count), encoding="utf-8")
        return path

    return make


def _sentence(random: Random, quality: str) -> str:
    return f"the {random.choice(NOUNS)} {random.choice(SMALL_WORDS[:6])} {random.choice(NOUNS)} is {quality} ."


def _classify(random: Random, count: int) -> str:
    rows = [(random.choice(side), name) for side, name in random.choices([(GOOD, "good"), (BAD, "bad")], k=count)]
    return "text,label\n" + "".join(f"{_sentence(random, word)},{name}\n" for word, name in rows)


def _pairs(random: Random, count: int) -> str:
    lines = ["sentence1\tsentence2\tlabel"]
    for _ in range(count):
        first, second = random.choice(GOOD + BAD), random.choice(GOOD + BAD)
        same = (first in GOOD) == (second in GOOD)
        lines.append(f"{_sentence(random, first)}\t{_sentence(random, second)}\t{int(same)}")
    return "\n".join(lines) + "\n"


def _many(random: Random, count: int) -> str:
    lines = []
    for _ in range(count):
        nouns = random.sample(NOUNS[:3], random.randint(0, 3))
        labels = [noun for noun in NOUNS[:3] if noun in nouns]
        lines.append(json.dumps({"text": f"{random.choice(GOOD)} {' '.join(nouns)}", "labels": labels}))
    return "\n".join(lines) + "\n"


def _regress(random: Random, count: int) -> str:
    """Far from zero: a shift of 1000, and for the other number of -50."""
    lines = ["text,height,depth"]
    for _ in range(count):
        words = random.choices(GOOD + BAD, k=5)
        good = sum(word in GOOD for word in words)
        lines.append(f"{' '.join(words)} {random.choice(NOUNS)},{1000 + 2 * good},{-50 - 0.5 * good}")
    return "\n".join(lines) + "\n"


def _tagged(random: Random, count: int) -> list[tuple[list[str], list[str]]]:
    found = []
    for _ in range(count):
        words, tags = ["the", random.choice(NOUNS), "of"], ["O", "O", "O"]
        size = random.randint(1, 3)
        words += random.choices(NAMES, k=size)
        tags += ["B-PER", *["I-PER"] * (size - 1)]
        words += [random.choice(("lives", "was")), "in", random.choice(PLACES), "."]
        tags += ["O", "O", "B-LOC", "O"]
        found.append((words, tags))
    return found


def _conll(random: Random, count: int) -> str:
    return "".join(
        "".join(f"{word}\t{tag}\n" for word, tag in zip(words, tags, strict=True)) + "\n"
        for words, tags in _tagged(random, count)
    )


def _tags(random: Random, count: int) -> str:
    return "".join(json.dumps({"tokens": words, "tags": tags}) + "\n" for words, tags in _tagged(random, count))


def _answer(random: Random, count: int) -> str:
    """Every third question has no answer in its context."""
    paragraphs = []
    for number in range(count):
        name, place = random.choice(NAMES), random.choice(PLACES)
        context = f"the {random.choice(NOUNS)} is {random.choice(GOOD)} . {name} lives in {place} ."
        if number % 3 == 2:
            asked = {"question": "who was grim ?", "answers": [], "is_impossible": True}
        else:
            text = (name, place)[number % 3]
            start = context.index(f" {text}") + 1
            question = ("who lives ?", "where is the river ?")[number % 3]
            asked = {"question": question, "answers": [{"text": text, "answer_start": start}]}
        paragraphs.append({"context": context, "qas": [{"id": f"q{number}", **asked}]})
    return json.dumps({"version": "2.0", "data": [{"title": "t", "paragraphs": paragraphs}]})


_CONTENT = {
    "classify": _classify,
    "pairs": _pairs,
    "many": _many,
    "regress": _regress,
    "conll": _conll,
    "tags": _tags,
    "answer": _answer,
}


@pytest.fixture(scope="session")
def headed(tmp_path_factory: pytest.TempPathFactory, encoder: Path) -> Callable[[Head, int], Path]:
    """Makes the folder of the small encoder with a head that was never trained, hence is often wrong."""

    def make(head: Head, seed: int = 1) -> Path:
        folder = tmp_path_factory.mktemp("headed")
        tokenizer = wordpiece.load(encoder)
        config = load_model(encoder).config
        model = BertForTask(config, head)
        initialise(model, 0.5, torch.Generator().manual_seed(seed))
        save_model(model, folder)
        wordpiece.save(tokenizer, folder, config.max_length)
        return folder

    return make


ENGLISH = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
KOREAN = "영일이삼사오육칠팔구"


def digits(count: int, seed: int) -> list[tuple[str, str]]:
    """Digits in English words and in Korean ones, as many and in the same order."""
    random = Random(seed)
    numbers = [[random.randrange(10) for _ in range(random.randint(1, 5))] for _ in range(count)]
    return [(" ".join(ENGLISH[one] for one in each), " ".join(KOREAN[one] for one in each)) for each in numbers]


@pytest.fixture(scope="session")
def translator(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Makes the folder of a very small translator of digits, from English to Korean.

    The "good" one has learnt it, the "fair" one half; the others, never trained, are recurrent ("rnn"), have two
    vocabularies ("two") or another one ("other").
    """
    made: dict[str, Path] = {}

    def make(kind: str) -> Path:
        if kind not in made:
            made[kind] = tmp_path_factory.mktemp("translators") / kind
            _translator(kind, made[kind])
        return made[kind]

    return make


def _translator(kind: str, folder: Path) -> None:
    pairs = digits(601, 0)
    both = subwords.train(lambda: [text for pair in pairs for text in pair], 61 if kind == "other" else 89)
    source, target = both, both
    if kind == "two":
        source, target = (subwords.train(lambda: [pair[side] for pair in pairs], 71) for side in (0, 1))  # noqa: B023
    sizes = {"vocab_size": source.vocab_size, "dim": 32, "dropout": 0.0, "max_length": 29}
    generator = torch.Generator().manual_seed(2 if kind == "fair" else 1)
    model: Transformer | Rnn
    if kind == "rnn":
        config = RnnConfig(**sizes, layers=1)  # pyrefly: ignore
        model = Rnn(config)
        rnn.initialise(model, config, generator)
    else:
        two = {"target_vocab_size": target.vocab_size, "share": "output"} if kind == "two" else {}
        layers = {"encoder_layers": 1, "decoder_layers": 1, "heads": 4, "ffn_dim": 67}
        model = Transformer(TransformerConfig(**sizes, **layers, **two))  # pyrefly: ignore
        transformer.initialise(model, generator)
    _train(model, both, {"good": 300, "fair": 120}.get(kind, 0))
    save_translator(model, folder)
    subwords.save(source, folder)
    if kind == "two":
        subwords.save(target, folder, TARGET_FILE)


@torch.enable_grad()
def _train(model: nn.Module, vocabulary: Subwords, steps: int) -> None:
    rate = 1e-2
    optimizer = torch.optim.Adam(model.parameters(), rate, betas=(0.9, 0.98))
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = rate * min(1.0, (step + 1) / 30, 2 * (1 - step / steps))
        ones, twos = zip(*digits(61, step + 1), strict=True)
        source = _rectangle([[*ids, vocabulary.eos] for ids in vocabulary.encode(ones)])
        target = _rectangle([[vocabulary.sos, *ids, vocabulary.eos] for ids in vocabulary.encode(twos)])
        scores = model(source, source != vocabulary.pad, target[:, :-1]).flatten(0, 1)
        loss = F.cross_entropy(scores, target[:, 1:].flatten(), ignore_index=vocabulary.pad, label_smoothing=0.1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()


def _rectangle(rows: list[list[int]]) -> Tensor:
    return nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True)


@pytest.fixture(scope="session")
def colours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a very small ViT that has learnt to tell red, green and blue apart, in an image's middle."""
    folder = tmp_path_factory.mktemp("vit") / "colours"
    config = ViTConfig(
        image_size=12, patch_size=4, layers=2, dim=24, heads=3, ffn_dim=31, norm_eps=1e-6, pixels=Pixels(edge=12)
    )
    model = ViTClassifier(config, ("red", "green", "blue"))
    generator = torch.Generator().manual_seed(3)
    vit.initialise(model, generator)
    _learn_colours(model, generator)
    save_vit(model.eval(), folder)
    return folder


@torch.enable_grad()
def _learn_colours(model: ViTClassifier, generator: torch.Generator) -> None:
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    for _ in range(80):
        labels = torch.randint(0, 3, (31,), generator=generator)
        noise = torch.randint(0, 90, (31, 12, 12, 3), generator=generator)
        pictures = (noise + 160 * F.one_hot(labels, 3)[:, None, None]).to(torch.uint8)
        loss = F.cross_entropy(model(normalised(pictures, model.config.pixels)), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@pytest.fixture
def started() -> Callable[..., TokenWorkers]:
    """Starts processes that tokenize, and waits for them; they end with the test."""

    def start(tokenizer: Tokenizer, **options: Any) -> TokenWorkers:
        workers = TokenWorkers(tokenizer, **options)
        workers.expect(workers.many)
        for thread in threading.enumerate():
            if thread.name == "token workers":
                thread.join()
        return workers

    return start
