"""p = softmax(logits[t, :E]); the k largest, in order, ties to the lower index: their p as w, their places as idx.

What a mixture-of-experts router does. Softmax keeps the order, so the ranking is that of the logits; w is not renormalised.
"""

import functools

import numpy as np

from tunesmith.task import Input, Output, Task, Workload, dynamic, static
from tunesmith.tolerance import Close, Indices

deepseek = {"E": 256, "k": 8, "on": "gpu"}  # DeepSeek-V3
qwen = {"E": 128, "k": 8, "on": "cpu"}  # Qwen3-30B-A3B
gpt_oss = {"E": 128, "k": 4, "on": "cpu"}

task = Task(
    "topk_softmax",
    dims={"T": dynamic, "E": static, "k": static},
    arguments=[
        Input("logits", "f32[T, E]", residency="warm"),
        # 128 spacings are 1.5e-5 of the row's size: room for an approximate exp and for logits cut to 24 bits
        Output("w", "f32[T, k]", tolerance=Close(c=128)),
        Output("idx", "i32[T, k]", tolerance=Indices(by="logits", ties="lower")),
    ],
    align=64,
    workloads=[
        Workload("decode-16", T=16, **deepseek),
        Workload("decode-256", T=256, **deepseek),
        Workload("prefill-4096", T=4096, **deepseek),
        Workload("prefill-16384", T=16384, **deepseek),
        Workload("cpu-64", T=64, **qwen),
        Workload("cpu-2048", T=2048, **qwen),
        Workload("cpu-gpt-oss-512", T=512, **gpt_oss),
    ],
    held_out=[
        Workload("one", T=1, **deepseek),
        Workload("prime", T=1009, **deepseek),
        Workload("past-a-block", T=4097, **deepseek),
        Workload("cpu-one", T=1, **qwen),
        Workload("cpu-prime", T=131, **gpt_oss),
        Workload("cpu-past-a-block", T=65, **qwen),
    ],
    bytes_moved="4*T*E + 8*T*k",
    flops="4*T*E",
    rows="T",
)


@task.reference
def topk_softmax(logits, k):
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    idx = np.argsort(-logits, axis=1, kind="stable")[:, :k]  # stable: equal logits in the order of their places
    return {"w": np.take_along_axis(p, idx, axis=1), "idx": idx}


def _routing(logits, k):
    import torch

    w, idx = torch.topk(torch.softmax(logits, dim=-1), k)
    return w, idx.to(torch.int32)


@functools.cache
def _compiled():
    import torch

    return torch.compile(_routing, dynamic=False)


@task.baseline("torch-eager", arrays="torch")
def torch_eager(logits, w, idx):  # torch leaves open which of two equal values comes first
    for out, value in zip((w, idx), _routing(logits, w.shape[1]), strict=True):
        out.copy_(value)


@task.baseline("torch-compile", arrays="torch")
def torch_compile(logits, w, idx):
    for out, value in zip((w, idx), _compiled()(logits, w.shape[1]), strict=True):
        out.copy_(value)
