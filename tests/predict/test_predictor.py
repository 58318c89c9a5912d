import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import heedful
from heedful.data import tokenizer as wordpiece
from heedful.data.inputs import Input, Inputs
from heedful.data.tokenizer import Tokenizer
from heedful.errors import UserError
from heedful.formats.huggingface import Model, save_model
from heedful.formats.sentence_transformers import Pooling
from heedful.predict import Predictor
from heedful.predict.answers import Answer
from heedful.predict.engine import Pool, TorchEngine
from heedful.predict.tags import Tagged
from heedful.predict.texts import Classified, Labelled

Kinds = Callable[[str], Predictor]

TEXT = "the old mill"
TEXTS = [TEXT, "a baker carries warm bread across the wooden bridge", "강가에 있는 물레방아", "x"]
PAIR = ("the river runs", "nobody noticed")
CONTEXT = "The river runs quietly past the old stone mill, and the ferry waits next door to the café!"
ABLE = {
    "classify": {"classify"},
    "mean": {"classify"},
    "multilabel": {"classify"},
    "regress": {"regress"},
    "tag": {"tag"},
    "plain": {"tag"},
    "answer": {"answer"},
    "unanswerable": {"answer"},
    "words": {"fill", "generate"},
    "encoder": set(),
}
ASK: dict[str, Callable[[Predictor], Any]] = {
    "classify": lambda predictor: predictor.classify(TEXT),
    "regress": lambda predictor: predictor.regress(TEXT),
    "tag": lambda predictor: predictor.tag(TEXT),
    "answer": lambda predictor: predictor.answer("who runs?", CONTEXT),
    "fill": lambda predictor: predictor.fill("the [MASK] mill"),
    "generate": lambda predictor: predictor.generate("the [MASK] mill", steps=1),
}


def numbers(answer: Any) -> list[float]:
    """What two answers must nearly share."""
    if isinstance(answer, Classified | Labelled):
        return list(answer.probabilities.values())
    if isinstance(answer, Tagged):
        return answer.probabilities
    if isinstance(answer, dict):
        return list(answer.values())
    return [value for one in answer for value in (one.start, one.end, one.probability)]


def assert_alike(found: Any, expected: Any) -> None:
    assert type(found) is type(expected)
    assert numbers(found) == pytest.approx(numbers(expected), abs=1e-5)


@pytest.mark.parametrize("method", ASK)
@pytest.mark.parametrize("kind", ABLE)
def test_a_model_is_asked_what_it_can_answer(small_predictor: Kinds, small_folder: Any, kind: str, method: str):
    predictor = small_predictor(kind)
    if method in ABLE[kind]:
        assert ASK[method](predictor)
        return
    with pytest.raises(UserError) as caught:
        ASK[method](predictor)
    said = str(caught.value)
    assert said.startswith(str(small_folder(kind)))
    assert "\n" not in said
    if method in ("fill", "generate"):
        assert "it has no masked-word head; pretrain one with `heedful pretrain`" in said
        return
    assert f"can't {method}: " in said
    assert f"train one with `heedful finetune MODEL DATA --task {method} --out FOLDER`" in said
    ability = {
        "classify": "its head gives one label for a text",
        "multilabel": "its head gives any number of labels",
        "regress": "its head gives numbers for a text",
        "tag": "its head gives a tag for every word",
        "answer": "its head gives where in a text the answer",
        "words": "it fills blanks",
        "encoder": "it is an encoder without a head",
    }
    known = {"mean": "classify", "plain": "tag", "unanswerable": "answer"}
    assert ability[known.get(kind, kind)] in said


@pytest.mark.parametrize("kind", ABLE)
def test_every_model_embeds(small_predictor: Kinds, kind: str):
    found = small_predictor(kind).embed(TEXTS)
    assert found.shape == (4, 24)
    assert found.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-6)


