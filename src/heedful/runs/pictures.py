"""Pictures of a run: its curves, what it takes for what, where it looks, and what its positions look like.

Shapes: T positions or target length, S source length, D width, C labels.
"""

import textwrap
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import matplotlib
import numpy as np
import torch.nn.functional as F
from torch import Tensor

from heedful.data.subwords import SPACE
from heedful.errors import UserError
from heedful.models.bert import Bert, BertForPretraining
from heedful.nn.positions import sinusoidal
from heedful.predict.translator import Alignment
from heedful.runs import fonts
from heedful.train import log
from heedful.wording import shortened

matplotlib.use("Agg")

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

FORMATS = ("png", "svg", "pdf")
LONGEST_LABEL = 24
MOST_COUNTS = 60
SPELLED = "they are spelled as they sound"
TITLES = {
    "mlm_loss": "masked words: loss",
    "mlm_accuracy": "masked words: share right",
    "nsp_loss": "next sentence: loss",
    "nsp_accuracy": "next sentence: share right",
    **{f"{task}_loss": "loss" for task in ("classify", "multilabel", "regress", "tag", "answer")},
    "image_loss": "images: loss",
    "image_accuracy": "images: share right",
    "token_loss": "next token: loss",
    "token_accuracy": "next token: share right",
    "bleu": "BLEU",
    "accuracy": "share right",
    "f1": "F1",
    "micro_f1": "F1 over all labels",
    "macro_f1": "mean F1 of the classes",
    "matthews": "Matthews correlation",
    "exact": "exactly right",
    "pearson": "Pearson correlation",
    "spearman": "Spearman correlation",
    "rmse": "root of the mean squared error",
    "mae": "mean error",
    "r2": "R²",
    "precision": "precision",
    "recall": "recall",
    "lr": "learning rate",
    "tokens_per_second": "tokens a second",
    "pair_loss": "word and context: loss",
    "words_per_second": "words a second",
    "images_per_second": "images a second",
}

ALONE = ("lr", "tokens_per_second", "words_per_second", "images_per_second")
"""What only training has."""
HELD_OUT = {
    **{f"{task}_loss": "loss" for task in ("classify", "multilabel", "regress", "tag", "answer", "image")},
    "image_accuracy": "accuracy",
}
"""What a metric of the training is called where it is of what was held out."""
CHANGED = "training, images as changed"
"""Harder to tell than those held out, so the two do not compare."""


