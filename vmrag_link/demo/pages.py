"""Markdown pages of the standard library, one per module, which only depend on the version of
Python.

The documentation of a module comes from its source, without running it. That of a C module comes
from its objects.
"""

from __future__ import annotations

import ast
import inspect
import re
import warnings
from collections.abc import Iterable, Iterator
from importlib.util import resolve_name
from types import ModuleType

from vmrag_link.demo import library
from vmrag_link.models import Record
from vmrag_link.progress import QUIET, Progress

LONGEST = 20_000
"""Approximate number of characters of a page. Further entries have only their names."""


class ModulePage(Record, frozen=True):
    """The page of a module.

    `text` is Markdown with a title, and `name` is that of the module.
    """

    name: str
    text: str

    @property
    def file(self) -> str:
        return f"{self.name}.md"


def write_pages(modules: Iterable[library.Module], progress: Progress = QUIET) -> list[ModulePage]:
    """Return the pages in the order of the modules. Modules without documentation have none."""
    modules = list(modules)
    result = []
    with progress.task("reading the library", len(modules)) as task:
        for module in modules:
            documented = read_documentation(module)
            if documented.doc or documented.entries:
                result.append(write_page(module.name, documented))
            task.advance()
    return result


def write_page(name: str, documented: Documentation) -> ModulePage:
    parts = [f"# {name}", documented.doc]
    size = len(documented.doc)
    for number, entry in enumerate(documented.entries):
        if size > LONGEST:
            names = ", ".join(f"`{hidden.name}`" for hidden in documented.entries[number:])
            parts.append(f"## More in this module\n\n{names}")
            break
        parts.append(_format_section(name, entry))
        size += len(parts[-1])
    return ModulePage(name, "\n\n".join(part for part in parts if part) + "\n")


def _format_section(module: str, entry: DocEntry) -> str:
    mark = "###" if "." in entry.name else "##"
    kind = "class " if entry.signature.startswith("class ") else ""
    return f"{mark} {kind}`{module}.{entry.signature.removeprefix('class ')}`\n\n{entry.doc}".rstrip()


Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


class DocEntry(Record, frozen=True):
    """A public, documented class, function or method.

    `name` is relative to the module: `JSONDecoder.decode`.
    """

    name: str
    signature: str
    doc: str


class Documentation(Record, frozen=True):
    doc: str
    entries: tuple[DocEntry, ...]


def read_documentation(module: library.Module) -> Documentation:
    """Return public, documented names in the order of the source, or, for a C module, of the
    alphabet.
    """
    if module.source is None:
        return _of_objects(library.import_module(module.name))
    return _of_source(module, module.source)


# -- from source -----------------------------------------------------------------------------------


def _of_source(module: library.Module, source: str) -> Documentation:
    tree = _parse_source(source)
    exported = _exported_names(tree)
    entries: dict[str, DocEntry] = {}
    for node in _list_definitions(tree.body, module, exported):
        if node.name not in entries and (exported is None or node.name in exported) and not node.name.startswith("_"):
            entries |= {entry.name: entry for entry in _list_entries(node)}
    return Documentation(_read_doc(tree), tuple(entries.values()))


def _parse_source(source: str) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the library's own source
        return ast.parse(source)


def _exported_names(tree: ast.Module) -> frozenset[str] | None:
    """Return the names in `__all__`; None if it is missing or computed."""
    statements = [node for node in tree.body if not isinstance(node, Definition)]
    names_used = (node for statement in statements for node in ast.walk(statement) if isinstance(node, ast.Name))
    mentions = sum(node.id == "__all__" for node in names_used)
    names: list[str] = []
    for node in tree.body:
        match node:
            case (
                ast.Assign(targets=[ast.Name(id="__all__")], value=ast.List(elts=items) | ast.Tuple(elts=items))
                | ast.AugAssign(target=ast.Name(id="__all__"), value=ast.List(elts=items) | ast.Tuple(elts=items))
            ):
                names += [
                    item.value for item in items if isinstance(item, ast.Constant) and isinstance(item.value, str)
                ]
                mentions -= 1
    return frozenset(names) if names and mentions == 0 else None


def _list_definitions(
    body: list[ast.stmt], module: library.Module, exported: frozenset[str] | None
) -> Iterator[Definition]:
    """Yield definitions at the top, and those that a private module exports for it
    (`from _pydecimal import *`).
    """
    for node in _list_outermost(body):
        if isinstance(node, ast.ImportFrom):
            yield from _imported_definitions(node, module, exported or frozenset())
        else:
            yield node


def _list_outermost(body: list[ast.stmt]) -> Iterator[Definition | ast.ImportFrom]:
    """Yield definitions at the top, in all branches of the module."""
    for node in body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef() | ast.ImportFrom():
                yield node
            case ast.If():
                yield from _list_outermost(node.body + node.orelse)
            case ast.Try():
                alternatives = [statement for handler in node.handlers for statement in handler.body]
                yield from _list_outermost(node.body + node.orelse + alternatives)


