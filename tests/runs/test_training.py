from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from heedful.errors import OfOneProcess
from heedful.runs import training
from heedful.runs.options import MachinePart
from heedful.runs.training import computing
from heedful.train.distributed import PeerLost, World


@pytest.mark.parametrize(
    ("there", "advice"),
    [
        ([], "nothing was saved yet; give the command again, with --resume if {} is still there"),
        (["heedful.toml"], "nothing was saved yet; give the command again, with --resume if {} is still there"),
        (["checkpoints/step-00000007"], "what was saved before is intact, and --resume goes on from there"),
        (["checkpoints/step-00000007", "model.safetensors"], "the model in {} is complete"),
    ],
)
def test_who_loses_another_process_says_what_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: list[str], advice: str
):
    @contextmanager
    def lost(_: str) -> Iterator[World]:
        yield World()
        raise PeerLost("another process has ended")

    monkeypatch.setattr(training, "world", lost)
    for name in there:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).mkdir() if name.startswith("checkpoints") else (tmp_path / name).touch()
    with pytest.raises(OfOneProcess) as caught, computing(MachinePart(device="cpu"), tmp_path):
        pass
    assert str(caught.value) == f"another process has ended; {advice.format(tmp_path)}"
