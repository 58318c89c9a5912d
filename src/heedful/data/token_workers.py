"""Tokenizers in processes of their own, for a GPU that reads faster than one process can tokenize.

Inside one process the threads of `tokenizers` get in each other's way, and in that of whoever tells the GPU what to
do: all that they make becomes Python's, one object at a time. Another process does the whole of it, up to the ids
that the model reads, and hands back arrays.

A worker is this file, run as a program: requests come by its standard input, answers go to its standard output, and
when the input ends, so does it: it does not outlive who started it. `multiprocessing` is not used because its
processes run the caller's script again. Without workers, or before they are ready, or should one die, the texts are
tokenized here, with the same result.
"""

import io
import os
import pickle
import signal
import subprocess
import sys
import weakref
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock, Thread
from typing import Any

import numpy as np
import tokenizers

from heedful.cores import cores
from heedful.data.inputs import Inputs, TextInputs, begins, text_inputs
from heedful.data.tokenizer import Tokenizer

MANY = 50_000
"""Texts from which on it pays to start workers."""
FEW = 1024
"""Texts that are not worth the way to them."""
SPARED = 4
"""Cores for the process that asks."""
MOST = 16
FEWEST = 4
"""Workers: fewer do no better than threads."""
ALONE = {"RAYON_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1"}
"""What keeps a worker from starting threads."""
SIZE = 8
"""Bytes before an answer that say how long it is."""

Worker = subprocess.Popen[bytes]
Arrays = tuple[np.ndarray, ...]
"""What comes back from a worker: ids, and lengths, begins of second segments and tokens of each input."""


