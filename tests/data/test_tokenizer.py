import json
import re
import unicodedata
from pathlib import Path

import numpy as np
import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import models

from heedful.data.tokenizer import SPECIAL, Tokenizer, case, load, save, train
from heedful.errors import UserError

JAMO = re.compile("[\u1100-\u11ff\u3130-\u318f]")
# Letters are told apart only by what precedes them: too few sentences to see a merge twice leave many ties.
TIES = ["ab cd ef gh", "ba dc fe hg", "abcd efgh badc fehg"] * 2


def tokens(tokenizer: Tokenizer, text: str) -> list[str]:
    return [tokenizer.vocabulary[i] for i in tokenizer.encode([text])[0]]


@pytest.mark.parametrize("vocab_size", [197, 211, 251])
def test_training_gives_exactly_the_tokens_asked_for(sentences, vocab_size):
    made = train(lambda: sentences, vocab_size)
    assert made.vocab_size == len(made.vocabulary) == len(set(made.vocabulary)) == vocab_size
    assert made.vocabulary[:5] == list(SPECIAL)
    assert [made.pad, made.unk, made.cls, made.sep, made.mask] == [0, 1, 2, 3, 4]


def test_a_piece_learned_is_one_that_occurs_twice(sentences):
    made = train(lambda: sentences, 251)
    assert tokens(made, "the") == ["the"]
    assert "##he" in made.vocabulary or "th" in made.vocabulary


def test_the_same_text_gives_the_same_vocabulary_every_time():
    fingerprints = {train(lambda: TIES, 29).fingerprint for _ in range(10)}
    assert len(fingerprints) == 1


def test_a_letter_behind_an_invisible_one_does_not_change_from_training_to_training():
    """A soft hyphen is dropped, so that what follows it continues a word."""
    text = ["\u00adx".join("abcdef"), "\u00ad".join("ghijklmnopq")] * 2
    vocabularies = {tuple(train(lambda: text, 39).vocabulary) for _ in range(10)}
    assert len(vocabularies) == 1


def test_every_character_of_the_text_is_known(trained, sentences):
    assert all(trained.unk not in ids for ids in trained.encode(sentences))


@pytest.mark.parametrize("cased", [False, True])
def test_saving_and_loading_keep_ids_and_fingerprint(tmp_path, sentences, cased):
    made = train(lambda: sentences, 251, cased=cased)
    save(made, tmp_path, max_length=97)
    again = load(tmp_path)
    assert again.fingerprint == made.fingerprint
    assert again.vocabulary == made.vocabulary
    assert again.encode(sentences) == made.encode(sentences)
    settings = json.loads((tmp_path / "tokenizer_config.json").read_text())
    assert settings["model_max_length"] == 97
    assert settings["do_lower_case"] is not cased
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "tokenizer.json",
        "tokenizer_config.json",
        "vocab.txt",
    ]


def test_an_uncased_tokenizer_takes_capitals_for_small_letters(trained):
    assert trained.encode(["THE River"]) == trained.encode(["the river"])
    assert case(trained) == "uncased"


def test_a_cased_tokenizer_tells_them_apart(sentences):
    made = train(lambda: sentences, 251, cased=True)
    assert tokens(made, "The") != tokens(made, "the")
    assert made.decode(made.encode(["The river"])[0]) == "The river"
    assert case(made) == "cased"


def test_another_vocabulary_has_another_fingerprint(trained, sentences):
    assert train(lambda: sentences, 241).fingerprint != trained.fingerprint


def test_there_is_no_jamo_in_a_korean_vocabulary(trained):
    assert not [token for token in trained.vocabulary if JAMO.search(token)]
    assert [token for token in trained.vocabulary if re.search("[가-힣]", token)]


def test_korean_taken_apart_gives_the_ids_of_korean_whole(trained):
    text = "오래된 다리를 건넜습니다"
    apart = unicodedata.normalize("NFD", text)
    assert len(apart) > len(text)
    assert trained.encode([apart]) == trained.encode([text])
    assert trained.unk not in trained.encode([text])[0]


@given(st.text("가나다라마바사éàü café", max_size=31))
def test_the_form_of_the_text_makes_no_difference(trained, text):
    whole, apart = (unicodedata.normalize(form, text) for form in ("NFC", "NFD"))
    assert trained.encode([whole]) == trained.encode([apart])


