"""Size and names of the program: `python tests/size.py`.

It prints the lines of code and the number of files, without a limit. Lines of code are lines with a
token that are not docstrings. It counts vague names, and no count may rise (`tests/budgets.py`).
`--walks` prints through how many files a command goes.
"""

from __future__ import annotations

import ast
import io
import os
import re
import subprocess
import sys
import tempfile
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.budgets import ROOT, Place, check_budgets, list_tracked_files, wants_write

PROGRAM = ("vmrag_link", "mcp_server", "hooks", "action")
VAGUE = {"each", "found", "there", "done", "known", "wanted", "left", "here", "own", "asked", "told", "living"}
"""Names that tell how a value came to be or is used, instead of what it is."""
PUBLIC = (
    "vmrag_link/api/",
    "vmrag_link/langchain.py",
    "vmrag_link/llama_index.py",
    "vmrag_link/toolset.py",
    "vmrag_link/errors.py",
    "vmrag_link/pytest_plugin/",
)
"""Modules whose names other programs use."""
TOOLSETS = ROOT / "vmrag_link" / "toolsets"
VMRAG = Path(sys.executable).with_name("vmrag")

_EMPTY = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}

# In each process: the files whose functions are called, not those that are only imported.
_TRACE = f"""
import atexit, os, sys, threading
if folder := os.environ.get("VMRAG_WALK"):
    seen = set()
    def called(frame, event, _):
        if event == "call" and frame.f_code.co_flags & 1:
            seen.add(frame.f_code.co_filename)
    def write():
        ours = tuple(os.path.join({str(ROOT)!r}, each, "") for each in {PROGRAM!r})
        with open(os.path.join(folder, str(os.getpid())), "w") as file:
            file.writelines(f"{{each}}\\n" for each in seen if each.startswith(ours))
    leave = os._exit
    def left(code):
        write()
        leave(code)
    os._exit = left
    atexit.register(write)
    threading.setprofile(called)
    sys.setprofile(called)
"""


def code_lines(source: bytes) -> int:
    text = {
        line
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    tokens = (token for token in tokenize.tokenize(io.BytesIO(source).readline) if token.type not in _EMPTY)
    return len({line for token in tokens for line in range(token.start[0], token.end[0] + 1)} - text)


def counted() -> str:
    lines, files = Counter[str](), Counter[str]()
    for path in (path for package in PROGRAM for path in (ROOT / package).rglob("*.py")):
        part = "toolsets" if TOOLSETS in path.parents else "core"
        lines[part] += code_lines(path.read_bytes())
        files[part] += 1
    parts = ", ".join(f"{part} {lines[part]} in {files[part]}" for part in ("core", "toolsets"))
    return f"{lines.total()} lines of code in {files.total()} files ({parts})"


def walks(folder: Path) -> Iterator[tuple[str, int]]:
    """Command → through how many files it goes, in a small repository with documents and hooks."""
    (folder / "trace").mkdir()
    (folder / "trace" / "sitecustomize.py").write_text(_TRACE)
    named = {f"GIT_{who}_{what}": "a@b.c" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    environ = (
        os.environ | named | {"HOME": str(folder), "PYTHONPATH": str(folder / "trace"), "VMRAG_INDEX_CHROMA": "off"}
    )
    top = folder / "project"
    (top / "docs").mkdir(parents=True)
    for number in range(3):
        (top / "docs" / f"page{number}.md").write_text(f"# Page {number}\n\nA kettle in the garden.\n")

    def run(*arguments: str, into: Path | None = None) -> None:
        command = [VMRAG, *arguments[1:]] if arguments[0] == "vmrag" else [*arguments]
        traced = environ | ({"VMRAG_WALK": str(into)} if into else {})
        subprocess.run(command, cwd=top, env=traced, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)

    def walk(name: str, *arguments: str) -> tuple[str, int]:
        into = folder / name
        into.mkdir()
        run(*arguments, into=into)
        return name, len({line for path in into.iterdir() for line in path.read_text().splitlines()})

    run("git", "init", "-q", "-b", "main")
    run("vmrag", "init", "--knowledge-base", "--no-sources", "-q")
    run("vmrag", "import", "-q", "docs", "--collection", "handbook", "--copy")
    run("vmrag", "commit", "-q", "-m", "one")
    run("git", "add", "-A")
    run("git", "commit", "-q", "-m", "one")
    run("git", "switch", "-q", "-c", "topic")
    (top / "docs" / "page0.md").write_text("# Another page\n")
    yield walk("import", "vmrag", "import", "-q", "docs", "--collection", "handbook", "--copy")
    yield walk("commit", "vmrag", "commit", "-q", "-m", "two")
    run("git", "commit", "-q", "-a", "-m", "two")
    # Hooks start Python with -P -E, so that nothing of the checkout counts: here something must.
    interpreter = top / ".git" / "vmrag" / "interpreter"
    wrapper = folder / "python"
    wrapper.write_text(f'#!/bin/sh\nshift 2\nexec "{interpreter.read_text().strip()}" "$@"\n')
    wrapper.chmod(0o755)
    interpreter.write_text(f"{wrapper}\n")
    yield walk("checkout", "git", "switch", "-q", "main")
    yield walk("query", "vmrag", "query", "kettle")
    yield walk("verify", "vmrag", "verify", "topic")


def list_names() -> Iterator[Place]:
    """Yield each vague name, each function of one word, and each command in a module of another
    name.
    """
    trees = {file: ast.parse((ROOT / file).read_bytes()) for file in list_tracked_files() if file.endswith(".py")}
    program = {file: tree for file, tree in trees.items() if file.startswith(PROGRAM)}
    protocol = {name for tree in program.values() for name in list_protocol_methods(tree)}
    for file, tree in trees.items():
        folder = file.split("/")[0]
        for line, name in list_bindings(tree):
            if name in VAGUE:
                yield Place(folder, "vague names", file, line, name)
        if file in program and not file.startswith(PUBLIC):
            for line, name in list_functions(tree, exempt=protocol):
                if "_" not in name.strip("_"):
                    yield Place(folder, "one-word functions", file, line, name)


def list_bindings(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield (line, name) of each assignment, parameter, loop variable and pattern."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                yield node.lineno, name
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                yield node.lineno, name


def list_functions(tree: ast.AST, *, exempt: set[str]) -> Iterator[tuple[int, str]]:
    """Yield (line, name) of each function, except special methods, methods with a name in `exempt`,
    properties (they are values) and click commands.
    """
    methods = {id(method) for node in ast.walk(tree) if isinstance(node, ast.ClassDef) for method in node.body}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("__"):
            decorators = " ".join(ast.unparse(decorator) for decorator in node.decorator_list)
            is_exempt = id(node) in methods and node.name in exempt
            if not is_exempt and not re.search(r"property|command|\.setter|override|\btool\b", decorators):
                yield node.lineno, node.name


def list_protocol_methods(tree: ast.AST) -> Iterator[str]:
    """Yield the methods that a protocol or an abstract class declares."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and {"Protocol", "ABC"} & {
            ast.unparse(base).split("[")[0].rpartition(".")[2] for base in node.bases
        }:
            yield from (
                method.name for method in node.body if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef)
            )


def main() -> int:
    print(counted())
    if "--walks" in sys.argv[1:]:
        with tempfile.TemporaryDirectory() as scratch:
            print("files whose functions run:", ", ".join(f"{name} {count}" for name, count in walks(Path(scratch))))
    return 0 if check_budgets("names", list_names(), write=wants_write()) else 1


if __name__ == "__main__":
    sys.exit(main())
