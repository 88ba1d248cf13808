"""row_softmax: y[t, :] = softmax(x[t, :]), safe for any shift of the row.

Rows from an attention's 4096 scores to a vocabulary of 128256. One read and one write per element, if a row can stay on
the chip between its sum and its scaling; a few long rows must be shared by several SMs to reach the bandwidth.
"""

import functools

import numpy as np

from tunesmith.task import Input, Output, Task, Workload, dynamic, static
from tunesmith.tolerance import Close

task = Task(
    name="row_softmax",
    dims={"T": dynamic, "V": static},
    types={"io": ["bf16", "f32"]},
    arguments=[
        Input("x", "io[T, V]"),
        # 1e-5 of each element: room for exponentials by short polynomials
        Output("y", "io[T, V]", tolerance={"f32": Close(c=16, r=84)}),
    ],
    workloads=[
        Workload("vocabulary-16", T=16, V=128256, io="bf16", on="gpu"),
        Workload("vocabulary-256", T=256, V=128256, io="bf16", on="gpu"),
        Workload("scores-4096", T=4096, V=4096, io="bf16", on="gpu"),
        Workload("awkward-2880", T=4096, V=2880, io="bf16", on="gpu"),
        Workload("cpu-scores-8", T=8, V=4096, io="f32", on="cpu"),
        Workload("cpu-scores-256", T=256, V=4096, io="f32", on="cpu"),
        Workload("cpu-vocabulary-16", T=16, V=32000, io="f32", on="cpu"),
    ],
    held_out=[
        Workload("one-row", T=1, V=11008, io="bf16", on="gpu"),
        Workload("prime-rows", T=61, V=32000, io="bf16", on="gpu"),
        Workload("past-an-edge", T=1025, V=4096, io="bf16", on="gpu"),
        Workload("longest", T=3, V=151936, io="bf16", on="gpu"),
        Workload("cpu-one-row", T=1, V=2880, io="f32", on="cpu"),
        Workload("cpu-prime-rows", T=61, V=4096, io="f32", on="cpu"),
        Workload("cpu-past-an-edge", T=65, V=11008, io="f32", on="cpu"),
    ],
    bytes_moved="2*T*V * sizeof(io)",
    flops="4*T*V",  # subtract, exp, add, multiply
    rows="T",
    align=64,  # what a CPU's widest vectors ask for
)


@task.reference
def row_softmax(x):
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


@task.baseline("torch-eager", arrays="torch")
def eager(x, y):
    import torch

    torch.softmax(x, dim=1, out=y)


@functools.cache
def _compiled():
    import torch

    torch._dynamo.config.cache_size_limit = 64  # a kernel per shape, as dynamic=False asks
    return torch.compile(lambda x: torch.softmax(x, dim=1), dynamic=False)


@task.baseline("torch-compile", arrays="torch")
def compiled(x):
    return _compiled()(x)
