"""Commands as a user types them, for measurements: positional arguments first, then flags by their names."""

import subprocess
import sys


def heedful(command: str, *positional: object, **flags: object) -> str:
    """What a heedful command says."""
    return python("heedful", command, *positional, **flags)


def python(module: str, *positional: object, **flags: object) -> str:
    """What a module says that is run as a program; True stands for a flag without a value, None for no flag."""
    typed = [str(value) for value in positional]
    for name, value in flags.items():
        if value is not None:
            typed += [f"--{name.replace('_', '-')}"] + ([] if value is True else [str(value)])
    done = subprocess.run([sys.executable, "-m", module, *typed], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{module} {' '.join(typed)}\n{done.stdout[-2000:]}\n{done.stderr[-3000:]}")
    return done.stdout
