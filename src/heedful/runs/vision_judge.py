"""Evaluates an image classifier while it trains.

Shapes: N images, B images of a batch, K classes.
"""

from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F

from heedful.data.image_sampler import ImageSampler
from heedful.metrics.classification import Report, one_of
from heedful.models.vit import ViTClassifier
from heedful.runs.device import Compute
from heedful.runs.samples import spread
from heedful.runs.vision_material import VisionMaterial
from heedful.runs.watching import Looked, States
from heedful.tasks.vision import seen
from heedful.train.log import Sample

METRIC = "accuracy"
"""What tells the best."""
BATCH = 256


class VisionJudge:
    """Evaluates a model while it trains, and keeps the best state."""

    def __init__(self, model: ViTClassifier, material: VisionMaterial, compute: Compute) -> None:
        self.model = model
        self.material = material
        self.compute = compute
        self.states = States(model, METRIC)

    def report(self) -> Report:
        """How well the model does now on the images held out, class by class; with the mean loss."""
        return self._seen().report

    def look(self) -> Looked:
        """Evaluate the model as it is."""
        found, images = self._seen(), self.material.heldout
        samples = [
            Sample(
                f"image {number}",
                images.classes[found.predicted[number]],
                images.classes[images.labels[number]],
                round(float(found.sure[number]), 4),
            )
            for number in spread(len(images))
        ]
        return Looked(found.report.scores, samples)

    @torch.no_grad()
    def _seen(self) -> "_Seen":
        """All images held out, through the model as it is."""
        material, device = self.material, self.compute.device
        self.model.eval()
        predicted, sure, losses = [], [], []
        size = material.recipe.learning.batch or BATCH  # what was enough memory for training is so here
        for batch in ImageSampler(images=material.heldout, batch=size, seed=0).once():
            pixels, labels, _ = seen(batch, device, material.read_as)
            with self.compute.autocast():
                scores = self.model(pixels).float()
            predicted.append(scores.argmax(-1))
            sure.append(scores.softmax(-1).amax(-1))
            losses.append(F.cross_entropy(scores, labels, reduction="sum"))
        answers, probabilities = (torch.cat(each).cpu().numpy() for each in (predicted, sure))
        found = one_of(material.heldout.classes, material.heldout.labels, answers)
        loss = float(torch.stack(losses).sum()) / len(material.heldout)
        return _Seen(found._replace(scores={"loss": loss, **found.scores}), answers, probabilities)


class _Seen(NamedTuple):
    """What a model makes of the images held out."""

    report: Report
    predicted: np.ndarray
    """(N,): the class of each."""
    sure: np.ndarray
    """(N,): how probable the model finds it."""
