"""C[m,n] = Σ A[m,k]·B[n,k] with f32 accumulation: both operands have k along the row, as linear layers store them.

On a GPU in bf16 with tensor cores (the target: 780 TFLOP/s of an H200); on a CPU in f32, as OpenCL has no bf16.
"""

from tunesmith.task import Input, Output, Task, Workload, dynamic, static
from tunesmith.tolerance import L2

llama = {"N": 4096, "K": 4096, "io": "bf16", "on": "gpu"}  # Llama-3-8B, o_proj
small = {"N": 1024, "K": 1024, "io": "f32", "on": "cpu"}

task = Task(
    "gemm_bf16",
    dims={"M": dynamic, "N": static, "K": static},
    types={"io": ["bf16", "f32"]},
    arguments=[
        Input("A", "io[M, K]"),
        Input("B", "io[N, K]"),
        # f32 sums of 1024 terms are right to 1e-6; what is rounded to f16 or bf16 on the way is off by 2e-4 or more
        Output("C", "io[M, N]", tolerance={"bf16": L2(4e-3), "f32": L2(2e-5)}),
    ],
    align=64,
    workloads=[
        Workload("decode-16", M=16, **llama),
        Workload("decode-64", M=64, **llama),
        Workload("prefill-2048", M=2048, **llama),
        Workload("prefill-4096", M=4096, **llama),
        Workload("cpu-16", M=16, **small),
        Workload("cpu-64", M=64, **small),
    ],
    held_out=[
        Workload("one", M=1, **llama),
        Workload("prime", M=1009, **llama),
        Workload("past-a-tile", M=257, **llama),
        Workload("cpu-one", M=1, **small),
        Workload("cpu-prime", M=37, **small),
        Workload("cpu-past-a-tile", M=65, **small),
    ],
    bytes_moved="(M*K + N*K + M*N) * sizeof(io)",
    flops="2*M*N*K",
    rows="M",
)


@task.reference
def gemm(A, B):
    return A @ B.T


@task.baseline("torch-eager", arrays="torch")
def torch_eager(A, B, C):
    import torch

    torch.matmul(A, B.T, out=C)
