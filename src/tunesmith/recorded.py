"""Recorded spaces: every configuration of a kernel, measured once before, answers without a device.

Reads Kernel Tuner's cache files, plain or gzipped, torn ones too. Several files are several workloads of one space. A
recording is no `Device`: it has no process, takes no task, template or build, and brings its own space and baseline
along. It stands beside a live evaluation behind one door, `arena.Arena`.
"""

from __future__ import annotations

import json
import math
import re
import statistics
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tunesmith.build import Kernel
from tunesmith.errors import UsageError
from tunesmith.space import Space
from tunesmith.task import Setting, Workload
from tunesmith.template import Config, Parameter
from tunesmith.timing import median_interval
from tunesmith.trial import Cell, Status, Timing, Trial, score

Entry = Mapping[str, Any]
Key = tuple[int | str, ...]

# Kernel Tuner gives three names (its core.py): a compilation that fails or wants too much shared memory; a launch that
# the driver refuses for its resources; more threads than a block may have. What has any other name ended otherwise.
FAILURES = {
    "CompilationFailedConfig": Status.BUILD_FAILED,
    "RuntimeFailedConfig": Status.OVER_LIMITS,
    "InvalidConfig": Status.OVER_LIMITS,
}
WORST_MS = 1e20  # what old files write where there is no time
STAGES = {"build": "compile_time", "check": "verification_time", "time": "benchmark_time"}  # in ms
REGISTERS = ("num_regs", "registers", "reg")
CACHE = re.compile(r'"cache"\s*:\s*\{')
NEXT = re.compile(r'[\s,]*("(?:[^"\\]|\\.)*")\s*:\s*')
DIM = re.compile(r"\s*([A-Za-z_]\w*)\s*=\s*(\d+)\s*")


@dataclass(frozen=True)
class Recording:
    """Recorded answers, as a search asks for them. Its configurations are those that stand in every file."""

    name: str
    device: str
    space: Space
    workloads: tuple[Workload, ...]
    baseline_us: Mapping[str, float]  # of the recorded default, else the median of what succeeded
    default: Config | None  # what the recording itself calls its default
    torn: bool  # a file ends early: what is whole was read
    entries: Mapping[Key, tuple[Entry, ...]] = field(repr=False)  # per configuration, one of each file

    @staticmethod
    def named(device: str) -> Recording:
        """The recording that `--device recorded:FILE[,FILE]` names."""
        kind, _, files = device.partition(":")
        if kind != "recorded" or not files:
            raise UsageError(f"{device!r} names no recording", hint="recorded:FILE[,FILE]")
        return Recording.load(*files.split(","))

    @staticmethod
    def load(*paths: str | Path) -> Recording:
        """Read one file per workload."""
        files = [_File.read(Path(path)) for path in paths]
        names, first = files[0].names, files[0]
        for file in files[1:]:
            if file.names != names:
                raise UsageError(f"{file.path} has other parameters than {first.path}: these are two spaces")
        parameters = _parameters(files) if all(file.cache for file in files) else []
        entries = _joined(files, parameters) if parameters else {}
        if not entries:
            raise UsageError(f"no configuration stands in all of: {', '.join(str(f.path) for f in files)}")
        rows = [dict(zip(names, key, strict=True)) for key in entries]
        default = _default(first, parameters)
        workloads = tuple(file.workload for file in files)
        if len({w.name for w in workloads}) < len(workloads):
            raise UsageError(f"two files of one name: {', '.join(str(f.path) for f in files)}")
        return Recording(
            name=first.header.get("kernel_name") or workloads[0].name,
            device=first.header.get("device_name", ""),
            space=Space.of(parameters, rows=rows),
            workloads=workloads,
            baseline_us=_baseline(workloads, entries, default, names),
            default=default,
            torn=any(file.torn for file in files),
            entries=entries,
        )

    def evaluate(self, config: Config, number: int = 0) -> Trial:
        """What became of this configuration when it was recorded."""
        whole = self.space.template.complete(config)
        found = self.entries.get(tuple(whole.values()))
        if found is None:
            reason = "not among the recorded configurations"
            return Trial(number, self.name, whole, Status.ILLEGAL, reason)
        cells = {w.name: _cell(w.name, entry, whole) for w, entry in zip(self.workloads, found, strict=True)}
        failed = next((cell for cell in cells.values() if cell.status is not Status.OK), None)
        registers = next((e[name] for e in found for name in REGISTERS if isinstance(e.get(name), int)), None)
        return Trial(
            number, self.name, whole,
            status=failed.status if failed else Status.OK,
            reason=failed.reason if failed else "",
            resources={Setting(): (Kernel(self.name, self.name, registers),)} if registers is not None else {},
            cells=cells,
            score=None if failed else self._score(cells),
            seconds=_seconds(found),
        )  # fmt: skip

    def _score(self, cells: Mapping[str, Cell]) -> float:
        times = {name: cell.timing.time_us for name, cell in cells.items() if cell.timing is not None}
        return score(times, self.baseline_us, {w.name: w.weight for w in self.workloads})


