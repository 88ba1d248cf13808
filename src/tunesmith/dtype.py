"""The element types of arguments: one name each, its size, its NumPy form and its spelling in each language."""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np

from tunesmith.errors import TaskError, unknown


@dataclass(frozen=True, slots=True)
class Dtype:
    """An element type. `eps` is the spacing of its numbers at 1; 0 for integers."""

    name: str
    numpy: np.dtype[np.generic]
    eps: float
    cuda: tuple[str, ...]  # spellings, the one we write first
    opencl: tuple[str, ...]  # empty where the language has no such type

    @property
    def itemsize(self) -> int:
        return self.numpy.itemsize

    @property
    def is_float(self) -> bool:
        return self.eps > 0

    def spellings(self, language: str) -> tuple[str, ...]:
        return self.cuda if language == "cuda" else self.opencl

    def __str__(self) -> str:
        return self.name


def _float(name: str, numpy: type, bits: int, cuda: str, opencl: str = "") -> Dtype:
    return Dtype(name, np.dtype(numpy), 2.0**-bits, tuple(cuda.split("|")), tuple(opencl.split("|")) if opencl else ())


def _integer(name: str, numpy: type, cuda: str, opencl: str) -> Dtype:
    return Dtype(name, np.dtype(numpy), 0.0, tuple(cuda.split("|")), tuple(opencl.split("|")))


DTYPES = {
    d.name: d
    for d in (
        _float("f64", np.float64, 52, "double", "double"),
        _float("f32", np.float32, 23, "float", "float"),
        _float("f16", np.float16, 10, "__half|half", "half"),
        _float("bf16", ml_dtypes.bfloat16, 7, "__nv_bfloat16|nv_bfloat16"),
        _float("e4m3", ml_dtypes.float8_e4m3fn, 3, "__nv_fp8_e4m3"),
        _float("e5m2", ml_dtypes.float8_e5m2, 2, "__nv_fp8_e5m2"),
        _integer("i64", np.int64, "long long|int64_t", "long"),
        _integer("u64", np.uint64, "unsigned long long|uint64_t", "ulong|unsigned long"),
        _integer("i16", np.int16, "short|int16_t", "short"),
        _integer("u16", np.uint16, "unsigned short|uint16_t", "ushort|unsigned short"),
        _integer("bool", np.bool_, "bool", "uchar"),
        _integer("i32", np.int32, "int|int32_t", "int"),
        _integer("i8", np.int8, "signed char|int8_t", "char"),
        _integer("u32", np.uint32, "unsigned int|uint32_t|unsigned", "uint|unsigned int"),
        _integer("u8", np.uint8, "unsigned char|uint8_t", "uchar|unsigned char"),
    )
}
ALIASES = {
    "fp64": "f64", "float64": "f64", "double": "f64", "fp32": "f32", "float32": "f32", "float": "f32",
    "fp16": "f16", "float16": "f16", "half": "f16", "bfloat16": "bf16", "fp8": "e4m3", "fp8_e4m3": "e4m3",
    "float8_e4m3fn": "e4m3", "fp8_e5m2": "e5m2", "float8_e5m2": "e5m2", "int64": "i64", "int32": "i32", "int": "i32",
    "int8": "i8", "uint32": "u32", "uint64": "u64", "int16": "i16", "uint16": "u16", "uint8": "u8",
}  # fmt: skip


def is_type(name: str) -> bool:
    return name in DTYPES or name in ALIASES


def dtype(name: str | Dtype) -> Dtype:
    """The type of that name; fp16, bfloat16 and the like are understood."""
    if isinstance(name, Dtype):
        return name
    found = DTYPES.get(ALIASES.get(name, name))
    if found is None:
        raise TaskError(unknown("type", name, DTYPES))
    return found
