"""The rules of a space as one straight list of instructions over its parameters.

Every expression, `[let]`s inlined, becomes instructions whose operands stand before them; equal ones are one, and what
needs no parameter is computed at once. So a tower of `[let]`s costs its length, not its expansion, and nothing recurses.
Knows parameters by number and their values as columns; nothing of what is legal. Instruction i of the first
`len(domains)` is parameter i.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tunesmith.column import Array, Column
from tunesmith.columns import Operation, apply, operation
from tunesmith.expression import Facts, Value
from tunesmith.grammar import Compare, Logic, Name, Node, Number, children


@dataclass
class Program:
    """Instructions; `needs` holds, as bits, the parameters that each depends on."""

    domains: Sequence[Column]  # the values of each parameter
    operations: list[Operation] = field(default_factory=list)
    operands: list[tuple[int, ...]] = field(default_factory=list)
    needs: list[int] = field(default_factory=list)
    facts: list[Facts | None] = field(default_factory=list)
    constants: dict[int, Column] = field(default_factory=dict)
    _known: dict[object, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for i in range(len(self.domains)):
            self._append(("parameter",), (), 1 << i, None)

    @property
    def cartesian(self) -> int:
        product = 1
        for domain in self.domains:
            product *= len(domain.values)
        return product

    def parameters(self, needs: int) -> list[int]:
        """The numbers of the parameters in a set of bits."""
        return [i for i in range(len(self.domains)) if needs >> i & 1]

    # -- writing --

    def constant(self, value: Value | None) -> int:
        key = (type(value), value)
        if key not in self._known:
            self._known[key] = self._append(("constant",), (), 0, None)
            self.constants[self._known[key]] = Column.constant(value)
        return self._known[key]

    def emit(self, op: Operation, operands: Sequence[int], facts: Facts | None = None) -> int:
        """The instruction that applies `op`, new or the one there is."""
        if op[0] in ("if", "logic"):
            simpler = self._decided(op, operands)
            if isinstance(simpler, int):
                return simpler
            operands = simpler
        asks = facts if op[0] == "lookup" else None
        key = (op, tuple(operands), id(asks))
        if key in self._known:
            return self._known[key]
        if all(i in self.constants for i in operands):
            (value,) = apply(op, [self.constants[i] for i in operands], asks).list()
            self._known[key] = self.constant(value)
        else:
            needs = 0
            for i in operands:
                needs |= self.needs[i]
            self._known[key] = self._append(op, tuple(operands), needs, asks)
        return self._known[key]

    def compile(self, node: Node, names: Mapping[str, int], facts: Facts | None = None) -> int:
        """The instruction that computes a tree; `names` are instructions, a name that is not there has no value."""
        if isinstance(node, Number):
            return self.constant(node.value)
        if isinstance(node, Name):
            return names[node.name] if node.name in names else self.constant(None)
        return self.emit(operation(node), [self.compile(c, names, facts) for c in children(node)], facts)

    def _append(self, op: Operation, operands: tuple[int, ...], needs: int, facts: Facts | None) -> int:
        self.operations.append(op)
        self.operands.append(operands)
        self.needs.append(needs)
        self.facts.append(facts)
        return len(self.operations) - 1

    def _decided(self, op: Operation, operands: Sequence[int]) -> int | list[int]:
        """A branch that a constant chose; or the operands up to the constant that decides, without those that do not."""
        if op[0] == "if":
            test = self.constants.get(operands[0])
            if test is None or test.undefined is not None or test.named is not None:
                return list(operands)
            return operands[1 if bool(test.holds()) else 2]
        kept = []
        for i in operands:
            known = self.constants.get(i)
            if known is None or known.undefined is not None or known.named is not None:
                kept.append(i)
            elif bool(known.holds()) is (op[1] == "or"):
                kept.append(i)
                break
        return kept or self.constant(op[1] == "and")

    # -- running --

    def cone(self, targets: Iterable[int]) -> list[int]:
        """The instructions that the targets are made of, in order; constants left out."""
        found: set[int] = set()
        pending = list(targets)
        while pending:
            if (i := pending.pop()) not in found and i not in self.constants:
                found.add(i)
                pending.extend(self.operands[i])
        return sorted(found)

    def compute(self, instructions: Iterable[int], given: dict[int, Column]) -> None:
        """Compute instructions, in order, from what is given, and add them to it."""
        for i in instructions:
            if i not in given:
                operands = [self.constants[k] if k in self.constants else given[k] for k in self.operands[i]]
                given[i] = apply(self.operations[i], operands, self.facts[i])

    def holds(self, targets: Sequence[int], rows: Array) -> list[Array]:
        """Where each target holds, for rows of indices into the values."""
        cone = self.cone(targets)
        given = {i: self.domains[i].take(rows[:, i]) for i in cone if i < len(self.domains)}
        self.compute(cone, given)
        found = (self.constants[t] if t in self.constants else given[t] for t in targets)
        return [column.broadcast((len(rows),)).holds() for column in found]


def conjuncts(node: Node) -> list[Node]:
    """Nodes that all hold exactly where this one does: the operands of `and`, the links of a chained comparison."""
    match node:
        case Logic("and", operands):
            return [part for operand in operands for part in conjuncts(operand)]
        case Compare(first, rest) if len(rest) > 1:
            lefts = [first, *(right for _, right in rest)]
            return [Compare(left, (link,)) for left, link in zip(lefts, rest, strict=False)]
        case _:
            return [node]
