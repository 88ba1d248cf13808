"""Timed launches: buffer sets that launches go round, the arms that run on them, and a look at what they really wrote.

Before every sample, untimed, outputs and workspaces are poisoned, in-place arguments restored, one element of an input
takes another's value, caches are emptied and warm arguments touched; a set is used once per sample. Some samples, by lot,
are looked at: one set is run again alone from a freshly loaded program and must come out the same, and a few launches
alone must leave the sets of the others as they are.
So a launch that skips its work, because it met this pointer or these contents before or is tired of counting, leaves
poison or something stale. Knows no right answers.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tunesmith.backends import host
from tunesmith.backends.session import Bytes, Placed
from tunesmith.data import GUARD, Layout
from tunesmith.launch import settled
from tunesmith.messages import Candidate, Case, Host

POISON = 0xFF  # NaN in every floating type
MAX_SETS = 256
MAX_SETS_BYTES = 8 << 30
CPU_SAMPLE_US = 20_000.0  # how long a sample should be there, where the buffer sets suffice
# On a GPU every candidate of a case gets the same number of launches per sample, for the time per launch depends on it
# (one H200, a top-k kernel: 4.0, 2.9, 2.4, 2.0, 1.85, 1.76, 1.69 µs in graphs of 1, 2, 4 … 64): a graph's start costs
# 2.4 µs of its first launch, and past some number what was written must leave the cache for memory while the clock runs
# (silu at T = 16: 1.75 µs in graphs of 64, 2.13 in graphs of 256). So: about 500 µs of launches as the bytes have it, but
# few enough that half the cache holds what they write, and eight where a single launch writes more than that.
GPU_SAMPLE_US = 500.0
GPU_BYTES_PER_US = 4e6  # about what memory carries
LEAST_LAUNCHES = 8
# Sets of a sample up to which every sample gets new contents. Above, kernels are so short that a cache of results by
# contents could not even read its key for less, and one by pointer is seen when a sample is looked at.
EXCHANGED_ALWAYS = 32
LOOK_BYTES = 1 << 18  # of each output, per look
BOUNDED = 1e-2  # how far two runs may be apart where sums may be reordered, relative, over what was looked at

LOTS = random.SystemRandom()  # no candidate, and nobody who writes one, can know them


@dataclass
class _Exchanged:
    """Of one set: the element that was given another's value."""

    name: str
    at: tuple[int, ...]
    value: Any = None


