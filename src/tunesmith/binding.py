"""A template bound to a task: every name in its expressions means one thing, and its launches can be told in numbers.

Knows what each expression depends on, and what template and task must agree on. A static dim of the task must be marked,
fixed or passed to the kernel: code that ignores one would be believed for any value of it. Nothing is compiled,
enumerated or run here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from functools import cached_property
from typing import NoReturn

from tunesmith.argument import Argument
from tunesmith.dtype import is_type
from tunesmith.errors import TemplateError, unknown
from tunesmith.expression import Expression, Undefined, Value
from tunesmith.grammar import Compare, Conditional, Name, Node, children
from tunesmith.header import Arg
from tunesmith.launch import ResolvedLaunch, ResolvedWorkspace
from tunesmith.launching import resolved_launch, resolved_workspace, single_value
from tunesmith.limits import Limits
from tunesmith.naming import TRUTH, Kind, Names, kinds_of, truths
from tunesmith.task import Dim, Setting, Task, Workload
from tunesmith.template import Config, Parameter, Template


class Binding:
    """A template and the meaning of its names, for a task or (`space TEMPLATE` alone) for given dims."""

    def __init__(self, template: Template, task: Task | None = None, *, dims: Mapping[str, int] | None = None) -> None:
        self.template, self.task = template, task
        self.kinds = kinds_of(template, task, dims or {})
        self._check()

    @cached_property
    def arguments(self) -> dict[str, Argument]:
        return {a.name: a for a in self.task.arguments} if self.task else {}

    def expressions(self) -> Iterator[tuple[str, Expression]]:
        """Every expression of the template, with what it is."""
        template = self.template
        for p in template.parameters:
            if p.when is not None:
                yield f"when of {p.name}", p.when
        yield from ((f"[let] {key}", e) for key, e in template.lets.items())
        yield from ((f"[require] {key!r}", e) for key, e in template.requires.items())
        yield from ((f"[options] {key}", e) for key, e in template.options.items())
        for launch in template.launches:
            for key in ("grid", "block", "cluster"):
                yield from ((key, e) for e in getattr(launch, key))
            yield from ((key, e) for key in ("shared_bytes", "when") if (e := getattr(launch, key)) is not None)
            yield from ((f"args, {a.text!r}", a.expression) for a in launch.args if not self.is_pointer(a))
        for workspace in template.workspaces:
            yield from ((f"[workspace] {workspace.name}", e) for e in workspace.array.axes)

    def leaves(self, expression: Expression) -> frozenset[str]:
        """The names that it depends on, `[let]`s and strides followed to what they are made of."""
        found: set[str] = set()
        pending, seen = [expression], set()
        while pending:
            e = pending.pop()
            for name in e.names:
                if self.kinds[name] is Kind.LET:
                    if name not in seen:
                        seen.add(name)
                        pending.append(self.template.lets[name])
                else:
                    found.add(name)
            for function, name in e.lookups:
                if function == "stride" and name in self.arguments:
                    pending.extend(self._stride_expressions(name))
        return frozenset(found)

    def needs(self, expression: Expression) -> frozenset[Kind]:
        """The kinds of names that must be known before it has a value; `aligned` waits for the pointers."""
        kinds = {self.kinds[name] for name in self.leaves(expression)} - {Kind.VALUE}
        if any(function == "aligned" for function, _ in expression.lookups):
            kinds.add(Kind.DYNAMIC)
        return frozenset(kinds)

    def names(self, config: Config, setting: Setting | None = None, *, workload: Workload | None = None,
              limits: Limits | None = None) -> Names:  # fmt: skip
        """The values of all names that are known from these; the rest is `Undefined`."""
        known: dict[str, Value] = {v: v for v, kind in self.kinds.items() if kind is Kind.VALUE}
        known.update(self.template.fixed)
        known.update(setting.dims if setting else ())
        types = dict(setting.types) if setting else {}
        if workload is not None:
            known.update(workload.dims)
            types = dict(workload.types)
            known.update(self._scalars(workload))
        if limits is not None:
            known.update({n: v for n, v in limits.facts().items() if self.kinds[n] is Kind.FACT})
        known.update(truths(config))
        return Names(self.template, self.task, known, types)

    def fold(self, config: Config, settings: Iterable[Setting] = ()) -> dict[str, int | str]:
        """The configuration with parameters at their defaults that are active in none of the settings."""
        folded = self.template.complete(config)
        known: list[Names | None] = [self.names({}, setting) for setting in settings] or [None]
        for parameter in self.order:
            if parameter.when is not None and not any(self._active(parameter, folded, names) for names in known):
                folded[parameter.name] = parameter.default
        return folded

    def _active(self, parameter: Parameter, config: Config, names: Names | None) -> bool:
        assert parameter.when is not None
        known: dict[str, Value] = (
            dict(names.known) if names else {v: v for v, kind in self.kinds.items() if kind is Kind.VALUE}
        )
        known.update(truths(config))
        try:
            return parameter.when.truth(Names(self.template, self.task, known, names.types if names else {}))
        except Undefined:
            return False

    @cached_property
    def order(self) -> tuple[Parameter, ...]:
        """The parameters, each after those that its `when` names."""
        done: dict[str, Parameter] = {}
        pending = list(self.template.parameters)
        while pending:
            ready = [p for p in pending if p.when is None or not self._waits(p, done)]
            if not ready:
                first = pending[0]
                self._wrong(f"the 'when' of {first.name} runs in a circle", first.line)
            done.update({p.name: p for p in ready})
            pending = [p for p in pending if p.name not in done]
        return tuple(done.values())

    def _waits(self, parameter: Parameter, done: Mapping[str, Parameter]) -> bool:
        assert parameter.when is not None
        return any(self.kinds[n] is Kind.PARAMETER and n not in done for n in self.leaves(parameter.when))

    def misfit(self, workload: Workload) -> str | None:
        """Why the code, whatever its configuration, is not for this workload."""
        for name, value in self.template.fixed.items():
            if workload.dims.get(name, value) != value:
                return f"the code is written for {name} = {value}, not {workload.dims[name]}"
        for name, kind in self.template.fixed_types.items():
            if workload.types.get(name, kind) != kind:
                return f"the code is written for {name} = {kind}, not {workload.types[name]}"
        return None

    def why_illegal(self, config: Config, workload: Workload, limits: Limits | None = None) -> str | None:
        """The first rule that this configuration breaks on this workload; constraints on facts need `limits`."""
        if reason := self.misfit(workload):
            return reason
        names = self.names(config, workload=workload, limits=limits)
        for reason, constraint in self.template.requires.items():
            if limits is None and Kind.FACT in self.needs(constraint):
                continue
            try:
                if constraint.truth(names, names):
                    continue
                seen = ", ".join(f"{n}={names[n]}" for n in sorted(constraint.names) if n in names)
            except Undefined as error:
                seen = str(error)
            return f"{reason}: {constraint.text} ({seen})"
        return None

    # -- launches --

    def launches(self, config: Config, workload: Workload, limits: Limits) -> tuple[ResolvedLaunch, ...]:
        """The launches of one configuration on one workload, or `Undefined` with what has no value."""
        names = self.names(config, workload=workload, limits=limits)
        return tuple(
            resolved_launch(launch, {a.text.strip() for a in launch.args if self.is_pointer(a)}, names, workload)
            for launch in self.template.launches
            if launch.when is None or launch.when.truth(names, names)
        )

    def workspaces(self, config: Config, workload: Workload, limits: Limits) -> tuple[ResolvedWorkspace, ...]:
        names = self.names(config, workload=workload, limits=limits)
        return tuple(resolved_workspace(workspace, names) for workspace in self.template.workspaces)

    def options(self, config: Config, setting: Setting, limits: Limits | None = None) -> dict[str, int | bool]:
        """The compiler options that this configuration chooses."""
        names = self.names(config, setting, limits=limits)
        return {
            key: e.integer(names, names) if key == "max_registers" else e.truth(names, names)
            for key, e in self.template.options.items()
        }

    def is_pointer(self, arg: Arg) -> bool:
        """Whether a launch passes the address of a buffer there."""
        name = arg.text.strip()
        argument = self.arguments.get(name)
        if argument is not None:
            return not argument.is_scalar
        return name in {w.name for w in self.template.workspaces} or (self.task is None and name not in self.kinds)

    # -- what is known of a task --

    def _scalars(self, workload: Workload) -> dict[str, Value]:
        """Scalar arguments whose value is one number in this workload."""
        found: dict[str, Value] = {}
        for argument in self.arguments.values():
            number = single_value(argument, workload) if argument.is_scalar else None
            if number is not None and math.isfinite(number):
                found[argument.name] = number if isinstance(number, int) else Fraction(number)
        return found

    def _stride_expressions(self, name: str) -> list[Expression]:
        argument = self.arguments[name]
        return [argument.stride_expression(axis) for axis in range(len(argument.array.axes))]

    # -- checking --

    def _check(self) -> None:
        for what, expression in self.expressions():
            self._check_names(what, expression)
        for key in self.template.lets:
            self._check_circle(key)
        for p in self.template.parameters:
            if p.when is not None and (late := self.needs(p.when) & {Kind.DYNAMIC, Kind.FACT, Kind.SCALAR}):
                self._wrong(
                    f"'when' of {p.name} asks for a {min(late)}; it may name parameters and static dims", p.line
                )
        for what, expression in self.expressions():
            self._check_symbols(what, expression.node)
        assert len(self.order) == len(self.template.parameters)
        if self.task is not None:
            self._check_dims(self.task)

    def _check_names(self, what: str, expression: Expression) -> None:
        for name in sorted(expression.names):
            if name not in self.kinds:
                known = [n for n, kind in self.kinds.items() if kind not in (Kind.VALUE, Kind.FACT)]
                hint = "" if self.task else f"if it is a dim, give --dim {name}=… or --task"
                of_when = what.removeprefix("when of ")
                line = self.template.parameter(of_when).line if of_when != what else 0
                self._wrong(
                    f"{what}: {expression.text!r} uses an undefined name: " + unknown("name", name, known),
                    line,
                    hint,
                    expression.text,
                )
        for function, name in sorted(expression.lookups):
            of_type = function == "sizeof" and (name in self._types or is_type(name))
            if not of_type and name not in self.arguments and self.task is not None:
                message = f"{what}: {function}({name}): " + unknown(
                    "argument or type", name, [*self.arguments, *self._types]
                )
                self._wrong(message, 0, "", expression.text)

    @cached_property
    def _types(self) -> frozenset[str]:
        return frozenset(self.task.types if self.task else (m.name for m in self.template.type_lines))

    def _check_circle(self, key: str) -> None:
        """Follow the `[let]`s from `key`; meeting it again is a circle."""
        pending, seen = [key], set()
        while pending:
            for name in self.template.lets[pending.pop()].names:
                if name == key:
                    self._wrong(f"[let] {key} runs in a circle", 0, "", key)
                if self.kinds[name] is Kind.LET and name not in seen:
                    seen.add(name)
                    pending.append(name)

    def _check_symbols(self, what: str, node: Node) -> None:
        """Names among a parameter's values can be compared for equality, and nothing else."""
        inside = children(node)
        if not (isinstance(node, Compare) and all(op in ("==", "!=") for op, _ in node.rest)):
            tested = inside[:1] if isinstance(node, Conditional) else inside
            for child in tested:
                if isinstance(child, Name) and self._is_symbol(child.name):
                    self._wrong(
                        f"{what}: {child.name} is a name, not a number; only == and != work on names", 0, "", child.name
                    )
        for child in inside:
            self._check_symbols(what, child)

    def _is_symbol(self, name: str) -> bool:
        if self.kinds[name] is Kind.PARAMETER:
            return any(isinstance(v, str) and v not in TRUTH for v in self.template.parameter(name).values)
        return self.kinds[name] is Kind.VALUE

    def _check_dims(self, task: Task) -> None:
        template = self.template
        statics = set(task.dims_of_kind(Dim.STATIC))
        for mark in template.dim_lines:
            if mark.name not in statics:
                kind = task.dims.get(mark.name)
                what = f"the dim {mark.name} is {kind}" if kind else unknown("dim", mark.name, statics)
                self._wrong(f"a dim line: {what}; only static dims are specialised", mark.line)
        for mark in template.type_lines:
            if mark.name not in task.types:
                self._wrong("a type line: " + unknown("type symbol", mark.name, task.types), mark.line)
        for name in template.fixed:
            if name not in statics:
                self._wrong("[fixed] " + unknown("static dim", name, statics), 0, "", name)
        for name in template.fixed_types:
            if name not in task.types:
                self._wrong("[fixed] " + unknown("type symbol", name, task.types), 0, "", name)
        for name, kinds in task.types.items():
            if len(kinds) > 1 and name not in {*template.fixed_types, *(m.name for m in template.type_lines)}:
                hint = f"mark a line with '// type: {name}', or write [fixed] {name} = \"{kinds[0]}\" in the header"
                message = f"the type {name} is neither marked nor fixed: the code would be believed for any of"
                self._wrong(f"{message} {', '.join(kinds)}", 0, hint)
        passed = {name for launch in template.launches for a in launch.args for name in self._named_by(a)}
        for name in sorted(statics - {m.name for m in template.dim_lines} - set(template.fixed) - passed):
            hint = f"mark its line with '// dim: {name}', write [fixed] {name} = … in the header, or pass it in args"
            self._wrong(
                f"the static dim {name} is neither marked, fixed nor passed: the code would be believed for any {name}",
                0,
                hint,
            )

    def _named_by(self, arg: Arg) -> set[str]:
        """What an argument's value tells the kernel: a stride that depends on a dim does not tell the dim."""
        found: set[str] = set()
        pending = set() if self.is_pointer(arg) else set(arg.expression.names)
        while pending:
            found.add(name := pending.pop())
            pending |= self.template.lets[name].names - found if self.kinds[name] is Kind.LET else set()
        return found

    def _wrong(self, message: str, line: int, hint: str = "", needle: str = "") -> NoReturn:
        if not line and needle:
            line = _line_of(self.template.source, needle)
        file = self.template.file.name if self.template.file else self.template.name
        raise TemplateError(message, file=file, line=line, hint=hint)


def _line_of(source: str, needle: str) -> int:
    """The line that gives a key, quotes a text, or else has it between other words; 0 where none does."""
    text = re.escape(needle)
    for pattern in (rf"^\s*{text}\s*=", rf"[\"'](?:\w+\()?{text}\)?[\"']", rf"(?<!\w){text}(?!\w)"):
        if found := re.search(pattern, source, re.MULTILINE):
            return source.count("\n", 0, found.end()) + 1
    return 0
