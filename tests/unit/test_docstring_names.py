"""Names in docstrings exist: a renamed parameter, function or module is renamed there too."""

from __future__ import annotations

import ast
import builtins
import functools
import itertools
import keyword
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from vmrag_link.cli.commands import COMMANDS
from vmrag_link.settings.keys import CORE
from vmrag_mcp.registry import load_catalogue

ROOT = Path(__file__).parents[2]
PACKAGES = ("vmrag_link", "action", "hooks", "mcp_server")
WORD = re.compile(r"(?<!`)`([a-z_][a-z0-9_]*)`(?!`)")
DOTTED = re.compile(r"(?<!`)`([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+)(?:\(\))?`(?!`)")
FILES = r"(md|ya?ml|toml|json|py|erb|ts|onnx)$"
"""The ends of names of files, which are not names in code."""

_TERMS = {
    "programs": "cp less mv touch ssh",
    "the system": "clone3 inet_aton isatty no_new_privs sqlite3_db_config uname",
    "git, GitHub and hook managers": "ident glob extends origin upstream master blob tree tag sha256 admin",
    "events": "pull_request_target",
    "libraries": "regex fullmatch rename",
    "formats and their programs": "diff3 zdiff3 ir_measures ranx trec_eval json2 vmec",
    "JSON, columns and files": "dolt_hashof kb updated_at last_modified content_hash source_id related_docs stats codebase_v1",
    "details of errors": "hint reason candidates collection_name",
    "contents of files": "yes null digit mark title openapi swagger mcp_servers dolt_remote",
    "examples of code": "handler stack snake_case max_wait memo styled ctx public store self py",
    "examples of values": "a docs python fr method group norm libraries_search",
    "others": "vmrag kb_at",
}
TERMS = {word for words in _TERMS.values() for word in words.split()}
"""Words in backticks that are not names of the program."""

OUTSIDE = {"core", "http", "branch", "system", "info", "asyncio", "shutil", "concurrent", "msgspec", "metadata"}
"""The first parts of settings of git, fields of files, and names of other libraries."""

EXAMPLES = {"a.b", "pkg.a", "app.session", "app.Session", "Suite.Test", "Mount.match", "Session.refresh"} | {
    "self.store.load",
    "hit.collection",
    "vmrag.open",
}


class Docstring(NamedTuple):
    line: int
    text: str
    names: set[str]
    """The names of the functions and classes around it, or of the module."""


class Module:
    """The names of a module, collected in one pass."""

    def __init__(self, file: str, tree: ast.Module) -> None:
        self.file = file
        self.names: set[str] = set()
        """Each name in the code, and each word in its texts other than docstrings."""
        self.declared: set[str] = set()
        """The functions, classes, attributes, constants and imports."""
        self.values: set[str] = set()
        """The values of closed sets, and names of tables and branches."""
        self.classes: dict[str, set[str]] = {}
        self.docstrings: list[Docstring] = []
        self._visit(tree, self.names, self.names)

    def _visit(self, node: ast.AST, names: set[str], around: set[str]) -> None:
        """Add the names of a node to `names`. `around` has those of the outermost scope."""
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                self.declared.add(name)
                inner = {name}
                self._visit_children(node, inner, inner if around is self.names else around)
                names |= inner
                if isinstance(node, ast.ClassDef):
                    self.classes[name] = inner
                return
            case ast.Expr(value=ast.Constant(value=str())):
                return
        self._collect(node, names)
        self._visit_children(node, names, around)

    def _collect(self, node: ast.AST, names: set[str]) -> None:
        match node:
            case ast.Name(id=name) | ast.arg(arg=name) | ast.keyword(arg=str() as name):
                names.add(name)
            case ast.Attribute(attr=name):
                names.add(name)
                if isinstance(node.ctx, ast.Store):
                    self.declared.add(name)
            case ast.alias(name=name, asname=other):
                imported = {*name.split("."), other or name}
                names |= imported
                self.declared |= imported
            case ast.ImportFrom(module=str() as name):
                names |= {*name.split(".")}
            case ast.Constant(value=str() as text):
                names |= {*re.findall(r"\w+", text)}
                if re.fullmatch(r"(vmrag|git)_\w+", text):
                    self.values.add(text)
            case ast.Constant(value=bytes() as data):
                names |= {*re.findall(r"\w+", data.decode("latin-1"))}
            case ast.Subscript(value=ast.Name(id="Literal")):
                self.values |= {str(part.value) for part in ast.walk(node.slice) if isinstance(part, ast.Constant)}

    def _visit_children(self, node: ast.AST, names: set[str], around: set[str]) -> None:
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else ():
            match statement:
                case ast.Expr(value=ast.Constant(value=str() as text)):
                    self.docstrings.append(Docstring(statement.lineno, text, around))
                case ast.Assign(targets=targets):
                    self._declare(node, targets)
                case ast.AnnAssign(target=target):
                    self._declare(node, [target])
        for child in ast.iter_child_nodes(node):
            self._visit(child, names, around)

    def _declare(self, node: ast.AST, targets: Sequence[ast.expr]) -> None:
        if isinstance(node, ast.Module | ast.ClassDef):
            self.declared |= {part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)}

    @property
    def path(self) -> list[str]:
        """The names of the packages, and of the module."""
        return re.sub(r"(/__init__)?\.py$", "", self.file).split("/")


