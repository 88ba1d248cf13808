"""Ways round the source gate. Each was tried against NVRTC or is how Clang reads; most of them print a file's contents."""

from __future__ import annotations

from pathlib import Path

import pytest

from conftest import ANSWERS
from tunesmith.safety import MAX_SOURCE_BYTES, refuse

SECRET = '#include "/etc/passwd"'


def refused_on(source: str, *, native: bool = False) -> int:
    """The line on which the source is refused; 0 where it passes."""
    refusal = refuse(source, native=native)
    return refusal.line if refusal else 0


@pytest.mark.parametrize(
    "line",
    [
        SECRET,
        "#include </etc/passwd>",
        '#include "../secret.h"',
        '#include "a/../../secret.h"',
        "#include <./../secret.h>",
        '#include ".env"',
        '#include ".ssh/id_rsa"',
        "#include FILE",
        "#include FILE(etc, passwd)",
        '#include "x\\x2f.h"',
        '#include "C:secret.h"',
        "#include_next <stdint.h>",
        '#import "x.h"',
        'import "/etc/passwd";',
        "import </etc/passwd>;",
        '#embed "x.bin"',
        "#line 1",
        '#line 1 "/etc/passwd"',
        '# 1 "/etc/passwd" 1',
        "#ident x",
        '#if __has_include("/etc/passwd")',
        "#ifdef __has_include",
        '#if __has_embed("/etc/passwd")',
        '#if _CCCL_HAS_INCLUDE("/etc/passwd")',
        '#pragma GCC dependency "/etc/passwd"',
        '#pragma include_alias("a.h", "/etc/passwd")',
        "%:include </etc/passwd>",
        "#include/**/</etc/passwd>",
        "/**/ # /**/ include /**/ </etc/passwd>",
        "#\tinclude\v</etc/passwd>",
        "\f#include </etc/passwd>",
        "\u00a0#include </etc/passwd>",
        "#\u3000include </etc/passwd>",
        "\ufeff#include </etc/passwd>",
        "??=include </etc/passwd>",
        "int x;\r#include </etc/passwd>",
        "int x;\0",
    ],
)
def test_what_reaches_for_a_file_is_refused_on_its_line(line: str) -> None:
    assert refused_on(f"int a;\n{line}\nint b;\n") == 2


@pytest.mark.parametrize(
    "source",
    [
        '#inc\\\nlude "/etc/passwd"',
        '#inc\\\r\nlude "/etc/passwd"',
        '#inc\\ \t\nlude "/etc/passwd"',
        '#include \\\n"/etc/passwd"',
        '#\\\ninclude "/etc/passwd"',
        '\\\n#include "/etc/passwd"',
        '/* \n */ # /* \n\n */ include "/etc/passwd"',
        '/\\\n* comment *\\\n/ #include "/etc/passwd"',
    ],
)
def test_an_include_that_is_joined_from_pieces(source: str) -> None:
    assert 1 <= refused_on(source + "\nint b;\n") <= source.count("\n") + 1


@pytest.mark.parametrize(
    "opening",
    [
        'const char* a = R"(" /* )";',
        'const char* a = R"x()\\\nx" /* )x";',
        'const char* a = "\\"; /* \n";',
        "int a = 1'000; /* '",
        "char c = '\"'; char d = '/*';",
        "#if 0\nit's /*\n#endif",
        '#if 0\n an open " /*\n#endif',
        "#define QUOTE it's /*",
        "#error it's /*",
        "// a comment \\ ",  # NVRTC does not join lines over a blank: the next one is code
        "// a comment ??/",
        "/* a /* nested */",
        "/\\\n/ a comment\n/\\\n*/",
    ],
)
def test_nothing_hides_an_include(opening: str) -> None:
    source = f'{opening}\n{SECRET}\n/* */ // \' " )" )x"\n'
    assert refused_on(source) > 0


@pytest.mark.parametrize(
    "source",
    [
        '#define CAT(a, b) a##b\n#if CAT(__has_, include)("/etc/passwd")\n#endif\n',
        "#define CAT(a, b) a%:%:b\n#if CAT(__has_, include)(X)\n#endif\n",
        "#define CAT(a, b) \\\n a##b\n#define ASK CAT(__h, as_include)(X)\n#if 0\n#elif ASK\n#endif\n",
        "#define ASK CAT(__has_, include)(X)\n#define CAT(a, b) a##b\n#define CAT2 1\n#if ASK\n#endif\n",
        "#define CAT(a, b) a##b\n#if CAT(__has_, include)(X)\n#endif\n#undef CAT\n#define CAT 1\n",
    ],
)
def test_a_condition_does_not_paste_names(source: str) -> None:
    refusal = refuse(source, native=False)
    assert refusal is not None
    assert "a condition may not paste names together" in refusal.reason


def test_a_refusal_says_what_and_where() -> None:
    refusal = refuse('int a; \\\n int b;\n\n#include "/etc/passwd"\n', native=False)
    assert refusal is not None
    assert refusal.reason == "#include of /etc/passwd: outside the allowed folders"
    assert refusal.line == 4
    refusal = refuse("#include NAME\n", native=False)
    assert refusal is not None
    assert 'only a plain <name> or "name" may be included' in refusal.reason


def test_the_first_of_several_is_named() -> None:
    assert refused_on(f"int a;\n__has_include\n{SECRET}\nR\r\n") == 2