@pytest.mark.parametrize(("kind", "method"), [("classify", "classify"), ("multilabel", "classify"), ("regress",) * 2])
def test_texts_and_pairs_one_or_many(small_predictor: Kinds, kind: str, method: str):
    ask = getattr(small_predictor(kind), method)
    one, pair = ask(TEXT), ask(PAIR)
    assert not isinstance(one, list)
    assert numbers(ask(PAIR[0])) != pytest.approx(numbers(pair), abs=1e-3)  # the second text is read
    many = ask([*TEXTS, PAIR, list(PAIR)])
    assert len(many) == 6
    assert_alike(many[0], one)
    assert_alike(many[4], pair)
    assert_alike(many[5], pair)
    for text, found in zip(TEXTS, many, strict=False):
        assert_alike(found, ask(text))
    assert [len(ask(given)) for given in ([TEXT], (TEXT,), list(PAIR), (PAIR,), (PAIR, PAIR))] == [1, 1, 2, 1, 2]
    assert ask([]) == []
    assert ask(()) == []


def test_what_is_no_text_is_refused(small_predictor: Kinds):
    predictor = small_predictor("classify")
    for wrong in (7, None, ("a", "b", "c"), ("a", 7), ["a"]):
        with pytest.raises(UserError, match="is neither a text nor a pair of texts"):
            predictor.classify([TEXT, wrong])


def test_classes_labels_and_numbers_go_by_their_names(small_predictor: Kinds):
    classified = small_predictor("classify").classify(TEXT)
    assert list(classified.probabilities) == ["sport", "politics", "weather", "가십", "other"]
    assert sum(classified.probabilities.values()) == pytest.approx(1)
    assert classified.probabilities[classified.label] == classified.probability == max(numbers(classified))
    labelled = small_predictor("multilabel").classify(TEXT)
    assert labelled.labels == [label for label, share in labelled.probabilities.items() if share >= 0.5]
    assert list(small_predictor("regress").regress(TEXT)) == ["price", "weight"]


@pytest.mark.parametrize("method", ["classify", "embed"])
def test_a_long_text_is_refused_or_cut(small_predictor: Kinds, method: str):
    ask = getattr(small_predictor("classify"), method)
    with pytest.raises(UserError, match=r"^'(the ){14}the…': 41 tokens, of which 37 can be read") as caught:
        ask([TEXT, "the " * 39])
    assert len(str(caught.value)) < 200
    cut, fitting = ask(["the " * 39, "the " * 35], truncate=True)
    if method == "embed":
        np.testing.assert_allclose(cut, fitting, atol=1e-6)
    else:
        assert_alike(cut, fitting)


@pytest.mark.parametrize("method", ["classify", "embed"])
def test_an_empty_text_is_refused(small_predictor: Kinds, method: str):
    with pytest.raises(UserError, match="'  ': the text is empty; write something in it"):
        getattr(small_predictor("classify"), method)([TEXT, "  "])


def test_tags_of_texts_and_of_words(small_predictor: Kinds):
    predictor = small_predictor("tag")
    one = predictor.tag("the old mill")
    assert isinstance(one, Tagged)
    assert one.words == ["the", "old", "mill"]
    texts, words = predictor.tag(["the old mill", CONTEXT]), predictor.tag([["the", "old", "mill"], ("a",)])
    assert_alike(texts[0], one)
    assert_alike(words[0], one)
    assert words[1].words == ["a"]
    assert len(texts[1].words) == 20
    assert predictor.tag([]) == []
    assert [entity.text for entity in texts[1].entities] == [
        CONTEXT[entity.start : entity.end] for entity in texts[1].entities
    ]
    with pytest.raises(UserError, match="'': the text is empty"):
        predictor.tag(["the", ""])
    with pytest.raises(UserError, match="the text is empty"):
        predictor.tag([[]])
    for wrong in (["a", 3], 3, None):
        with pytest.raises(UserError, match="is neither a text nor a list of words"):
            predictor.tag(["the", wrong])