@functools.cache
def read_program() -> tuple[Module, ...]:
    paths = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
    return tuple(Module(path.relative_to(ROOT).as_posix(), ast.parse(path.read_text())) for path in paths)


@functools.cache
def list_common_words() -> set[str]:
    """Return the names of modules, commands, tools and settings, and the values of closed sets."""
    words = {part for key in CORE.keys for part in key.split(".")} | TERMS | set(COMMANDS) | set(load_catalogue())
    for module in read_program():
        words |= {*module.path} | module.values
    return words


def is_known(word: str, docstring: Docstring, module: Module) -> bool:
    is_named = word in list_common_words() or word in module.declared or word in docstring.names
    return is_named or keyword.iskeyword(word) or hasattr(builtins, word)


@functools.cache
def list_members() -> dict[str, set[str]]:
    """Return what each module, package and class contains, by its own name."""
    members: dict[str, set[str]] = {}
    for module in read_program():
        members.setdefault(module.path[-1], set()).update(module.declared)
        for package, inner in itertools.pairwise(module.path):
            members.setdefault(package, set()).add(inner)
        for name, names in module.classes.items():
            members.setdefault(name, set()).update(names | module.declared)
    return members


def resolves(name: str, module: Module) -> bool:
    *_, owner, last = name.split(".")
    return last in list_members().get(owner, ()) or name in CORE.keys or {owner, last} <= module.names


def is_outside(name: str) -> bool:
    return name.split(".", maxsplit=1)[0] in OUTSIDE or name in EXAMPLES or re.search(FILES, name) is not None


def list_unknown(
    package: str, pattern: re.Pattern[str], accepts: Callable[[str, Docstring, Module], bool]
) -> list[str]:
    return [
        f"{module.file}:{docstring.line}: `{name}`"
        for module in read_program()
        if module.file.startswith(package)
        for docstring in module.docstrings
        for name in pattern.findall(docstring.text)
        if not accepts(name, docstring, module)
    ]


@pytest.mark.parametrize("package", PACKAGES)
def test_docstrings_name_existing_parameters(package: str) -> None:
    unknown = list_unknown(package, WORD, is_known)
    assert not unknown, "rename it, or name its module (`module.name`):\n" + "\n".join(unknown)


@pytest.mark.parametrize("package", PACKAGES)
def test_docstrings_name_existing_members_of_modules(package: str) -> None:
    unknown = list_unknown(package, DOTTED, lambda name, _, module: is_outside(name) or resolves(name, module))
    assert not unknown, "\n".join(unknown)


def test_stale_parameter_is_found_although_another_function_has_its_name() -> None:
    text = (
        'def find(limit):\n    """Find at most `most`."""\n\ndef other(most):\n    """Use `most`."""\n    use(most)\n'
    )
    module = Module("module.py", ast.parse(text))
    assert [is_known("most", docstring, module) for docstring in module.docstrings] == [False, True]
    assert not resolves("readonly.run_dirty", module)
    assert resolves("readonly.run_readonly", module)
