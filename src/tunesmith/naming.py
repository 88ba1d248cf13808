"""What each name of a template's expressions stands for: who defines it, and so when it has a value; and those values.

A name is a parameter, a `[let]`, a dim, a scalar argument, a fact of the device, or a value of a parameter whose values
are names. Two things of one name are an error; only a device's facts, a convenience, give way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum

from tunesmith.argument import Argument
from tunesmith.dtype import dtype, is_type
from tunesmith.errors import TemplateError
from tunesmith.expression import Expression, Undefined, Value
from tunesmith.limits import FACTS
from tunesmith.task import Dim, Task
from tunesmith.template import Config, Template


class Kind(StrEnum):
    """What a name stands for; decides when it is known."""

    PARAMETER = "parameter"
    LET = "let"
    STATIC = "static dim"
    DYNAMIC = "dynamic dim"  # free ones too: known at launch
    SCALAR = "scalar argument"
    FACT = "fact of the device"
    VALUE = "name among a parameter's values"


TRUTH: dict[str, bool] = {"true": True, "false": False}


def truths(config: Config) -> dict[str, Value]:
    """A configuration as expressions see it: C's true and false are truth values."""
    return {name: value if isinstance(value, int) else TRUTH.get(value, value) for name, value in config.items()}


def kinds_of(template: Template, task: Task | None, dims: Mapping[str, int]) -> dict[str, Kind]:
    """What each name means. A template's own names win over the device's facts, which are only a convenience."""
    kinds: dict[str, Kind] = dict.fromkeys(FACTS, Kind.FACT)
    for parameter in template.parameters:
        kinds.update({v: Kind.VALUE for v in parameter.values if isinstance(v, str) and v not in TRUTH})
    own = dict.fromkeys(template.names, Kind.PARAMETER) | dict.fromkeys(template.lets, Kind.LET)
    if task is not None:
        own_dims = {
            n: Kind.STATIC if k is Dim.STATIC else Kind.DYNAMIC for n, k in task.dims.items() if k is not Dim.NOTE
        }
        own_dims |= {a.name: Kind.SCALAR for a in task.arguments if a.is_scalar}
    else:
        own_dims = dict.fromkeys([*dims, *template.fixed, *(m.name for m in template.dim_lines)], Kind.STATIC)
        passed = {a.text.strip() for launch in template.launches for a in launch.args}
        asked = {n for e in _sizes(template) for n in e.names}
        own_dims |= {n: Kind.DYNAMIC for n in passed & asked if n not in own_dims and n not in own}
    for scope in (own_dims, own):
        for name, kind in scope.items():
            if kinds.get(name, Kind.FACT) is not Kind.FACT:
                file = template.file.name if template.file else template.name
                raise TemplateError(f"{name} is both a {kinds[name]} and a {kind}", file=file)
            kinds[name] = kind
    return kinds


def _sizes(template: Template) -> Iterator[Expression]:
    yield from template.lets.values()
    yield from template.requires.values()
    for launch in template.launches:
        yield from (*launch.grid, *launch.block, *launch.cluster)
        yield from (e for e in (launch.shared_bytes, launch.when) if e is not None)
        yield from (a.expression for a in launch.args if a.cast)


class Names(Mapping[str, Value]):
    """The values of a template's names, `[let]`s computed when first asked for; answers `sizeof`, `stride`, `aligned`."""

    def __init__(
        self, template: Template, task: Task | None, known: Mapping[str, Value], types: Mapping[str, str]
    ) -> None:
        self.template, self.task, self.types = template, task, types
        self.known: dict[str, Value] = dict(known)
        self._lets: dict[str, Value] = {}

    def __getitem__(self, name: str) -> Value:
        if name in self.known:
            return self.known[name]
        if name not in self._lets:
            self._lets[name] = self.template.lets[name].evaluate(self, self)
        return self._lets[name]

    def __contains__(self, name: object) -> bool:
        return name in self.known or name in self.template.lets

    def __iter__(self) -> Iterator[str]:
        return iter(self.known)

    def __len__(self) -> int:
        return len(self.known)

    def argument(self, name: str) -> Argument | None:
        """The task's argument of that name, if it has one."""
        return next((a for a in self.task.arguments if a.name == name), None) if self.task else None

    def lookup(self, function: str, name: str, argument: int | None) -> int | bool:
        found = self.argument(name)
        if function == "sizeof":
            kind = self.types.get(name) or (found.array.type if found else name)
            kind = self.types.get(kind, kind)
            if not is_type(kind):
                raise Undefined(f"sizeof({name}): its type is not known here")
            return dtype(kind).itemsize
        if found is None or self.task is None or argument is None:
            raise Undefined(f"{function}({name}) is not known here")
        if function == "aligned":
            return argument > 0 and self.task.align_of(found) % argument == 0
        if not 0 <= argument < len(found.array.axes):
            raise Undefined(f"stride({name}, {argument}): {name} has {len(found.array.axes)} axes")
        return found.stride_expression(argument).integer(self, self)
