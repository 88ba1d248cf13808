"""OpenCL devices through pyopencl: CPUs (PoCL, Intel) and GPUs. Builds, memory, launches, the queue's profiling clock.

On a CPU a buffer is host memory that kernels use in place, so that guards lie right beside what they guard. A sample is
the time from the first launch's start to the last one's end on the device's own clock.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tunesmith.backends.session import Bytes, DeviceError, Placed
from tunesmith.build import BUILT, CRASHED, FAILED, Build, Kernel, Program
from tunesmith.dtype import DTYPES
from tunesmith.errors import MissingError, UsageError, unknown
from tunesmith.launch import Local, Number, Pointer
from tunesmith.limits import Limits

INSTALL = "pip install 'tunesmith[opencl]'"
PAGE = 4096
CPU_FLUSH_BYTES = 96 << 20
CPU_ROTATION_BYTES = 256 << 20  # more than any cache a core can use; virtual machines report absurd sizes
BY_VALUE = {s: d.itemsize for d in DTYPES.values() for s in d.opencl} | {"size_t": 8, "ptrdiff_t": 8}
TEMPORARY = re.compile(r"/[^\n:]*/tempfile_[\w-]+\.cl\b")  # where PoCL puts a source, as its messages name it
OPAQUE = re.compile(r"\b(image[123]d\w*_t|sampler_t)$")  # types of arguments that are no memory and no number


def platform_devices() -> list[Any]:
    """Every device of every platform, CPUs last."""
    try:
        import pyopencl as cl
    except ImportError:
        raise MissingError("pyopencl is not here", hint=INSTALL) from None
    try:
        found = [device for platform in cl.get_platforms() for device in platform.get_devices()]
    except cl.Error as error:
        raise MissingError(f"no OpenCL platform ({error})", hint="apt-get install pocl-opencl-icd") from None
    return sorted(found, key=lambda d: bool(d.type & cl.device_type.CPU))


def open_device(index: int) -> Any:
    devices = platform_devices()
    if index >= len(devices):
        known = [f"opencl:{i} ({device.name.strip()})" for i, device in enumerate(devices)]
        raise UsageError(unknown("device", f"opencl:{index}", known))
    return devices[index]


def is_cpu(device: Any) -> bool:
    import pyopencl as cl

    return bool(device.type & cl.device_type.CPU)


def device_limits(device: Any) -> Limits:
    x, y, z = [*device.max_work_item_sizes, 1, 1][:3]
    return Limits(
        arch=f"opencl {device.name.strip()} {device.driver_version}",
        name=device.name.strip(),
        sms=device.max_compute_units,
        warp=1 if is_cpu(device) else 32,
        max_threads=device.max_work_group_size,
        max_block=(x, y, z),
        max_grid=(2**31 - 1,) * 3,
        max_shared_bytes=device.local_mem_size,
        shared_bytes_per_sm=0,
        registers=0,
        max_registers=0,
        max_threads_per_sm=0,
        max_blocks_per_sm=0,
        max_cluster=1,
        l2_bytes=device.global_mem_cache_size,
    )


# --- building ----------------------------------------------------------------------------------------------------------


def compile_program(program: Program, key: str, device: Any) -> Build:
    """Build one program for a device; the binary is what the runtime keeps of it."""
    import pyopencl as cl

    context = cl.Context([device])
    options = [*program.options, "-cl-kernel-arg-info", *(f"-I{folder}" for folder in program.include)]
    try:
        built = cl.Program(context, program.source).build(options)
    except cl.Error as error:
        log = readable(str(error))
        deterministic = "error:" in log  # else the runtime failed, not the source
        return Build(key, FAILED if deterministic else CRASHED, reason=_error_line(log), log=log)
    log = readable(built.get_build_info(device, cl.program_build_info.LOG) or "")
    names = built.get_info(cl.program_info.KERNEL_NAMES).split(";")
    missing = [entry for entry in program.entries if entry not in names]
    if missing:
        return Build(key, FAILED, reason=f"no kernel {missing[0]!r} in the source; it has: {', '.join(names)}", log=log)
    binary = built.get_info(cl.program_info.BINARIES)[0]
    kernels = tuple(_kernel(getattr(built, entry), entry, device) for entry in program.entries)
    return Build(key, BUILT, log=log, kernels=kernels, binary=binary)


def _kernel(kernel: Any, entry: str, device: Any) -> Kernel:
    import pyopencl as cl

    info, qualifier = cl.kernel_arg_info, cl.kernel_arg_address_qualifier
    sizes: list[int | str] = []
    for i in range(kernel.num_args):
        where = kernel.get_arg_info(i, info.ADDRESS_QUALIFIER)
        of = kernel.get_arg_info(i, info.TYPE_NAME)
        if opaque := OPAQUE.search(of):
            sizes.append(opaque[1])
        elif where == qualifier.LOCAL:
            sizes.append(0)
        elif where == qualifier.PRIVATE:
            sizes.append(BY_VALUE.get(of, -1))
        else:
            sizes.append(8)
    local = kernel.get_work_group_info(cl.kernel_work_group_info.LOCAL_MEM_SIZE, device)
    return Kernel(entry=entry, symbol=entry, shared_bytes=int(local), parameters=tuple(sizes))


def readable(log: str) -> str:
    """A build's log without the names of temporary files."""
    return TEMPORARY.sub("kernel.cl", log)


