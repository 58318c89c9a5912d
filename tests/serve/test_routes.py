"""Every route gives what the predictors give, in the shapes that others know."""

import base64
import io
import math
from concurrent.futures import ThreadPoolExecutor, wait

import numpy as np
import pytest
from PIL import Image

from heedful.predict import images

TEXTS = ["the river is fine .", "a baker lives in oslo and the bridge was cold", "anna"]


def test_embed_gives_the_vectors_of_the_predictor(served):
    found = np.array(served.ask("/embed", inputs=TEXTS))
    np.testing.assert_allclose(found, served.predictor("embedder").embed(TEXTS), atol=1e-6)
    assert np.array(served.ask("/embed", inputs=TEXTS[0])).shape == (1, 24)


def test_embed_without_norm_by_cls_and_cut_to_some_dimensions(served):
    predictor = served.predictor("embedder")
    raw = np.array(served.ask("/embed", inputs=TEXTS, normalize=False, pool="cls"))
    np.testing.assert_allclose(raw, predictor.embed(TEXTS, normalise=False, pool="cls"), atol=1e-6)
    assert not np.allclose(np.linalg.norm(raw, axis=1), 1)
    few = np.array(served.ask("/embed", inputs=TEXTS, dimensions=7))
    whole = predictor.embed(TEXTS, normalise=False)[:, :7]
    np.testing.assert_allclose(few, whole / np.linalg.norm(whole, axis=1, keepdims=True), atol=1e-6)
    assert "dimensions 25" in served.refuses("/embed", 422, {"inputs": "the", "dimensions": 25})


def test_embed_reads_ids_as_the_text_that_they_are(served):
    tokenizer = served.predictor("embedder").tokenizer
    ids = tokenizer.encode(["the river"])[0]
    found = served.ask("/embed", inputs=[ids, ids])
    np.testing.assert_allclose(found[0], served.ask("/embed", inputs="the river")[0], atol=1e-6)
    assert found[0] == pytest.approx(found[1], abs=1e-6)
    assert "id 9999" in served.refuses("/embed", 422, {"inputs": [9999]})


def test_a_long_text_is_refused_unless_it_may_be_cut(served):
    long = "the " * 47  # with [CLS] and [SEP] one more than the 48 positions
    said = served.refuses("/embed", 413, {"inputs": ["the", long]})
    assert "49 tokens" in said
    assert "48" in said
    assert "truncate" in said
    found = served.ask("/embed", inputs=long, truncate=True)
    np.testing.assert_allclose(found[0], served.ask("/embed", inputs="the " * 46)[0], atol=1e-6)
    openai = served.post("/v1/embeddings", {"input": long, "model": "embedder"})
    assert openai.status_code == 413
    assert "49 tokens" in openai.json()["error"]["message"]
    for path, body in (("/v1/embeddings", {"input": long}), ("/models/embedder", {"inputs": long})):
        assert served.post(path, {**body, "truncate": True}).status_code == 200


def test_json_that_does_not_say_so(served):
    answer = served.post("/embed", content=b'{"inputs": "the"}', headers={"content-type": "text/plain"})
    assert answer.status_code == 422
    assert "Content-Type: application/json" in answer.json()["error"]


def test_embed_all_has_a_state_for_every_token(served):
    found = served.ask("/embed_all", inputs=TEXTS)
    tokens = served.predictor("embedder").tokenizer.encode(TEXTS)
    assert [len(one) for one in found] == [len(ids) + 2 for ids in tokens]
    means = np.array([np.mean(one, axis=0) for one in found])
    np.testing.assert_allclose(means, served.predictor("embedder").embed(TEXTS, normalise=False), atol=1e-5)


def test_similarity_is_the_cosine(served):
    found = served.ask("/similarity", inputs={"source_sentence": TEXTS[0], "sentences": TEXTS})
    vectors = served.predictor("embedder").embed(TEXTS)
    assert found == pytest.approx((vectors @ vectors[0]).tolist(), abs=1e-6)


