import dataclasses
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
import transformers

from heedful import predict
from heedful.data import tokenizer as wordpiece
from heedful.data.tokenizer import MASK, SPECIAL, Tokenizer
from heedful.errors import UserError
from heedful.formats.huggingface import load_model, save_model
from heedful.models.bert import BertConfig, BertForPretraining, initialise
from heedful.predict import Predictor, blanks
from heedful.predict.blanks import Blanks, Candidate
from heedful.predict.engine import TorchEngine

SENTENCES = [
    "the cat sat on the mat and the dog lay on the rug",
    "a dog and a cat ran to the door of the house",
    "the man sat in the house and read a book to the cat",
    "the book lay on the mat in the house of the man",
]
TOKENIZED, MODELLED = 61, 67
CONFIG = BertConfig(vocab_size=MODELLED, layers=2, dim=34, heads=2, ffn_dim=53, max_length=23)
ONE = "the [MASK] sat on the mat"
TWO = "[MASK] man read a [MASK]"
TEXTS = [ONE, TWO, "[MASK]", "the dog and the cat and the man [MASK] on the rug in the house"]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return wordpiece.train(lambda: SENTENCES * 2, TOKENIZED)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, tokenizer: Tokenizer) -> Path:
    path = tmp_path_factory.mktemp("model")
    model = BertForPretraining(CONFIG)
    initialise(model, 0.3, torch.Generator().manual_seed(1))
    with torch.no_grad():
        model.mlm.bias.normal_(generator=torch.Generator().manual_seed(2))
    save_model(model, path)
    wordpiece.save(tokenizer, path)
    return path


@pytest.fixture(scope="module")
def predictor(folder: Path) -> Predictor:
    return predict.load(folder, "cpu")


def scores(predictor: Predictor, ids: list[int]) -> torch.Tensor:
    """The probabilities (M, V) at the blanks of one sequence, alone and unpacked."""
    ids = torch.tensor([ids])
    with torch.inference_mode():
        logits = predictor.words(ids).mlm_logits[0]
    return logits.softmax(-1)[ids[0] == predictor.tokenizer.mask]


def assert_alike(one: Blanks, other: Blanks) -> None:
    assert len(one) == len(other)
    for left, right in zip(one, other, strict=True):
        assert [candidate.token for candidate in left] == [candidate.token for candidate in right]
        probabilities = [candidate.probability for candidate in right]
        assert [candidate.probability for candidate in left] == pytest.approx(probabilities, abs=1e-5)


def assert_refused(predictor: Predictor, text: str | Sequence[str], *parts: str, top: int = 5) -> None:
    with pytest.raises(UserError) as caught:
        predictor.fill(text, top)
    for part in parts:
        assert part in str(caught.value)


@pytest.mark.parametrize("text", TEXTS)
def test_candidates_are_ranked_tokens_with_their_probabilities(predictor: Predictor, text: str):
    found = predictor.fill(text, top=7)
    assert len(found) == text.count(MASK)
    for candidates in found:
        assert len(candidates) == 7
        probabilities = [candidate.probability for candidate in candidates]
        assert probabilities == sorted(probabilities, reverse=True)
        assert all(0 < probability <= 1 for probability in probabilities)
        assert sum(probabilities) <= 1
        tokens = {candidate.token for candidate in candidates}
        assert len(tokens) == 7
        assert tokens <= set(predictor.tokenizer.vocabulary) - set(SPECIAL)


def test_five_candidates_without_asking_for_more(predictor: Predictor):
    (candidates,) = predictor.fill(ONE)
    assert len(candidates) == 5
    assert candidates == predictor.fill(ONE, top=7)[0][:5]
    assert isinstance(candidates[0], Candidate)


@pytest.mark.parametrize("top", [TOKENIZED - 5, TOKENIZED - 4, TOKENIZED, 1009])
def test_no_special_token_however_many_are_asked_for(predictor: Predictor, top: int):
    (candidates,) = predictor.fill(ONE, top)
    assert {candidate.token for candidate in candidates} == set(predictor.tokenizer.vocabulary) - set(SPECIAL)
    assert all(candidate.probability > 0 for candidate in candidates)


@pytest.mark.parametrize("text", TEXTS)
def test_candidates_are_those_of_transformers(predictor: Predictor, folder: Path, text: str):
    theirs = transformers.AutoModelForMaskedLM.from_pretrained(folder).eval()
    their_tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    inputs = their_tokenizer(text, return_tensors="pt")
    with torch.inference_mode():
        probabilities = theirs(**inputs).logits[0].softmax(-1)
    found = predictor.fill(text, top=TOKENIZED)
    places = torch.nonzero(inputs["input_ids"][0] == their_tokenizer.mask_token_id).flatten().tolist()
    for place, candidates in zip(places, found, strict=True):
        expected = {token: probabilities[place, i].item() for token, i in their_tokenizer.get_vocab().items()}
        for special in SPECIAL:
            del expected[special]
        assert {c.token: c.probability for c in candidates} == pytest.approx(expected, abs=1e-5)
        assert candidates[0].token == max(expected, key=expected.__getitem__)


def test_several_texts_are_answered_in_their_order(predictor: Predictor):
    answers = predictor.fill(TEXTS)
    assert [len(answer) for answer in answers] == [1, 2, 1, 1]
    assert_alike(answers[0], predictor.fill(ONE))
    assert not isinstance(answers[0], Candidate)
    assert predictor.fill((ONE,)) == [predictor.fill(ONE)]
    assert predictor.fill([]) == []


