"""What is read of a GPU's clocks and heat: from a library in the place of NVIDIA's, and from none."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

import pytest

from tunesmith.backends import nvml

REFUSED = 3  # NVML_ERROR_NOT_SUPPORTED


def library(**changes: Any) -> SimpleNamespace:
    def gives(value: int) -> Any:
        def call(*arguments: Any) -> int:
            arguments[-1]._obj.value = value
            return 0

        return call

    def clock(_: Any, kind: int, found: Any) -> int:
        found._obj.value = {1: 1980, 2: 2619}[kind]
        return 0

    def version(text: Any, size: int) -> int:
        assert size == ctypes.sizeof(text)
        text.value = b"580.1"
        return 0

    fields: dict[str, Any] = {
        "nvmlInit_v2": lambda: 0,
        "nvmlDeviceGetHandleByIndex_v2": lambda *_: 0,
        "nvmlDeviceGetClockInfo": clock,
        "nvmlDeviceGetTemperature": gives(41),
        "nvmlDeviceGetPowerUsage": gives(123_500),
        "nvmlDeviceGetCurrentClocksThrottleReasons": gives(0x4),
        "nvmlSystemGetDriverVersion": version,
    }
    return SimpleNamespace(**{**fields, **changes})


def readings(monkeypatch: pytest.MonkeyPatch, found: SimpleNamespace) -> dict[str, Any]:
    monkeypatch.setattr(ctypes, "CDLL", lambda _: found)
    return nvml.readings(0)


def test_readings_have_their_units_in_their_names(monkeypatch: pytest.MonkeyPatch) -> None:
    assert readings(monkeypatch, library()) == {
        "sm_mhz": 1980, "memory_mhz": 2619, "celsius": 41, "watts": 123.5, "throttle": "0x4", "driver": "580.1",
    }  # fmt: skip


def test_a_reading_that_is_refused_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    found = readings(monkeypatch, library(nvmlDeviceGetPowerUsage=lambda *_: REFUSED))
    assert "watts" not in found
    assert found["celsius"] == 41


@pytest.mark.parametrize("call", ["nvmlInit_v2", "nvmlDeviceGetHandleByIndex_v2"])
def test_a_library_that_does_not_start_tells_nothing(monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    assert readings(monkeypatch, library(**{call: lambda *_: REFUSED})) == {}


def test_without_the_library_there_are_no_readings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "LIBRARY", "libnvidia-ml-that-is-not-here.so")
    assert nvml.readings(0) == {}
