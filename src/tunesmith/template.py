"""One source file that compiles as it stands, whose choices are ordinary, marked lines, and which says how it is launched.

Parsing, validating and writing back; nothing is compiled or run here. A configuration is this same file with other
values on the marked lines, and at the defaults it is this file to the byte. A template loads alone (syntax); what its
names mean is settled when it is bound to a task (`space.py`).

    #define BLOCK 256   // tune: 64, 128, 256; when VEC > 1; threads per block
    #define DIM_D 4096  // dim: d
    using io_t = float; // type: io
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import NoReturn

from tunesmith.dtype import dtype
from tunesmith.errors import ExpressionError, TemplateError, unknown
from tunesmith.expression import Expression
from tunesmith.grammar import WORDS
from tunesmith.header import Header, Launch, Workspace, read_header

LANGUAGES = {".cu": "cuda", ".cl": "opencl"}
Config = Mapping[str, int | str]  # a value for every parameter

DECLARED = re.compile(
    r"^\s*(?:#\s*define\s+(?P<macro>\w+)[ \t]+"
    r"|(?:(?:static|inline|const|constexpr|__constant|unsigned|signed|int|long|short|bool|(?:std::)?size_t|uint|ulong|auto"
    r"|(?:std::)?u?int(?:8|16|32|64)_t)\s+)+(?P<constant>\w+)\s*=\s*)"
    r"\(?\s*(?P<value>[-+]?\w+)\s*\)?\s*;?\s*$"
)
TYPED = (
    re.compile(r"^\s*using\s+\w+\s*=\s*(?P<value>[A-Za-z_][\w: ]*?)\s*;\s*$"),
    re.compile(r"^\s*#\s*define\s+\w+\s+(?P<value>[A-Za-z_][\w: ]*?)\s*$"),
    re.compile(r"^\s*typedef\s+(?P<value>[A-Za-z_][\w: ]*?)\s+\w+\s*;\s*$"),
)
MARK = re.compile(r"(?://|/\*)[ \t]*(?P<kind>tune|dim|type)[ \t]*:(?P<text>.*?)(?:\*/[\s;]*)?$")
NEARLY = re.compile(r"(?://|/\*)[ \t]*(?:tunes?|tuned|tunable)\b[ \t]*:?", re.IGNORECASE)
WHOLE = re.compile(r"[-+]?(?:0[xX][0-9a-fA-F]+|0|[1-9]\d*)$")  # 010 is eight in C and ten elsewhere: refused
NAME = re.compile(r"[A-Za-z_]\w*$")


@dataclass(frozen=True)
class Mark:
    """One marked line: where its value stands in the source."""

    kind: str  # tune, dim or type
    name: str  # the parameter, dim or type symbol
    line: int  # from 1
    start: int  # offsets of the value in the source
    end: int
    text: str  # the value as written


@dataclass(frozen=True)
class Parameter:
    """A choice: its values in the file's order, the default among them, and when it matters at all."""

    name: str
    values: tuple[int | str, ...]
    default: int | str
    when: Expression | None
    note: str
    line: int


