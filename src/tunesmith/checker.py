"""Whether a candidate computes what the task says: what to ask the device's process, and how its answers are judged.

Two tiers. *Screen*: one representative workload, normal data. *Verify*: every workload, every distribution, held-out
shapes, fresh seeds, and for a `batch_invariant` task fewer rows of the same data. Expected outputs are computed here and
stay here.
"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tunesmith import oracle
from tunesmith.data import Array, Layout, layouts, take_rows, widened
from tunesmith.device import Device
from tunesmith.judge import bits, judge, relative_error
from tunesmith.messages import OTHER_POISONS, POISONS, Candidate, Case, Host, RunCheck
from tunesmith.process import Answer, Died
from tunesmith.task import Task, Workload
from tunesmith.tolerance import L2, Close, Judging, SameBits, Verdict, tolerance
from tunesmith.trial import Status
from tunesmith.values import DISTRIBUTIONS, Choice, Normal, Range

TIMEOUT_S = 60.0
VERIFIED_CONTENT = 7  # of the data that verify draws; screen and timing have others
NUMBERS = itertools.count()
ROWS_AT_ONCE = 64  # of a large output, compared with the baseline's in parts that caches hold
NO_TIME = "a launch that takes no time"
REFUSED = ("OUT_OF_RESOURCES", "INVALID_CLUSTER", "COOPERATIVE_LAUNCH_TOO_LARGE", "INVALID_WORK_GROUP", "INVALID_VALUE",
           "OUT_OF_MEMORY")  # fmt: skip


At = Callable[
    [Workload], Candidate | Host | None
]  # the same configuration on another workload; None where it serves it not


@dataclass(frozen=True)
class Checked:
    """What one run on one workload's data came to. `error` is in units of what is allowed."""

    workload: str
    distribution: str
    status: Status
    reason: str = ""
    error: float = 0.0
    log: str = ""  # where an error of our own ended it: the traceback
    outputs: Mapping[str, Array] = field(default_factory=dict, repr=False)