def test_large_sources_are_refused() -> None:
    assert refused_on("x" * (MAX_SOURCE_BYTES + 1)) == 1
    assert refused_on("é" * (MAX_SOURCE_BYTES // 2 + 1)) == 1
    assert not refused_on("x" * MAX_SOURCE_BYTES)
    assert refused_on("#define A\n" * 3000) == 2001


@pytest.mark.parametrize(
    "source",
    [
        '#include <cuda_bf16.h>\n#include "cub/block/block_reduce.cuh" // why\n#  include <mma.h> /* too */\n',
        "// the #include of a header; see # 12\n/* # 1234 is fixed\n * #include nothing\n */\n",
        'asm volatile("mov.u32 %0, %1;" : "=r"(x) : "r"(y));\n',
        'const char* text = R"(a "quoted" /* text)";\nint separated = 1\'000\'000;\n',
        "#pragma unroll\n#pragma once\n#define CAT(a, b) a##b\n#if N > 2 && defined(FAST)\n#error no\n#endif\n#undef N\n",
        "int héllo; // ünïcode\r\n#define A \\\r\n  1\r\n",
        'extern "C" __global__ void k() { __builtin_assume(1); __syncthreads(); }\n',
        'printf("100 %% done: %d\\n", line);\n#define line 3\n',
    ],
)
def test_honest_cuda_passes(source: str) -> None:
    assert refuse(source, native=False) is None


# --- native code -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        'asm("syscall");',
        '__asm__ volatile ("syscall");',
        "__asm (x);",
        "__builtin_trap();",
        "__builtin_alloca(n);",
        "__builtin_return_address(0);",
        "__builtin_ia32_rdpmc(0);",
        "CAT(__, builtin_trap)();",
        "__atomic_load_n(p, 0);",
        "__sync_synchronize();",
        "extern int puts(const char*);",
        "int puts(const char*);",
        "int (puts)(const char*);",
        "__attribute__((overloadable)) int puts(const char* x);",
        "int puts(const char (*text));",
        "void kernel_like(int a) __attribute__((noinline));",
        'x = system("ls");',
        "void* p = dlsym(0, name);",
        "char** e = environ;",
        "__attribute__((constructor)) void f() {}",
        "__attribute__((noinline, constructor)) void f() {}",
        "__attribute__((__constructor__)) void f() {}",
        "[[gnu::constructor]] void f() {}",
        "#define FIRST constructor",
        '__attribute__((used, section(".init_array"))) int p = 1;',
        '__attribute__((alias("g"))) void f();',
        "#pragma OPENCL EXTENSION __cl_clang_function_pointers : enable",
        "#pragma redefine_extname f system_",
        '__constant char t[] = R"(" /* )"; ',
        "#warning it's /* not a comment",
        "# error /* not a comment",
    ],
)
def test_what_native_code_may_not_use(line: str) -> None:
    source = f"int a;\n{line}\nint b;\n"
    assert refused_on(source, native=True) == 2


def test_assembly_where_the_user_permits_it() -> None:
    source = 'void f(void) { asm("nop"); }\n'
    assert refuse(source, native=True) is not None
    assert refuse(source, native=True, allow_assembly=True) is None
    assert refuse(source, native=False) is None


@pytest.mark.parametrize(
    "opening",
    [
        "#if 0\nit's /*\n#endif",
        '#if 0\n an open " /*\n#endif',
        "__constant char q = '\"'; // \"",
        '__constant char* q = "\\"/*";',
        "#define QUOTE it's /*",
    ],
)
def test_nothing_hides_assembly(opening: str) -> None:
    assert refused_on(f'{opening}\nvoid f(void) {{ asm("nop"); }}\n/* */\n', native=True) > 0


@pytest.mark.parametrize(
    "source",
    [
        "// asm and system() are not used; __builtin_trap neither\n/* extern */\n",
        'printf("asm extern __builtin_trap");\n',
        "float f(float x);\nfloat f(float x) { return exp(x); }\n",
        "inline float g(int a) __attribute__((always_inline));\ninline float g(int a) { return a; }\n",
        "kernel void k(global float* x) {\n  barrier(CLK_LOCAL_MEM_FENCE);\n  if (x) return;\n  x[0] = a\n * exp(b);\n"
        "  do { f(x); } while (g(x));\n  else h(x);\n  return exp(x);\n}\n",
        "#define LOAD(v) vload##v\n#define MUL(a, b) a * f(b)\n",
        "kernel __attribute__((reqd_work_group_size(1, 1, 1)))\nvoid k(void) {}\n",
        "__builtin_prefetch(p, 0, 3); __builtin_expect(x, 1); __builtin_nontemporal_store(v, p);\n",
        "v = __builtin_shufflevector(a, b, 0, 1); w = __builtin_convertvector(v, float8);\n",
        "v = __builtin_ia32_scalefps512_mask(a, b, c, -1, 4); __builtin_fmaf(a, b, c);\n",
    ],
)
def test_honest_opencl_passes(source: str) -> None:
    assert refuse(source, native=True) is None


@pytest.mark.parametrize("file", sorted(ANSWERS.glob("*/*.c[lu]")), ids=lambda f: f"{f.parent.name}/{f.name}")
def test_answers_of_models_pass(file: Path) -> None:
    assert refuse(file.read_text(), native=file.suffix == ".cl") is None


@pytest.mark.parametrize(
    "source",
    ["#/*\n" * 30_000, "/**/" * 99_000, "*/#" * 130_000, "int" + " " * 390_000 + "=;", "f(" * 199_000, "'\\" * 199_000,
     "int f(" + "()" * 190_000, "__attribute__((" * 26_000, ";a *" * 99_000, "\\\n" * 190_000],
    ids=lambda s: s[:15],
)  # fmt: skip
def test_the_gate_itself_ends(source: str) -> None:
    """Would hang for hours where a pattern backtracks; the refusal itself does not matter here."""
    refuse(source, native=True)
