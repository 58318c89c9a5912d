"""The explorer over HTTP: it answers what the pieces give, and mistakes are one line with the right status."""

import base64
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from heedful.explore.api import router
from heedful.explore.attention import thumbnails
from heedful.explore.numbers import unpacked
from heedful.explore.texts import traced
from heedful.predict import ImagePredictor, Predictor
from heedful.predict.translator import Translator

TEXT = "the animal was tired."


@pytest.fixture(scope="module")
def client(loaded: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    run = tmp_path_factory.mktemp("runs") / "first"
    run.mkdir()
    (run / "metrics.jsonl").write_text('{"kind": "train", "step": 1, "loss": NaN}\n')
    app = FastAPI()
    app.include_router(router(loaded, [run]))
    with TestClient(app) as client:
        yield client


def ask(client: TestClient, path: str, **body: Any) -> Any:
    answer = client.post(f"/explore/{path}", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_models_say_what_can_be_seen(client: TestClient):
    found = {one["name"]: one for one in client.get("/explore/models").json()}
    assert list(found) == ["bert", "transformer", "rnn", "vit"]
    assert found["bert"]["views"] == ["blanks", "attention", "head", "positions", "meaning"]
    assert (found["bert"]["layers"], found["bert"]["heads"], found["bert"]["dim"]) == (3, 2, 28)
    assert (found["bert"]["positions"], found["bert"]["max_length"]) == ("learned", 41)
    assert found["transformer"]["parts"] == ["encoder", "decoder", "cross"]
    assert (found["transformer"]["layers"], found["transformer"]["decoder_layers"]) == (2, 3)
    assert found["transformer"]["positions"] == "sinusoidal"
    assert (found["rnn"]["family"], found["rnn"]["score"], found["rnn"]["positions"]) == ("rnn", "general", None)
    assert "positions" not in found["rnn"]["views"]
    assert found["vit"]["views"] == ["images", "positions"]
    assert (found["vit"]["image_size"], found["vit"]["patch_size"]) == (15, 5)
    assert found["vit"]["labels"] == ["red", "green", "blue", "grey"]


def test_a_grid_and_its_heads(client: TestClient, bert: Callable[[str], Predictor]):
    trace = traced(bert("published"), TEXT)
    grid = ask(client, "attention/grid", model="bert", text=TEXT)
    assert (grid["layers"], grid["heads"]) == (3, 2)
    np.testing.assert_array_equal(unpacked(grid["thumbnails"]), thumbnails(trace, "encoder"))
    assert [one["text"] for one in grid["tokens"]] == [one.text for one in trace.tokens]
    assert "target_tokens" not in grid
    for layer in range(3):
        weights = trace.parts["encoder"][layer].weights()
        for head in range(2):
            one = ask(client, "attention/matrix", model="bert", text=TEXT, layer=layer, head=head)
            np.testing.assert_array_equal(unpacked(one["weights"]), weights[head])
        mean = ask(client, "attention/matrix", model="bert", text=TEXT, layer=layer, head="mean")
        np.testing.assert_allclose(unpacked(mean["weights"]), weights.mean(0), atol=1e-7)
    rolled = ask(client, "attention/matrix", model="bert", text=TEXT, layer=0, rollout=True)
    expected = (trace.parts["encoder"][0].weights().mean(0) + np.eye(7)) / 2
    np.testing.assert_allclose(unpacked(rolled["weights"]), expected, atol=1e-6)


def test_a_head_step_by_step(client: TestClient, bert: Callable[[str], Predictor]):
    answer = ask(client, "head", model="bert", text=TEXT, layer=1, head=1, token=2)
    look = traced(bert("published"), TEXT).parts["encoder"][1].look(1, 2)
    unplaced = traced(bert("published"), TEXT, placed=False).parts["encoder"][1].look(1, 2)
    assert answer["width"] == 14
    np.testing.assert_allclose(answer["scaled"], np.array(answer["products"]) / 14**0.5, rtol=1e-5)
    keys, values = unpacked(answer["keys"]), unpacked(answer["values"])
    np.testing.assert_allclose(answer["products"], keys @ np.array(answer["query"]), atol=1e-5)
    np.testing.assert_allclose(answer["output"], answer["weights"] @ values, atol=1e-5)
    np.testing.assert_allclose(answer["weights"], look.mixed.weights, atol=1e-6)
    assert answer["mask"] == [True] * 7
    assert answer["without"]["mask"] is None
    np.testing.assert_allclose(answer["without"]["positions"]["weights"], unplaced.mixed.weights, atol=1e-6)
    np.testing.assert_allclose(answer["without"]["positions"]["output"], unplaced.mixed.output, atol=1e-6)
    padded = ask(client, "head", model="bert", text=TEXT, layer=1, head=1, token=2, padding=2)
    assert padded["mask"] == [True] * 7 + [False] * 2
    assert sum(padded["without"]["mask"]["weights"][-2:]) > 0


def test_a_decoder_and_what_it_looks_at(client: TestClient, transformer: Callable[[bool], Translator]):
    body = {"model": "transformer", "text": "one three", "pair": "둘 셋"}
    trace = traced(transformer(False), "one three", "둘 셋")
    cross = ask(client, "attention/grid", **body, part="cross")
    assert [one["text"] for one in cross["tokens"]] == [one.text for one in trace.tokens]
    assert [one["text"] for one in cross["target_tokens"]] == [one.text for one in trace.target]
    assert unpacked(cross["thumbnails"]).shape == (3, 2, len(trace.target), len(trace.tokens))
    own = ask(client, "head", **body, part="decoder", layer=2, head=0, token=1)
    assert own["mask"] == [True, True] + [False] * (len(trace.target) - 2)
    assert own["without"]["mask"] is not None
    assert "target_tokens" not in own
    assert ask(client, "attention/grid", **body)["layers"] == 2


def test_a_recurrent_model_has_one_attention(client: TestClient):
    grid = ask(client, "attention/grid", model="rnn", text="one three", pair="둘 셋")
    assert (grid["layers"], grid["heads"]) == (1, 1)
    head = ask(client, "head", model="rnn", text="one three", pair="둘 셋", layer=0, head=0, token=0)
    assert (head["score"], head["without"]["positions"]) == ("general", None)


def test_the_other_views(client: TestClient, image_file: Path, vit: Callable[..., ImagePredictor]):
    tokens = ask(client, "tokens", model="bert", text="it was", pair="tired")
    assert [one["segment"] for one in tokens["tokens"]] == [0, 0, 0, 0, 1, 1]
    tokens = ask(client, "tokens", model="rnn", text="one", pair="둘")
    assert tokens["tokens"][-1]["special"]
    assert tokens["target_tokens"]
    assert ask(client, "blanks", model="bert", text="the [MASK]", count=3)["blanks"][0]["start"] == 4
    assert len(ask(client, "generate", model="bert", text="the", words=3)["steps"]) == 3
    for model, kind in (("bert", "learned"), ("transformer", "sinusoidal"), ("vit", "learned")):
        assert ask(client, "positions", model=model)["kind"] == kind
    tree = ask(client, "translate", model="transformer", text="one three", beams=3)
    assert tree["tree"][0]["parent"] is None
    finished = sorted((one for one in tree["tree"] if one["state"] == "finished"), key=lambda one: one["rank"])
    assert [one["score"] for one in finished] == [one["score"] for one in tree["translations"]]
    assert unpacked(tree["translations"][0]["alignment"]).shape[1] == len(tree["source"])
    seen = ask(client, "look", model="vit", image=base64.b64encode(image_file.read_bytes()).decode())
    assert seen["classes"][0]["label"] == vit().see(image_file).label
    assert unpacked(seen["weights"]).shape == (2, 2, 9)
    assert unpacked(seen["rollout"]).shape == (9,)
    meaning = ask(client, "meaning", model="bert", word="bank", sentences=["the bank", "it was the bank"])
    assert unpacked(meaning["similarity"]).shape == (2, 2)
    assert meaning["context_free"]["similarity"] == 1.0


def test_runs_are_told_as_they_grow(client: TestClient):
    assert client.get("/explore/runs").json() == [{"name": "first", "state": "running"}]
    answer = client.get("/explore/runs/first").json()
    assert answer["rows"] == [{"kind": "train", "step": 1, "loss": None}]
    assert client.get(f"/explore/runs/first?since={answer['next']}").json()["rows"] == []
    assert client.get("/explore/runs/second").status_code == 404


@pytest.mark.parametrize(
    ("path", "body", "status", "said"),
    [
        ("attention/grid", {"model": "x", "text": "a"}, 404, "there is no model 'x'; there are: bert, transformer"),
        ("attention/grid", {"model": "bert"}, 422, "text: Field required"),
        ("attention/grid", {"model": "bert", "text": 3}, 422, "text: Input should be a valid string"),
        ("attention/grid", {"model": "bert", "text": "a", "pear": "b"}, 422, "pear: Extra inputs are not permitted"),
        ("attention/grid", {"model": "bert", "text": " "}, 422, "the text is empty; write something in it"),
        ("attention/grid", {"model": "bert", "text": "it " * 77}, 413, "79 tokens, of which 41 can be looked at"),
        ("attention/grid", {"model": "bert", "text": "a" * 20_001}, 413, "text has 20,001 characters, more than"),
        ("attention/grid", {"model": "vit", "text": "a"}, 404, "vit can't show its attention: it sees images"),
        ("attention/matrix", {"model": "bert", "text": "a", "layer": 3, "head": 0}, 404, "layer 3 is not there"),
        ("attention/matrix", {"model": "bert", "text": "a", "layer": -1, "head": 0}, 422, "layer: Input should be"),
        ("attention/matrix", {"model": "bert", "text": "a", "layer": True}, 422, "layer: Input should be a valid"),
        ("head", {"model": "bert", "text": "a", "layer": 0, "head": 0, "token": 3}, 404, "token 3 is not there"),
        ("head", {"model": "bert", "text": "a", "layer": 0, "head": 7, "token": 0}, 404, "head 7 is not there"),
        ("positions", {"model": "rnn"}, 404, "a recurrent model has none, it reads token after token"),
        ("translate", {"model": "bert", "text": "one"}, 404, "bert can't translate|published can't translate"),
        ("translate", {"model": "transformer", "text": "one", "beams": 17}, 422, "beams: Input should be less"),
        ("blanks", {"model": "rnn", "text": "[MASK]"}, 404, "rnn can't fill blanks: it translates"),
        ("blanks", {"model": "bert", "text": "no blank"}, 422, r"there is no blank; write \[MASK\]"),
        ("blanks", {"model": "bert", "text": "[MASK] " * 40}, 413, "42 tokens, of which 41 can be looked at"),
        ("generate", {"model": "bert", "text": "it " * 36, "words": 4}, 413, "42 tokens, of which 41 can be"),
        ("look", {"model": "vit", "image": "*"}, 422, "the image is not base64"),
        ("look", {"model": "bert", "image": "*"}, 404, "can't look at images: it reads texts"),
        ("meaning", {"model": "bert", "word": "bank", "sentences": []}, 422, "sentences: List should have at least"),
        ("meaning", {"model": "bert", "word": "bank", "sentences": ["x" * 30_000]}, 413, "sentences has 30,000"),
    ],
)
def test_mistakes_are_one_line(client: TestClient, path: str, body: dict[str, Any], status: int, said: str):
    answer = client.post(f"/explore/{path}", json=body)
    assert answer.status_code == status, answer.text
    assert set(answer.json()) == {"error", "error_type"}
    assert "\n" not in answer.json()["error"]
    assert re.search(said, answer.json()["error"]), answer.json()["error"]


@pytest.mark.parametrize(
    "content", [b"", b"{", b'{"model": "bert", "text": "\\ud800"}', b"\xff", b"[" * 2000, b"null"], ids=range(6)
)
def test_what_is_no_question_is_refused(client: TestClient, content: bytes):
    headers = {"content-type": "application/json"}
    answer = client.post("/explore/attention/grid", content=content, headers=headers)
    assert 400 <= answer.status_code < 500
    assert json.loads(answer.content)["error"]


def test_clicking_from_head_to_head_runs_the_model_once(client: TestClient, monkeypatch: pytest.MonkeyPatch):
    calls = []

    def counted(*given: Any, **named: Any) -> Any:
        calls.append(given[1])
        return traced(*given, **named)

    monkeypatch.setattr("heedful.explore.explorer.traced", counted)
    for head in (0, 1):
        for layer in (0, 1, 2):
            ask(client, "attention/matrix", model="bert", text="a new text", layer=layer, head=head)
    assert calls == ["a new text"]


TEXTS = st.one_of(st.text(max_size=29), st.text("a [MASK]it'강\u0301\u200b\x00▁</s>\n", max_size=29))
ASKED = {
    "tokens": {"pair": TEXTS},
    "blanks": {"count": st.integers(1, 100)},
    "generate": {"words": st.integers(1, 3), "seed": st.integers(0, 2**32 - 1)},
    "attention/grid": {"pair": TEXTS, "part": st.sampled_from(["encoder", "decoder", "cross"])},
    "attention/matrix": {"layer": st.integers(0, 3), "head": st.integers(0, 2), "rollout": st.booleans()},
    "head": {"layer": st.integers(0, 3), "head": st.integers(0, 2), "token": st.integers(0, 9)},
    "translate": {"prefix": TEXTS, "beams": st.integers(1, 3), "length_penalty": st.floats(-10, 10)},
}


@given(st.data(), st.sampled_from(list(ASKED)), st.sampled_from(["bert", "transformer", "rnn", "vit"]), TEXTS)
@settings(max_examples=90, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_is_asked_there_is_an_answer(client: TestClient, data: Any, path: str, model: str, text: str):
    chosen = {name: data.draw(values) for name, values in ASKED[path].items()}
    answer = client.post(f"/explore/{path}", json={"model": model, "text": text, **chosen})
    assert answer.status_code in (200, 404, 413, 422), answer.text
    assert answer.status_code == 200 or set(answer.json()) == {"error", "error_type"}


def test_the_document_says_what_comes_back(client: TestClient):
    """Objects and lists, not texts, as a class of answers of one's own would be described; errors in one shape."""
    paths = client.get("/openapi.json").json()["paths"]
    assert len(paths) == 13
    for path, operations in paths.items():
        for operation in operations.values():
            answers = operation["responses"]
            assert answers["200"]["content"]["application/json"]["schema"] == {}, path
            for status in ("400", "404", "413", "422"):
                schema = answers[status]["content"]["application/json"]["schema"]
                assert schema == {"$ref": "#/components/schemas/Refused"}
