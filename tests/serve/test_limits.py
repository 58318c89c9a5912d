"""Limits, keys and manners of the server as a whole."""

import io
import json
import shlex
import threading
import time
import unicodedata
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import numpy as np
import pytest

from heedful.errors import UserError
from heedful.serve.keys import Keys, read_keys
from heedful.serve.limits import Limits
from heedful.serve.logs import Log
from heedful.serve.models import wanted


def test_too_many_inputs_of_a_request(served):
    said = served.refuses("/embed", 413, {"inputs": ["a"] * 33})
    assert "33 inputs" in said
    assert "max-inputs" in said
    assert "no inputs" in served.refuses("/embed", 422, {"inputs": []})
    found = served.post("/embed", {"inputs": ["a"] * 33})
    assert "connection" not in found.headers  # the next request may come on the same one


def test_a_body_that_is_too_large(served):
    before = served.desk.meters.registry.get_sample_value("heedful_rejected_total", {"limit": "max-payload"}) or 0
    said = served.refuses("/embed", 413, {"inputs": "a" * 8_000_001})
    assert "8,000,000 bytes (max-payload)" in said
    parts = (b" " * 100_000 for _ in range(81))
    assert "max-payload" in served.refuses("/embed", 413, content=parts, headers={"content-type": "application/json"})
    after = served.desk.meters.registry.get_sample_value("heedful_rejected_total", {"limit": "max-payload"})
    assert after == before + 2
    assert served.desk.held == 0


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (b'{"inputs": ', 400),
        (b"\xff\xfe\xfd", 400),
        (b'{"inputs": "caf\xe9"}', 400),
        (b'{"inputs": ' + b"[" * 100_000, 400),
        (b'{"inputs": "\\ud800"}', 422),
        (b'{"inputs": 5}', 422),
        (b'{"inputs": {"a": 1}}', 422),
        (b'{"inputs": [1.5]}', 422),
        (b'{"inputs": NaN}', 422),
        (b"null", 422),
        (b"", 422),
        (b'{"inputs": ""}', 422),
        (b'{"inputs": "a", "dimensions": 1e400}', 422),
        (b'{"inputs": "a", "truncation_direction": "left"}', 422),
    ],
)
def test_bad_bodies_are_told_in_one_line(served, content, status):
    said = served.refuses("/embed", status, content=content, headers={"content-type": "application/json"})
    assert len(said) < 400


@pytest.mark.parametrize("path", ["/embed", "/predict", "/tag", "/see", "/"])
def test_json_a_thousand_levels_deep(served, path):
    deep = b"[" * 1000 + b"]" * 1000
    for content in (deep, b'{"inputs": ' + deep + b"}"):
        found = served.post(path, content=content, headers={"content-type": "application/json"})
        assert found.status_code in (400, 422), found.text  # as deep as this Python's parser goes, or not
        assert found.json().keys() == {"error", "error_type"}


def test_a_field_that_we_do_not_know(served):
    assert "tops" in served.refuses("/fill", 422, {"inputs": "[MASK]", "tops": 3})
    assert served.ask("/embed", inputs="the", unknown=1)


def test_routes_that_are_not_there(served):
    assert "/docs" in served.refuses("/nothing", 404, {})
    found = served.get("/embed")
    assert found.status_code == 405
    assert found.headers["allow"] == "POST"
    assert found.json()["error_type"] == "NotAllowed"


def test_a_model_by_its_name(served):
    said = served.refuses("/embed", 404, {"inputs": "the", "model": "other"})
    assert "'other'" in said
    assert "embedder (gives vectors)" in said
    said = served.refuses("/fill", 424, {"inputs": "[MASK]", "model": "embedder"})
    assert "embedder can't" in said
    assert "filler" in said
    own = served.ask("/embed", inputs="the river", model="filler")
    np.testing.assert_allclose(own, served.predictor("filler").embed(["the river"]), atol=1e-6)


