import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

from heedful.nn.transfer import on_device, pack, packed_size, together, unpacked

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"))]
KINDS = [np.dtype(kind) for kind in ("uint8", "bool", "int32", "int64", "float32", "float64")]
ARRAYS = {
    "bytes": np.arange(7, dtype=np.uint8),
    "flags": np.array([[True, False, True]]),
    "none": np.zeros((0, 3), np.int64),
    "turned": np.arange(15, dtype=np.int64).reshape(3, 5).T,
    "one": np.array(2.5),
    "floats": np.linspace(-1, 1, 11, dtype=np.float32),
}


@pytest.mark.parametrize("device", DEVICES)
def test_together_they_are_what_they_are_alone(device: str):
    found = together(ARRAYS, torch.device(device))
    assert list(found) == list(ARRAYS)
    for name, array in ARRAYS.items():
        alone = on_device(array, torch.device(device))
        assert (found[name].dtype, found[name].device.type) == (alone.dtype, device)
        assert found[name].equal(alone)


@given(
    st.dictionaries(
        st.text(max_size=2),
        st.sampled_from(KINDS).flatmap(
            lambda kind: arrays_of.arrays(kind, arrays_of.array_shapes(min_dims=0, min_side=0))
        ),
        max_size=5,
    )
)
def test_what_is_packed_is_unpacked_again(arrays: dict[str, np.ndarray]):
    whole = np.empty(packed_size(arrays), np.uint8)
    pack(arrays, whole)
    found = unpacked(torch.from_numpy(whole), arrays)
    assert list(found) == list(arrays)
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name].numpy(), array)
        assert found[name].numpy().dtype == array.dtype
