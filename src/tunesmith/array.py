"""The spelling `type[shape]` of an array, shared by a task's arguments and a template's workspaces."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from tunesmith.dtype import Dtype, dtype
from tunesmith.errors import TaskError
from tunesmith.expression import Expression

SPEC = re.compile(r"\s*(\w+)\s*(?:\[(.*)\])?\s*$", re.DOTALL)


@dataclass(frozen=True)
class ArraySpec:
    """An element type (a type's name or a task's type symbol) and a shape; no shape at all is a number by value."""

    text: str
    type: str
    axes: tuple[Expression, ...]
    is_array: bool

    @staticmethod
    def parse(text: str) -> ArraySpec:
        """Read `"io[T, 2*d]"`, `"f32[]"` (one element behind a pointer) or `"f32"` (a number)."""
        match = SPEC.match(text)
        if match is None:
            raise TaskError(f"{text!r} is not type[shape], such as 'io[T, 2*d]'")
        axes = [] if not (match[2] or "").strip() else split(match[2])
        if "" in axes:
            raise TaskError(f"{text!r} has an empty axis")
        return ArraySpec(text, match[1], tuple(Expression.parse(axis) for axis in axes), match[2] is not None)

    def dtype(self, types: Mapping[str, str]) -> Dtype:
        return dtype(types.get(self.type, self.type))

    def shape(self, names: Mapping[str, int]) -> tuple[int, ...]:
        return tuple(axis.integer(names) for axis in self.axes)


def split(text: str) -> list[str]:
    """Split at the commas that stand outside parentheses."""
    parts, depth = [""], 0
    for char in text:
        depth += (char in "([") - (char in ")]")
        if char == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += char
    return [part.strip() for part in parts]
