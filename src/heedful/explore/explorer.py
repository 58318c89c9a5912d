"""Answers of the explorer: loaded models in, plain tables out, as JSON carries them. Knows nothing of HTTP.

The last traces are kept, so that a click from head to head does not run the model again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from heedful.explore import attention, images, inside, training
from heedful.explore import blanks as filling
from heedful.explore.beams import watch
from heedful.explore.inside import Asked
from heedful.explore.meaning import NEIGHBOURS, meaning
from heedful.explore.numbers import packed
from heedful.explore.positions import positions
from heedful.explore.recent import Recent
from heedful.explore.refusals import NotThere
from heedful.explore.sites import Mixed
from heedful.explore.texts import traced
from heedful.explore.tokens import Token, encoder_tokens, piece_tokens, source_tokens
from heedful.explore.trace import Trace
from heedful.explore.vectors import Neighbourhood
from heedful.formats.word2vec import WordVectors
from heedful.predict.image_engine import TorchImageEngine
from heedful.predict.predictor import Predictor

KEPT_BYTES = 1 << 28
"""Of traces: several of long texts, many of short ones."""


class Models(Protocol):
    """Loaded models by name."""

    def names(self) -> Sequence[str]:
        """All of them."""
        ...

    def get(self, name: str) -> Any:
        """What `heedful.load` gave."""
        ...


@dataclass(frozen=True)
class Opened:
    """Models that one process has opened for itself."""

    models: Mapping[str, Any]

    def names(self) -> Sequence[str]:
        """All of them."""
        return list(self.models)

    def get(self, name: str) -> Any:
        """What `heedful.load` gave."""
        return self.models[name]


class Explorer:
    """Looks into models and runs."""

    def __init__(self, models: Models, runs: Sequence[Path] = (), vectors: WordVectors | None = None) -> None:
        self.loaded = models
        self.vectors = None if vectors is None else Neighbourhood(vectors)
        self.training = training.Runs(runs)
        self._traces: Recent[Trace] = Recent(KEPT_BYTES)

    def models(self) -> list[dict[str, Any]]:
        """What is loaded, and which views each model has."""
        return [{"name": name, **asdict(inside.describe(self._asked(name)))} for name in self.loaded.names()]

    def tokens(self, model: str, text: str, pair: str | None = None) -> dict[str, Any]:
        """How a model takes a text apart; of a translator also its translation, if it is given."""
        asked = self._asked(model)
        if isinstance(asked, Predictor):
            return {"tokens": tables(encoder_tokens(asked.tokenizer, text, pair))}
        translator, searcher, _ = inside.translating(asked, "take texts apart")
        found = {"tokens": tables(source_tokens(translator.source, text, searcher.marks.eos))}
        if pair is not None:
            (ids,) = translator.target.encode([" ".join(pair.split())])
            found["target_tokens"] = tables(piece_tokens(translator.target, ids, pair))
        return found

    def blanks(self, model: str, text: str, count: int) -> dict[str, Any]:
        """Candidates for the blanks of a text."""
        predictor, _ = inside.encoder(self._asked(model), "fill blanks")
        found, filled = filling.blanks(predictor, text, count)
        return {
            "blanks": [
                {
                    "start": one.start,
                    "end": one.end,
                    "candidates": [candidate._asdict() for candidate in one.candidates],
                }
                for one in found
            ],
            "filled": filled,
        }

    def generate(
        self, model: str, text: str, words: int, seed: int = 0, order: str = "mask-predict"
    ) -> dict[str, Any]:
        """Text written by filling blanks, step by step."""
        predictor, _ = inside.encoder(self._asked(model), "write text")
        found, steps = filling.write(predictor, text, words, seed, order)
        return {
            "steps": [{"text": step.text, "written": [one._asdict() for one in step.written]} for step in steps],
            "text": found.text,
            "probability": found.probability,
        }

    def grid(self, model: str, text: str, pair: str | None = None, part: str | None = None) -> dict[str, Any]:
        """All heads in small."""
        trace, part = self._part(model, text, pair, part)
        small = attention.thumbnails(trace, part)
        return {
            **sides(trace, part),
            "layers": small.shape[0],
            "heads": small.shape[1],
            "thumbnails": packed(small),
        }

    def matrix(
        self,
        model: str,
        text: str,
        pair: str | None = None,
        part: str | None = None,
        layer: int | None = None,
        head: int | Literal["mean"] = "mean",
        rollout: bool = False,
    ) -> dict[str, Any]:
        """One head's weights, the mean of a layer's heads, or rollout up to a layer."""
        trace, part = self._part(model, text, pair, part)
        last = len(attention.sites(trace, part)) - 1 if layer is None else layer
        chosen = None if head == "mean" else head
        found = attention.rolled(trace, part, last) if rollout else attention.matrix(trace, part, last, chosen)
        return {"weights": packed(found)}

    def head(
        self,
        model: str,
        text: str,
        layer: int,
        head: int,
        token: int,
        pair: str | None = None,
        part: str | None = None,
        padding: int = 0,
    ) -> dict[str, Any]:
        """One token in one head, step by step, and what it would be without some of the steps."""
        trace, part = self._part(model, text, pair, part, padding)
        site = attention.site(trace, part, layer, head)
        rows = trace.sides(part)[0]
        if not 0 <= token < len(rows):
            raise NotThere(f"token {token} is not there; the text has {len(rows)}, counted from 0")
        found = site.look(head, token)
        unplaced = None
        asked = self._asked(model)
        kind = inside.describe(asked).score
        if kind is None:
            without, _ = self._part(model, text, pair, part, padding, placed=False)
            unplaced = attention.site(without, part, layer, head).look(head, token).mixed
        return {
            **sides(trace, part),
            "width": found.width,
            "query": found.query.tolist(),
            "keys": packed(found.keys),
            "values": packed(found.values),
            "products": found.products.tolist(),
            "scaled": found.scaled.tolist(),
            "mask": found.mask.tolist(),
            "weights": found.mixed.weights.tolist(),
            "output": found.mixed.output.tolist(),
            "without": {
                "scale": mix(found.unscaled),
                "mask": mix(found.unmasked),
                "positions": mix(unplaced),
            },
            **({} if kind is None else {"score": kind}),
        }

    def positions(self, model: str) -> dict[str, Any]:
        """How a model tells where a token stands."""
        placing = inside.placing(self._asked(model))
        found = positions(placing.model.vit if isinstance(placing, TorchImageEngine) else placing)
        return {
            "kind": found.kind,
            "encoding": packed(found.encoding),
            "similarity": packed(found.similarity),
            "by_distance": found.by_distance.tolist(),
            **({} if found.grid is None else {"grid": list(found.grid)}),
        }

    def translate(
        self, model: str, text: str, beams: int = 4, prefix: str | None = None, length_penalty: float = 1.0
    ) -> dict[str, Any]:
        """A beam search as a tree, and what it found."""
        translator, _, _ = inside.translating(self._asked(model), "translate")
        found = watch(translator, text, prefix=prefix or "", beams=beams, length_penalty=length_penalty)
        return {
            "source": tables(found.source),
            "tree": [{**asdict(node), "token": piece} for node, piece in zip(found.tree, found.pieces, strict=True)],
            "translations": [
                {"text": one.text, "score": one.score, "tokens": one.tokens, "alignment": packed(one.alignment)}
                for one in found.translations
            ],
        }

    def meaning(self, model: str, word: str, sentences: Sequence[str], layer: int | None = None) -> dict[str, Any]:
        """One word in several sentences."""
        predictor, bert = inside.encoder(self._asked(model), "tell words by their context")
        found = meaning(predictor, bert, word, sentences, layer)
        return {
            "similarity": packed(found.similarity),
            "neighbours": [[asdict(one) for one in near] for near in found.neighbours],
            "map": [asdict(point) for point in found.points],
            "context_free": {
                "similarity": 1.0,
                "neighbours": [one._asdict() for one in found.context_free],
            },
            **({} if self.vectors is None else {"word_vectors": beside(self.vectors, word)}),
            "layer": found.layer,
            "layers": found.layers,
        }

    def look(self, model: str, image: str) -> dict[str, Any]:
        """Which patches of an image the heads look at."""
        predictor, engine = inside.vision(self._asked(model), "look at images")
        found = images.look(predictor, engine, images.decoded(image))
        return {
            "classes": [{"label": label, "score": score} for label, score in found.classes],
            "grid": list(found.grid),
            "weights": packed(found.weights),
            "rollout": packed(found.rollout),
            "image": images.data_uri(found.picture),
        }

    def runs(self) -> list[dict[str, Any]]:
        """Run folders, and whether they still train."""
        return [{"name": name, "state": self.training.state(name)} for name in self.training.names()]

    def run(self, name: str, since: int = 0, samples_since: int = 0) -> dict[str, Any]:
        """What a run has reported since."""
        return asdict(self.training.reports(name, since, samples_since))

    def _asked(self, name: str) -> Asked:
        if name not in self.loaded.names():
            raise NotThere(f"there is no model {name!r}; there are: {', '.join(self.loaded.names()) or 'none'}")
        return self.loaded.get(name)

    def _part(
        self,
        model: str,
        text: str,
        pair: str | None,
        part: str | None,
        padding: int = 0,
        *,
        placed: bool = True,
    ) -> tuple[Trace, str]:
        """A text's trace, and which part of it is meant: the first, unless it is said."""
        asked = self._asked(model)
        key = (asked, text, pair, padding, placed)
        trace = self._traces(key, lambda: traced(asked, text, pair, padding=padding, placed=placed))
        return trace, part or next(iter(trace.parts))


def beside(vectors: Neighbourhood, word: str) -> dict[str, Any]:
    """What word vectors without context say of a word; no neighbours where it is not among them."""
    found = vectors.near(word, NEIGHBOURS)
    return {
        "words": len(vectors.words),
        "known": found is not None,
        "neighbours": [one._asdict() for one in found or ()],
    }


def sides(trace: Trace, part: str) -> dict[str, Any]:
    """The tokens that are looked at and, where they are others, those that look."""
    rows, columns = trace.sides(part)
    return {"tokens": tables(columns), **({} if rows is columns else {"target_tokens": tables(rows)})}


def tables(tokens: Sequence[Token]) -> list[dict[str, Any]]:
    """Tokens as JSON carries them."""
    return [asdict(token) for token in tokens]


def mix(found: Mixed | None) -> dict[str, Any] | None:
    """Weights and output as JSON carries them."""
    return None if found is None else {"weights": found.weights.tolist(), "output": found.output.tolist()}
