from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from heedful.runs.corpus import describe


@pytest.mark.parametrize(("unknown", "told"), [(2, False), (30, True)])
def test_text_that_means_little_to_its_tokenizer_is_told_of(unknown: int, told: bool):
    tokens = np.array([1] * unknown + [7] * (1000 - unknown))
    part = SimpleNamespace(tokens=tokens, documents=np.array([0, 3]))
    found: Any = SimpleNamespace(train=part, heldout=part, tokenizer=SimpleNamespace(unk=1))
    said = describe(found)
    assert said.startswith("text: 1 document, 1,000 tokens; held out: 1 document, 1,000 tokens")
    assert ("3.0% of the tokens are unknown: does the tokenizer suit the text?" in said) is told
