"""Pictures of a run: its curves, and what its positions look like.

Shapes: T positions, D width.
"""

from pathlib import Path

import matplotlib
import numpy as np
import torch.nn.functional as F
from torch import Tensor

from heedful.errors import UserError
from heedful.models.bert import Bert, BertForPretraining
from heedful.nn.positions import sinusoidal
from heedful.train import log

matplotlib.use("Agg")

from matplotlib import pyplot as plt

FORMATS = ("png", "svg", "pdf")
TITLES = {
    "mlm_loss": "masked words: loss",
    "mlm_accuracy": "masked words: share right",
    "nsp_loss": "next sentence: loss",
    "nsp_accuracy": "next sentence: share right",
    "lr": "learning rate",
    "tokens_per_second": "tokens a second",
}


def curves(folder: Path, path: Path) -> None:
    """Draw what metrics.jsonl says: a panel a metric, training as a line, held-out text as dots."""
    lines = log.read(folder)
    if not lines:
        raise UserError(f"{folder} has no reports yet; train a little first")
    shown = [name for name in TITLES if any(name in line for line in lines)]
    if not shown:
        raise UserError(f"{folder} has no reports of a kind that is known here ({', '.join(TITLES)})")
    if path.suffix[1:].lower() not in FORMATS:
        raise UserError(f"{path} can't be drawn; let its name end in .{', .'.join(FORMATS)}")
    rows = (len(shown) + 1) // 2
    figure, axes = plt.subplots(rows, 2, figsize=(11, 3.2 * rows), layout="constrained", squeeze=False)
    for name, axis in zip(shown, axes.flat, strict=False):
        for kind, style, label in (("train", "-", "training"), ("heldout", "o-", "held out")):
            points = [(line["step"], line[name]) for line in lines if line["kind"] == kind and name in line]
            if points:
                steps, values = zip(*points, strict=True)
                axis.plot(steps, values, style, markersize=4, linewidth=1.2, label=label)
        axis.set_title(TITLES[name], fontsize=10)
        axis.set_xlabel("step", fontsize=9)
        axis.grid(alpha=0.25)
        if len(axis.lines) > 1:
            axis.legend(fontsize=8)
    for axis in list(axes.flat)[len(shown) :]:
        axis.remove()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def positions(learned: Tensor, length: int, path: Path) -> None:
    """Draw the model's learned positions (T, D) beside the sinusoids: the values, and who is like whom."""
    fixed = sinusoidal(length, learned.shape[1])
    used = learned[:length].detach().float().cpu()
    figure, axes = plt.subplots(2, 2, figsize=(11, 8), layout="constrained")
    for row, (name, encoding) in enumerate((("sinusoidal", fixed), ("learned by this model", used))):
        limit = float(np.percentile(encoding.abs().numpy(), 99)) or 1.0
        image = axes[row, 0].imshow(encoding.numpy(), aspect="auto", cmap="RdBu", vmin=-limit, vmax=limit)
        axes[row, 0].set(title=f"{name}: value", xlabel="dimension", ylabel="position")
        figure.colorbar(image, ax=axes[row, 0])
        centred = encoding - encoding.mean(0) if row else encoding
        similarity = F.cosine_similarity(centred[:, None], centred[None], dim=-1)  # (T, T)
        image = axes[row, 1].imshow(similarity.numpy(), cmap="viridis")
        axes[row, 1].set(title=f"{name}: similarity of two positions", xlabel="position", ylabel="position")
        figure.colorbar(image, ax=axes[row, 1])
    figure.savefig(path, dpi=110)
    plt.close(figure)


def model_positions(model: Bert | BertForPretraining, length: int, path: Path) -> None:
    """The same for a model's own."""
    encoder = model if isinstance(model, Bert) else model.bert
    positions(encoder.embeddings.positions.weight, min(length, encoder.config.max_length), path)
