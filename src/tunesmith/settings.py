"""Which settings a space covers: those of a task's workloads, one that is named, or what a template's own lines say.

Knows task and template, nothing of what is legal in a setting. A setting names every static dim and type of the task.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tunesmith.dtype import DTYPES, dtype
from tunesmith.errors import UsageError, unknown
from tunesmith.task import Dim, Setting, Task, Workload
from tunesmith.template import Template


def choose(template: Template, task: Task | None, given: Mapping[str, int | str]) -> tuple[Setting, ...]:
    """The settings that agree with the given dims and types."""
    for name, value in given.items():
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise UsageError(f"{name} = {value!r}: a dim is a whole number, a type is its name")
    dims = {n: v for n, v in given.items() if isinstance(v, int)}
    types = {n: dtype(v).name for n, v in given.items() if isinstance(v, str)}
    return (_alone(template, dims, types),) if task is None else _of_task(template, task, dims, types)


def _of_task(template: Template, task: Task, dims: Mapping[str, int], types: Mapping[str, str]) -> tuple[Setting, ...]:
    statics = task.dims_of_kind(Dim.STATIC)
    for name in dims:
        if name in task.dims and name not in statics:
            raise UsageError(f"{name} is a {task.dims[name]} dim; static dims and types choose a setting")
        if name not in statics:
            raise UsageError(unknown("static dim", name, statics))
    for name in types:
        if name not in task.types:
            raise UsageError(unknown("type symbol", name, task.types))
    served = [w for w in task.workloads if _serves(template.language, w)]
    if not served:
        raise UsageError(
            f"no workload of {task.name} is for {template.language}",
            hint=f"give it one whose types {template.language} has, on a device that takes it",
        )
    every = task.settings(served)
    wanted = {*dims.items(), *types.items()}
    if agreeing := tuple(s for s in every if wanted <= {*s.dims, *s.types}):
        return agreeing
    changed = (
        Setting(
            tuple((n, dims.get(n, v)) for n, v in s.dims),
            tuple((n, types.get(n, v)) for n, v in s.types),
        )
        for s in every
    )
    return tuple(dict.fromkeys(changed))


def _serves(language: str, workload: Workload) -> bool:
    """Whether some device of this language may run the workload: no CPU takes CUDA; OpenCL is for either."""
    here = language != "cuda" or workload.on != "cpu"
    return here and all(dtype(kind).spellings(language) for kind in workload.types.values())


def _alone(template: Template, dims: Mapping[str, int], types: Mapping[str, str]) -> Setting:
    """A setting without a task: what is not given is as the template's lines have it."""
    marked = {m.name: int(m.text, 0) for m in template.dim_lines if m.text.lstrip("+-")[:1].isdigit()}
    expressions = (
        *template.lets.values(),
        *template.requires.values(),
        *(e for la in template.launches for e in la.grid),
    )
    asked = {n for e in expressions for n in e.names} | {a.text.strip() for la in template.launches for a in la.args}
    known = {*marked, *template.fixed, *asked, *(m.name for m in template.dim_lines)} - template.names
    for name in dims:
        if name not in known:
            raise UsageError(unknown("dim", name, known - template.lets.keys()))
    spelled = {m.name: d.name for m in template.type_lines for d in DTYPES.values()
               if m.text in d.spellings(template.language)}  # fmt: skip
    for name in types:
        if name not in {m.name for m in template.type_lines}:
            raise UsageError(unknown("type symbol", name, [m.name for m in template.type_lines]))
    return Setting(tuple({**marked, **template.fixed, **dims}.items()), tuple({**spelled, **types}.items()))


def misfit(template: Template, settings: Sequence[Setting]) -> str | None:
    """Why the code cannot serve a setting at all: a dim that it fixes has another value there."""
    for setting in settings:
        for name, value in setting.dims:
            if template.fixed.get(name, value) != value:
                return f"[fixed] {name} = {template.fixed[name]}: the code is for that value, not for {name} = {value}"
        for name, kind in setting.types:
            if template.fixed_types.get(name, kind) != kind:
                return (
                    f"[fixed] {name} = {template.fixed_types[name]}: the code is for that type, not for {name} = {kind}"
                )
    return None
