"""Evaluates a model while it trains."""

from typing import Any

import numpy as np

from heedful.data.flaws import Flaw, sound
from heedful.errors import UserError
from heedful.models.heads import BertForTask
from heedful.predict.engine import TorchEngine
from heedful.predict.predictor import METHODS, Predictor
from heedful.predict.texts import cut_remark
from heedful.runs.dataset import Scale
from heedful.runs.evaluation import measure
from heedful.runs.finetune_options import LOWER_IS_BETTER
from heedful.runs.material import Material, because
from heedful.runs.samples import answered
from heedful.runs.watching import Looked, States


class Judge:
    """Evaluates a model while it trains, and keeps the best state."""

    def __init__(self, model: BertForTask, material: Material) -> None:
        self.model = model
        self.material = material
        predictor = Predictor(TorchEngine(model), material.tokenizer)
        self.reader = predictor.reader(METHODS[material.head.task], truncate=material.recipe.data.truncate)
        prepared = self.reader.prepare(material.dev)
        sides = [
            (one, ready) for one, ready in zip(material.dev, prepared, strict=True) if not isinstance(ready, Flaw)
        ]
        self.cut = cut_remark(self.reader)
        self.skipped: list[Flaw] = []
        list(sound(prepared, material.recipe.data.skip_bad, self.skipped))
        if not sides:
            raise UserError(f"no example is left to evaluate on{because(self.skipped)}")
        self.examples, self.prepared = [one for one, _ in sides], [ready for _, ready in sides]
        metric = material.recipe.head.metric
        assert metric is not None
        self.states = States(model, metric, lower_is_better=metric in LOWER_IS_BETTER)

    def look(self) -> Looked:
        """Evaluate the model as it is; how well it does, and some of its answers."""
        answers: list[Any] = list(self.reader.answer(self.prepared))
        if self.material.scaling is not None:
            answers = [_unscaled(one, self.material.scaling) for one in answers]
        head = self.material.head
        return Looked(measure(head, self.examples, answers).scores, answered(head, self.examples, answers))


def _unscaled(answer: dict[str, float], scaling: Scale) -> dict[str, float]:
    numbers = np.array(list(answer.values())) * scaling.deviation + scaling.mean
    return dict(zip(answer, numbers.tolist(), strict=True))
