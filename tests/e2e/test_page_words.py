"""What can be said of the page's files without a browser: its words, its colours, its requests."""

import json
import re

import pytest

from tests.e2e.browsing import STATIC

MODULES = {path.relative_to(STATIC).as_posix(): path.read_text(encoding="utf-8") for path in STATIC.rglob("*.js")}
TEXTS = {code: json.loads((STATIC / f"text.{code}.json").read_text(encoding="utf-8")) for code in ("en", "ko")}


def test_both_languages_say_the_same_things():
    assert list(TEXTS["en"]) == list(TEXTS["ko"])
    for key, words in TEXTS["en"].items():
        assert set(re.findall(r"\{\w+\}", words)) == set(re.findall(r"\{\w+\}", TEXTS["ko"][key])), key
        assert words.strip()
        assert TEXTS["ko"][key].strip()
    hangul = [key for key, words in TEXTS["ko"].items() if re.search("[가-힣]", words)]
    assert len(hangul) > 0.9 * len(TEXTS["ko"])


@pytest.mark.parametrize("name", MODULES)
def test_every_word_that_is_asked_for_exists(name: str):
    asked = re.findall(r'\bt\("([^"]+)"', MODULES[name])
    assert [key for key in asked if key not in TEXTS["en"]] == []
    patterns = [re.escape(one).replace(r"\$\{\}", ".+") for one in _templates(MODULES[name])]
    assert [one for one in patterns if not any(re.fullmatch(one, key) for key in TEXTS["en"])] == []


def _templates(source: str) -> list[str]:
    return [re.sub(r"\$\{[^}]*\}", "${}", one) for one in re.findall(r"\bt\(`([^`]+)`", source)]


@pytest.mark.parametrize("name", MODULES)
def test_modules_import_each_other_by_name_and_nothing_from_elsewhere(name: str):
    targets = re.findall(r'^(?:import|} from)\b.*"([^"]+)";$', MODULES[name], re.MULTILINE)
    assert len(targets) == len(re.findall("^import ", MODULES[name], re.MULTILINE))
    assert [one for one in targets if one.removeprefix("heedful/") not in MODULES] == []
    assert not re.search(r"https?://(?!www\.w3\.org/)", MODULES[name])
    assert MODULES[name].count("\n") <= 400


def test_every_style_sheet_is_linked_and_none_is_long():
    page = (STATIC / "index.html").read_text(encoding="utf-8")
    sheets = {path.relative_to(STATIC).as_posix(): path.read_text(encoding="utf-8") for path in STATIC.rglob("*.css")}
    assert set(re.findall(r'href="static/(.*?\.css)"', page)) == set(sheets)
    assert [name for name, rules in sheets.items() if rules.count("\n") > 200] == []
    rules = "".join(sheets.values())
    assert rules.count("{") == rules.count("}")


@pytest.mark.parametrize("theme", [":root {", ':root[data-theme="dark"] {'])
def test_text_stands_out_in_both_themes(theme: str):
    """At least 4.5 to 1, as the Web Content Accessibility Guidelines ask of text (1.4.3)."""
    style = (STATIC / "style.css").read_text(encoding="utf-8")
    block = style[style.index(theme) :].split("}")[0]
    colours = dict(re.findall(r"--([\w-]+): (#\w{6})", block))
    grounds = ("paper", "surface", "accent-soft")
    pairs = [(ink, ground) for ink in ("ink", "soft", "accent", "other") for ground in grounds]
    pairs += [("accent-ink", "accent"), ("bad", "bad-soft")]
    faint = {pair: ratio for pair in pairs if (ratio := contrast(*(colours[name] for name in pair))) < 4.5}
    assert faint == {}


def contrast(one: str, other: str) -> float:
    """Of two colours #rrggbb, between 1 and 21."""
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def test_contrast_by_hand():
    assert contrast("#ffffff", "#000000") == pytest.approx(21)
    assert contrast("#767676", "#ffffff") == pytest.approx(4.54, abs=0.01)
