"""What can go wrong that is not a trial's own fault, drawn as a tree.

TunesmithError
├── UsageError              the input is wrong: states the rule and the values, then a hint       exit 2
│   ├── ExpressionError     a text that is not an expression of the small language
│   ├── TemplateError       a template file, with its line
│   └── TaskError           a task folder or a task's declarations
├── MissingError            a device, driver or toolchain is not here; carries the install line  exit 3
└── VerdictError            a check came out negative, and the caller wants that raised          exit 1

A candidate that fails is no exception: it is a `Trial` with a status and a reason, raised only where `raise_for_status`
asks for it.
"""

from __future__ import annotations

from collections.abc import Iterable


class TunesmithError(Exception):
    """A message for the user, and what they could do about it."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\nhint: {self.hint}" if self.hint else self.message


class UsageError(TunesmithError):
    pass


class ExpressionError(UsageError):
    pass


class TemplateError(UsageError):
    """An error in a template; `file:line` leads the message."""

    def __init__(self, message: str, *, file: str = "", line: int = 0, hint: str = "") -> None:
        where = f"{file or 'template'}:{line}: " if line else (f"{file}: " if file else "")
        super().__init__(where + message, hint=hint)
        self.line = line


class TaskError(UsageError):
    pass


class MissingError(TunesmithError):
    pass


class Interrupted(TunesmithError):
    pass


class VerdictError(TunesmithError):
    pass


def unknown(kind: str, name: str, names: Iterable[object]) -> str:
    """Phrase for an unknown name: says what it is and lists the known ones."""
    listed = ", ".join(sorted(str(n) for n in names))
    return f"unknown {kind} {name!r}; known: {listed or 'none'}"
