"""Which rows satisfy a set of rules: how many, which they are, and some of them drawn uniformly.

Chooses the order of the parameters, and what to do when a diagram grows too wide: rules are put aside, the diagram of the
others is exact, and what was put aside filters its rows. A filtered diagram that is small enough is listed, so that it
is exact again; beyond that a count is an estimate with its interval, while samples stay exactly uniform. Deterministic:
estimates draw from a generator of their own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tunesmith.column import Array
from tunesmith.diagram import Diagram, TooWide
from tunesmith.grammar import LIMIT
from tunesmith.program import Program

BUDGETS = (2**16, 2**20, 2**23)  # edges of one layer; small ones are tried in every order first
LISTED = 2**24  # rows of a filtered diagram that are looked at one by one
DRAWN = 2**17  # rows that an estimate rests on
EFFORT = 64  # batches of draws without a new row before a sample gives up
BATCH = 2**14
PROBED = 256  # rows that tell how much a rule removes
Z = 2.576  # of a 99 % interval


@dataclass(frozen=True, slots=True)
class Count:
    """How many; where it is not exact, an estimate within [low, high] at 99 %."""

    value: int
    exact: bool
    low: int
    high: int

    @staticmethod
    def of(value: int) -> Count:
        return Count(value, True, value, value)

    def outside(self, total: int) -> Count:
        """The others of `total`."""
        return Count(total - self.value, self.exact, total - self.high, total - self.low)


class Solutions:
    """The rows that satisfy `rules`, in a fixed order."""

    def __init__(self, program: Program, rules: Sequence[int], *, rows: Array | None = None) -> None:
        self.program, self.rules = program, tuple(dict.fromkeys(rules))
        self.diagram: Diagram | None = None
        self.filters: tuple[int, ...] = ()  # rules that are not in the diagram
        self.listed = rows  # every row, where they are held
        if rows is None:
            self.diagram, self.filters = _diagram(program, self.rules)
        if self.diagram is not None and self.filters and self.diagram.total <= LISTED:
            self.listed = self._filtered(self.diagram)

    @property
    def exact(self) -> bool:
        """Whether every row can be counted and addressed."""
        return self.listed is not None or not self.filters

    @cached_property
    def count(self) -> Count:
        if self.listed is not None:
            return Count.of(len(self.listed))
        assert self.diagram is not None
        return self.share(self.filters) if self.filters else Count.of(self.diagram.total)

    def share(self, rules: Sequence[int]) -> Count:
        """An estimate of how many rows of the diagram satisfy these rules as well."""
        assert self.diagram is not None
        total = self.diagram.total
        if total == 0:
            return Count.of(0)
        drawn = self.diagram.at(_numbers(total, DRAWN if total <= LIMIT else BATCH, np.random.default_rng(0)))
        found = int(self._legal(rules, drawn).sum())
        low, high = _wilson(found, len(drawn))
        return Count(total * found // len(drawn), False, max(found, int(total * low)), math.ceil(total * high))

    def all(self) -> Array:
        """Every row."""
        if self.listed is None:
            assert self.diagram is not None
            self.listed = self.diagram.rows()
        return self.listed

    def at(self, numbers: Array) -> Array:
        if self.listed is not None:
            found: Array = self.listed[numbers]
            return found
        assert self.diagram is not None
        return self.diagram.at(numbers)

    def draw(self, n: int, rng: np.random.Generator) -> Array:
        """Up to `n` distinct rows, uniformly; fewer where there are no more, or none is met in a long time."""
        if self.exact:
            return self.at(_distinct(self.count.value, n, rng))
        assert self.diagram is not None
        found: dict[bytes, Array] = {}
        idle = 0
        while len(found) < n and idle < EFFORT:
            rows = self.diagram.at(_numbers(self.diagram.total, BATCH, rng))
            before = len(found)
            for row in rows[self._legal(self.filters, rows)]:
                found.setdefault(row.tobytes(), row)
            idle = idle + 1 if len(found) == before else 0
        rows = np.array(list(found.values())[:n], np.uint16)
        return rows.reshape(len(rows), len(self.program.domains))

    def _legal(self, rules: Sequence[int], rows: Array) -> Array:
        legal = np.ones(len(rows), bool)
        for held in self.program.holds(rules, rows):
            legal &= held
        return legal

    def _filtered(self, diagram: Diagram) -> Array:
        kept = []
        for start in range(0, diagram.total, BATCH * 8):
            rows = diagram.at(np.arange(start, min(diagram.total, start + BATCH * 8)))
            kept.append(rows[self._legal(self.filters, rows)])
        return np.concatenate(kept) if kept else np.zeros((0, len(diagram.order)), np.uint16)


# --- the diagram and its order -----------------------------------------------------------------------------------------


def _diagram(program: Program, rules: Sequence[int]) -> tuple[Diagram, tuple[int, ...]]:
    """A diagram of as many of the rules as fit, and the rules that were put aside."""
    kept = list(rules)
    aside: list[int] = []
    while True:
        orders = list(_orders(program, [r for r in kept if r not in program.constants]))
        for budget in BUDGETS:
            for order in orders[:1] if budget == BUDGETS[-1] else orders:
                try:
                    return Diagram(program, kept, order, budget), tuple(aside)
                except TooWide:
                    continue
        widest = max(kept, key=lambda r: _bits(program, program.needs[r]))
        kept.remove(widest)
        aside.append(widest)


def _bits(program: Program, needs: int) -> float:
    """How many bits it takes to tell the combinations of these parameters apart."""
    return sum(math.log2(len(domain.values)) for p, domain in enumerate(program.domains) if needs >> p & 1)


def _orders(program: Program, rules: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Orders worth trying: a narrow frontier, as the rules name them, as the file lists them. Free parameters last."""
    named = [p for r in rules for i in program.cone([r]) for p in [i] if i < len(program.domains)]
    free = [p for p in range(len(program.domains)) if p not in named]
    mentioned = [p for r in rules for p in _mentioned(program, r)]
    orders = (_narrow(program, rules), tuple(dict.fromkeys(mentioned)), tuple(sorted(set(named))))
    yield from dict.fromkeys((*order, *free) for order in orders)


