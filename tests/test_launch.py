import platform

import pytest

from heedful.errors import UserError
from heedful.launch import alone, signed, speaks_for_all, told

FIRST = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "3"}
FIRST_OF_ANOTHER_MACHINE = {"RANK": "2", "LOCAL_RANK": "0", "WORLD_SIZE": "3"}
SECOND = {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "3"}


@pytest.mark.parametrize(
    ("said", "is_alone", "speaks", "before"),
    [
        ({}, True, True, ""),
        ({"RANK": "3"}, True, True, ""),  # another program's
        ({"WORLD_SIZE": ""}, True, True, ""),
        (FIRST, False, True, ""),
        (FIRST_OF_ANOTHER_MACHINE, False, True, "process 2 of 3, on {}: "),
        (SECOND, False, False, "process 1 of 3, on {}: "),
    ],
)
def test_who_it_is_is_in_the_environment(
    monkeypatch: pytest.MonkeyPatch, said: dict[str, str], is_alone: bool, speaks: bool, before: str
):
    for name in SECOND:
        monkeypatch.delenv(name, raising=False)
    for name, value in said.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "7")
    assert (alone(), speaks_for_all()) == (is_alone, speaks)
    assert signed("wrong") == f"{before.format(platform.node())}wrong"
    monkeypatch.delenv("TORCHELASTIC_RUN_ID")
    assert speaks_for_all()  # who knows what the others were told?


def test_what_a_launcher_says_is_a_whole_number(monkeypatch: pytest.MonkeyPatch):
    for value, found in (("", 3), ("0", 0), ("17", 17)):
        monkeypatch.setenv("LOCAL_RANK", value)
        assert told("LOCAL_RANK", 3) == found
    monkeypatch.delenv("LOCAL_RANK")
    assert told("LOCAL_RANK", 3) == 3
    for wrong in ("foo", "-1", "1.5"):
        monkeypatch.setenv("WORLD_SIZE", wrong)
        said = f"^WORLD_SIZE is '{wrong}' but must be a whole number; unset it, or start processes by torchrun$"
        with pytest.raises(UserError, match=said):
            told("WORLD_SIZE", 1)
