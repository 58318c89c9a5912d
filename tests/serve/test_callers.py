"""Who may ask at all: names of the server, and pages of other sites."""

import socket

import pytest

from heedful.serve.keys import Keys
from heedful.serve.server import listen, names

ASKED = {"inputs": "the river"}


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1:8080", "[::1]:5", "[::1]"])
def test_names_of_this_machine(served, host):
    assert served.post("/embed", ASKED, headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8080", "127.0.0.1.evil.example", "localhost.", "[::2]"]
)
def test_a_name_that_somebody_gave_this_machine(served, host):
    said = served.refuses("/embed", 403, ASKED, headers={"host": host})
    assert "localhost" in said
    for path in ("/", "/info", "/explore/models", "/static/app.js"):
        found = served.get(path, headers={"host": host})
        assert found.status_code == 403
        assert found.json()["error_type"] == "Forbidden"


def test_with_a_key_any_name_will_do(serving, encoder):
    with serving({"it": encoder}, keys=Keys(["k"])) as served:
        headers = {"host": "models.example.org", "authorization": "Bearer k"}
        assert served.post("/embed", ASKED, headers=headers).status_code == 200


def test_the_name_it_was_bound_to():
    listening = listen("127.0.0.5", 0)
    try:
        assert names("My-Box", listening) == {"localhost", "127.0.0.1", "[::1]", "my-box", "127.0.0.5"}
    finally:
        listening.close()
    if socket.has_ipv6:
        assert names("::1", _Bound("::1")) == {"localhost", "127.0.0.1", "[::1]"}


class _Bound(socket.socket):
    """A socket that says where it is."""

    def __init__(self, host: str) -> None:
        super().__init__()
        self.host = host
        self.close()

    def getsockname(self) -> tuple[str, int]:
        return self.host, 8080


def test_a_page_of_another_site_may_not_post(served, serving, encoder):
    headers = {"sec-fetch-site": "cross-site", "origin": "https://evil.example"}
    for path in ("/embed", "/see", "/explore/tokens", "/"):
        assert "other sites" in served.refuses(path, 403, ASKED, headers=headers)
    assert served.get("/health", headers=headers).status_code == 200  # as a link does
    for site in ("same-origin", "same-site", "none"):
        assert served.post("/embed", ASKED, headers={"sec-fetch-site": site}).status_code == 200
    with serving({"it": encoder}, cors=["https://evil.example"]) as other:
        assert other.post("/embed", ASKED, headers=headers).status_code == 200


def test_the_document_is_made_once(served, monkeypatch):
    first = served.get("/openapi.json").json()
    monkeypatch.setattr("heedful.serve.app.get_openapi", lambda **_: 1 / 0)
    assert served.get("/openapi.json").json() == first