@pytest.mark.parametrize("room", [1, 23, 31, 8192])
def test_batching_does_not_change_the_answers(predictor: Predictor, monkeypatch: pytest.MonkeyPatch, room: int):
    alone = [predictor.fill(text, top=3) for text in TEXTS * 3]
    monkeypatch.setattr(blanks, "BATCH_TOKENS", room)
    together = predictor.fill(TEXTS * 3, top=3)
    for one, other in zip(together, alone, strict=True):
        assert_alike(one, other)


def test_no_batch_is_larger_than_its_room(predictor: Predictor, monkeypatch: pytest.MonkeyPatch):
    sizes = []
    hook = predictor.words.register_forward_pre_hook(lambda _, inputs: sizes.append(len(inputs[0])))
    monkeypatch.setattr(blanks, "BATCH_TOKENS", 13)
    predictor.fill(["the the [MASK]", "the [MASK]", "[MASK]", "the the the [MASK]", "[MASK]", "the " * 13 + MASK])
    hook.remove()
    # 5 + 4 + 3 tokens, then 6 + 3, then one text that is larger than the room.
    assert sizes == [12, 9, 16]


def test_a_special_token_in_the_text_is_text(predictor: Predictor):
    tokenizer = predictor.tokenizer
    before, after = tokenizer.encode(["the cat [SEP] the dog", "ran"])
    assert tokenizer.sep not in before
    as_text = [tokenizer.cls, *before, tokenizer.mask, *after, tokenizer.sep]
    (candidates,) = predictor.fill("the cat [SEP] the dog [MASK] ran", top=1)
    probabilities = scores(predictor, as_text)[0]
    assert candidates[0].probability == pytest.approx(
        probabilities[tokenizer.vocabulary.index(candidates[0].token)].item(), abs=1e-6
    )
    first, second = tokenizer.encode(["the cat", "the dog"])
    as_special = [tokenizer.cls, *first, tokenizer.sep, *second, tokenizer.mask, *after, tokenizer.sep]
    assert (scores(predictor, as_special)[0] - probabilities).abs().max() > 1e-3


def test_a_blank_touching_words(predictor: Predictor):
    tokenizer = predictor.tokenizer
    the, mat = tokenizer.encode(["the", "mat"])
    ids = [tokenizer.cls, *the, tokenizer.mask, tokenizer.mask, *mat, tokenizer.sep]
    found = predictor.fill("the[MASK][MASK]mat", top=1)
    for (candidate,), row in zip(found, scores(predictor, ids), strict=True):
        index = tokenizer.vocabulary.index(candidate.token)
        assert candidate.probability == pytest.approx(row[index].item(), abs=1e-6)


def test_a_text_without_a_blank_is_refused(predictor: Predictor):
    assert_refused(predictor, "the cat sat", "'the cat sat': there is no blank; write [MASK] where")
    assert_refused(predictor, "the [mask] sat", "'the [mask] sat': there is no blank")
    assert_refused(predictor, "", "'': there is no blank")
    assert_refused(predictor, [ONE, "the cat sat"], "'the cat sat': there is no blank")
    assert_refused(predictor, "cat " * 97, "'cat cat", "…': there is no blank")


def test_a_text_beyond_the_positions_is_refused(predictor: Predictor):
    longest = "the " * 20 + MASK  # and [CLS], [SEP]
    assert len(predictor.fill(longest)) == 1
    assert_refused(predictor, "the " + longest, "…': 24 tokens, of which the model reads 23 at most; shorten it")


@pytest.mark.parametrize("top", [0, -3])
def test_less_than_one_candidate_is_refused(predictor: Predictor, top: int):
    assert_refused(predictor, ONE, f"top {top} must be at least 1", top=top)


@pytest.mark.parametrize("encoder", [True, False])
def test_a_model_without_the_head_is_refused(tmp_path: Path, tokenizer: Tokenizer, encoder: bool):
    model = BertForPretraining(CONFIG, mlm=False)
    save_model(model.bert if encoder else model, tmp_path)
    wordpiece.save(tokenizer, tmp_path)
    assert_refused(
        predict.load(tmp_path, "cpu"), ONE, str(tmp_path), "it has no masked-word head", "heedful pretrain"
    )


def test_a_tokenizer_larger_than_the_model_is_refused(tmp_path: Path, tokenizer: Tokenizer):
    for vocab_size, fits in ((TOKENIZED, True), (TOKENIZED - 1, False)):
        save_model(BertForPretraining(dataclasses.replace(CONFIG, vocab_size=vocab_size)), tmp_path)
        wordpiece.save(tokenizer, tmp_path)
        if fits:
            assert len(predict.load(tmp_path, "cpu").fill(ONE, top=3)[0]) == 3
            continue
        with pytest.raises(UserError, match="has 61 tokens but the model only 60; they do not belong together"):
            predict.load(tmp_path, "cpu")


def test_no_folder_is_refused(tmp_path: Path):
    with pytest.raises(UserError, match="nowhere is not a model folder: there is no such folder"):
        predict.load(tmp_path / "nowhere")


def test_a_model_in_training_answers_as_one_at_rest(predictor: Predictor, folder: Path):
    model = load_model(folder).train()
    assert model.config.dropout > 0
    assert_alike(Predictor(TorchEngine(model), predictor.tokenizer).fill(ONE), predictor.fill(ONE))
