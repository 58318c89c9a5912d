"""What this machine offers: versions, processor, memory, GPU, the precision that is safe, what is missing."""

import importlib.metadata
import importlib.util
import platform
import shutil
from pathlib import Path

import psutil
import torch

import heedful
from heedful.cores import cores
from heedful.nn import gpus
from heedful.runs.cache import default_cache
from heedful.runs.device import choose

OPTIONAL = {"tensorboard": ("training curves in tensorboard", "pip install 'heedful[tensorboard]'")}


def examine() -> list[tuple[str, str]]:
    """Each thing and what is to say of it."""
    compute = choose("auto", "auto")
    cache = default_cache()
    lines = [
        ("heedful", heedful.__version__),
        ("python", f"{platform.python_version()} ({platform.system()} {platform.machine()})"),
        ("torch", torch.__version__),
        *((name, importlib.metadata.version(name)) for name in ("tokenizers", "safetensors", "numpy")),
        ("processor", f"{_processor()}, {cores()} cores for us, {torch.get_num_threads()} threads"),
        ("vector units", torch.backends.cpu.get_cpu_capability()),
        (
            "memory",
            f"{psutil.virtual_memory().total / 2**30:.1f} GiB, {psutil.virtual_memory().available / 2**30:.1f} free",
        ),
        ("disk", f"{_free(cache) / 2**30:.0f} GiB free for prepared text in {cache}"),
        ("GPU", _gpu()),
        ("precision", _precision(compute.dtype is torch.bfloat16)),
    ]
    for package, (use, install) in OPTIONAL.items():
        there = importlib.util.find_spec(package) is not None
        lines.append((package, f"installed: {use}" if there else f"missing: {use}; {install}"))
    return lines


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _free(folder: Path) -> int:
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free


def _gpu() -> str:
    if torch.version.cuda is None and torch.version.hip is None:
        return "none used: this torch is built for the CPU alone; install a CUDA build of torch to use a GPU"
    if not gpus.usable():
        why = gpus.why_not() or f"torch {torch.__version__} finds no GPU"
        return f"none used: {why}; check the driver (nvidia-smi)"
    names = []
    for number in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(number)
        names.append(f"{properties.name}, {properties.total_memory / 2**30:.0f} GiB")
    return "; ".join(names)


def _precision(half: bool) -> str:
    if half:
        return "bf16 for matrix products, fp32 for the rest"
    return "fp32 (half precision is slower on most CPUs, and kills the process on some, so it is never used there)"