@pytest.mark.parametrize("task", ["classify", "multilabel", "regress"])
def test_texts_are_read_as_in_training(
    small_model: Callable[..., Model], small_tokenizer: Tokenizer, tmp_path: Path, task: str
):
    for length, read in ((8, 8), (None, 37), (99, 37)):
        model = small_model(task)
        model.head = replace(model.head, length=length, pairs=True)
        save_model(model, tmp_path / str(length))
        wordpiece.save(small_tokenizer, tmp_path / str(length))
        predictor = heedful.load(tmp_path / str(length), "cpu")
        ask = predictor.regress if task == "regress" else predictor.classify
        assert ask(("the " * (read - 4), "a"))
        with pytest.raises(UserError, match=rf"{read + 1} tokens, of which {read} can be read"):
            ask(("the " * (read - 3), "a"))
        with pytest.raises(UserError, match=r"^'the mill': one text, but the model was trained on pairs"):
            ask([("the", "a"), "the mill"])


def test_windows_are_those_of_training(small_predictor: Kinds):
    tag, plain, answer = (small_predictor(kind) for kind in ("tag", "plain", "answer"))
    assert (tag.reader("tag").length, tag.reader("tag").overlap) == (19, 5)
    assert (plain.reader("tag").length, plain.reader("tag").overlap) == (37, 12)  # a third of all positions
    assert (answer.reader("answer").length, answer.reader("answer").overlap) == (23, 4)


def test_answers_to_one_or_many(small_predictor: Kinds):
    predictor = small_predictor("answer")
    (one,) = predictor.answer("who runs?", CONTEXT)
    assert isinstance(one, Answer)
    assert one.text == CONTEXT[one.start : one.end] != ""
    many = predictor.answer([("who waits?", "the ferry"), ("who runs?", CONTEXT), ["who?", "a baker"]])
    assert [len(found) for found in many] == [1, 1, 1]
    assert_alike(many[1], [one])
    assert many[0][0].text in "the ferry"
    assert_alike(predictor.answer(("who runs?", CONTEXT)), [one])
    assert predictor.answer([]) == []
    five = predictor.answer("who runs?", CONTEXT, n_best=5)
    assert_alike(five[:1], [one])
    assert [found.probability for found in five] == sorted((found.probability for found in five), reverse=True)
    assert all(" " not in found.text.strip() for found in predictor.answer("who?", TEXT, n_best=3, longest=1))


def test_no_answer_where_training_knew_of_none(small_predictor: Kinds):
    sure, unsure = small_predictor("answer"), small_predictor("unanswerable")

    def texts(predictor: Predictor, **options: bool) -> set[str]:
        return {found.text for found in predictor.answer("who?", TEXT, n_best=50, **options)}

    assert "" not in texts(sure)
    assert "" in texts(unsure)
    assert "" in texts(sure, may_be_empty=True)
    assert "" not in texts(unsure, may_be_empty=False)


def test_questions_asked_wrongly(small_predictor: Kinds):
    ask = small_predictor("answer").answer
    with pytest.raises(UserError, match="give the context too"):
        ask("who?")
    with pytest.raises(UserError, match=r"give a list of \(question, context\)"):
        ask(["who?", "where?"], CONTEXT)
    for wrong in (["ab", "cd"], [("who?",)], [("who?", None)], [7]):
        with pytest.raises(UserError, match=r"is not a question with its context; give \(question, context\)"):
            ask(wrong)
    for option in ("n_best", "longest"):
        with pytest.raises(UserError, match=f"{option} 0 must be at least 1"):
            ask("who?", CONTEXT, **{option: 0})
    with pytest.raises(UserError, match="the question leaves no room for its context in 23 tokens"):
        ask("the " * 30, CONTEXT)


