"""What the documentation shows is run, what it links to is there, and what it says of errors stands in the source.

A page's files (`File: path` above a fence) are written to a folder of their own, its python blocks run there one after
the other, and so do its console blocks, whose `...` stand for anything. HTML comments above a fence change that:
`not run: reason`, `opencl` (needs a device), `exit 1`; `continues: page.md` begins with another page's files.
"""

from __future__ import annotations

import ast
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]
LINKING = [*PAGES, ROOT / "CHANGELOG.md", *sorted(DOCS.rglob("decisions/*.md"))]
FENCE = re.compile(r"^```(?P<info>[^\n]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
TITLE = re.compile(r"(?:^File: (?P<above>\S+)\s*\Z)|(?:title=\"?(?P<info>[^\s\"]+))", re.MULTILINE)
ORDERS = re.compile(r"<!-- ([^\n]*) -->\s*\Z")
VERBS_OF_LATER = {"refactor", "tune", "answer", "init", "report",
                  "compare", "skill", "explain", "mcp", "export"}  # fmt: skip


@dataclass(frozen=True)
class Block:
    """A fence: its language, its text, the file that it is, and what a comment above it orders."""

    language: str
    text: str
    file: str = ""
    orders: str = ""


@dataclass
class Page:
    path: Path
    blocks: list[Block] = field(default_factory=list)

    @staticmethod
    def read(path: Path) -> Page:
        text, page = path.read_text(), Page(path)
        if first := re.search(r"<!-- continues: (\S+) -->", text):
            page.blocks += [b for b in Page.read(path.parent / first[1]).blocks if b.file]
        for fence in FENCE.finditer(text):
            above = text[: fence.start()].rstrip("\n")
            last_line = above.rpartition("\n")[2]
            title = TITLE.search(last_line) or TITLE.search(fence["info"])
            orders = ORDERS.search(above)
            file = next(filter(None, title.groups())) if title else ""
            language = fence["info"].split()[0] if fence["info"].split() else ""
            page.blocks.append(Block(language, fence["text"], file, orders[1] if orders else ""))
        return page

    def write_files(self, folder: Path) -> None:
        for name in ("suite", "benchmarks"):
            (folder / name).symlink_to(ROOT / name)
        for block in self.blocks:
            if block.file:
                path = folder / block.file
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(block.text)

    def consoles(self, *, device: bool) -> Iterator[Block]:
        for block in self.blocks:
            runs = block.language == "console" and not block.orders.startswith("not run:")
            if runs and ("opencl" in block.orders) is device:
                yield block


def environment() -> dict[str, str]:
    """As a reader's shell: this package's commands on the path, a terminal of the usual width."""
    return {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "COLUMNS": "120"}


def run_console(block: Block, folder: Path) -> None:
    """Run each `$ ` line and compare what follows it."""
    wanted_code = int(found[1]) if (found := re.search(r"exit (\d+)", block.orders)) else 0
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        command, _, shown = part.partition("\n")
        done = subprocess.run(shlex.split(command, comments=True), cwd=folder, env=environment(), text=True,
                              capture_output=True, check=False)  # fmt: skip
        said = done.stdout + ("" if done.returncode in (0, 1) else done.stderr)
        assert done.returncode == wanted_code, f"$ {command}\n{said}\n{done.stderr}"
        assert matches_output(shown, said), f"$ {command}\nshown:\n{shown}\nsaid:\n{said}"


def matches_output(shown: str, said: str) -> bool:
    """Whether the shown output is what was said, blanks at line ends aside; `...` stands for anything, lines too."""
    shown, said = ("\n".join(line.rstrip() for line in text.strip("\n").splitlines()) for text in (shown, said))
    pattern = ".*?".join(re.escape(part) for part in re.split(r"\n?^\.\.\.$\n?|\.\.\.", shown, flags=re.MULTILINE))
    return not shown.strip() or re.fullmatch(pattern, said, re.DOTALL) is not None


def ids(path: Path) -> str:
    return path.name if path.parent == ROOT else f"docs/{path.name}"


# --- what is run -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", PAGES, ids=ids)
def test_snippets_run(path: Path, tmp_path: Path) -> None:
    page = Page.read(path)
    page.write_files(tmp_path)
    code = "\n\n".join(b.text for b in page.blocks if b.language == "python" and not b.file)
    done = subprocess.run([sys.executable, "-"], input=code, cwd=tmp_path, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    for block in page.consoles(device=False):
        run_console(block, tmp_path)


@pytest.mark.opencl
@pytest.mark.parametrize("path", [p for p in PAGES if any(Page.read(p).consoles(device=True))], ids=ids)
def test_snippets_run_on_a_device(path: Path, tmp_path: Path) -> None:
    page = Page.read(path)
    page.write_files(tmp_path)
    for block in page.consoles(device=True):
        run_console(block, tmp_path)


@pytest.mark.parametrize("file", ["baselines/plain.cu", "templates/vector.cu"])
def test_the_cuda_kernels_shown_compile(file: str, tmp_path: Path) -> None:
    pytest.importorskip("cuda.bindings")
    from tunesmith.backends.nvrtc import compile_program
    from tunesmith.build import Program
    from tunesmith.template import Template

    Page.read(DOCS / "write-a-template.md").write_files(tmp_path)
    template = Template.load(tmp_path / "clamped_swiglu" / file)
    for config in ({}, *template.starts):
        for io in ("bf16", "f16", "f32"):
            source = template.render(config, types={"io": io})
            program = Program("cuda", source, ("clamped_swiglu",), "sm_90a", ("-std=c++17",))
            built = compile_program(program, "docs")
            assert built.status == "built", built.log


def test_snippets_are_found_and_output_is_compared() -> None:
    page = Page.read(DOCS / "write-a-task.md")
    assert {b.file for b in page.blocks if b.file} >= {"clamped_swiglu/task.py", "bad/no_tail.cl"}
    assert [b.orders for b in page.consoles(device=True)] == ["opencl", "opencl, exit 1"]
    assert matches_output("a\n...\nz 1...", "a\nb\n\nz 12  \n")
    assert matches_output("a...\n...\nz", "abc\nb\nz")
    assert not matches_output("a\n...\ny", "a\nb\nz")
    assert not matches_output("a", "a\nb")


# --- what is said ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", LINKING, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(path: Path) -> None:
    prose = FENCE.sub("", path.read_text())
    for target in re.findall(r"\]\(([^)#\s]+)", prose):
        if "://" not in target:
            assert (path.parent / target).exists(), f"{path.name} links to {target}"


def test_every_page_is_in_the_index() -> None:
    index = (DOCS / "README.md").read_text()
    for page in DOCS.rglob("*.md"):
        assert page == DOCS / "README.md" or str(page.relative_to(DOCS)) in index


def test_verbs_and_options_are_those_that_there_are() -> None:
    from tunesmith.cli import cli

    text = "\n".join(path.read_text() for path in PAGES)
    assert not VERBS_OF_LATER & {*cli.commands}
    for verb, command in cli.commands.items():
        assert f"tunesmith {verb}" in text, f"{verb} is not documented"
        known = {o for p in command.params for o in p.opts if o.startswith("--")} | {"--help"}
        for line in re.findall(rf"tunesmith {verb}\b([^`\n]*)", text):
            assert {*re.findall(r"--[a-z][\w-]*", line)} <= known, line
    mentioned = {v for v in re.findall(r"(?:\$ |`|bin/|^ {4})tunesmith ([a-z]+)", text, re.MULTILINE) if v != "import"}
    assert mentioned <= {*cli.commands}


def test_make_targets_are_those_that_there_are() -> None:
    targets = {*re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)}
    text = "\n".join(path.read_text() for path in LINKING)
    assert {*re.findall(r"(?:`|\$ )make ([a-z-]+)", text)} <= targets


def test_the_header_s_keys_are_documented() -> None:
    from tunesmith.grammar import FUNCTIONS, LOOKUPS
    from tunesmith.header import KEYS, OPTIONS
    from tunesmith.limits import FACTS

    text = (DOCS / "write-a-template.md").read_text()
    for key in (*KEYS, *OPTIONS, *FACTS):
        assert re.search(rf"`\[*{key}\]*`", text), key
    for name in (*FUNCTIONS, *LOOKUPS):
        assert f"`{name}(" in text, name


def test_what_a_task_may_declare_is_documented() -> None:
    from dataclasses import fields

    from tunesmith.argument import Argument
    from tunesmith.dtype import DTYPES
    from tunesmith.task import Dim, Task
    from tunesmith.tolerance import BY_NAME
    from tunesmith.values import DISTRIBUTIONS

    text = (DOCS / "write-a-task.md").read_text()
    made = {"folder", "oracle", "baselines", "name", "spec", "_"}  # by loading and decorating, or by position
    names = {f.name for c in (Task, Argument) for f in fields(c)} - made
    for name in (*names, *Dim, *BY_NAME, *DTYPES):
        assert re.search(rf"\b{name}\b", text), name
    check = (DOCS / "check-and-tolerance.md").read_text()
    for name in DISTRIBUTIONS:
        assert f"| {name} |" in check, name


def test_every_status_is_documented() -> None:
    from tunesmith.trial import Status

    text = (DOCS / "check-and-tolerance.md").read_text()
    assert not [s for s in Status if f"`{s}`" not in text]


# --- messages ----------------------------------------------------------------------------------------------------------

ANY = None  # in a pattern: whatever an f-string puts there
LEAST = 8  # letters that a message and its source have in common


@cache
def messages() -> tuple[tuple[str | None, ...], ...]:
    """Every text of the source, as literal parts and the places of its values."""
    found = set()
    for file in (ROOT / "src" / "tunesmith").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
                found.add((*parts_of(node.left), ANY))
            found.add(parts_of(node))
    return tuple(found - {()})


def parts_of(node: ast.AST) -> tuple[str | None, ...]:
    if isinstance(node, ast.JoinedStr):
        return tuple(str(v.value) if isinstance(v, ast.Constant) else ANY for v in node.values)
    return (node.value,) if isinstance(node, ast.Constant) and isinstance(node.value, str) else ()


def says(parts: tuple[str | None, ...], text: str, *, more: bool) -> int:
    """How many letters a source's message and a text share where the one is the other (its beginning, with `more`); -1."""
    if not text or not parts:
        return 0 if not text and (more or not any(parts)) else -1
    first, rest = parts[0], parts[1:]
    if first is ANY:
        return max(says(rest, text[i:], more=more) for i in range(1, len(text) + 1))
    if text.startswith(first):
        after = says(rest, text[len(first) :], more=more)
        return after + len(first) if after >= 0 else -1
    return len(text) if more and first.startswith(text) else -1


def documented(path: Path) -> list[str]:
    tables = path.read_text().partition("\n# Errors\n")[2]
    return [m.replace("\\|", "|") for m in re.findall(r"^\| `(.+?)` \|", tables, re.MULTILINE)]


@pytest.mark.parametrize("page", ["write-a-task.md", "write-a-template.md"])
def test_errors_shown_are_those_of_the_source(page: str) -> None:
    listed = documented(DOCS / page)
    assert len(listed) > 25
    unheard = []
    for message in listed:
        more, text = message.endswith("…"), message.rstrip("…").rstrip()
        ends = [m.end() for m in re.finditer(r"(?:…|\w+)[:,]? ", text)]
        beginnings = [text, f"…: {text}", *(text[end:] for end in ends)]  # who speaks may be put in front elsewhere
        best = max(says(parts, b, more=more) for parts in messages() for b in beginnings)
        unheard += [message] if best < LEAST else []
    assert not unheard


def test_a_message_that_no_source_has_is_noticed() -> None:
    assert says(("task ", ANY, ": no workloads"), "task …: no workloads", more=False) == 19
    assert says(("task ", ANY, ": no workloads"), "task …: no", more=True) > 0
    assert says(("task ", ANY, ": no workloads"), "task …: no workload", more=False) == -1