def _error_line(log: str) -> str:
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    return next((line for line in lines if "error:" in line), lines[0] if lines else "the compiler said nothing")


# --- running -----------------------------------------------------------------------------------------------------------


class OpenClSession:
    """One OpenCL device with an in-order, profiling queue."""

    def __init__(self, index: int = 0) -> None:
        import pyopencl as cl

        self.cl = cl
        self.device = open_device(index)
        self.context = cl.Context([self.device])
        self.queue = cl.CommandQueue(self.context, properties=cl.command_queue_properties.PROFILING_ENABLE)
        self.limits = device_limits(self.device)
        self.on_cpu = is_cpu(self.device)
        self.rotation_bytes = (
            min(CPU_ROTATION_BYTES, 4 * self.limits.l2_bytes) if self.on_cpu else 4 * self.limits.l2_bytes
        )
        self._elsewhere = np.ones(CPU_FLUSH_BYTES if self.on_cpu else 8, np.uint8)
        self._programs: dict[str, Any] = {}
        self._kernels: dict[tuple[str, str], Any] = {}
        self._events: list[Any] = []
        self._span_ns = 0

    # -- memory --

    def allocate(self, size: int) -> Any:
        if not self.on_cpu:
            return self.cl.Buffer(self.context, self.cl.mem_flags.READ_WRITE, max(size, 1))
        raw = np.zeros(size + 2 * PAGE, np.uint8)
        start = -raw.ctypes.data % PAGE
        return raw[start : start + max(size, 1)]

    def free(self, buffer: Any) -> None:
        if not self.on_cpu:
            buffer.release()

    def write(self, buffer: Any, data: Bytes, offset: int = 0) -> None:
        if self.on_cpu:
            buffer[offset : offset + data.nbytes] = data.reshape(-1).view(np.uint8)
        elif data.nbytes:
            self.cl.enqueue_copy(self.queue, buffer, np.ascontiguousarray(data), dst_offset=offset)

    def read(self, buffer: Any, size: int, offset: int = 0) -> Bytes:
        if self.on_cpu:
            return np.array(buffer[offset : offset + size])
        data = np.empty(size, np.uint8)
        if size:
            self.cl.enqueue_copy(self.queue, data, buffer, src_offset=offset)
        return data

    def fill(self, buffer: Any, byte: int, size: int, offset: int = 0) -> None:
        if self.on_cpu:
            buffer[offset : offset + size] = byte
        elif size:
            self.cl.enqueue_fill_buffer(self.queue, buffer, np.full(1, byte, np.uint8), offset, size)

    def copy(self, to: Any, source: Any, size: int) -> None:
        if self.on_cpu:
            to[:size] = source[:size]
        elif size:
            self.cl.enqueue_copy(self.queue, to, source, byte_count=size)

    def pointer(self, buffer: Any, offset: int) -> Any:
        flags = self.cl.mem_flags
        if self.on_cpu:
            return self.cl.Buffer(self.context, flags.READ_WRITE | flags.USE_HOST_PTR, hostbuf=buffer[offset:])
        return buffer.get_sub_region(offset, buffer.size - offset)

    # -- launching --

    def run(self, placed: Sequence[Placed]) -> None:
        try:
            for one in placed:
                self._launch(one)
            self.synchronize()
        except self.cl.Error as error:
            raise DeviceError(str(error)) from None

    def run_fresh(self, placed: Sequence[Placed]) -> None:
        kept = self._programs, self._kernels
        self._programs, self._kernels = {}, {}
        try:
            self.run(placed)
        finally:
            self._programs, self._kernels = kept

    def synchronize(self) -> None:
        self.queue.finish()

    def prepare(self, batch: Sequence[Sequence[Placed]]) -> Callable[[], None]:
        for placed in batch:
            for one in placed:
                self._kernel(one)

        def replay() -> None:
            for placed in batch:
                for one in placed:
                    self._launch(one)

        return replay

    def prepare_callable(self, calls: Sequence[Callable[[], Any]], capture: bool) -> Callable[[], None]:
        if not self.on_cpu:
            raise DeviceError("a callable baseline needs a CUDA device or a CPU")

        def replay() -> None:
            start = time.perf_counter_ns()
            for call in calls:
                call()
            self._span_ns = time.perf_counter_ns() - start

        return replay

    def flush(self) -> None:
        """On a CPU what was just restored or poisoned is in the caches: read something else, more than they hold."""
        if self.on_cpu:
            self._elsewhere.view(np.uint64).sum()

    def touch(self, buffer: Any, size: int) -> None:
        self.read(buffer, size)

    def time(self, before: Callable[[], None], replay: Callable[[], None]) -> float:
        before()
        self.synchronize()
        self._events, self._span_ns = [], 0
        try:
            replay()
            self.synchronize()
        except self.cl.Error as error:
            raise DeviceError(str(error)) from None
        if not self._events:
            return self._span_ns / 1000.0
        # the sum of what ran: the gaps between are this process's own, setting arguments and enqueueing
        return float(sum(event.profile.end - event.profile.start for event in self._events)) / 1000.0

    def forget(self) -> None:
        """Give back programs; the next candidate starts clean."""
        self._programs, self._kernels, self._events = {}, {}, []

    def _launch(self, placed: Placed) -> None:
        launch = placed.launch
        if launch.blocks == 0:
            return
        if launch.cluster != (1, 1, 1) or launch.cooperative or launch.programmatic:
            raise DeviceError("OpenCL has no clusters, cooperative or programmatic launches")
        for buffer, size in placed.zeroed:
            self.cl.enqueue_fill_buffer(self.queue, buffer, np.zeros(1, np.uint8), 0, size)
        kernel = self._kernel(placed)
        for index, arg in enumerate(launch.args):
            match arg:
                case Pointer(name):
                    kernel.set_arg(index, placed.pointers[name])
                case Number(dtype, value):
                    kernel.set_arg(index, np.array([value]).astype(dtype.numpy))
                case Local(size):
                    kernel.set_arg(index, self.cl.LocalMemory(size))
        sizes = tuple(g * b for g, b in zip(launch.grid, launch.block, strict=True))
        self._events.append(self.cl.enqueue_nd_range_kernel(self.queue, kernel, sizes, launch.block))

    def _kernel(self, placed: Placed) -> Any:
        """A kernel object for this placement: arguments are a kernel object's state."""
        key = (placed.build.key, placed.launch.entry)
        if key not in self._kernels:
            if placed.build.key not in self._programs:
                program = self.cl.Program(self.context, [self.device], [placed.build.binary]).build()
                self._programs[placed.build.key] = program
            self._kernels[key] = self.cl.Kernel(self._programs[placed.build.key], placed.launch.entry)
        return self._kernels[key]

    # -- what it is --

    def describe(self) -> dict[str, Any]:
        platform = self.device.platform
        return {"name": self.limits.name, "arch": "cpu" if self.on_cpu else "gpu", "driver": self.device.driver_version,
                "platform": f"{platform.name} {platform.version}", "compute_units": self.limits.sms,
                "memory_bytes": self.device.global_mem_size}  # fmt: skip

    def close(self) -> None:
        self.forget()
