"""The small language of constraints, sizes and launch geometry.

Knows integers, exact ratios, truth values and bare names; nothing of templates, tasks or devices: what a name means is
the environment's business. A text is parsed once to a tree; `evaluate` computes it for one environment, `columns` for
many at once. Both agree on every row: a row on which the scalar form has no value (division by zero, a value beyond
2^62, log2 of nothing) is `undefined` in the column form. Python's `eval` is never used; depth and magnitude are bounded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Protocol

from tunesmith.errors import ExpressionError

Value = int | bool | Fraction | str  # a str is a bare name: the value of a parameter whose values are names
LIMIT = 2**62
MAX_DEPTH = 40  # of parentheses and calls
MAX_CHAIN = 100  # operations in a row
MAX_TREE = 200  # of the tree: far below what Python can recurse
MAX_LENGTH = 10_000

TOKEN = re.compile(
    r"\s*(?:(?P<number>0[xX][0-9a-fA-F]+|\d+)|(?P<name>[A-Za-z_]\w*)|(?P<op>//|<=|>=|==|!=|[-+*/%<>(),]))"
)
COMPARISONS = ("==", "!=", "<=", ">=", "<", ">")
WORDS = frozenset({"and", "or", "not", "if", "else", "True", "False", "true", "false"})
FUNCTIONS = {  # name: how many arguments (least, most)
    "min": (1, 64),
    "max": (1, 64),
    "ceil_div": (2, 2),
    "round_up": (2, 2),
    "is_pow2": (1, 1),
    "log2": (1, 1),
    "abs": (1, 1),
}
LOOKUPS = {"sizeof": 1, "stride": 2, "aligned": 2}  # ask the environment's `Facts`, their first argument is a name


class Undefined(ArithmeticError):
    """An expression has no value here; the message says why."""


class Facts(Protocol):
    """What `sizeof(io)`, `stride(q, 0)` and `aligned(x, 16)` ask of their surroundings."""

    def lookup(self, function: str, name: str, argument: int | None) -> int | bool: ...


@dataclass(frozen=True, slots=True)
class Number:
    value: int | bool


@dataclass(frozen=True, slots=True)
class Name:
    name: str


@dataclass(frozen=True, slots=True)
class Unary:
    op: str  # "-", "+" or "not"
    operand: Node


@dataclass(frozen=True, slots=True)
class Binary:
    op: str  # + - * / // %
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Compare:
    first: Node
    rest: tuple[tuple[str, Node], ...]  # a < b <= c: ((<, b), (<=, c))


@dataclass(frozen=True, slots=True)
class Logic:
    op: str  # "and" or "or"; stops at the first operand that decides
    operands: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Conditional:
    test: Node
    then: Node
    otherwise: Node


@dataclass(frozen=True, slots=True)
class Call:
    function: str
    arguments: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Lookup:
    function: str  # sizeof, stride, aligned
    name: str
    argument: Node | None


Node = Number | Name | Unary | Binary | Compare | Logic | Conditional | Call | Lookup


@dataclass(frozen=True)
class Expression:
    """A parsed text. Equal texts are equal expressions."""

    text: str
    node: Node = field(compare=False, repr=False)

    @staticmethod
    def parse(text: str | int) -> Expression:
        """Parse `text`, or raise an `ExpressionError` that says what was met where."""
        text = str(text)
        return Expression(text, _Parser(text).parse())

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


def children(node: Node) -> tuple[Node, ...]:
    match node:
        case Unary(_, operand):
            return (operand,)
        case Binary(_, left, right):
            return (left, right)
        case Compare(first, rest):
            return (first, *(n for _, n in rest))
        case Logic(_, operands):
            return operands
        case Conditional(test, then, otherwise):
            return (test, then, otherwise)
        case Call(_, arguments):
            return arguments
        case Lookup(_, _, argument):
            return () if argument is None else (argument,)
        case _:
            return ()


def walk(node: Node) -> list[Node]:
    """The node and everything below it."""
    found, stack = [], [node]
    while stack:
        found.append(top := stack.pop())
        stack.extend(children(top))
    return found


def depth(node: Node) -> int:
    """Levels of the tree, counted without recursion."""
    levels, level = 0, [node]
    while level:
        levels, level = levels + 1, [child for parent in level for child in children(parent)]
    return levels


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


# --- text to tree ------------------------------------------------------------------------------------------------------


class _Parser:
    """Recursive descent over the grammar, loosest binding first: if-else, or, and, not, comparison, + -, * / // %, -."""

    def __init__(self, text: str) -> None:
        if len(text) > MAX_LENGTH:
            raise ExpressionError(f"an expression of {len(text)} characters; at most {MAX_LENGTH}")
        self.text = text
        self.tokens = self._tokens(text)
        self.at = 0
        self.depth = 0

    @staticmethod
    def _tokens(text: str) -> list[tuple[str, str, int]]:
        found, at, end = [], 0, len(text.rstrip())
        while at < end:
            match = TOKEN.match(text, at)
            if match is None:
                raise ExpressionError(*_unreadable(text, at))
            kind = match.lastgroup or ""
            word = match.group(kind)
            found.append(("op" if word in WORDS else kind, word, match.start(kind)))
            at = match.end()
        return [*found, ("end", "", end)]

    def parse(self) -> Node:
        node = self._conditional()
        if self._peek() or self.tokens[self.at][0] != "end":
            raise self._unexpected()
        if depth(node) > MAX_TREE:
            raise ExpressionError(f"an expression of more than {MAX_TREE} levels; name parts of it")
        return node

    def _peek(self) -> str:
        return self.tokens[self.at][1] if self.tokens[self.at][0] == "op" else ""

    def _take(self, *words: str) -> str:
        word = self._peek()
        if word and word in words:
            self.at += 1
            return word
        return ""

    def _expect(self, word: str) -> None:
        if not self._take(word):
            raise self._unexpected(f"expected {word!r}")

    def _unexpected(self, rule: str = "") -> ExpressionError:
        kind, word, position = self.tokens[self.at]
        if word == "*" and self.at and self.tokens[self.at - 1][1] == "*":
            rule = "there are no powers; write the product"
        met = "the end" if kind == "end" else repr(word)
        rule = f"; {rule}" if rule else ""
        return ExpressionError(f"in {self.text!r}: unexpected {met} at column {position + 1}{rule}")

    def _deeper(self, parse: Callable[[], Node]) -> Node:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise ExpressionError(f"an expression nested deeper than {MAX_DEPTH}")
        node = parse()
        self.depth -= 1
        return node

    def _conditional(self) -> Node:
        then = self._logic("or")
        if not self._take("if"):
            return then
        test = self._logic("or")
        self._expect("else")
        return Conditional(test, then, self._deeper(self._conditional))

    def _logic(self, op: str) -> Node:
        below: Callable[[], Node] = (lambda: self._logic("and")) if op == "or" else self._negation
        operands = [below()]
        while self._take(op):
            operands.append(below())
        return operands[0] if len(operands) == 1 else Logic(op, tuple(operands))

    def _negation(self) -> Node:
        if self._take("not"):
            return Unary("not", self._deeper(self._negation))
        return self._comparison()

    def _comparison(self) -> Node:
        first = self._binary(0)
        rest = []
        while op := self._take(*COMPARISONS):
            rest.append((op, self._binary(0)))
        return Compare(first, tuple(rest)) if rest else first

    def _binary(self, level: int) -> Node:
        ops = (("+", "-"), ("*", "/", "//", "%"))[level]
        below: Callable[[], Node] = self._unary if level else (lambda: self._binary(1))
        left, chained = below(), 0
        while op := self._take(*ops):
            left, chained = Binary(op, left, below()), chained + 1
            if chained > MAX_CHAIN:  # a left-deep chain is as deep as it is long
                raise ExpressionError(f"more than {MAX_CHAIN} operations in a row; name parts of it")
        return left

    def _unary(self) -> Node:
        if op := self._take("-", "+"):
            return Unary(op, self._deeper(self._unary))
        return self._atom()

    def _atom(self) -> Node:
        kind, word, _ = self.tokens[self.at]
        if kind == "number":
            self.at += 1
            return self._literal(word)
        if truth := self._take("True", "true", "False", "false"):
            return Number(truth in ("True", "true"))
        if self._take("("):
            node = self._deeper(self._conditional)
            self._expect(")")
            return node
        if kind != "name":
            raise self._unexpected()
        self.at += 1
        return self._call(word) if self._take("(") else Name(word)

    def _literal(self, word: str) -> Number:
        if len(word) > 20 or (value := int(word, 16 if word[:2] in ("0x", "0X") else 10)) > LIMIT:
            raise ExpressionError(f"in {self.text[:80]!r}: a number larger than 2^62")
        return Number(value)

    def _call(self, function: str) -> Node:
        if function in LOOKUPS:
            return self._lookup(function)
        if function not in FUNCTIONS:
            listed = ", ".join([*FUNCTIONS, *LOOKUPS])
            raise ExpressionError(f"in {self.text!r}: unknown function {function!r}; known: {listed}")
        arguments = [self._deeper(self._conditional)]
        while self._take(","):
            arguments.append(self._deeper(self._conditional))
        self._expect(")")
        least, most = FUNCTIONS[function]
        if not least <= len(arguments) <= most:
            raise ExpressionError(f"in {self.text!r}: {function} takes {least} argument(s), got {len(arguments)}")
        return Call(function, tuple(arguments))

    def _lookup(self, function: str) -> Node:
        kind, name, _ = self.tokens[self.at]
        if kind != "name":
            raise self._unexpected(f"{function}( begins with a name")
        self.at += 1
        argument = None
        if LOOKUPS[function] == 2:
            self._expect(",")
            argument = self._deeper(self._conditional)
        self._expect(")")
        return Lookup(function, name, argument)


def _unreadable(text: str, at: int) -> tuple[str]:
    rest = text[at:].lstrip()
    column = len(text) - len(rest) + 1
    spelled = {"&&": "and", "||": "or", "!": "not", "?": "a if c else b", "=": "=="}
    word = rest[:2] if rest[:2] in spelled else rest[:1]
    tried = f" (write {spelled[word]!r})" if word in spelled else ""
    return (f"in {text!r}: cannot read {rest[:1]!r} at column {column}{tried}",)