def _mentioned(program: Program, rule: int) -> list[int]:
    """The rule's parameters in the order in which its text names them."""
    found, seen, pending = [], set(), [rule]
    while pending:
        if (i := pending.pop()) in seen:
            continue
        seen.add(i)
        if program.operations[i] == ("parameter",):
            found.append(i)
        pending.extend(reversed(program.operands[i]))
    return found


def _narrow(program: Program, rules: Sequence[int]) -> tuple[int, ...]:
    """Bind next what leaves the fewest combinations to remember, once the rules that it completes have removed theirs."""
    removed = dict(zip(rules, _selectivity(program, rules), strict=True))
    rank = {p: i for i, p in enumerate(dict.fromkeys(p for r in rules for p in _mentioned(program, r)))}
    bound, order = 0, list[int]()
    while len(order) < len(rank):
        live = [r for r in rules if program.needs[r] & bound and program.needs[r] & ~bound]
        linked = {p for r in live for p in program.parameters(program.needs[r] & ~bound)} or rank.keys() - set(order)

        def width(p: int, bound: int = bound) -> tuple[float, int]:
            after = bound | 1 << p
            needed = 0
            for r in rules:
                needed |= program.needs[r] if program.needs[r] & ~after else 0
            complete = [r for r in rules if program.needs[r] & ~bound and not program.needs[r] & ~after]
            return _bits(program, needed & after) - sum(removed[r] for r in complete), rank[p]

        order.append(best := min(linked, key=width))
        bound |= 1 << best
    return tuple(order)


def _selectivity(program: Program, rules: Sequence[int]) -> list[float]:
    """How many bits of the combinations each rule removes, from a few random rows."""
    if not rules:
        return []
    rng = np.random.default_rng(0)
    rows = np.stack([rng.integers(0, len(d.values), PROBED) for d in program.domains], axis=1).astype(np.uint16)
    return [-math.log2(max(held.mean(), 1 / PROBED)) for held in program.holds(rules, rows)]


# --- numbers and intervals ---------------------------------------------------------------------------------------------


def _numbers(total: int, n: int, rng: np.random.Generator) -> Array:
    """`n` numbers below `total`, independent and uniform, of any size."""
    if total <= LIMIT:
        return rng.integers(0, total, n) if total else np.zeros(0, np.int64)
    size, found = (total.bit_length() + 7) // 8, list[int]()
    while len(found) < n:  # the top bits are cut off, so at least every second draw is kept
        drawn = int.from_bytes(rng.bytes(size), "little") >> (8 * size - total.bit_length())
        if drawn < total:
            found.append(drawn)
    return np.array(found, object)


def _distinct(total: int, n: int, rng: np.random.Generator) -> Array:
    """Distinct numbers below `total`, uniformly, in random order."""
    n = min(n, total)
    if total <= max(4 * n, 2**12):
        return rng.permutation(total)[:n]
    found: dict[int, None] = {}
    while len(found) < n:
        found.update(dict.fromkeys(_numbers(total, n - len(found), rng).tolist()))
    return np.array(list(found), np.int64 if total <= LIMIT else object)


def _wilson(found: int, of: int) -> tuple[float, float]:
    """Wilson's interval for a share."""
    share, z2 = found / of, Z * Z
    middle = (share + z2 / (2 * of)) / (1 + z2 / of)
    half = Z / (1 + z2 / of) * math.sqrt(share * (1 - share) / of + z2 / (4 * of * of))
    return max(0.0, middle - half), min(1.0, middle + half)
