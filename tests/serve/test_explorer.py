"""The explorer beside the models: its threads, and how its page is sent."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import anyio.to_thread
import pytest

from heedful.explore.explorer import Explorer
from heedful.serve import explorer


def test_the_explorer_has_few_threads_and_takes_none_from_others(served, monkeypatch):
    go, busy = threading.Event(), threading.Semaphore(0)

    def models(self):
        busy.release()
        assert go.wait(20)
        return []

    monkeypatch.setattr(Explorer, "models", models)
    with ThreadPoolExecutor(7) as pool:
        asked = [pool.submit(served.get, "/explore/models") for _ in range(7)]
        for _ in range(explorer.THREADS):
            assert busy.acquire(timeout=10)
        assert not busy.acquire(timeout=0.3)  # the others wait
        assert served.get("/").status_code == 200  # files are read in threads too
        assert served.get("/static/app.js").status_code == 200
        go.set()
        assert [one.result().status_code for one in asked] == [200] * 7


def test_threads_of_others_are_as_many_as_ever(served):
    async def count() -> float:
        return anyio.to_thread.current_default_thread_limiter().total_tokens

    assert served.loop is not None
    assert asyncio.run_coroutine_threadsafe(count(), served.loop).result(10) == 40


@pytest.mark.parametrize("path", ["/", "/static/app.js", "/static/style.css"])
def test_the_page_is_asked_for_again_each_time(served, path):
    found = served.get(path)
    assert found.headers["cache-control"] == "no-cache"
    again = served.get(path, headers={"if-none-match": found.headers["etag"]})
    assert again.headers["cache-control"] == "no-cache"
    if path != "/":
        assert again.status_code == 304


def test_plotly_is_kept_for_a_day(served):
    assert served.get("/static/plotly.min.js").headers["cache-control"] == "max-age=86400"


def test_the_page_may_load_nothing_from_elsewhere(served):
    policy = served.get("/").headers["content-security-policy"]
    assert policy.startswith("default-src 'self'; script-src 'self' 'sha256-")
    assert "unsafe-eval" not in policy
    assert "unsafe-inline" not in policy.partition("style-src")[0]