def test_a_word_without_end_is_read_in_parts(tmp_path, sentences):
    made = train(lambda: [*sentences, "강가의물레방아강가의물레방아"] * 2, 251)
    word = "강가의물레방아" * 43  # 301 letters, as where nobody writes spaces
    save(made, tmp_path)
    for tokenizer in (made, load(tmp_path)):
        assert tokenizer.unk not in tokenizer.encode([word])[0]
        assert tokenizer.decode(tokenizer.encode([word])[0]).replace(" ", "") == word
        assert tokens(tokenizer, word[:100]) == tokens(tokenizer, word)[: len(tokens(tokenizer, word[:100]))]
    assert tokens(made, f"{word[:70]}.{word[:70]}") == [*tokens(made, word[:70]), ".", *tokens(made, word[:70])]


def test_an_accent_is_part_of_the_letter(trained):
    assert tokens(trained, "café") != tokens(trained, "cafe")
    assert trained.unk not in trained.encode(["café"])[0]
    assert trained.decode(trained.encode(["café"])[0]) == "café"


@pytest.mark.parametrize("special", SPECIAL)
def test_a_special_token_in_a_text_is_text(trained, sentences, tmp_path, special):
    save(trained, tmp_path)
    for tokenizer in (trained, load(tmp_path), train(lambda: [*sentences, special, special], 251)):
        [ids] = tokenizer.encode([f"bread {special} mill{special}"])
        assert not {tokenizer.pad, tokenizer.cls, tokenizer.sep, tokenizer.mask} & set(ids)
        assert len(ids) > 4


def test_training_text_may_hold_special_tokens(sentences):
    made = train(lambda: [*sentences, "[MASK] [MASK]", "[SEP]"], 251)
    assert made.vocabulary[:5] == list(SPECIAL)
    assert made.unk not in made.encode(["[MASK]"])[0]


def test_more_tokens_than_the_text_supports_are_refused(sentences):
    with pytest.raises(UserError, match=r"vocabulary of 5003 .*\(\d+ pieces\).*--vocab-size (\d+)") as raised:
        train(lambda: sentences, 5003)
    suggested = int(re.search(r"--vocab-size (\d+)", str(raised.value))[1])
    assert train(lambda: sentences, suggested).vocab_size == suggested


def test_fewer_tokens_than_letters_are_refused(sentences):
    with pytest.raises(UserError, match=r"--vocab-size 61 .*alphabet \(\d+\).*--vocab-size \d+"):
        train(lambda: sentences, 61)


def test_no_room_beside_the_special_tokens_is_refused(sentences):
    with pytest.raises(UserError, match="--vocab-size 5 "):
        train(lambda: sentences, 5)


