"""The process that holds a device: runs candidates on poisoned memory, and times them. Disposable; knows no right answers.

It answers `messages` one by one. Memory of a case (one workload's data) stays between candidates; everything else of a
candidate is forgotten after its message. If a candidate takes the process down, the next one gets a fresh process.
"""

from __future__ import annotations

import importlib
import os
import resource
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from tunesmith import jail
from tunesmith.backends import host
from tunesmith.backends.session import Bytes, DeviceError
from tunesmith.compiling import machine_bytes
from tunesmith.data import GUARD, Array, Layout
from tunesmith.errors import TunesmithError, UsageError
from tunesmith.messages import Candidate, Case, Forget, Host, Open, RunCheck, RunTime
from tunesmith.rotation import LOTS, Arm, Rotation, add_workspaces, placed
from tunesmith.timing import median_interval

FILE_BYTES = 64 << 20  # of any one file: what kernels print ends in the log
BACKENDS = {
    "cuda": "tunesmith.backends.cuda:CudaSession",
    "opencl": "tunesmith.backends.opencl:OpenClSession",
    "null": "tunesmith.backends.null:NullSession",
}

Answer = tuple[dict[str, Any], tuple[bytes, ...]]


@dataclass
class _Held:
    """What stays in this process."""

    session: Any = None
    cases: dict[str, Case] = field(default_factory=dict)
    rotations: dict[str, Rotation] = field(default_factory=dict)


EARLY_SAMPLES = 5  # a look falls among the first so many, before a measurement can have settled
HELD = _Held()


def handle(message: Any) -> dict[str, Any] | Answer:
    """Answer one message; a device's refusal is an answer too."""
    try:
        match message:
            case Open():
                return _open(message)
            case Case():
                _forget(message.key)
                HELD.cases[message.key] = message
                return {}
            case RunCheck():
                return _check(message)
            case RunTime():
                return _time(message)
            case Forget():
                _forget(message.case)
                return {}
    except DeviceError as error:
        return {"device_error": str(error)}
    except MemoryError as error:
        return {"device_error": f"OUT_OF_MEMORY: {error}"}
    finally:
        if HELD.session is not None and isinstance(message, RunCheck | RunTime):
            HELD.session.forget()
    raise TypeError(f"unknown message {type(message).__name__}")


def _open(message: Open) -> dict[str, Any]:
    module, _, name = BACKENDS[message.backend].partition(":")
    if message.jailed:
        _shut_in()
    try:
        HELD.session = getattr(importlib.import_module(module), name)(message.index)
    except TunesmithError as error:
        return {"device_error": error.message, "wrong_input": isinstance(error, UsageError)}
    session = HELD.session
    return {"device": session.describe(), "limits": asdict(session.limits), "rotation_bytes": session.rotation_bytes}


