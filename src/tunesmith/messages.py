"""What is said to the process that holds a device: plain records, so that it may sit anywhere.

A `Candidate` is a binary and its launches; nothing in it says what is right. Expected outputs never cross this line in
either direction: the process gives back what the candidate wrote, and whoever asked judges it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from tunesmith.build import Build
from tunesmith.data import Layout
from tunesmith.launch import ResolvedLaunch, ResolvedWorkspace

# NaN in every floating type, then a large number: what reads memory that nothing wrote comes out different.
POISONS = (0xFF, 0x7B)
OTHER_POISONS = (0xFF, 0xFB)  # the same below zero, for what takes a minimum


@dataclass(frozen=True)
class Open:
    """Take hold of a device; the answer describes it."""

    backend: str  # cuda, opencl or null
    index: int | str  # of the null device: the architecture that it stands for
    jailed: bool = False  # shut the process in first: a CPU device runs candidates as native code


@dataclass(frozen=True)
class Case:
    """One workload's data, under a key: layouts, and per set of contents the inputs' arrays (scalars without axes)."""

    key: str
    layouts: Mapping[str, Layout]
    contents: tuple[Mapping[str, NDArray[Any]], ...]
    exchangeable: tuple[
        str, ...
    ] = ()  # inputs whose elements may stand for each other: drawn one by one from one range

    @property
    def size_bytes(self) -> int:
        """What it takes at least: each set of contents as it is, and in buffers."""
        arrays = sum(data.nbytes for content in self.contents for data in content.values())
        return arrays + len(self.contents) * sum(layout.size for layout in self.layouts.values())


@dataclass(frozen=True)
class Candidate:
    """What is launched: one build, its launches in order, its workspaces."""

    build: Build
    launches: tuple[ResolvedLaunch, ...]
    workspaces: tuple[ResolvedWorkspace, ...] = ()


@dataclass(frozen=True)
class Host:
    """A callable baseline: the task's folder and the function's name there."""

    folder: str
    name: str
    dims: Mapping[str, int]


@dataclass(frozen=True)
class RunCheck:
    """Run a candidate twice on poisoned memory; give back what it wrote, and what it touched that it must not."""

    case: str
    candidate: Candidate | Host
    content: int = 0
    poisons: tuple[int, int] = POISONS
    rows: tuple[int, ...] | None = None  # give back only these along `row_axes`
    row_axes: Mapping[str, int] | None = None


@dataclass(frozen=True)
class RunTime:
    """Time arms on one case, in turn on the same buffers; one arm alone is a measurement, two are a comparison."""

    case: str
    arms: tuple[Candidate | Host, ...]
    order: tuple[int, ...]  # which arm each sample is of
    warmups: int = 2
    behind_us: float | None = None  # stop when the first arm is surely slower than this
    settled: float = 0.0  # stop when the first arm's interval is narrower than this share
    deterministic: bool = True  # a timed launch must give the bits that it gives alone; else about the same
    give_back: int | None = None  # the buffer set whose outputs to give back
    give_back_arm: int = 0
    look_always: bool = False  # at every sample, not at two by lot
    rows: tuple[int, ...] | None = None
    row_axes: Mapping[str, int] | None = None


@dataclass(frozen=True)
class Forget:
    """Free a case's memory."""

    case: str
