"""The answers that an exported page carries in place of a server, for one text or image: as much as fits.

A question is named as the page names it: method, path, and the body as JSON with sorted keys and without spaces.
"""

import base64
import json
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from heedful.data.tokenizer import MASK
from heedful.errors import UserError
from heedful.explore.about import About
from heedful.explore.explorer import Explorer

MOST_BYTES = 24_000_000
"""Of all answers: a page that is much larger opens slowly, and no mail carries it."""
BEAMS = (4, 1, 2, 3, 5, 6, 8, 12, 16)
"""Widths of the search that are asked for; the page opens with the first."""
COUNT, WORDS = 8, 8
"""Candidates for a blank and words to write, as the page asks for them."""
OPENING = ("attention", "images", "positions")
"""Which of its views a page opens with."""
JOINING = "'’-"
"""What may stand within a word."""


@dataclass
class Answers:
    """What was asked so far, and what there was no room for."""

    most_bytes: int = MOST_BYTES
    found: dict[str, Any] = field(default_factory=dict)
    size: int = 0
    left_out: dict[str, int] = field(default_factory=dict)
    """How many answers of each kind."""

    def add(self, kind: str, question: str, answer: Callable[[], Any]) -> None:
        """Ask, if there is room for more; else count what is missing."""
        if question in self.found:
            return
        if self.size < self.most_bytes:
            told = answer()
            self.size += len(json.dumps(told, ensure_ascii=False).encode())
            self.found[question] = told
        else:
            self.left_out[kind] = self.left_out.get(kind, 0) + 1


def collect(explorer: Explorer, about: About, most_bytes: int = MOST_BYTES) -> Answers:
    """All that a page may ask about a text or an image, of every model; what opens first comes first."""
    answers = Answers(most_bytes)
    shown = [model for model in (trimmed(one, about) for one in explorer.models()) if model["views"]]
    if not shown:
        raise UserError("there is nothing to export: no model shows its inside for what was given")
    view = next(one for one in OPENING if one in shown[0]["views"])
    answers.found["GET /explore/models"] = shown
    answers.found["GET /explore/runs"] = []
    answers.found["start"] = {"view": view, "model": shown[0]["name"], **about.values()}
    for model in shown:
        body = {"model": model["name"]}
        views = model["views"]
        if "attention" in views:
            _attention(answers, explorer, model, {**body, **about.texts()})
        if "positions" in views:
            answers.add("positions", question("positions", body), lambda body=body: explorer.positions(**body))
        if "blanks" in views:
            _blanks(answers, explorer, body, about.text or "")
        if "translation" in views:
            for width in BEAMS:
                wanted: dict[str, Any] = {**body, "text": about.text, "beams": width}
                answers.add("searches", question("translate", wanted), lambda one=wanted: explorer.translate(**one))
        if about.image is not None and "images" in views:
            seen = {**body, "image": base64.b64encode(about.image).decode()}
            answers.add("images", question("look", seen), lambda one=seen: explorer.look(**one))
    for model in shown:  # by far the most
        if "head" in model["views"]:
            _heads(answers, explorer, model, {"model": model["name"], **about.texts()})
    return answers


def question(path: str, body: dict[str, Any]) -> str:
    """A question as the page names it."""
    said = json.dumps(body, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return f"POST /explore/{path} {said}"


def trimmed(model: dict[str, Any], about: About) -> dict[str, Any]:
    """A model with those views that have something to show."""
    kept = {"positions"}
    if about.text is not None:
        kept |= {"blanks", "attention", "head", "translation"}
    if about.image is not None:
        kept.add("images")
    return {**model, "views": [view for view in model["views"] if view in kept]}


def _parts(model: dict[str, Any], body: dict[str, Any]) -> Iterator[tuple[dict[str, Any], int]]:
    """Each use of attention, as the page asks for it, and how many layers it has."""
    for part in model["parts"]:
        layers = model["layers"] if part == "encoder" else model["decoder_layers"]
        yield body if part == "encoder" else {**body, "part": part}, layers


def _attention(answers: Answers, explorer: Explorer, model: dict[str, Any], body: dict[str, Any]) -> None:
    for asked, layers in _parts(model, body):
        answers.add("grids", question("attention/grid", asked), lambda asked=asked: explorer.grid(**asked))
        choices: list[dict[str, Any]] = [{"head": head} for head in range(model["heads"])]
        choices += [{"head": "mean"}, *([] if asked.get("part") == "cross" else [{"rollout": True}])]
        for choice in choices:
            for layer in range(layers):
                one: dict[str, Any] = {**asked, "layer": layer, **choice}
                answers.add("heads", question("attention/matrix", one), lambda one=one: explorer.matrix(**one))


def _blanks(answers: Answers, explorer: Explorer, body: dict[str, Any], text: str) -> None:
    hidden = [text[:start] + MASK + text[end:] for start, end in word_spans(text)]
    one: dict[str, Any]
    for masked in [*([text] if MASK in text else []), *hidden]:
        one = {**body, "text": masked, "count": COUNT}
        answers.add("blanks", question("blanks", one), lambda one=one: explorer.blanks(**one))
    for order in ("mask-predict", "gibbs"):
        one = {**body, "text": text, "words": WORDS, "seed": 0, "order": order}
        answers.add("texts to write", question("generate", one), lambda one=one: explorer.generate(**one))


def _heads(answers: Answers, explorer: Explorer, model: dict[str, Any], body: dict[str, Any]) -> None:
    """First the row that the page opens with, in every head; then the others."""
    places = []
    for asked, layers in _parts(model, body):
        grid = explorer.grid(**asked)
        tokens = grid.get("target_tokens", grid["tokens"])
        opening = opening_row(tokens)
        for row in sorted(range(len(tokens)), key=lambda row, opening=opening: row != opening):
            places += [
                (row != opening, {**asked, "layer": layer, "head": head, "token": row})
                for layer in range(layers)
                for head in range(model["heads"])
            ]
    for _, one in sorted(places, key=lambda place: place[0]):
        answers.add("words inside heads", question("head", one), lambda one=one: explorer.head(**one))


def opening_row(tokens: list[dict[str, Any]]) -> int:
    """The token that the page chooses: *it*, or the first that is a word."""
    for row, token in enumerate(tokens):
        if token["text"].lower() == "it":
            return row
    return next((row for row, token in enumerate(tokens) if not token["special"]), 0)


def word_spans(text: str) -> Iterator[tuple[int, int]]:
    """Where the words of a text stand, as the page takes it apart; blanks are none."""
    place = 0
    while place < len(text):
        if text.startswith(MASK, place):
            place += len(MASK)
            continue
        end = place + 1
        if _letter(text, place):
            while _letter(text, end) or (end < len(text) and text[end] in JOINING and _letter(text, end + 1)):
                end += 1
        if not text[place].isspace():
            yield place, end
        place = end


def _letter(text: str, place: int) -> bool:
    """Whether a letter, a digit or a mark on one stands there."""
    return place < len(text) and unicodedata.category(text[place])[0] in "LNM"