class Checker:
    """Checks candidates of one task on one device."""

    def __init__(self, task: Task, device: Device, seed: int | None = None) -> None:
        """Without a seed it is drawn: nobody who writes a candidate can know it. The journal keeps it."""
        self.task, self.device = task, device
        self.seed = secrets.randbits(48) if seed is None else seed
        self.timeout_s = TIMEOUT_S
        self.oracle = oracle.Oracle(task, self.seed)
        self.number = next(NUMBERS)  # a device may be shared: another checker's data of the same name is not this one's
        self.baseline_errors: dict[tuple[str, str], dict[str, float]] = {}  # (workload, distribution): output: error
        self.baseline_outputs: dict[tuple[str, str], Mapping[str, Array]] = {}
        self._baseline_content: dict[tuple[str, str], int] = {}  # what those outputs were made of

    def run(self, candidate: Candidate | Host, workload: Workload, distribution: str = "normal", *, content: int = 0,
            all_rows: bool = False, same_bits: bool = False) -> Checked:  # fmt: skip
        """Run a candidate on one workload's data and judge what it wrote.

        `same_bits` is insisted on even where the baseline never ran; else what the type implies stands in for it there.
        """
        key = self._case(workload, distribution, content)
        rows = self.oracle.rows(workload)
        sampled = rows is not None and not all_rows
        poisons = OTHER_POISONS if DISTRIBUTIONS.index(distribution) % 2 else POISONS
        message = RunCheck(key, candidate, poisons=poisons, rows=tuple(map(int, rows)) if sampled and rows is not None else None,
                           row_axes=self.row_axes() if sampled else None)  # fmt: skip
        answer = self.ask(message)
        if isinstance(answer, Checked):
            return replace(answer, workload=workload.name, distribution=distribution)
        return self.judge(answer, workload, distribution, content=content, all_rows=all_rows, same_bits=same_bits)

    def verify(
        self, candidate: Candidate | Host, workload: Workload, at: At | None = None, *, adopt: bool = False
    ) -> Checked:
        """Every distribution on one workload (one alone where it is large); the first failure, or the worst pass.

        `at` tells what the same configuration launches on another workload: what a `batch_invariant` task is asked with.
        With `adopt` this is the baseline: its outputs are what `same_bits` means from now on, its error what `close` forgives.
        """
        large = self.oracle.rows(workload) is not None or self._elements(workload) > oracle.LARGE
        worst: Checked | None = None
        normal: Checked | None = None
        for distribution in DISTRIBUTIONS[:1] if large else DISTRIBUTIONS:
            found = self.run(
                candidate, workload, distribution, content=VERIFIED_CONTENT, all_rows=True, same_bits=not adopt
            )
            if found.status is not Status.OK:
                return found
            if adopt:
                self.adopt_baseline(found, workload, content=VERIFIED_CONTENT)
            worst = found if worst is None or found.error > worst.error else worst
            normal = found if distribution == "normal" else normal
        assert worst is not None
        assert normal is not None
        if self.task.batch_invariant and at is not None:
            return self._varies(normal, workload, at) or worst
        return worst

    def _varies(self, whole: Checked, workload: Workload, at: At) -> Checked | None:
        """The first number of rows, fewer of the same data, that goes wrong or gives a row other bits; None where none does."""
        assert self.task.rows is not None
        most = workload.dims[self.task.rows]
        for count in sorted({1, most // 2 + 1} - {most}) if most > 1 else ():
            fewer = self.oracle.first_rows(workload, count, VERIFIED_CONTENT)
            candidate = at(fewer)
            problem = "" if candidate is None else self._differs(candidate, fewer, whole.outputs)
            self.oracle.forget(fewer)
            if problem:
                return replace(
                    whole, status=Status.WRONG, reason=f"batch_invariant, {self.task.rows}={count}: {problem}"
                )
        return None

    def _differs(self, candidate: Candidate | Host, fewer: Workload, among: Mapping[str, Array]) -> str:
        """What is wrong with few rows that were right `among` more; "" where each has the same bits."""
        answer = self.ask(RunCheck(self._case(fewer, "normal", VERIFIED_CONTENT), candidate))
        written = (
            answer if isinstance(answer, Checked) else self._written(answer, fewer, "normal", VERIFIED_CONTENT, None)
        )
        if isinstance(written, Checked):
            return written.reason
        for name, axis in self.row_axes().items():
            argument, mine = self.task.argument(name), written[0][name]
            other = bits(mine) != bits(np.take(among[name], range(mine.shape[axis]), axis))
            if argument.partial and other.any():
                asked = ~np.ma.getmaskarray(self.oracle.expected(fewer, VERIFIED_CONTENT)[name])
                other = take_rows(self.task, argument, other, self.oracle.rows(fewer)) & asked
            rows = np.moveaxis(other, axis, 0).reshape(other.shape[axis], -1).any(axis=1)
            if rows.any():
                return f"{int(rows.sum())} of {rows.size} rows of {name} have other bits than among more rows"
        return ""

    def adopt_baseline(self, checked: Checked, workload: Workload, content: int = 0) -> None:
        """Remember a correct baseline's outputs and its own error; tolerances refer to it."""
        key = (workload.name, checked.distribution)
        self.baseline_outputs[key] = checked.outputs
        self._baseline_content[key] = content
        rows = self.oracle.rows(workload)
        want = self.oracle.expected(workload, content, checked.distribution)
        self.baseline_errors[key] = {
            name: relative_error(widened(take_rows(self.task, self.task.argument(name), data, rows)), want[name])
            for name, data in checked.outputs.items()
            if self.task.argument(name).dtype(workload.types).is_float
        }

    def forget_baseline(self) -> None:
        """A baseline that was adopted turned out wrong."""
        for store in (self.baseline_outputs, self.baseline_errors, self._baseline_content):
            store.clear()

    def ask(self, message: Any, timeout: float | None = None) -> Answer | Checked:
        """The device's answer; a death or a refusal comes back as a status."""
        try:
            answer = self.device.ask(message, self.timeout_s if timeout is None else timeout)
        except Died as died:
            return Checked("", "", Status.HUNG if died.hung else Status.CRASHED, str(died))
        problem = answer.fields.get("device_error") or answer.fields.get("error")
        if not problem:
            return answer
        self.device.restart()  # a context that has seen an error answers nothing else
        refused = any(word in problem for word in REFUSED)
        return Checked("", "", Status.OVER_LIMITS if refused else Status.CRASHED, problem,
                       log=answer.fields.get("traceback", ""))  # fmt: skip

    def judge(self, answer: Answer, workload: Workload, distribution: str, *, content: int, all_rows: bool,
              same_bits: bool = False) -> Checked:  # fmt: skip
        def say(status: Status, reason: str, error: float = 0.0, outputs: Mapping[str, Array] | None = None) -> Checked:
            return Checked(workload.name, distribution, status, reason, error, outputs=outputs or {})

        written = self._written(
            answer, workload, distribution, content, None if all_rows else self.oracle.rows(workload)
        )
        if isinstance(written, Checked):
            return written
        raw, again = written
        for outputs in (raw, {**raw, **again}) if again else (raw,):
            verdict, name = self.compare(
                outputs, workload, distribution, content=content, all_rows=all_rows, same_bits=same_bits
            )
            if not verdict.right:
                return say(Status.WRONG, f"{name}: {verdict.reason}", verdict.error)
        return say(Status.OK, "", verdict.error, raw)

    def _written(
        self, answer: Answer, workload: Workload, distribution: str, content: int, rows: Array | None
    ) -> tuple[dict[str, Array], dict[str, Array]] | Checked:
        """What a run wrote, and what its second run wrote otherwise; or what is wrong with either, whatever the numbers."""

        def say(status: Status, reason: str) -> Checked:
            return Checked(workload.name, distribution, status, reason)

        if answer.fields["problems"]:
            return say(Status.WRONG, "; ".join(dict.fromkeys(answer.fields["problems"])))
        raw, again = {}, {}
        parts = iter(answer.parts)
        for found in answer.fields["outputs"]:
            argument = self.task.argument(found["name"])
            first, second, unwritten = next(parts), next(parts), next(parts)
            raw[argument.name] = self.array(first, argument.name, workload, rows)
            if second:
                again[argument.name] = self.array(second, argument.name, workload, rows)
            if argument.partial:
                if reason := self._untouched(argument.name, unwritten, workload, content, distribution):
                    return say(Status.WRONG, reason)
            elif found["unwritten"]:
                return say(
                    Status.WRONG,
                    f"{found['unwritten']} of {found['elements']} elements of {argument.name} are not written",
                )
            if found["differing"] and self.task.deterministic and not argument.partial:
                reason = (
                    f"{found['differing']} of {found['elements']} elements of {argument.name} differ between two runs"
                )
                return say(Status.NONDETERMINISTIC, f"{reason}: a race, or a read of memory that nothing wrote")
        return raw, again

    def compare(self, raw: Mapping[str, Array], workload: Workload, distribution: str, *, content: int = 0,
                all_rows: bool = False, same_bits: bool = False) -> tuple[Verdict, str]:  # fmt: skip
        """Judge raw outputs against the oracle (and, outside its sampled rows, against the baseline): the worst verdict.

        `same_bits` is insisted on even where the baseline never ran; else what the type implies stands in for it there.
        """
        rows = self.oracle.rows(workload)
        want = self.oracle.expected(workload, content, distribution)
        mine = {n: take_rows(self.task, self.task.argument(n), d, rows) for n, d in raw.items()} if all_rows else raw
        inputs = {n: np.asarray(widened(take_rows(self.task, self.task.argument(n), d, rows)))
                  for n, d in self.oracle.inputs(workload, content, distribution).items()}  # fmt: skip
        outputs = {n: np.asarray(widened(d)) for n, d in mine.items()}
        outputs |= {n: d for n, d in want.items() if n not in outputs}  # extra values that the oracle returns
        worst, at = Verdict(True), ""
        for argument in self.task.outputs:
            name = argument.name
            key = (workload.name, distribution)
            judging = Judging(
                name, argument.dtype(workload.types), outputs[name], want[name], inputs, outputs, workload.dims
            )
            same = self.baseline_outputs.get(key, {}).get(name) if self._baseline_content.get(key) == content else None
            kind = argument.judged_by(workload.types)
            if isinstance(kind, SameBits) and same is None and not same_bits:
                kind = tolerance(None, argument.dtype(workload.types))
            verdict = judge(kind, argument.dtype(workload.types), judging, raw=mine[name],
                            baseline=None if same is None else take_rows(self.task, argument, same, rows),
                            baseline_error=self.baseline_errors.get(key, {}).get(name, 0.0))  # fmt: skip
            if verdict.right and rows is not None and all_rows and same is not None and same.shape == raw[name].shape:
                beside = self._against_baseline(argument.name, raw[name], same, workload, key)
                verdict = verdict if beside.right else beside
            if not verdict.right:
                return verdict, name
            worst, at = (verdict, name) if verdict.error >= worst.error else (worst, at)
        return worst, at

    def timed_reason(self, answer: Answer, workload: Workload, contents: Sequence[int]) -> str:
        """What is wrong with a timing: with what the launches wrote, or with the times themselves; "" where nothing is."""
        if answer.fields["problems"]:
            return f"in a timed launch: {answer.fields['problems'][0][1]}"
        if answer.fields["outputs"]:
            rows = self.oracle.rows(workload)
            parts = zip(answer.fields["outputs"], answer.parts, strict=True)
            raw = {name: self.array(part, name, workload, rows) for name, part in parts}
            content = contents[answer.fields["set"] % len(contents)]
            verdict, name = self.compare(raw, workload, "normal", content=content)
            if not verdict.right:
                return f"in a timed launch, {name}: {verdict.reason}"
        fastest = min(us for samples in answer.fields["samples_us"] for us in samples)
        return "" if fastest > 0.0 else f"{NO_TIME}: {fastest:g} µs"

    def _against_baseline(
        self, name: str, raw: Array, same: Array, workload: Workload, key: tuple[str, str]
    ) -> Verdict:
        """Rows that the oracle did not compute: twice the tolerance, for the baseline has an error of its own."""
        argument = self.task.argument(name)
        kind = argument.judged_by(workload.types)
        if isinstance(kind, Close):
            kind = Close(2 * kind.k, 2 * kind.c, 2 * kind.r)
        elif isinstance(kind, L2):
            kind = L2(2 * kind.limit)
        of, error = argument.dtype(workload.types), self.baseline_errors.get(key, {}).get(name, 0.0)
        axis = self.row_axes().get(name, 0)
        for first in range(0, raw.shape[axis], ROWS_AT_ONCE):
            part = slice(first, first + ROWS_AT_ONCE)
            mine, theirs = (np.moveaxis(np.moveaxis(data, axis, 0)[part], 0, axis) for data in (raw, same))
            if np.array_equal(bits(mine), bits(theirs)):
                continue
            judging = Judging(name, of, np.asarray(widened(mine)), np.asarray(widened(theirs)), {}, {}, workload.dims)
            verdict = judge(kind, of, judging, raw=mine, baseline=theirs, baseline_error=error)
            if not verdict.right:
                return Verdict(False, 0.0, f"rows from {first}, against the baseline: {verdict.reason}")
        return Verdict(True)

    def array(self, data: bytes, name: str, workload: Workload, rows: Array | None) -> Array:
        """An output that came back as bytes."""
        argument = self.task.argument(name)
        shape = list(argument.shape(workload.dims))
        axis = self.row_axes().get(name)
        if rows is not None and axis is not None:
            shape[axis] = len(rows)
        return np.frombuffer(data, argument.dtype(workload.types).numpy).reshape(shape)

    def row_axes(self) -> dict[str, int]:
        """Which axis of each output runs along the task's rows."""
        return {
            a.name: i for a in self.task.outputs for i, e in enumerate(a.array.axes) if e.text.strip() == self.task.rows
        }

    def case(
        self, workload: Workload, *, exact_alignment: bool, contents: Sequence[int], distribution: str = "normal"
    ) -> Case:
        """A workload's data as the device's process takes it."""
        placed: dict[str, Layout] = layouts(self.task, workload, exact_alignment=exact_alignment)
        inputs = tuple(self.oracle.inputs(workload, content, distribution) for content in contents)
        kind = "check" if exact_alignment else "time"
        key = f"{self.number} {kind} {workload.name} {distribution} {','.join(map(str, contents))}"
        return Case(key, placed, inputs, self._exchangeable(workload))

    def _exchangeable(self, workload: Workload) -> tuple[str, ...]:
        """The arrays whose elements are drawn one by one: one may take another's value and all are still as declared."""
        drawn = {a.name: self.task.values_of(a, workload) for a in self.task.arguments if a.reads and not a.is_scalar}
        return tuple(name for name, kind in drawn.items() if isinstance(kind, Normal | Range | Choice))

    def _case(self, workload: Workload, distribution: str, content: int) -> str:
        case = self.case(workload, exact_alignment=True, contents=(content,), distribution=distribution)
        if not self.device.has(case.key):
            self.device.load(case)
        return case.key

    def _elements(self, workload: Workload) -> int:
        return sum(int(np.prod(a.shape(workload.dims))) for a in self.task.outputs)

    def _untouched(self, name: str, packed: bytes, workload: Workload, content: int, distribution: str) -> str:
        """What is wrong with what a partial output left alone."""
        argument = self.task.argument(name)
        want = self.oracle.expected(workload, content, distribution)[name]
        asked = ~np.ma.getmaskarray(want).reshape(-1)
        size = asked.size
        unwritten = np.unpackbits(np.frombuffer(packed, np.uint8), count=size).astype(bool)
        if missing := int((asked & unwritten).sum()):
            return f"{missing} of {int(asked.sum())} elements of {name} are not written"
        kept = argument.partial in (True, "kept") and not argument.reads
        if kept and (touched := int((~asked & ~unwritten).sum())):
            return f"{touched} elements of {name} are written that must stay as they are"
        return ""
