"""What a device reaches, measured once: a copy's time over sizes, peak rates, the cost of a launch. Kept on disk.

The kernels are templates of our own (backends/calibration.*), built, launched and timed exactly as candidates are, so
that a target and a candidate's time mean the same thing. Of every `[[start]]` there the best counts. Knows nothing of
tasks of the user; a calibration holds for one device with one driver and one version of those kernels.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import tempfile
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tunesmith.backends import nvrtc
from tunesmith.binding import Binding
from tunesmith.build import BUILT, Build, cache_folder
from tunesmith.compiling import Compilers
from tunesmith.data import Array, layouts
from tunesmith.device import Device
from tunesmith.errors import MissingError
from tunesmith.gates import first_reason, program_of
from tunesmith.messages import Candidate, Case, RunTime
from tunesmith.process import Died
from tunesmith.task import Input, OpenCL, Output, Setting, Task, Workload, dynamic
from tunesmith.template import Config, Template
from tunesmith.timing import timing

KERNELS = Path(__file__).parent / "backends"
FORMAT = 1
STABLE = ("name", "arch", "driver", "cuda_driver", "platform", "compute_units")  # of a device's facts: no clocks
SIZES = {"gpu": tuple(4**k for k in range(6, 16)), "cpu": (4**6, *(4**k for k in range(8, 15)))}  # 4 KB to 1 GB, 256 MB
WARM_BYTES = 64 << 20  # no cache is taken to be larger, whatever a virtual machine says
STEPS = {"gpu": 8192, "cpu": 1 << 20}  # of a chain: about a millisecond on a GPU, five on a CPU
SAMPLES = {"gpu": 15, "cpu": 5}
LARGE = 32 << 20  # bytes of an array from which five samples do: each is long, and looked at by the host in between
SETTLED = 0.01
TIMEOUT_S = 120.0
CONTENT = 4 << 20  # bytes at random, repeated

Table = tuple[tuple[int, float], ...]  # bytes moved (read and written), µs; sizes rising


@dataclass(frozen=True)
class Peak:
    """A rate of arithmetic, and the instructions that reached it. Others may reach more: tcgen05 is not tried."""

    flops_per_s: float
    by: str


@dataclass(frozen=True)
class Calibration:
    """What was measured on one device."""

    device: Mapping[str, Any]  # what it holds for
    copy_us: Table  # cold
    warm_copy_us: Table  # in cache; it ends where a cache does
    peaks: Mapping[str, Peak] = field(default_factory=dict)  # by type
    launch_us: float = 0.0  # of an empty kernel among others
    seconds: float = 0.0  # that it took

    def copy_time_us(self, size: float, *, warm: bool = False) -> float:
        """How long a copy takes that moves that many bytes, read and written together."""
        if warm and self.warm_copy_us and size <= self.warm_copy_us[-1][0]:
            return interpolated(self.warm_copy_us, size)
        return interpolated(self.copy_us, size)

    def flops_per_s(self, kind: str) -> float | None:
        """The peak rate of a type; a 16-bit type without units of its own computes in f32."""
        found = self.peaks.get(kind) or (self.peaks.get("f32") if kind in ("f16", "bf16") else None)
        return found.flops_per_s if found else None

    def save(self) -> Path:
        file = _file(self.device)
        file.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=file.parent)
        with os.fdopen(handle, "w") as to:
            json.dump({"format": FORMAT, **asdict(self)}, to, indent=1)
        os.replace(temporary, file)
        return file


def interpolated(table: Table, size: float) -> float:
    """A time between measured sizes, straight between logarithms; below the first that time, beyond the last its bandwidth."""
    if size <= table[0][0]:
        return table[0][1]
    if size >= table[-1][0]:
        return table[-1][1] * size / table[-1][0]
    at = bisect_left(table, (size, 0.0))
    (left, a), (right, b) = table[at - 1], table[at]
    share = math.log(size / left) / math.log(right / left)
    return math.exp((1 - share) * math.log(a) + share * math.log(b))


# --- on disk -----------------------------------------------------------------------------------------------------------


def load(device: Device) -> Calibration | None:
    """What was measured on this very device with this driver, or None."""
    identity = _identity(device)
    try:
        fields = json.loads(_file(identity).read_text())
        if fields.pop("format") != FORMAT or fields["device"] != identity:
            return None
        for table in ("copy_us", "warm_copy_us"):
            fields[table] = tuple((int(size), float(us)) for size, us in fields[table])
        fields["peaks"] = {kind: Peak(**peak) for kind, peak in fields["peaks"].items()}
        return Calibration(**fields)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _identity(device: Device) -> dict[str, Any]:
    """What a calibration holds for: the device, its driver, how much of it is used, the kernels that measured it."""
    facts = device.facts
    own = {name: facts[name] for name in STABLE if name in facts}
    return {**own, "backend": device.backend, "kernels": _digest(_source(device).read_text())}


def _source(device: Device) -> Path:
    return KERNELS / ("calibration" + {"cuda": ".cu", "opencl": ".cl"}[device.language])


def _file(identity: Mapping[str, Any]) -> Path:
    return cache_folder() / "calibration" / f"{_digest(json.dumps(dict(identity), sort_keys=True))}.json"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


# --- measuring ---------------------------------------------------------------------------------------------------------


def calibrate(device: Device, compilers: Compilers, progress: Callable[[int, int], None] = lambda done, of: None, *,
              sizes: Sequence[int] | None = None, steps: int | None = None,
              samples: int | None = None) -> Calibration:  # fmt: skip
    """Measure the device and keep the result. `sizes`, `steps` and `samples` make it shorter, and then it is not kept."""
    started = time.monotonic()
    whole = sizes is None and steps is None and samples is None
    sizes = sorted(sizes or SIZES[device.kind])
    meter = _Meter(device, compilers, samples or SAMPLES[device.kind])
    warm_sizes = [size for size in sizes if size <= min(device.limits.l2_bytes, WARM_BYTES)]
    tables: dict[str, list[tuple[int, float]]] = {"cold": [], "warm": []}
    order = [("cold", size) for size in sizes] + [("warm", size) for size in warm_sizes]
    try:
        first = meter.rates(steps or STEPS[device.kind])  # they also warm the device
        progress(1, len(order) + 1)
        for done, (residency, size) in enumerate(order, 2):
            us = meter.copy_us(size, residency)
            if us is not None:
                tables[residency].append((size, us))
            progress(done, len(order) + 1)
        second = meter.rates(steps or STEPS[device.kind])  # once more, for whoever else used a CPU then is done now
    except Died as died:
        raise MissingError(f"{device.name} does not calibrate: {died}") from None
    rates = {kind: max(first[0][kind], second[0].get(kind, peak), key=_rate) for kind, peak in first[0].items()}
    launches_us = [us for us in (first[1], second[1]) if us is not None]
    if not tables["cold"] or not launches_us:
        raise MissingError(f"{device.name} does not calibrate: {meter.problem}")
    cold, warm = _rising(tables["cold"]), _rising(tables["warm"])
    seconds = time.monotonic() - started
    found = Calibration(_identity(device), cold, warm, rates, min(*launches_us, cold[0][1]), seconds)
    if whole:
        found.save()
    return found


def _rate(peak: Peak) -> float:
    return peak.flops_per_s


def _rising(table: Sequence[tuple[int, float]]) -> Table:
    """A copy takes no longer than a larger one, whatever the noise says."""
    found: list[tuple[int, float]] = []
    for size, us in reversed(table):
        found.append((size, min(us, found[-1][1]) if found else us))
    return tuple(reversed(found))


def _task(residency: str) -> Task:
    """A copy of n vectors of 16 bytes, as the user would declare it; chains run for so many steps."""
    return Task(
        f"calibration-{residency}",
        dims={"n": dynamic, "steps": dynamic},
        arguments=[
            Input("x", "u32[4*n]", values=0, residency=residency),
            Output("out", "u32[4*n]", residency=residency),
        ],
        workloads=[Workload("any", n=64, steps=16)],
        align=64,
        opencl=OpenCL(std="CL1.2"),
    )


def _content(size: int) -> Array:
    """That many bytes at random, as words: zeros would cost less power and might be compressed."""
    block = np.random.default_rng(0).integers(0, 256, min(size, CONTENT), np.uint8)
    return np.resize(block, size).view(np.uint32)


class _Meter:
    """Our kernels, built for one device, and the times of their launches."""

    def __init__(self, device: Device, compilers: Compilers, samples: int) -> None:
        self.device, self.limits, self.samples = device, device.limits, samples
        self.problem = "no kernel builds"
        template = Template.load(_source(device))
        self.tasks = {residency: _task(residency) for residency in ("cold", "warm")}
        self.bindings = {residency: Binding(template, task) for residency, task in self.tasks.items()}
        binding, task = self.bindings["cold"], self.tasks["cold"]
        configs = [binding.fold(start) for start in template.starts]
        version = nvrtc.version() if device.language == "cuda" else self.limits.arch
        programs = [(program_of(binding, task, config, Setting(), self.limits), version) for config in configs]
        builds = compilers.build_all(programs, index=device.index, native=device.kind == "cpu")
        self.built = list(self._usable(configs, builds))

    def _usable(self, configs: Sequence[Config], builds: Iterator[Build]) -> Iterator[tuple[Config, Build]]:
        """What builds; an instruction that this architecture lacks is no failure."""
        for config, build in zip(configs, builds, strict=True):
            if build.status == BUILT:
                yield config, build
            else:
                self.problem = f"{config['WHAT']}: {build.reason}"

    def rates(self, steps: int) -> tuple[dict[str, Peak], float | None]:
        """The best rate of every type, and the time of an empty kernel."""
        best: dict[str, Peak] = {}
        workload = Workload("chains", n=4096, steps=steps)
        for config, us in self._times(workload, "cold", lambda what: what not in ("COPY", "EMPTY")):
            names = self.bindings["cold"].names(config, workload=workload, limits=self.limits)
            by, _, kind = str(config["WHAT"]).lower().partition("_")
            peak = Peak(int(names["flops"]) / us * 1e6, by)
            best[kind] = max(best.get(kind, peak), peak, key=_rate)
        empty = [us for _, us in self._times(workload, "cold", lambda what: what == "EMPTY")]
        return best, min(empty, default=None)

    def copy_us(self, size: int, residency: str) -> float | None:
        """The time of the best copy that moves so many bytes; None where none runs, as where memory is short."""
        workload = Workload(f"copy-{size}", n=max(4, size // 2 // 16), steps=0)
        return min((us for _, us in self._times(workload, residency, lambda what: what == "COPY")), default=None)

    def _times(
        self, workload: Workload, residency: str, wanted: Callable[[str], bool]
    ) -> Iterator[tuple[Config, float]]:
        """Microseconds of every configuration of the wanted kind that runs."""
        task, binding = self.tasks[residency], self.bindings[residency]
        content = _content(16 * workload.dims["n"])
        case = Case(f"{task.name}/{workload.name}", layouts(task, workload, exact_alignment=False), ({"x": content},))
        self.device.load(case)
        try:
            for config, build in self.built:
                if wanted(str(config["WHAT"])):
                    us = self._time(case, binding, config, build, workload)
                    if us is not None:
                        yield config, us
        finally:
            self.device.drop(case.key)

    def _time(self, case: Case, binding: Binding, config: Config, build: Build, workload: Workload) -> float | None:
        launches = binding.launches(config, workload, self.limits)
        if binding.why_illegal(config, workload, self.limits) or first_reason(launches, build.kernels, self.limits):
            return None
        samples = min(self.samples, 5) if case.layouts["x"].span >= LARGE else self.samples
        message = RunTime(case.key, (Candidate(build, launches),), (0,) * samples, warmups=1, settled=SETTLED)
        fields = self.device.ask(message, TIMEOUT_S).fields
        if "samples_us" not in fields:
            self.problem = str(fields.get("device_error") or fields.get("error"))
            return None
        return timing(fields["samples_us"][0], minimum=self.device.kind == "cpu").time_us
