"""The small language of constraints, sizes and launch geometry, and what its expressions come to.

Knows integers, exact ratios, truth values and bare names; nothing of templates, tasks or devices: what a name means is
the environment's business. A text is parsed once to a tree (`grammar.py`); `evaluate` computes it for one environment,
`columns` for many at once. Both agree on every row: a row on which the scalar form has no value (division by zero, a value
beyond 2^62, log2 of nothing) is `undefined` in the column form. Python's `eval` is never used; magnitude is bounded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Protocol

from tunesmith.grammar import (
    LIMIT,
    Binary,
    Call,
    Compare,
    Conditional,
    Logic,
    Lookup,
    Name,
    Node,
    Number,
    Unary,
    parse,
    walk,
)

Value = int | bool | Fraction | str  # a str is a bare name: the value of a parameter whose values are names


class Undefined(ArithmeticError):
    """An expression has no value here; the message says why."""


class Facts(Protocol):
    """What `sizeof(io)`, `stride(q, 0)` and `aligned(x, 16)` ask of their surroundings."""

    def lookup(self, function: str, name: str, argument: int | None) -> int | bool: ...


@dataclass(frozen=True)
class Expression:
    """A parsed text. Equal texts are equal expressions."""

    text: str
    node: Node = field(compare=False, repr=False)

    @staticmethod
    def parse(text: str | int) -> Expression:
        """Parse `text`, or raise an `ExpressionError` that says what was met where."""
        text = str(text)
        return Expression(text, parse(text))

    @cached_property
    def names(self) -> frozenset[str]:
        """The names whose values it needs (not those inside `sizeof`, `stride` and `aligned`)."""
        return frozenset(n.name for n in walk(self.node) if isinstance(n, Name))

    @cached_property
    def lookups(self) -> frozenset[tuple[str, str]]:
        """(function, name) of every `sizeof`, `stride` and `aligned`."""
        return frozenset((n.function, n.name) for n in walk(self.node) if isinstance(n, Lookup))

    def evaluate(self, names: Mapping[str, Value], facts: Facts | None = None) -> Value:
        """Compute the value, or raise `Undefined`."""
        return evaluate(self.node, names, facts)

    def integer(self, names: Mapping[str, Value], facts: Facts | None = None) -> int:
        """Compute a whole number, or raise `Undefined`."""
        value = self.evaluate(names, facts)
        if isinstance(value, Fraction) and value.denominator == 1:
            value = value.numerator
        if not isinstance(value, int):
            raise Undefined(f"{self.text!r} is {value}, not a whole number")
        return int(value)

    def truth(self, names: Mapping[str, Value], facts: Facts | None = None) -> bool:
        """Compute whether it holds, or raise `Undefined`."""
        return _truth(self.evaluate(names, facts))

    def __str__(self) -> str:
        return self.text


# --- one environment ---------------------------------------------------------------------------------------------------


def bounded(value: int | Fraction) -> int | Fraction:
    """The value in lowest form, or `Undefined` where it is beyond 2^62."""
    if isinstance(value, Fraction):
        if abs(value.numerator) > LIMIT or value.denominator > LIMIT:
            raise Undefined("a value is larger than 2^62")
        return value.numerator if value.denominator == 1 else value
    if abs(value) > LIMIT:
        raise Undefined("a value is larger than 2^62")
    return value


def _truth(value: Value) -> bool:
    if isinstance(value, str):
        raise Undefined(f"{value} is a name, neither true nor false")
    return bool(value)


def _number(value: Value) -> int | Fraction:
    if isinstance(value, str):
        raise Undefined(f"{value} is a name, not a number")
    return int(value) if isinstance(value, bool) else value


def arithmetic(op: str, a: int | Fraction, b: int | Fraction) -> int | Fraction:
    if op in ("/", "//", "%") and b == 0:
        raise Undefined(f"division by zero ({op})")
    match op:
        case "+":
            return bounded(a + b)
        case "-":
            return bounded(a - b)
        case "*":
            return bounded(a * b)
        case "/":
            return bounded(Fraction(a) / b)
        case "//":
            return bounded(a // b)
        case _:
            return bounded(a % b)


def compare(op: str, a: Value, b: Value) -> bool:
    if op in ("==", "!="):
        return (a == b) is (op == "==")
    x, y = _number(a), _number(b)
    return {"<": x < y, "<=": x <= y, ">": x > y, ">=": x >= y}[op]


def call(function: str, arguments: list[int | Fraction]) -> int | bool | Fraction:
    a = arguments[0]
    match function:
        case "min":
            return min(arguments, key=Fraction)
        case "max":
            return max(arguments, key=Fraction)
        case "ceil_div" | "round_up":
            b = arguments[1]
            if b == 0:
                raise Undefined(f"division by zero ({function})")
            return bounded(-(-a // b) if function == "ceil_div" else -(-a // b) * b)
        case "is_pow2":
            return isinstance(a, int) and a > 0 and a & (a - 1) == 0
        case "log2":
            if not (isinstance(a, int) and a > 0 and a & (a - 1) == 0):
                raise Undefined(f"log2({a}) is not a whole number")
            return a.bit_length() - 1
        case _:
            return -a if a < 0 else a


def evaluate(node: Node, names: Mapping[str, Value], facts: Facts | None) -> Value:
    match node:
        case Number(value):
            return value
        case Name(name):
            if name not in names:
                raise Undefined(f"{name} has no value here")
            found = names[name]
            if isinstance(found, Fraction) and found.denominator == 1:
                found = found.numerator
            return bounded(found) if isinstance(found, int) and not isinstance(found, bool) else found
        case Unary("not", operand):
            return not _truth(evaluate(operand, names, facts))
        case Unary(op, operand):
            number = _number(evaluate(operand, names, facts))
            return -number if op == "-" else number
        case Binary(op, left, right):
            a = _number(evaluate(left, names, facts))
            return arithmetic(op, a, _number(evaluate(right, names, facts)))
        case Compare(first, rest):
            left_value = evaluate(first, names, facts)
            for op, right in rest:
                right_value = evaluate(right, names, facts)
                if not compare(op, left_value, right_value):
                    return False
                left_value = right_value
            return True
        case Logic(op, operands):
            for operand in operands:
                if _truth(evaluate(operand, names, facts)) is (op == "or"):
                    return op == "or"
            return op == "and"
        case Conditional(test, then, otherwise):
            return evaluate(then if _truth(evaluate(test, names, facts)) else otherwise, names, facts)
        case Call(function, arguments):
            return call(function, [_number(evaluate(a, names, facts)) for a in arguments])
        case Lookup(function, name, argument):
            if facts is None:
                raise Undefined(f"{function}({name}) is not known here")
            if argument is None:
                return facts.lookup(function, name, None)
            asked = _number(evaluate(argument, names, facts))
            if not isinstance(asked, int):
                raise Undefined(f"{function}({name}, {asked}): not a whole number")
            return facts.lookup(function, name, asked)
