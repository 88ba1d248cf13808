"""The configurations of a template for a task's settings (sets of static dims and types), as a matrix of whole numbers.

A row holds the index of each parameter's value, in the file's order, and is *folded*: an inactive parameter is at its
default. With several settings a configuration is legal if it is in every one, and a parameter active if it is in any.
What a device allows stands apart (`over_limits`), and so do the predicates of the dispatch. Knows nothing of search,
builds or measurements. Counts, samples and addresses work without holding the rows; only `matrix` holds them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunesmith.binding import Binding
from tunesmith.errors import TemplateError, UsageError
from tunesmith.expression import Expression, Undefined
from tunesmith.limits import Limits, named
from tunesmith.naming import Kind
from tunesmith.rules import Rules
from tunesmith.settings import choose, misfit
from tunesmith.solutions import Count, Solutions
from tunesmith.task import Setting, Task
from tunesmith.template import Config, Parameter, Template

Rows = NDArray[np.uint16]
HELD = 2**25  # rows that `matrix` holds
REPAIRS = 64  # steps that a starting point may take to become legal

__all__ = ["Count", "Space"]


class Space:
    """The configurations of a template that are legal in these settings.

    `Space(template, task)` covers the settings of all workloads, `Space(template, task, d=14336, io="bf16")` one of
    them, and `Space(template, d=4096)` needs no task.
    """

    def __init__(self, template: Template, task: Task | None = None, *, limits: Limits | str | None = None,
                 settings: Sequence[Setting] | None = None, **setting: int | str) -> None:  # fmt: skip
        if settings is not None and setting:
            raise UsageError("a space has either settings or one setting by name, not both")
        if settings is not None and not settings:
            raise UsageError("a space has at least one setting")
        self.settings = tuple(settings) if settings is not None else choose(template, task, setting)
        dims = {name: value for one in self.settings for name, value in one.dims}
        self._prepare(Binding(template, task, dims=None if task else dims), limits)

    @classmethod
    def of(cls, parameters: Sequence[Parameter], requires: Mapping[str, str] | Iterable[str] = (),
           rows: Sequence[Config] | None = None) -> Space:  # fmt: skip
        """A space of which only the values are known, and the constraints or the configurations: a recorded one."""
        named = dict(requires) if isinstance(requires, Mapping) else {text: text for text in requires}
        template = Template(
            name="space", language="", source="", parameters=tuple(parameters), dim_lines=(), type_lines=(),
            tune_lines=(), launches=(), lets={}, requires={key: Expression.parse(text) for key, text in named.items()},
            options={}, fixed={}, fixed_types={}, workspaces=(), starts=(),
        )  # fmt: skip
        space = cls.__new__(cls)
        space.settings = (Setting(),)
        space._prepare(Binding(template), None)
        if rows is not None:
            listed = dict.fromkeys(space._indices(config).tobytes() for config in rows)
            space._rows = np.frombuffer(b"".join(listed), np.uint16).reshape(len(listed), len(parameters))
        return space

    def _prepare(self, binding: Binding, limits: Limits | str | None) -> None:
        self.binding, self.template = binding, binding.template
        self.limits = named(limits) if isinstance(limits, str) else limits
        self.parameters = binding.template.parameters
        self.rules = Rules(binding, self.settings)
        self.misfit = misfit(binding.template, self.settings)
        self._rows: Rows | None = None  # of a recorded space
        self._index = [{v: i for i, v in enumerate(p.values)} for p in self.parameters]
        self._default = np.array([self._index[i][p.default] for i, p in enumerate(self.parameters)], np.uint16)

    # -- how many --

    @property
    def cartesian(self) -> int:
        """The product of the numbers of values."""
        return self.rules.program.cartesian

    def count(self) -> Count:
        """How many configurations are legal."""
        return self.solutions.count

    def removed_by(self) -> dict[str, Count]:
        """How many of the cartesian product each constraint alone removes, in any setting; nothing is folded."""
        removed = {self.misfit: Count.of(self.cartesian)} if self.misfit else {}
        for reason, rules in self.rules.shape.items():
            removed[reason] = Solutions(self.rules.program, rules).count.outside(self.cartesian)
        return removed

    def over_limits(self, limits: Limits | str | None = None) -> Count:
        """How many of the legal ones no device with these limits launches, in any setting.

        Only sizes made of parameters, static dims and the limits themselves; others are known per workload.
        """
        program, fits = self.rules.program, self.rules.fits(self._limits(limits))
        if not fits:
            return Count.of(0)
        over = program.emit(("none",), (program.emit(("logic", "and"), fits),))
        solutions = self.solutions
        if solutions.listed is not None:
            return Count.of(int(program.holds([over], solutions.listed)[0].sum()))
        if solutions.exact:
            within = Solutions(program, (*self.rules.legal, *fits)).count
            if within.exact:
                return within.outside(solutions.count.value)
        return solutions.share((*solutions.filters, over))

    def _limits(self, limits: Limits | str | None) -> Limits:
        found = named(limits) if isinstance(limits, str) else limits or self.limits
        if found is None:
            raise UsageError("no limits were given", hint='over_limits("sm_90"), or Space(..., limits="sm_90")')
        return found

    @property
    def predicates(self) -> Mapping[str, Expression]:
        """Constraints that wait for the workload: conditions of the dispatch."""
        return self.rules.sorted.predicates

    @property
    def device_constraints(self) -> Mapping[str, Expression]:
        """Constraints that ask for facts of the device: they count as limits."""
        return self.rules.sorted.device

    @cached_property
    def solutions(self) -> Solutions:
        """The legal rows."""
        nothing = np.zeros((0, len(self.parameters)), np.uint16) if self.misfit else None
        return Solutions(self.rules.program, self.rules.legal, rows=nothing if self.misfit else self._rows)

    # -- the legal configurations --

    @property
    def enumerated(self) -> bool:
        """Whether all configurations are counted exactly and can be addressed."""
        return self.solutions.exact

    def __bool__(self) -> bool:
        return True

    def __len__(self) -> int:
        if not self.enumerated:
            raise UsageError(f"about {self.count().value} configurations: too many to number; draw samples")
        return self.count().value

    def __getitem__(self, i: int) -> dict[str, int | str]:
        """The i-th legal configuration, in an order of the space's own."""
        if not -len(self) <= i < len(self):
            raise IndexError(i)
        return self.config(self.solutions.at(np.array([i % len(self)]))[0])

    def __iter__(self) -> Iterator[dict[str, int | str]]:
        return (self[i] for i in range(len(self)))

    @property
    def matrix(self) -> Rows:
        """All legal configurations as indices into the values, a column per parameter."""
        if len(self) > HELD:
            raise UsageError(
                f"{len(self)} configurations are too many to hold", hint="draw samples, or ask for space[i]"
            )
        return self.solutions.all()

    def sample(self, n: int, rng: np.random.Generator) -> list[dict[str, int | str]]:
        """Up to `n` distinct legal configurations, uniformly."""
        return [self.config(row) for row in self.draw(n, rng)]

    def draw(self, n: int, rng: np.random.Generator) -> Rows:
        """The rows of `sample`."""
        return np.asarray(self.solutions.draw(n, rng), np.uint16)

    # -- one configuration --

    def config(self, row: Iterable[Any]) -> dict[str, int | str]:
        """The configuration of a row."""
        return {p.name: p.values[int(i)] for p, i in zip(self.parameters, row, strict=True)}

    def row(self, config: Config) -> Rows:
        """The row of a configuration, folded."""
        folded: Rows = self.fold_rows(self._indices(config)[None, :])[0]
        return folded

    def key(self, config: Config) -> tuple[int, ...]:
        """What two configurations that fold to the same one have in common."""
        return tuple(self.row(config).tolist())

    def fold(self, config: Config) -> dict[str, int | str]:
        """The configuration with inactive parameters at their defaults, and missing ones too."""
        return self.config(self.row(config))

    def is_legal(self, config: Config) -> bool:
        return self.why_illegal(config) is None

    def why_illegal(self, config: Config) -> str | None:
        """The first constraint that fails once folded: its reason, its text and the numbers it saw."""
        try:
            folded = self.fold(config)
        except TemplateError as error:
            return error.message
        if self.misfit:
            return self.misfit
        for setting in self.settings:
            where = f" for {setting}" if len(self.settings) > 1 else ""
            for reason, constraint in self.rules.sorted.shape.items():
                if why := self._why(constraint, folded, setting):
                    return f"{constraint.text if reason == constraint.text else f'{reason}: {constraint.text}'}{why}{where}"
        if self._rows is not None and not self.legal(self.row(config)[None, :])[0]:
            return "not among the recorded configurations"
        return None

    def _why(self, constraint: Expression, config: Config, setting: Setting) -> str | None:
        names = self.binding.names(config, setting)
        try:
            if constraint.truth(names, names):
                return None
            verdict = " does not hold"
        except Undefined as error:
            verdict = f" has no value: {error}"
        kinds = self.binding.kinds
        rank = {name: i for i, name in enumerate([*self.template.default, *sorted(kinds), *self.rules.lets])}
        asked = sorted(self.binding.leaves(constraint) | constraint.names, key=lambda name: rank[name])
        seen = ", ".join(f"{n} = {_shown(names, n)}" for n in asked if kinds[n] is not Kind.VALUE)
        return f"{verdict} ({seen})" if seen else verdict

    def _indices(self, config: Config) -> Rows:
        whole = self.template.complete(config)
        return np.array([self._index[i][whole[p.name]] for i, p in enumerate(self.parameters)], np.uint16)

    # -- rows --

    def fold_rows(self, rows: NDArray[Any]) -> Rows:
        """The rows with inactive parameters at their defaults."""
        folded = np.array(rows, np.uint16)
        for parameter, active in self.rules.active.items():
            (held,) = self.rules.program.holds([active], folded)
            folded[~held, parameter] = self._default[parameter]
        return folded

    def legal(self, rows: NDArray[Any]) -> NDArray[np.bool_]:
        """Which rows are legal once folded."""
        folded = self.fold_rows(rows)
        if self._rows is not None:
            legal = np.array([row.tobytes() in self._recorded for row in folded], bool)
        else:
            legal = np.full(len(folded), self.misfit is None)
        legal &= self._broken(folded) == 0
        return legal

    @cached_property
    def _recorded(self) -> frozenset[bytes]:
        return frozenset(row.tobytes() for row in (self._rows if self._rows is not None else ()))

    def _broken(self, folded: Rows) -> NDArray[np.int64]:
        """How many rules each row breaks."""
        rules = [rule for rules in self.rules.shape.values() for rule in rules]
        broken = np.zeros(len(folded), np.int64)
        for held in self.rules.program.holds(rules, folded):
            broken += ~held
        return broken

    def neighbours(self, config: Config, adjacent: bool = False) -> list[dict[str, int | str]]:
        """Legal configurations that differ in one choice: any other value of it, or only the next ones in its list."""
        return [self.config(one) for one in self.near(self.row(config), adjacent)]

    def near(self, row: Rows, adjacent: bool = False) -> Rows:
        """The rows of `neighbours`."""
        around = self._around(row, adjacent)
        near: Rows = around[self.legal(around)]
        return near

    def _around(self, row: Rows, adjacent: bool = False) -> Rows:
        """The distinct folded rows that one change of `row` leads to."""
        changed = []
        for i, p in enumerate(self.parameters):
            here = int(row[i])
            for value in (here - 1, here + 1) if adjacent else range(len(p.values)):
                if 0 <= value < len(p.values) and value != here:
                    changed.append(row.copy())
                    changed[-1][i] = value
        folded = self.fold_rows(np.array(changed, np.uint16).reshape(len(changed), len(row)))
        distinct = {one.tobytes(): one for one in folded if one.tobytes() != row.tobytes()}
        return np.array(list(distinct.values()), np.uint16).reshape(len(distinct), len(row))

    # -- where to begin --

    def starts(self) -> list[dict[str, int | str]]:
        """The default, the template's own starts, and the middle of each parameter; an illegal one is brought to a
        legal configuration near by, or left out."""
        middle = {p.name: p.values[len(p.values) // 2] for p in self.parameters}
        rows = [self._repaired(self.row(config)) for config in (self.template.default, *self.template.starts, middle)]
        distinct = {row.tobytes(): row for row in rows if row is not None}
        return [self.config(row) for row in distinct.values()]

    def _repaired(self, row: Rows) -> Rows | None:
        """A legal row reached by single changes, each of which breaks fewer rules; None where that ends too early."""
        for _ in range(REPAIRS):
            if self.legal(row[None, :])[0]:
                return row
            around = self._around(row)
            if not len(around) or (broken := self._broken(around)).min() >= self._broken(row[None, :])[0]:
                return None
            row = around[int(broken.argmin())]
        return None


def _shown(names: Mapping[str, Any], name: str) -> str:
    try:
        return str(names[name])
    except (Undefined, KeyError):
        return "unknown"