def _shut_in() -> None:
    """Before the runtime starts its threads: a thread that runs already would stay free.

    Not where the user's own functions run: torch.compile writes precompiled headers of more than the limit.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (min(FILE_BYTES, hard) if hard >= 0 else FILE_BYTES, hard))
    os.environ["TMPDIR"] = os.environ["XDG_CACHE_HOME"] = tempfile.tempdir = os.getcwd()
    runtime = [os.environ.get(name, "") for name in ("OCL_ICD_VENDORS", "TUNESMITH_RUNTIME")]
    write = [os.getcwd(), os.environ.get("POCL_CACHE_DIR", "")]
    jail.shut(
        read=[*jail.system_folders(), *filter(None, runtime)], write=filter(None, write), memory_bytes=machine_bytes()
    )


def _forget(key: str) -> None:
    HELD.cases.pop(key, None)
    rotation = HELD.rotations.pop(key, None)
    if rotation is not None:
        rotation.free()


# --- checking ----------------------------------------------------------------------------------------------------------


def _check(message: RunCheck) -> Answer:
    case = HELD.cases[message.case]
    inputs = case.contents[message.content]
    runs = [_poisoned_run(case.layouts, inputs, message.candidate, pattern) for pattern in message.poisons]
    problems = runs[0].problems or runs[1].problems
    outputs, parts = [], []
    for name, layout in case.layouts.items():
        if not layout.writes:
            continue
        first, second = (run.outputs[name] for run in runs)
        unwritten = _filled(first, message.poisons[0]) & _filled(second, message.poisons[1])
        differing = int((_raw(first) != _raw(second)).any(axis=-1).sum() - unwritten.sum())
        outputs.append(
            {"name": name, "unwritten": int(unwritten.sum()), "differing": differing, "elements": first.size}
        )
        parts += [_part(first, message, name), _part(second, message, name) if differing else b""]
        parts.append(np.packbits(unwritten).tobytes() if layout.partial else b"")
    return {"problems": problems, "outputs": outputs}, tuple(parts)


def _part(data: Array, message: RunCheck | RunTime, name: str) -> bytes:
    """An output as it is given back: whole, or the rows that were asked for."""
    axis = (message.row_axes or {}).get(name)
    if message.rows is not None and axis is not None:
        data = np.take(data, message.rows, axis=axis)
    return np.ascontiguousarray(data).tobytes()


@dataclass
class _Ran:
    outputs: dict[str, Array]
    problems: list[str]


def _poisoned_run(
    layouts: Mapping[str, Layout], inputs: Mapping[str, Array], candidate: Candidate | Host, pattern: int
) -> _Ran:
    """Run once with everything that is not an input holding the pattern, and look at every byte afterwards."""
    session = HELD.session
    buffers: dict[str, Any] = {}
    try:
        for name, layout in layouts.items():
            buffers[name] = session.allocate(layout.size)
            session.write(buffers[name], layout.image(inputs.get(name), pattern))
        places = {name: (buffers[name], layout.offset) for name, layout in layouts.items()}
        if isinstance(candidate, Host):
            returned = host.call(session, candidate, layouts, places, inputs)
        else:
            returned = {}
            sizes = add_workspaces(session, candidate, buffers, places, pattern)
            session.run(placed(session, candidate, places, inputs))
        ran = _Ran({}, [])
        for name, layout in layouts.items():
            image = session.read(buffers[name], layout.size)
            _look(name, layout, image, inputs.get(name), pattern, ran)
        for name, data in returned.items():
            ran.outputs[name] = data
        if not isinstance(candidate, Host):
            for name, size in sizes.items():
                _look_around(name, session.read(buffers[name], size + 2 * GUARD), size, pattern, ran)
        return ran
    finally:
        for buffer in buffers.values():
            session.free(buffer)


def _look(name: str, layout: Layout, image: Bytes, data: Array | None, pattern: int, ran: _Ran) -> None:
    found = np.array(layout.view(image))
    if layout.writes:
        ran.outputs[name] = found
    elif data is not None and not np.array_equal(_raw(found), _raw(np.asarray(data))):
        ran.problems.append(f"the input {name} was changed")
    if layout.span:
        layout.view(image).view(f"u{layout.numpy.itemsize}")[...] = int.from_bytes(
            bytes([pattern]) * layout.numpy.itemsize, "little"
        )
    outside = np.flatnonzero(image != pattern)
    if outside.size:
        at = int(outside[0]) - layout.offset
        where = "in a gap between its rows" if 0 <= at < layout.span else f"at byte {at} of {layout.span}"
        ran.problems.append(f"wrote outside {name}: {outside.size} bytes, the first {where}")


def _look_around(name: str, image: Bytes, size: int, pattern: int, ran: _Ran) -> None:
    outside = int((image[:GUARD] != pattern).sum() + (image[GUARD + size :] != pattern).sum())
    if outside:
        ran.problems.append(f"wrote outside the workspace {name}: {outside} bytes")


def _raw(data: Array) -> Array:
    """Elements as rows of bytes."""
    return np.ascontiguousarray(data).reshape(-1, 1).view(np.uint8)


def _filled(data: Array, pattern: int) -> Array:
    return np.asarray((_raw(data) == pattern).all(axis=-1))


# --- timing ------------------------------------------------------------------------------------------------------------


def _time(message: RunTime) -> Answer:
    case = HELD.cases[message.case]
    if message.case not in HELD.rotations:
        HELD.rotations[message.case] = Rotation(HELD.session, case)
    rotation = HELD.rotations[message.case]
    rotation.restore()
    arms: list[Arm] = []
    problems: list[tuple[int, str]] = []
    samples: list[list[float]] = [[] for _ in message.arms]

    def sample(index: int, *, look: bool = False) -> float:
        us = arms[index].sample(looked_at=look)
        if look:
            problems.extend((index, text) for text in arms[index].look(deterministic=message.deterministic))
        return us

    try:
        for one in message.arms:
            arms.append(Arm(rotation, one))
        looked = [LOTS.randrange(EARLY_SAMPLES) for _ in arms]  # and at one more, that nothing announces as the last
        for index in [i for i in range(len(arms)) for _ in range(message.warmups)]:
            sample(index)
        for index in message.order:
            samples[index].append(sample(index, look=message.look_always or len(samples[index]) == looked[index]))
            if problems or (len(arms) == 1 and _enough(samples[0], message)):
                break
        for index in range(len(arms)):
            if not problems:
                sample(index, look=True)
        set_, outputs, parts = _given_back(message, rotation, arms)
    finally:
        for arm in arms:
            arm.free()
    fields = {"samples_us": samples, "problems": problems, "set": set_, "outputs": outputs}
    return {**fields, "launches": [arm.launches for arm in arms], "device": HELD.session.describe()}, parts


def _enough(samples: Sequence[float], message: RunTime) -> bool:
    if len(samples) < 5:
        return False
    time_us, low, high = median_interval(samples)
    if time_us <= 0 or (message.behind_us is not None and low > message.behind_us):
        return True
    return message.settled > 0 and len(samples) >= 7 and (high - low) / time_us < message.settled


def _given_back(message: RunTime, rotation: Rotation, arms: Sequence[Arm]) -> tuple[int, list[str], tuple[bytes, ...]]:
    """What an arm makes of one set's own contents, to be judged: every look compared timed launches with such a run."""
    if message.give_back is None:
        return 0, [], ()
    index, arm = message.give_back % rotation.count, arms[message.give_back_arm]
    if isinstance(arm.arm, Host):
        return index, [], ()
    rotation.restore([index])
    arm.run_alone(index, exchange=False)
    names, parts = [], []
    for name, layout in rotation.layouts.items():
        if layout.writes:
            data = np.array(layout.view(HELD.session.read(rotation.buffers[index][name], layout.size)))
            names.append(name)
            parts.append(_part(data, message, name))
    return index, names, tuple(parts)