def test_blanks_of_two_texts_in_a_tuple(small_predictor: Kinds):
    predictor = small_predictor("words")
    first, second = predictor.fill(("the [MASK]", "[MASK] old [MASK]"))
    assert (len(first), len(second)) == (1, 2)
    with pytest.raises(UserError, match="it is a pair of texts; blanks are filled in one text"):
        predictor.fill([("the [MASK]", "old")])


@pytest.mark.parametrize("wrong", [5, None, b"the [MASK]", ["the [MASK]", 5], {"the [MASK]"}, [b"the [MASK]"]])
def test_every_method_refuses_what_is_no_text(small_predictor: Kinds, wrong: Any):
    for ask in (small_predictor("words").fill, small_predictor("words").embed, small_predictor("classify").classify):
        with pytest.raises(UserError, match="is neither a text nor a "):
            ask(wrong)
    with pytest.raises(UserError, match="is not a text"):
        small_predictor("words").generate(wrong)


def test_half_a_character_is_refused(small_predictor: Kinds):
    said = r"'the \\udcff.* is not UTF-8 at character 5; convert it first"
    words, tags, answers = small_predictor("words"), small_predictor("tag"), small_predictor("answer")
    asked: list[Callable[[str], object]] = [words.embed, words.generate, tags.tag, lambda one: tags.tag([[one]])]
    asked += [lambda one: answers.answer("mill?", one), lambda one: answers.answer(one, "mill")]
    for ask in asked:
        with pytest.raises(UserError, match=said):
            ask("the \udcff mill")


def test_choices_that_there_are_not(small_predictor: Kinds):
    for pool in ("MEAN", "max", ""):
        with pytest.raises(UserError, match=f"pool '{pool}' is unknown; there are cls and mean"):
            small_predictor("encoder").embed("the mill", pool=pool)  # pyrefly: ignore
    assert len(small_predictor("words").fill("the [MASK]", np.int64(2))[0]) == 2  # pyrefly: ignore
    for top in (1.5, "3", True):
        with pytest.raises(UserError, match=f"top {top!r} is not a whole number"):
            small_predictor("words").fill("the [MASK]", top)  # pyrefly: ignore


@pytest.mark.parametrize("texts", [["the mill", "bread"], [("the mill", "a bridge"), ("bread", "")]])
def test_texts_that_can_all_be_read_go_to_the_model_in_one_piece(
    small_predictor: Kinds, monkeypatch: pytest.MonkeyPatch, texts: list[Any]
):
    predictor = small_predictor("encoder")
    real, given = predictor.engine.vectors, []

    def vectors(inputs: Sequence[Input], pool: Pool) -> np.ndarray:
        given.append(inputs)
        return real(inputs, pool)

    monkeypatch.setattr(predictor.engine, "vectors", vectors)
    predictor.embed(texts)
    assert [len(one) for one in given] == [0, 2]  # the first to know how long a vector is
    assert isinstance(given[1], Inputs)


def test_vectors_one_or_many(small_predictor: Kinds):
    predictor = small_predictor("encoder")
    one = predictor.embed(TEXT)
    assert one.shape == (24,)
    np.testing.assert_allclose(predictor.embed(TEXTS)[0], one, atol=1e-6)
    np.testing.assert_allclose(predictor.embed([TEXT, PAIR])[1], predictor.embed(PAIR), atol=1e-6)
    assert predictor.embed(PAIR).shape == (24,)
    assert predictor.embed(list(PAIR)).shape == (2, 24)
    assert predictor.embed([]).shape == (0, 24)
    assert predictor.embed([]).dtype == np.float32