# --- one entry ---------------------------------------------------------------------------------------------------------


def _failure(entry: Entry, parameters: Iterable[str]) -> str | None:
    """Under what name an entry failed, whichever key it stands under; None where it has a time."""
    named = (v for k, v in entry.items() if k not in parameters and isinstance(v, str) and v.endswith("Config"))
    if (name := next(named, None)) is not None:
        return name
    time = entry.get("time")
    if isinstance(time, int | float) and 0 < time < WORST_MS:
        return None
    return f"no time was recorded ({time})"


def _cell(workload: str, entry: Entry, parameters: Iterable[str]) -> Cell:
    failure = _failure(entry, parameters)
    if failure is not None:
        return Cell(workload, FAILURES.get(failure, Status.CRASHED), f"recorded as {failure}")
    figure = 1000.0 * entry["time"]  # a mean in Kernel Tuner's files: it may lie outside the median's interval
    times = entry.get("times") or ()
    samples = tuple(1000.0 * t for t in times) if any(times) else ()
    _, low, high = median_interval(samples) if samples else (figure,) * 3
    return Cell(workload, timing=Timing(figure, min(low, figure), max(high, figure), samples))


def _seconds(found: Sequence[Entry]) -> dict[str, float]:
    """What each stage took: one build serves all workloads, the other stages are gone through for each."""
    seconds = {}
    for stage, name in STAGES.items():
        spent = [e[name] / 1000.0 for e in found if isinstance(e.get(name), int | float)]
        if spent:
            seconds[stage] = max(spent) if stage == "build" else math.fsum(spent)
    return seconds


# --- files to a space --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _File:
    path: Path
    header: Entry
    cache: Mapping[str, Entry]
    torn: bool

    @staticmethod
    def read(path: Path) -> _File:
        try:
            text = _text(path.read_bytes())
            header, torn = json.loads(text), False
        except json.JSONDecodeError:
            header, torn = _salvaged(text), True
        except (OSError, zlib.error) as error:
            raise UsageError(f"{path} cannot be read: {error}") from None
        cache = header.pop("cache", None) if isinstance(header, dict) else None
        if not isinstance(cache, dict) or not isinstance(header.get("tune_params_keys"), list):
            raise UsageError(f"{path} is no cache file of Kernel Tuner: it has no tune_params_keys or no cache")
        for key, entry in cache.items():
            if not isinstance(entry, dict) or any(name not in entry for name in header["tune_params_keys"]):
                raise UsageError(f"{path}: the entry {key!r} does not hold every parameter")
        return _File(path, header, cache, torn)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.header["tune_params_keys"])

    @property
    def workload(self) -> Workload:
        """Named after its file; with a dim where the problem size reads `T=16`."""
        size = DIM.fullmatch(str(self.header.get("problem_size")))
        return Workload(
            self.path.name.removesuffix(".gz").removesuffix(".json"), dims={size[1]: int(size[2])} if size else None
        )


