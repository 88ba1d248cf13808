"""What the cubin's own bytes say against what ptxas said when it wrote them."""

from __future__ import annotations

import re

import pytest

from tunesmith.backends.cubin import code_fingerprint, read_cubin
from tunesmith.backends.nvrtc import compile_program
from tunesmith.build import BUILT, Build, Program

pytest.importorskip("cuda.bindings.nvrtc")

SOURCE = """
struct Big { float v[20]; int n; };
__device__ __noinline__ float helper(float x) { return sinf(x) * 2; }
extern "C" {
__global__ void none() {}
__global__ void mixed(int* p, float a, double b, char c, short d) { *p = a * b + c + d; }
__global__ void by_value(Big b, int* p) { *p = b.n; }
__global__ void calls(float* p) { *p = helper(*p) + helper(p[1]); }
__global__ void fixed_shared(float* p) {
  __shared__ float s[700];
  s[threadIdx.x] = p[threadIdx.x]; __syncthreads(); p[threadIdx.x] = s[threadIdx.x ^ 1];
}
__global__ void dynamic_shared(float* p) {
  extern __shared__ float t[];
  t[threadIdx.x] = p[threadIdx.x]; __syncthreads(); p[threadIdx.x] = t[threadIdx.x ^ 1];
}
__global__ void __launch_bounds__(1024, 2) spilling(float* p) {
  float a[64];
  for (int i = 0; i < 64; i++) a[i] = p[i * 1024 + threadIdx.x];
  for (int r = 0; r < 8; r++) {
#pragma unroll
    for (int i = 0; i < 64; i++) a[i] = a[i] * a[(i * 7 + 1) % 64] + p[r];
  }
#pragma unroll
  for (int i = 0; i < 64; i++) p[i * 1024 + threadIdx.x] = a[i];
}
#if __CUDA_ARCH__ >= 900
__global__ void __cluster_dims__(4, 2, 1) clustered(float* p) { *p = 1; }
#endif
}
"""
KERNELS = ("none", "mixed", "by_value", "calls", "fixed_shared", "dynamic_shared", "spilling")


@pytest.fixture(scope="module", params=["sm_80", "sm_90a", "sm_100a"])
def build(request: pytest.FixtureRequest) -> Build:
    entries = KERNELS if request.param == "sm_80" else (*KERNELS, "clustered")
    build = compile_program(Program("cuda", SOURCE, entries, request.param, ("-std=c++17",)), "key")
    assert build.status == BUILT, build.log
    return build


def said_by_ptxas(build: Build, kernel: str, pattern: str) -> int:
    """A number from ptxas' lines about a kernel; 0 where it does not mention it."""
    about = re.search(rf"entry function '{kernel}'.*?(?=Compiling entry|\Z)", build.log, re.DOTALL)
    assert about is not None
    found = re.search(pattern, about[0])
    return int(found[1]) if found else 0


def test_registers_and_shared_memory_and_spills(build: Build) -> None:
    for kernel in build.kernels:
        assert kernel.registers == said_by_ptxas(build, kernel.entry, r"Used (\d+) registers")
        assert kernel.shared_bytes == said_by_ptxas(build, kernel.entry, r"(\d+) bytes smem")
        assert kernel.spill_bytes == said_by_ptxas(build, kernel.entry, r"(\d+) bytes spill stores")
    assert build.kernel("fixed_shared").shared_bytes == 2800
    assert build.kernel("dynamic_shared").shared_bytes == 0
    assert build.kernel("spilling").spill_bytes > 0
    assert build.kernel("spilling").registers <= 32


def test_stack(build: Build) -> None:
    stacks = {k.symbol: k.stack_bytes for k in read_cubin(build.binary)}
    assert stacks["none"] == 0
    assert stacks["spilling"] > 0
    assert stacks["calls"] == said_by_ptxas(build, "calls", r"(\d+) bytes cumulative stack")


def test_parameters(build: Build) -> None:
    sizes = {k.entry: k.parameters for k in build.kernels}
    assert sizes["none"] == ()
    assert sizes["mixed"] == (8, 4, 8, 1, 2)
    assert sizes["by_value"] == (84, 8)
    placed = {k.symbol: k.parameters for k in read_cubin(build.binary)}
    assert placed["mixed"] == ((0, 8), (8, 4), (16, 8), (24, 1), (26, 2))


def test_clusters(build: Build) -> None:
    clusters = {k.entry: k.cluster for k in build.kernels}
    assert clusters.pop("clustered", 8) == 8
    assert set(clusters.values()) == {1}


def test_all_kernels_and_nothing_else_are_found(build: Build) -> None:
    assert [k.symbol for k in read_cubin(build.binary)] == sorted(k.entry for k in build.kernels)
    assert all(k.code_bytes > 0 for k in build.kernels)


def fingerprint_of(body: str, *options: str) -> str:
    source = f'extern "C" __global__ void k(float* p) {{ {body} }}\n'
    return compile_program(Program("cuda", source, ("k",), "sm_90a", options), "key").fingerprint


def test_equal_code_has_equal_fingerprints_and_other_code_has_not() -> None:
    one = fingerprint_of("p[threadIdx.x] = 1;")
    assert one == fingerprint_of("// a comment\n\n p[threadIdx.x] = 2 - 1;")
    others = [
        "p[threadIdx.x] = 2;",
        "__shared__ volatile float s[9]; s[0] = 1; p[threadIdx.x] = 1;",
        "p[threadIdx.y] = 1;",
    ]
    assert len({one, *map(fingerprint_of, others)}) == 4


def test_attributes_of_a_kernel_are_part_of_its_fingerprint() -> None:
    source = 'extern "C" __global__ void {} k(float* p) {{ p[0] = 1; }}\n'
    found = {
        compile_program(Program("cuda", source.format(a), ("k",), "sm_90a"), "key").fingerprint
        for a in ("", "__launch_bounds__(128)", "__cluster_dims__(2, 1, 1)", "__cluster_dims__(4, 1, 1)")
    }
    assert len(found) == 4


def test_what_is_no_cubin(build: Build) -> None:
    for data in (b"", b"MZ", b"\x7fELF\x01"):
        with pytest.raises(ValueError, match="not a 64-bit ELF"):
            read_cubin(data)
    assert code_fingerprint(build.binary) == build.fingerprint