@torch.inference_mode()
def test_vectors_as_asked(small_predictor: Kinds, small_tokenizer: Tokenizer, small_model: Callable[..., Model]):
    predictor = small_predictor("encoder")
    ids = torch.tensor([[small_tokenizer.cls, *small_tokenizer.encode([TEXT])[0], small_tokenizer.sep]])
    states = small_model("encoder")(ids).hidden[0].numpy()
    raw = predictor.embed(TEXT, normalise=False)
    np.testing.assert_allclose(raw, states.mean(0), atol=1e-5)
    np.testing.assert_allclose(predictor.embed(TEXT), raw / np.linalg.norm(raw), atol=1e-5)
    np.testing.assert_allclose(predictor.embed(TEXT, pool="cls", normalise=False), states[0], atol=1e-5)


def test_vectors_as_the_folder_says(small_model: Callable[..., Model], small_tokenizer: Tokenizer):
    engine = TorchEngine(small_model("encoder"))
    plain = Predictor(engine, small_tokenizer)
    asked = Predictor(engine, small_tokenizer, "it", Pooling(pool="cls", normalise=False, length=7))
    long = "the old mill " * 9
    np.testing.assert_allclose(
        asked.embed(long), plain.embed("the old mill the old", pool="cls", normalise=False), atol=1e-5
    )
    np.testing.assert_allclose(
        asked.embed(TEXT, pool="mean", normalise=True), plain.embed(TEXT), atol=1e-6
    )  # unless something else is asked for
    with pytest.raises(UserError, match="29 tokens, of which 7 can be read"):
        asked.embed(long, truncate=False)
    # Never beyond what the model has positions for.
    beyond = Predictor(engine, small_tokenizer, "it", Pooling(length=512))
    assert beyond.embed("the " * 99).shape == (24,)


def test_a_folder_of_sentence_transformers(
    tmp_path: Path, small_model: Callable[..., Model], small_tokenizer: Tokenizer, small_predictor: Kinds
):
    inner = tmp_path / "0_Transformer"
    save_model(small_model("encoder"), inner)
    wordpiece.save(small_tokenizer, inner)
    pooling = tmp_path / "1_Pooling"
    pooling.mkdir()
    (pooling / "config.json").write_text(
        json.dumps({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False})
    )
    kinds = {"Transformer": "0_Transformer", "Pooling": "1_Pooling"}
    modules = [{"type": f"sentence_transformers.models.{kind}", "path": path} for kind, path in kinds.items()]
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    found = heedful.load(tmp_path, "cpu").embed(TEXTS)
    expected = small_predictor("encoder").embed(TEXTS, pool="cls", normalise=False)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert np.linalg.norm(found, axis=1).max() > 1.5


def test_a_tokenizer_of_another_model_is_refused(small_model: Callable[..., Model], small_tokenizer: Tokenizer):
    with pytest.raises(
        UserError, match="it: its tokenizer has 211 tokens but the model only 197; they do not belong"
    ):
        Predictor(TorchEngine(small_model("encoder", vocab_size=197)), small_tokenizer, "it")


def test_folders_that_can_not_be_opened(tmp_path: Path, small_folder: Callable[[str], Path]):
    with pytest.raises(UserError, match="nowhere is not a model folder: there is no such folder"):
        heedful.load(tmp_path / "nowhere")
    with pytest.raises(UserError, match=r"is not a model folder: it has no config\.json"):
        heedful.load(tmp_path)
    with pytest.raises(UserError, match="int8 is for the onnx engine"):
        heedful.load(small_folder("classify"), int8=True)
    with pytest.raises(UserError, match="has no ONNX file; write it with `heedful export"):
        heedful.load(small_folder("classify"), engine="onnx")


def test_a_gpu_that_is_not_there(small_folder: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UserError, match="no CUDA GPU can be used here; `heedful doctor` says why, the device cpu"):
        heedful.load(small_folder("classify"), "cuda")
    assert heedful.load(small_folder("classify"), "auto").classify(TEXT)


def test_a_folder_by_its_name(small_folder: Callable[[str], Path]):
    predictor = heedful.load(str(small_folder("classify")))
    assert predictor.head is not None
    assert predictor.head.task == "classify"
    assert predictor.origin == str(small_folder("classify"))
