"""A launch in numbers: grid, block, arguments, attributes; what a template's expressions come to for one configuration and
one workload, and all that a device's process needs to know of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tunesmith.dtype import Dtype


@dataclass(frozen=True, slots=True)
class Pointer:
    """An argument that is the address of a buffer: an argument of the task or a workspace."""

    name: str


@dataclass(frozen=True, slots=True)
class Number:
    """An argument passed by value."""

    dtype: Dtype
    value: int | float


@dataclass(frozen=True, slots=True)
class Drawn:
    """A scalar argument that is drawn like an array's elements: its number comes with the data it is launched on."""

    dtype: Dtype
    name: str


@dataclass(frozen=True, slots=True)
class Local:
    """OpenCL local memory of that many bytes."""

    size: int


@dataclass(frozen=True, slots=True)
class ResolvedLaunch:
    """One launch in numbers. A grid with a zero launches nothing."""

    entry: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    args: tuple[Pointer | Number | Drawn | Local, ...]
    shared_bytes: int = 0
    cluster: tuple[int, int, int] = (1, 1, 1)
    cooperative: bool = False
    programmatic: bool = False

    @property
    def threads(self) -> int:
        return self.block[0] * self.block[1] * self.block[2]

    @property
    def blocks(self) -> int:
        return self.grid[0] * self.grid[1] * self.grid[2]


@dataclass(frozen=True, slots=True)
class ResolvedWorkspace:
    name: str
    dtype: Dtype
    size: int  # elements
    zeroed: bool


def settled(launch: ResolvedLaunch, scalars: Mapping[str, int | float]) -> ResolvedLaunch:
    """The launch with the numbers that were drawn for its scalar arguments."""
    if not any(isinstance(arg, Drawn) for arg in launch.args):
        return launch
    args = tuple(Number(a.dtype, scalars[a.name]) if isinstance(a, Drawn) else a for a in launch.args)
    return replace(launch, args=args)
