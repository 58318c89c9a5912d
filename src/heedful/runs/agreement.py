"""What the processes of a run agree on before they work together: where they differ, it would be spoilt, or wait."""

import platform
from collections.abc import Callable
from typing import Any, TypeVar

from torch import nn

from heedful.config import differences
from heedful.errors import UserError
from heedful.nn import gpus
from heedful.runs.device import Compute
from heedful.runs.folder import typed
from heedful.train.distributed import World
from heedful.wording import counted

T = TypeVar("T")


def require_same(value: T, ranks: World, said: Callable[[T, T], str]) -> None:
    """Refuse processes that have different values; `said` tells of another's beside the leading one's."""
    (first, _), *others = ranks.gather((value, platform.node()))
    for rank, (other, node) in enumerate(others, 1):
        if other != first:
            raise ranks.ending(UserError(f"process {rank}, on {node}, {said(other, first)}"))


def require_alike(options: Any, ranks: World) -> None:
    """Refuse processes that were told to do different things."""
    first = ranks.share(options)
    if type(first) is type(options):
        other = typed([name.removeprefix("settings.") for name in differences(first, options)])
    else:
        other = "command"
    way_out = "give all the same command, and let all see the same --out"
    require_same(other, ranks, lambda other, _: f"was given another {other} than process 0; {way_out}")


def require_same_place(compute: Compute, ranks: World) -> None:
    """Refuse processes that compute on different kinds of devices: they could not add up their gradients."""
    reasons = {why for why in ranks.gather(gpus.why_not()) if why}
    why = f" (no GPU can be used there: {'; '.join(sorted(reasons))})" if reasons else ""
    way_out = "`heedful doctor` tells what each node has; --device and --precision name what all can do"
    require_same(
        f"{compute.device.type} in {str(compute.dtype).removeprefix('torch.')}",
        ranks,
        lambda other, first: f"computes on {other}, and process 0 on {first}{why}; {way_out}",
    )


def require_of_all(check: Callable[[], None], ranks: World) -> None:
    """Refuse what any of the processes refuses."""
    said = None
    try:
        check()
    except UserError as error:
        said = str(error)
    for rank, why in enumerate(ranks.gather(said)):
        if why is not None:
            raise ranks.ending(UserError(why if rank == 0 else f"process {rank} can't go on: {why}"))


def require_same_data(digest: str, ranks: World) -> None:
    """Refuse processes that have read different things under the same names."""
    require_same(digest, ranks, lambda *_: "has read other data than process 0; give every node the same files")


def share_weights(model: nn.Module, ranks: World) -> None:
    """Begin with the leading rank's weights everywhere: CPUs of two kinds draw first ones that differ a little."""
    shapes = [(name, tuple(tensor.shape), str(tensor.dtype)) for name, tensor in model.state_dict().items()]
    require_same(shapes, ranks, lambda *_: "begins with another model than process 0; give every node the same one")
    ranks.share_tensors(list(model.state_dict().values()))


def require_same_step(step: int, ranks: World) -> None:
    """Refuse processes that go on from different checkpoints: their models would drift apart without a word."""
    way_out = "every node must see the same --out"
    require_same(
        step, ranks, lambda other, first: f"goes on from step {other}, and process 0 from step {first}; {way_out}"
    )


def require_as_many(before: int, ranks: World) -> None:
    """Refuse another number of processes than a run had that counts its epochs in steps."""
    if before != ranks.ranks:
        had = f"the run had {counted(before, 'process', 'processes')}, and counts its epochs in their steps"
        raise ranks.ending(UserError(f"{had}; go on with as many, or start again in another --out"))
