"""The last few things that were made, so that a click from head to head computes nothing again."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Generic, Protocol, TypeVar


class Sized(Protocol):
    """What says how much it holds."""

    @property
    def nbytes(self) -> int:
        """In bytes."""
        ...


Made = TypeVar("Made", bound=Sized)


class Recent(Generic[Made]):
    """Things by key, the least recently asked for forgotten first. One is made at a time."""

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self._kept: OrderedDict[Hashable, Made] = OrderedDict()
        self._turn = Lock()

    def __call__(self, key: Hashable, make: Callable[[], Made]) -> Made:
        """What has this key; made if it is not there."""
        with self._turn:
            if key not in self._kept:
                self._kept[key] = make()
            self._kept.move_to_end(key)
            while len(self._kept) > 1 and sum(one.nbytes for one in self._kept.values()) > self.most_bytes:
                self._kept.popitem(last=False)
            return self._kept[key]