def test_openai_embeddings_as_numbers_and_as_base64(served):
    asked = {"input": TEXTS, "model": "embedder"}
    plain = served.ask("/v1/embeddings", **asked)
    packed = served.ask("/v1/embeddings", **asked, encoding_format="base64")
    expected = served.predictor("embedder").embed(TEXTS)
    np.testing.assert_allclose([one["embedding"] for one in plain["data"]], expected, atol=1e-6)
    vectors = [np.frombuffer(base64.b64decode(one["embedding"]), "<f4") for one in packed["data"]]
    np.testing.assert_allclose(vectors, expected, atol=1e-6)
    assert [one["index"] for one in plain["data"]] == [0, 1, 2]
    tokens = sum(len(ids) + 2 for ids in served.predictor("embedder").tokenizer.encode(TEXTS))
    assert plain["usage"] == {"prompt_tokens": tokens, "total_tokens": tokens}
    assert plain["model"] == "embedder"


def test_predict_gives_every_label_the_best_first(served):
    expected = served.predictor("classifier").classify(TEXTS)
    found = served.ask("/predict", inputs=[[text] for text in TEXTS], model="classifier")
    for one, right in zip(found, expected, strict=True):
        assert one[0]["label"] == right.label
        assert {each["label"]: each["score"] for each in one} == pytest.approx(right.probabilities, abs=1e-6)
        assert [each["score"] for each in one] == sorted((each["score"] for each in one), reverse=True)
    alone = served.ask("/predict", inputs=TEXTS[0], model="classifier")
    assert alone[0]["score"] == pytest.approx(found[0][0]["score"], abs=1e-6)


def test_predict_raw_scores_are_the_logits(served):
    raw = served.ask("/predict", inputs=TEXTS[0], model="classifier", raw_scores=True)
    shares = served.predictor("classifier").classify(TEXTS[0]).probabilities
    powers = {one["label"]: math.exp(one["score"]) for one in raw}
    total = sum(powers.values())
    assert {label: power / total for label, power in powers.items()} == pytest.approx(shares, abs=1e-6)
    assert total != pytest.approx(1.0)


def test_predict_of_labels_pairs_and_numbers(served):
    labels = served.ask("/predict", inputs=TEXTS[0], model="labeller")
    expected = served.predictor("labeller").classify(TEXTS[0]).probabilities
    assert {one["label"]: one["score"] for one in labels} == pytest.approx(expected, abs=1e-6)
    number = served.ask("/predict", inputs=["the river", "a mill"], model="reranker")
    right = served.predictor("reranker").regress(("the river", "a mill"))
    assert number == [{"label": "fit", "score": pytest.approx(right["fit"], abs=1e-5)}]
    assert "pairs" in served.refuses("/predict", 422, {"inputs": "the river", "model": "reranker"})


def test_rerank_orders_texts_by_the_model(served):
    texts = ["the mill", "a cold harbour", "anna lives", "delhi"]
    numbers = [served.predictor("reranker").regress(("the river", text))["fit"] for text in texts]
    found = served.ask("/rerank", query="the river", texts=texts, raw_scores=True, return_text=True, model="reranker")
    assert [one["index"] for one in found] == sorted(range(4), key=lambda number: -numbers[number])
    for one in found:
        assert one["score"] == pytest.approx(numbers[one["index"]], abs=1e-5)
        assert one["text"] == texts[one["index"]]
    soft = served.ask("/rerank", query="the river", texts=texts)
    assert soft[0]["score"] == pytest.approx(1 / (1 + math.exp(-max(numbers))), abs=1e-6)
    assert "text" not in soft[0]


def test_rerank_by_two_classes_gives_the_probability_of_the_second(served):
    found = served.ask("/rerank", query="the river", texts=["the mill"], model="judge")
    right = served.predictor("judge").classify(("the river", "the mill")).probabilities["yes"]
    assert found[0]["score"] == pytest.approx(right, abs=1e-6)


def test_tokenize_and_decode(served):
    text = "The river, anna"
    (found,) = served.ask("/tokenize", inputs=text)
    assert [one["text"] for one in found] == ["[CLS]", "the", "river", "[UNK]", "anna", "[SEP]"]
    assert [one["special"] for one in found] == [True, False, False, False, False, True]
    assert [(one["start"], one["stop"]) for one in found[1:-1]] == [(0, 3), (4, 9), (9, 10), (11, 15)]
    assert found[0]["start"] is None
    (bare,) = served.ask("/tokenize", inputs=text, add_special_tokens=False)
    assert [one["id"] for one in bare] == [one["id"] for one in found[1:-1]]
    ids = [one["id"] for one in found]
    assert served.ask("/decode", ids=ids) == ["the river anna"]
    assert served.ask("/decode", ids=[ids], skip_special_tokens=False)[0].startswith("[CLS] the river")
    assert "id -1" in served.refuses("/decode", 422, {"ids": [-1]})
    source = served.predictor("translator").source
    (pieces,) = served.ask("/tokenize", inputs="two five", model="translator")
    assert [one["id"] for one in pieces] == [*source.encode(["two five"])[0], source.eos]


