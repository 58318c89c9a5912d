import json
import random
import unicodedata
from pathlib import Path

import pytest
import sentencepiece
import transformers
from hypothesis import example, given, settings
from hypothesis import strategies as st

from heedful.data.sentencepiece import MarianPieces, load_marian
from heedful.errors import UserError

WORDS = ["the", "river", "mill", "baker", "bridge", "heron", "runs", "café", "naïve", "강가에", "오래된", "다리를"]
WORDS += ["건넜습니다", "물레방아", "aa", "aaa", "aaaa", "Straße", "ﬁsh", "don't", "1987", "(so)", "…"]
CODES = [">>fra<<", ">>kor<<"]
TEXTS = st.one_of(
    st.lists(st.sampled_from([*WORDS, "rivers", "bakers", ".", "ｒｉｖｅｒ", "日本", "▁", "\u00a0", "\t"])).map(
        " ".join
    ),
    st.text("thervimlakbdgaéà가강에오래ｒｉ。①½ﬁ´\u0301\u0308\u00a0\u3000\u200b\t\n  ▁.?<>/s日Ω", max_size=37),
    st.text(max_size=13),
)


def learn(prefix: Path, seed: int, kind: str, size: int, **options: object) -> Path:
    draw = random.Random(seed)
    made = [word + end for word in WORDS for end in ("", "s", "er", "에서")]
    texts = [
        " ".join(draw.choices(made, k=draw.randint(3, 11))) + draw.choice([".", "?", "!", ""]) for _ in range(401)
    ]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts),
        model_prefix=str(prefix),
        vocab_size=size,
        model_type=kind,
        character_coverage=1.0,
        hard_vocab_limit=False,
        minloglevel=2,
        num_threads=1,
        **options,
    )
    return prefix.with_suffix(".model")


def write_folder(folder: Path, kind: str, **options: object) -> Path:
    """A Marian folder whose two models differ, and whose vocab.json lacks a few of their pieces."""
    folder.mkdir()
    pieces: set[str] = set()
    for seed, name in ((3, "source"), (5, "target")):
        model = learn(folder / name, seed, kind, 157 + seed, **options).rename(folder / f"{name}.spm")
        peer = sentencepiece.SentencePieceProcessor(model_file=str(model))
        pieces |= {peer.id_to_piece(number) for number in range(3, peer.get_piece_size())}
    kept = sorted(pieces)[5:]
    vocabulary = ["</s>", "<unk>", *kept, *CODES, "日", "<pad>"]
    (folder / "vocab.json").write_text(json.dumps({piece: number for number, piece in enumerate(vocabulary)}))
    (folder / "config.json").write_text('{"model_type": "marian"}')
    return folder


@pytest.fixture(scope="module", params=["unigram", "bpe"])
def folder(request, tmp_path_factory) -> Path:
    return write_folder(tmp_path_factory.mktemp("marian") / request.param, request.param)


@pytest.fixture(scope="module")
def both(folder) -> tuple[MarianPieces, MarianPieces]:
    return load_marian(folder)


@pytest.fixture(scope="module")
def peers(folder) -> tuple[sentencepiece.SentencePieceProcessor, sentencepiece.SentencePieceProcessor]:
    source, target = (
        sentencepiece.SentencePieceProcessor(model_file=str(folder / f"{name}.spm")) for name in ("source", "target")
    )
    return source, target


@pytest.fixture(scope="module")
def marian(folder) -> transformers.MarianTokenizer:
    return transformers.MarianTokenizer.from_pretrained(folder)


@given(TEXTS)
@settings(max_examples=300)
@example("aaaaaaaaaaa aaaa")
@example(unicodedata.normalize("NFD", "강가에 있는 물레방아 café"))
@example("´x \u3000 ﬁ①½ｒｉｖｅｒ")
def test_ids_are_those_of_sentencepiece_and_vocab_json(both, peers, folder, text):
    ids = json.loads((folder / "vocab.json").read_text())
    for ours, peer in zip(both, peers, strict=True):
        pieces = peer.encode(text, out_type=str)
        assert ours.encode([text]) == [[ids.get(piece, ids["<unk>"]) for piece in pieces]]


@given(TEXTS.filter(lambda text: not any(token in text for token in ("</s>", "<unk>", "<pad>"))))
@settings(max_examples=50)
def test_ids_and_text_are_those_of_transformers(both, marian, text):
    source, target = both
    assert [*source.encode([text])[0], source.eos] == marian(text).input_ids
    [ids] = target.encode([text])
    assert [*ids, target.eos] == marian(text_target=text).input_ids
    assert target.decode([target.pad, *ids, target.eos]) == marian.decode(ids, skip_special_tokens=True)


def test_special_tokens_are_those_of_vocab_json(both, marian, folder):
    for pieces in both:
        assert (pieces.eos, pieces.unk, pieces.pad, pieces.sos) == (0, 1, marian.pad_token_id, marian.pad_token_id)
        assert pieces.vocab_size == len(pieces.vocabulary) == marian.pad_token_id + 1
        assert pieces.kind == folder.name
        assert pieces.pieces([0, 1, pieces.pad]) == ["</s>", "<unk>", "<pad>"]
    assert load_marian(folder, sos=7)[1].sos == 7


def test_special_tokens_typed_are_text(both):
    [ids] = both[0].encode(["</s> <pad>"])
    assert not {both[0].eos, both[0].pad} & set(ids)


