"""Strategies: which configuration to try next. One file each, all behind this door.

A strategy is made from a `Space` and a random generator and is told `Trial`s; it knows nothing of kernels, devices,
budgets or logging. Its state is a pure function of the space, the seed, and the asks and tells in their order: an
interrupted search is gone on with by asking and telling the same again. Several configurations are usually under way,
so it is asked again before it was told of the last.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from tunesmith.errors import UsageError, unknown
from tunesmith.space import Space
from tunesmith.template import Config
from tunesmith.trial import Trial


@runtime_checkable
class Strategy(Protocol):
    """What is asked for configurations and told what became of them."""

    def ask(self) -> Config | None:
        """A legal configuration that was not asked before. None: nothing until told; nothing at all if nothing is under way."""

    def tell(self, trial: Trial) -> None:
        """What became of a configuration that was asked. Failures are told too."""


Maker = Callable[[Space, np.random.Generator], Strategy]

GROUP = "tunesmith.strategies"  # of entry points
BUILT_IN = {
    "default": "tunesmith.search.default:Default",
    "random": "tunesmith.search.random:Random",
    "exhaustive": "tunesmith.search.exhaustive:Exhaustive",
    "annealing": "tunesmith.search.annealing:Annealing",
    "evolution": "tunesmith.search.evolution:Evolution",
}


def known() -> dict[str, str]:
    """The names that `--strategy` takes, and where each is."""
    return {**BUILT_IN, **{point.name: point.value for point in entry_points(group=GROUP)}}


def find_strategy(name: str) -> Maker:
    """A strategy by its name, or the one that a file defines: `FILE.py`, or `FILE.py:NAME` where there are several."""
    path, _, attribute = name.partition(":")
    if path.endswith(".py"):
        return _in_file(Path(path), attribute)
    listed = known()
    if name not in listed:
        raise UsageError(unknown("strategy", name, listed), hint="or a file of your own: --strategy FILE.py")
    module, _, attribute = listed[name].partition(":")
    maker: Maker = getattr(importlib.import_module(module), attribute)
    return maker


def _in_file(path: Path, attribute: str) -> Maker:
    spec = importlib.util.spec_from_file_location(f"strategy_{path.stem}", path)
    if not path.is_file() or spec is None or spec.loader is None:
        raise UsageError(f"no such file: {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise UsageError(f"{path}: {type(error).__name__}: {error}") from error
    found = {n: c for n, c in vars(module).items() if _is_strategy(c) and c.__module__ == spec.name}
    if attribute and attribute not in found:
        raise UsageError(f"{path}: " + unknown("strategy", attribute, found))
    if not attribute and len(found) != 1:
        listed = ", ".join(found) or "none"
        hint = f"--strategy {path}:NAME" if found else "write a class with ask() and tell(trial)"
        raise UsageError(f"{path} should define one class with ask and tell; it has {listed}", hint=hint)
    maker: Maker = found[attribute or next(iter(found))]
    return maker


def _is_strategy(thing: Any) -> bool:
    return inspect.isclass(thing) and callable(getattr(thing, "ask", None)) and callable(getattr(thing, "tell", None))