@dataclass(frozen=True, eq=False)
class Template:
    """A parsed template. A kernel is a template without parameters."""

    name: str
    language: str
    source: str
    parameters: tuple[Parameter, ...]
    dim_lines: tuple[Mark, ...]
    type_lines: tuple[Mark, ...]
    tune_lines: tuple[Mark, ...]
    launches: tuple[Launch, ...]
    lets: Mapping[str, Expression]
    requires: Mapping[str, Expression]  # reason: constraint
    options: Mapping[str, Expression]  # fast_math, fma, max_registers
    fixed: Mapping[str, int]  # static dims that are plain numbers in the code
    fixed_types: Mapping[str, str]  # type symbols whose type the code takes for granted
    workspaces: tuple[Workspace, ...]
    starts: tuple[Config, ...]
    file: Path | None = None

    @staticmethod
    def load(path: str | Path, *, fixed: Mapping[str, int] | None = None) -> Template:
        """Read a file. `fixed` adds static dims that are plain numbers in its code and that it does not declare."""
        path = Path(path)
        language = LANGUAGES.get(path.suffix)
        if language is None:
            raise TemplateError(unknown("language", path.suffix, LANGUAGES), file=str(path))
        try:
            source = path.read_bytes().decode()
        except (OSError, UnicodeDecodeError) as error:
            raise TemplateError(f"cannot be read: {error}", file=str(path)) from None
        template = Template.parse(source, name=path.stem, language=language, file=path)
        for dim, value in (fixed or {}).items():
            if template.fixed.get(dim, value) != value:
                raise TemplateError(
                    f"fixed at {dim} = {template.fixed[dim]} in its header, not {value}", file=path.name
                )
        return replace(template, fixed={**template.fixed, **(fixed or {})})

    @staticmethod
    def parse(source: str, *, name: str, language: str, file: Path | None = None) -> Template:
        """Read a source, or raise a `TemplateError` that names the line and the rule."""
        return replace(_parse(source, name, language, file.name if file else name), file=file)

    @cached_property
    def default(self) -> dict[str, int | str]:
        return {p.name: p.default for p in self.parameters}

    @cached_property
    def names(self) -> frozenset[str]:
        """The parameters' names."""
        return frozenset(self.default)

    def parameter(self, name: str) -> Parameter:
        for parameter in self.parameters:
            if parameter.name == name:
                return parameter
        raise TemplateError(unknown("parameter", name, self.names), file=self.name)

    def complete(self, config: Config) -> dict[str, int | str]:
        """The configuration with defaults filled in; a name or a value that the template does not list is an error."""
        for name, value in config.items():
            parameter = self.parameter(name)
            if type(value) not in (int, str) or value not in parameter.values:
                listed = ", ".join(map(str, parameter.values))
                raise TemplateError(f"{name} = {value!r} is not among {listed}", file=self.name)
        return {**self.default, **config}

    def render(self, config: Config | None = None, dims: Mapping[str, int] | None = None,
               types: Mapping[str, str] | None = None) -> str:  # fmt: skip
        """The file with these values on its marked lines; every other byte stays."""
        config, dims, types = self.complete(config or {}), dims or {}, types or {}
        edits = [(m, str(config[m.name])) for m in self.tune_lines]
        edits += [(m, str(dims.get(m.name, m.text))) for m in self.dim_lines]
        edits += [(m, self._spelled(m, types.get(m.name))) for m in self.type_lines]
        source = self.source
        for mark, text in sorted(edits, key=lambda edit: -edit[0].start):
            if not _same_value(mark.text, text):
                source = source[: mark.start] + text + source[mark.end :]
        return source

    def _spelled(self, mark: Mark, wanted: str | None) -> str:
        if wanted is None:
            return mark.text
        spellings = dtype(wanted).spellings(self.language)
        if not spellings:
            raise TemplateError(f"{self.language} has no type for {wanted}", file=self.name, line=mark.line)
        return mark.text if mark.text in spellings else spellings[0]


def _same_value(a: str, b: str) -> bool:
    """Whether two spellings are one value, so that a default keeps the spelling that the author gave it."""
    return a == b or bool(WHOLE.match(a) and WHOLE.match(b) and _whole(a) == _whole(b))


def _whole(text: str) -> int:
    digits = text.lstrip("+-")
    value = int(digits, 16) if digits[:2].lower() == "0x" else int(digits)
    return -value if text[0] == "-" else value


def _value(text: str) -> int | str | None:
    if WHOLE.match(text):
        return _whole(text)
    return text if NAME.match(text) and text not in WORDS - {"true", "false"} else None


# --- reading -----------------------------------------------------------------------------------------------------------


def _parse(source: str, name: str, language: str, file: str) -> Template:
    header = read_header(source, file)
    marks, parameters = [], []
    offset = 0
    for number, line in enumerate(source.split("\n"), 1):
        if number > header.last_line:
            at = _At(file, number)
            mark = MARK.search(line)
            if mark is not None and (found := _marked_line(line, mark, offset, at)):
                marks.append(found)
                if found.kind == "tune":
                    parameters.append(_parameter(found, mark["text"], at))
            elif mark is None and (near := NEARLY.search(line)) and DECLARED.match(line[: near.start()]):
                at.wrong(f"{near[0]!r} does not mark a parameter; write '// tune: values'")
        offset += len(line) + 1
    _unique(parameters, marks, header, file)
    template = Template(
        name=name,
        language=language,
        source=source,
        parameters=tuple(parameters),
        dim_lines=tuple(m for m in marks if m.kind == "dim"),
        type_lines=tuple(m for m in marks if m.kind == "type"),
        tune_lines=tuple(m for m in marks if m.kind == "tune"),
        launches=header.launches,
        lets={key: header.expression(text, key) for key, text in header.lets.items()},
        requires={key: header.expression(text, key) for key, text in header.requires.items()},
        options={key: header.expression(text, key) for key, text in header.options.items()},
        fixed={name: value for name, value in header.fixed.items() if isinstance(value, int)},
        fixed_types={name: dtype(value).name for name, value in header.fixed.items() if isinstance(value, str)},
        workspaces=header.workspaces,
        starts=(),
    )
    return replace(template, starts=_starts(template, header))


