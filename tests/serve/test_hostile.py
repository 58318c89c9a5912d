"""Clients that behave badly on the wire: none of them harms another, and none stays for long."""

import contextlib
import json
import resource
import socket
import struct
import threading
import time

import pytest

from heedful.serve import protocol
from heedful.serve.limits import Limits

HEAD = b"POST /embed HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
BODY = json.dumps({"inputs": "the river is fine"}).encode()


def connect(served) -> socket.socket:
    return socket.create_connection(("127.0.0.1", served.port), timeout=20)


def answer(connection: socket.socket) -> tuple[int, dict, bytes]:
    """Status, body and what follows of the answer on a connection."""
    content = b""
    while b"\r\n\r\n" not in content:
        more = connection.recv(65536)
        assert more, content
        content += more
    head, _, rest = content.partition(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    while len(rest) < length:
        rest += connection.recv(65536)
    return int(head.split()[1]), json.loads(rest[:length]), rest[length:]


def closes(connection: socket.socket) -> bool:
    """Whether the server ends a connection."""
    try:
        while connection.recv(65536):
            pass
    except (ConnectionResetError, BrokenPipeError):
        pass
    return True


def fine(served) -> None:
    """Everybody else is served."""
    assert len(served.ask("/embed", inputs="the river is fine")[0]) == 24


def quiet(served) -> None:
    """Nobody holds a place any more."""
    for _ in range(500):
        if served.desk.active == 0 and served.desk.held == 0:
            return
        time.sleep(0.01)
    raise AssertionError((served.desk.active, served.desk.held))


def test_half_a_body_and_gone(served):
    with connect(served) as one:
        one.sendall(HEAD + b"Content-Length: 1000\r\n\r\n" + BODY)
        fine(served)
    quiet(served)


def test_a_connection_torn_down_while_its_answer_is_made(served, monkeypatch):
    monkeypatch.setattr("heedful.serve.batching.LOOK", 0.02)
    engine = served.predictor("embedder").engine
    real, go, busy = engine.vectors, threading.Event(), threading.Event()

    def vectors(*arguments):
        busy.set()
        assert go.wait(20)
        return real(*arguments)

    monkeypatch.setattr(engine, "vectors", vectors, raising=False)
    head = HEAD + f"Content-Length: {len(BODY)}\r\n\r\n".encode() + BODY
    with connect(served) as first, connect(served) as second:
        first.sendall(head)
        assert busy.wait(10)
        second.sendall(head)
        lane = next(one.lane for one in served.desk.models if one.name == "embedder")
        while not lane.waiting:
            time.sleep(0.01)
        second.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset, not a goodbye
        second.close()
        while lane.waiting:  # nobody waits for that any more, so it is not computed
            time.sleep(0.01)
        go.set()
        assert answer(first)[0] == 200
    quiet(served)
    fine(served)


def test_a_slow_sender_has_only_so_long(serving, encoder):
    with serving({"it": encoder}, limits=Limits(max_seconds=2)) as served, connect(served) as slow:
        begun = time.perf_counter()
        slow.sendall(HEAD + f"Content-Length: {len(BODY)}\r\n\r\n".encode() + BODY[:1])
        fine(served)
        slow.sendall(BODY[1:2])
        status, said, _ = answer(slow)
        assert status == 408
        assert "2 seconds" in said["error"]
        assert time.perf_counter() - begun >= 1.9
        assert closes(slow)
        quiet(served)


def test_slow_senders_take_no_place_but_are_not_without_number(serving, encoder):
    limits = Limits(max_requests=2, max_payload=10_000)
    half = HEAD + b"Content-Length: 9000\r\n\r\n" + b" " * 7000
    with serving({"it": encoder}, limits=limits) as served, contextlib.ExitStack() as stack:
        slow = [stack.enter_context(connect(served)) for _ in range(7)]
        for one in slow:
            one.sendall(half)
        while served.desk.held < 7 * 7000:  # counted as it comes, not when it is whole
            time.sleep(0.01)
        assert served.desk.active == 0
        fine(served)
        last = stack.enter_context(connect(served))
        last.sendall(half)
        while served.desk.sending < 8:
            time.sleep(0.01)
        assert "8 requests are being sent" in served.refuses("/embed", 429, {"inputs": "the"})
        assert served.get("/health").status_code == 200
        for one in (*slow, last):
            one.close()
        quiet(served)
        fine(served)


def test_all_bodies_together_have_a_bound(serving, encoder, monkeypatch):
    monkeypatch.setattr("heedful.serve.guard.HELD", 2)
    with serving({"it": encoder}, limits=Limits(max_payload=10_000)) as served, contextlib.ExitStack() as stack:
        for count in (1, 2):
            one = stack.enter_context(connect(served))
            one.sendall(HEAD + b"Content-Length: 10000\r\n\r\n" + b" " * 9900)
            while served.desk.held < count * 9900:
                time.sleep(0.01)
        assert "too many large requests" in served.refuses("/embed", 429, {"inputs": "the " * 80})
        assert served.desk.held == 2 * 9900


def test_the_body_of_what_needs_none_is_not_read(served):
    with connect(served) as one:
        one.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000000\r\n\r\nabc")
        head = one.recv(65536)
        assert b" 200 " in head  # at once, since nothing is waited for
    quiet(served)


def test_a_head_that_does_not_end(served, monkeypatch):
    monkeypatch.setattr(protocol, "HEAD_SECONDS", 0.2)
    with connect(served) as silent, connect(served) as slow:
        slow.sendall(b"POST /embed HTTP/1.1\r\nHost: he")
        fine(served)
        assert closes(silent)
        assert closes(slow)
    with connect(served) as large:
        large.sendall(b"POST /embed HTTP/1.1\r\nHost: localhost\r\n")
        with_headers = b"".join(f"x-{number}: {'y' * 1000}\r\n".encode() for number in range(100))
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            large.sendall(with_headers)
        assert closes(large)
    fine(served)


def test_a_gigabyte_is_not_read(served):
    with connect(served) as one:
        one.sendall(HEAD + b"Content-Length: 1000000000\r\n\r\n" + b" " * 100_000)
        status, said, _ = answer(one)
        assert status == 413
        assert "max-payload" in said["error"]
        assert closes(one)
    with connect(served) as one:
        one.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
        piece = b"100000\r\n" + b" " * 0x100000 + b"\r\n"
        sent = 0
        try:
            for _ in range(1000):
                one.sendall(piece)
                sent += 1
        except (ConnectionResetError, BrokenPipeError, TimeoutError):
            pass
        assert sent < 100
    fine(served)
    quiet(served)


def endless(connection: socket.socket, line: bytes) -> int:
    """How many bytes of a line without end are taken."""
    sent = 0
    try:
        while sent < 40_000_000:
            connection.sendall(line * 100)
            sent += 100 * len(line)
    except (ConnectionResetError, BrokenPipeError, TimeoutError):
        pass
    return sent


@pytest.mark.parametrize(
    "before",
    [
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\n     \r\n0\r\n",
        HEAD + f"Content-Length: {len(BODY)}\r\n\r\n".encode() + BODY + HEAD,
        HEAD,
    ],
    ids=["trailer", "second head", "head"],
)
def test_headers_without_end(served, before, monkeypatch):
    engine = served.predictor("embedder").engine
    real, go = engine.vectors, threading.Event()
    monkeypatch.setattr(engine, "vectors", lambda *given: go.wait(20) and real(*given), raising=False)
    with connect(served) as one:
        one.sendall(before)
        assert endless(one, b"x-more: " + b"y" * 1000 + b"\r\n") < 20_000_000
    go.set()
    quiet(served)


def test_a_head_that_is_whole_but_too_large(served):
    with connect(served) as one:
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            one.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nx: " + b"y" * 100_000 + b"\r\n\r\n")
        with contextlib.suppress(ConnectionResetError):
            assert b" 200 " not in one.recv(65536)


@pytest.mark.parametrize(
    "noise",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET\r\n\r\n",
        b"POST /embed HTTP/1.1\r\nContent-Length: -5\r\n\r\n",
        b"POST /embed HTTP/1.1\r\nContent-Length: five\r\n\r\n",
        b"POST /embed HTTP/1.1\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabc",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\nnope\r\n",
        b"GET /\xff\xfe HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ],
)
def test_noise(served, noise):
    with connect(served) as one:
        one.sendall(noise)
        one.shutdown(socket.SHUT_WR)
        content = b""
        try:
            while more := one.recv(65536):
                content += more
        except ConnectionResetError:
            pass
        assert b" 500 " not in content
        assert b"Traceback" not in content
    fine(served)


def test_several_requests_on_one_connection(served):
    head = HEAD + f"Content-Length: {len(BODY)}\r\n\r\n".encode() + BODY
    with connect(served) as one:
        one.sendall(head * 3)
        rest = b""
        for _ in range(3):
            if b"\r\n\r\n" not in rest:
                rest += one.recv(65536)
            top, _, after = rest.partition(b"\r\n\r\n")
            length = int(top.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
            while len(after) < length:
                after += one.recv(65536)
            assert b" 200 " in top
            rest = after[length:]


def test_a_client_that_does_not_read(served, monkeypatch):
    monkeypatch.setattr(protocol, "STALL_SECONDS", 0.3)
    asked = json.dumps({"inputs": ["the river is fine " * 11] * 32, "truncate": True}).encode()
    connections = served.serving.server.server_state.connections
    before = set(connections)
    with socket.socket() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        deaf.settimeout(20)
        deaf.connect(("127.0.0.1", served.port))
        head = b"POST /embed_all HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        request = head + f"Content-Length: {len(asked)}\r\n\r\n".encode() + asked
        deaf.sendall(request * 20)
        while not connections - before:
            time.sleep(0.01)
        for _ in range(500):
            if not connections - before:
                break
            time.sleep(0.02)
        assert not connections - before
    quiet(served)


def test_many_connections_that_do_nothing(served):
    idle = [connect(served) for _ in range(300)]
    try:
        begun = time.perf_counter()
        fine(served)
        assert time.perf_counter() - begun < 2
    finally:
        for one in idle:
            one.close()


LARGE = 7_900_000
KEYS = b'{"inputs":"the",' + b",".join(b'"k%06d":0' % number for number in range(LARGE // 12)) + b"}"


def filled(before: bytes, item: bytes, after: bytes) -> bytes:
    """A body of almost the largest size, with one item again and again."""
    return before + b",".join([item] * (LARGE // (len(item) + 1))) + after


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/embed", filled(b'{"inputs":[', b"0.5", b"]}")),
        ("/embed", filled(b'{"inputs":[', b"{}", b"]}")),
        ("/embed", filled(b'{"inputs":[["a"],', b"[]", b"]}")),
        ("/embed", filled(b'{"inputs":[', b"1", b"]}")),
        ("/predict", filled(b'{"inputs":[', b"[]", b"]}")),
        ("/decode", filled(b'{"ids":[[', b"0.5", b"]]}")),
        ("/tag", filled(b'{"inputs":[[', b"0", b"]]}")),
        ("/answer", filled(b'{"inputs":[', b'{"a":0}', b"]}")),
        ("/rerank", filled(b'{"query":"a","texts":[', b"0", b"]}")),
        ("/similarity", filled(b'{"inputs":{"source_sentence":"a","sentences":[', b"0", b"]}}")),
        ("/see", filled(b'{"inputs":[', b"0", b"]}")),
        ("/", filled(b'{"inputs":[', b"0", b"]}")),
        ("/fill", KEYS),
        ("/explore/tokens", KEYS.replace(b"inputs", b"model")),
        ("/explore/meaning", filled(b'{"model":"filler","word":"a","sentences":[', b"0", b"]}")),
    ],
)
def test_a_million_mistakes_cost_little_more_than_one(served, path, body):
    before, begun = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter()
    found = served.post(path, content=body, headers={"content-type": "application/json"})
    assert found.status_code in (413, 422), found.text[:500]
    assert "max-payload" not in found.text
    assert len(found.content) < 1000
    assert b'"k000007"' not in body or "keys are more than the 100" in found.text
    assert time.perf_counter() - begun < 5
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 700_000  # kB: what the JSON itself takes


def test_a_key_without_end_is_not_sent_back(served):
    said = served.refuses("/fill", 422, {"inputs": "the [MASK]", "k" * 100_000: 0})
    assert "k" * 60 in said
    assert len(said) < 200
