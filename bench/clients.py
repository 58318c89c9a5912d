"""Many clients of an HTTP server, in a process of their own and with as little work as possible for each request.

    python -m bench.clients HOST:PORT PATH BODIES.jsonl --clients 64 --seconds 10

Each client has one connection and sends a body of the file after the other. With --rate, requests come at random
moments, so many a second, whoever is done or not. After a 429 a client waits for as long as it is told. Writes one
JSON object: when requests were answered, how long each took, the statuses, and how many answers were wrong, where
the right ones are given (--expect, a .npy with a row for each body).
"""

import argparse
import asyncio
import json
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import uvloop

CLOSE = 1e-5
"""How far a number may be from what it is when the text is embedded alone."""


@dataclass
class Seen:
    """What all clients saw."""

    seconds: list[float] = field(default_factory=list)
    statuses: Counter[str] = field(default_factory=Counter)
    wrong: int = 0
    lost: int = 0


class Connection:
    """One connection, opened anew when it breaks."""

    def __init__(self, host: str, port: int) -> None:
        self.host, self.port = host, port
        self.streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, request: bytes) -> tuple[int, dict[bytes, bytes], bytes]:
        """Status, headers and body of the answer."""
        if self.streams is None:
            self.streams = await asyncio.open_connection(self.host, self.port, limit=2**20)
        reader, writer = self.streams
        writer.write(request)
        head = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(b":") for line in head[1:])}
        body = await reader.readexactly(int(headers[b"content-length"]))
        return int(head[0].split()[1]), headers, body

    def close(self) -> None:
        if self.streams is not None:
            self.streams[1].close()
            self.streams = None


async def one(
    connection: Connection, number: int, requests: list[bytes], expect: np.ndarray | None, seen: Seen
) -> None:
    """One request, and whether its answer is right."""
    begun = time.perf_counter()
    try:
        status, headers, body = await connection.ask(requests[number])
    except (OSError, asyncio.IncompleteReadError):
        connection.close()
        seen.lost += 1
        return
    seen.statuses[str(status)] += 1
    if status == 200:
        seen.seconds.append(time.perf_counter() - begun)
        if expect is not None:
            found = np.array(json.loads(body)[0], np.float32)
            seen.wrong += int(np.abs(found - expect[number]).max() > CLOSE)
    elif status == 429:
        await asyncio.sleep(float(headers.get(b"retry-after", b"1")) * random.uniform(0.8, 1.2))


async def closed(arguments: argparse.Namespace, requests: list[bytes], expect: np.ndarray | None, seen: Seen) -> None:
    """So many clients, each of which asks again as soon as it is answered."""
    host, _, port = arguments.server.partition(":")
    until = time.perf_counter() + arguments.seconds
    turn = iter(range(10**12))

    async def client() -> None:
        connection = Connection(host, int(port))
        while time.perf_counter() < until:
            await one(connection, next(turn) % len(requests), requests, expect, seen)
        connection.close()

    await asyncio.gather(*(client() for _ in range(arguments.clients)))


async def opened(arguments: argparse.Namespace, requests: list[bytes], expect: np.ndarray | None, seen: Seen) -> None:
    """So many requests a second, at random moments."""
    host, _, port = arguments.server.partition(":")
    free: list[Connection] = []
    chance = random.Random(0)
    tasks: set[asyncio.Task[None]] = set()
    begun = due = time.perf_counter()

    async def ask(number: int) -> None:
        connection = free.pop() if free else Connection(host, int(port))
        await one(connection, number, requests, expect, seen)
        free.append(connection)

    number = 0
    while due < begun + arguments.seconds:
        due += chance.expovariate(arguments.rate)
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        task = asyncio.create_task(ask(number % len(requests)))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        number += 1
    await asyncio.gather(*tasks)
    for connection in free:
        connection.close()


def request(server: str, path: str, body: str) -> bytes:
    """A request's bytes."""
    content = body.encode()
    head = f"POST {path} HTTP/1.1\r\nHost: {server}\r\nContent-Type: application/json\r\n"
    return head.encode() + f"Content-Length: {len(content)}\r\n\r\n".encode() + content


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("server")
    parser.add_argument("path")
    parser.add_argument("bodies", type=Path)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--rate", type=float)
    parser.add_argument("--expect", type=Path)
    arguments = parser.parse_args()
    bodies = arguments.bodies.read_text(encoding="utf-8").splitlines()
    requests = [request(arguments.server, arguments.path, body) for body in bodies]
    expect = None if arguments.expect is None else np.load(arguments.expect)
    seen = Seen()
    begun = time.perf_counter()
    how: Any = closed if arguments.rate is None else opened
    uvloop.run(how(arguments, requests, expect, seen))
    took = time.perf_counter() - begun
    found = {"took": took, "seconds": seen.seconds, "statuses": seen.statuses, "wrong": seen.wrong, "lost": seen.lost}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
