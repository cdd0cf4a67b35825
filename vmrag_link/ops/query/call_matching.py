"""Decide whether a call may mean a definition: by name, by the names before it, and by imports.

Without types this is a guess. If a rule cannot decide, the answer is yes, because a reader can skip
a wrong caller, but cannot know of a missing one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from vmrag_link.code.calls import CallSite, Imported
from vmrag_link.code.grammars import CLASSES
from vmrag_link.ops.query.code_files import CodeFile, CodeFiles, Definition, module_parts

_COMMON = frozenset(
    (
        "add all any append apply build call clear close copy count decode delete each empty encode exec extend filter find "
        "first flush format get has index insert items join keys last len length lower map new next open pop push put read "
        "remove replace reset reverse run set size sort split start stop strip test then to_s to_string tostring update upper "
        "value values write"
    ).split()
)
"""Names of methods of many types. A call of such a name matches a method only if the file or the
variable names its class.
"""

_SELF = frozenset("self this cls Self @".split())
_WITHOUT_SELF = frozenset("java c c_sharp swift ruby".split())
"""Families in which a method calls another method of its class without `self`."""

_WITH_IMPORTS = frozenset("python javascript rust".split())
"""Families in which a function of another file is imported by name."""

_NOT_CALLED_IN_SQL = frozenset("table view index schema sequence policy trigger type".split())

_MIN_ABBREVIATION_LETTERS = 3
_MAX_NAME_CHARACTERS = 200
_MAX_GENERATIONS = 4
_MAX_CLASSES = 200


class CallMatcher:
    """Compares calls with definitions, among the files of an index."""

    def __init__(self, files: CodeFiles) -> None:
        self._files = files
        self._descendants: dict[str, frozenset[str]] = {}

    def may_call(self, site: CallSite, file: CodeFile, definition: Definition) -> bool:
        """Return whether a call in a file may mean a definition of the same name."""
        if file.family != definition.file.family or (file.family == "sql" and definition.kind in _NOT_CALLED_IN_SQL):
            return False
        if definition.is_local:
            return file is definition.file and not site.receivers
        if not site.receivers:
            return self._may_call_plainly(site, file, definition)
        return self._may_call_on(site, file, definition)

    def _may_call_plainly(self, site: CallSite, file: CodeFile, definition: Definition) -> bool:
        """Decide for a call without receivers: `load()`."""
        if definition.is_member:
            return file.family in _WITHOUT_SELF and (file is definition.file or self._is_near(site, file, definition))
        if file is definition.file or file.family == "go":  # the files of a folder are a package of Go
            return file.path.rpartition("/")[0] == definition.file.path.rpartition("/")[0]
        if file.family == "c":
            return not (
                definition.signature.startswith("static") and definition.file.path.endswith((".c", ".cc", ".cpp"))
            )
        if file.family not in _WITH_IMPORTS or definition.kind == "macro":
            return True
        return self._is_imported(site, file, definition)

    def _is_imported(self, site: CallSite, file: CodeFile, definition: Definition) -> bool:
        alias = re.match(r"[\w$]+", file.code[site.start : site.start + _MAX_NAME_CHARACTERS])
        imported = file.imports.get(alias[0]) if alias else None
        if imported:
            return self._may_import_from(imported, file, definition)
        return any(
            imported.name == "*" and self._may_import_from(imported, file, definition)
            for imported in file.imports.values()
        )

    def _may_call_on(self, site: CallSite, file: CodeFile, definition: Definition) -> bool:
        """Decide for a call with receivers, such as `self` or a variable before the name."""
        root = site.receivers[0]
        receiver = site.receivers[-1]
        if root in _SELF and len(site.receivers) == 1:
            return definition.is_member and self._may_call_on_self(site, file, definition)
        imported = file.imports.get(root)
        if imported and not self._is_internal(imported, file):
            return False
        if not definition.is_member:
            return self._is_module(receiver, file, definition)
        if receiver and receiver in (definition.owner_name, definition.symbol.partition(".")[0]):
            return True
        if receiver[:1].isupper() and not receiver.isupper():  # a class, not a constant
            return receiver in self._classes_with(definition)
        return imported is not None or self._is_near(site, file, definition)

    def _may_call_on_self(self, site: CallSite, file: CodeFile, definition: Definition) -> bool:
        caller_class = file.class_around(file.line_of(site.start))
        if caller_class == definition.owner_name:
            return True
        if caller_class and file.declares_symbol(f"{caller_class}.{site.name}"):
            return False
        return (
            file is definition.file
            or caller_class in self._classes_with(definition)
            or self._is_near(site, file, definition)
        )

    def _classes_with(self, definition: Definition) -> frozenset[str]:
        """Return the name of the class that defines a method, and of classes that inherit it."""
        owner = definition.owner_name
        if owner not in self._descendants:
            classes = {owner}
            generation = {owner}
            for _ in range(_MAX_GENERATIONS):
                generation = {name for parent in generation for name in self._list_subclasses(parent)} - classes
                if not generation or len(classes) > _MAX_CLASSES:
                    break
                classes |= generation
            self._descendants[owner] = frozenset(classes - {""})
        return self._descendants[owner]

    def _list_subclasses(self, parent: str) -> Iterator[str]:
        """Yield the names of the classes that name a parent in the line of their declaration."""
        for file in self._files.with_word(parent) if parent else ():
            for declaration in file.declarations:
                name = declaration.symbol.rpartition(".")[2]
                if declaration.kind not in CLASSES or name == parent:
                    continue
                if re.search(rf"\b{re.escape(parent)}\b", file.text_of(declaration.line)):
                    yield name

    def _is_module(self, receiver: str, file: CodeFile, definition: Definition) -> bool:
        """Return True if a receiver names the module or namespace of a function."""
        if not receiver:
            return False
        parts = {*module_parts(definition.file.path), *definition.owner.split(".")}
        imported = file.imports.get(receiver)
        if imported is None:
            return receiver in parts and (file.family != "python" or bool(file.imports))
        if imported.name and imported.name in parts:
            return True
        return self._may_import_from(imported, file, definition)

    def _is_near(self, site: CallSite, file: CodeFile, definition: Definition) -> bool:
        """Return True if few types have a method of this name, or the file or the receiver names
        the class.
        """
        if site.name.lower() not in _COMMON or file.path == definition.file.path:
            return True
        classes = self._classes_with(definition)
        receiver = _plain_letters(site.receivers[-1]) if site.receivers else ""
        return not file.words.isdisjoint(classes) or any(
            _is_short_for(receiver, _plain_letters(name)) for name in classes
        )

    def _may_import_from(self, imported: Imported, file: CodeFile, definition: Definition) -> bool:
        """Return True if an import of a file may lead to the file of a definition."""
        if not self._is_internal(imported, file):
            return False
        if file.family == "python" and imported.name == "*":
            module = _last_part(imported.module, file.path)
            return not module or module in module_parts(definition.file.path)
        return True  # the file may re-export it

    def _is_internal(self, imported: Imported, file: CodeFile) -> bool:
        """Return True if an import names files of the index, not a library."""
        module = imported.module
        if file.family == "python":
            return module.startswith(".") or module.partition(".")[0] in self._files.python_roots
        if file.family == "javascript":
            return (
                module.startswith((".", "/", "@/", "~", "#", "src/"))
                or _last_part(module, file.path) in self._files.folders
            )
        if file.family == "go":
            return _last_part(module, file.path) in self._files.folders
        if file.family == "rust":
            first = module.partition(".")[0]
            return (
                first in ("crate", "self", "super")
                or first.replace("_", "-") in self._files.folders
                or first in self._files.folders
            )
        return True


def _plain_letters(name: str) -> str:
    return name.replace("_", "").lower()


def _is_short_for(receiver: str, name: str) -> bool:
    """Return True if a variable has the name of a class: `session`, or `ctx` for a context."""
    if len(receiver) < _MIN_ABBREVIATION_LETTERS or not name:
        return False
    letters = iter(name)
    return name in receiver or all(letter in letters for letter in receiver)


def _last_part(module: str, path: str) -> str:
    """Return the last part of an imported module; for `.`, the folder of the importing file."""
    parts = [part for part in module.replace("/", ".").split(".") if part]
    if not parts:
        return path.rpartition("/")[0].rpartition("/")[2]
    if len(parts) > 1 and parts[-1] in ("js", "ts", "index", "mjs"):
        return parts[-2]
    return parts[-1]
