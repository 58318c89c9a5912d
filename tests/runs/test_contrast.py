import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from heedful.errors import UserError
from heedful.formats.word2vec import WordVectors
from heedful.predict import load_predictor
from heedful.predict.predictor import Predictor
from heedful.runs import pictures
from heedful.runs.contrast import _percent, contrast, draw, table, told

WORDS = ("he", "sat", "by", "the", "bank", "river", "money", "was", "at", "fer", "##ry", "##man", "7", ".")
ONE, OTHER = "He sat by the bank .", "The bank was at the river"


@pytest.fixture(scope="module")
def folder(write_bert: Callable[..., Path]) -> Callable[..., Path]:
    return partial(write_bert, words=WORDS, deviation=0.5, layers=3, dim=22, max_length=17)


@pytest.fixture(scope="module")
def predictor(tmp_path_factory: pytest.TempPathFactory, folder: Callable[..., Path]) -> Predictor:
    return load_predictor(folder(tmp_path_factory.mktemp("contrast") / "bert"), "cpu")


def last_state(predictor: Predictor, text: str, first: int, last: int) -> torch.Tensor:
    """The mean of some states of the encoder's output, by the plain way in."""
    assert predictor.words is not None
    (ids,) = predictor.tokenizer.encode([text])
    whole = torch.tensor([[predictor.tokenizer.cls, *ids, predictor.tokenizer.sep]])
    with torch.no_grad():
        return predictor.words.bert(whole).hidden[0, first:last].mean(0)


def test_the_word_is_compared_with_itself_layer_by_layer(predictor: Predictor):
    found = contrast(predictor, (ONE, OTHER), "Bank")
    states = last_state(predictor, ONE, 5, 6), last_state(predictor, OTHER, 2, 3)
    assert found.layer == 3
    assert len(found.similarities) == len(found.others) == 4
    assert found.similarity == pytest.approx(float(F.cosine_similarity(*states, dim=0)), abs=1e-5)
    assert found.similarity < 0.99
    earlier = contrast(predictor, (ONE, OTHER), "bank", layer=1)
    assert earlier.similarities == found.similarities
    assert earlier.similarity == found.similarities[1] != found.similarity
    assert [sense.times for sense in found.senses] == [1, 1]


def test_a_final_norm_counts_for_the_last_layer(tmp_path: Path, folder: Callable[..., Path]):
    predictor = load_predictor(folder(tmp_path / "pre", pre_norm=True), "cpu")
    states = last_state(predictor, ONE, 5, 6), last_state(predictor, OTHER, 2, 3)
    found = contrast(predictor, (ONE, OTHER), "bank")
    assert found.similarity == pytest.approx(float(F.cosine_similarity(*states, dim=0)), abs=1e-5)


def test_the_same_sentence_twice_makes_no_difference(predictor: Predictor):
    assert contrast(predictor, (ONE, ONE), "bank").similarities == pytest.approx([1.0] * 4, abs=1e-5)


def test_a_word_in_pieces_is_their_mean(predictor: Predictor):
    found = contrast(predictor, ("the ferryman sat", "he was the Ferryman"), "ferryman")
    assert found.pieces == ["fer", "##ry", "##man"]
    states = last_state(predictor, "the ferryman sat", 2, 5), last_state(predictor, "he was the ferryman", 4, 7)
    assert found.similarity == pytest.approx(float(F.cosine_similarity(*states, dim=0)), abs=1e-5)
    assert "read as fer ##ry ##man" in "\n".join(told(found))


def test_what_fits_in_its_place_is_what_fills_a_blank(predictor: Predictor):
    found = contrast(predictor, (ONE, OTHER), "bank", top=4)
    for sense, blank in zip(found.senses, ("He sat by the [MASK] .", "The [MASK] was at the river"), strict=True):
        (filled,) = predictor.fill(blank, 99)
        words = [one for one in filled if one.token in (*WORDS[:9], "fer") and one.token != "bank"]
        assert [one.token for one in sense.instead] == [one.token for one in words[:4]]
        assert [one.probability for one in sense.instead] == pytest.approx(
            [one.probability for one in words[:4]], rel=1e-5
        )
    assert not {"bank", "##ry", "7", ".", "[MASK]"} & {one.token for sense in found.senses for one in sense.read_as}


