import base64
import struct

import numpy as np
import pytest

from heedful.explore.numbers import packed, unpacked


def test_numbers_are_little_endian_row_by_row():
    table = packed(np.array([[1.5, -2.0], [0.0, 3.25]]).T)
    assert (table["shape"], table["dtype"]) == ([2, 2], "float32")
    assert struct.unpack("<4f", base64.b64decode(table["data"])) == (1.5, 0.0, -2.0, 3.25)


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_there_and_back(dtype: type):
    array = np.arange(30, dtype=dtype).reshape(2, 3, 5)
    again = unpacked(packed(array))
    assert again.dtype == dtype
    np.testing.assert_array_equal(again, array)
