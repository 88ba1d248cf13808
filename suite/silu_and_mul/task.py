"""silu_and_mul: out[t, j] = silu(x[t, j]) * x[t, d + j], the gate of every SwiGLU layer.

Three streams and no reuse: 6 bytes move per element of `out` at 2 bytes a number, so memory bounds it on any GPU as
long as exp and division stay cheap (one of each per element). Widths are the intermediate sizes of real models; 2880,
11008 and 13824 are no multiples of 1024 threads times 8 elements.
"""

import functools

import numpy as np

from tunesmith.task import Input, Output, Task, Workload, dynamic, static
from tunesmith.tolerance import Close

task = Task(
    name="silu_and_mul",
    dims={"T": dynamic, "d": static},
    types={"io": ["bf16", "f16", "f32"]},
    # r = 1: kernels in production round silu(x) to the type before they multiply, so two roundings are right
    arguments=[
        Input("x", "io[T, 2*d]"),
        Output("out", "io[T, d]", tolerance={"bf16": Close(r=1.0), "f16": Close(r=1.0)}),
    ],
    workloads=[
        Workload("decode-1", T=1, d=14336, io="bf16", on="gpu"),
        Workload("decode-16", T=16, d=14336, io="bf16", on="gpu"),
        Workload("prefill-4096", T=4096, d=14336, io="bf16", on="gpu"),
        Workload("awkward-2880", T=2048, d=2880, io="bf16", on="gpu"),
        Workload("cpu-decode-16", T=16, d=14336, io="f32", on="cpu"),
        Workload("cpu-expert-768", T=1024, d=768, io="f32", on="cpu"),
        Workload("cpu-awkward-2880", T=300, d=2880, io="f32", on="cpu"),
    ],
    held_out=[
        Workload("one-row", T=1, d=2880, io="bf16", on="gpu"),
        Workload("prime-rows", T=61, d=11008, io="bf16", on="gpu"),
        Workload("past-an-edge", T=257, d=13824, io="bf16", on="gpu"),
        Workload("half", T=33, d=14336, io="f16", on="gpu"),
        Workload("cpu-one-row", T=1, d=2880, io="f32", on="cpu"),
        Workload("cpu-prime-rows", T=61, d=2048, io="f32", on="cpu"),
        Workload("cpu-past-an-edge", T=65, d=11008, io="f32", on="cpu"),
    ],
    bytes_moved="3*d * T * sizeof(io)",
    flops="4*T*d",  # exp, add, divide, multiply
    rows="T",
)


@task.reference
def silu_and_mul(x, d):
    gate, up = x[:, :d], x[:, d:]
    return gate / (1 + np.exp(-gate)) * up


@task.baseline("torch-eager", arrays="torch")
def eager(x, out):
    import torch

    d = out.shape[1]
    torch.mul(torch.nn.functional.silu(x[:, :d]), x[:, d:], out=out)


@functools.cache
def _compiled():
    import torch

    torch._dynamo.config.cache_size_limit = 64  # a kernel per shape, as dynamic=False asks

    def fused(x):
        gate, up = x.chunk(2, dim=1)
        return torch.nn.functional.silu(gate) * up

    return torch.compile(fused, dynamic=False)


@task.baseline("torch-compile", arrays="torch")
def compiled(x):
    return _compiled()(x)
