"""What a search asks: configurations of one template in, trials out, whether a device answers or a recording.

A pipeline may take a live subject's two halves apart (`Evaluator.prepare` and `finish`) to keep compilers and device
busy; a recording answers at once, with the `seconds` that each stage once took, so that a search can be simulated.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from tunesmith.binding import Binding
from tunesmith.evaluate import Evaluator
from tunesmith.space import Space
from tunesmith.task import Workload
from tunesmith.template import Config
from tunesmith.trial import Trial


@runtime_checkable
class Subject(Protocol):
    """One template under search: `Live`, or a `recorded.Recording`. One that fails is a trial, no exception."""

    @property
    def space(self) -> Space: ...
    @property
    def workloads(self) -> tuple[Workload, ...]: ...
    @property
    def baseline_us(self) -> Mapping[str, float]: ...  # what scores refer to, per workload
    def evaluate(self, config: Config, number: int = 0) -> Trial: ...


@dataclass(frozen=True)
class Live:
    """A template on a device."""

    evaluator: Evaluator
    binding: Binding
    space: Space
    workloads: tuple[Workload, ...]

    @property
    def baseline_us(self) -> Mapping[str, float]:
        return self.evaluator.baseline_us

    def evaluate(self, config: Config, number: int = 0) -> Trial:
        return self.evaluator.evaluate(number, self.binding, config, self.workloads)
