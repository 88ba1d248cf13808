"""Linear algebra on one thread, for the time of a block.

A model of a few hundred trials has small matrices, and beside compilers that keep every core busy a product that waits
for threads of its own takes ten times as long (0.3 s instead of 20 ms on two loaded cores). One thread also adds up in
one order on every machine. Does nothing where numpy's library is another than OpenBLAS as its wheels bring it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import numpy as np

PREFIX, SUFFIX = "scipy_openblas", "64_"


@contextmanager
def one_thread() -> Iterator[None]:
    """Let numpy's matrix products use one thread."""
    library = _library()
    if library is None:
        yield
        return
    get, put = (getattr(library, f"{PREFIX}_{verb}_num_threads{SUFFIX}") for verb in ("get", "set"))
    before = get()
    put(1)
    try:
        yield
    finally:
        put(before)


@cache
def _library() -> ctypes.CDLL | None:
    """The library that numpy has loaded."""
    folder = Path(np.__file__).parent.parent / "numpy.libs"
    for path in sorted(folder.glob(f"lib{PREFIX}{SUFFIX}*.so")):
        try:
            library = ctypes.CDLL(str(path))
        except OSError:
            return None
        return library if hasattr(library, f"{PREFIX}_set_num_threads{SUFFIX}") else None
    return None
