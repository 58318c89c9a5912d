"""`heedful see`, and what other commands do with an image classifier, through the real command line."""

import json
import shutil
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.e2e.conftest import Shell

COLOURS = {"red": (230, 40, 30), "green": (30, 220, 45), "blue": (20, 35, 240)}
PNG = b"\x89PNG\r\n\x1a\n"


def paint(file: Path, colour: str, mode: str = "RGB", **options: object) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (33, 29), COLOURS[colour]).convert(mode).save(file, **options)
    return file


def cut_short(file: Path) -> Path:
    pixels = np.random.default_rng(3).integers(0, 256, (64, 64, 3), np.uint8)
    Image.fromarray(pixels).save(file)
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    return file


def bomb(file: Path) -> Path:
    """A small file that says it is 60,000 pixels a side."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0)
    file.write_bytes(PNG + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b""))
    return file


def test_files_folders_and_patterns(shell: Shell, colours: Path):
    album = shell.home / "album"
    files = [
        paint(album / "cmyk.jpg", "red", "CMYK"),
        paint(album / "more" / "alpha.png", "blue", "RGBA"),
        paint(album / "palette.gif", "green", "P"),
        paint(album / "plain.png", "red"),
    ]
    lines = shell.goes_on("see", colours, album).splitlines()
    assert [line.partition(": ")[0] for line in lines] == [str(file) for file in files]
    answers = [line.partition(": ")[2] for line in lines]
    assert [answer.split()[0] for answer in answers] == ["red", "blue", "green", "red"]
    assert all(len(answer.split(", ")) == 3 for answer in answers)
    chosen = shell.goes_on("see", colours, album / "*.png", files[1], "--top", "1").splitlines()
    assert [line.split(": ")[0] for line in chosen] == [str(files[3]), str(files[1])]
    assert all(line.count("%") == 1 for line in chosen)


def test_sixteen_bits_and_grey(shell: Shell, colours: Path):
    deep, grey = shell.home / "deep.png", shell.home / "grey.png"
    Image.fromarray(np.full((12, 12), 90 * 257, np.uint16)).save(deep)
    Image.new("L", (12, 12), 90).save(grey)
    one, two = (json.loads(shell.goes_on("see", colours, file, "--json", "--top", "9")) for file in (deep, grey))
    assert one["scores"] == two["scores"]
    assert list(one) == ["image", "label", "score", "scores"]


def test_json_and_a_picture(shell: Shell, colours: Path):
    file = paint(shell.home / "one.png", "green")
    picture = shell.home / "looks.png"
    said = shell.goes_on("see", colours, file, "--json", "--picture", picture, "--layer", "1")
    assert json.loads(said)["label"] == "green"
    assert picture.read_bytes().startswith(PNG)
    picture.unlink()
    said = shell.goes_on("see", colours, file, "--picture", picture)
    assert said.splitlines()[-1] == f"drew {picture}"
    assert picture.is_file()


def test_what_is_broken_is_named_or_passed_over(shell: Shell, colours: Path):
    album = shell.home / "album"
    paint(album / "a.png", "red")
    broken = {
        cut_short(album / "b.jpg"): "the image is broken or cut short (image file is truncated",
        bomb(album / "c.png"): "it unpacks to more than 89,478,485 pixels; make it smaller",
    }
    for file, problem in broken.items():
        line = shell.fails("see", colours, file)
        assert line.startswith(f"{file}: {problem}")
        assert line.endswith(", or pass over such files with --skip-bad")
    paint(album / "d.png", "blue")
    code, out, said = shell.run("see", colours, album, "--skip-bad")
    assert (code, [line.split()[1] for line in out.splitlines()]) == (0, ["red", "blue"])
    assert said.startswith(f"heedful: passed over 2 files, the first: {album / 'b.jpg'}: the image is broken")
    code, out, _ = shell.run("see", colours, album, "--skip-bad", "--json")
    assert [json.loads(line).get("label") for line in out.splitlines()] == ["red", None, None, "blue"]
    assert shell.fails("see", colours, *broken, "--skip-bad").startswith("no image can be read: 2 files, the first: ")


def test_names_and_wishes_that_can_not_be(shell: Shell, colours: Path):
    file = paint(shell.home / "one.png", "red")
    asked = {
        ("ona.png",): f"{shell.home / 'ona.png'} does not exist; did you mean {file}?",
        ("one.png", "--top", "0"): "--top 0 must be at least 1",
        (
            "one.png",
            "--layer",
            "2",
        ): "--layer says which heads --picture draws; ask for a picture too, or leave it out",
        (
            "one.png",
            "--int8",
        ): "int8 is for the onnx engine; ask for that too (--engine onnx, in Python engine='onnx')",
        ("one.png", "--engine", "onnx"): (
            f"{colours} has no ONNX file; write it with `heedful export {colours} --to onnx`"
        ),
        ("one.png", "--precision", "fp16", "--device", "cpu"): (
            "fp16 is for GPUs: a CPU is slower with it, and some die of it; leave it out"
        ),
    }
    for (name, *flags), line in asked.items():
        assert shell.fails("see", colours, shell.home / name, *flags) == line
    picture = shell.home / "p.png"
    line = f"layer 7 is not one of {colours}; choose from 1 to 2"
    assert shell.fails("see", colours, file, "--picture", picture, "--layer", "7") == line
    assert not picture.exists()
    way_out = "name the folder that a training command wrote, or one of Hugging Face's layout"
    said = shell.fails("see", shell.home / "none", file)
    assert said.endswith(f"there is no such folder; {way_out}")
    assert shell.fails("see", shell.home, file).endswith(f"it has no config.json; {way_out}")
    assert "there is no image to look at" in shell.fails("see", colours)


@pytest.mark.parametrize(
    ("command", "rest"),
    [("fill", ["x [MASK]"]), ("predict", ["FILE"]), ("embed", ["FILE", "--out", "OUT"]), ("generate", ["x"])],
)
def test_commands_for_texts_refuse_a_classifier_of_images(shell: Shell, colours: Path, command: str, rest: list[str]):
    file = shell.file("text.txt", "a text\n")
    given = [{"FILE": str(file), "OUT": str(shell.home / "out.npy")}.get(one, one) for one in rest]
    line = f"{colours} reads images, not texts; use `heedful see`, in Python heedful.load"
    assert shell.fails(command, colours, *given) == line


def test_a_translator_it_is_not_either(shell: Shell, colours: Path, encoder: Path):
    file = shell.file("text.txt", "a text\n")
    line = f"{colours} does not translate, it is a model of type 'vit'; ask it with `heedful see`"
    assert shell.fails("translate", colours, file) == line
    image = paint(shell.home / "one.png", "red")
    line = (
        f"{encoder} reads texts, not images, it is a model of type 'bert'; ask it with `heedful predict`, `fill` or"
    )
    assert shell.fails("see", encoder, image).startswith(line)


def test_evaluate(shell: Shell, colours: Path):
    album = shell.home / "album"
    for name, colour in {"red/1.png": "red", "red/2.png": "blue", "green/1.png": "green"}.items():
        paint(album / name, colour)
    lines = shell.goes_on("evaluate", colours, album).splitlines()
    assert lines[:3] == [f"3 images of {album}", "", "accuracy  66.67%"]
    assert lines[-1].endswith(f" sure: blue, but it is red  ({album / 'red' / '2.png'})")
    rows, picture = shell.home / "rows.jsonl", shell.home / "confusion.png"
    said = shell.goes_on("evaluate", colours, album, "--json", "--predictions", rows, "--picture", picture)
    table = json.loads(said)
    assert table["scores"]["accuracy"] == pytest.approx(2 / 3)
    assert table["confusion"] == [[1, 0, 1], [0, 1, 0], [0, 0, 0]]
    assert [json.loads(line)["label"] for line in rows.read_text(encoding="utf-8").splitlines()] == [
        "green",
        "red",
        "blue",
    ]
    assert picture.read_bytes().startswith(PNG)


def test_evaluate_refuses(shell: Shell, colours: Path):
    album = shell.home / "album"
    paint(album / "red" / "1.png", "red")
    paint(album / "pink" / "1.png", "red")
    assert "has the class 'pink', which is none of those trained on: red" in shell.fails("evaluate", colours, album)
    asked = {
        ("--text", "x"): f"--text says nothing to {colours}, which reads images; leave it out",
        ("--truncate",): f"--truncate says nothing to {colours}, which reads images; leave it out",
        ("--errors", "replace"): f"--errors says nothing to {colours}, which reads images; leave it out",
        ("--beam", "3"): f"--beam is for translators, which {colours} is not; leave it out",
    }
    for flags, line in asked.items():
        assert shell.fails("evaluate", colours, album, *flags) == line
    line = "2 names, but images are evaluated one folder or file at a time; give one"
    assert shell.fails("evaluate", colours, album, album) == line
    assert shell.fails("evaluate", colours, shell.home / "nothing").startswith(f"{shell.home / 'nothing'} does not")


def test_export_and_what_the_engine_says(shell: Shell, colours: Path):
    model = shell.home / "model"
    shutil.copytree(colours, model)
    file = paint(shell.home / "one.png", "green")
    said = shell.goes_on("export", model)
    assert said.startswith(f"wrote {model / 'onnx' / 'model.onnx'} (")
    ours, theirs = (
        json.loads(shell.goes_on("see", model, file, "--json", "--engine", engine)) for engine in ("torch", "onnx")
    )
    assert theirs["scores"] == pytest.approx(ours["scores"], abs=1e-4)
    line = "an exported file does not say where the model looks; use the engine torch"
    assert shell.fails("see", model, file, "--engine", "onnx", "--picture", shell.home / "p.png") == line
    facts = shell.goes_on("info", model)
    assert "labels      3: red, green, blue\n" in facts
    assert "exported    for onnx\n" in facts


def test_predict_says_who_reads_images(shell: Shell, colours: Path):
    said = shell.fails("predict", colours, paint(shell.home / "red.png", "red"))
    assert said.endswith("reads images, not texts; use `heedful see`, in Python heedful.load")


def test_nothing_is_named_to_evaluate_on(shell: Shell, colours: Path, encoder: Path):
    said = shell.fails("evaluate", colours)
    assert said.endswith(f"nothing to evaluate {colours} on; name images as `heedful train-vision` takes")
    assert "FILE… is missing: name data" in shell.fails("evaluate", encoder)


def test_where_nothing_can_be_written_nothing_is_looked_at(shell: Shell, colours: Path):
    nowhere = shell.home / "none"
    broken = cut_short(shell.home / "broken.png")  # which would be said if it were looked at
    there_is_none = f"there is no folder {nowhere}; make it"
    assert there_is_none in shell.fails("see", colours, broken, "--picture", nowhere / "x.png")
    assert there_is_none in shell.fails("evaluate", colours, broken, "--picture", nowhere / "x.png")
    assert there_is_none in shell.fails("evaluate", colours, broken, "--predictions", nowhere / "x.jsonl")
