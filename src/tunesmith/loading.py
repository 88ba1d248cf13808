"""The user's own Python: a file is run for the objects it makes, and what its code raises is told as the user's error.

Trusted code, run in whichever process asks for it. Knows nothing of what the objects mean.
"""

from __future__ import annotations

import contextlib
import importlib.util
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

from tunesmith.errors import TaskError, TunesmithError

T = TypeVar("T")


@contextlib.contextmanager
def own_code(folder: Path | None, what: str) -> Iterator[None]:
    """Run the user's code: what it raises is the task's error, at the last line of the task's folder that was reached."""
    try:
        yield
    except TunesmithError:
        raise
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        lines = [f"{f.filename}:{f.lineno}" for f in frames if Path(f.filename).parent == folder]
        if isinstance(error, SyntaxError) and not lines:
            lines = [f"{what}:{error.lineno}"]
        raise TaskError(f"{lines[-1] if lines else what}: {type(error).__name__}: {error}") from error


def made_by(file: Path, kind: type[T], *, module: str) -> list[T]:
    """Run a file as a module of that name; gives the distinct objects of one class that its names stand for."""
    spec = importlib.util.spec_from_file_location(module, file)
    assert spec is not None
    assert spec.loader is not None
    made = sys.modules[module] = importlib.util.module_from_spec(spec)
    with own_code(file.parent, str(file)):
        spec.loader.exec_module(made)
    return list({id(value): value for value in vars(made).values() if isinstance(value, kind)}.values())
