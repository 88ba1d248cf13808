"""The TOML comment at the head of a template: which keys there are, their forms, and on which line an error stands."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from tunesmith.array import ArraySpec
from tunesmith.dtype import is_type
from tunesmith.errors import ExpressionError, TemplateError, UsageError
from tunesmith.expression import Expression

OPEN = re.compile(
    r"\ufeff?(?:\s|//[^\n]*\n|/\*(?![ \t]*tunesmith).*?\*/)*/\*[ \t]*tunesmith[ \t]+(\d+)[ \t]*(?:\r?\n|$)", re.DOTALL
)
VERSION = 1
LAUNCH_KEYS = ("entry", "grid", "block", "args", "shared_bytes", "cluster", "cooperative", "programmatic", "when")
KEYS = (*LAUNCH_KEYS, "launch", "let", "require", "options", "fixed", "workspace", "start")
ENTRY = re.compile(r"[A-Za-z_][\w:]*(?:\s*<[^;{}\"\\]*>)?$")  # a name, or a C++ instantiation: NVRTC compiles it
CAST = re.compile(r"\s*(i64|u64|i32|u32|i16|u16|i8|u8|f64|f32|f16|local)\s*\((.*)\)\s*$")
OPTIONS = ("fast_math", "fma", "max_registers")


@dataclass(frozen=True)
class Arg:
    """One argument of a launch: a pointer's name, a whole number, a number cast to a type, or OpenCL local memory."""

    text: str
    cast: str | None  # a type's name, or "local": that many elements of an unnamed buffer, in bytes
    expression: Expression


@dataclass(frozen=True)
class Launch:
    """How one kernel of the template is launched; every size is an expression."""

    entry: str
    grid: tuple[Expression, ...]
    block: tuple[Expression, ...]
    args: tuple[Arg, ...]
    shared_bytes: Expression | None = None
    cluster: tuple[Expression, ...] = ()
    cooperative: bool = False
    programmatic: bool = False
    when: Expression | None = None


@dataclass(frozen=True)
class Workspace:
    """A buffer of the template's own, uninitialised unless zeroed before each run."""

    name: str
    array: ArraySpec  # "f32[B*H*SPLITS, D]", as an argument's
    zeroed: bool = False  # before each run, inside what is timed


