from collections.abc import Callable

import pytest

from heedful.train import stepping


@pytest.fixture
def steps_taken_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no GPU to record a step, it is replayed by taking it again, with the gradients it recorded."""

    def record(step: Callable[[], None]) -> Callable[[], None]:
        recorded = step.__self__  # pyrefly: ignore

        def replay() -> None:
            for parameter, gradient in zip(recorded.parameters, recorded.gradients, strict=True):
                parameter.grad = gradient
            step()

        return replay

    monkeypatch.setattr(stepping, "_beside", lambda step: step())
    monkeypatch.setattr(stepping, "_record", record)
