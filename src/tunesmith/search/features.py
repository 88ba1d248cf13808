"""Rows of a space as points whose distances a model can learn from.

A name is equal to another or not. A number stands between its neighbours in the list, half by its rank and half by its
logarithm; and where larger is not rounder, how often two divides it is a coordinate of its own: 96 and 128 are near,
and to memory and warps they are not. Each coordinate group has one scale for a model to find.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunesmith.space import Rows, Space
from tunesmith.template import Parameter

Points = NDArray[np.float64]
MANY = 3  # values from which on roundness can differ from size


@dataclass(frozen=True)
class Features:
    """Per parameter a table from value to coordinates, and the group that each coordinate belongs to."""

    tables: tuple[Points, ...]
    groups: NDArray[np.int64]

    @staticmethod
    def of(space: Space) -> Features:
        tables, groups, number = [], list[int](), 0
        for parameter in space.parameters:
            parts = _coordinates(parameter)
            for part in parts:
                groups += [number] * part.shape[1]
                number += 1
            none = np.zeros((len(parameter.values), 0))
            tables.append(np.concatenate(parts, axis=1) if parts else none)
        return Features(tuple(tables), np.array(groups, np.int64))

    @property
    def scales(self) -> int:
        """How many groups there are."""
        return int(self.groups.max()) + 1 if len(self.groups) else 0

    def points(self, rows: Rows) -> Points:
        return np.concatenate([table[rows[:, i]] for i, table in enumerate(self.tables)], axis=1)


def _coordinates(parameter: Parameter) -> list[Points]:
    values = parameter.values
    if len(values) < 2:
        return []
    if any(isinstance(v, str) for v in values):
        return [np.eye(len(values)) / np.sqrt(2.0)]  # two different names are 1 apart
    numbers = np.array([int(v) for v in values], np.float64)
    rank = np.argsort(np.argsort(numbers)).astype(np.float64)
    size = np.log2(np.maximum(numbers, 0.5)) if numbers.min() >= 0 else rank
    parts = [(_unit(rank) + _unit(size)) / 2]
    round_ = np.array([(int(v) & -int(v)).bit_length() if v else 0 for v in values], np.float64)
    if len(values) > MANY and np.any(np.diff(round_[np.argsort(numbers)]) < 0):
        parts.append(_unit(round_))
    return [part[:, None] for part in parts]


def _unit(numbers: NDArray[Any]) -> Points:
    """Between 0 and 1."""
    between: Points = (numbers - numbers.min()) / (numbers.max() - numbers.min())
    return between
