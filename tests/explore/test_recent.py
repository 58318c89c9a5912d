from dataclasses import dataclass
from threading import Thread

import pytest

from heedful.explore.recent import Recent


@dataclass
class Thing:
    nbytes: int


def test_what_was_made_is_kept_until_there_is_too_much():
    recent: Recent[Thing] = Recent(10)
    made = []

    def make(key: str, size: int) -> Thing:
        return recent(key, lambda: made.append(key) or Thing(size))  # type: ignore[func-returns-value]

    make("a", 4)
    make("b", 4)
    make("a", 4)
    assert made == ["a", "b"]
    make("c", 4)  # too much: b was asked for longest ago
    make("a", 4)
    assert made == ["a", "b", "c"]
    make("b", 4)
    assert made == ["a", "b", "c", "b"]
    big = make("d", 99)  # alone it may be larger than there is room
    assert recent("d", lambda: Thing(0)) is big


def test_several_who_ask_at_once_get_the_same():
    recent: Recent[Thing] = Recent(10)
    made, found = [], []

    def ask() -> None:
        found.append(recent("a", lambda: made.append(1) or Thing(1)))  # type: ignore[func-returns-value]

    threads = [Thread(target=ask) for _ in range(13)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1
    assert len({id(one) for one in found}) == 1


def test_what_goes_wrong_is_not_kept():
    recent: Recent[Thing] = Recent(10)
    with pytest.raises(ZeroDivisionError):
        recent("a", lambda: 1 / 0)  # type: ignore[arg-type]
    assert recent("a", lambda: Thing(3)).nbytes == 3
