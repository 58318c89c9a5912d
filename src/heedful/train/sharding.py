"""Parameters, gradients and optimizer state spread over the ranks: ZeRO (Rajbhandari et al. 2020), here FSDP2.

A layer's parameters are put together when it is used and given up again; its gradients are summed in parts. Of a
checkpoint every rank writes its own part, and any number of ranks can read it: `torch.distributed.checkpoint` knows
where everything lies. Around that, a checkpoint is made, named and checked as in `train/checkpoint.py`.
"""

import errno
import os
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch import Tensor, nn
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard

from heedful.durable import file_digest
from heedful.errors import UserError
from heedful.train import checkpoint
from heedful.train.distributed import World
from heedful.train.optim import load_state_tensors, state_tensors


def shard(model: nn.Module, layers: Iterable[nn.Module], device: torch.device, ranks: World) -> World:
    """Leave each rank its part of the layers, and of what else the model has; the world that then is. Alone, nothing.

    The model must be the same everywhere, and its optimizer is made afterwards.
    """
    if ranks.ranks == 1:
        return ranks
    mesh = init_device_mesh(device.type, (ranks.ranks,))
    for layer in layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    for part in model.modules():
        if isinstance(part, FSDPModule):  # sums, not means: the loss is divided by everybody's count already
            part.set_force_sum_reduction_for_comms(True)
            part.set_gradient_divide_factor(1.0)
    return ranks._replace(sharded=True)


def gathered(model: nn.Module, ranks: World) -> dict[str, Tensor]:
    """All weights, put together for the leading rank; nothing for the others, who take part."""
    found = {}
    for name, tensor in model.state_dict().items():
        whole = ranks.whole(tensor)
        if ranks.leads:
            found[name] = whole.cpu()
    return found


def save(
    folder: Path,
    *,
    step: int,
    state: dict[str, Any],
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    keep: int,
    ranks: World,
) -> None:
    """Write a checkpoint together, then remove all but the newest `keep`."""
    with checkpoint.writing(folder, step, keep) if ranks.leads else nullcontext() as leading:
        aside = ranks.share(leading)
        assert aside is not None
        memory = {f"optimizer/{name}": part for name, part in state_tensors(optimizer, model).items()}
        with _as_one(aside):
            dcp.save({**_weights(model), **memory}, checkpoint_id=aside, no_dist=ranks.ranks == 1)
        names = [f"__{ranks.rank}_*", ".metadata"] if ranks.leads else [f"__{ranks.rank}_*"]
        mine = {path.name: file_digest(path) for name in names for path in aside.glob(name)}
        checksums = {name: digest for theirs in ranks.gather(mine) for name, digest in theirs.items()}
        if ranks.leads:
            for name in checksums:
                if not (aside / name).is_file():
                    raise UserError(
                        f"another process has written {name}, but not into the {folder} that is here; "
                        "every node must see the same --out"
                    )
            checkpoint.seal(aside, step, state, checksums)
    ranks.barrier()


def load_last(
    folder: Path,
    *,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    ranks: World,
    warn: Callable[[str], None],
) -> dict[str, Any] | None:
    """Put back the newest checkpoint that is whole, and give the run's numbers; None if there was never one."""
    found = ranks.share(checkpoint.last(folder, warn, _found) if ranks.leads else None)
    if found is None:
        return None
    path, state = found
    weights = _weights(model)
    with _as_one(path):
        memory = _memory(dcp.FileSystemReader(path), model)
        dcp.load({**weights, **memory}, checkpoint_id=path, no_dist=ranks.ranks == 1)
    load_state_tensors(optimizer, model, {name.removeprefix("optimizer/"): part for name, part in memory.items()})
    return state


def _found(path: Path) -> tuple[Path, dict[str, Any]]:
    return path, checkpoint.verified(path)[1]


def _weights(model: nn.Module) -> dict[str, Tensor]:
    return {f"model/{name}": tensor for name, tensor in model.state_dict().items()}


def _memory(reader: dcp.FileSystemReader, model: nn.Module) -> dict[str, Tensor]:
    """Room for what the optimizer remembered of each parameter: as it lies, or, like the steps, whole everywhere."""
    parameters = {f"optimizer/{name}": parameter for name, parameter in model.named_parameters()}
    room = {}
    for name, kept in reader.read_metadata().state_dict_metadata.items():
        parameter = parameters.get(name.rpartition("/")[0])
        if parameter is not None and isinstance(kept, TensorStorageMetadata):
            alike = kept.size == parameter.shape
            dtype = kept.properties.dtype
            room[name] = (
                torch.zeros_like(parameter, dtype=dtype, requires_grad=False)
                if alike
                else torch.zeros(kept.size, dtype=dtype)
            )
    return room


@contextmanager
def _as_one(path: Path) -> Iterator[None]:
    """What goes wrong for one rank is raised as what it is; that there is but one is no reason to warn."""
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "torch.distributed is (disabled|unavailable)", UserWarning)
            yield
    except dcp.api.CheckpointException as error:
        cause, _ = error.failures[min(error.failures)]
        if "inline_container" in str(cause):  # how torch says that less was written than it wrote
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path)) from None
        raise cause from None
