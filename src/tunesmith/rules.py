"""What a bound template says about its configurations, sorted by the names that each constraint asks for.

Constraints on parameters and static dims shape the space; one with a dynamic dim, a scalar or `aligned` is a predicate
of the dispatch; one with a fact of the device is a device constraint and never decides what is legal. Shape, `when`s
and limits are written as instructions of one `Program`, once per setting. A constraint without a value does not hold, a
`when` without one is inactive, a size without one exceeds nothing. A row that is not folded breaks a rule here: an
inactive parameter must be at its default, so that counting rows counts configurations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tunesmith.binding import Binding
from tunesmith.column import Column
from tunesmith.expression import Expression, Value
from tunesmith.header import Launch
from tunesmith.limits import Limits
from tunesmith.naming import Kind, Names
from tunesmith.program import Program, conjuncts
from tunesmith.task import Setting

AT_LAUNCH = {Kind.DYNAMIC, Kind.SCALAR}
_TRUTH = {"true": True, "false": False}  # C's words, as expressions see them


@dataclass(frozen=True)
class Sorted:
    """The constraints of a template by what they decide."""

    shape: Mapping[str, Expression]
    predicates: Mapping[str, Expression]
    device: Mapping[str, Expression]

    @staticmethod
    def of(binding: Binding) -> Sorted:
        sorts: dict[str, dict[str, Expression]] = {"shape": {}, "predicates": {}, "device": {}}
        for reason, constraint in binding.template.requires.items():
            sorts[_sort(binding, constraint)][reason] = constraint
        return Sorted(**sorts)


def _sort(binding: Binding, constraint: Expression) -> str:
    needs = binding.needs(constraint)
    asks_task = binding.task is None and any(function != "sizeof" for function, _ in constraint.lookups)
    if needs & AT_LAUNCH or asks_task:
        return "predicates"
    return "device" if Kind.FACT in needs else "shape"


class Rules:
    """The rules of a template as instructions. A rule is an instruction that holds or does not, for every row."""

    def __init__(self, binding: Binding, settings: Sequence[Setting]) -> None:
        self.binding, self.settings = binding, tuple(settings)
        self.sorted = Sorted.of(binding)
        self.number = {p.name: i for i, p in enumerate(binding.template.parameters)}
        self.program = Program([Column.of([_seen(v) for v in p.values]) for p in binding.template.parameters])
        self.lets = _lets_in_order(binding)
        scopes = [self._scope(setting, None) for setting in self.settings]
        self.shape = {reason: self._constraint(e, scopes) for reason, e in self.sorted.shape.items()}
        self.active = {
            self.number[p.name]: self._holds([self._compile(p.when, scope) for scope in scopes])
            for p in binding.order
            if p.when is not None
        }
        self.folded = tuple(self._default_or(p, active) for p, active in self.active.items())

    @property
    def legal(self) -> tuple[int, ...]:
        """All rules that a row of the space satisfies."""
        return (*(rule for rules in self.shape.values() for rule in rules), *self.folded)

    def fits(self, limits: Limits) -> tuple[int, ...]:
        """The rules that a row within these limits satisfies, where they depend on parameters and static dims."""
        found: list[int] = []
        for setting in self.settings:
            scope = self._scope(setting, limits)
            found += (rule for e in self.sorted.device.values() for rule in self._constraint(e, [scope]))
            for launch in self.binding.template.launches:
                found += self._launch_fits(launch, limits, scope)
        return tuple(dict.fromkeys(found))

    # -- writing --

    def _scope(self, setting: Setting, limits: Limits | None) -> Scope:
        names = self.binding.names({}, setting, limits=limits)
        scope = Scope({n: self.program.constant(v) for n, v in names.known.items()} | self.number, names)
        for name in self.lets:
            scope.names[name] = self._compile(self.binding.template.lets[name], scope)
        return scope

    def _compile(self, expression: Expression, scope: Scope) -> int:
        return self.program.compile(expression.node, scope.names, scope.facts)

    def _holds(self, alternatives: Sequence[int]) -> int:
        return self.program.emit(("any",), alternatives)

    def _constraint(self, expression: Expression, scopes: Sequence[Scope]) -> tuple[int, ...]:
        """Rules that all hold exactly where the constraint does, in every setting."""
        nodes = conjuncts(expression.node)
        rules = [self._holds([self.program.compile(n, s.names, s.facts)]) for s in scopes for n in nodes]
        return tuple(dict.fromkeys(rules))

    def _default_or(self, parameter: int, active: int) -> int:
        default = self.program.constant(_seen(self.binding.template.parameters[parameter].default))
        return self._holds([self.program.emit(("compare", "=="), (parameter, default)), active])

    def _launch_fits(self, launch: Launch, limits: Limits, scope: Scope) -> list[int]:
        if launch.when is not None and not self._early(launch.when):
            return []
        sizes = [(e, limit) for e, limit in zip(launch.block, limits.max_block, strict=False) if self._early(e)]
        if launch.shared_bytes is not None and self._early(launch.shared_bytes):
            sizes.append((launch.shared_bytes, limits.max_shared_bytes))
        pairs = [(self._compile(e, scope), limit) for e, limit in sizes]
        for axes, limit in ((launch.block, limits.max_threads), (launch.cluster, limits.largest_cluster)):
            if axes and all(self._early(e) for e in axes):
                pairs.append((self._product(axes, scope), limit))
        launched = [] if launch.when is None else [self._compile(launch.when, scope)]
        rules = []
        for size, limit in pairs:
            above = self.program.emit(("compare", ">"), (size, self.program.constant(limit)))
            both = self.program.emit(("logic", "and"), (*launched, above))
            rules.append(self.program.emit(("none",), (both,)))
        return rules

    def _product(self, axes: Sequence[Expression], scope: Scope) -> int:
        product, *others = (self._compile(e, scope) for e in axes)
        for other in others:
            product = self.program.emit(("binary", "*"), (product, other))
        return product

    def _early(self, expression: Expression) -> bool:
        """Whether it is known before a launch."""
        return not self.binding.needs(expression) & AT_LAUNCH


@dataclass(frozen=True)
class Scope:
    """What names mean in one setting: instructions, and who answers `sizeof` and `stride`."""

    names: dict[str, int]
    facts: Names


def _seen(value: int | str) -> Value:
    return _TRUTH.get(value, value) if isinstance(value, str) else value


def _lets_in_order(binding: Binding) -> tuple[str, ...]:
    """The `[let]`s, each after those that it names; there is no circle."""
    lets, done = binding.template.lets, dict[str, None]()
    pending = list(lets)
    while pending:
        ready = [n for n in pending if not (lets[n].names & lets.keys() - done.keys())]
        done.update(dict.fromkeys(ready))
        pending = [n for n in pending if n not in done]
    return tuple(done)
