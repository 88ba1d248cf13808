"""C = A·B in f32, row-major: A is [M, K], B [K, N].

Flops bound from M of a few hundred on (an H200 gives 67 TFLOP/s of f32, no tensor cores); below, reading B is the bound.
"""

import numpy as np

from tunesmith.task import Input, Output, Task, Workload, dynamic, static
from tunesmith.tolerance import Judging, Verdict

llama = {"N": 4096, "K": 4096}  # Llama-3-8B, o_proj
gpt_oss = {"N": 2880, "K": 2880}  # neither a power of two nor a multiple of 128
small = {"N": 768, "K": 768}


def like_sums(judging: Judging) -> Verdict:
    """A relative L2 error of 1e-5, measured at what sums of K products with random signs come to where these cancel."""
    a, b = judging.inputs["A"], judging.inputs["B"]
    size = max(np.linalg.norm(judging.want), np.linalg.norm(a) * np.linalg.norm(b) / len(b) ** 0.5)
    error = np.linalg.norm(judging.got - judging.want) / (1e-5 * size) if size else np.abs(judging.got).max(initial=0)
    right = bool(error <= 1)  # false for NaN too
    return Verdict(right, float(error), "" if right else f"{error:.3g} times the relative L2 error allowed, 1e-5")


task = Task(
    "matmul",
    align=64,
    dims={"M": dynamic, "N": static, "K": static},
    arguments=[
        Input("A", "f32[M, K]"),
        Input("B", "f32[K, N]"),
        Output("C", "f32[M, N]", tolerance=like_sums),
    ],
    workloads=[
        Workload("decode-16", M=16, **llama, on="gpu"),
        Workload("prefill-2048", M=2048, **llama, on="gpu"),
        Workload("prefill-4096", M=4096, **llama, on="gpu"),
        Workload("gpt-oss-512", M=512, **gpt_oss, on="gpu"),
        Workload("cpu-50", M=50, **small, on="cpu"),
        Workload("cpu-768", M=768, **small, on="cpu"),
    ],
    held_out=[
        Workload("one", M=1, **llama, on="gpu"),
        Workload("prime", M=1009, **llama, on="gpu"),
        Workload("past-a-tile", M=129, **gpt_oss, on="gpu"),
        Workload("cpu-one", M=1, **small, on="cpu"),
        Workload("cpu-prime", M=131, **small, on="cpu"),
        Workload("cpu-past-a-tile", M=17, **small, on="cpu"),
    ],
    bytes_moved="4*(M*K + K*N + M*N)",
    flops="2*M*N*K",
    rows="M",
)


@task.reference
def matmul(A, B):
    return A @ B


@task.baseline("torch-eager", arrays="torch")
def torch_eager(A, B, C):
    import torch

    torch.matmul(A, B, out=C)