class TokenWorkers:
    """Makes inputs of texts, from many texts on in other processes. Several threads may ask."""

    def __init__(self, tokenizer: Tokenizer, count: int | None = None, *, many: int = MANY, few: int = FEW) -> None:
        self.tokenizer = tokenizer
        self.count = usual() if count is None else count
        self.many = many
        self.few = few
        self._asked = 0
        self._turn, self._once = Lock(), Lock()
        self._workers: list[Worker] = []
        self._begun = False
        self._greeted = False
        self._owner = os.getpid()
        self._end = weakref.finalize(self, _kill, self._workers)

    @property
    def ready(self) -> bool:
        """Whether many texts are tokenized elsewhere; not for a fork, which would take the answers to another."""
        return self._greeted and self._end.alive and os.getpid() == self._owner

    def text_inputs(self, texts: Sequence[str], pairs: Sequence[str] | None, length: int) -> TextInputs:
        """As `inputs.text_inputs`."""
        parts = self._ask(texts, pairs, length) if texts and len(texts) >= self.few else []
        if not parts:
            return text_inputs(self.tokenizer, texts, pairs, length)
        ids, lengths, seconds, tokens = (np.concatenate(some) for some in zip(*parts, strict=True))
        return TextInputs(Inputs(ids, begins(lengths), seconds), tokens)

    def expect(self, count: int) -> None:
        """So many texts are to come: if they are many, the workers are started meanwhile."""
        if count >= self.many and self._claim():
            with suppress(RuntimeError):  # no more threads can be had: texts can be read here
                Thread(target=self._start, name="token workers", daemon=True).start()

    def _claim(self) -> bool:
        """Whether it is for the caller to start them: for one alone, and never for a fork."""
        if not self.count or os.getpid() != self._owner or not self._end.alive:
            return False
        with self._once:
            first, self._begun = not self._begun, True
        return first

    def _start(self) -> None:
        """Start the workers; nobody asks them before all of them are ready."""
        try:
            path = os.pathsep.join(str(Path(folder).absolute()) for folder in sys.path)
            for _ in range(self.count):
                worker = subprocess.Popen(
                    [sys.executable, "-P", "-m", __name__],
                    env={**os.environ, **ALONE, "PYTHONPATH": path},
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,  # what went wrong is said when the texts are read here
                    bufsize=0,  # a fork would have copies of buffers: bytes to write once more, locks to wait for
                )
                self._workers.append(worker)
                if not self._end.alive:
                    break
            described = self.tokenizer.backend.to_str()
            for worker in self._workers:
                _send(worker, described)
            for worker in self._workers:
                _receive(worker)
            self._greeted = True
        except Exception:  # whatever it is, texts can be read here
            self._end()
        if not self._end.alive:  # perhaps since before the last of them was there
            _kill(self._workers)

    def _ask(self, texts: Sequence[str], pairs: Sequence[str] | None, length: int) -> list[Arrays]:
        """What the workers make of the texts, a part each; nothing where it has to be done here."""
        if os.getpid() != self._owner:  # where somebody who is not here may have the turn for ever
            return []
        self.expect(self._asked)
        with self._turn:
            self._asked += len(texts)
            if not self.ready:
                return []
            size = -(-len(texts) // len(self._workers))
            parts = list(zip(self._workers, range(0, len(texts), size), strict=False))
            try:
                for worker, first in parts:
                    some = slice(first, first + size)
                    _send(worker, (_plain(texts[some]), None if pairs is None else _plain(pairs[some]), length))
                answers = [_receive(worker) for worker, _ in parts]
                # A text may have been refused: whoever reads it here will say why.
                return [] if None in answers else answers
            except Exception:  # one has died, or can't be asked: texts can be read here
                self._end()
                return []
            except BaseException:  # interrupted: what the workers still say answers no later request
                self._end()
                raise


def usual() -> int:
    """Workers for this machine; none where it has few cores, or where this is a program without Python."""
    count = min(cores() - SPARED, MOST)
    able = bool(sys.executable) and not getattr(sys, "frozen", False)
    return count if able and count >= FEWEST else 0


def _plain(texts: Sequence[str]) -> list[str]:
    """The texts without what classes of their own add to them, which may be the documents that they are from."""
    return [str.__str__(text) if isinstance(text, str) else text for text in texts]


def _send(worker: Worker, message: object) -> None:
    assert isinstance(worker.stdin, io.RawIOBase)
    _write(worker.stdin, pickle.dumps(message, pickle.HIGHEST_PROTOCOL))


def _write(stream: io.RawIOBase, message: bytes) -> None:
    """All of it, without a buffer; a process that is stopped and goes on has written a part."""
    left = memoryview(message)
    while left:
        left = left[stream.write(left) :]


def _receive(worker: Worker) -> Any:
    assert isinstance(worker.stdout, io.RawIOBase)
    size = int.from_bytes(_read(worker.stdout, SIZE), "big")
    return pickle.loads(_read(worker.stdout, size))  # from a process that this one started


def _read(stream: io.RawIOBase, size: int) -> bytearray:
    """So many bytes, without a buffer."""
    found = bytearray(size)
    left = memoryview(found)
    while left:
        got = stream.readinto(left)
        if not got:
            raise EOFError
        left = left[got:]
    return found


def _kill(workers: list[Worker]) -> None:
    """They have nothing to lose."""
    for worker in list(workers):
        worker.kill()
        worker.wait()
        for stream in (worker.stdin, worker.stdout):
            assert stream is not None
            stream.close()


def work() -> None:
    """Answer requests until there are no more: what a worker does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # meant for who asks, and it will see to the rest
    asked, answers = sys.stdin.buffer, io.FileIO(sys.stdout.fileno(), "w", closefd=False)
    try:
        tokenizer = Tokenizer(tokenizers.Tokenizer.from_str(pickle.load(asked)))
        answer: Arrays | None = ()
        while True:
            said = pickle.dumps(answer, pickle.HIGHEST_PROTOCOL)
            _write(answers, len(said).to_bytes(SIZE, "big") + said)
            answer = _answer(tokenizer, *pickle.load(asked))
    except (EOFError, BrokenPipeError):  # nobody asks any more
        return


def _answer(tokenizer: Tokenizer, texts: Sequence[str], pairs: Sequence[str] | None, length: int) -> Arrays | None:
    try:
        inputs, tokens = text_inputs(tokenizer, texts, pairs, length)
    except Exception:  # the next texts may be better ones
        return None
    return inputs.ids, inputs.lengths, inputs.seconds, tokens


if __name__ == "__main__":
    work()
