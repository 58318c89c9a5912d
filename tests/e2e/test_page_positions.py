"""The view of positions in a browser, for positions that are learned, sinusoidal, turned, and those of patches."""

from pathlib import Path

import numpy as np
import pytest

from tests.e2e.browsing import Reader, numbers

SAID = {"words": "Learned", "translator": "Sinusoidal", "rotary": "Rotary", "colours": "Learned"}


@pytest.mark.parametrize("model", list(SAID))
def test_encoding_similarity_and_curve(reader: Reader, model: str):
    reader.go("positions", model=model)
    told = reader.host.ask("/explore/positions", model=model)
    rows, columns = told["encoding"]["shape"]
    assert reader.text(".kind").startswith(SAID[model])
    assert f"{rows} positions downwards, {columns} numbers" in reader.text("[data-picture=encoding]")
    assert reader.painted("[data-picture=encoding] canvas.matrix") > 20
    assert reader.painted("[data-picture=similarity] canvas.matrix") > 5
    drawn = reader.page.evaluate("document.querySelector('.chart').data[0].y")
    assert drawn == pytest.approx(told["by_distance"])
    assert reader.page.locator(".chart .scatterlayer path.js-line").count() == 1
    reader.page.focus("[data-picture=encoding] canvas.matrix")
    for key in ("ArrowRight", "ArrowDown", "ArrowRight"):
        reader.page.keyboard.press(key)
    value = numbers(told["encoding"])[1, 1]
    assert reader.text("[data-picture=encoding] .readout") == f"Position 1, number 1: {value:.3f}".replace("-", "−")


def test_the_positions_of_patches_beside_a_chosen_one(reader: Reader):
    reader.go("positions", model="colours")
    told = reader.host.ask("/explore/positions", model="colours")
    rows, columns = told["grid"]
    canvas = reader.page.locator("[data-picture=similarity] canvas.matrix")
    box = canvas.bounding_box()
    canvas.click(position={"x": box["width"] * 1.5 / columns, "y": box["height"] * 2.5 / rows})
    reader.page.wait_for_function("location.hash.includes('at=')")
    reader.settle()
    assert reader.values()["at"] == str(2 * columns + 1)
    assert reader.text("[data-picture=similarity] h2").endswith("row 3, column 2")
    reader.page.focus("[data-picture=similarity] canvas.matrix")
    reader.page.keyboard.press("ArrowDown")
    alike = numbers(told["similarity"])[2 * columns + 1]
    assert np.isclose(alike[2 * columns + 1], 1.0, atol=1e-5)
    assert reader.text("[data-picture=similarity] .readout") == f"Row 1, column 1: {alike[0]:.3f}".replace("-", "−")


def test_it_is_saved_and_fits_a_phone(reader: Reader, tmp_path: Path):
    reader.go("positions", model="words")
    svg, image = reader.saved("distance", tmp_path)
    assert "positions apart" in svg
    assert len(image.getcolors(1 << 24)) > 20
    svg, _ = reader.saved("encoding", tmp_path)
    assert "<image" in svg
    assert reader.nameless() == []
    reader.page.set_viewport_size({"width": 390, "height": 844})
    reader.go("positions", model="rotary")
    assert reader.page.evaluate("document.documentElement.scrollWidth") <= 390
    reader.page.set_viewport_size({"width": 1280, "height": 900})