class Header:
    """The keys of a template's header, each checked for its form."""

    def __init__(self, text: str, first_line: int, last_line: int, file: str) -> None:
        self.text, self.first_line, self.last_line, self.file = text, first_line, last_line, file
        self._within = first_line  # where the table that is being read begins
        try:
            self.table = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            at = re.search(r"at line (\d+)", str(error))
            line = first_line + int(at[1]) - 1 if at else last_line
            rule = re.sub(r" \(at [^()]*\)$", "", str(error))  # tomllib counts from the header's own first line
            raise TemplateError(f"the header is not TOML: {rule}", file=file, line=line) from None
        self._known(self.table, KEYS, "the header")
        self.lets: dict[str, str] = self._texts("let")
        self.requires: dict[str, str] = self._texts("require")
        self.options: dict[str, str] = self._texts("options")
        self._known(self.options, OPTIONS, "[options]")
        self.fixed = self._fixed()
        self.workspaces = self._workspaces()
        self.starts: list[dict[str, Any]] = self._tables("start")
        self.launches = self._launches()

    # -- the parts --

    def _launches(self) -> tuple[Launch, ...]:
        tables = self._tables("launch")
        at_top = [key for key in LAUNCH_KEYS if key in self.table]
        if tables and at_top:
            self._wrong(at_top[0], f"{at_top[0]!r} stands at the top and there are [[launch]] tables; choose one")
        if not tables:
            return (self._launch(self.table),)
        found = []
        for index, table in enumerate(tables):
            self._within = self.line_of_table("launch", index)
            self._known(table, LAUNCH_KEYS, f"[[launch]] number {index + 1}")
            found.append(self._launch(table))
        self._within = self.first_line
        return tuple(found)

    def _launch(self, table: Mapping[str, Any]) -> Launch:
        for key in ("entry", "grid", "block", "args"):
            if key not in table:
                self._wrong("", f"the header gives no {key!r}")
        if not isinstance(table["entry"], str):
            self._wrong("entry", "'entry' is the kernel's name, a text")
        if not ENTRY.match(table["entry"]):
            message = f"'entry' is {table['entry']!r}; a kernel's name, or an instantiation such as 'act<float, 256>'"
            self._wrong("entry", message)
        return Launch(
            entry=table["entry"],
            grid=self._expressions(table, "grid", 3),
            block=self._expressions(table, "block", 3),
            args=self._args(table),
            shared_bytes=self.expression(table["shared_bytes"], "shared_bytes") if "shared_bytes" in table else None,
            cluster=self._expressions(table, "cluster", 3) if "cluster" in table else (),
            cooperative=self._flag(table, "cooperative"),
            programmatic=self._flag(table, "programmatic"),
            when=self.expression(table["when"], "when") if "when" in table else None,
        )

    def _args(self, table: Mapping[str, Any]) -> tuple[Arg, ...]:
        listed = table["args"]
        if not isinstance(listed, list) or len(listed) > 256:
            self._wrong("args", "'args' is the list of the kernel's parameters, in order")
        found = []
        for text in listed:
            cast = CAST.match(str(text))
            inside = cast[2] if cast else text
            found.append(Arg(str(text), cast[1] if cast else None, self.expression(inside, str(text))))
        return tuple(found)

    def _fixed(self) -> dict[str, int | str]:
        fixed = self._table("fixed")
        for key, value in fixed.items():
            if isinstance(value, bool) or not (isinstance(value, int) or (isinstance(value, str) and is_type(value))):
                self._wrong(key, f"[fixed] {key} = {value!r}; a static dim is a whole number, a type symbol a type")
        return fixed

    def _workspaces(self) -> tuple[Workspace, ...]:
        found = []
        for name, value in self._table("workspace").items():
            table = {"array": value} if isinstance(value, str) else value
            if not isinstance(table, dict) or not isinstance(table.get("array"), str):
                self._wrong(name, f'[workspace] {name} reads "f32[B, 64]" or {{array = "f32[B, 64]", zeroed = true}}')
            self._known(table, ("array", "zeroed"), f"[workspace] {name}")
            try:
                spec = ArraySpec.parse(table["array"])
            except UsageError as error:
                self._wrong(name, f"[workspace] {name}: {error.message}")
            found.append(Workspace(name, spec, self._flag(table, "zeroed")))
        return tuple(found)

    # -- the forms --

    def expression(self, text: Any, key: str) -> Expression:
        if isinstance(text, bool) or not isinstance(text, str | int):
            self._wrong(key, f"{key!r} is {text!r}; an expression is a text or a whole number")
        try:
            return Expression.parse(text)
        except ExpressionError as error:
            self._wrong(key, error.message, error.hint)

    def _expressions(self, table: Mapping[str, Any], key: str, most: int) -> tuple[Expression, ...]:
        listed = table[key] if isinstance(table[key], list) else [table[key]]
        if len(listed) > most or (not listed and key != "args"):
            self._wrong(key, f"{key!r} has {len(listed)} entries; 1 to {most}")
        return tuple(self.expression(text, key) for text in listed)

    def _flag(self, table: Mapping[str, Any], key: str) -> bool:
        value = table.get(key, False)
        if not isinstance(value, bool):
            self._wrong(key, f"{key!r} is true or false, not {value!r}")
        return value

    def _table(self, key: str) -> dict[str, Any]:
        value = self.table.get(key, {})
        if not isinstance(value, dict):
            self._wrong(key, f"{key!r} is a table: [{key}]")
        return value

    def _texts(self, key: str) -> dict[str, str]:
        table = self._table(key)
        for name, value in table.items():
            if not isinstance(value, str | int):
                self._wrong(name, f"[{key}] {name!r} is {value!r}; an expression is a text or a whole number")
        return {name: str(value) for name, value in table.items()}

    def _tables(self, key: str) -> list[dict[str, Any]]:
        value = self.table.get(key, [])
        if not isinstance(value, list) or not all(isinstance(v, dict) for v in value):
            self._wrong(key, f"{key!r} is a list of tables: [[{key}]]")
        return value

    # -- errors --

    def _known(self, table: Mapping[str, Any], keys: tuple[str, ...], where: str) -> None:
        for key in table:
            if key not in keys:
                self._wrong(key, f"unknown key {key!r} in {where}; known: {', '.join(keys)}")

    def line_of(self, needle: str) -> int:
        """The line on which a key, or else a text, stands; where it cannot be told, the first line of its table."""
        lines = list(enumerate(self.text.split("\n"), self.first_line))[self._within - self.first_line :]
        name = re.escape(needle)
        for pattern in (rf"\s*[\"']?{name}[\"']?\s*=", rf"\s*\[+\s*{name}\s*\]", rf".*(?<!\w){name}(?!\w)"):
            for number, line in lines:
                if needle and re.match(pattern, line):
                    return number
        return self._within

    def line_of_table(self, key: str, index: int) -> int:
        """The line of the table of that number, as in `[[start]]`."""
        lines = enumerate(self.text.split("\n"), self.first_line)
        heads = [number for number, line in lines if re.match(rf"\s*\[\[\s*{key}\s*\]\]", line)]
        return heads[index] if index < len(heads) else self.first_line

    def _wrong(self, needle: str, message: str, hint: str = "") -> NoReturn:
        raise TemplateError(message, file=self.file, line=self.line_of(needle), hint=hint)


def read_header(source: str, file: str) -> Header:
    """Read the comment that begins with `/* tunesmith 1`."""
    start = OPEN.match(source)
    if start is None:
        hint = "it begins with a comment: /* tunesmith 1, then entry, grid, block and args in TOML; see docs/write-a-template.md"
        raise TemplateError("no header", file=file, line=1, hint=hint)
    if int(start[1]) != VERSION:
        raise TemplateError(f"the header is of version {start[1]}; this reads version {VERSION}", file=file, line=1)
    end = source.find("*/", start.end())
    if end < 0:
        raise TemplateError("the header's comment does not end", file=file, line=1)
    text = source[start.end() : end]
    first = source.count("\n", 0, start.end()) + 1
    last = source.count("\n", 0, end) + 1
    if text.rpartition("\n")[2].strip():  # `*/` closes a comment wherever it stands, so it must stand alone
        message = "'*/' inside the header ends the comment for the compiler"
        raise TemplateError(
            message, file=file, line=last, hint="put the closing */ on a line of its own; write '* /' as 'x * (1 / y)'"
        )
    return Header(text, first, last, file)