def _imported_definitions(
    node: ast.ImportFrom, module: library.Module, exported: frozenset[str]
) -> Iterator[Definition]:
    """Yield the imported module's own definitions.

    Definitions that it imports would lead in circles (`_pyio` imports from `_io`).
    """
    names = {alias.name for alias in node.names}
    if "*" not in names and names.isdisjoint(exported):
        return  # for the module's own use
    package = module.name if module.package else module.name.rpartition(".")[0]
    module_source = _private_source(resolve_name("." * node.level + (node.module or ""), package or None))
    if module_source is None or module_source.source is None:
        return
    for definition in _list_outermost(_parse_source(module_source.source).body):
        if not isinstance(definition, ast.ImportFrom) and ("*" in names or definition.name in names & exported):
            yield definition


def _private_source(name: str) -> library.Module | None:
    """Return a private module, or its counterpart in Python if it is written in C (`_io` and
    `_pyio`).
    """
    package, _, last = name.rpartition(".")
    if not last.startswith("_"):
        return None
    source = library.find_module(name)
    return (
        source if source and source.source else library.find_module(f"{package}{'.' if package else ''}_py{last[1:]}")
    )


def _list_entries(node: Definition) -> Iterator[DocEntry]:
    if not isinstance(node, ast.ClassDef):
        if doc := _read_doc(node):
            yield DocEntry(node.name, node.name + _format_signature(node), doc)
        return
    methods = [statement for statement in node.body if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef)]
    documented = [method for method in methods if not method.name.startswith("_") and _read_doc(method)]
    if not documented and not _read_doc(node):
        return
    constructor = next((method for method in methods if method.name == "__init__"), None)
    yield DocEntry(
        node.name,
        f"class {node.name}{_format_signature(constructor, bound=True) if constructor else ''}",
        _read_doc(node),
    )
    for statement in documented:
        decorators = {ast.unparse(decorator) for decorator in statement.decorator_list}
        attribute = not decorators.isdisjoint(("property", "functools.cached_property", "types.DynamicClassAttribute"))
        name = f"{node.name}.{statement.name}"
        yield DocEntry(
            name,
            name + ("" if attribute else _format_signature(statement, bound="staticmethod" not in decorators)),
            _read_doc(statement),
        )


def _format_signature(node: ast.FunctionDef | ast.AsyncFunctionDef, *, bound: bool = False) -> str:
    """Return the signature: `(obj, *, indent=None) -> str`.

    With `bound`, it has no `self`.
    """
    arguments = node.args
    if bound and (arguments.posonlyargs or arguments.args):
        (arguments.posonlyargs or arguments.args).pop(0)
        del arguments.defaults[: max(0, len(arguments.defaults) - len(arguments.posonlyargs) - len(arguments.args))]
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return f"({ast.unparse(arguments)}){returns}"


def _read_doc(node: ast.Module | Definition) -> str:
    return (ast.get_docstring(node) or "").strip()


# -- from objects ----------------------------------------------------------------------------------


def _of_objects(module: ModuleType) -> Documentation:
    entries: list[DocEntry] = []
    for name, value in sorted(vars(module).items()):
        if name.startswith("_") or not (inspect.isclass(value) or inspect.isroutine(value)):
            continue
        kind = "class " if inspect.isclass(value) else ""
        members = _list_members(name, value) if inspect.isclass(value) else []
        if (doc := _doc_of(value)) or members:
            entries += [DocEntry(name, f"{kind}{name}{_read_c_signature(value)}", doc), *members]
    return Documentation(_doc_of(module), tuple(entries))


def _list_members(owner: str, value: type) -> list[DocEntry]:
    members = []
    for name, member in sorted(vars(value).items()):
        doc = _doc_of(member)
        if doc and not name.startswith("_") and (inspect.isroutine(member) or inspect.isdatadescriptor(member)):
            full = f"{owner}.{name}"
            members.append(DocEntry(full, full + (_read_c_signature(member) if inspect.isroutine(member) else ""), doc))
    return members


def _read_c_signature(value: object) -> str:
    """Return the signature that C code states, without `self` or the module. Nothing is
    evaluated.
    """
    stated = getattr(value, "__text_signature__", None)
    return " ".join(_BOUND.sub("(", stated).split()) if isinstance(stated, str) else "(…)"


_BOUND = re.compile(r"\A\(\$\w+(?:, /(?=[,)]))?(?:, )?")


def _doc_of(value: object) -> str:
    doc = getattr(value, "__doc__", None)
    return inspect.cleandoc(doc).strip() if isinstance(doc, str) else ""
