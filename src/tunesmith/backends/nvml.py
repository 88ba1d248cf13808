"""What NVIDIA's management library tells of a GPU: clocks, temperature, power, throttle reasons, the driver.

Through ctypes, for the library comes with the driver and nothing else need be installed. A reading that is refused is left
out; without the library there are none. No context is made, nothing is changed.
"""

from __future__ import annotations

import ctypes
from typing import Any

LIBRARY = "libnvidia-ml.so.1"


def readings(index: int) -> dict[str, Any]:
    """What can be read of the GPU of that number; nothing where NVML is not there."""
    try:
        nvml = ctypes.CDLL(LIBRARY)
    except OSError:
        return {}
    if nvml.nvmlInit_v2():
        return {}
    handle = ctypes.c_void_p()
    if nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle)):
        return {}
    number, large, text = ctypes.c_uint(), ctypes.c_ulonglong(), ctypes.create_string_buffer(96)
    found: dict[str, Any] = {}
    for name, call, kind in (("sm_mhz", "nvmlDeviceGetClockInfo", 1), ("memory_mhz", "nvmlDeviceGetClockInfo", 2),
                             ("celsius", "nvmlDeviceGetTemperature", 0)):  # fmt: skip
        if not getattr(nvml, call)(handle, kind, ctypes.byref(number)):
            found[name] = number.value
    if not nvml.nvmlDeviceGetPowerUsage(handle, ctypes.byref(number)):
        found["watts"] = number.value / 1000
    if not nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle, ctypes.byref(large)):
        found["throttle"] = hex(large.value)
    if not nvml.nvmlSystemGetDriverVersion(text, 96):
        found["driver"] = text.value.decode()
    return found
