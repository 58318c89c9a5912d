"""Evaluates a translator while it trains, remembers the states to average, and shows what it writes."""

import torch
from torch import Tensor

from heedful.data.flaws import Flaw
from heedful.decode import SearchOptions
from heedful.errors import UserError
from heedful.metrics.translation import bleu_score
from heedful.predict.searching import TorchSearcher
from heedful.predict.translator import Translator
from heedful.runs.translator_material import TranslatorMaterial
from heedful.runs.translator_options import TranslatorRecipe
from heedful.tasks.translation import Translating
from heedful.train.loop import Metrics

State = dict[str, Tensor]


class TranslatorJudge:
    """BLEU on the dev set, translated greedily; and the states that it was best or last for."""

    def __init__(self, model: Translating, material: TranslatorMaterial, recipe: TranslatorRecipe) -> None:
        self.model = model
        self.learning = recipe.learning
        marks = material.marks
        searcher = TorchSearcher([model], marks, (marks.pad, marks.sos, material.target.unk))
        self.translator = Translator(searcher, material.source, material.target)
        self.reader = self.translator.reader(SearchOptions(beam=1), truncate=True)
        prepared = self.reader.prepare(material.dev)
        self.prepared = [one for one in prepared if not isinstance(one, Flaw)]
        self.examples = material.dev
        if not self.prepared:
            raise UserError("no pair is left to evaluate on")
        self.kept: list[tuple[float, int, State]] = []
        """BLEU, step and weights of the states to average, oldest first."""
        self.best = -1.0
        self.best_step = 0
        self.stale = 0

    def translations(self) -> list[str]:
        """What the model makes of the dev set now."""
        return [best[0].text for best in self.reader.answer(self.prepared)]

    def bleu(self, translations: list[str]) -> float:
        """How good that is."""
        return bleu_score(translations, [one.target or "" for one in self.examples])

    def look(self, step: int) -> tuple[Metrics, list[str]]:
        """Evaluate, keep the state if it is one to average; the BLEU, and the translations."""
        found = self.translations()
        bleu = self.bleu(found)
        self.stale = 0 if bleu > self.best else self.stale + 1
        if bleu >= self.best:
            self.best, self.best_step = bleu, step
        self.kept.append((bleu, step, {name: tensor.clone() for name, tensor in self.model.state_dict().items()}))
        if len(self.kept) > self.learning.average:
            # Of equals the older goes.
            worst = min(self.kept) if self.learning.average_of == "best" else self.kept[0]
            self.kept = [one for one in self.kept if one is not worst]
        return {"bleu": bleu}, found

    def settle(self) -> float:
        """Give the model the mean of the states that were kept, or the best of them if that is better; its BLEU."""
        mean = {
            name: torch.stack([state[name].double() for _, _, state in self.kept]).mean(0).to(tensor.dtype)
            for name, tensor in self.kept[0][2].items()
        }
        self.model.load_state_dict(mean)
        bleu = self.bleu(self.translations())
        top, _, state = max(self.kept, key=lambda one: one[:2])
        if top > bleu:
            self.model.load_state_dict(state)
        return max(top, bleu)