def test_fill(served):
    texts = ["the [MASK] is [MASK] .", "anna [MASK]"]
    expected = served.predictor("filler").fill(texts, 3)
    found = served.ask("/fill", inputs=texts, top=3)
    for one, right in zip(found, expected, strict=True):
        assert [[each["token"] for each in blank] for blank in one] == [[each.token for each in b] for b in right]
        assert one[0][0]["probability"] == pytest.approx(right[0][0].probability, abs=1e-6)
    alone = served.ask("/fill", inputs=texts[1], top=2)
    assert [one["token"] for one in alone[0]] == [one["token"] for one in found[1][0][:2]]
    assert "[MASK]" in served.refuses("/fill", 422, {"inputs": "the river"})
    assert "tokens" in served.refuses("/fill", 413, {"inputs": "[MASK] " + "the " * 47})


def test_generate(served):
    expected = served.predictor("filler").generate("the river", tokens=5, order="gibbs", steps=3, seed=7)
    found = served.ask("/generate", inputs="the river", tokens=5, order="gibbs", steps=3, seed=7, watch=True)
    assert found == {
        "text": expected.text,
        "steps": expected.steps,
        "probability": pytest.approx(expected.probability, abs=1e-6),
    }
    assert "steps" not in served.ask("/generate", inputs="the river", tokens=2)
    assert served.refuses("/generate", 422, {"inputs": "the", "steps": 51})
    assert served.refuses("/generate", 422, {"inputs": "the " * 60})


def test_tag_has_spans_in_the_text_however_long_it_is(served):
    text = "Anna  lives in Oslo . " * 11
    expected = served.predictor("tagger").tag(text)
    found = served.ask("/tag", inputs=text)
    assert found["words"] == expected.words
    assert found["tags"] == expected.tags
    assert [tuple(one.values())[:4] for one in found["entities"]] == [tuple(one)[:4] for one in expected.entities]
    for one in found["entities"]:
        assert text[one["start"] : one["end"]] == one["text"]
    words = served.ask("/tag", inputs=[["anna", "lives"], ["oslo"]])
    assert [one["words"] for one in words] == [["anna", "lives"], ["oslo"]]
    assert "empty" in served.refuses("/tag", 422, {"inputs": ["anna", " "]})


def test_answer_is_a_stretch_of_the_context_however_long_it_is(served):
    context = "the mill is old . anna lives in oslo . " * 5
    expected = served.predictor("answerer").answer("who lives ?", context, n_best=3)
    found = served.ask("/answer", inputs={"question": "who lives ?", "context": context}, n_best=3)
    assert [(one["text"], one["start"], one["end"]) for one in found] == [tuple(one)[:3] for one in expected]
    assert [one["probability"] for one in found] == pytest.approx([one.probability for one in expected], abs=1e-5)
    both = served.ask("/answer", inputs=[{"question": "who ?", "context": context}] * 2)
    assert both[0] == both[1]
    assert "empty" in served.refuses("/answer", 422, {"inputs": {"question": " ", "context": context}})
    assert "room" in served.refuses("/answer", 413, {"inputs": {"question": "who " * 30, "context": context}})


