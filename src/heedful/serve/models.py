"""What is loaded, by name, and who can be asked what."""

import shlex
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heedful.errors import UserError
from heedful.formats.documents import require_folder
from heedful.serve.refusals import Refusal

SAYS = {
    "embed": "gives vectors",
    "predict": "gives labels or numbers",
    "rerank": "ranks pairs of texts",
    "fill": "fills blanks",
    "tag": "tags words",
    "answer": "answers questions",
    "translate": "translates",
    "see": "sees images",
}
"""What a model with an ability does, in words."""
ROUTES = {
    "/embed": "embed",
    "/embed_all": "embed",
    "/similarity": "embed",
    "/v1/embeddings": "embed",
    "/predict": "predict",
    "/rerank": "rerank",
    "/fill": "fill",
    "/generate": "fill",
    "/tag": "tag",
    "/answer": "answer",
    "/translate": "translate",
    "/see": "see",
    "/tokenize": "tokenize",
    "/decode": "tokenize",
}
"""The ability that each route asks for."""
SIGNS = "._-:+"
"""What a name may have beside letters and digits of any script, and / between its parts."""


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """A model to load."""

    name: str
    folder: Path


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """A model that can be asked."""

    name: str
    predictor: Any
    """What `heedful.load` gives: a `Predictor`, a `Translator` or an `ImagePredictor`."""
    lane: Any
    """Its queue and thread."""
    can: frozenset[str]
    """Its abilities."""


class Models:
    """The models of a server. The first that can do a thing does it, unless another is named."""

    def __init__(self) -> None:
        self._loaded: dict[str, Loaded] = {}

    def add(self, loaded: Loaded) -> None:
        """One more."""
        self._loaded[loaded.name] = loaded

    def __iter__(self) -> Iterator[Loaded]:
        return iter(list(self._loaded.values()))

    def names(self) -> list[str]:
        """In the order in which they were named."""
        return list(self._loaded)

    def get(self, name: str) -> Any:
        """What `heedful.load` gave for a name."""
        return self.named(name).predictor

    def named(self, name: str | None) -> Loaded:
        """A model by its name; without one, the first."""
        if name is None and self._loaded:
            return next(iter(self._loaded.values()))
        if name in self._loaded:
            return self._loaded[name]
        raise Refusal(404, f"there is no model {name!r:.80}; loaded: {self.told()}")

    def pick(self, ability: str, name: str | None) -> Loaded:
        """The model that is asked."""
        able = [one for one in self if ability in one.can]
        if name is not None:
            chosen = self.named(name)
            if ability not in chosen.can:
                raise Refusal(424, f"{chosen.name} can't do this; loaded: {self.told()}")
            return chosen
        if not able:
            raise Refusal(424, f"no model is loaded that {SAYS.get(ability, 'reads texts')}; loaded: {self.told()}")
        return able[0]

    def can(self, ability: str) -> bool:
        """Whether any model has an ability."""
        return any(ability in one.can for one in self)

    def told(self) -> str:
        """What is loaded, in a line."""
        return ", ".join(f"{one.name} ({' and '.join(_does(one))})" for one in self) or "nothing yet"


def _does(loaded: Loaded) -> list[str]:
    said = [SAYS[ability] for ability in SAYS if ability in loaded.can]
    return said[-2:] if len(said) > 2 else said


def abilities(predictor: Any) -> frozenset[str]:
    """What a model can be asked."""
    from heedful.predict import ImagePredictor, Translator

    if isinstance(predictor, ImagePredictor):
        return frozenset({"see"})
    if isinstance(predictor, Translator):
        return frozenset({"translate", "tokenize"})
    found = {"embed", "tokenize"}
    head = predictor.head
    if predictor.words is not None:
        found.add("fill")
    if head is not None:
        found.add("predict" if head.reads_sequence else head.task)
        if ranks(head):
            found.add("rerank")
    return frozenset(found)


def ranks(head: Any) -> bool:
    """Whether a head's answer to a pair is one number, or one of two classes: by that texts can be ranked."""
    if head.pairs is False or not head.reads_sequence:
        return False
    if len(head.labels) == 1:
        return True
    return head.task == "classify" and len(head.labels) == 2 and head.pairs is True


def wanted(models: Sequence[str]) -> list[Wanted]:
    """The models that a command names, as FOLDER or NAME=FOLDER; a folder's own name is its model's."""
    if not models:
        raise UserError(
            "no model is named; give at least one folder, before options that take several values (--runs, --cors)"
        )
    found: dict[str, Wanted] = {}
    for one in models:
        name, equals, folder = one.partition("=")
        if not equals or Path(one).is_dir():
            name, folder = "", one
        path = Path(folder).expanduser()
        if not folder:
            raise UserError(f"{one!r} names no folder; write NAME=FOLDER")
        require_folder(path)
        name = unicodedata.normalize("NFC", name) if name else _name_of(path)
        if not all(part and all(map(_fits, part)) for part in name.split("/")):
            raise UserError(
                f"{name!r} is no name for a model; use letters, digits, . _ - : + and /, as "
                f"{shlex.quote(f'NAME={folder}')}"
            )
        if name in found:
            raise UserError(
                f"two models would be called {name!r}: {found[name].folder} and {path}; name one of them: "
                f"{shlex.quote(f'OTHER={folder}')}"
            )
        found[name] = Wanted(name=name, folder=path)
    return list(found.values())


def _name_of(folder: Path) -> str:
    """A folder's own name as a model's: hyphens in place of spaces and of signs that names can't have.

    In NFC, as people type it: some systems keep a letter of Hangul in its parts.
    """
    own = unicodedata.normalize("NFC", folder.resolve().name)
    return "-".join("".join(letter if _fits(letter) else " " for letter in own).split()) or own


def _fits(letter: str) -> bool:
    """Whether a name may have it: a letter, a mark on one (Thai and Hindi need those), a digit, one of the signs."""
    return letter in SIGNS or unicodedata.category(letter)[0] in "LMN"
