"""Evaluates a translator while it trains, keeps the states to average, and shows what it writes."""

import torch

from heedful.data.flaws import sound
from heedful.data.parallel import PairExample
from heedful.decode import SearchOptions
from heedful.metrics.translation import bleu_score
from heedful.predict.searching import TorchSearcher
from heedful.predict.texts import cut_told
from heedful.predict.translator import Translator
from heedful.runs.samples import spread
from heedful.runs.translator_material import TranslatorMaterial
from heedful.runs.translator_options import TranslatorRecipe
from heedful.runs.watching import Looked, States
from heedful.tasks.translation import Translating
from heedful.train.log import Sample

MOST_EXAMPLES = 2000
"""Pairs that BLEU is counted on while training: more would tell little more, and take the time of training."""
UNSPACED = "th"
"""A language whose BLEU counts characters."""


class TranslatorJudge:
    """BLEU on the dev set, translated greedily; and the states that it was best or last for."""

    def __init__(self, model: Translating, material: TranslatorMaterial, recipe: TranslatorRecipe) -> None:
        self.model = model
        self.samples = recipe.run.samples
        marks = material.marks
        searcher = TorchSearcher([model], marks, (marks.pad, marks.sos, material.target.unk), learning=True)
        self.translator = Translator(searcher, material.source, material.target)
        self.reader = self.translator.reader(SearchOptions(beam=1), truncate=True)
        self.examples = _spread(material.dev, MOST_EXAMPLES)
        self.prepared = list(sound(self.reader.prepare(self.examples)))
        self.references = [one.target or "" for one in self.examples]
        self.language = recipe.pairs.language
        self.remarks: list[str] = []
        """What to say before training."""
        if len(self.examples) < len(material.dev):
            self.remarks.append(
                f"while training, BLEU is counted on {len(self.examples):,} of the {len(material.dev):,} dev pairs"
            )
        if self.reader.cut:
            self.remarks.append(cut_told(self.reader.cut, "dev source"))
        if self.language is None and sum(len(one.split()) for one in self.references) < 1.5 * len(self.references):
            self.language = UNSPACED
            self.remarks.append("the targets have hardly any spaces, hence BLEU counts characters, not words")
        part = recipe.learning
        self.states = States(model, "bleu", count=part.average, newest=part.average_of == "last")
        """Those to average."""

    def translations(self) -> list[str]:
        """What the model makes of the dev set now."""
        return [best[0].text for best in self.reader.answer(self.prepared)]

    def bleu(self, translations: list[str]) -> float:
        """How good that is."""
        return bleu_score(translations, self.references, language=self.language)

    def look(self) -> Looked:
        """Evaluate the model as it is; the BLEU, and some of the translations."""
        found = self.translations()
        samples = [
            Sample(self.examples[number].source, found[number], self.references[number])
            for number in spread(len(found), self.samples)
        ]
        return Looked({"bleu": self.bleu(found)}, samples, aloud=True)

    def settle(self) -> tuple[float, list[int]]:
        """Give the model the mean of the states that were kept; of the best ones, or the very best if that is better.

        Its BLEU, and the steps after which those states were.
        """
        states = self.states
        mean = {
            name: torch.stack([one.weights[name].double() for one in states.kept]).mean(0).to(tensor.dtype)
            for name, tensor in states.kept[0].weights.items()
        }
        self.model.load_state_dict(mean)
        bleu = self.bleu(self.translations())
        if not states.newest and states.best.worth > bleu:
            self.model.load_state_dict(states.best.weights)
            return states.best.worth, [states.best.step]
        return bleu, [one.step for one in states.kept]


def _spread(pairs: list[PairExample], most: int) -> list[PairExample]:
    """At most so many of the pairs, evenly from all of them."""
    if len(pairs) <= most:
        return pairs
    return [pairs[number * len(pairs) // most] for number in range(most)]