def test_what_is_read_out_of_a_state_depends_on_the_sentence(predictor: Predictor):
    one, other = contrast(predictor, (ONE, OTHER), "bank", top=9).senses
    assert [each.probability for each in one.read_as] != [each.probability for each in other.read_as]


def test_without_vectors_the_models_own_table_is_the_context_free_one(predictor: Predictor):
    found = contrast(predictor, (ONE, OTHER), "bank", top=3)
    assert predictor.words is not None
    rows = F.normalize(predictor.words.bert.embeddings.tokens.weight.detach(), dim=1)
    vocabulary = predictor.tokenizer.vocabulary
    similarities = (rows @ rows[vocabulary.index("bank")]).tolist()
    words = [*WORDS[:4], *WORDS[5:10]]
    expected = sorted(words, key=lambda word: -similarities[vocabulary.index(word)])[:3]
    assert [near.word for near in found.nearest] == expected
    assert found.vectors == "the model's own table of tokens"


def test_given_vectors_are_used(predictor: Predictor):
    vectors = WordVectors(("bank", "coin", "shore"), np.array([[1, 0], [1, 1], [0, 1]], np.float32))
    found = contrast(predictor, (ONE, OTHER), "bank", vectors=vectors)
    assert [near.word for near in found.nearest] == ["coin", "shore"]
    with pytest.raises(UserError, match="'river' is not among the 3 words"):
        contrast(predictor, ("the river", "a river"), "river", vectors=vectors)


def test_a_corpus_gives_words_that_are_taken_alike(predictor: Predictor, tmp_path: Path):
    text = tmp_path / "text.txt"
    text.write_text(f"{OTHER.replace('bank', 'money')}\nhe was at the bank\n{'the ' * 40}\n7 .\n", encoding="utf-8")
    found = contrast(predictor, (ONE, OTHER), "bank", corpus=[str(text)], top=99)
    for sense, state in zip(
        found.senses, (last_state(predictor, ONE, 5, 6), last_state(predictor, OTHER, 2, 3)), strict=True
    ):
        assert sense.like is not None
        assert {near.word for near in sense.like} == {"the", "money", "was", "at", "river", "he"}
        money = last_state(predictor, OTHER.replace("bank", "money"), 2, 3)
        told_of = {near.word: near.similarity for near in sense.like}
        assert told_of["money"] == pytest.approx(float(F.cosine_similarity(state, money, dim=0)), abs=1e-5)
        assert [near.similarity for near in sense.like] == sorted(told_of.values(), reverse=True)
    assert sum("in the text" in line for line in told(found)) == 2


def test_different_words_are_the_yardstick(predictor: Predictor):
    found = contrast(predictor, ("the bank .", "bank river ."), "bank")
    pairs = [
        ("the bank .", 1, "bank river .", 1),
        ("the bank .", 1, "bank river .", 2),
        ("the bank .", 2, "bank river .", 2),
    ]
    alike = [
        float(F.cosine_similarity(last_state(predictor, a, i, i + 1), last_state(predictor, b, j, j + 1), dim=0))
        for a, i, b, j in pairs
    ]
    assert found.others[-1] == pytest.approx(sum(alike) / 3, abs=1e-5)
    assert contrast(predictor, ("bank", "bank ."), "bank").others == [1.0] * 4


def test_the_words_and_the_table_say_the_same(predictor: Predictor):
    found = contrast(predictor, ("the bank by the bank", OTHER), "bank", layer=2)
    lines = "\n".join(told(found))
    assert f"in context (layer 2 of 3): {found.similarity:.3f} like itself" in lines
    assert "bank stands there 2 times; the first counts" in lines
    made = json.loads(json.dumps(table(found)))
    assert made["contextual"]["similarity"] == found.similarity == made["contextual"]["by_layer"][2]
    assert made["context_free"]["similarity"] == 1.0
    assert [one["text"] for one in made["contextual"]["sentences"]] == ["the bank by the bank", OTHER]
    assert made["contextual"]["sentences"][0]["times"] == 2


@pytest.mark.parametrize("name", ["picture.png", "picture.svg"])
def test_it_is_drawn(predictor: Predictor, tmp_path: Path, name: str):
    draw(contrast(predictor, (ONE, OTHER), "bank"), tmp_path / name)
    content = (tmp_path / name).read_bytes()
    assert content.startswith(b"\x89PNG" if name.endswith("png") else b"<?xml")
    assert len(content) > 5000