def test_what_nobody_can_do_says_what_is_loaded(serving, encoder):
    with serving({"only": encoder}) as served:
        said = served.refuses("/translate", 424, {"inputs": "two"})
        assert said == "no model is loaded that translates; loaded: only (gives vectors)"
        paths = served.get("/openapi.json").json()["paths"]
        assert "/embed" in paths
        assert "/translate" not in paths
        assert served.get("/info").json()["models"] == {"only": ["embed", "tokenize"]}


def test_requests_beyond_the_limit_get_429_and_all_others_their_answer(serving, encoder):
    limits = Limits(max_requests=3)
    with serving({"it": encoder}, limits=limits) as served:
        go, busy = threading.Event(), threading.Event()
        real = served.predictor("it").engine.vectors

        def vectors(*arguments):
            busy.set()
            assert go.wait(20)
            return real(*arguments)

        served.predictor("it").engine.vectors = vectors
        with ThreadPoolExecutor(8) as pool:
            tasks = [pool.submit(served.post, "/embed", {"inputs": "the river"}) for _ in range(3)]
            assert busy.wait(10)
            while served.desk.active < 3:
                time.sleep(0.01)
            full = served.post("/embed", {"inputs": "the"})
            assert full.status_code == 429
            assert "3 requests" in full.json()["error"]
            assert "max-requests" in full.json()["error"]
            assert int(full.headers["retry-after"]) >= 1
            assert served.get("/health").status_code == 200  # which costs nothing
            go.set()
            assert [task.result().status_code for task in tasks] == [200, 200, 200]
        while served.desk.active:
            time.sleep(0.01)
        assert 'heedful_rejected_total{limit="max-requests"} 1.0' in served.get("/metrics").text


def test_a_request_may_take_only_so_long(serving, encoder):
    with serving({"it": encoder}, limits=Limits(max_seconds=0.3)) as served:
        go = threading.Event()
        served.predictor("it").engine.vectors = lambda *_: go.wait(20) and None
        found = served.post("/embed", {"inputs": "the"})
        go.set()
        assert found.status_code == 503
        assert "0.3 seconds" in found.json()["error"]
        assert "retry-after" in found.headers


def test_answers_under_load_are_those_given_alone(served):
    texts = [
        " ".join(["the river is fine and anna lives in oslo"] * (number % 4 + 1)) + f" {number % 3 + 1}"
        for number in range(61)
    ]
    alone = {text: served.predictor("embedder").embed(text) for text in texts}
    marks = served.predictor("classifier").classify(texts)

    def ask(number):
        text = texts[number]
        with httpx.Client(base_url=served.address, timeout=60) as client:
            vector = client.post("/embed", json={"inputs": text}).json()[0]
            label = client.post("/predict", json={"inputs": text, "model": "classifier"}).json()[0]
        return np.abs(np.array(vector) - alone[text]).max(), label["label"] == marks[number].label

    with ThreadPoolExecutor(16) as pool:
        found = list(pool.map(ask, range(61)))
    assert max(difference for difference, _ in found) < 1e-5
    assert all(right for _, right in found)


def test_words_answers_and_translations_under_load_are_those_given_alone(served):
    numbers = ("two", "five", "nine", "seven", "three")
    texts = [" ".join(numbers[: count % 5 + 1]) for count in range(23)]
    stories = ["anna lives in oslo and the river is fine . " * (count % 3 + 1) + texts[count] for count in range(23)]
    tagger, answerer, translator = (served.predictor(name) for name in ("tagger", "answerer", "translator"))
    tagged = [tagger.tag(story) for story in stories]
    answers = [answerer.answer("who lives ?", story, n_best=2) for story in stories]
    translated = [translator.translate(text) for text in texts]

    def ask(number):
        question = {"question": "who lives ?", "context": stories[number]}
        with httpx.Client(base_url=served.address, timeout=60) as client:
            tags = client.post("/tag", json={"inputs": stories[number]}).json()
            found = client.post("/answer", json={"inputs": question, "n_best": 2}).json()
            best = client.post("/translate", json={"inputs": texts[number]}).json()["translations"][0]
        assert tags["tags"] == tagged[number].tags
        assert tags["probabilities"] == pytest.approx(tagged[number].probabilities, abs=1e-5)
        assert [(one["start"], one["end"]) for one in found] == [(one.start, one.end) for one in answers[number]]
        assert [one["probability"] for one in found] == pytest.approx(
            [a.probability for a in answers[number]], abs=1e-5
        )
        assert best["text"] == translated[number].text
        assert best["score"] == pytest.approx(translated[number].score, abs=1e-5)

    with ThreadPoolExecutor(12) as pool:
        list(pool.map(ask, range(23)))


