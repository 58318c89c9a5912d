"""What tests of several folders need: a small encoder, and labelled files that it can learn from in seconds."""

import json
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
import torch

from heedful.data import tokenizer as wordpiece
from heedful.data.tokenizer import SPECIAL
from heedful.formats.huggingface import load_model, save_model
from heedful.models.bert import Bert, BertConfig, initialise
from heedful.models.heads import BertForTask, Head

GOOD, BAD = ("fine", "bright", "warm", "kind"), ("dull", "grim", "cold", "harsh")
NOUNS = ("river", "mill", "baker", "bridge", "ferry", "heron", "lantern", "harbour")
NAMES = ("anna", "bruno", "clara", "david")
PLACES = ("oslo", "lima", "cairo", "delhi")
SMALL_WORDS = ("the", "a", "is", "and", "in", "of", "who", "where", "lives", "was", "word", "1", "2", "3", ".", "?")


@pytest.fixture(scope="session")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a very small BERT without a head, whose words are those of `labelled_files`."""
    folder = tmp_path_factory.mktemp("encoder")
    words = [*SMALL_WORDS, *GOOD, *BAD, *NOUNS, *NAMES, *PLACES]
    (folder / "vocab.txt").write_text("\n".join([*SPECIAL, *words]) + "\n", encoding="utf-8")
    tokenizer = wordpiece.load(folder)
    config = BertConfig(vocab_size=tokenizer.vocab_size, layers=2, dim=24, heads=2, ffn_dim=37, max_length=48)
    model = Bert(config)
    initialise(model, 0.3, torch.Generator().manual_seed(0))
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
