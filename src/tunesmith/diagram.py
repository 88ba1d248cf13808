"""The rows that satisfy a set of rules, as a layered diagram: counted, addressed and listed without being held.

A layer binds one parameter. A state of a layer is what later rules still need to know of the parameters bound so far:
the values of the largest sub-expressions that are complete. Rows that agree on those are one state, so parameters that
nothing links, and long sums, cost little; a path through the layers is a row. Invariant: after construction every edge
leads to the end, so nothing that is followed forwards is ever a dead end. Knows instructions, not expressions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tunesmith.column import Array, Column
from tunesmith.grammar import LIMIT
from tunesmith.program import Program

CHUNK = 2**17  # candidate rows looked at together: what stays in the cache


class TooWide(Exception):
    """A layer has more edges than the budget; another order, or fewer rules, may do."""


@dataclass(slots=True)
class Layer:
    """The edges that bind one parameter, sorted by the state they leave."""

    offsets: Array  # edges of state s: offsets[s] to offsets[s + 1]
    values: Array  # index of the parameter's value
    targets: Array  # state of the next layer
    before: Array  # rows behind all earlier edges of the layer; one entry more than edges


class Diagram:
    """Rows are numbered from 0 to `total` in the order of the layers' parameters."""

    def __init__(self, program: Program, rules: Sequence[int], order: Sequence[int], budget: int) -> None:
        self.program, self.order = program, tuple(order)
        known = [r for r in rules if r in program.constants]
        self.empty = any(not bool(program.constants[r].holds()) for r in known)
        self.rules = [r for r in rules if r not in program.constants]
        self.layers: list[Layer] = []
        self._plan()
        self._forwards(0 if self.empty else budget)
        self._backwards()

    @property
    def total(self) -> int:
        return 0 if self.empty else int(self.layers[0].before[-1]) if self.layers else 1

    # -- building --

    def _plan(self) -> None:
        """When each instruction is complete, and until when it is asked for."""
        program, cone = self.program, self.program.cone(self.rules)
        at = {parameter: layer for layer, parameter in enumerate(self.order)}
        self.complete = {i: max(at[p] for p in program.parameters(program.needs[i])) for i in cone}
        self.asked = dict(self.complete)
        for user in cone:
            for i in program.operands[user]:
                if i not in program.constants:
                    self.asked[i] = max(self.asked[i], self.complete[user])

    def _forwards(self, budget: int) -> None:
        carried: dict[int, Column] = {}
        states = 1
        for layer, parameter in enumerate(self.order if budget else ()):
            sources, values, carried = self._expand(layer, parameter, carried, states, budget)
            new = [i for i in carried if self.complete[i] == layer]
            # a state and a raw value that is carried on are a new state each: nothing to merge
            distinct = parameter in new and len(carried) == len(new) + len(self._frontier(layer - 1))
            targets, carried = (np.arange(len(values)), carried) if distinct else _merge(carried, len(values))
            offsets = np.searchsorted(sources, np.arange(states + 1))
            states = len(values) if distinct else int(targets.max(initial=-1)) + 1
            self.layers.append(Layer(offsets, values, targets.astype(np.int32), offsets))

    def _frontier(self, layer: int) -> list[int]:
        return [i for i, done in self.complete.items() if done <= layer < self.asked[i]]

    def _expand(self, layer: int, parameter: int, carried: dict[int, Column], states: int,
                budget: int) -> tuple[Array, Array, dict[int, Column]]:  # fmt: skip
        """Every state with every value: the pairs that satisfy the rules complete here, and what they carry on."""
        domain = self.program.domains[parameter]
        width = len(domain.values)
        fresh = [i for i in self.complete if self.complete[i] == layer]
        rules = [r for r in self.rules if self.complete[r] == layer]
        frontier = self._frontier(layer)
        step, edges = max(1, CHUNK // width), 0
        found: list[tuple[Array, Array]] = []
        columns: dict[int, list[Column]] = {i: [] for i in frontier}
        for start in range(0, states, step):
            part = slice(start, min(start + step, states))
            shape = (part.stop - start, width)
            given = {i: c.take(part).each(lambda a: a[:, None]) for i, c in carried.items()}
            given[parameter] = domain.each(lambda a: a[None, :])
            self.program.compute(fresh, given)
            legal = np.ones(shape, bool)
            for rule in rules:
                legal &= given[rule].holds()
            pairs = np.flatnonzero(legal)
            if (edges := edges + len(pairs)) > budget:
                raise TooWide
            source, value = np.divmod(pairs.astype(np.int32), np.int32(width))
            found.append((source.astype(np.int64) + start, value.astype(np.uint16)))
            for i in frontier:
                columns[i].append(given[i].broadcast(shape).each(np.ravel).take(pairs))
        joined = {i: Column.concatenate(listed) for i, listed in columns.items()} if found else {}
        sources = np.concatenate([s for s, _ in found]) if found else np.zeros(0, np.int64)
        return sources, np.concatenate([v for _, v in found]) if found else np.zeros(0, np.uint16), joined

    def _backwards(self) -> None:
        """Count the rows behind every edge, and drop the edges that lead nowhere."""
        dtype = np.int64 if self.program.cartesian <= LIMIT else object
        weights = np.ones(1, dtype)  # of the states that the layer above leads to
        for layer in reversed(self.layers):
            behind = weights[layer.targets] if len(layer.targets) else np.zeros(0, dtype)
            kept = np.concatenate([[0], np.cumsum(behind != 0)])
            alive = np.flatnonzero(behind != 0)
            layer.values, layer.targets = layer.values[alive], layer.targets[alive]
            layer.offsets = kept[layer.offsets]
            layer.before = np.concatenate([np.zeros(1, dtype), np.cumsum(behind[alive])])
            weights = layer.before[layer.offsets[1:]] - layer.before[layer.offsets[:-1]]
        if dtype is object and self.total <= LIMIT:
            for layer in self.layers:
                layer.before = layer.before.astype(np.int64)

    # -- reading --

    def at(self, numbers: Array) -> Array:
        """The rows with these numbers."""
        rows = np.zeros((len(numbers), len(self.order)), np.uint16)
        state = np.zeros(len(numbers), np.int64)
        rest = numbers
        for parameter, layer in zip(self.order, self.layers, strict=True):
            wanted = layer.before[layer.offsets[state]] + rest
            edge = np.searchsorted(layer.before, wanted, side="right") - 1
            rows[:, parameter] = layer.values[edge]
            rest, state = wanted - layer.before[edge], layer.targets[edge]
        return rows

    def rows(self) -> Array:
        """All rows, in order of their numbers."""
        rows = np.zeros((self.total, len(self.order)), np.uint16, order="F")
        state = np.zeros(min(1, self.total), np.int64)  # one entry per distinct beginning of a row
        for parameter, layer in zip(self.order, self.layers, strict=False):
            first, last = layer.offsets[state], layer.offsets[state + 1]
            lengths = last - first
            ends = np.cumsum(lengths)
            edge = np.arange(int(ends[-1]) if len(ends) else 0) + np.repeat(first - (ends - lengths), lengths)
            behind = layer.before[edge + 1] - layer.before[edge]
            rows[:, parameter] = np.repeat(layer.values[edge], behind.astype(np.int64))
            state = layer.targets[edge]
        return rows


def _merge(carried: dict[int, Column], count: int) -> tuple[Array, dict[int, Column]]:
    """The number of each row's state, and one row of each state."""
    key, span = np.zeros(count, np.int64), 1
    for part in (p for column in carried.values() for p in column.parts()):
        low, high = int(part.min(initial=0)), int(part.max(initial=0))
        if span * (high - low + 1) > LIMIT:  # digits of distinct values instead of the values themselves
            (_, key), span = _numbered(key, span), count
            (_, part), low, high = _numbered(part, LIMIT), 0, count
        key = key * (high - low + 1) + (part.astype(np.int64) - low)
        span *= high - low + 1
    first, number = _numbered(key, span)
    return number, {i: column.take(first) for i, column in carried.items()}


def _numbered(key: Array, span: int) -> tuple[Array, Array]:
    """Keys in [0, span) as consecutive numbers: where each number first stands, and the number of each key."""
    if span > 4 * len(key) + 1024:
        _, first, inverse = np.unique(key, return_index=True, return_inverse=True)
        return first, inverse.reshape(-1)
    first = np.full(span, -1, np.int64)
    first[key[::-1]] = np.arange(len(key))[::-1]
    present = first >= 0
    return first[present], (np.cumsum(present) - 1)[key]
