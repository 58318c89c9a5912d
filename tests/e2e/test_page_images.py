"""The view of images in a browser: pictures that are chosen, dropped or drawn by the page, and where heads look."""

import base64
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.e2e.browsing import Host, Reader, colours, numbers, percent


def png(red: int, green: int, blue: int, size: tuple[int, int] = (13, 17)) -> bytes:
    """A picture of one colour with a lighter corner."""
    pixels = np.full((size[1], size[0], 3), (red, green, blue), np.uint8)
    pixels[: size[1] // 3, : size[0] // 3] += 40
    held = io.BytesIO()
    Image.fromarray(pixels).save(held, "PNG")
    return held.getvalue()


def look(reader: Reader, image: bytes) -> dict[str, Any]:
    return reader.host.ask("/explore/look", model="colours", image=base64.b64encode(image).decode())


def choose(reader: Reader, image: bytes, name: str = "mine.png") -> None:
    before = reader.values().get("image")
    reader.page.set_input_files("input[type=file]", {"name": name, "mimeType": "image/png", "buffer": image})
    reader.page.wait_for_function(
        "before => new URLSearchParams(location.hash.split('?')[1]).get('image') !== before", arg=before
    )
    reader.settle()


def drawn(reader: Reader, picture: str) -> list[float]:
    return reader.page.eval_on_selector_all(
        f"[data-picture={picture}] .patch", "all => all.map(one => Number(one.dataset.weight))"
    )


def test_a_chosen_picture_is_looked_at(reader: Reader):
    image = png(200, 30, 20)
    reader.go("images", model="colours")
    choose(reader, image)
    told = look(reader, image)
    assert reader.texts("[data-picture=classes] .bar-name") == [one["label"] for one in told["classes"]]
    assert reader.texts("[data-picture=classes] .bar-name")[0] == "red"
    assert reader.texts("[data-picture=classes] .bar-number") == [percent(one["score"]) for one in told["classes"]]
    weights = numbers(told["weights"])
    assert weights.shape == (2, 3, 9)
    assert drawn(reader, "patches") == pytest.approx(weights[1, 0].tolist()), "it opens on the last layer"
    assert drawn(reader, "rollout") == pytest.approx(numbers(told["rollout"]).tolist())
    assert reader.page.get_attribute("[data-picture=patches] image", "href") == told["image"]
    assert percent(float(weights[1, 0].max())) in reader.text("[data-picture=patches] .note")
    reader.page.reload()
    reader.settle()
    assert drawn(reader, "patches") == pytest.approx(weights[1, 0].tolist()), "the link holds the picture"


def test_what_glows_is_what_is_looked_at(reader: Reader):
    reader.go("images", model="colours", digit=4, layer=0, head=1)
    glow = reader.page.eval_on_selector_all(
        "[data-picture=patches] .patch",
        "all => all.map(one => [Number(one.dataset.weight), Number(one.getAttribute('fill').match(/\\d+/)[0])])",
    )
    most = max(weight for weight, _ in glow)
    assert [red for _, red in glow] == [pytest.approx(255 * weight / most, abs=0.51) for weight, _ in glow]


def test_every_head_and_their_mean(reader: Reader):
    image = png(20, 180, 30)
    reader.go("images", model="colours")
    choose(reader, image)
    weights = numbers(look(reader, image)["weights"])
    assert reader.page.locator("[data-picture=heads] .thumbnail").count() == 6
    reader.click("[data-picture=heads] .thumbnail[data-layer='0'][data-head='2']")
    assert (reader.values()["layer"], reader.values()["head"]) == ("0", "2")
    assert reader.text("[data-picture=patches] h2") == "Layer 1, head 3"
    assert drawn(reader, "patches") == pytest.approx(weights[0, 2].tolist())
    reader.page.select_option("select[data-focus=Head]", "mean")
    reader.page.wait_for_selector("[data-picture=patches] h2:has-text('mean')")
    reader.settle()
    assert drawn(reader, "patches") == pytest.approx(weights[0].mean(0).tolist(), rel=1e-5)
    reader.page.focus("[data-picture=patches] svg")
    for key in ("ArrowRight", "ArrowRight", "ArrowDown"):
        reader.page.keyboard.press(key)
    said = reader.text("[data-picture=patches] .readout")
    assert said == f"Row 2, column 2: {percent(float(weights[0].mean(0)[4]))}"


def test_digits_that_the_page_draws(reader: Reader):
    reader.go("images", model="colours")
    assert reader.page.get_attribute(".digits [aria-pressed=true]", "data-digit") == "3"
    assert reader.page.locator(".digits .thumbnail").count() == 10
    seen = {reader.page.get_attribute("[data-picture=patches] image", "href")}
    for digit in ("0", "7"):
        reader.click(f".digits [data-digit='{digit}']")
        assert reader.values()["digit"] == digit
        seen.add(reader.page.get_attribute("[data-picture=patches] image", "href"))
    assert len(seen) == 3
    told = look(reader, base64.b64decode(reader.page.evaluate(DIGIT, "7")))
    assert drawn(reader, "rollout") == pytest.approx(numbers(told["rollout"]).tolist())
    ink = [reader.page.evaluate(INK, str(digit)) for digit in range(10)]
    assert all(0.1 < share < 0.5 for share in ink), "light strokes on a dark ground"
    reader.page.focus(".digits [data-digit='7']")
    reader.page.keyboard.press("ArrowRight")
    reader.page.keyboard.press("Enter")
    reader.page.wait_for_function("location.hash.includes('digit=8')")


DIGIT = """async name => (await import("heedful/digits.js")).digit(name).toDataURL().split(",")[1]"""
INK = """async name => {
  const { digit } = await import("heedful/digits.js");
  const { data } = digit(name).getContext("2d").getImageData(0, 0, 64, 64);
  return data.filter((value, i) => i % 4 === 0 && value > 127).length / 64 / 64;
}"""


def test_a_large_picture_is_made_small_enough_for_a_link(reader: Reader):
    noise = np.random.default_rng(5).integers(0, 255, (331, 227, 3), np.uint8)
    held = io.BytesIO()
    Image.fromarray(noise).save(held, "PNG")
    reader.go("images", model="colours")
    choose(reader, held.getvalue())
    address = reader.values()["image"]
    assert len(address) < 2000 < len(held.getvalue())
    sent = base64.urlsafe_b64decode(address + "=" * (-len(address) % 4))
    with Image.open(io.BytesIO(sent)) as small:
        assert small.size == (12, round(331 * 12 / 227)), "the shorter side is as long as the model reads"
    assert drawn(reader, "rollout") == pytest.approx(numbers(look(reader, sent)["rollout"]).tolist())
    assert "made smaller" in reader.text("[data-picture=classes] .note")


@pytest.mark.parametrize("way", ["drop", "paste"])
def test_a_picture_is_dropped_or_pasted(reader: Reader, way: str):
    image = png(10, 20, 210)
    reader.go("images", model="colours")
    reader.page.evaluate(
        """([way, data]) => {
          const bytes = Uint8Array.from(atob(data), one => one.charCodeAt(0));
          const held = new DataTransfer();
          held.items.add(new File([bytes], "blue.png", { type: "image/png" }));
          document.querySelector("h1").dispatchEvent(way === "drop"
            ? new DragEvent("drop", { dataTransfer: held, bubbles: true, cancelable: true })
            : new ClipboardEvent("paste", { clipboardData: held, bubbles: true }));
        }""",
        [way, base64.b64encode(image).decode()],
    )
    reader.page.wait_for_function("location.hash.includes('image=')")
    reader.settle()
    assert reader.texts("[data-picture=classes] .bar-name")[0] == "blue"


def test_what_is_no_picture_is_told(reader: Reader):
    reader.go("images", model="colours")
    reader.page.set_input_files(
        "input[type=file]", {"name": "x.png", "mimeType": "image/png", "buffer": b"no picture"}
    )
    reader.page.wait_for_selector(".bad:has-text('no picture')")
    assert "image" not in reader.values()
    choose(reader, png(200, 30, 20))
    assert reader.text(".bad") == ""


def test_it_is_saved_speaks_korean_and_fits_a_phone(browser: Any, host: Host, tmp_path: Path):
    with Reader(browser, host, viewport={"width": 390, "height": 844}, locale="ko-KR") as reader:
        reader.go("images", model="colours", digit=5)
        assert reader.page.evaluate("document.documentElement.scrollWidth") <= 390
        assert reader.nameless() == []
        assert reader.text("h1") == "이미지"
        svg, image = reader.saved("patches", tmp_path)
        assert "data:image/png" in svg
        assert colours(image) > 5
        svg, _ = reader.saved("classes", tmp_path)
        assert ">red</text>" in svg
