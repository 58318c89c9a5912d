import json
import os
import re
import subprocess
import sys
import unicodedata

import pytest
import tokenizers
import transformers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import models

from heedful.data.subwords import EOS, KINDS, PAD, SOS, SPECIAL, UNK, Subwords, load, save, train
from heedful.errors import UserError

JAMO = re.compile("[\u1100-\u11ff\u3130-\u318f]")
# Unigram learns a piece only if two different words hold it.
SIZE = {"bpe": 211, "unigram": 113, "wordpiece": 211}
SPACES = " \t\n\u00a0\u2003\u3000\u2028▁"


@pytest.fixture(scope="module", params=KINDS)
def made(request, sentences) -> Subwords:
    return train(lambda: sentences, SIZE[request.param], request.param)


def written(text: str) -> str:
    return " ".join(part for part in re.split(f"[{SPACES}]", unicodedata.normalize("NFC", text)) if part)


def pieces(subwords: Subwords, text: str) -> list[str]:
    return subwords.pieces(subwords.encode([text])[0])


def test_the_vocabulary_is_as_large_as_asked_and_starts_with_the_special_tokens(made):
    assert made.vocab_size == len(set(made.vocabulary)) == SIZE[made.kind]
    assert (made.pad, made.sos, made.eos, made.unk) == (0, 1, 2, 3)
    assert made.vocabulary[:4] == [PAD, SOS, EOS, UNK] == list(SPECIAL)


def test_the_kind_is_told(made, request):
    assert made.kind == request.node.callspec.params["made"]


def test_text_comes_back(made, sentences):
    assert [made.decode(ids) for ids in made.encode(sentences)] == sentences


@given(st.text("the rivabcmé가에있물레?.," + SPACES, max_size=41))
def test_text_comes_back_in_nfc_with_single_spaces(made, text):
    assert made.unknown(text) == []
    for form in ("NFC", "NFD"):
        [ids] = made.encode([unicodedata.normalize(form, text)])
        assert made.unk not in ids
        assert made.decode(ids) == written(text)


@given(st.text(max_size=23))
def test_what_is_unknown_is_told(made, text):
    [ids] = made.encode([text])
    assert (made.unk in ids) == bool(made.unknown(text))


def test_unknown_characters_are_told_once_in_their_order(made):
    assert made.unknown("Ωthe ЖΩ river🜁") == ["Ω", "Ж", "🜁"]
    assert made.unknown("the river") == []


def test_unknown_characters_in_a_row_are_one_token():
    bpe = train(lambda: ["the river the river"], 29)
    assert pieces(bpe, "ΩЖe the ΩЖ") == ["▁", UNK, "e", "▁the", "▁", UNK]


@pytest.mark.parametrize("kind", KINDS)
def test_spaces_belong_to_the_pieces_and_punctuation_stands_alone(kind):
    words = train(lambda: ["dog. dog . 강? 강 ? (dog) dogs 강강 (강) . ?s"] * 31, 31, kind)
    assert pieces(words, "dog.") == ["▁dog", "."]
    assert "".join(pieces(words, "강 ? (dog)")) == "▁강▁?▁(dog)"
    assert not [piece for piece in words.vocabulary[4:] if re.search(r"\w[.?()]|[.?()].", piece)]


@pytest.mark.parametrize("kind", ["bpe", "wordpiece"])
def test_punctuation_behind_a_space_is_another_piece(kind):
    words = train(lambda: ["dog. dog . 강? 강 ? (dog)"] * 31, 47, kind)
    assert pieces(words, "dog. dog . (dog)") == ["▁dog", ".", "▁dog", "▁.", "▁(", "dog", ")"]
    assert pieces(words, "강?강 ?") == ["▁강", "?", "강", "▁?"]


def test_there_is_no_jamo_in_a_korean_vocabulary(made):
    assert not [piece for piece in made.vocabulary if JAMO.search(piece)]
    assert [piece for piece in made.vocabulary if re.search("[가-힣]", piece)]


def test_decoding_leaves_special_tokens_out_and_pieces_show_them(made):
    [ids] = made.encode(["the river"])
    around = [made.sos, *ids, made.unk, made.eos, made.pad, made.pad]
    assert made.decode(around) == "the river"
    assert made.pieces(around)[-4:] == [UNK, EOS, PAD, PAD]


@pytest.mark.parametrize("special", SPECIAL)
@pytest.mark.parametrize("kind", KINDS)
def test_a_special_token_in_a_text_is_text(sentences, tmp_path, kind, special):
    seen = train(lambda: [*sentences, *[f"{special} a{special}"] * 31], 211, kind)
    save(seen, tmp_path)
    for subwords in (seen, load(tmp_path)):
        [ids] = subwords.encode([f"bread {special} mill{special}"])
        assert not {0, 1, 2, 3} & set(ids)
        assert subwords.decode(ids) == f"bread {special} mill{special}"


def test_nothing_gives_nothing(made):
    assert made.encode(["", "  ", "▁\u3000"]) == [[], [], []]
    assert made.decode([]) == ""


def test_a_word_without_end_is_read(made):
    text = "river" * 2003
    assert made.decode(made.encode([text])[0]) == text


# training


