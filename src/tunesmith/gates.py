"""The gates that need no device: arguments that match the binary, launches that fit. Each gives a reason, or None."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tunesmith.binding import Binding
from tunesmith.build import Kernel, Program
from tunesmith.launch import Drawn, Local, Number, Pointer, ResolvedLaunch
from tunesmith.limits import Limits
from tunesmith.task import Setting, Task
from tunesmith.template import Config


def program_of(binding: Binding, task: Task, config: Config, setting: Setting, limits: Limits) -> Program:
    """The program that a configuration is, for one setting and one device."""
    template = binding.template
    facts = task.cuda if template.language == "cuda" else task.opencl
    folder = task.folder or Path()
    chosen = binding.options(config, setting, limits)
    options = [*_options(template.language, facts.std, chosen), *(f"-D{k}={v}" for k, v in facts.defines.items())]
    return Program(
        language=template.language,
        source=template.render(config, dict(setting.dims), dict(setting.types)),
        entries=tuple(dict.fromkeys(launch.entry for launch in template.launches)),
        arch=target_arch(limits),
        options=tuple(options),
        include=tuple(str(folder / name) for name in facts.include),
        compiler=task.cuda.compiler if template.language == "cuda" else "opencl",
    )


def target_arch(limits: Limits) -> str:
    """What code is generated for: from sm_90 on the architecture's own features are used (sm_90a)."""
    if not limits.arch.startswith("sm_"):
        return limits.arch
    return limits.arch + ("a" if int(limits.arch.removeprefix("sm_")) >= 90 else "")


def _options(language: str, std: str, chosen: dict[str, int | bool]) -> list[str]:
    if language == "cuda":
        spelled = {"fast_math": ["--use_fast_math"], "fma": []}
        off = {"fma": ["--fmad=false"]}
        registers = chosen.get("max_registers", 0)
        found = [f"-std={std}", *([f"--maxrregcount={registers}"] if registers else [])]
    else:
        spelled = {"fast_math": ["-cl-fast-relaxed-math"], "fma": ["-cl-mad-enable"]}
        off = {}
        found = [f"-cl-std={std}"]
    for name in ("fast_math", "fma"):
        if name in chosen:
            found += spelled[name] if chosen[name] else off.get(name, [])
    return found


def arguments_match(launch: ResolvedLaunch, kernel: Kernel) -> str | None:
    """Whether the launch passes what the kernel takes: number, order and sizes, as the binary has them."""
    if len(launch.args) != len(kernel.parameters):
        return f"args passes {len(launch.args)} arguments; the kernel {kernel.entry} takes {len(kernel.parameters)}"
    for index, (arg, size) in enumerate(zip(launch.args, kernel.parameters, strict=True)):
        if isinstance(size, str):
            article, kind = ("an", "images") if size.startswith("image") else ("a", "samplers")
            return f"parameter {index} of {kernel.entry} is {article} {size}; {kind} are not supported"
        given = _size(arg)
        if given == size:
            continue
        if size not in (0, 1, 2, 4, 8):
            return (
                f"parameter {index} of {kernel.entry} is a struct of {size} bytes; a struct by value is not supported"
            )
        what = {Pointer: "a pointer", Number: "a number", Drawn: "a number", Local: "local memory"}[type(arg)]
        hint = "; write i64(…) for a 64-bit integer" if isinstance(arg, Number | Drawn) and size == 8 else ""
        return f"args passes {what} of {given} bytes as parameter {index} of {kernel.entry}, which takes {size}{hint}"
    return None


def _size(arg: Pointer | Number | Drawn | Local) -> int:
    return 8 if isinstance(arg, Pointer) else 0 if isinstance(arg, Local) else arg.dtype.itemsize


def fits(launch: ResolvedLaunch, kernel: Kernel, limits: Limits) -> str | None:
    """Whether the device can launch this kernel so."""
    shared = launch.shared_bytes + kernel.shared_bytes
    cluster = max(launch.cluster[0] * launch.cluster[1] * launch.cluster[2], kernel.cluster)
    local = sum(arg.size for arg in launch.args if isinstance(arg, Local))
    if launch.threads == 0:
        return f"a block of {launch.block} has no threads"
    if launch.threads > limits.max_threads:
        return f"{launch.threads} threads per block; the device allows {limits.max_threads}"
    for what, sizes, most in (("block", launch.block, limits.max_block), ("grid", launch.grid, limits.max_grid)):
        if any(n > m for n, m in zip(sizes, most, strict=True)):
            return f"a {what} of {sizes}; the device allows {most}"
    if shared + local > limits.max_shared_bytes:
        return f"{shared + local} bytes of shared memory; the device allows {limits.max_shared_bytes}"
    if limits.registers and kernel.registers * -(-launch.threads // 32) * 32 > limits.registers:
        return f"{launch.threads} threads of {kernel.registers} registers; an SM has {limits.registers}"
    if cluster > 1 and any(g % c for g, c in zip(launch.grid, launch.cluster, strict=True)):
        return f"a grid of {launch.grid} does not hold whole clusters of {launch.cluster}"
    if cluster > 1 and launch.blocks % cluster:
        return f"{launch.blocks} blocks are not whole clusters of {cluster}"
    if cluster > limits.largest_cluster:
        return f"a cluster of {cluster}; the device allows {limits.largest_cluster}"
    return None


def first_reason(
    launches: Sequence[ResolvedLaunch], kernels: Sequence[Kernel], limits: Limits
) -> tuple[str, bool] | None:
    """The first launch that does not match (True) or does not fit (False), with the reason."""
    by_entry = {kernel.entry: kernel for kernel in kernels}
    for launch in launches:
        kernel = by_entry[launch.entry]
        if (reason := arguments_match(launch, kernel)) is not None:
            return reason, True
        if (reason := fits(launch, kernel, limits)) is not None:
            return reason, False
    return None