def test_keys_open_the_server(serving, encoder):
    with serving({"it": encoder}, keys=Keys(["one-key", "other-key"])) as served:
        asked = {"inputs": "the"}
        for header in (None, "Bearer wrong", "Bearer one-ke", "one-key", "Basic one-key", "Bearer one-key x"):
            headers = {} if header is None else {"authorization": header}
            found = served.post("/embed", asked, headers=headers)
            assert found.status_code == 401
            assert found.headers["www-authenticate"] == "Bearer"
            assert "Bearer KEY" in found.json()["error"]
            assert served.get("/metrics", headers=headers).status_code == 401
        for key in ("one-key", "other-key"):
            assert served.post("/embed", asked, headers={"authorization": f"Bearer {key}"}).status_code == 200
        assert served.get("/health").status_code == 200
        assert served.get("/", follow_redirects=False).status_code in (200, 307)
        assert served.post("/", asked).status_code == 401
        document = served.get("/openapi.json", headers={"authorization": "bearer one-key"}).json()
        assert document["security"] == [{"key": []}]


def test_key_files(tmp_path: Path, monkeypatch):
    file = tmp_path / "keys"
    file.write_text("first\n\n  second \n", encoding="utf-8")
    assert read_keys(file).opens(b"Bearer second")
    assert not read_keys(file).opens(b"Bearer third")
    for content in (b"", b"\n \n", b"with blank\n", "schlüssel\n".encode(), b"\xff\xfe"):
        file.write_bytes(content)
        with pytest.raises(UserError):
            read_keys(file)
    with pytest.raises(UserError, match="can't be read"):
        read_keys(tmp_path / "none")
    monkeypatch.setenv("HEEDFUL_API_KEY", "from-there")
    assert read_keys(None).opens(b"bearer from-there")
    monkeypatch.delenv("HEEDFUL_API_KEY")
    assert not read_keys(None)


def test_pages_of_others_may_ask_only_where_that_is_allowed(serving, served, encoder):
    preflight = {"origin": "https://example.org", "access-control-request-method": "POST"}
    with httpx.Client(base_url=served.address) as client:
        assert "access-control-allow-origin" not in client.options("/embed", headers=preflight).headers
        assert "access-control-allow-origin" not in client.get("/health", headers=preflight).headers
    with (
        serving({"it": encoder}, cors=["https://example.org"], keys=Keys(["k"])) as open_one,
        httpx.Client(base_url=open_one.address) as client,
    ):
        found = client.options("/embed", headers=preflight)
        assert found.status_code == 200
        assert found.headers["access-control-allow-origin"] == "https://example.org"
        other = client.get("/health", headers={"origin": "https://elsewhere.org"})
        assert "access-control-allow-origin" not in other.headers


def test_the_log_has_no_text_unless_it_is_asked_for(serving, encoder):
    asked = {"inputs": "the harbour of cairo"}
    for texts in (False, True):
        said = io.StringIO()
        with serving({"it": encoder}, log=Log("json", texts=texts, file=said)) as served:
            served.post("/embed", asked)
            served.post("/embed", {"inputs": 5})
        lines = [json.loads(line) for line in said.getvalue().splitlines()]
        first = next(line for line in lines if line["event"] == "request")
        assert first["route"] == "/embed"
        assert first["status"] == 200
        assert first["model"] == "it"
        assert first["inputs"] == 1
        assert ("harbour" in said.getvalue()) is texts


def test_no_path_leaves_the_server(served, folders):
    answers = [
        served.get("/info").text,
        served.get("/v1/models").text,
        served.get("/openapi.json").text,
        served.get("/metrics").text,
        served.get("/docs").text,
        served.post("/fill", {"inputs": "[MASK]", "model": "embedder"}).text,
        served.post("/translate", {"inputs": "two", "prefix": "Ω"}).text,
        served.get("/static/../../../../etc/passwd").text,
        served.get("/static/%2e%2e/%2e%2e/serve/app.py").text,
    ]
    for folder in folders.values():
        for answer in answers:
            assert str(folder.parent) not in answer
    assert not any("root:" in answer or "def build" in answer for answer in answers)