def test_the_same_text_gives_the_same_vocabulary_in_every_process():
    """Mirrored letters make ties everywhere; words that occur twice make rare characters."""
    program = """
import random
from heedful.data.subwords import KINDS, train
draw = random.Random(7)
words = ["".join(draw.choices("abcdef", k=draw.randint(1, 11))) for _ in range(61)]
texts = [" ".join(draw.choices(words, k=7)) for _ in range(67)]
texts += [text.translate(str.maketrans("abcdef", "uvwxyz")) for text in texts] + ["곽 쇄 곽쇄", "쿵 쿵쇄 곽"]
for kind in KINDS:
    for vocab_size in (53, 199):
        print(train(lambda: texts, vocab_size, kind).fingerprint)
"""
    told = set()
    for threads, parallel, seed in (("1", "true", "0"), ("3", "true", "1"), ("2", "false", "2")):
        settings = {"RAYON_NUM_THREADS": threads, "TOKENIZERS_PARALLELISM": parallel, "PYTHONHASHSEED": seed}
        told.add(subprocess.check_output([sys.executable, "-c", program], env=os.environ | settings, text=True))
    assert len(told) == 1
    assert len(set(told.pop().split())) == 6


@pytest.mark.parametrize("kind", KINDS)
def test_a_text_that_supports_fewer_pieces_gives_fewer_or_an_error(kind):
    texts = ["the river", "the mill", "there rivers thrill", "miller"] * 3
    fewer = train(lambda: texts, 5003, kind)
    assert 4 + len(set("▁therivmls")) < fewer.vocab_size < 5003
    with pytest.raises(UserError, match=rf"vocabulary of 5003 .*\({fewer.vocab_size} pieces\); use --vocab-size"):
        train(lambda: texts, 5003, kind, exactly=True)
    assert train(lambda: texts, fewer.vocab_size, kind, exactly=True).kind == kind


@pytest.mark.parametrize("kind", KINDS)
def test_the_rarest_characters_are_unknown_if_there_is_no_room_for_all(kind):
    letters = "abcdefghijklmnopqrstu"
    texts = [letter * 7 * (43 - place) for place, letter in enumerate(letters)]
    small = train(lambda: texts, 4 + 12, kind)
    assert small.vocab_size <= 16
    assert small.unknown(letters) == list("ijklmnopqrstu")  # the space and the eight most frequent take 9 of 12
    assert train(lambda: texts, 4 + 32, kind).unknown(letters) == []


def test_characters_left_out_join_nothing():
    texts = ["aΩb"] * 97 + ["ccc ddd"] * 101
    small = train(lambda: texts, 4 + 5)
    assert "Ω" not in small.vocabulary
    assert "ab" not in small.vocabulary


def test_a_space_is_known_even_where_it_is_rare():
    text = "".join(chr(0x4E00 + number) * (number + 2) for number in range(97))
    assert train(lambda: [text], 53).unknown(text[-1]) == []


@pytest.mark.parametrize(
    ("texts", "vocab_size", "kind", "message"),
    [
        (["the river"], 7, "bpe", "vocab_size 7 leaves no room beside the 4 special tokens; try 8000"),
        (["the river"], 97, "morse", "'morse' is no kind of vocabulary; choose from bpe, unigram, wordpiece"),
        ([], 97, "bpe", "there is no text to train a vocabulary on"),
        (["", " \n"], 97, "unigram", "there is no text to train a vocabulary on"),
    ],
)
def test_what_cannot_be_trained_is_refused(texts, vocab_size, kind, message):
    with pytest.raises(UserError, match=message):
        train(lambda: texts, vocab_size, kind)


# folders


def test_a_saved_vocabulary_is_the_same_again(made, tmp_path):
    save(made, tmp_path, "source.json")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["source.json"]
    again = load(tmp_path, "source.json")
    assert again.fingerprint == made.fingerprint
    assert again.kind == made.kind


@pytest.mark.parametrize("model_type", [None, "marian"])
def test_transformers_gives_the_same_ids_and_the_end(made, tmp_path, sentences, model_type):
    save(made, tmp_path, max_length=89)
    if model_type:
        (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type}))
    peer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert (peer.pad_token_id, peer.bos_token_id, peer.eos_token_id, peer.unk_token_id) == (0, 1, 2, 3)
    assert peer.model_max_length == 89
    texts = [*sentences, "the  mill </s>\u3000river Ω", "", unicodedata.normalize("NFD", "다리를")]
    for text, ids in zip(texts, made.encode(texts), strict=True):
        assert peer(text).input_ids == [*ids, made.eos]
        assert peer.decode([*ids, made.eos], skip_special_tokens=True).strip() == made.decode(ids)


def test_another_vocabulary_has_another_fingerprint(made, sentences):
    assert train(lambda: sentences, SIZE[made.kind] - 2, made.kind).fingerprint != made.fingerprint


def test_padding_and_truncation_of_a_foreign_folder_are_undone(made, tmp_path):
    backend = tokenizers.Tokenizer.from_str(made.backend.to_str())
    backend.enable_truncation(3)
    backend.enable_padding(length=7)
    backend.save(str(tmp_path / "tokenizer.json"))
    assert load(tmp_path).encode(["the old stone mill"]) == made.encode(["the old stone mill"])


def test_a_folder_without_a_vocabulary_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"has no target\.json"):
        load(tmp_path, "target.json")


@pytest.mark.parametrize("content", [b"", b"{", b'{"model": 1}', b"\xff\xfe"])
def test_a_damaged_vocabulary_is_refused(tmp_path, content):
    (tmp_path / "tokenizer.json").write_bytes(content)
    with pytest.raises(UserError, match=r"tokenizer\.json is not a tokenizer"):
        load(tmp_path)


def test_a_vocabulary_without_special_tokens_is_refused(tmp_path):
    backend = tokenizers.Tokenizer(models.WordLevel({"<unk>": 0, "</s>": 1}, unk_token="<unk>"))
    backend.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(UserError, match=r"tokenizer\.json lacks the special tokens <pad>, <s>; translation needs"):
        load(tmp_path)
