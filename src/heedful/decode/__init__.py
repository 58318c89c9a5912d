"""Which token comes next: greedy, beam search, sampling. Knows only ids and a `step`."""

from heedful.decode.beams import Hypothesis, Limits, Marks, Task, Turn
from heedful.decode.ensemble import Ensemble
from heedful.decode.options import SearchOptions
from heedful.decode.recorder import Recorder
from heedful.decode.search import rounded, search

__all__ = [
    "Ensemble",
    "Hypothesis",
    "Limits",
    "Marks",
    "Recorder",
    "SearchOptions",
    "Task",
    "Turn",
    "rounded",
    "search",
]
