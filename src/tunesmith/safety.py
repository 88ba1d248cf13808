"""What a candidate's source may not ask for, judged from the text before any compiler sees it.

A compiler reads files on behalf of a source: their contents come back in its messages, or end in the binary. So includes
are plain names inside allowed folders and nothing else reaches for a file. For a CPU device the code will run natively:
inline assembly and the C library are refused there, and `__builtin_` calls are on a published list.

A gate that tells comments and texts from code can be fooled: compilers differ over a blank after a backslash, over an
open quote in a skipped group, over raw texts. So includes are judged wherever a line *could* begin one, comment or not,
in both ways of joining lines. Only what native code may not use is judged after comments and texts are taken away. It
contains mistakes and casual misuse; names pasted together by macros pass, and the jail stands behind it.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

MAX_SOURCE_BYTES = 400_000
MAX_DIRECTIVES = 2_000
SPLICES = (re.compile(r"\\\r?\n"), re.compile(r"\\[ \t\v\f]*\r?\n"))  # NVRTC; GCC and Clang
HASH = re.compile(r"#|%:")
BLANKS = re.compile(r"(?:[^\S\n]|[\u180e\ufeff])*")  # Clang skips blanks beyond ASCII, too
PLAIN_INCLUDE = re.compile(r'<([\w./+-]+)>|"([\w./+-]+)"')
FORBIDDEN_DIRECTIVES = ("include_next", "embed", "import", "ident", "sccs", "line")
FORBIDDEN_ANYWHERE = re.compile(
    r"(?i:\b\w*has_(?:include|embed)\w*)|\binclude_alias\b|\bGCC\s+dependency\b|\bclang\s+module\b|\bimport\s*[<\"]"
)
WORD = re.compile(r"[A-Za-z_]\w*")
# What compilers read in more than one way, and no honest source needs.
UNCLEAR = (
    (re.compile("\0"), "a null byte"),
    (re.compile(r"\r(?!\n)"), "a carriage return without a line feed"),
    (re.compile(r"\?\?[/=]"), "a trigraph"),
)

ASSEMBLY = re.compile(r"\b(?:asm|__asm|__asm__)\b")
BUILTIN = re.compile(r"\b(\w*builtin_\w+|__(?:sync|atomic|c11|scoped_atomic)_\w+)")
# What native code may use: hints, vector arithmetic, conversions. Everything else that begins with __builtin_ may not.
BUILTINS = re.compile(
    r"__builtin_(?:prefetch|expect(?:_with_probability)?|assume|assume_aligned|unpredictable|unreachable|nontemporal_(?:load|store)"
    r"|shufflevector|convertvector|reduce_\w+|elementwise_\w+|bit_cast|fma[fl]?|fabs[fl]?|sqrt[fl]?|exp2?[fl]?|log2?[fl]?"
    r"|min|max|fmin[fl]?|fmax[fl]?|rint[fl]?|floor[fl]?|ceil[fl]?|trunc[fl]?|copysign[fl]?|inf[fl]?|nan[fl]?|huge_val[fl]?|isnan"
    r"|clz\w*|ctz\w*|popcount\w*|bswap\d+|ia32_\w+512\w*|ia32_\w+256\w*)$"
)
NATIVE_WORDS = re.compile(
    r"\b(extern|_{0,2}(?:constructor|destructor|ifunc|weakref|naked)_{0,2}|_{0,2}(?:alias|section)_{0,2}(?=\s*\()"
    r"|__cl_clang_function_pointers|redefine_extname"
    r"|system|popen|posix_spawnp?|exec[lv]p?e?|v?fork|dlm?open|dlsym|syscall|mmap|mprotect|ptrace|getenv|setenv|environ"
    r"|f?d?open(?:at|64)?|freopen|socket|connect|sendto|recvfrom|__libc_\w+)\b"
)
RAW = re.compile(r'\b(?:u8|[uUL])?R"')
MESSAGE = re.compile(r"(?:#|%:)[ \t]*(?:error|warning)\b[^\n]*/\*")  # whose text is not read as code, nor as a comment
ATTRIBUTE = re.compile(r"__attribute(?:__)?\s*\(\((?:[^()]|\([^()]*\))*\)\)")
PARAMETERS = r"\([^(){};]*+(?:\([^(){};]*+\)[^(){};]*+)*+\)\s*+"
DECLARED = re.compile(
    rf"(?:(?<=[;{{}}])|\A)\s*+((?:[A-Za-z_]\w*+[\s*]++)+)\(?+\s*+([A-Za-z_]\w*+)\s*+\)?+\s*+{PARAMETERS};"
)
DEFINED = re.compile(rf"\b([A-Za-z_]\w*+)\s*+{PARAMETERS}\{{")
NO_TYPES = frozenset({"return", "else", "goto", "do", "case", "for", "while", "if", "switch", "sizeof"})


@dataclass(frozen=True)
class Refusal:
    """Why a source is not given to a compiler, and on which line."""

    reason: str
    line: int


def refuse(source: str, *, native: bool, allow_assembly: bool = False) -> Refusal | None:
    """The first thing in the source that no candidate may have; None where there is none. `native` is a CPU device."""
    if len(source.encode()) > MAX_SOURCE_BYTES:
        return Refusal(f"a source of {len(source.encode())} bytes; at most {MAX_SOURCE_BYTES}", 1)
    refusals = [Refusal(what, _line(source, m.start())) for pattern, what in UNCLEAR for m in pattern.finditer(source)]
    for splice in SPLICES:
        text, joints = _spliced(source, splice)
        found = [*_forbidden(text), *(_native(text, allow_assembly) if native else ())]
        refusals += [Refusal(reason, _line(text, at) + bisect_right(joints, at)) for at, reason in found]
    return min(refusals, key=lambda r: r.line, default=None)


def _spliced(source: str, splice: re.Pattern[str]) -> tuple[str, list[int]]:
    """The source with its continued lines joined, and where in the result they were."""
    parts, joints, at, length = [], [], 0, 0
    for match in splice.finditer(source):
        parts.append(source[at : match.start()])
        length += match.start() - at
        joints.append(length)
        at = match.end()
    return "".join([*parts, source[at:]]), joints


def _line(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1


@dataclass(frozen=True)
class _Directive:
    at: int
    word: str
    rest: str


def _directives(text: str) -> list[_Directive]:
    """Wherever a `#` stands with nothing but blanks, or what may be the end of a comment, before it on its line."""
    found = []
    for hash_sign in HASH.finditer(text):
        before = hash_sign.start()
        while before and text[before - 1] != "\n" and BLANKS.fullmatch(text[before - 1]):
            before -= 1
        if before == 0 or text[before - 1] == "\n" or text[before - 2 : before] == "*/":
            start = _skip(text, hash_sign.end())
            end = start + len(re.match(r"\w*", text[start : start + 40])[0])  # type: ignore[index]
            rest = _skip(text, end)
            line_end = text.find("\n", rest)
            found.append(_Directive(start, text[start:end], text[rest : line_end if line_end >= 0 else None].strip()))
            if len(found) > MAX_DIRECTIVES:
                break
    return found


def _skip(text: str, at: int) -> int:
    """The offset of what comes after blanks and comments."""
    while True:
        at = BLANKS.match(text, at).end()  # type: ignore[union-attr]
        end = text.find("*/", at + 2) if text.startswith("/*", at) else -1
        if end < 0:
            return at
        at = end + 2


def _forbidden(text: str) -> Iterator[tuple[int, str]]:
    yield from ((m.start(), f"{m[0]} is not allowed") for m in FORBIDDEN_ANYWHERE.finditer(text))
    directives = _directives(text)
    if len(directives) > MAX_DIRECTIVES:
        yield directives[MAX_DIRECTIVES].at, f"more than {MAX_DIRECTIVES} directives"
        return
    pasting = _pasting_macros(directives)
    for d in directives:
        if d.word in FORBIDDEN_DIRECTIVES:
            yield d.at, f"#{d.word} is not allowed"
        elif d.word.isdigit() and d.rest.startswith('"'):
            yield d.at, "line markers are not allowed"
        elif d.word == "include" and (reason := _include(d.rest)):
            yield d.at, reason
        elif d.word in ("if", "elif") and (names := pasting & {*WORD.findall(d.rest)}):
            yield d.at, f"#{d.word} of {min(names)}: a condition may not paste names together"


def _include(rest: str) -> str:
    plain = PLAIN_INCLUDE.match(rest)
    if plain is None:
        return f'#include {rest[:60]}: only a plain <name> or "name" may be included'
    path = plain[1] or plain[2]
    if path.startswith("/") or any(part.startswith(".") for part in path.split("/") if part != "."):
        return f"#include of {path}: outside the allowed folders"
    return ""


def _pasting_macros(directives: list[_Directive]) -> set[str]:
    """The macros that paste tokens, themselves or through others: how `__has_include` could be written unseen."""
    pasting, users = set(), defaultdict(list)
    for d in directives:
        name, *used = WORD.findall(d.rest) or [""]
        if d.word != "define":
            continue
        if "##" in d.rest or "%:%:" in d.rest:
            pasting.add(name)
        for word in used:
            users[word].append(name)
    pending = [*pasting]
    while pending:
        more = {*users[pending.pop()]} - pasting
        pasting |= more
        pending += more
    return pasting


# --- native code -------------------------------------------------------------------------------------------------------


def _native(text: str, allow_assembly: bool) -> Iterator[tuple[int, str]]:
    code = _code(text)
    yield from ((m.start(), "a raw text is not allowed on a CPU device") for m in RAW.finditer(code))
    yield from ((m.start(), f"{m[0][:40]!r} may hide code") for m in MESSAGE.finditer(text))
    if not allow_assembly:
        yield from ((m.start(), "inline assembly is native code on a CPU device") for m in ASSEMBLY.finditer(code))
    for match in BUILTIN.finditer(code):
        if not BUILTINS.match(match[1]):
            yield match.start(), f"{match[1]} is not among the builtins allowed on a CPU device"
    yield from ((m.start(), f"{m[1]} is not allowed on a CPU device") for m in NATIVE_WORDS.finditer(code))
    yield from _undefined_functions(code)


def _undefined_functions(code: str) -> Iterator[tuple[int, str]]:
    """Functions declared and not defined: they would be those of the C library."""
    code = re.sub(r"^[ \t]*#[^\n]*", lambda m: m[0][:-1] + ";", code, flags=re.MULTILINE)
    code = ATTRIBUTE.sub(lambda m: _blanks(m[0]), code)
    defined = {*DEFINED.findall(code), *NO_TYPES}
    for match in DECLARED.finditer(code):
        if not NO_TYPES & {*WORD.findall(match[1])} and match[2] not in defined:
            yield match.start(2), f"{match[2]} is declared and not defined; native code has only its own functions"


def _code(text: str) -> str:
    """The text without comments and what is between quotes; an open quote ends with its line. Offsets and lines stay."""
    pattern = re.compile(r'"(?:[^"\\\n]|\\.)*+"?|\'(?:[^\'\\\n]|\\.)*+\'?|//[^\n]*|/\*.*?(?:\*/|\Z)', re.DOTALL)
    return pattern.sub(lambda m: '"' + _blanks(m[0][1:]) if m[0][0] == '"' else _blanks(m[0]), text)


def _blanks(text: str) -> str:
    return re.sub(r"[^\n]", " ", text)
