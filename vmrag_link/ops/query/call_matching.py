"""Compare a call with a definition: by name, by the names before it, and by imports."""

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
"""Names of methods of many types. A call of such a name matches only if the file names the class.
"""

_SELF = frozenset("self this cls Self @".split())
_WITHOUT_SELF = frozenset("java c c_sharp swift ruby".split())
"""Families in which a method calls another method of its class without `self`."""

_WITH_IMPORTS = frozenset("python javascript rust".split())
"""Families in which a function of another file is imported by name."""

_NOT_CALLED = frozenset("table view index schema sequence policy trigger type".split())

_SHORTEST, _LONGEST_NAME = 3, 200
_MOST_GENERATIONS, _MOST_CLASSES = 4, 200


class CallMatcher:
    """Compares calls with definitions, among the files of an index."""

    def __init__(self, files: CodeFiles) -> None:
        self._files = files
        self._heirs: dict[str, frozenset[str]] = {}

    def may_call(self, site: CallSite, file: CodeFile, definition: Definition) -> bool:
        if file.family != definition.family or (file.family == "sql" and definition.kind in _NOT_CALLED):
            return False
        same_file = (file.collection, file.path) == (definition.collection, definition.path)
        if definition.is_local:
            return same_file and not site.receivers
        if not site.receivers:
            return self._may_call_plainly(site, file, definition, same_file=same_file)
        return self._may_call_on(site, file, definition, same_file=same_file)

    # -- load()

    def _may_call_plainly(self, site: CallSite, file: CodeFile, definition: Definition, *, same_file: bool) -> bool:
        if definition.is_member:
            return file.family in _WITHOUT_SELF and (same_file or self._is_near(site, file, definition))
        if same_file or file.family == "go":
            return file.path.rpartition("/")[0] == definition.path.rpartition("/")[0]
        if file.family == "c":
            return not (definition.signature.startswith("static") and definition.path.endswith((".c", ".cc", ".cpp")))
        if file.family not in _WITH_IMPORTS or definition.kind == "macro":
            return True
        return self._is_imported(site, file, definition)

    def _is_imported(self, site: CallSite, file: CodeFile, definition: Definition) -> bool:
        written = re.match(r"[\w$]+", file.code[site.start : site.start + _LONGEST_NAME])
        imported = file.imports.get(written[0]) if written else None
        if imported:
            return self._leads_to(imported, file, definition)
        stars = (imported for imported in file.imports.values() if imported.name == "*")
        return any(self._leads_to(imported, file, definition) for imported in stars)

    # -- store.load()

    def _may_call_on(self, site: CallSite, file: CodeFile, definition: Definition, *, same_file: bool) -> bool:
        root, receiver = site.receivers[0], site.receivers[-1]
        if root in _SELF and len(site.receivers) == 1:
            return definition.is_member and self._may_call_on_self(site, file, definition, same_file=same_file)
        imported = file.imports.get(root)
        if imported and not self.is_internal(imported, file):
            return False
        if not definition.is_member:
            return self._is_module(receiver, file, definition)
        if receiver and receiver in (definition.owner_name, definition.symbol.partition(".")[0]):
            return True
        if receiver[:1].isupper() and not receiver.isupper():
            return receiver in self._classes_with(definition)
        return imported is not None or self._is_near(site, file, definition)

    def _may_call_on_self(self, site: CallSite, file: CodeFile, definition: Definition, *, same_file: bool) -> bool:
        caller_class = file.class_around(file.line_of(site.start))
        if caller_class == definition.owner_name:
            return True
        if caller_class and file.declares_symbol(f"{caller_class}.{site.name}"):
            return False
        return same_file or caller_class in self._classes_with(definition) or self._is_near(site, file, definition)

    def _classes_with(self, definition: Definition) -> frozenset[str]:
        """Return the class of a definition, and the classes that name it in their first lines."""
        owner = definition.owner_name
        if owner not in self._heirs:
            classes, last = {owner}, {owner}
            for _ in range(_MOST_GENERATIONS):
                last = {name for parent in last for name in self._heirs_of(parent)} - classes
                if not last or len(classes) > _MOST_CLASSES:
                    break
                classes |= last
            self._heirs[owner] = frozenset(classes - {""})
        return self._heirs[owner]

    def _heirs_of(self, parent: str) -> Iterator[str]:
        for file in self._files.with_word(parent) if parent else ():
            for symbol, kind, line, _ in file.declared:
                name = symbol.rpartition(".")[2]
                if kind in CLASSES and name != parent and re.search(rf"\b{re.escape(parent)}\b", file.text_of(line)):
                    yield name

    def _is_module(self, receiver: str, file: CodeFile, definition: Definition) -> bool:
        """Return True if the call names the module or namespace of a function."""
        if not receiver:
            return False
        parts = {*module_parts(definition.path), *definition.owner.split(".")}
        imported = file.imports.get(receiver)
        if imported is None:
            return receiver in parts and (file.family != "python" or bool(file.imports))
        if imported.name and imported.name in parts:
            return True
        return self._leads_to(imported, file, definition)

    def _is_near(self, site: CallSite, file: CodeFile, definition: Definition) -> bool:
        """Return True if the call may mean a method: few types have the name, or the file names the
        class.
        """
        if site.name.lower() not in _COMMON or file.path == definition.path:
            return True
        classes = self._classes_with(definition)
        receiver = _plain_letters(site.receivers[-1]) if site.receivers else ""
        return not file.words.isdisjoint(classes) or any(
            _is_short_for(receiver, _plain_letters(name)) for name in classes
        )

    # -- imports

    def _leads_to(self, imported: Imported, file: CodeFile, definition: Definition) -> bool:
        """Return True if an import may lead to the file of a definition."""
        if not self.is_internal(imported, file):
            return False
        last = _last_part(imported.module, file.path)
        parts = module_parts(definition.path)
        return not last or last in parts or file.family != "python" or imported.name != "*"

    def is_internal(self, imported: Imported, file: CodeFile) -> bool:
        """Return True if the text of an import names these files."""
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
    if len(receiver) < _SHORTEST or not name:
        return False
    letters = iter(name)
    return name in receiver or all(letter in letters for letter in receiver)


def _last_part(module: str, path: str) -> str:
    """Return the last part of an import; for `.`, the folder of the file."""
    parts = [part for part in module.replace("/", ".").split(".") if part]
    if parts:
        return parts[-1] if parts[-1] not in ("js", "ts", "index", "mjs") or len(parts) == 1 else parts[-2]
    return path.rpartition("/")[0].rpartition("/")[2]
