"""Many configurations through the gates at once: compilers on all cores, the device always with something to do.

`fill` asks for configurations until enough are under way; `next` gives the next finished trial. On a GPU compiling,
gating and measuring overlap: a thread waits for the device while this one feeds the compilers. On a CPU device nothing is
measured while a compiler runs. Builds are taken to the device in the order in which they finish.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace

from tunesmith.binding import Binding
from tunesmith.build import Build
from tunesmith.evaluate import Evaluator, Prepared
from tunesmith.task import Setting, Workload
from tunesmith.template import Config
from tunesmith.trial import Incumbent, Trial

Asked = tuple[int, Binding, Config]  # a number that is the asker's own, a template, a configuration
Ask = Callable[[], Asked | None]
POLL_S = 0.02


@dataclass
class _UnderWay:
    """A configuration whose programs are being built."""

    prepared: Prepared
    keys: dict[Setting, str]
    builds: dict[str, Build] = field(default_factory=dict)

    @property
    def built(self) -> bool:
        return all(key in self.builds for key in self.keys.values())


class Pipeline:
    """Configurations in, trials out."""

    def __init__(self, evaluator: Evaluator, workloads: Sequence[Workload], *, depth: int | None = None,
                 incumbent: Callable[[], Incumbent | None] = lambda: None) -> None:  # fmt: skip
        self.evaluator, self.workloads, self.incumbent = evaluator, tuple(workloads), incumbent
        self._alone = evaluator.device.kind == "cpu"
        self.depth = depth or (2 if self._alone else 3) * evaluator.compilers.processes
        self.busy_s = 0.0  # of the device
        self._building: dict[int, _UnderWay] = {}
        self._ready: deque[_UnderWay] = deque()
        self._done: deque[Trial] = deque()
        self._device = ThreadPoolExecutor(1, "device")
        self._running: Future[Trial] | None = None

    @property
    def under_way(self) -> int:
        return len(self._building) + len(self._ready) + (self._running is not None)

    def fill(self, ask: Ask) -> None:
        """Ask for configurations until enough are under way, or there are no more."""
        if self._alone and (self._ready or self._running):
            return  # nothing is measured while a compiler runs, so what is built comes first, and then as many again
        while self.under_way < self.depth and not self._done:
            asked = ask()  # what is illegal is told before more is asked: a strategy learns from it
            if asked is None:
                return
            self.put(*asked)

    def put(self, number: int, binding: Binding, config: Config) -> None:
        """Take one configuration in."""
        prepared = self.evaluator.prepare(number, binding, config, self.workloads)
        if isinstance(prepared, Trial):
            self._done.append(prepared)
        else:
            self._building[number] = _UnderWay(prepared, self.evaluator.submit(prepared))

    def through(self, asked: Iterable[Asked]) -> Iterator[Trial]:
        """Take these through, and give trials as they finish."""
        waiting = iter(asked)
        self.fill(lambda: next(waiting, None))
        while (trial := self.next()) is not None:
            yield trial
            self.fill(lambda: next(waiting, None))

    def next(self) -> Trial | None:
        """The next finished trial; None where nothing is under way."""
        while not self._done:
            if not self.under_way:
                return None
            self._collect()
            self._start()
        return self._done.popleft()

    def _collect(self) -> None:
        """Take what has finished: builds from the compilers, a trial from the device."""
        taken = self.evaluator.compilers.take(POLL_S if self._building else 0.0)
        while taken is not None:
            key, build = taken
            for number, waiting in list(self._building.items()):
                if key in waiting.keys.values():
                    waiting.builds[key] = build
                    if waiting.built:
                        self._ready.append(self._building.pop(number))
            taken = self.evaluator.compilers.take(0.0)
        if self._running is not None:
            if not self._building:
                wait([self._running], timeout=1.0)
            if self._running.done():
                self._done.append(self._running.result())
                self._running = None

    def _start(self) -> None:
        if self._running is not None or not self._ready or (self._alone and self._building):
            return
        self._running = self._device.submit(self._finish, self._ready.popleft(), self.incumbent())

    def _finish(self, ready: _UnderWay, incumbent: Incumbent | None) -> Trial:
        started = time.monotonic()
        builds = {setting: ready.builds[key] for setting, key in ready.keys.items()}
        trial = self.evaluator.finish(ready.prepared, builds, incumbent=incumbent)
        took = time.monotonic() - started
        self.busy_s += took
        compiled = sum(build.seconds for build in builds.values() if not build.cached)
        return replace(trial, seconds={**trial.seconds, "compile": compiled, "device": took})

    def close(self) -> None:
        """Wait for what the device is at: its process is not ended from here while that thread speaks to it."""
        self._device.shutdown(wait=True, cancel_futures=True)