def test_a_picture_of_another_kind_is_refused(predictor: Predictor, tmp_path: Path):
    with pytest.raises(UserError, match=r"picture\.txt can't be drawn"):
        draw(contrast(predictor, (ONE, OTHER), "bank"), tmp_path / "picture.txt")


@pytest.mark.parametrize(
    ("sentences", "word", "options", "complaint"),
    [
        ((ONE, "the river"), "bank", {}, "'bank' is not in 'the river'; its words are: the, river"),
        ((ONE, "."), "bank", {}, "'bank' is not in '.'; its words are: none"),
        (("river bank", OTHER), "river bank", {}, "'river bank' is 2 words to the model; give one"),
        ((ONE, OTHER), "", {}, "'' is 0 words to the model; give one"),
        (("the quay", "a quay"), "quay", {}, "vocabulary can't spell 'quay'"),
        ((ONE, "bank " * 16), "bank", {}, "has 18 tokens, of which the model reads 17 at most"),
        ((ONE, OTHER), "bank", {"layer": 4}, "layer 4 is not there; the model has 3"),
        ((ONE, OTHER), "bank", {"layer": -1}, "layer -1 is not there"),
        ((ONE, OTHER), "bank", {"top": 0}, "top 0 must be at least 1"),
        ((ONE, OTHER), "bank", {"corpus": ["gone.txt"]}, "gone.txt does not exist"),
    ],
)
def test_what_can_not_be_compared_is_refused(
    predictor: Predictor, sentences: tuple[str, str], word: str, options: dict, complaint: str
):
    with pytest.raises(UserError) as error:
        contrast(predictor, sentences, word, **options)
    assert complaint in str(error.value)


def test_a_model_without_the_head_tells_all_but_what_fits(
    tmp_path: Path, folder: Callable[..., Path], predictor: Predictor
):
    text = tmp_path / "text.txt"
    text.write_text(f"{OTHER.replace('bank', 'money')}\n", encoding="utf-8")
    bare = load_predictor(folder(tmp_path / "bare", outputs=None), "cpu")
    found = contrast(bare, (ONE, OTHER), "bank", corpus=[str(text)])
    assert len(found.similarities) == len(found.others) == 4
    assert found.similarity < 0.99
    assert [(sense.instead, sense.read_as) for sense in found.senses] == [(None, None)] * 2
    assert all(sense.like for sense in found.senses)
    lines = list(told(found))
    assert lines[-1] == "the model has no masked-word head, so it can't say what fits in the word's place"
    assert not any("in its place " in line or "read as" in line for line in lines[:-1])
    made = json.loads(json.dumps(table(found)))["contextual"]["sentences"]
    assert [one["in_its_place"] for one in made] == [one["read_as"] for one in made] == [None, None]
    assert contrast(predictor, (ONE, OTHER), "bank").lacks is None


@pytest.mark.parametrize("given", [False, True])
def test_a_model_without_the_head_is_drawn(
    tmp_path: Path, folder: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, given: bool
):
    text = tmp_path / "text.txt"
    text.write_text("he sat by the money\n", encoding="utf-8")
    bare = load_predictor(folder(tmp_path / "bare", outputs=None), "cpu")
    drawn: list[Figure] = []
    monkeypatch.setattr(pictures, "save", lambda figure, path: drawn.append(figure))
    draw(contrast(bare, (ONE, OTHER), "bank", corpus=[str(text)] if given else []), tmp_path / "bank.png")
    (figure,) = drawn
    assert figure.get_supxlabel().startswith("the model has no masked-word head")
    assert [axis.get_xlabel() for axis in figure.axes] == ["layer", "cosine", *(["cosine"] * 2 if given else [])]
    plt.close(figure)


def test_every_layer_has_a_line(predictor: Predictor):
    found = contrast(predictor, (ONE, OTHER), "bank")
    lines = [line.split() for line in told(found) if "different words " in line and line.startswith("  ")]
    assert [" ".join(line[:-4]) for line in lines] == ["input", "layer 1", "layer 2", "layer 3"]
    assert [line[-4] for line in lines] == [f"{value:.3f}," for value in found.similarities]
    assert [line[-1] for line in lines] == [f"{value:.3f}" for value in found.others]


def test_a_small_share_keeps_a_digit():
    assert [_percent(share) for share in (0.633, 0.0005, 0.00042, 3e-9)] == ["63.3%", "0.1%", "0.042%", "0.000%"]
