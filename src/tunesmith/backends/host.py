"""Callable baselines: the user's own functions over arrays that are views of a session's buffers.

Trusted code; it runs only in processes that hold no expected output. The views cost nothing and are the same memory that
a candidate's launches use, so both may alternate on one set of buffers.
"""

from __future__ import annotations

import functools
import importlib.util
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunesmith.backends.session import DeviceError
from tunesmith.data import Layout
from tunesmith.errors import unknown
from tunesmith.messages import Host
from tunesmith.task import CallableBaseline, Task

Array = NDArray[Any]
TORCH = {
    "f64": "float64", "f32": "float32", "f16": "float16", "bf16": "bfloat16", "e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2",
    "i64": "int64", "u64": "uint64", "i32": "int32", "u32": "uint32", "i16": "int16", "u16": "uint16",
    "i8": "int8", "u8": "uint8", "bool": "bool",
}  # fmt: skip


@functools.cache
def _baseline(folder: str, name: str) -> CallableBaseline:
    task = Task.load(folder)
    if name not in task.baselines:
        raise DeviceError(unknown("callable baseline", name, task.baselines))
    return task.baselines[name]


def lacks(baseline: CallableBaseline, *, gpu: bool) -> str:
    """The library that a baseline needs and that is not installed; "" where none is missing. On a GPU torch captures it."""
    needed = (baseline.arrays, "torch") if gpu else (baseline.arrays,)
    return next((name for name in needed if importlib.util.find_spec(name) is None), "")


def captures(arm: Host) -> bool:
    return _baseline(arm.folder, arm.name).capture


def bind(session: Any, arm: Host, layouts: Mapping[str, Layout], places: Mapping[str, tuple[Any, int]],
         inputs: Mapping[str, Array]) -> Callable[[], Any]:  # fmt: skip
    """The function with its arguments: arrays over the buffers, scalars as numbers, dims where it asks for them."""
    baseline = _baseline(arm.folder, arm.name)
    given: dict[str, Any] = dict(arm.dims)
    given.update({name: data.item() for name, data in inputs.items() if name not in layouts})
    for name, layout in layouts.items():
        given[name] = _array(session, baseline.arrays, places[name], layout)
    wanted = inspect.signature(baseline.function).parameters
    if missing := [name for name in wanted if name not in given]:
        raise DeviceError(f"the baseline {arm.name} asks for " + unknown("argument", missing[0], given))
    return functools.partial(baseline.function, **{name: given[name] for name in wanted})


def call(session: Any, arm: Host, layouts: Mapping[str, Layout], places: Mapping[str, tuple[Any, int]],
         inputs: Mapping[str, Array]) -> dict[str, Array]:  # fmt: skip
    """Run it once; gives the outputs that it returns rather than writes."""
    baseline = _baseline(arm.folder, arm.name)
    session.synchronize()
    answer = bind(session, arm, layouts, places, inputs)()
    if hasattr(session, "cu"):
        session.synchronize_device()
    wanted = inspect.signature(baseline.function).parameters
    returned = [name for name, layout in layouts.items() if layout.writes and name not in wanted]
    if not returned:
        return {}
    values = answer if isinstance(answer, tuple | list) else (answer,)
    if answer is None or len(values) != len(returned):
        raise DeviceError(
            f"the baseline {arm.name} must return {', '.join(returned)}: it does not name them as parameters"
        )
    return {name: _numpy(value, layouts[name]) for name, value in zip(returned, values, strict=True)}


def _array(session: Any, kind: str, place: tuple[Any, int], layout: Layout) -> Any:
    buffer, offset = place
    if not hasattr(session, "cu"):
        if kind == "cupy" or not isinstance(buffer, np.ndarray):
            raise DeviceError(f"a baseline over {kind} arrays cannot run on this device")
        view = layout.view(buffer) if offset == layout.offset else None
        assert view is not None
        return view if kind == "numpy" else _torch(buffer[offset : offset + layout.span], layout)
    if kind == "numpy":
        raise DeviceError("a baseline over numpy arrays cannot run on a GPU")
    memory = _Memory(buffer + offset, layout.span)
    return _torch(memory, layout) if kind == "torch" else _cupy(memory, layout)


class _Memory:
    """Device memory as other libraries take it."""

    def __init__(self, address: int, size: int) -> None:
        self.__cuda_array_interface__ = {"shape": (size,), "typestr": "|u1", "data": (address, False), "version": 3}


def _torch(memory: Any, layout: Layout) -> Any:
    try:
        import torch
    except ImportError:
        raise DeviceError("torch is not here") from None
    flat = torch.from_numpy(memory) if isinstance(memory, np.ndarray) else torch.as_tensor(memory, device="cuda")
    return flat.view(getattr(torch, TORCH[layout.dtype])).as_strided(layout.shape, layout.strides)


def _cupy(memory: Any, layout: Layout) -> Any:
    try:
        import cupy
    except ImportError:
        raise DeviceError("cupy is not here") from None
    flat = cupy.asarray(memory).view(layout.numpy)
    return cupy.lib.stride_tricks.as_strided(flat, layout.shape, [s * layout.numpy.itemsize for s in layout.strides])


def _numpy(value: Any, layout: Layout) -> Array:
    """A returned array, in the output's type."""
    if hasattr(value, "detach"):
        import torch

        raw = value.detach().contiguous().view(torch.uint8).cpu().numpy()
        data = raw.reshape(-1).view(layout.numpy)
    else:
        data = np.asarray(value.get() if hasattr(value, "get") else value)
    if data.size != int(np.prod(layout.shape)):
        raise DeviceError(f"{layout.name} came back with {data.size} elements, not {layout.shape}")
    shaped: Array = data.reshape(layout.shape).astype(layout.numpy, copy=False)
    return shaped
