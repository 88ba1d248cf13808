"""NVIDIA GPUs through the CUDA driver: memory, launches with every attribute, graphs, events.

Holds the device's primary context, so that torch and cupy in the same process share it. A batch is captured into one
graph; a sample is flush ▸ event ▸ graph ▸ event on one stream, so that no host call lies between the two events' work.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tunesmith.backends import nvml
from tunesmith.backends.nvrtc import INSTALL
from tunesmith.backends.session import Bytes, DeviceError, Placed
from tunesmith.build import Build
from tunesmith.errors import MissingError, UsageError, unknown
from tunesmith.launch import Local, Number, Pointer
from tunesmith.limits import Limits

FLUSH_FACTOR = 3  # times the L2 that is read before a sample


def driver() -> Any:
    """The driver's binding, or a `MissingError` that says what is not here."""
    try:
        from cuda.bindings import driver as module
    except ImportError:
        raise MissingError("the CUDA driver's Python binding is not here", hint=INSTALL) from None
    try:
        (error,) = module.cuInit(0)
    except RuntimeError as missing:
        raise MissingError(
            f"no CUDA driver ({missing})", hint="install NVIDIA's driver, or use --device opencl:0"
        ) from None
    if error != module.CUresult.CUDA_SUCCESS:
        raise MissingError(f"no CUDA device: {error.name}", hint="use --device opencl:0, or look at nvidia-smi")
    return module


def count() -> int:
    return int(_ok(driver().cuDeviceGetCount()))


def _ok(answer: tuple[Any, ...]) -> Any:
    """The value of a driver call's answer; an error code becomes a `DeviceError`."""
    error, *values = answer
    if int(error) != 0:
        from cuda.bindings import driver as cu

        _, text = cu.cuGetErrorString(error)
        raise DeviceError(f"{error.name}: {text.decode() if text else '?'}")
    return values[0] if len(values) == 1 else tuple(values) if values else None


