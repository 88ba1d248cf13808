"""What each name of a template's expressions stands for: who defines it, and so when it has a value.

A name is a parameter, a `[let]`, a dim, a scalar argument, a fact of the device, or a value of a parameter whose values
are names. Two things of one name are an error; only a device's facts, a convenience, give way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum

from tunesmith.errors import TemplateError
from tunesmith.expression import Expression, Value
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
