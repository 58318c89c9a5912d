import re
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from heedful.data import tokenizer as wordpiece
from heedful.data.shards import Split
from heedful.errors import UserError
from heedful.runs.corpus import check_pairs, describe


def sentences_of(*lengths: int) -> Any:
    """Shards of documents of so many tokens in each of their sentences."""
    ends = np.cumsum([0, *lengths * 11])
    return SimpleNamespace(train=Split(np.zeros(ends[-1]), ends, np.arange(0, len(ends), len(lengths))))


@pytest.mark.parametrize(("unknown", "told"), [(2, False), (30, True)])
def test_text_that_means_little_to_its_tokenizer_is_told_of(unknown: int, told: bool):
    tokenizer = wordpiece.train(lambda: ["the old mill"] * 3, 40, exactly=False)
    tokens = np.array([tokenizer.unk] * unknown + [7] * (1000 - unknown))
    part = SimpleNamespace(tokens=tokens, documents=np.array([0, 3]))
    found: Any = SimpleNamespace(train=part, heldout=part, tokenizer=tokenizer)
    said = describe(found)
    assert said.startswith("text: 1 document, 1,000 tokens; held out: 1 document, 1,000 tokens")
    assert ("3.0% of the tokens are unknown: does the tokenizer suit the text?" in said) is told


@pytest.mark.parametrize(
    ("lengths", "documents"),
    [
        ([5] * 4004, [0, 1, *range(3, 4005)]),  # the only document of two sentences is not among those looked at
        (([31] * 50 + [5] * 50) * 3, [0, 100, 200, 300]),  # nor the short sentences of a long one
    ],
)
def test_pairs_that_were_not_looked_at_are_not_denied(
    capsys: pytest.CaptureFixture[str], lengths: list[int], documents: list[int]
):
    ends = np.cumsum([0, *lengths])
    train = Split(np.zeros(ends[-1]), ends, np.array(documents))
    check_pairs(SimpleNamespace(train=train), 31, print)  # pyrefly: ignore
    assert capsys.readouterr().out.startswith("hardly any of the pairs are true successors in --length 31")


def test_pairs_need_sentences_that_leave_room_for_the_next(capsys: pytest.CaptureFixture[str]):
    check_pairs(sentences_of(7, 13, 31), 31, print)
    assert not capsys.readouterr().out
    check_pairs(sentences_of(31, 31, 31, 31, 7, 31), 31, print)
    said = (
        r"only \d+\.\d% of the pairs are true successors in --length 31: .*; use a longer --length, longer documents"
    )
    assert re.search(said, capsys.readouterr().out)
    check_pairs(sentences_of(31, 31, 31, 31, 7, 31), 61, print)
    assert not capsys.readouterr().out
    with pytest.raises(
        UserError, match="none of the pairs are true successors in --length 31: sentences are too long"
    ):
        check_pairs(sentences_of(31, 7), 31, print)
    with pytest.raises(UserError, match="needs documents of several sentences, and each of these 11 is a single one"):
        check_pairs(sentences_of(7), 31, print)


def test_pairs_need_several_documents():
    alone = Split(np.zeros(20), np.array([0, 7, 20]), np.array([0, 2]))
    for other, said in ((np.array([0]), ""), (np.array([0, 3]), r", hold out less \(--held-out\)")):
        found: Any = SimpleNamespace(train=alone, heldout=SimpleNamespace(documents=other))
        with pytest.raises(UserError, match=f"and there is one; separate documents by a blank line{said}, or train"):
            check_pairs(found, 31, print)