def device_limits(index: int = 0) -> Limits:
    """The limits of a device, asked of the driver; no context is made."""
    cu = driver()
    device = _ok(cu.cuDeviceGet(index))
    ask = cu.CUdevice_attribute

    def get(name: str) -> int:
        return int(_ok(cu.cuDeviceGetAttribute(getattr(ask, f"CU_DEVICE_ATTRIBUTE_{name}"), device)))

    major, minor = get("COMPUTE_CAPABILITY_MAJOR"), get("COMPUTE_CAPABILITY_MINOR")
    name = _ok(cu.cuDeviceGetName(128, device)).split(b"\0")[0].decode()
    return Limits(
        arch=f"sm_{major}{minor}",
        name=name,
        sms=get("MULTIPROCESSOR_COUNT"),
        warp=get("WARP_SIZE"),
        max_threads=get("MAX_THREADS_PER_BLOCK"),
        max_block=(get("MAX_BLOCK_DIM_X"), get("MAX_BLOCK_DIM_Y"), get("MAX_BLOCK_DIM_Z")),
        max_grid=(get("MAX_GRID_DIM_X"), get("MAX_GRID_DIM_Y"), get("MAX_GRID_DIM_Z")),
        max_shared_bytes=get("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
        shared_bytes_per_sm=get("MAX_SHARED_MEMORY_PER_MULTIPROCESSOR"),
        registers=get("MAX_REGISTERS_PER_MULTIPROCESSOR"),
        max_registers=255,
        max_threads_per_sm=get("MAX_THREADS_PER_MULTIPROCESSOR"),
        max_blocks_per_sm=get("MAX_BLOCKS_PER_MULTIPROCESSOR"),
        max_cluster=8 if major >= 9 else 1,
        l2_bytes=get("L2_CACHE_SIZE"),
    )


class CudaSession:
    """One GPU, its primary context current on this thread, one stream."""

    def __init__(self, index: int = 0) -> None:
        self.cu = driver()
        if index >= (devices := count()):
            raise UsageError(unknown("device", f"cuda:{index}", [f"cuda:{i}" for i in range(devices)]))
        self.index = index
        self.limits = device_limits(index)
        self.rotation_bytes = 4 * self.limits.l2_bytes
        self.device = _ok(self.cu.cuDeviceGet(index))
        self.context = _ok(self.cu.cuDevicePrimaryCtxRetain(self.device))
        _ok(self.cu.cuCtxSetCurrent(self.context))
        self.stream = _ok(self.cu.cuStreamCreate(self.cu.CUstream_flags.CU_STREAM_NON_BLOCKING))
        self._events = [_ok(self.cu.cuEventCreate(self.cu.CUevent_flags.CU_EVENT_DEFAULT)) for _ in range(2)]
        self._functions: dict[tuple[str, str], Any] = {}
        self._modules: list[Any] = []
        self._graphs: list[Any] = []
        self._written: list[Bytes] = []
        self._bound_printf()
        self._flush = _Flush(self)

    def _bound_printf(self) -> None:
        for limit, size in (("PRINTF_FIFO_SIZE", 1 << 16), ("MALLOC_HEAP_SIZE", 1 << 20)):
            with contextlib.suppress(DeviceError):
                _ok(self.cu.cuCtxSetLimit(getattr(self.cu.CUlimit, f"CU_LIMIT_{limit}"), size))

    # -- memory --

    def allocate(self, size: int) -> int:
        return int(_ok(self.cu.cuMemAlloc(max(size, 1))))

    def free(self, buffer: int) -> None:
        _ok(self.cu.cuMemFree(buffer))

    def write(self, buffer: int, data: Bytes, offset: int = 0) -> None:
        data = np.ascontiguousarray(data)
        if data.nbytes:
            _ok(self.cu.cuMemcpyHtoDAsync(buffer + offset, data.ctypes.data, data.nbytes, self.stream))
            self._written.append(data)  # kept until it has surely been read

    def read(self, buffer: int, size: int, offset: int = 0) -> Bytes:
        data = np.empty(size, np.uint8)
        if size:
            _ok(self.cu.cuMemcpyDtoHAsync(data.ctypes.data, buffer + offset, size, self.stream))
            self.synchronize()
        return data

    def fill(self, buffer: int, byte: int, size: int, offset: int = 0) -> None:
        if size:
            _ok(self.cu.cuMemsetD8Async(buffer + offset, byte, size, self.stream))

    def copy(self, to: int, source: int, size: int) -> None:
        if size:
            _ok(self.cu.cuMemcpyDtoDAsync(to, source, size, self.stream))

    def pointer(self, buffer: int, offset: int) -> int:
        return buffer + offset

    # -- launching --

    def run(self, placed: Sequence[Placed]) -> None:
        for one in placed:
            self._launch(one)
        self.synchronize()

    def run_fresh(self, placed: Sequence[Placed]) -> None:
        kept = self._modules, self._functions
        self._modules, self._functions = [], {}
        try:
            self.run(placed)
        finally:
            for module in self._modules:
                with contextlib.suppress(DeviceError):
                    _ok(self.cu.cuModuleUnload(module))
            self._modules, self._functions = kept

    def synchronize(self) -> None:
        _ok(self.cu.cuStreamSynchronize(self.stream))
        self._written.clear()

    def synchronize_device(self) -> None:
        """Wait for every stream, a callable's own among them."""
        _ok(self.cu.cuCtxSynchronize())

    def prepare(self, batch: Sequence[Sequence[Placed]]) -> Callable[[], None]:
        for placed in batch:
            for one in placed:
                self._function(one.build, one.launch.entry, one.launch.shared_bytes, one.launch.cluster)
        mode = self.cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        _ok(self.cu.cuStreamBeginCapture(self.stream, mode))
        try:
            for placed in batch:
                for one in placed:
                    self._launch(one)
        finally:
            graph = _ok(self.cu.cuStreamEndCapture(self.stream))
        return self._instantiate(graph)

    def _instantiate(self, graph: Any) -> Callable[[], None]:
        executable = _ok(self.cu.cuGraphInstantiate(graph, 0))
        _ok(self.cu.cuGraphDestroy(graph))
        _ok(self.cu.cuGraphUpload(executable, self.stream))
        self._graphs.append(executable)
        return lambda: _ok(self.cu.cuGraphLaunch(executable, self.stream)) and None

    def prepare_callable(self, calls: Sequence[Callable[[], Any]], capture: bool) -> Callable[[], None]:
        import torch

        stream = torch.cuda.ExternalStream(int(self.stream), device=f"cuda:{self.index}")
        with torch.cuda.stream(stream):
            for call in (*calls[:3], *calls[:3]):
                call()
        self.synchronize()
        if not capture:

            def eager() -> None:
                with torch.cuda.stream(stream):
                    for call in calls:
                        call()

            return eager
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for call in calls:
                call()

        def replay() -> None:
            with torch.cuda.stream(stream):
                graph.replay()

        return replay

    def flush(self) -> None:
        self._flush()

    def touch(self, buffer: int, size: int) -> None:
        self._flush.read(buffer, size)

    def time(self, before: Callable[[], None], replay: Callable[[], None]) -> float:
        start, end = self._events
        before()
        _ok(self.cu.cuEventRecord(start, self.stream))
        replay()
        _ok(self.cu.cuEventRecord(end, self.stream))
        _ok(self.cu.cuEventSynchronize(end))
        return 1000.0 * float(_ok(self.cu.cuEventElapsedTime(start, end)))

    def forget(self) -> None:
        """Give back graphs and modules; the next candidate starts clean."""
        for graph in self._graphs:
            _ok(self.cu.cuGraphExecDestroy(graph))
        for module in self._modules:
            _ok(self.cu.cuModuleUnload(module))
        self._graphs, self._modules, self._functions = [], [], {}

    def _launch(self, placed: Placed) -> None:
        launch, cu = placed.launch, self.cu
        if launch.blocks == 0:
            return
        for buffer, size in placed.zeroed:
            _ok(cu.cuMemsetD8Async(buffer, 0, size, self.stream))
        function = self._function(placed.build, launch.entry, launch.shared_bytes, launch.cluster)
        config = cu.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = launch.grid
        config.blockDimX, config.blockDimY, config.blockDimZ = launch.block
        config.sharedMemBytes = launch.shared_bytes
        config.hStream = self.stream
        attributes = self._attributes(placed)
        config.attrs = attributes
        config.numAttrs = len(attributes)
        values = [self._value(arg, placed) for arg in launch.args]
        array = (ctypes.c_void_p * max(1, len(values)))(*(ctypes.addressof(v) for v in values))
        _ok(cu.cuLaunchKernelEx(config, function, ctypes.addressof(array), 0))

    def _attributes(self, placed: Placed) -> list[Any]:
        cu, launch, found = self.cu, placed.launch, []

        def attribute(name: str) -> Any:
            one = cu.CUlaunchAttribute()
            one.id = getattr(cu.CUlaunchAttributeID, f"CU_LAUNCH_ATTRIBUTE_{name}")
            found.append(one)
            return one.value

        if launch.cluster != (1, 1, 1):
            dims = attribute("CLUSTER_DIMENSION").clusterDim
            dims.x, dims.y, dims.z = launch.cluster
        if launch.cooperative:
            attribute("COOPERATIVE").cooperative = 1
        if launch.programmatic:
            attribute("PROGRAMMATIC_STREAM_SERIALIZATION").programmaticStreamSerializationAllowed = 1
        return found

    def _value(self, arg: Any, placed: Placed) -> Any:
        match arg:
            case Pointer(name):
                return ctypes.c_uint64(placed.pointers[name])
            case Number(dtype, value):
                data = np.array([value]).astype(dtype.numpy).tobytes()
                return (ctypes.c_char * len(data)).from_buffer_copy(data)
            case Local(_):
                raise DeviceError("CUDA kernels take no local(…) argument; use shared_bytes")

    def _function(self, build: Build, entry: str, shared_bytes: int, cluster: tuple[int, int, int]) -> Any:
        key = (build.key, entry)
        if key not in self._functions:
            module = _ok(self.cu.cuModuleLoadData(build.binary))
            self._modules.append(module)
            for kernel in build.kernels:
                function = _ok(self.cu.cuModuleGetFunction(module, kernel.symbol.encode()))
                self._functions[(build.key, kernel.entry)] = function
        function = self._functions[key]
        attribute = self.cu.CUfunction_attribute
        if shared_bytes > 48 * 1024 - build.kernel(entry).shared_bytes:
            _ok(
                self.cu.cuFuncSetAttribute(
                    function, attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, shared_bytes
                )
            )
        if max(cluster[0] * cluster[1] * cluster[2], build.kernel(entry).cluster) > 8:
            _ok(self.cu.cuFuncSetAttribute(function, attribute.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1))
        return function

    # -- what it is --

    def describe(self) -> dict[str, Any]:
        version = int(_ok(self.cu.cuDriverGetVersion()))
        found = {
            "name": self.limits.name,
            "arch": self.limits.arch,
            "cuda_driver": f"{version // 1000}.{version % 1000 // 10}",
            "peak_bytes_per_s": self._peak_bytes_per_s(),
            "memory_bytes": int(_ok(self.cu.cuDeviceTotalMem(self.device))),
        }
        return found | nvml.readings(self.index)

    def _peak_bytes_per_s(self) -> float | None:
        """What the memory's pins can carry: two transfers per clock (kHz) and line."""
        ask, found = self.cu.CUdevice_attribute, []
        with contextlib.suppress(DeviceError, AttributeError):
            for name in ("MEMORY_CLOCK_RATE", "GLOBAL_MEMORY_BUS_WIDTH"):
                attribute = getattr(ask, f"CU_DEVICE_ATTRIBUTE_{name}")
                found.append(int(_ok(self.cu.cuDeviceGetAttribute(attribute, self.device))))
        return 2.0 * found[0] * 1000 * found[1] / 8 if len(found) == 2 and all(found) else None

    def close(self) -> None:
        with contextlib.suppress(DeviceError):
            self.forget()
            _ok(self.cu.cuDevicePrimaryCtxRelease(self.device))


FLUSH_SOURCE = """
extern "C" __global__ void flush(const uint4* data, unsigned long long n, unsigned* sink) {
  unsigned x = 0;
  const unsigned long long step = gridDim.x * (unsigned long long)blockDim.x;
  for (unsigned long long i = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x; i < n; i += step) {
    const uint4 v = data[i];
    x ^= v.x ^ v.y ^ v.z ^ v.w;
  }
  if (x == 0x9e3779b9u) *sink = x;  // never, for the data written; the compiler cannot know
}
"""


class _Flush:
    """Reads more than the L2 holds, so that what comes after finds nothing of its own there."""

    def __init__(self, session: CudaSession) -> None:
        from tunesmith.backends.nvrtc import compile_program
        from tunesmith.build import Program
        from tunesmith.dtype import dtype
        from tunesmith.launch import ResolvedLaunch

        self.session = session
        size = FLUSH_FACTOR * session.limits.l2_bytes // 16 * 16
        data, sink = session.allocate(size), session.allocate(16)
        session.fill(data, 0, size)
        build = compile_program(Program("cuda", FLUSH_SOURCE, ("flush",), session.limits.arch), "flush")

        def placed(data: int, size: int) -> Placed:
            blocks = (min(8 * session.limits.sms, size // 4096 + 1), 1, 1)
            args = (Pointer("data"), Number(dtype("u64"), size // 16), Pointer("sink"))
            return Placed(build, ResolvedLaunch("flush", blocks, (256, 1, 1), args), {"data": data, "sink": sink})

        self.placed, self.everything = placed, placed(data, size)

    def __call__(self) -> None:
        self.session._launch(self.everything)

    def read(self, buffer: int, size: int) -> None:
        self.session._launch(self.placed(buffer, size))
