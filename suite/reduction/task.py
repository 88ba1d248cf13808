"""reduction: the sum of N numbers, as one number.

4 bytes per element and one addition: memory bounds it at large N, the cost of a second launch (or of a zeroing one
before atomics) at small N. Sums in f32 depend on their order, and with atomics the order differs from run to run.
"""

import functools

import numpy as np

from tunesmith.task import Input, Output, Task, Workload, dynamic
from tunesmith.tolerance import Verdict


def sums(judging):
    """Relative to the sum or to the norm of the elements, whichever is larger: a sum of N(0, 1) is as large as its norm
    only by luck, so its own size says nothing. 2^-14 is 512 spacings: chains of a thousand equal numbers drift by 256."""
    scale = max(abs(float(judging.want)), float(np.sqrt(np.sum(judging.inputs["x"] ** 2))))
    off = abs(float(judging.got) - float(judging.want))
    error = off / (2.0**-14 * scale) if scale else float(off != 0)
    right = bool(error <= 1) or (scale == 0 and off == 0)
    return Verdict(right, error, "" if right else f"{error:.3g} times the allowed difference")


task = Task(
    name="reduction",
    dims={"N": dynamic},
    arguments=[Input("x", "f32[N]"), Output("out", "f32[]", tolerance=sums)],
    workloads=[
        Workload("small-64k", N=2**16, on="gpu"),
        Workload("medium-1m", N=2**20, on="gpu"),
        Workload("large-256m", N=2**28, on="gpu"),
        Workload("awkward-54m", N=13824 * 4096, on="gpu"),
        Workload("cpu-small-64k", N=2**16, on="cpu"),
        Workload("cpu-large-4m", N=2**22, on="cpu"),
        Workload("cpu-awkward-864k", N=300 * 2880, on="cpu"),
    ],
    held_out=[
        Workload("one", N=1),
        Workload("width-2880", N=2880),
        Workload("past-an-edge", N=2**18 + 1),
        Workload("prime", N=999983),
    ],
    bytes_moved="4*N",
    flops="N",
    deterministic=False,
)


@task.reference
def reduction(x):
    return np.sum(x)


@task.baseline("torch-eager", arrays="torch")
def eager(x):
    import torch

    return torch.sum(x)


@functools.cache
def _compiled():
    import torch

    torch._dynamo.config.cache_size_limit = 64  # a kernel per shape, as dynamic=False asks
    return torch.compile(lambda x: torch.sum(x), dynamic=False)


@task.baseline("torch-compile", arrays="torch")
def compiled(x):
    return _compiled()(x)