class Rotation:
    """The buffers of a case: as many sets as make launches find their data cold and fill a sample."""

    def __init__(self, session: Any, case: Case) -> None:
        self.session, self.case = session, case
        self.layouts: Mapping[str, Layout] = case.layouts
        one = max(1, sum(layout.span for layout in case.layouts.values()))
        written = max(1, sum(layout.span for layout in case.layouts.values() if layout.writes))
        wanted = session.rotation_bytes / one
        if session.limits.warp != 1:
            stays = max(LEAST_LAUNCHES, session.limits.l2_bytes / 2 / written)
            wanted = max(2, min(GPU_SAMPLE_US / (1 + one / GPU_BYTES_PER_US), stays, self.stays_warm))
        self.count = int(max(2, min(MAX_SETS, wanted + 1, MAX_SETS_BYTES / one)))
        self.pristine = [self._set(content) for content in case.contents]
        self.buffers = [self._set(None) for _ in range(self.count)]
        self._exchanged: dict[int, _Exchanged] = {}

    def _set(self, content: Mapping[str, Any] | None) -> dict[str, Any]:
        buffers = {name: self.session.allocate(layout.size) for name, layout in self.layouts.items()}
        for name, layout in self.layouts.items() if content is not None else ():
            self.session.write(buffers[name], layout.image(content.get(name), POISON))  # type: ignore[union-attr]
        return buffers

    @property
    def stays_warm(self) -> int:
        """After so many launches, on sets of their own, what was touched before the first is still in the cache."""
        if not any(layout.warm for layout in self.layouts.values()):
            return MAX_SETS
        one = max(1, sum(layout.span for layout in self.layouts.values()))
        return max(1, int(self.session.rotation_bytes) // 8 // one)  # half the cache, on a device that tells its size

    def touch(self, indices: Sequence[int]) -> None:
        """Read what the kernel before would have just written, last of all that happens before a pass."""
        for index in indices:
            for name, layout in self.layouts.items():
                if layout.warm:
                    self.session.touch(self.buffers[index][name], layout.size)

    def places(self, index: int) -> dict[str, tuple[Any, int]]:
        return {name: (buffer, self.layouts[name].offset) for name, buffer in self.buffers[index].items()}

    def restore(self, indices: Sequence[int] | None = None) -> None:
        """Every buffer of these sets (all) as it was at first: whatever a candidate did to inputs and guards ends with it."""
        for index in range(self.count) if indices is None else indices:
            self._exchanged.pop(index, None)
            for name in self.layouts:
                self._copy(index, name)

    def reset(self, indices: Sequence[int], *, same: bool = False, exchange: bool = True) -> None:
        """Before a pass, untimed. `same` gives the inputs of the last pass again, no `exchange` the contents' own."""
        for index in indices:
            for name, layout in self.layouts.items():
                if layout.writes:
                    self._copy(index, name)
            if exchange:
                self._exchange(index, same)

    def _copy(self, index: int, name: str) -> None:
        """As at first; for what is only written that is poison."""
        layout, pristine = self.layouts[name], self.pristine[index % len(self.pristine)]
        if layout.reads:
            self.session.copy(self.buffers[index][name], pristine[name], layout.size)
        else:
            self.session.fill(self.buffers[index][name], POISON, layout.size)

    def _exchange(self, index: int, same: bool) -> None:
        """Give one element the value of another of its array: the declared values hold, and no cached result does."""
        one = self._exchanged.get(index)
        if one is None:
            names = [n for n in self.case.exchangeable if n in self.layouts and 0 not in self.layouts[n].shape]
            if not names:
                return
            name = LOTS.choice(names)
            one = self._exchanged[index] = _Exchanged(name, _any_element(self.layouts[name].shape))
        layout = self.layouts[one.name]
        if not same or one.value is None:
            content = self.case.contents[index % len(self.case.contents)]
            one.value = content[one.name][_any_element(layout.shape)]
        data = np.array([one.value], layout.numpy).view(np.uint8)
        self.session.write(self.buffers[index][one.name], data, self._offset(layout, one))

    def input_bytes(self, index: int, name: str, where: slice) -> Bytes:
        """What this part of an input's buffer must still hold."""
        layout, content = self.layouts[name], self.case.contents[index % len(self.case.contents)][name]
        if where.stop <= layout.offset or where.start >= layout.offset + layout.span:
            return np.full(where.stop - where.start, POISON, np.uint8)
        dense = layout.span == content.nbytes
        image = content.reshape(-1).view(np.uint8) if dense else layout.image(content, POISON)
        base = layout.offset if dense else 0
        found = np.array(image[where.start - base : where.stop - base])
        one = self._exchanged.get(index)
        if one is not None and one.name == name and one.value is not None:
            at = self._offset(layout, one) - where.start
            if 0 <= at < found.size:
                found[at : at + layout.numpy.itemsize] = np.array([one.value], layout.numpy).view(np.uint8)
        return found

    @staticmethod
    def _offset(layout: Layout, one: _Exchanged) -> int:
        return layout.offset + sum(i * s for i, s in zip(one.at, layout.strides, strict=True)) * layout.numpy.itemsize

    def free(self) -> None:
        for buffers in (*self.buffers, *self.pristine):
            for buffer in buffers.values():
                self.session.free(buffer)


def _any_element(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(LOTS.randrange(n) for n in shape)


def add_workspaces(session: Any, candidate: Candidate, buffers: dict[str, Any], places: dict[str, Any],
                   pattern: int) -> dict[str, int]:  # fmt: skip
    """Allocate and poison a candidate's workspaces; gives their sizes in bytes, without the guards."""
    sizes = {}
    for workspace in candidate.workspaces:
        size = -(-workspace.size * workspace.dtype.itemsize // 256) * 256
        buffers[workspace.name] = session.allocate(size + 2 * GUARD)
        session.fill(buffers[workspace.name], pattern, size + 2 * GUARD)
        places[workspace.name] = (buffers[workspace.name], GUARD)
        sizes[workspace.name] = size
    return sizes


def placed(session: Any, candidate: Candidate, places: Mapping[str, tuple[Any, int]],
           content: Mapping[str, Any]) -> list[Placed]:  # fmt: skip
    """A candidate's launches with their pointers, and with the numbers of scalars that were drawn."""
    scalars = {name: data.item() for name, data in content.items() if data.ndim == 0}
    pointers = {name: session.pointer(buffer, offset) for name, (buffer, offset) in places.items()}
    zeroed = tuple((pointers[w.name], w.size * w.dtype.itemsize) for w in candidate.workspaces if w.zeroed)
    return [
        Placed(candidate.build, settled(launch, scalars), pointers, zeroed if i == 0 else ())
        for i, launch in enumerate(candidate.launches)
    ]


class Arm:
    """What is timed, ready to be sampled: as many launches per sample as make it long enough for the device's clock."""

    def __init__(self, rotation: Rotation, arm: Candidate | Host) -> None:
        self.rotation, self.arm, self.session = rotation, arm, rotation.session
        self.on_cpu = self.session.limits.warp == 1
        self._workspaces: list[dict[str, Any]] = []
        self._workspace_bytes: dict[str, int] = {}
        self.batch: list[list[Placed]] = []
        self._calls: list[Callable[[], Any]] = []
        try:
            self._place()
            self._size()
        except BaseException:
            self.free()
            raise

    def _place(self) -> None:
        rotation, arm = self.rotation, self.arm
        contents = rotation.case.contents
        if isinstance(arm, Host):
            self._calls = [
                host.bind(self.session, arm, rotation.layouts, rotation.places(i), contents[i % len(contents)])
                for i in range(rotation.count)
            ]
            return
        # Workspaces rotate over as much memory as inputs do; neighbours have their own, for launches may overlap.
        one = sum(w.size * w.dtype.itemsize for w in arm.workspaces)
        copies = max(2, min(rotation.count, int(self.session.rotation_bytes / max(1, one)) + 1))
        found: list[dict[str, Any]] = []
        for _ in range(copies if arm.workspaces else 1):
            self._workspaces.append({})
            found.append({})
            self._workspace_bytes = add_workspaces(self.session, arm, self._workspaces[-1], found[-1], POISON)
        self.batch = [
            placed(self.session, arm, {**rotation.places(i), **found[i % len(found)]}, contents[i % len(contents)])
            for i in range(rotation.count)
        ]

    def _size(self) -> None:
        """How many launches a sample holds, each on a buffer set of its own."""
        self.next = 0
        self.last: list[int] = [0]  # the sets of the last sample
        self.launches = self.rotation.count
        self.replay: Callable[[], None] | None = None
        if not self.on_cpu:
            self.replay = self.launcher(range(self.launches))
            return
        first = self._region([0], exchange=True)
        one = min(first, self._region([0], exchange=True)) if first < CPU_SAMPLE_US else first
        count = min(self.rotation.count, self.rotation.stays_warm)
        self.launches = max(1, min(count, int(CPU_SAMPLE_US / max(one, 0.01)) + 1))

    def launcher(self, indices: Sequence[int]) -> Callable[[], None]:
        if isinstance(self.arm, Host):
            calls = [self._calls[i] for i in indices]
            ready: Callable[[], None] = self.session.prepare_callable(calls, host.captures(self.arm))
        else:
            ready = self.session.prepare([self.batch[i] for i in indices])
        return ready

    def _region(
        self, indices: Sequence[int], replay: Callable[[], None] | None = None, *, exchange: bool = False
    ) -> float:
        """One timed region, over some sets, with everything before it that is not timed."""
        self.last = list(indices)
        ready = replay or self.launcher(self.last)
        return float(self.session.time(lambda: self.before(self.last, exchange=exchange), ready))

    def before(self, indices: Sequence[int], *, exchange: bool = False) -> None:
        self.reset(indices, exchange=exchange)
        self.session.flush()
        self.rotation.touch(indices)

    def reset(self, indices: Sequence[int], *, same: bool = False, exchange: bool = True) -> None:
        self.rotation.reset(indices, same=same, exchange=exchange)
        for buffers in self._workspaces:
            for name, size in self._workspace_bytes.items():
                self.session.fill(buffers[name], POISON, size + 2 * GUARD)

    def sample(self, *, looked_at: bool = False) -> float:
        """Microseconds per launch. A GPU replays one graph over its sets; a CPU goes on through the rotation."""
        exchange = looked_at or self.on_cpu or self.launches <= EXCHANGED_ALWAYS
        if self.replay is not None:
            return self._region(range(self.launches), self.replay, exchange=exchange) / self.launches
        indices = [(self.next + i) % self.rotation.count for i in range(self.launches)]
        self.next = (self.next + self.launches) % self.rotation.count
        return self._region(indices, exchange=exchange) / self.launches

    # -- looking --

    def look(self, *, deterministic: bool) -> list[str]:
        """What is wrong with what the last sample left in one of its sets; a callable is trusted."""
        if isinstance(self.arm, Host):
            return []
        index = LOTS.choice(self.last)
        self.session.synchronize()
        problems = [self._changed(index, n) for n, layout in self.rotation.layouts.items() if not layout.writes]
        written = [layout for layout in self.rotation.layouts.values() if layout.writes]
        parts = {layout.name: _slices(layout) for layout in written}
        first = {n: self._read(index, n, slices) for n, slices in parts.items()}
        self.run_alone(index, same=True)
        for layout in written:
            name = layout.name
            again = self._read(index, name, parts[name])
            problems.append(_differ(layout, first[name], again, deterministic=deterministic))
        return [p for p in (*problems, self._ahead()) if p]

    def _ahead(self) -> str:
        """Whether a sample's first launches touch what belongs to later ones: work done for them there takes no time here."""
        if len(self.last) < 2:
            return ""
        done = LOTS.randrange(1, len(self.last))
        index = LOTS.choice(self.last[done:])
        parts = {n: _slices(layout) for n, layout in self.rotation.layouts.items() if layout.writes}
        self.reset(self.last)
        left = {n: self._read(index, n, slices) for n, slices in parts.items()}
        self.session.run([launch for first in self.last[:done] for launch in self.batch[first]])
        for name, slices in parts.items():
            found = self._read(index, name, slices)
            if any(not np.array_equal(one, two) for one, two in zip(found, left[name], strict=True)):
                return f"{name} of another launch was written"
        return ""

    def run_alone(self, index: int, *, same: bool = False, exchange: bool = True) -> None:
        """Run on one set alone, from a freshly loaded program: what it kept in the device's memory does not help."""
        self.reset([index], same=same, exchange=exchange)
        self.session.run_fresh(self.batch[index])

    def _changed(self, index: int, name: str) -> str:
        rotation = self.rotation
        for slice_ in _slices(rotation.layouts[name]):
            found = self.session.read(rotation.buffers[index][name], slice_.stop - slice_.start, slice_.start)
            if not np.array_equal(found, rotation.input_bytes(index, name, slice_)):
                return f"the input {name} was changed, or memory around it"
        return ""

    def _read(self, index: int, name: str, slices: Sequence[slice]) -> list[Bytes]:
        buffer = self.rotation.buffers[index][name]
        return [self.session.read(buffer, s.stop - s.start, s.start) for s in slices]

    def free(self) -> None:
        for buffers in self._workspaces:
            for buffer in buffers.values():
                self.session.free(buffer)
        self._workspaces = []


def _slices(layout: Layout) -> list[slice]:
    """Some of a buffer, by lot and on whole elements, then both guards."""
    item = layout.numpy.itemsize
    elements = layout.span // item
    take = min(elements, LOOK_BYTES // item)
    start = layout.offset + LOTS.randrange(elements - take + 1) * item
    return [slice(start, start + take * item), slice(0, layout.offset), slice(layout.offset + layout.span, layout.size)]


def _differ(layout: Layout, first: Sequence[Bytes], again: Sequence[Bytes], *, deterministic: bool) -> str:
    """What a timed launch wrote against the same launch alone."""
    if any((guard != POISON).any() for guard in first[1:]):
        return f"wrote outside {layout.name}"
    one, two = (data[0].view(layout.numpy) for data in (first, again))
    if np.array_equal(first[0], again[0]):
        return ""
    if not deterministic:
        if one.dtype.kind in "iub":
            return ""
        with np.errstate(all="ignore"):
            wide, alone = one.astype(np.float64), two.astype(np.float64)
            off, norm = np.linalg.norm(wide - alone), np.linalg.norm(alone)
        same = np.array_equal(np.isfinite(wide), np.isfinite(alone))
        if same and (not np.isfinite(off) or off <= BOUNDED * norm):
            return ""
    many = int((first[0] != again[0]).reshape(-1, layout.numpy.itemsize).any(axis=1).sum())
    return f"{many} of {one.size} elements of {layout.name} are not what the same launch gives alone"