@dataclass(frozen=True)
class _At:
    """A line of a template, for errors."""

    file: str
    line: int

    def wrong(self, message: str, hint: str = "") -> NoReturn:
        raise TemplateError(message, file=self.file, line=self.line, hint=hint)


def _marked_line(line: str, mark: re.Match[str], offset: int, at: _At) -> Mark | None:
    code, kind = line[: mark.start()], mark["kind"]
    named = mark["text"].split(";")[0].strip()
    if kind != "tune" and not NAME.match(named):
        return None  # a comment that happens to begin like a mark: "// dim: head dimension"
    match = next((m for form in TYPED if (m := form.match(code))), None) if kind == "type" else DECLARED.match(code)
    if match is None:
        wanted = (
            "'using io_t = TYPE;', 'typedef TYPE io_t;' or '#define io_t TYPE'"
            if kind == "type"
            else "'#define NAME value' or 'constexpr int NAME = value;'"
        )
        at.wrong(f"a line marked '{kind}:' must read {wanted}, the value a whole number or a name")
    start, end = match.span("value")
    name = (match["macro"] or match["constant"]) if kind == "tune" else named
    return Mark(kind, name, at.line, offset + start, offset + end, match["value"])


def _parameter(mark: Mark, text: str, at: _At) -> Parameter:
    listed, *rest = [part.strip() for part in text.split(";")]
    values = tuple(_listed_value(part.strip(), mark.name, at) for part in listed.split(","))
    if len(set(values)) < len(values):
        twice = next(v for v in values if values.count(v) > 1)
        at.wrong(f"{mark.name} lists the value {twice} twice")
    default = _value(mark.text)
    if default is None or default not in values:
        at.wrong(f"the default of {mark.name}, {mark.text}, is not among its values {', '.join(map(str, values))}")
    if len({isinstance(v, str) for v in values}) > 1:
        at.wrong(f"{mark.name} mixes names and numbers; its values are either")
    when = None
    if rest and re.match(r"when\b", rest[0]):
        when = _expression(rest.pop(0)[4:], at)
    for note in rest:
        if re.match(r"when\b", note):
            at.wrong(
                "a note that begins with 'when'",
                hint="the condition stands right after the values: '; when X == 1; note'",
            )
    return Parameter(mark.name, values, default, when, "; ".join(rest), at.line)


def _listed_value(text: str, name: str, at: _At) -> int | str:
    value = _value(text)
    if value is None:
        hint = "end the values with ';' before 'when' or a note" if " " in text else ""
        at.wrong(f"{name} lists {text!r}; a value is a whole number or a name", hint=hint)
    return value


def _expression(text: str, at: _At) -> Expression:
    try:
        return Expression.parse(text.strip())
    except ExpressionError as error:
        at.wrong(error.message, error.hint)


def _unique(parameters: list[Parameter], marks: list[Mark], header: Header, file: str) -> None:
    seen: dict[str, int] = {}
    for parameter in parameters:
        if parameter.name in seen:
            message = f"a second parameter {parameter.name}; the first is on line {seen[parameter.name]}"
            raise TemplateError(message, file=file, line=parameter.line)
        seen[parameter.name] = parameter.line
    for mark in marks:
        if mark.kind != "tune" and mark.name in seen:
            raise TemplateError(f"{mark.name} is a parameter and a {mark.kind}", file=file, line=mark.line)
        if mark.name in header.fixed:
            raise TemplateError(
                f"the {mark.kind} {mark.name} is marked and in [fixed]; choose one", file=file, line=mark.line
            )
    for name in header.lets:
        if name in seen:
            raise TemplateError(f"[let] {name} is also a parameter", file=file, line=header.line_of(name))


def _starts(template: Template, header: Header) -> tuple[Config, ...]:
    starts = []
    for index, start in enumerate(header.starts):
        try:
            starts.append(template.complete(start))
        except TemplateError as error:
            message = "[[start]]: " + error.message.removeprefix(f"{template.name}: ")
            raise TemplateError(message, file=header.file, line=header.line_of_table("start", index)) from None
    return tuple(starts)
