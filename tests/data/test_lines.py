from pathlib import Path

import pytest

from heedful.data.lines import lines
from heedful.errors import UserError


def test_text_in_another_encoding_is_not_destroyed(tmp_path: Path):
    file = tmp_path / "old.txt"
    file.write_bytes("plain\n물레방아는 밤새 돌았다.\n아이들은 잠이 들었다.\n".encode("cp949"))
    with pytest.raises(UserError, match=r"old.txt:2: \d\d% of the text is not UTF-8, and would be lost; convert"):
        list(lines(file, "replace"))
    with pytest.raises(UserError, match=r"old.txt:2: byte 0xb9 is not UTF-8; convert the text \(iconv .*in\)$"):
        list(lines(file, "strict"))  # nor is it advised


def test_a_few_strange_bytes_are_replaced(tmp_path: Path):
    file = tmp_path / "old.txt"
    file.write_bytes(b"a line of plain words\n" * 50 + b"\xe9" * 12 + b"\n")
    assert [text for _, text in lines(file, "replace")][-1] == "\ufffd" * 12