def curves(folder: Path, path: Path) -> None:
    """Draw what metrics.jsonl says: a panel a metric, training as a line, what was held out as dots."""
    lines = log.read(folder)
    if not lines:
        raise UserError(f"{folder} has no reports yet; train a little first")
    shown = [name for name in TITLES if any(name in line for line in lines)]
    of_others = {HELD_OUT[name] for name in shown if name in HELD_OUT}
    shown = [name for name in shown if name not in of_others]
    if not shown:
        raise UserError(f"{folder} has no reports of a kind that is known here ({', '.join(TITLES)})")
    check_format(path)
    rows = (len(shown) + 1) // 2
    figure, axes = plt.subplots(rows, 2, figsize=(11, 3.2 * rows), layout="constrained", squeeze=False)
    for name, axis in zip(shown, axes.flat, strict=False):
        there = []
        for kind, style, label in (("train", "C0-", "training"), ("heldout", "C1o-", "held out")):
            told = HELD_OUT.get(name, name) if kind == "heldout" else name
            if kind == "train" and name.startswith("image_"):
                label = CHANGED
            points = [(line["step"], line[told]) for line in lines if line["kind"] == kind and told in line]
            if points:
                steps, values = zip(*points, strict=True)
                axis.plot(steps, values, style, markersize=4, linewidth=1.2, label=label)
                there.append(label)
        which = f" ({there[0]})" if len(there) == 1 and name not in ALONE else ""
        axis.set_title(TITLES[name] + which, fontsize=10)
        axis.set_xlabel("step", fontsize=9)
        axis.grid(alpha=0.25)
        if len(axis.lines) > 1:
            axis.legend(fontsize=8)
    for axis in list(axes.flat)[len(shown) :]:
        axis.remove()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def confusion(matrix: np.ndarray, labels: Sequence[str], out: Path) -> str | None:
    """Draw (C, C) counts, truth in rows, predictions in columns; a cell's shade is its share of the row.

    Beyond MOST_COUNTS labels the shades alone are drawn, and not every label is named: nobody could read them.
    What there is to say of letters that could not be drawn, here as in the other pictures of a user's words.
    """
    size = len(labels)
    if matrix.shape != (size, size):
        raise ValueError(f"matrix must have shape {(size, size)}; got {matrix.shape}")
    check_format(out)
    share = matrix / np.maximum(matrix.sum(1, keepdims=True), 1)
    step = -(-size // MOST_COUNTS)
    cell = min(0.9, max(0.36, 7 / size)) / step  # inches: few labels have room, many still hold their counts
    names = [short(label) for label in labels[::step]]
    families, lacking = fonts.choose("".join(names))
    style = {"family": families, "fontsize": min(10.0, 32 * cell * step), "parse_math": False}
    edge = 1.2 + 0.09 * max(map(len, names))
    figure, axis = plt.subplots(figsize=(size * cell + edge + 1, size * cell + edge), layout="compressed")
    image = axis.imshow(share, cmap="Blues", vmin=0, vmax=1)
    axis.set_xticks(range(0, size, step), names, rotation=90 if size > 6 or edge > 2.1 else 0, **style)
    axis.set_yticks(range(0, size, step), names, **style)
    axis.set(xlabel="predicted", ylabel="truth")
    if step == 1:
        _counts(axis, matrix, share, 72 * cell)
    figure.colorbar(image, ax=axis, label="share of the row", fraction=0.04, pad=0.02)
    save(figure, out)
    return fonts.lacks(lacking)


def alignment(found: Alignment, path: Path, spelled: Mapping[str, str] | None = None) -> str | None:
    """Draw where a translation's pieces looked, (T, S): the source from left to right, the translation downwards.

    Letters that no installed font has are replaced by what `spelled` says of them.
    """
    check_format(path)
    columns, rows = ([_piece(piece) for piece in side] for side in (found.source, found.target))
    families, lacking = fonts.choose("".join([*columns, *rows]))
    spelling = {letter: text for letter, text in (spelled or {}).items() if letter in lacking}
    columns, rows = ([_spell(piece, spelling) for piece in side] for side in (columns, rows))
    height, width = found.weights.shape
    cell = 0.42  # inches
    edge = 0.9 + 0.09 * max(map(len, [*columns, *rows]))
    figure, axis = plt.subplots(figsize=(width * cell + edge + 1.2, height * cell + edge), layout="constrained")
    image = axis.imshow(found.weights, cmap="Blues", vmin=0, vmax=1)
    style = {"family": families, "fontsize": 10, "parse_math": False}
    axis.set_xticks(range(width), columns, rotation=90, **style)
    axis.set_yticks(range(height), rows, **style)
    axis.xaxis.tick_top()
    axis.xaxis.set_label_position("top")
    axis.set(xlabel="read", ylabel="written")
    figure.colorbar(image, ax=axis, label="share of the attention", fraction=0.04, pad=0.02)
    save(figure, path)
    told = fonts.lacks(spelling, SPELLED), fonts.lacks(lacking - spelling.keys())
    return "; ".join(filter(None, told)) or None


class Column(NamedTuple):
    """Words as bars."""

    title: str
    measure: str
    """What the bars tell."""
    found: Sequence[tuple[str, float]]


def contrast(
    word: str,
    similarities: Sequence[float],
    others: Sequence[float],
    layer: int,
    columns: Sequence[Column],
    path: Path,
    remark: str | None = None,
) -> str | None:
    """Draw how alike a word is to itself in two sentences, layer by layer, and below it columns of near words."""
    check_format(path)
    titles = ["\n".join(textwrap.wrap(title, 34, max_lines=3, placeholder=" …")) for title, *_ in columns]
    names = [[short(name) for name, _ in column.found] for column in columns]
    families, lacking = fonts.choose("".join([word, *titles, *(name for column in names for name in column)]))
    figure = plt.figure(figsize=(11, 7.2), layout="constrained")
    above, below = figure.add_gridspec(2, len(columns), height_ratios=(1, 0.9)), []
    axis = figure.add_subplot(above[0, :])
    steps = range(len(similarities))
    axis.axhline(1.0, color="tab:grey", linewidth=1.4, label="one vector a word: the same in both")
    axis.plot(steps, similarities, "o-", color="tab:blue", label="the model: the word in one sentence and the other")
    axis.plot(steps, others, "--", color="tab:orange", label="the model: two different words")
    axis.axvline(layer, color="tab:blue", alpha=0.2, linewidth=6)
    axis.set_xticks(steps, ["input", *map(str, steps[1:])])
    axis.set(xlabel="layer", ylabel="cosine", ylim=(min(0.0, *similarities, *others) - 0.05, 1.08))
    axis.set_title(f"“{short(word)}” and itself", family=families, parse_math=False)
    axis.legend(fontsize=9, loc="best")
    axis.grid(alpha=0.25)
    for number, (title, column, (_, measure, found)) in enumerate(zip(titles, names, columns, strict=True)):
        below.append(figure.add_subplot(above[1, number]))
        bars = range(len(found))
        below[-1].barh(
            bars, [value for _, value in found], color="tab:grey" if not number else "tab:blue", height=0.6
        )
        below[-1].set_yticks(bars, column, family=families, parse_math=False)
        below[-1].invert_yaxis()
        below[-1].set_xlabel(measure)
        below[-1].xaxis.set_major_locator(MaxNLocator(4))
        below[-1].set_title(title, fontsize=10, family=families, parse_math=False)
    if remark is not None:
        figure.supxlabel(remark, fontsize=9)
    save(figure, path)
    return fonts.lacks(lacking)


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
    if encoder.embeddings.positions is None:
        raise UserError("the model has learned no positions to draw; its own are rotary")
    positions(encoder.embeddings.positions.weight, min(length, encoder.config.max_length), path)


def check_format(path: Path) -> None:
    """Refuse a picture of a kind that can't be drawn, or in a folder that isn't there."""
    if path.suffix[1:].lower() not in FORMATS:
        raise UserError(f"{path} can't be drawn; let its name end in .{', .'.join(FORMATS)}")
    if not path.parent.is_dir():
        raise UserError(f"{path} can't be drawn: there is no folder {path.parent}; make it, or choose another")


def _counts(axis: Axes, matrix: np.ndarray, share: np.ndarray, points: float) -> None:
    """Write each count into its cell, which is so many points wide."""
    fontsize = min(11.0, 0.9 * points / (0.64 * len(str(matrix.max()))))  # a digit is 0.64 of its height wide
    for (row, column), count in np.ndenumerate(matrix):
        colour = "0.75" if not count else "white" if share[row, column] > 0.55 else "black"
        axis.text(column, row, str(count), ha="center", va="center", fontsize=fontsize, color=colour)


def save(figure: Figure, path: Path) -> None:
    """Write a figure, and have done with it."""
    with warnings.catch_warnings():
        # where no installed font has a label's letters, boxes stand for them, and `fonts.lacks` says so
        warnings.filterwarnings("ignore", message=r"Glyph .* missing from font")
        figure.savefig(path, dpi=110)
    plt.close(figure)


def _piece(piece: str) -> str:
    """A piece without the mark of a word's beginning, unless it is nothing else."""
    return short(piece.removeprefix(SPACE) or piece)


def _spell(piece: str, spelling: Mapping[str, str]) -> str:
    """A piece with letters replaced by how they are spelled, a hyphen between two."""
    return "-".join(spelling.get(letter, letter) for letter in piece) if {*piece} & spelling.keys() else piece


def short(label: str) -> str:
    """A label on one line, and not so long that it takes the picture's place."""
    return shortened(" ".join(label.split()), LONGEST_LABEL)
