"""Clients from PyPI, unchanged: `openai` and `huggingface_hub`."""

import io
from urllib.parse import quote

import numpy as np
import openai
import pytest
from huggingface_hub import InferenceClient
from PIL import Image

from heedful.serve.keys import Keys

TEXTS = ["the river is fine .", "a baker lives in oslo"]


@pytest.fixture
def hub(served):
    def client(name: str = "") -> InferenceClient:
        address = f"{served.address}/models/{name}" if name else served.address
        return InferenceClient(model=address, token="none", timeout=30)

    return client


def test_openai_embeds_and_lists_models(served):
    with openai.OpenAI(base_url=f"{served.address}/v1", api_key="any") as client:
        found = client.embeddings.create(model="embedder", input=TEXTS)
        vectors = np.array([one.embedding for one in found.data])
        np.testing.assert_allclose(vectors, served.predictor("embedder").embed(TEXTS), atol=1e-6)
        assert found.usage.prompt_tokens > 0
        few = client.embeddings.create(model="embedder", input=TEXTS[0], dimensions=5, encoding_format="float")
        assert len(few.data[0].embedding) == 5
        assert "embedder" in [one.id for one in client.models.list()]
        assert client.models.retrieve("translator").id == "translator"


def test_openai_tells_mistakes_apart(served, serving, encoder):
    with openai.OpenAI(base_url=f"{served.address}/v1", api_key="any", max_retries=0) as client:
        with pytest.raises(openai.NotFoundError, match="no model 'gpt'"):
            client.embeddings.create(model="gpt", input="the")
        with pytest.raises(openai.APIStatusError, match="tokens") as long:
            client.embeddings.create(model="embedder", input="the " * 60)
        assert long.value.status_code == 413
    with serving({"it": encoder}, keys=Keys(["secret"])) as locked:
        stranger = openai.OpenAI(base_url=f"{locked.address}/v1", api_key="wrong", max_retries=0)
        with stranger, pytest.raises(openai.AuthenticationError):
            stranger.embeddings.create(model="it", input="the")
        with openai.OpenAI(base_url=f"{locked.address}/v1", api_key="secret") as client:
            assert len(client.embeddings.create(model="it", input="the").data[0].embedding) == 24


def test_hub_embeds(served, hub):
    right = served.predictor("embedder").embed(TEXTS)
    np.testing.assert_allclose(hub().feature_extraction(TEXTS[0])[0], right[0], atol=1e-6)
    np.testing.assert_allclose(hub("embedder").feature_extraction(TEXTS[1], normalize=True)[0], right[1], atol=1e-6)
    found = hub().sentence_similarity(TEXTS[0], other_sentences=TEXTS)
    assert found == pytest.approx((right @ right[0]).tolist(), abs=1e-6)


def test_hub_classifies_tags_answers_and_fills(served, hub):
    expected = served.predictor("classifier").classify(TEXTS[0])
    found = hub("classifier").text_classification(TEXTS[0])
    assert found[0].label == expected.label
    assert found[0].score == pytest.approx(expected.probability, abs=1e-6)
    spans = hub("tagger").token_classification(TEXTS[1])
    right = served.predictor("tagger").tag(TEXTS[1]).entities
    assert [(one.entity_group, one.word, one.start, one.end) for one in spans] == [tuple(one)[:4] for one in right]
    said = hub("answerer").question_answering(question="who lives ?", context=TEXTS[1])
    best = served.predictor("answerer").answer("who lives ?", TEXTS[1])[0]
    assert (said.answer, said.start, said.end) == (best.text, best.start, best.end)
    words = hub("filler").fill_mask("the [MASK] is fine", top_k=3)
    blank = served.predictor("filler").fill("the [MASK] is fine", 3)[0]
    assert [one.token_str for one in words] == [one.token for one in blank]
    assert words[0].sequence == f"the {blank[0].token} is fine"


def test_hub_translates_and_sees(served, hub):
    assert hub("translator").translation("two five").translation_text == "이 오"
    content = io.BytesIO()
    Image.new("RGB", (20, 20), (10, 240, 10)).save(content, "PNG")
    assert hub("colours").image_classification(content.getvalue())[0].label == "green"
    assert [one.label for one in hub("colours").image_classification(content.getvalue(), top_k=1)] == ["green"]


def test_paths_that_name_a_task(served):
    np.testing.assert_allclose(
        served.ask("/models/filler/pipeline/feature-extraction", inputs="the [MASK]"),
        served.predictor("filler").embed(["the [MASK]"]),
        atol=1e-6,
    )
    assert "choose from" in served.refuses("/models/filler/pipeline/juggling", 404, {"inputs": "the"})
    assert "loaded" in served.refuses("/models/nobody", 404, {"inputs": "the"})
    assert "question" in served.refuses("/models/answerer", 422, {"inputs": {"question": "who"}})
    assert served.refuses("/", 422, {"inputs": {"source_sentence": 5}})
    assert served.refuses("/models/filler", 422, {"inputs": "[MASK]", "parameters": {"top_k": 0}})


def test_a_name_in_another_script_is_asked_and_counted(serving, filler):
    with serving({"내글": filler, "분류/模型": filler}) as served:
        with openai.OpenAI(base_url=f"{served.address}/v1", api_key="any") as client:
            assert [one.id for one in client.models.list()] == ["내글", "분류/模型"]
            assert [client.models.retrieve(name).id for name in ("내글", "분류/模型")] == ["내글", "분류/模型"]
            assert client.embeddings.create(model="내글", input=TEXTS).model == "내글"
        for name in ("내글", "분류/模型"):
            assert served.ask("/fill", inputs="the [MASK]", model=name)
            assert served.ask(f"/models/{name}/pipeline/feature-extraction", inputs="the river")
            asked = InferenceClient(model=f"{served.address}/models/{quote(name)}", token="none", timeout=30)
            assert asked.fill_mask("the [MASK] is fine", top_k=1)
        assert 'heedful_batch_inputs_count{model="내글"} ' in served.get("/metrics").text
        assert "loaded: 내글 (" in served.refuses("/models/남글", 404, {"inputs": "the"})
