import pytest
import torch
from torch.testing import assert_close

from heedful.errors import UserError
from heedful.nn.pixels import Pixels, normalised


def test_bytes_become_numbers_around_zero_by_hand():
    picture = torch.tensor([[[[0, 51, 255]], [[102, 153, 204]]]], dtype=torch.uint8)  # (1, 2, 1, 3)
    assert normalised(picture, Pixels())[0, 0, :, 0].tolist() == pytest.approx([-1.0, -0.2])
    found = normalised(picture, Pixels(mean=(0.0, 0.2, 0.8), std=(1.0, 0.5, 0.1)))
    assert found.shape == (1, 3, 2, 1)
    assert_close(found[0, :, :, 0], torch.tensor([[0.0, 0.4], [0.0, 0.8], [2.0, 0.0]]), atol=1e-6, rtol=0)


def test_one_number_serves_all_channels():
    picture = torch.randint(256, (3, 5, 7, 2), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    one, each = Pixels(mean=(0.3,), std=(0.2,)), Pixels(mean=(0.3, 0.3), std=(0.2, 0.2))
    assert torch.equal(normalised(picture, one), normalised(picture, each))
    for mixed in (Pixels(mean=(0.3,), std=(0.2, 0.2)), Pixels(mean=(0.3, 0.3), std=(0.2,))):
        assert torch.equal(normalised(picture, mixed), normalised(picture, each))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"resample": "cubic"}, "resample 'cubic' is not known; choose from nearest, lanczos, bilinear, bicubic"),
        ({"std": (0.5, 0.0)}, "std 0.5, 0.0 must be above 0 everywhere"),
        ({"std": (float("inf"),)}, "std inf must be above 0 everywhere"),
        ({"mean": ()}, "mean and std need a number for all channels, or one for each"),
        ({"edge": 0}, "edge 0 must be at least 1"),
    ],
)
def test_what_makes_no_sense_is_refused(changes: dict, said: str):
    with pytest.raises(UserError, match=said):
        Pixels(**changes)
