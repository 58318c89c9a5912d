from collections.abc import Iterator
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from matplotlib import font_manager

from heedful.predict.looking import Looks
from heedful.predict.translator import Alignment
from heedful.runs import fonts, patch_pictures, pictures

HAS_STIX, HAS_NONE = "\u1d81", "\U000e0fff"
GONE = font_manager.FontEntry(fname="/nowhere/gone.ttf", name="Gone")


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[font_manager.FontEntry]]:
    """matplotlib's own fonts, as if the system had none."""
    ours = [font for font in font_manager.fontManager.ttflist if font.fname.startswith(matplotlib.get_data_path())]
    there = [GONE, *ours]
    monkeypatch.setattr(font_manager.fontManager, "ttflist", there)
    monkeypatch.setattr(font_manager, "findSystemFonts", list)
    fonts._learn_new.cache_clear()
    yield there
    fonts._learn_new.cache_clear()


def test_a_font_that_has_the_letters():
    assert fonts.choose("good") == (["sans-serif"], set())
    assert fonts.choose(HAS_STIX) == fonts.choose("good" + HAS_STIX) == (["sans-serif", "STIXGeneral"], set())
    assert fonts.choose(HAS_STIX + HAS_NONE) == (["sans-serif", "STIXGeneral"], {HAS_NONE})
    # a font that claims every letter and draws boxes is no help
    assert fonts.choose(HAS_NONE) == (["sans-serif"], {HAS_NONE})


def test_several_fonts_where_none_has_all(monkeypatch: pytest.MonkeyPatch):
    names = {font.fname: font.name for font in font_manager.fontManager.ttflist}
    having = {"STIXGeneral": {"가", "나"}, "DejaVu Serif": {"나", "다"}, "DejaVu Sans Mono": {"다"}}
    monkeypatch.setattr(fonts, "_has", lambda font, letters: having.get(names.get(font, ""), set()) & letters)
    for order in (list, reversed):
        monkeypatch.setattr(font_manager.fontManager, "ttflist", list(order(font_manager.fontManager.ttflist)))
        found = fonts.choose("가나다라")
        assert found == (["sans-serif", "DejaVu Serif", "STIXGeneral"], {"라"})


def test_fonts_that_were_installed_after_matplotlib_looked(
    known: list[font_manager.FontEntry], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    broken = tmp_path / "broken.ttf"
    broken.write_bytes(b"no font")
    stix = [font for font in known if font.name == "STIXGeneral"]
    for font in stix:
        known.remove(font)
    asked: list[int] = []
    system = [str(broken), *(font.fname for font in stix)]
    monkeypatch.setattr(font_manager, "findSystemFonts", lambda: asked.append(1) or system)
    assert fonts.choose("good").families == ["sans-serif"]
    assert not asked  # only where letters are lacking
    assert fonts.choose(HAS_STIX) == (["sans-serif", "STIXGeneral"], set())
    assert fonts.choose(HAS_STIX + HAS_NONE).lacking == {HAS_NONE}
    assert len(asked) == 1  # and only once


def test_what_is_not_drawn_is_not_lacking():
    assert fonts.choose("two\nlines\t\u200d\ufeff\u3000").lacking == set()


def test_what_is_said_of_letters_that_no_font_has():
    assert fonts.lacks(set()) is None
    said = fonts.lacks({"나", "가"})
    assert said is not None
    assert said.startswith("no installed font has the letters '가나': empty boxes stand for them in the picture; ")
    assert "fonts-noto-cjk" in said
    assert "'가각갂갃간갅갆갇' and 3 more: " in (fonts.lacks(map(chr, range(0xAC00, 0xAC0B))) or "")


def test_every_picture_says_what_it_lacks(tmp_path: Path):
    path, matrix = tmp_path / "x.png", np.eye(2)
    looks = Looks(1, matrix[None], matrix)
    pixels = np.zeros((2, 2, 1), np.uint8)

    def drawn(word: str) -> list[str | None]:
        return [
            pictures.confusion(matrix.astype(int), ["a", word], path),
            pictures.contrast(word, [1.0, 0.5], [0.5, 0.5], 1, [pictures.Column("a", "cosine", [("b", 1.0)])], path),
            pictures.contrast("a", [1.0, 0.5], [0.5, 0.5], 1, [pictures.Column("a", "cosine", [(word, 1)])], path),
            pictures.alignment(Alignment(["a", "b"], ["c", word], matrix, [0], [0]), path),
            patch_pictures.draw([patch_pictures.Drawn(word, "a", pixels, looks)], path),
            patch_pictures.draw([patch_pictures.Drawn("a", word, pixels, looks)], path),
        ]

    assert drawn("good") == [None] * 6
    assert drawn("한글") == [fonts.lacks("한글")] * 6
    assert pictures.alignment(Alignment(["a"], ["한글"], matrix[:1, :1], [0], [0]), path, {"한": "han"}) == (
        f"{fonts.lacks('한', pictures.SPELLED)}; {fonts.lacks('글')}"
    )
