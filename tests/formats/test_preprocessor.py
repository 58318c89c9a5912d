import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.errors import UserError
from heedful.formats.preprocessor import NAME, read_preprocessor, write_preprocessor
from heedful.nn.pixels import RESAMPLES, Pixels


def written(folder: Path, pixels: Pixels, channels: int = 3) -> dict[str, object]:
    write_preprocessor(folder, pixels, 20, channels)
    return json.loads((folder / NAME).read_text(encoding="utf-8"))


def test_the_words_are_transformers(tmp_path: Path):
    assert written(tmp_path, Pixels(mean=(0.1, 0.2, 0.3), std=(0.4,), resample="bicubic")) == {
        "image_processor_type": "ViTImageProcessor",
        "do_convert_rgb": True,
        "do_resize": True,
        "size": {"height": 20, "width": 20},
        "resample": 3,
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": [0.1, 0.2, 0.3],
        "image_std": [0.4, 0.4, 0.4],
    }
    grey = written(tmp_path, Pixels(edge=23), channels=1)
    assert (grey["image_mean"], grey["do_convert_rgb"]) == ([0.5], False)
    assert (grey["size"], grey["crop_size"]) == ({"shortest_edge": 23}, {"height": 20, "width": 20})
    assert grey["do_center_crop"] is True


@settings(deadline=None, max_examples=50)
@given(
    mean=st.tuples(*[st.floats(-1, 2)] * 3) | st.tuples(st.floats(-1, 2)),
    std=st.tuples(*[st.floats(0.01, 2)] * 3) | st.tuples(st.floats(0.01, 2)),
    resample=st.sampled_from(RESAMPLES),
    edge=st.none() | st.integers(1, 999),
)
def test_what_is_written_is_read(tmp_path_factory: pytest.TempPathFactory, mean, std, resample, edge):
    mean, std = (each[:1] if len(set(each)) == 1 else each for each in (mean, std))
    pixels = Pixels(mean=mean, std=std, resample=resample, edge=edge)
    folder = tmp_path_factory.mktemp("pixels")
    write_preprocessor(folder, pixels, 20, 3)
    assert read_preprocessor(folder) == pixels


def test_without_a_file_it_is_as_published(tmp_path: Path):
    assert read_preprocessor(tmp_path) == Pixels()
    (tmp_path / NAME).write_text("{}", encoding="utf-8")
    assert read_preprocessor(tmp_path) == Pixels()


def test_another_factor_goes_into_the_numbers(tmp_path: Path):
    """(3b - 30) / 6 = (b / 255 - 30 / 765) / (6 / 765)."""
    document = {"rescale_factor": 3, "image_mean": [30.0], "image_std": 6}
    (tmp_path / NAME).write_text(json.dumps(document), encoding="utf-8")
    found = read_preprocessor(tmp_path)
    assert found.mean == pytest.approx((30 / 765,))
    assert found.std == pytest.approx((6 / 765,))
    (tmp_path / NAME).write_text(json.dumps(document | {"do_rescale": False}), encoding="utf-8")
    assert read_preprocessor(tmp_path).std == pytest.approx((6 / 255,))
    (tmp_path / NAME).write_text(json.dumps({"do_normalize": False}), encoding="utf-8")
    assert read_preprocessor(tmp_path) == Pixels(mean=(0.0,), std=(1.0,))


def test_who_does_not_resize_does_not_crop_by_an_edge(tmp_path: Path):
    (tmp_path / NAME).write_text('{"do_resize": false, "size": {"shortest_edge": 7}}', encoding="utf-8")
    assert read_preprocessor(tmp_path).edge is None
    (tmp_path / NAME).write_text('{"size": 224}', encoding="utf-8")
    assert read_preprocessor(tmp_path).edge is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is not valid JSON"),
        ("[]", "is not an object of settings; the folder is damaged"),
        ('{"image_mean": "grey"}', "image_mean is 'grey' but must be a number, or one for each channel"),
        ('{"image_std": []}', "image_std is [] but must be a number, or one for each channel"),
        ('{"image_mean": [true]}', "image_mean is [True] but must be a number"),
        ('{"image_std": [0.5, 0.0]}', "std 0.5, 0.0 must be above 0 everywhere"),
        ('{"rescale_factor": 0}', "rescale_factor is 0 but must be a number above 0"),
        ('{"rescale_factor": "1/255"}', "rescale_factor is '1/255' but must be a number above 0"),
        ('{"resample": 9}', "resample is 9 but must be one of 0 to 5, as in Pillow"),
        ('{"resample": "bilinear"}', "resample is 'bilinear' but must be one of 0 to 5"),
    ],
)
def test_a_file_that_makes_no_sense_says_why(tmp_path: Path, text: str, said: str):
    (tmp_path / NAME).write_text(text, encoding="utf-8")
    with pytest.raises(UserError) as caught:
        read_preprocessor(tmp_path)
    assert said in str(caught.value)
    assert str(tmp_path / NAME) in str(caught.value)
    assert "\n" not in str(caught.value)