def test_translate_with_n_best_prefix_and_alignments(served):
    translator = served.predictor("translator")
    texts = ["two five nine", "seven"]
    expected = translator.n_best(texts, beam=4, n_best=3, align=True)
    found = served.ask("/translate", inputs=texts, beam=4, n_best=3, alignments=True)
    for one, right in zip(found, expected, strict=True):
        assert [each["text"] for each in one["translations"]] == [each.text for each in right]
        assert [each["score"] for each in one["translations"]] == pytest.approx([e.score for e in right], abs=1e-5)
        best = one["translations"][0]["alignment"]
        np.testing.assert_allclose(best["weights"], right[0].alignment.weights, atol=1e-4)
        assert [tuple(pair) for pair in best["words"]] == right[0].alignment.words()
    assert served.ask("/translate", inputs="two five")["translations"][0]["text"] == "이 오"
    forced = served.ask("/translate", inputs="two five", prefix="구")["translations"][0]["text"]
    assert forced == translator.translate("two five", prefix="구").text
    assert forced.startswith("구")
    drawn = served.ask("/translate", inputs=texts, sample=True, seed=3, n_best=2, temperature=2.0)
    right = translator.n_best(texts, sample=True, seed=3, n_best=2, temperature=2.0)
    assert [[t["text"] for t in one["translations"]] for one in drawn] == [[t.text for t in one] for one in right]


def test_translate_refuses_what_can_not_be(served):
    assert "n_best 7" in served.refuses("/translate", 422, {"inputs": "two", "beam": 2, "n_best": 7})
    assert "can't write" in served.refuses("/translate", 422, {"inputs": "two", "prefix": "Ω"})
    said = served.refuses("/translate", 413, {"inputs": "two " * 29})
    assert f"of which {served.predictor('translator').searcher.longest} can be read" in said
    assert served.ask("/translate", inputs="two " * 29, truncate=True)["translations"]


def image(colour: tuple[int, int, int], kind: str = "PNG") -> bytes:
    content = io.BytesIO()
    Image.new("RGB", (31, 17), colour).save(content, kind)
    return content.getvalue()


def test_see_takes_files_forms_and_base64(served):
    red, blue = image((250, 20, 20)), image((10, 20, 250), "JPEG")
    expected = served.predictor("colours").see([Image.open(io.BytesIO(one)) for one in (red, blue)])
    raw = served.post("/see", content=red, headers={"content-type": "image/png"}).json()
    assert raw[0] == {"label": "red", "score": pytest.approx(expected[0].score, abs=1e-5)}
    assert len(raw) == 3
    form = served.post("/see?top=1", files=[("files", ("a.png", red)), ("files", ("b.jpg", blue))]).json()
    assert [one[0]["label"] for one in form] == ["red", "blue"]
    assert [len(one) for one in form] == [1, 1]
    text = base64.b64encode(red).decode()
    packed = served.ask("/see", inputs=[text, "data:image/png;base64," + text], top=2)
    assert packed[0] == packed[1]
    assert packed[0][0]["label"] == "red"
    assert served.ask("/see", inputs=text)[0]["label"] == "red"


def test_see_refuses_what_is_no_image(served):
    png = {"content-type": "image/png"}
    assert "can't be read" in served.refuses("/see", 422, content=b"no image", headers=png)
    assert "can't be read" in served.refuses("/see", 422, content=image((1, 2, 3))[:50], headers=png)
    assert "base64" in served.refuses("/see", 422, {"inputs": "%%%"})
    assert "no inputs" in served.refuses("/see", 422, files={"a": (None, "b")})
    served.refuses("/see", 415, content=b"text", headers={"content-type": "text/plain"})
    large = io.BytesIO()
    Image.new("1", (8000, 6000)).save(large, "PNG")
    assert "8,000 x 6,000" in served.refuses("/see", 413, content=large.getvalue(), headers=png)
    asked = {"model": "colours", "image": base64.b64encode(large.getvalue()).decode()}
    found = served.post("/explore/look", asked)
    assert found.status_code == 422
    assert "8,000 x 6,000" in found.json()["error"]
    larger = io.BytesIO()
    Image.new("1", (9700, 9700)).save(larger, "PNG")  # of which Pillow would warn
    assert "unpacks to" in served.refuses("/see", 413, content=larger.getvalue(), headers=png)


def test_images_are_read_under_one_lock(served):
    red = image((250, 20, 20))
    with images._READING, ThreadPoolExecutor(2) as pool:
        asked = [
            pool.submit(served.post, "/see", content=red, headers={"content-type": "image/png"}),
            pool.submit(served.post, "/explore/look", {"model": "colours", "image": base64.b64encode(red).decode()}),
        ]
        assert not wait(asked, timeout=0.5).done
        images._READING.release()
        try:
            assert [one.result(20).status_code for one in asked] == [200, 200]
        finally:
            images._READING.acquire()
