"""Where fine-tuning starts: an encoder that exists, its head or a new one, and the optimizer of what may change."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from heedful.errors import UserError
from heedful.formats.huggingface import load_model
from heedful.formats.sentence_transformers import read_pooling
from heedful.models.bert import Bert, initialise
from heedful.models.heads import BertForTask, Head
from heedful.runs.dataset import Scale
from heedful.runs.finetune_options import FinetuneRecipe, LearningPart
from heedful.train.optim import adamw


def build(
    recipe: FinetuneRecipe, head: Head, scaling: Scale | None = None, say: Callable[[str], None] = lambda _: None
) -> BertForTask:
    """The model to train: the encoder of the one to start from, and its head if that is for the same."""
    loaded = load_model(read_pooling(Path(recipe.start_from or ""))[0])
    learning = recipe.learning
    config = replace(
        loaded.config,
        pool=recipe.head.pool or "cls",
        dropout=loaded.config.dropout if learning.dropout is None else learning.dropout,
        attention_dropout=(
            loaded.config.attention_dropout if learning.attention_dropout is None else learning.attention_dropout
        ),
    )
    if learning.freeze > config.layers:
        raise UserError(f"freeze {learning.freeze} is more than the model's {config.layers} layers; -1 means all")
    model = BertForTask(config, head)
    initialise(model, config.init_std, torch.Generator().manual_seed(recipe.run.seed))
    prefix = "bert." if isinstance(loaded, Bert) else ""
    weights = {prefix + name: tensor for name, tensor in loaded.state_dict().items()}
    old = loaded.head if isinstance(loaded, BertForTask) else None
    same = old is not None and (old.task, old.labels, loaded.config.pool) == (head.task, head.labels, config.pool)
    if old is not None and not same:
        say("the model's head is for another task, other labels or another --pool: a new one is trained")
    known = {name for name in model.state_dict() if same or not name.startswith("output.")}
    # A ModernBERT reads a state for every head in the same way: one that is new begins with how words are read.
    alike = {name: "mlm.transform." + ".".join(name.split(".")[-2:]) for name in known - weights.keys()}
    weights |= {name: weights[source] for name, source in alike.items() if source in weights}
    # What the old model lacks, as the head, stays as initialised.
    model.load_state_dict({name: weights[name] for name in known & weights.keys()}, strict=False)
    if same and scaling is not None:
        rescale(model.output, scaling)
    return model


def optimizer_for(model: BertForTask, learning: LearningPart) -> torch.optim.Optimizer:
    """AdamW over what is not frozen; lower layers learn slower if that is asked for."""
    layers = model.config.layers
    frozen = layers if learning.freeze == -1 else learning.freeze
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(not (learning.freeze and depth(name, layers) <= frozen))
    assert learning.lr is not None
    return adamw(
        model,
        lr=learning.lr,
        betas=(0.9, 0.999),
        eps=1e-8,
        decay=learning.weight_decay,
        scale=lambda name: learning.layer_decay ** (layers + 1 - depth(name, layers)),
    )


def depth(name: str, layers: int) -> int:
    """How far from the input a parameter is: 0 for the embeddings, then the layers, then the head."""
    if name.startswith("bert.embeddings."):
        return 0
    if name.startswith("bert.final_norm."):  # of the last layer's states
        return layers
    return int(name.split(".")[2]) + 1 if name.startswith("bert.layers.") else layers + 1


def unscale(output: nn.Linear, scaling: Scale) -> None:
    """Have the last layer give numbers in the units that they came in."""
    with torch.no_grad():
        deviation = torch.from_numpy(scaling.deviation).to(output.weight)
        output.weight.mul_(deviation[:, None])
        output.bias.mul_(deviation).add_(torch.from_numpy(scaling.mean).to(output.bias))


def rescale(output: nn.Linear, scaling: Scale) -> None:
    """Have a last layer that gives numbers in the units that they came in learn on scaled ones: undoes `unscale`."""
    with torch.no_grad():
        deviation = torch.from_numpy(scaling.deviation).to(output.weight)
        output.weight.div_(deviation[:, None])
        output.bias.sub_(torch.from_numpy(scaling.mean).to(output.bias)).div_(deviation)
