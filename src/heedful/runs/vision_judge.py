"""Evaluates an image classifier while it trains, and remembers the best.

Shapes: N images, B images of a batch, K classes.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from heedful.data.image_sampler import ImageSampler
from heedful.metrics.classification import Report, one_of
from heedful.models.vit import ViTClassifier
from heedful.runs.device import Compute
from heedful.runs.vision_material import VisionMaterial
from heedful.tasks.scoring import on_device
from heedful.tasks.vision import seen
from heedful.train.loop import Metrics

METRIC = "accuracy"
"""What tells the best."""
BATCH = 256


class VisionJudge:
    """Evaluates a model while it trains, and remembers the best so far."""

    def __init__(self, model: ViTClassifier, material: VisionMaterial, compute: Compute) -> None:
        self.model = model
        self.material = material
        self.compute = compute
        self.best: Metrics = {}
        self.best_step = 0
        self.best_weights: dict[str, Tensor] = {}
        self.stale = 0

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

    def look(self, step: int) -> Metrics:
        """Evaluate, and keep the weights if none were better so far.

        Of equals the last is kept: on few images many tie, and who has learned longer is surer of itself.
        """
        now = self.report().scores
        gain = now[METRIC] - self.best[METRIC] if self.best else 1.0
        self.stale = 0 if gain > 0 else self.stale + 1
        if gain >= 0:
            self.best, self.best_step = now, step
            self.best_weights = {name: tensor.clone() for name, tensor in self.model.state_dict().items()}
        return now
