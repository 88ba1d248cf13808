"""Inputs of a task's workloads, and what must come out: drawn and computed once per workload, seed and distribution.

Large workloads are computed in part, along the rows that the task names. What is expected stays in this process.
"""

from __future__ import annotations

import numpy as np

from tunesmith.data import Array, draw, expected, take_rows
from tunesmith.task import Task, Workload

LARGE = 2**22  # output elements beyond which only some rows go through the float64 oracle
SAMPLED_ROWS = 256


class Oracle:
    """Inputs and expected outputs of a task, drawn and computed once per workload, seed and distribution."""

    def __init__(self, task: Task, seed: int = 0) -> None:
        self.task, self.seed = task, seed
        self._inputs: dict[tuple[str, int, str], dict[str, Array]] = {}
        self._expected: dict[tuple[str, int, str], dict[str, Array]] = {}

    def inputs(self, workload: Workload, content: int = 0, distribution: str = "normal") -> dict[str, Array]:
        key = (workload.name, content, distribution)
        if key not in self._inputs:
            self._inputs[key] = draw(self.task, workload, self.seed * 1000 + content, distribution)
        return self._inputs[key]

    def expected(self, workload: Workload, content: int = 0, distribution: str = "normal") -> dict[str, Array]:
        """The oracle's outputs, of the sampled rows where the workload is large."""
        key = (workload.name, content, distribution)
        if key not in self._expected:
            inputs = self.inputs(workload, content, distribution)
            self._expected[key] = expected(self.task, workload, inputs, self.rows(workload))
        return self._expected[key]

    def rows(self, workload: Workload) -> Array | None:
        """The rows that the oracle computes: all (None), or the first, the last and some between."""
        elements = sum(int(np.prod(a.shape(workload.dims))) for a in self.task.outputs)
        if self.task.rows is None or elements <= LARGE:
            return None
        count = workload.dims[self.task.rows]
        if count <= SAMPLED_ROWS:
            return None
        rng = np.random.default_rng([self.seed, count])
        between = rng.choice(np.arange(1, count - 1), SAMPLED_ROWS - 2, replace=False)
        return np.sort(np.concatenate([[0], between, [count - 1]]))

    def first_rows(self, workload: Workload, count: int, content: int = 0) -> Workload:
        """A workload's first rows as a workload of its own: the same normal data, less of it."""
        assert self.task.rows is not None
        fewer = Workload(f"{workload.name} at {self.task.rows}={count}", dims={**workload.dims, self.task.rows: count},
                         types=workload.types, values=workload.values, on=workload.on)  # fmt: skip
        whole = self.inputs(workload, content)
        rows = np.arange(count)
        self._inputs[fewer.name, content, "normal"] = {
            name: np.ascontiguousarray(take_rows(self.task, self.task.argument(name), data, rows))
            for name, data in whole.items()
        }
        return fewer

    def forget(self, workload: Workload) -> None:
        """Drop what is held for a workload."""
        for store in (self._inputs, self._expected):
            for key in [k for k in store if k[0] == workload.name]:
                del store[key]
