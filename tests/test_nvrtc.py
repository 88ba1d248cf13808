"""CUDA source to cubin, without a GPU: what models write compiles, and what does not compile says why."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tunesmith.backends import nvrtc
from tunesmith.backends.nvrtc import SHIMS, compile_program, error_line, version
from tunesmith.build import BUILT, FAILED, Build, Program

pytest.importorskip("cuda.bindings.nvrtc")
needs_nvcc = pytest.mark.skipif(not shutil.which("nvcc"), reason="nvcc is not here")

ONE = 'extern "C" __global__ void k(int* p) { *p = 1; }\n'


def build(source: str, *entries: str, options: tuple[str, ...] = ("-std=c++17",), **more: object) -> Build:
    program = Program("cuda", source, entries or ("k",), "sm_90a", options, **more)  # type: ignore[arg-type]
    return compile_program(program, "key")


def built(source: str, *entries: str, **more: object) -> Build:
    found = build(source, *entries, **more)  # type: ignore[arg-type]
    assert found.status == BUILT, found.log
    assert found.binary.startswith(b"\x7fELF")
    return found


def failed(source: str, *entries: str, **more: object) -> Build:
    found = build(source, *entries, **more)  # type: ignore[arg-type]
    assert found.status == FAILED
    assert found.binary == b""
    return found


# --- headers -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shim", sorted(SHIMS.iterdir()), ids=lambda path: path.name)
def test_every_shim_compiles_alone_and_twice(shim: Path) -> None:
    built(f"#include <{shim.name}>\n#include <{shim.name}>\n{ONE}")


def test_all_shims_together() -> None:
    includes = "".join(f"#include <{shim.name}>\n" for shim in sorted(SHIMS.iterdir()))
    built(f"{includes}#include <cuda_bf16.h>\n{ONE}")
    built(f"#include <cuda/std/cstdint>\n#include <cooperative_groups.h>\n{includes}{ONE}")


def test_names_of_the_standard_namespace() -> None:
    source = "#include <cstdint>\n#include <cstddef>\nstatic_assert(sizeof(std::uint32_t) == 4 && sizeof(std::size_t) == 8);\n"
    built(source + "using namespace std;\n" + ONE.replace("int* p", "uint8_t* p"))


def test_what_the_shims_promise() -> None:
    source = """
#include <stdint.h>
#include <stddef.h>
#include <limits.h>
#include <float.h>
#include <math.h>
#include <assert.h>
static_assert(sizeof(int8_t) == 1 && sizeof(uint16_t) == 2 && sizeof(int32_t) == 4 && sizeof(uint64_t) == 8, "");
static_assert(sizeof(uintptr_t) == 8 && sizeof(size_t) == 8 && sizeof(ptrdiff_t) == 8, "");
static_assert(int32_t(-1) < 0 && uint8_t(-1) == UINT8_MAX && INT64_MAX == LLONG_MAX && INT_MIN == -INT_MAX - 1, "");
static_assert(FLT_MAX > 3e38f && FLT_EPSILON == 0x1p-23f && DBL_EPSILON == 0x1p-52, "");
extern "C" __global__ void k(float* p) { assert(p != NULL); p[0] = -INFINITY; p[1] = NAN; p[2] = M_PI + expf(p[3]); }
"""
    built(source)


@pytest.mark.parametrize(
    "header", ["cuda_fp8.h", "cuda_fp16.h", "mma.h", "cooperative_groups.h", "cuda_pipeline.h", "cuda/std/cmath"]
)
def test_headers_of_cuda(header: str) -> None:
    built(f"#include <{header}>\n{ONE}")


def test_tensor_cores() -> None:
    source = """
