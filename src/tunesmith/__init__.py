"""Give it a GPU kernel and the workloads it serves; get back a faster kernel, and a proof.

`import tunesmith as ts` is the library. The names in `__all__` are all that is public; each is fetched from its module when
it is first asked for, so importing the package loads nothing else. The command line is a front over the same calls.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tunesmith.compiling import Compilers
    from tunesmith.device import all_devices, find_device
    from tunesmith.errors import TunesmithError
    from tunesmith.evaluate import Evaluator
    from tunesmith.playoff import Pairing, play
    from tunesmith.result import Result
    from tunesmith.review import check
    from tunesmith.run import Run
    from tunesmith.runs import tune
    from tunesmith.space import Space
    from tunesmith.task import (
        Cuda,
        InOut,
        Input,
        OpenCL,
        Output,
        Scalar,
        Task,
        Workload,
        dynamic,
        free,
        note,
        static,
    )
    from tunesmith.template import Template
    from tunesmith.trial import Status, Trial

__all__ = [
    "Compilers", "Cuda", "Evaluator", "InOut", "Input", "OpenCL", "Output", "Pairing", "Result", "Run", "Scalar",
    "Space", "Status", "Task", "Template", "Trial", "TunesmithError", "Workload", "all_devices", "check", "dynamic",
    "find_device", "free", "note", "play", "static", "tune",
]  # fmt: skip

PUBLIC = {
    "Compilers": "compiling:Compilers",
    "Cuda": "task:Cuda",
    "Evaluator": "evaluate:Evaluator",
    "InOut": "task:InOut",
    "Input": "task:Input",
    "OpenCL": "task:OpenCL",
    "Output": "task:Output",
    "Pairing": "playoff:Pairing",
    "Result": "result:Result",
    "Run": "run:Run",
    "Scalar": "task:Scalar",
    "Space": "space:Space",
    "Status": "trial:Status",
    "Task": "task:Task",
    "Template": "template:Template",
    "Trial": "trial:Trial",
    "TunesmithError": "errors:TunesmithError",
    "Workload": "task:Workload",
    "all_devices": "device:all_devices",
    "check": "review:check",
    "dynamic": "task:dynamic",
    "find_device": "device:find_device",
    "free": "task:free",
    "note": "task:note",
    "play": "playoff:play",
    "static": "task:static",
    "tune": "runs:tune",
}


def __getattr__(name: str) -> Any:
    """Fetch a public name from its module, the first time that it is asked for."""
    if name not in PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, attribute = PUBLIC[name].partition(":")
    value = globals()[name] = getattr(import_module(f"{__name__}.{module}"), attribute)
    return value


def __dir__() -> list[str]:
    return [*__all__, *(name for name in globals() if name.startswith("__"))]
