"""Every mode and orientation that a file may come in, and everything that may be wrong with one."""

import io
import struct
import warnings
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from heedful.data.image_files import Framing, Header, Unreadable, careful, read_header, read_image, taken_in

RED, GREEN, BLUE = (255, 0, 0), (0, 255, 0), (0, 0, 255)


def save(image: Image.Image, path: Path, **options: object) -> Path:
    image.save(path, **options)
    return path


def halves(size: tuple[int, int] = (6, 6)) -> Image.Image:
    """Red on the left, blue on the right."""
    image = Image.new("RGB", size, RED)
    image.paste(BLUE, (size[0] // 2, 0, *size))
    return image


@pytest.mark.parametrize("ending", ["png", "bmp", "webp", "gif", "jpg", "jpeg"])
def test_every_kind_of_file(tmp_path: Path, ending: str):
    options = {"lossless": True} if ending == "webp" else {}
    file = save(Image.new("RGB", (7, 5), (200, 40, 90)), tmp_path / f"one.{ending}", **options)
    found = read_image(file, 5, 3)
    assert (found.dtype, found.shape) == (np.uint8, (5, 5, 3))
    assert np.abs(found.astype(int) - (200, 40, 90)).max() <= (3 if ending.startswith("jp") else 0)
    assert read_header(file)[:2] == (5, 7)


def test_rows_are_rows_and_red_is_first(tmp_path: Path):
    found = read_image(save(halves(), tmp_path / "one.png"), 6, 3)
    assert found[:, 0].tolist() == [[255, 0, 0]] * 6
    assert found[:, 5].tolist() == [[0, 0, 255]] * 6


def test_the_middle_is_cut_out(tmp_path: Path):
    wide = Image.new("RGB", (14, 4), RED)
    wide.paste(GREEN, (5, 0, 9, 4))
    assert (read_image(save(wide, tmp_path / "wide.png"), 4, 3) == GREEN).all()
    tall = wide.rotate(90, expand=True)
    assert (read_image(save(tall, tmp_path / "tall.png"), 4, 3) == GREEN).all()


def test_other_framings(tmp_path: Path):
    wide = Image.new("RGB", (16, 8), RED)
    wide.paste(GREEN, (4, 0, 12, 8))
    wide.paste(BLUE, (6, 2, 10, 6))
    file, nearest = save(wide, tmp_path / "wide.png"), Image.Resampling.NEAREST
    assert read_image(file, 4, 3, Framing(None, nearest))[0].tolist() == [[*RED], [*GREEN], [*GREEN], [*RED]]
    assert read_image(file, 4, 3, Framing(1.0, nearest))[1].tolist() == [[*GREEN], [*BLUE], [*BLUE], [*GREEN]]
    assert (read_image(file, 4, 3, Framing(0.5, nearest)) == BLUE).all()
    assert (read_image(file, 4, 3, Framing(1.0, nearest)) == taken_in(wide, 4, 3, Framing(1.0, nearest))).all()
    square = Image.fromarray(np.arange(16, dtype=np.uint8).reshape(4, 4))
    assert taken_in(square, 4, 1, Framing(0.5, nearest))[0, :, 0].tolist() == [5, 5, 6, 6]  # though its size is right


def test_a_large_jpeg_is_decoded_large_enough_for_its_middle(tmp_path: Path):
    """A tenth of the side of 512 pixels is 51: at an eighth there would be 6 for 16."""
    noise = np.random.default_rng(1).integers(0, 256, (512, 512, 3), np.uint8)
    file = save(Image.fromarray(noise), tmp_path / "noise.jpg", quality=95)
    with Image.open(file) as whole:
        expected = taken_in(whole, 16, 3, Framing(0.1))
    assert (read_image(file, 16, 3, Framing(0.1)) == expected).all()


def test_smaller_averages_and_larger_interpolates(tmp_path: Path):
    board = np.indices((8, 8)).sum(0) % 2 * 255
    file = save(Image.fromarray(board.astype(np.uint8)), tmp_path / "board.png")
    assert np.abs(read_image(file, 2, 1).astype(int) - 128).max() <= 24
    file = save(Image.fromarray(np.array([[0, 200], [0, 200]], np.uint8)), tmp_path / "two.png")
    assert read_image(file, 4, 1)[0, :, 0].tolist() == [0, 50, 150, 200]


def test_a_very_long_image_takes_no_room(tmp_path: Path):
    """Resized as a whole it would have 40 million pixels."""
    file = save(Image.new("L", (1, 20_000), 77), tmp_path / "long.png")
    assert (read_image(file, 224, 1) == 77).all()


@pytest.mark.parametrize(
    ("image", "grey", "rgb"),
    [
        (Image.new("1", (3, 3), 1), 255, (255, 255, 255)),
        (Image.new("L", (3, 3), 90), 90, (90, 90, 90)),
        (Image.new("LA", (3, 3), (100, 255)), 100, (100, 100, 100)),
        (Image.new("LA", (3, 3), (100, 0)), 255, (255, 255, 255)),
        (Image.new("RGB", (3, 3), RED), 76, RED),
        (Image.new("RGBA", (3, 3), (255, 0, 0, 0)), 255, (255, 255, 255)),
        (Image.new("RGBA", (3, 3), (0, 0, 0, 51)), 204, (204, 204, 204)),  # a fifth of black on white
        (Image.fromarray(np.full((3, 3), 257 * 90, np.uint16)), 90, (90, 90, 90)),
        (Image.fromarray(np.full((3, 3), 65535, np.uint16)), 255, (255, 255, 255)),
        (Image.new("RGB", (3, 3), GREEN).quantize(4), 150, GREEN),
    ],
    ids=["1", "L", "LA", "LA clear", "RGB", "RGBA clear", "RGBA", "16 bit", "16 bit white", "palette"],
)
def test_every_mode(tmp_path: Path, image: Image.Image, grey: int, rgb: tuple[int, int, int]):
    file = save(image, tmp_path / "one.png")
    assert (read_image(file, 3, 1) == grey).all()
    assert (read_image(file, 3, 3) == rgb).all()


def test_sixteen_bits_are_rounded(tmp_path: Path):
    values = np.array([[0, 128, 129], [257, 32767, 32768], [65406, 65407, 65535]], np.uint16)
    found = read_image(save(Image.fromarray(values), tmp_path / "one.png"), 3, 1)
    assert found[..., 0].tolist() == np.rint(values / 257).astype(int).tolist()


def test_a_transparent_colour_of_a_palette_is_white(tmp_path: Path):
    image = Image.new("RGB", (3, 3), GREEN).quantize(4)
    file = save(image, tmp_path / "one.gif", transparency=image.getpixel((0, 0)))
    assert (read_image(file, 3, 3) == 255).all()


def test_a_transparent_colour_without_opacity_is_white(tmp_path: Path):
    file = save(Image.new("L", (3, 3), 90), tmp_path / "one.png", transparency=90)
    assert (read_image(file, 3, 1) == 255).all()


def test_cmyk(tmp_path: Path):
    file = save(Image.new("CMYK", (8, 8), (0, 255, 255, 0)), tmp_path / "one.jpg", quality=95)
    assert np.abs(read_image(file, 8, 3).astype(int) - RED).max() <= 6
    assert not read_header(file).grey


def test_the_first_frame_of_a_moving_picture(tmp_path: Path):
    frames = [Image.new("RGB", (5, 5), colour) for colour in (RED, BLUE)]
    file = save(frames[0], tmp_path / "one.gif", save_all=True, append_images=frames[1:])
    assert (read_image(file, 5, 3) == RED).all()


@pytest.mark.parametrize(("orientation", "corner"), [(1, [0, 0]), (3, [3, 3]), (6, [0, 3]), (8, [3, 0])])
def test_turned_as_the_camera_says(tmp_path: Path, orientation: int, corner: list[int]):
    """A mark in the top left corner goes where the orientation puts it."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    square = Image.new("L", (4, 4))
    square.putpixel((0, 0), 255)
    found = read_image(save(square, tmp_path / "square.png", exif=exif), 4, 1)[..., 0]
    assert np.argwhere(found == 255).tolist() == [corner]
    wide = save(Image.new("L", (6, 4)), tmp_path / "wide.png", exif=exif)
    assert read_header(wide) == ((6, 4, True) if orientation in (6, 8) else (4, 6, True))


@pytest.mark.parametrize(
    ("mode", "grey"), [("1", True), ("L", True), ("LA", True), ("RGB", False), ("RGBA", False), ("P", False)]
)
def test_a_header_tells_grey(tmp_path: Path, mode: str, grey: bool):
    assert read_header(save(Image.new(mode, (5, 3)), tmp_path / "one.png")) == Header(3, 5, grey)
    deep = save(Image.fromarray(np.zeros((3, 5), np.uint16)), tmp_path / "deep.png")
    assert read_header(deep).grey


def test_a_large_jpeg_is_read_at_a_fraction_with_the_same_answer(tmp_path: Path):
    rng = np.random.default_rng(0)
    smooth = Image.fromarray(rng.integers(0, 256, (5, 7, 3)).astype(np.uint8)).resize((896, 640), 3)
    png, jpeg = save(smooth, tmp_path / "one.png"), save(smooth, tmp_path / "one.jpg", quality=95)
    apart = np.abs(read_image(png, 32, 3).astype(int) - read_image(jpeg, 32, 3))
    assert apart.mean() < 2


def test_bytes_are_read_as_files_are(tmp_path: Path):
    file = save(halves(), tmp_path / "one.png")
    assert (read_image(io.BytesIO(file.read_bytes()), 6, 3) == read_image(file, 6, 3)).all()


def jpeg_bytes(tmp_path: Path) -> bytes:
    rng = np.random.default_rng(1)
    image = Image.fromarray(rng.integers(0, 256, (64, 64, 3)).astype(np.uint8))
    return save(image, tmp_path / "whole.jpg").read_bytes()


def test_what_is_broken_is_told(tmp_path: Path):
    whole = jpeg_bytes(tmp_path)
    for name, content, told in [
        ("cut.jpg", whole[: len(whole) // 2], "broken or cut short"),
        ("text.jpg", b"not an image at all", "no png, jpeg, bmp, webp or gif"),
        ("empty.png", b"", "no png, jpeg, bmp, webp or gif"),
        ("vector.png", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 5 5\n", "no png"),
    ]:
        (tmp_path / name).write_bytes(content)
        with pytest.raises(Unreadable, match=told) as error:
            read_image(tmp_path / name, 8, 3)
        assert "\n" not in str(error.value)
    with pytest.raises(Unreadable, match="cannot read it: No such file"):
        read_image(tmp_path / "missing.png", 8, 3)


def test_a_file_broken_anywhere_is_read_or_told(tmp_path: Path):
    """Nothing but Unreadable ever comes out."""
    rng = np.random.default_rng(2)
    kinds = {"jpg": jpeg_bytes(tmp_path)}
    for ending in ("png", "gif", "bmp", "webp"):
        kinds[ending] = save(halves((19, 17)), tmp_path / f"whole.{ending}").read_bytes()
    told = 0
    for ending, whole in kinds.items():
        for _ in range(40):
            broken = bytearray(whole)
            for place in rng.integers(0, len(whole), 4):
                broken[place] = rng.integers(256)
            file = tmp_path / f"broken.{ending}"
            file.write_bytes(broken[: rng.integers(1, len(whole) + 1)])
            with careful():
                try:
                    assert read_image(file, 8, 3).shape == (8, 8, 3)
                except Unreadable:
                    told += 1
    assert told > 50


def bomb(width: int, height: int) -> bytes:
    """A png of a few bytes that says it is huge."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


@pytest.mark.parametrize("side", [9_500, 50_000])
def test_a_decompression_bomb_is_not_unpacked(tmp_path: Path, side: int):
    """Pillow warns of the first and refuses the second; both are refused here, without a word on the screen."""
    (tmp_path / "bomb.png").write_bytes(bomb(side, side))
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for read in (lambda file: read_image(file, 8, 3), read_header):
            with careful(), pytest.raises(Unreadable, match="unpacks to more than 89,478,485 pixels"):
                read(tmp_path / "bomb.png")
    assert not seen