def old_folder(folder: Path, words: list[str], **settings: object) -> Path:
    (folder / "vocab.txt").write_text("\n".join([*SPECIAL, *words]) + "\n", encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


def test_an_old_folder_without_tokenizer_json_loads(tmp_path):
    found = load(old_folder(tmp_path, ["cafe", "café", "Cafe", "##s"], do_lower_case=True))
    assert tokens(found, "Cafés") == ["cafe", "##s"]  # BERT's own rule: small letters lose their accents


def test_an_old_cased_folder_keeps_case_and_accents(tmp_path):
    found = load(old_folder(tmp_path, ["cafe", "café", "Café", "##s"], do_lower_case=False))
    assert tokens(found, "Cafés café") == ["Café", "##s", "café"]


def test_an_old_folder_says_whether_chinese_is_split(tmp_path):
    found = load(old_folder(tmp_path, ["河", "岸", "##岸", "河岸"], tokenize_chinese_chars=False))
    assert tokens(found, "河岸") == ["河岸"]


def test_an_old_folder_saved_anew_gives_the_same_ids(tmp_path):
    found = load(old_folder(tmp_path, ["cafe", "café", "##s"], do_lower_case=True))
    save(found, tmp_path / "new")
    assert load(tmp_path / "new").fingerprint == found.fingerprint


def test_a_folder_without_a_tokenizer_is_refused(tmp_path):
    with pytest.raises(UserError, match="no tokenizer"):
        load(tmp_path)


@pytest.mark.parametrize("content", [b"", b"{", b'{"model": 1}', b"\xff\xfe"])
def test_a_damaged_tokenizer_is_refused(tmp_path, content):
    (tmp_path / "tokenizer.json").write_bytes(content)
    with pytest.raises(UserError, match=r"tokenizer\.json is not a tokenizer"):
        load(tmp_path)


def test_damaged_settings_of_an_old_folder_are_refused_by_their_name(tmp_path):
    old_folder(tmp_path, ["cafe"])
    (tmp_path / "tokenizer_config.json").write_text("{")
    with pytest.raises(UserError, match=r"tokenizer_config\.json"):
        load(tmp_path)


def test_a_tokenizer_without_special_tokens_is_refused(tmp_path):
    backend = tokenizers.Tokenizer(models.WordPiece({"[UNK]": 0, "[CLS]": 1, "[SEP]": 2}, unk_token="[UNK]"))
    backend.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(UserError, match=r"lacks the special tokens \[PAD\], \[MASK\]"):
        load(tmp_path)


def test_an_old_vocabulary_without_special_tokens_is_refused(tmp_path):
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\nmill\n")
    with pytest.raises(UserError, match=r"vocab.txt lacks the special tokens \[SEP\], \[MASK\]"):
        load(tmp_path)


def test_a_vocabulary_that_is_no_text_is_named(tmp_path):
    (tmp_path / "vocab.txt").write_bytes(b"[PAD]\n\xff\n")
    with pytest.raises(UserError, match=r"/vocab.txt is not a tokenizer .*; copy or train it again"):
        load(tmp_path)


def test_masks_of_the_vocabulary(of_words):
    made = of_words(["mill", "##er", "#", "##s"])
    assert made.continues.tolist() == [False] * 5 + [False, True, False, True]
    assert np.flatnonzero(made.special).tolist() == [0, 1, 2, 3, 4]
    assert made.special.shape == made.continues.shape == (9,)


def test_special_tokens_may_lie_anywhere(tmp_path):
    (tmp_path / "vocab.txt").write_text("[PAD]\nmill\n[MASK]\nriver\n[SEP]\n[CLS]\n[UNK]\n")
    made = load(tmp_path)
    assert (made.pad, made.unk, made.cls, made.sep, made.mask) == (0, 6, 5, 4, 2)
    assert made.special.tolist() == [True, False, True, False, True, True, True]
    assert made.encode(["mill water"]) == [[1, 6]]


def test_a_line_twice_leaves_an_id_without_a_token(tmp_path):
    found = load(old_folder(tmp_path, ["mill", "river", "mill", "##s", "ferry"]))
    assert found.vocab_size == 10
    assert [found.vocabulary[number] for number in found.encode(["mills river ferry"])[0]] == [
        "mill",
        "##s",
        "river",
        "ferry",
    ]
    assert np.flatnonzero(found.continues).tolist() == [8]
    assert np.flatnonzero(found.special).tolist() == [0, 1, 2, 3, 4, 5]  # the first "mill" is never drawn
    save(found, tmp_path / "new")
    lines = (tmp_path / "new/vocab.txt").read_text(encoding="utf-8").split()
    assert lines[-4:] == ["river", "mill", "##s", "ferry"]
    (tmp_path / "new/tokenizer.json").unlink()
    assert load(tmp_path / "new").encode(["mills river ferry"]) == found.encode(["mills river ferry"])


def test_decoding_joins_the_pieces_and_leaves_special_tokens_out(of_words):
    made = of_words(["mill", "##er", "river"])
    assert made.decode([2, 5, 6, 7, 3]) == "miller river"


def test_padding_and_truncation_of_a_foreign_folder_are_undone(tmp_path, trained):
    backend = tokenizers.Tokenizer.from_str(trained.backend.to_str())
    backend.enable_truncation(3)
    backend.enable_padding(length=7)
    backend.save(str(tmp_path / "tokenizer.json"))
    found = load(tmp_path)
    assert found.encode(["the old stone mill runs"]) == trained.encode(["the old stone mill runs"])
    assert found.fingerprint == trained.fingerprint
