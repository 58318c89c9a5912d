"""Clients that behave badly on the wire: none of them harms another, and none stays for long."""

import contextlib
import json
import socket
import struct
import threading
import time

import pytest

from heedful.serve import protocol
from heedful.serve.limits import Limits

HEAD = b"POST /embed HTTP/1.1\r\nHost: here\r\nContent-Type: application/json\r\n"
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
    with serving({"it": encoder}, limits=Limits(max_seconds=0.4)) as served, connect(served) as slow:
        slow.sendall(HEAD + f"Content-Length: {len(BODY)}\r\n\r\n".encode())
        for byte in BODY[:5]:
            slow.sendall(bytes([byte]))
            fine(served)
        status, said, _ = answer(slow)
        assert status == 408
        assert "0.4 seconds" in said["error"]
        assert closes(slow)
        quiet(served)


def test_a_head_that_does_not_end(served, monkeypatch):
    monkeypatch.setattr(protocol, "HEAD_SECONDS", 0.2)
    with connect(served) as silent, connect(served) as slow:
        slow.sendall(b"POST /embed HTTP/1.1\r\nHost: he")
        fine(served)
        assert closes(silent)
        assert closes(slow)
    with connect(served) as large:
        large.sendall(b"POST /embed HTTP/1.1\r\nHost: here\r\n")
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


@pytest.mark.parametrize(
    "noise",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET\r\n\r\n",
        b"POST /embed HTTP/1.1\r\nContent-Length: -5\r\n\r\n",
        b"POST /embed HTTP/1.1\r\nContent-Length: five\r\n\r\n",
        b"POST /embed HTTP/1.1\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabc",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\nnope\r\n",
        b"GET /\xff\xfe HTTP/1.1\r\nHost: here\r\n\r\n",
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
        head = b"POST /embed_all HTTP/1.1\r\nHost: here\r\nContent-Type: application/json\r\n"
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