#include <mma.h>
using namespace nvcuda;
extern "C" __global__ void k(const half* a, const half* b, float* c) {
  wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> x;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> y;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> z;
  wmma::fill_fragment(z, 0.0f);
  wmma::load_matrix_sync(x, a, 16); wmma::load_matrix_sync(y, b, 16);
  wmma::mma_sync(z, x, y, z);
  wmma::store_matrix_sync(c, z, 16, wmma::mem_row_major);
}
"""
    assert built(source).kernel("k").parameters == (8, 8, 8)


def test_a_user_s_header_comes_before_the_shims(tmp_path: Path) -> None:
    (tmp_path / "assert.h").write_text("#define ANSWER 42\n")
    source = '#include "assert.h"\nstatic_assert(ANSWER == 42, "");\n' + ONE
    built(source, include=(str(tmp_path),))
    failed(source)


def test_nothing_is_included_from_where_the_process_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "notes.h").write_text("s3cret\n")
    monkeypatch.chdir(tmp_path)
    found = failed('#include "notes.h"\n' + ONE)
    assert "s3cret" not in found.log
    assert 'kernel.cu(1): catastrophic error: cannot open source file "notes.h"' in found.reason


# --- entries -----------------------------------------------------------------------------------------------------------

TEMPLATES = """
namespace ns { template <class T, int N> __global__ void act(T* p) { p[threadIdx.x] = N; } }
using io_t = float;
#define BLOCK 256
__global__ void mangled(int* p, double x) { *p = x; }
"""


def test_instantiations_and_mangled_names() -> None:
    found = built(TEMPLATES, "ns::act<float, 256>", "ns::act<io_t, BLOCK>", "ns::act<double, 8>", "mangled")
    symbols = [k.symbol for k in found.kernels]
    assert symbols[0] == symbols[1] != symbols[2]
    assert symbols[3] == "_Z7mangledPid"
    assert found.kernel("mangled").parameters == (8, 8)


def test_a_kernel_that_is_not_there() -> None:
    found = failed(ONE, "other")
    assert "other" in found.reason
    found = failed(TEMPLATES, "ns::act<float>")
    assert "ns::act" in found.log


def test_a_function_that_is_no_kernel() -> None:
    found = failed('extern "C" __device__ int k(int x) { return x; }\n' + ONE.replace("k(", "other("))
    assert found.reason


# --- messages ----------------------------------------------------------------------------------------------------------


def test_a_syntax_error_names_its_line() -> None:
    found = failed('// one\nextern "C" __global__ void k(int* p) { *p = 1 }\n')
    assert found.reason == 'kernel.cu(2): error: expected a ";"'
    assert found.reason in found.log
    assert nvrtc.NOWHERE not in found.log


def test_an_undefined_name_and_a_warning_before_it() -> None:
    found = failed('extern "C" __global__ void k(int* p) { int unused; *p = missing; }\n')
    assert found.reason == 'kernel.cu(1): error: identifier "missing" is undefined'


def test_more_shared_memory_than_there_is() -> None:
    source = (
        'extern "C" __global__ void k(int* p) { __shared__ int s[99999]; s[*p] = 1; __syncthreads(); *p = s[p[1]]; }'
    )
    assert "uses too much shared data" in failed(source).reason


def test_the_line_that_matters() -> None:
    assert error_line("a.cu(1): warning: x\n\n a.cu(2): error: y\nb: error: z") == "a.cu(2): error: y"
    assert error_line("something else\n") == "something else"
    assert error_line(" \n") == "the compiler said nothing"


def test_options_reach_the_compiler() -> None:
    source = "#ifndef GIVEN\n#error not given\n#endif\n" + ONE
    failed(source)
    built(source, options=("-DGIVEN=1",))
    divide = 'extern "C" __global__ void k(float* p) { p[0] = p[1] / p[2]; }\n'
    exact, fast = built(divide), built(divide, options=("--use_fast_math",))
    assert fast.kernels[0].code_bytes < exact.kernels[0].code_bytes


def test_the_version_says_what_decides_the_result() -> None:
    assert version().startswith("nvrtc 1")
    assert " headers 1" in version()
    assert " shims " in version()


# --- the user's own nvcc -----------------------------------------------------------------------------------------------


@needs_nvcc
def test_an_nvcc_line(tmp_path: Path) -> None:
    (tmp_path / "own.h").write_text("#define ANSWER 42\n")
    source = "#include <stdint.h>\n#include <own.h>\nnamespace ns { __global__ void deep(char* p) { *p = ANSWER; } }\n"
    found = built(source + TEMPLATES + ONE, "k", "mangled", "ns::deep", compiler="nvcc -O3", include=(str(tmp_path),))
    assert [k.symbol for k in found.kernels] == ["k", "_Z7mangledPid", "_ZN2ns4deepEPc"]
    assert found.kernel("k").registers == built(ONE).kernel("k").registers
    assert version("nvcc -O3").startswith("nvcc -O3 ")


@needs_nvcc
def test_nvcc_says_what_is_wrong() -> None:
    assert failed(ONE.replace("1;", "1"), compiler="nvcc").reason.endswith('error: expected a ";"')
    assert "no kernel 'other' in the source; it has: k" in failed(ONE, "other", compiler="nvcc").reason


# --- a compiler that says nothing --------------------------------------------------------------------------------------

SILENT = """
import types
from cuda.bindings import nvrtc as real
from tunesmith.backends import nvrtc
from tunesmith.build import Program

asked = []

def compile_silently(handle, count, options):  # as from its own cache: nothing is assembled, nothing is said
    asked.extend(options)
    kept = [o for o in options if b"ptxas" not in o]
    return real.nvrtcCompileProgram(handle, len(kept), kept)

names = {name: getattr(real, name) for name in dir(real) if name.startswith("nvrtc")}
nvrtc._nvrtc = lambda: types.SimpleNamespace(**{**names, "nvrtcCompileProgram": compile_silently})
source = 'extern "C" __global__ void k(int* p) { *p = 1; }'
built = nvrtc.compile_program(Program("cuda", source, ("k",), "sm_90a", ("-std=c++17",)), "key")
assert (built.status, built.log) == ("built", ""), built
assert bytes([32])[0] == 32, "the space of this process was overwritten"
assert eval(compile('f"{1} {2}"', "later", "eval")) == "1 2"
assert b"--no-cache" in asked  # else a kernel met before would tell no spills
"""


def test_an_empty_log_leaves_the_process_as_it_was(tmp_path: Path) -> None:
    fresh = ["-B", "-X", f"pycache_prefix={tmp_path}"]  # compiled here: what comes from a .pyc shares no `bytes`
    done = subprocess.run([sys.executable, *fresh, "-c", SILENT], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
