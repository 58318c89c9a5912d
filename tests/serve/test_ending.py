"""How a server begins and ends."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from heedful.errors import UserError
from heedful.serve import server as server_module


def test_it_is_unhealthy_until_the_models_are_warm(serving, encoder, monkeypatch):
    go = threading.Event()
    real = server_module.open_model

    def slowly(*arguments):
        assert go.wait(20)
        return real(*arguments)

    monkeypatch.setattr(server_module, "open_model", slowly)
    with serving({"it": encoder}, wait=False) as served:
        seen = [served.get("/health"), served.post("/embed", {"inputs": "the"}), served.get("/info")]
        assert [one.status_code for one in seen] == [503, 503, 200]
        assert "being loaded" in seen[1].json()["error"]
        assert int(seen[1].headers["retry-after"]) >= 1
        assert seen[2].json()["models"] == {}
        go.set()
        assert served.ready.wait(20)
        assert served.get("/health").status_code == 200


def test_a_model_that_can_not_be_loaded_ends_it(serving, tmp_path: Path):
    (tmp_path / "broken").mkdir()
    with pytest.raises(UserError, match="config"), serving({"it": tmp_path / "broken"}):
        pass


def test_it_finishes_what_it_has_and_takes_nothing_new(serving, encoder):
    with serving({"it": encoder}) as served, ThreadPoolExecutor(4) as pool:
        engine = served.predictor("it").engine
        real, go, busy = engine.vectors, threading.Event(), threading.Event()

        def vectors(*arguments):
            busy.set()
            assert go.wait(20)
            return real(*arguments)

        engine.vectors = vectors
        under_way = [pool.submit(served.post, "/embed", {"inputs": text}) for text in ("the", "river", "anna")]
        assert busy.wait(10)
        while served.desk.active < 3:
            time.sleep(0.01)
        served.stop()
        while not served.desk.draining:
            time.sleep(0.01)
        health = served.get("/health")
        assert health.status_code == 503
        late = served.post("/embed", {"inputs": "the"})
        assert late.status_code == 503
        assert "about to stop" in late.json()["error"]
        assert "retry-after" in late.headers
        assert served.thread.is_alive()
        go.set()
        assert [one.result().status_code for one in under_way] == [200, 200, 200]
        served.thread.join(10)
        assert not served.thread.is_alive()
        with pytest.raises(httpx.ConnectError):
            served.get("/health")
