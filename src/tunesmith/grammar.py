"""The small language as text and as tree: what its words are, what a text parses to, what is refused.

Knows no values: `2/0` parses here, and has none in `expression.py`. A text becomes a tree by recursive descent, never by
Python's own parser. Length, nesting and the tree's depth are bounded, so that nothing that walks a tree can run out of
stack.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from tunesmith.errors import ExpressionError

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


# --- text to tree ------------------------------------------------------------------------------------------------------


def parse(text: str) -> Node:
    """The tree of a text, or an `ExpressionError` that says what was met where."""
    return _Parser(text).parse()


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