@pytest.mark.parametrize("code", CODES)
def test_a_language_code_is_one_token(both, marian, code):
    source = both[0]
    text = f"{code} the river"
    assert source.encode([text])[0] == [source.vocabulary.index(code), *source.encode(["the river"])[0]]
    assert [*source.encode([text])[0], source.eos] == marian(text).input_ids


def test_an_unknown_language_code_is_text(both):
    source = both[0]
    assert source.encode([">>xyz<< the"])[0][-1] == source.encode(["the"])[0][-1]
    assert len(source.encode([">>xyz<< the"])[0]) > 1 + len(source.encode(["the"])[0])


def test_unknown_characters_are_told(both):
    source = both[0]
    assert source.unknown("the Ωriver ЖΩ 日") == ["Ω", "Ж"]  # 日 is in vocab.json, though not in source.spm
    assert source.unknown(unicodedata.normalize("NFD", ">>fra<< 강가에")) == []


def test_nothing_gives_nothing(both):
    assert both[0].encode([]) == []
    assert both[0].encode(["", "  ", "\t"]) == [[], [], []]
    assert both[0].decode([]) == ""


def test_fingerprints_tell_vocabularies_apart(both, folder):
    source, target = both
    assert source.fingerprint != target.fingerprint
    assert load_marian(folder)[0].fingerprint == source.fingerprint


@pytest.mark.parametrize(
    "options",
    [
        {"normalization_rule_name": "identity"},
        {"normalization_rule_name": "nfkc_cf", "add_dummy_prefix": False},
        {"remove_extra_whitespaces": False},
        {"user_defined_symbols": ["mill", "▁ba"]},
    ],
    ids=["identity", "no-prefix", "every-space", "user-defined"],
)
def test_settings_of_the_model_are_heeded(tmp_path, options):
    path = learn(tmp_path / "m", 11, "unigram", 163, **options)
    peer = sentencepiece.SentencePieceProcessor(model_file=str(path))
    ids = {peer.id_to_piece(number): number for number in range(peer.get_piece_size())}
    ids["<pad>"] = len(ids)
    ours = MarianPieces(path.read_bytes(), ids)

    @given(TEXTS)
    @settings(max_examples=100)
    def agree(text: str) -> None:
        assert ours.encode([text]) == [[ids.get(piece, ours.unk) for piece in peer.encode(text, out_type=str)]]

    agree()


def test_a_vocabulary_of_its_own_for_the_target(folder, tmp_path):
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    ids = json.loads((folder / "vocab.json").read_text())
    other = {piece: len(ids) - 1 - number for piece, number in ids.items()}
    (tmp_path / "target_vocab.json").write_text(json.dumps(other))
    source, target = load_marian(tmp_path)
    assert (source.eos, target.eos, target.pad) == (0, len(ids) - 1, 0)


# bad folders


@pytest.mark.parametrize("name", ["source.spm", "target.spm", "vocab.json"])
def test_a_missing_file_is_named(folder, tmp_path, name):
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / name).unlink()
    with pytest.raises(UserError, match=f"has no {name}; copy the whole Marian folder"):
        load_marian(tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("vocab.json", b"{", "vocab.json is damaged"),
        ("vocab.json", b"[3]", "vocab.json is not an object of pieces and ids"),
        ("vocab.json", b'{"</s>": 0, "<unk>": "1"}', "vocab.json is not an object of pieces and ids"),
        ("vocab.json", b'{"</s>": 0, "<unk>": 1}', "lacks <pad>"),
        ("vocab.json", b'{"</s>": 0, "<unk>": 1, "<pad>": 3}', "are not 0 to 2"),
        ("source.spm", b"\x0f\xff", "source.spm is no sentencepiece model"),
        ("source.spm", b"\x0a\x05ab", "source.spm is no sentencepiece model"),
        ("source.spm", b"", "source.spm has no pieces"),
    ],
)
def test_a_damaged_file_is_named(folder, tmp_path, name, content, message):
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=message):
        load_marian(tmp_path)


@given(st.integers(0, 2999), st.integers(0, 255))
@settings(max_examples=100)
def test_a_spoilt_byte_or_a_cut_gives_one_line_or_a_model(folder, place, byte):
    data = (folder / "source.spm").read_bytes()
    ids = json.loads((folder / "vocab.json").read_text())
    for spoilt in (data[: 3 * place], data[:place] + bytes([byte]) + data[place + 1 :]):
        try:
            MarianPieces(spoilt, ids).encode(["the river\u3000강"])
        except UserError as error:
            assert "\n" not in str(error)  # noqa: PT017 (either is right)


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("char", {}, "has the kind char, which is not supported"),
        ("unigram", {"byte_fallback": True}, "has byte fallback"),
        ("unigram", {"treat_whitespace_as_suffix": True}, "has spaces at the end of pieces"),
        ("bpe", {"user_defined_symbols": ["mill"]}, "has user-defined pieces in BPE"),
    ],
)
def test_what_is_not_supported_is_refused(tmp_path, kind, options, message):
    path = learn(tmp_path / "m", 13, kind, 401 if options else 67, **options)
    with pytest.raises(UserError, match=message):
        MarianPieces(path.read_bytes(), {"</s>": 0, "<unk>": 1, "<pad>": 2}, origin="m.spm")
