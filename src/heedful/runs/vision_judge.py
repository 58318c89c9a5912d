"""Evaluates an image classifier while it trains.

Shapes: N images, B images of a batch, K classes.
"""

import torch
import torch.nn.functional as F

from heedful.data.image_sampler import ImageSampler
from heedful.metrics.classification import Report, one_of
from heedful.models.vit import ViTClassifier
from heedful.runs.device import Compute
from heedful.runs.vision_material import VisionMaterial
from heedful.runs.watching import Looked, States
from heedful.tasks.scoring import on_device
from heedful.tasks.vision import seen

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

    @torch.no_grad()
    def report(self) -> Report:
        """How well the model does now on the images held out, class by class; with the mean loss."""
        material, device = self.material, self.compute.device
        self.model.eval()
        predicted, losses = [], []
        size = material.recipe.learning.batch or BATCH  # what was enough memory for training is so here
        for batch in ImageSampler(images=material.heldout, batch=size, seed=0).once():
            pixels, _ = seen(batch, device, material.read_as)
            with self.compute.autocast():
                scores = self.model(pixels).float()
            predicted.append(scores.argmax(-1))
            losses.append(F.cross_entropy(scores, on_device(batch.labels, device), reduction="sum"))
        found = one_of(material.heldout.classes, material.heldout.labels, torch.cat(predicted).cpu().numpy())
        loss = float(torch.stack(losses).sum()) / len(material.heldout)
        return found._replace(scores={"loss": loss, **found.scores})

    def look(self) -> Looked:
        """Evaluate the model as it is."""
        return Looked(self.report().scores)
