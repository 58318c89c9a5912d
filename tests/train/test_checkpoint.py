import errno
import json
import platform
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from heedful import durable
from heedful.errors import UserError
from heedful.train import checkpoint
from heedful.train.checkpoint import Checkpoint


def at(step: int) -> Checkpoint:
    generator = torch.Generator().manual_seed(step)
    return Checkpoint(
        step=step,
        tensors={
            "model": {
                "a.weight": torch.randn(3, 5, generator=generator),
                "b": torch.tensor(float("-inf")),
                "half": torch.randn(7, generator=generator).bfloat16(),
            },
            "optimizer": {"a.weight/step": torch.tensor(float(step))},
        },
        state={"position": [1, step], "elapsed": step / 3, "shards": "키"},
    )


def save(folder: Path, *numbers: int, keep: int = 9) -> None:
    for number in numbers:
        checkpoint.save(folder, at(number), keep)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def load(folder: Path) -> tuple[int | None, list[str]]:
    warnings: list[str] = []
    found = checkpoint.load_last(folder, warnings.append)
    return found and found.step, warnings


def assert_same(one: Checkpoint, other: Checkpoint) -> None:
    assert (one.step, one.state) == (other.step, other.state)
    assert one.tensors.keys() == other.tensors.keys()
    for table, tensors in one.tensors.items():
        assert tensors.keys() == other.tensors[table].keys()
        for name, tensor in tensors.items():
            same = other.tensors[table][name]
            assert tensor.dtype == same.dtype
            assert tensor.shape == same.shape
            assert tensor.equal(same), name


def test_a_checkpoint_comes_back_to_the_bit(tmp_path: Path):
    assert checkpoint.save(tmp_path, at(7), keep=2) == tmp_path / "step-00000007"
    found = checkpoint.load_last(tmp_path, pytest.fail)
    assert found is not None
    assert_same(found, at(7))


def test_views_of_a_larger_tensor_are_saved_as_they_look(tmp_path: Path):
    matrix = torch.arange(15.0).reshape(3, 5)
    given = Checkpoint(step=1, tensors={"model": {"columns": matrix.T, "row": matrix[1]}}, state={})
    checkpoint.save(tmp_path, given, keep=1)
    found = checkpoint.load_last(tmp_path, pytest.fail)
    assert found is not None
    assert_same(found, given)


def test_where_there_was_never_one_there_is_none(tmp_path: Path):
    assert checkpoint.load_last(tmp_path, pytest.fail) is None
    assert checkpoint.load_last(tmp_path / "missing", pytest.fail) is None


@pytest.mark.parametrize(("keep", "left"), [(1, [11]), (2, [7, 11]), (3, [5, 7, 11]), (9, [3, 5, 7, 11])])
def test_the_newest_are_kept(tmp_path: Path, keep: int, left: list[int]):
    save(tmp_path, 3, 5, 7, 11, keep=keep)
    assert names(tmp_path) == [f"step-{number:08d}" for number in left]


def test_order_is_by_number_also_where_the_digits_run_out(tmp_path: Path):
    save(tmp_path, 9, 10, 99999999)
    assert [path.name for path in checkpoint.steps(tmp_path)] == ["step-00000009", "step-00000010", "step-99999999"]
    assert load(tmp_path) == (99999999, [])


def flip(path: Path) -> None:
    content = bytearray((path / "model.safetensors").read_bytes())
    content[-3] ^= 1
    (path / "model.safetensors").write_bytes(content)


def truncate(path: Path) -> None:
    content = (path / "optimizer.safetensors").read_bytes()
    (path / "optimizer.safetensors").write_bytes(content[:-5])


def change_state(path: Path) -> None:
    text = (path / "state.json").read_text(encoding="utf-8")
    (path / "state.json").write_text(text.replace("elapsed", "elapsee"), encoding="utf-8")


def lose_file(path: Path) -> None:
    (path / "model.safetensors").unlink()


def lose_checksums(path: Path) -> None:
    (path / "checksums.json").unlink()


def break_checksums(path: Path) -> None:
    (path / "checksums.json").write_text('{"state.json": ', encoding="utf-8")


def empty_checksums(path: Path) -> None:
    (path / "checksums.json").write_text("[]", encoding="utf-8")


def empty_folder(path: Path) -> None:
    shutil.rmtree(path)
    path.mkdir()


DAMAGES = (flip, truncate, change_state, lose_file, lose_checksums, break_checksums, empty_checksums, empty_folder)


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_one_is_reported_and_the_one_before_is_used(tmp_path: Path, damage: Callable[[Path], None]):
    save(tmp_path, 3, 5)
    damage(tmp_path / "step-00000005")
    step, warnings = load(tmp_path)
    assert step == 3
    assert len(warnings) == 1
    assert str(tmp_path / "step-00000005") in warnings[0]
    assert "damaged" in warnings[0]


