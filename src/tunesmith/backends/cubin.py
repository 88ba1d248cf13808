"""What a cubin says about its kernels, read from the file: no driver, no GPU, no tool of the toolkit.

A cubin is a 64-bit ELF. `.nv.info` holds, per symbol, the registers and the stack; `.nv.info.<kernel>` its parameters
and the cluster it was compiled for; `.nv.shared.<kernel>` is as large as its static shared memory; `.text.<kernel>` is
the code. Each attribute is (format byte, kind byte, 16-bit value or length, then the bytes).
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator
from dataclasses import dataclass

RESERVED_SHARED = 1024  # from sm_90 on the system keeps this much, and the section's size contains it
KPARAM_INFO, REGCOUNT, MIN_STACK, CTA_PER_CLUSTER = 0x17, 0x2F, 0x12, 0x3D
NOBITS = 8
SIZED = 4  # the format whose 16-bit field is the length of what follows


@dataclass(frozen=True, slots=True)
class CubinKernel:
    """One kernel: `parameters` are (offset, size) in bytes, in order."""

    symbol: str
    registers: int
    stack_bytes: int
    shared_bytes: int
    code_bytes: int
    cluster: int
    parameters: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class _Section:
    name: str
    kind: int
    offset: int
    size: int
    link: int
    info: int


def read_cubin(cubin: bytes) -> tuple[CubinKernel, ...]:
    """The kernels of a cubin, in the order of their names."""
    sections = {s.name: s for s in _sections(cubin)}
    names = _symbols(cubin, sections)
    registers: dict[str, int] = {}
    stacks: dict[str, int] = {}
    for kind, value in _attributes(cubin, sections.get(".nv.info")):
        if kind in (REGCOUNT, MIN_STACK) and len(value) == 8:
            symbol, number = struct.unpack("<II", value)
            (registers if kind == REGCOUNT else stacks)[names.get(symbol, "")] = number
    kernels = []
    for name in sorted(sections):
        if not name.startswith(".nv.info."):
            continue
        symbol = name.removeprefix(".nv.info.")
        if f".text.{symbol}" in sections:
            kernels.append(_kernel(cubin, sections, symbol, registers.get(symbol, 0), stacks.get(symbol, 0)))
    return tuple(kernels)


def _kernel(cubin: bytes, sections: dict[str, _Section], symbol: str, registers: int, stack: int) -> CubinKernel:
    parameters, cluster = {}, 1
    for kind, value in _attributes(cubin, sections[f".nv.info.{symbol}"]):
        if kind == KPARAM_INFO and len(value) == 12:
            _, ordinal, offset, flags = struct.unpack("<IHHI", value)
            parameters[ordinal] = (offset, flags >> 18)
        elif kind == CTA_PER_CLUSTER and len(value) == 12:
            x, y, z = struct.unpack("<III", value)
            cluster = x * y * z
    shared = sections.get(f".nv.shared.{symbol}")
    size = shared.size if shared else 0
    return CubinKernel(
        symbol=symbol,
        registers=registers,
        stack_bytes=stack,
        shared_bytes=max(0, size - RESERVED_SHARED) if ".nv.shared.reserved.0" in sections else size,
        code_bytes=sections[f".text.{symbol}"].size,
        cluster=cluster,
        parameters=tuple(parameters[i] for i in sorted(parameters)),
    )


def _sections(elf: bytes) -> list[_Section]:
    if elf[:5] != b"\x7fELF\x02":
        raise ValueError("not a 64-bit ELF")
    (table,) = struct.unpack_from("<Q", elf, 0x28)
    size, count, strings = struct.unpack_from("<HHH", elf, 0x3A)
    raw = [struct.unpack_from("<IIQQQQII", elf, table + i * size) for i in range(count)]
    base = raw[strings][4]
    return [_Section(_string(elf, base + r[0]), r[1], r[4], r[5], r[6], r[7]) for r in raw]


def _symbols(elf: bytes, sections: dict[str, _Section]) -> dict[int, str]:
    table, strings = sections.get(".symtab"), sections.get(".strtab")
    if table is None or strings is None:
        return {}
    return {
        i: _string(elf, strings.offset + struct.unpack_from("<I", elf, table.offset + 24 * i)[0])
        for i in range(table.size // 24)
    }


def _attributes(elf: bytes, section: _Section | None) -> Iterator[tuple[int, bytes]]:
    if section is None:
        return
    at, end = section.offset, section.offset + section.size
    while at + 4 <= end:
        form, kind, field = struct.unpack_from("<BBH", elf, at)
        at += 4
        length = field if form == SIZED else 0
        yield kind, elf[at : at + length]
        at += length


def _string(elf: bytes, at: int) -> str:
    return elf[at : elf.index(b"\0", at)].decode(errors="replace")


def code_fingerprint(cubin: bytes) -> str:
    """Equal for two cubins whose code, constants, shared memory and kernel attributes are equal."""
    digest = hashlib.sha256()
    for section in _sections(cubin):
        if section.name.startswith((".text.", ".nv.constant", ".nv.info", ".nv.shared", ".nv.global")):
            holds_bytes = section.kind != NOBITS
            digest.update(f"{section.name} {section.size} ".encode())
            digest.update(cubin[section.offset : section.offset + section.size] if holds_bytes else b"")
    return digest.hexdigest()[:32]