def test_metrics_count_and_measure(served):
    served.ask("/embed", inputs=["the", "river"])
    served.post("/nothing-of-ours/" + "x" * 50, {})
    said = served.get("/metrics").text
    for name in (
        'heedful_requests_total{route="/embed",status="200"}',
        'heedful_request_seconds_bucket{le="0.5",route="/embed"}',
        'heedful_queue_inputs{model="embedder"} 0.0',
        'heedful_batch_tokens_sum{model="embedder"}',
        'heedful_batch_seconds_count{model="embedder"}',
        "heedful_ready 1.0",
        "process_resident_memory_bytes",
    ):
        assert name in said
    assert "xxxx" not in said


def test_docs_need_nothing_from_elsewhere(served):
    page = served.get("/docs")
    assert page.headers["content-type"].startswith("text/html")
    assert "/translate" in page.text
    assert "http://" not in page.text
    assert "https://" not in page.text
    assert "<script" not in page.text


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"max_inputs": 0}, "max-inputs 0"),
        ({"max_seconds": float("nan")}, "max-seconds"),
        ({"max_queue": 5}, "max-queue 5"),
        ({"batch_tokens": -1}, "batch-tokens -1"),
    ],
)
def test_limits_that_make_no_sense(given, message):
    with pytest.raises(UserError, match=message):
        Limits(**given)


def test_names_of_models(tmp_path: Path):
    one, two = tmp_path / "a" / "it", tmp_path / "b" / "it"
    for folder in (one, two, tmp_path / "x=y"):
        folder.mkdir(parents=True)
    assert [(w.name, w.folder) for w in wanted([str(one), f"org/other={two}"])] == [("it", one), ("org/other", two)]
    assert wanted([f"odd={tmp_path / 'x=y'}"])[0].folder == tmp_path / "x=y"
    with pytest.raises(UserError, match="two models"):
        wanted([str(one), str(two)])
    with pytest.raises(UserError, match="no such folder"):
        wanted([str(tmp_path / "none")])
    with pytest.raises(UserError, match="no name"):
        wanted([f"a b={one}"])
    with pytest.raises(UserError, match="no name"):
        wanted([f"a//b={one}"])
    with pytest.raises(UserError, match="at least one"):
        wanted([])


@pytest.mark.parametrize("name", ["내글", "模型-2", "분류/주제.v2", "हिन्दी", "ไทย:1+1"])
def test_names_have_letters_of_any_script(tmp_path: Path, name: str):
    assert wanted([f"{name}={tmp_path}"])[0].name == name


@pytest.mark.parametrize(
    ("folder", "name"),
    [("주제 분류", "주제-분류"), ("a (1)", "a-1"), ("내글", "내글"), (unicodedata.normalize("NFD", "내글"), "내글")],
)
def test_a_folder_gives_its_model_a_name(tmp_path: Path, folder: str, name: str):
    (tmp_path / folder).mkdir()
    assert [(w.name, w.folder) for w in wanted([str(tmp_path / folder)])] == [(name, tmp_path / folder)]


def test_a_name_that_is_suggested_can_be_given_to_a_shell(tmp_path: Path):
    for folder in ("!!!", "내 글", "내-글"):
        (tmp_path / folder).mkdir()
    with pytest.raises(UserError, match="'!!!' is no name for a model") as told:
        wanted([str(tmp_path / "!!!")])
    assert shlex.split(str(told.value).rpartition(", as ")[2]) == [f"NAME={tmp_path / '!!!'}"]
    with pytest.raises(UserError, match="two models would be called '내-글'") as told:
        wanted([str(tmp_path / "내-글"), str(tmp_path / "내 글")])
    assert shlex.split(str(told.value).rpartition(": ")[2]) == [f"OTHER={tmp_path / '내 글'}"]