def _text(data: bytes) -> str:
    """A file's text, unpacked as far as it goes."""
    if not data.startswith(b"\x1f\x8b"):
        return data.decode(errors="replace")
    parts = []
    while data:
        unpack = zlib.decompressobj(wbits=31)
        parts.append(unpack.decompress(data) + unpack.flush())
        data = unpack.unused_data
    return b"".join(parts).decode(errors="replace")


def _salvaged(text: str) -> Any:
    """What stands in a torn file: its header, and each entry that is whole."""
    start = CACHE.search(text)
    if start is None:
        return None
    try:
        header = json.loads(text[: start.end()] + "}}")
    except json.JSONDecodeError:
        return None
    decoder, at, cache = json.JSONDecoder(), start.end(), {}
    while (key := NEXT.match(text, at)) is not None:
        try:
            entry, at = decoder.raw_decode(text, key.end())
        except json.JSONDecodeError:
            break
        cache[json.loads(key[1])] = entry
    return {**header, "cache": cache}


def _parameters(files: Sequence[_File]) -> list[Parameter]:
    """The parameters with all their values; each at its recorded default, else in the middle of its list."""
    parameters, default = [], files[0].header.get("default") or {}
    for name in files[0].names:
        listed = [v for file in files for v in file.header.get("tune_params", {}).get(name, ())]
        listed += [entry[name] for file in files for entry in file.cache.values()]
        values = dict.fromkeys(map(_plain, listed))
        if any(isinstance(v, str) for v in values):
            values = dict.fromkeys(map(str, values))
        middle = list(values)[len(values) // 2]
        wanted = next((v for v in values if str(v) == str(_plain(default.get(name)))), middle)
        parameters.append(Parameter(name, tuple(values), wanted, None, "", 0))
    return parameters


def _plain(value: Any) -> int | str:
    """A value as a space has them: a whole number, or a name."""
    if isinstance(value, bool | int) or (isinstance(value, float) and value.is_integer()):
        return int(value)
    return str(value)


def _key(config: Config, parameters: Sequence[Parameter]) -> Key:
    plain = [_plain(config[p.name]) for p in parameters]
    return tuple(str(v) if isinstance(p.values[0], str) else v for v, p in zip(plain, parameters, strict=True))


def _joined(files: Sequence[_File], parameters: Sequence[Parameter]) -> dict[Key, tuple[Entry, ...]]:
    """Per configuration its entry in each file, in the first one's order."""
    keyed = [{_key(entry, parameters): entry for entry in file.cache.values()} for file in files]
    return {key: tuple(one[key] for one in keyed) for key in keyed[0] if all(key in one for one in keyed)}


def _default(file: _File, parameters: Sequence[Parameter]) -> dict[str, int | str] | None:
    """What a file of our own names under `default`; Kernel Tuner's files have no such key."""
    default = file.header.get("default")
    if not isinstance(default, dict) or any(p.name not in default for p in parameters):
        return None
    return dict(zip((p.name for p in parameters), _key(default, parameters), strict=True))


def _baseline(workloads: Sequence[Workload], entries: Mapping[Key, tuple[Entry, ...]], default: Config | None,
              names: Sequence[str]) -> dict[str, float]:  # fmt: skip
    chosen = entries.get(tuple(default.values())) if default else None
    if chosen is not None and not any(_failure(entry, names) for entry in chosen):
        return {w.name: 1000.0 * entry["time"] for w, entry in zip(workloads, chosen, strict=True)}
    found = {}
    for index, workload in enumerate(workloads):
        times = [1000.0 * e[index]["time"] for e in entries.values() if _failure(e[index], names) is None]
        if not times:
            raise UsageError(f"{workload.name}: no configuration succeeded")
        found[workload.name] = statistics.median(times)
    return found
