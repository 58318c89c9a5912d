from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from heedful.data import tokenizer as wordpiece
from heedful.data.tokenizer import SPECIAL, Tokenizer

ENGLISH = [
    "The river runs quietly past the old stone mill.",
    "A baker carries warm bread across the wooden bridge.",
    "Nobody in the café noticed the cafe next door.",
    "Seven lanterns glow above the harbour, and the ferry waits!",
    "Why do herons stand on one leg?",
]
KOREAN = [
    "강가에 있는 오래된 물레방아가 천천히 돌아갑니다.",
    "빵집 아저씨는 따뜻한 빵을 들고 다리를 건넜습니다.",
    "우리는 등불 아래에서 배를 기다렸습니다.",
    "왜 왜가리는 한 다리로 서 있을까요?",
]


@pytest.fixture(scope="session")
def sentences() -> list[str]:
    """Every sentence is there three times, since a piece that occurs once is never learned."""
    return (ENGLISH + KOREAN) * 3


@pytest.fixture(scope="session")
def trained(sentences: list[str]) -> Tokenizer:
    return wordpiece.train(lambda: sentences, 251)


@pytest.fixture
def of_words(tmp_path: Path) -> Callable[[Sequence[str]], Tokenizer]:
    """Makes a tokenizer whose ids from 5 on are the given words."""

    def make(words: Sequence[str]) -> Tokenizer:
        folder = tmp_path / f"vocabulary-{len(words)}"
        folder.mkdir()
        (folder / "vocab.txt").write_text("\n".join([*SPECIAL, *words]) + "\n", encoding="utf-8")
        return wordpiece.load(folder)

    return make
