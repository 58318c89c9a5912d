from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from heedful.errors import UserError
from heedful.predict.translator import Alignment
from heedful.runs import fonts, pictures

WEIGHTS = np.array([[0.7, 0.1, 0.1, 0.1, 0.0], [0.0, 0.0, 0.25, 0.5, 0.25], [0.0, 0.0, 0.0, 0.0, 1.0]])
FOUND = Alignment(["▁twenty", "-", "two", "▁", "</s>"], ["▁이십", "x이", "</s>"], WEIGHTS, [0, 0, 0, 1], [0, 0])


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The figures that were closed, to look into."""
    figures: list[Figure] = []
    close = pictures.plt.close
    monkeypatch.setattr(pictures.plt, "close", lambda figure: (figures.append(figure), close(figure)))
    return figures


def names(figure: Figure) -> tuple[list[str], list[str]]:
    axis = figure.axes[0]
    across, down = axis.get_xticklabels(), axis.get_yticklabels()
    return [name.get_text() for name in across], [name.get_text() for name in down]


def without(letters: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if no installed font had these letters."""
    monkeypatch.setattr(fonts, "choose", lambda text: fonts.Fonts(["sans-serif"], {*letters} & {*text}))


def test_the_source_lies_across_and_the_translation_down(
    tmp_path: Path, drawn: list[Figure], monkeypatch: pytest.MonkeyPatch
):
    without("", monkeypatch)
    assert not pictures.alignment(FOUND, tmp_path / "alignment.png", {"이": "i"})
    assert names(drawn[0]) == (["twenty", "-", "two", "▁", "</s>"], ["이십", "x이", "</s>"])
    (image,) = drawn[0].axes[0].images
    assert np.array_equal(image.get_array(), WEIGHTS)
    assert image.get_clim() == (0, 1)
    assert (tmp_path / "alignment.png").read_bytes().startswith(b"\x89PNG")


def test_letters_that_no_font_has_are_spelled(tmp_path: Path, drawn: list[Figure], monkeypatch: pytest.MonkeyPatch):
    without("이십", monkeypatch)
    said = pictures.alignment(FOUND, tmp_path / "alignment.png", {"이": "i", "십": "sip", "x": "never"})
    assert said is not None
    assert said.startswith("no installed font has the letters '십이': they are spelled as they sound in the picture")
    assert names(drawn[0]) == (["twenty", "-", "two", "▁", "</s>"], ["i-sip", "x-i", "</s>"])


@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_letters_that_nothing_is_known_of_do_not_break_it(tmp_path: Path, ending: str):
    found = Alignment(["$\\frac$", "👍", "</s>"], ["\ue000", "▁", "</s>"], np.full((3, 3), 1 / 3), [0, 0], [0, 1])
    pictures.alignment(found, tmp_path / f"alignment.{ending}")
    assert (tmp_path / f"alignment.{ending}").stat().st_size > 1000


def test_an_alignment_that_can_not_be_drawn(tmp_path: Path):
    with pytest.raises(UserError, match=r"can't be drawn; let its name end in \.png, \.svg, \.pdf"):
        pictures.alignment(FOUND, tmp_path / "alignment.txt")