def test_a_disk_that_fails_for_a_while_damages_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    save(tmp_path, 3, 5)

    def fail(path: Path) -> str:
        raise OSError(errno.ESTALE, "Stale file handle", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "file_digest", fail)
        with pytest.raises(
            UserError, match=r"can't be read now \(Stale file handle\); try again, or remove that folder"
        ):
            load(tmp_path)
    assert load(tmp_path) == (5, [])


def test_the_report_says_which_file_is_not_as_it_was(tmp_path: Path):
    save(tmp_path, 3, 5)
    flip(tmp_path / "step-00000005")
    assert "model.safetensors has another checksum" in load(tmp_path)[1][0]


def test_all_damaged_is_an_error_that_says_what_to_do(tmp_path: Path):
    save(tmp_path, 3, 5)
    flip(tmp_path / "step-00000003")
    truncate(tmp_path / "step-00000005")
    warnings: list[str] = []
    with pytest.raises(UserError, match=r"every checkpoint in .* is damaged; start the run again in another folder"):
        checkpoint.load_last(tmp_path, warnings.append)
    assert len(warnings) == 2
    assert names(tmp_path) == ["damaged-step-00000003", "damaged-step-00000005"]
    with pytest.raises(
        UserError, match=r"every checkpoint in .* is damaged"
    ):  # and nobody begins anew by asking again
        checkpoint.load_last(tmp_path, warnings.append)


def test_the_step_made_again_takes_the_place_of_the_damaged_one(tmp_path: Path):
    save(tmp_path, 3, 5)
    flip(tmp_path / "step-00000005")
    save(tmp_path, 5)
    assert load(tmp_path) == (5, [])


def test_damaged_ones_do_not_push_out_whole_ones(tmp_path: Path):
    save(tmp_path, 3, 7, 11)
    flip(tmp_path / "step-00000007")
    flip(tmp_path / "step-00000011")
    save(tmp_path, 5, keep=1)
    assert load(tmp_path) == (5, [])


def test_a_damaged_one_found_on_the_way_never_pushes_out_a_whole_one(tmp_path: Path):
    """It keeps its bytes under another name, and does not count among those kept."""
    save(tmp_path, 3, 5)
    flip(tmp_path / "step-00000005")
    assert load(tmp_path)[0] == 3
    save(tmp_path, 7, keep=2)
    assert names(tmp_path) == ["damaged-step-00000005", "step-00000003", "step-00000007"]
    save(tmp_path, 11, keep=2)
    assert names(tmp_path) == ["damaged-step-00000005", "step-00000007", "step-00000011"]
    flip(tmp_path / "step-00000011")
    assert load(tmp_path)[0] == 7


def test_what_a_killed_process_left_is_ignored_and_swept_by_the_next(tmp_path: Path):
    save(tmp_path, 3)
    left = tmp_path / f".step-00000005.{2**22 + 7}@{platform.node()}.tmp"  # no process has so high a number
    shutil.copytree(tmp_path / "step-00000003", left)
    assert load(tmp_path) == (3, [])
    save(tmp_path, 5)
    assert names(tmp_path) == ["step-00000003", "step-00000005"]


@pytest.mark.parametrize("failing", [1, 2, 3, 4])
def test_a_write_that_fails_leaves_the_older_ones_intact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: int
):
    """Two tables, the state and the checksums: whichever does not fit, nothing of the new one is left."""
    save(tmp_path, 3, 5)
    real, calls = durable.write_file, []

    def full(path: Path, content: bytes) -> str:
        calls.append(path.name)
        if len(calls) == failing:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(path, content)

    monkeypatch.setattr(checkpoint, "write_file", full)
    with pytest.raises(OSError, match="No space"):
        checkpoint.save(tmp_path, at(7), keep=1)
    assert len(calls) == failing
    assert names(tmp_path) == ["step-00000003", "step-00000005"]
    assert load(tmp_path) == (5, [])


def test_a_flush_that_fails_leaves_the_older_ones_intact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    save(tmp_path, 3)

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        with pytest.raises(OSError, match="No space"):
            checkpoint.save(tmp_path, at(5), keep=1)
    assert names(tmp_path) == ["step-00000003"]
    assert load(tmp_path) == (3, [])


def test_the_checksums_are_written_last_and_name_every_file(tmp_path: Path):
    path = checkpoint.save(tmp_path, at(3), keep=1)
    listed = json.loads((path / "checksums.json").read_text(encoding="utf-8"))
    assert sorted([*listed, "checksums.json"]) == names(path)


def test_a_folder_that_can_not_be_read_is_no_folder_without_checkpoints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    save(tmp_path, 3)

    def refused(_: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(tmp_path))

    monkeypatch.setattr(Path, "iterdir", refused)
    with pytest.raises(PermissionError):
        load(tmp_path)
    assert load(tmp_path / "nowhere") == (None, [])
