"""The files of code in an index, and the definitions in them."""

from __future__ import annotations

import bisect
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

from vmrag_link.code.calls import Imported, blank_comments, find_family, find_imports
from vmrag_link.code.grammars import CLASSES
from vmrag_link.code.languages import VALUE_KINDS, detect_language
from vmrag_link.index import keywords
from vmrag_link.index.reader import IndexReader
from vmrag_link.models import parse_pieces
from vmrag_link.retrieval.narrowed import NarrowedDocument, NarrowingFilter, SymbolFilter
from vmrag_link.retrieval.narrowing import Narrowing

Declared = tuple[str, str, int, int]
"""Symbol, kind, first line and last line of a declaration."""

_NAMED_OWNERS = frozenset(("javascript", "c", "ruby"))
"""Families in which the owner of a method may be declared in another file, or not at all."""


class Definition(NamedTuple):
    """A definition.

    `owner`: the class, module or function around it, and its kind; empty at the top, or if the file
    does not declare it. `signature`: the first line, in C.
    """

    collection: str
    path: str
    symbol: str
    kind: str
    line: int
    last_line: int
    signature: str
    owner: str
    owner_kind: str

    @property
    def name(self) -> str:
        return self.symbol.rpartition(".")[2]

    @property
    def owner_name(self) -> str:
        return self.owner.rpartition(".")[2]

    @property
    def family(self) -> str:
        return find_family(detect_language(self.path))

    @property
    def is_member(self) -> bool:
        """True if it is a member of an object or a class."""
        if self.kind in ("method", "property") or self.owner_kind in CLASSES:
            return True
        return bool(self.owner) and not self.owner_kind and self.family in _NAMED_OWNERS

    @property
    def is_local(self) -> bool:
        """True if it is within a function."""
        return self.owner_kind in ("function", "method")


class CodeFile:
    """A file of code, with its declarations and imports."""

    def __init__(self, collection: str, document: NarrowedDocument, index: IndexReader) -> None:
        self.collection, self.path = collection, document.doc_id
        self.language = detect_language(self.path)
        self.family = find_family(self.language)
        self.document = document
        self._index = index

    @cached_property
    def text(self) -> str:
        first = self.document.first
        return "".join(self._index.read_text(row) for row in range(first, first + self.document.chunks))

    @cached_property
    def code(self) -> str:
        """The text without comments and strings."""
        return blank_comments(self.text, self.language)

    @cached_property
    def imports(self) -> dict[str, Imported]:
        return find_imports(self.text, self.language)

    @cached_property
    def words(self) -> frozenset[str]:
        return frozenset(re.findall(r"[^\W\d]\w*", self.code))

    @cached_property
    def declared(self) -> list[Declared]:
        return [row for piece in parse_pieces(self.document) for row in piece.declared]

    @cached_property
    def line_starts(self) -> list[int]:
        return [0, *(match.end() for match in re.finditer("\n", self.text))]

    def line_of(self, offset: int) -> int:
        return bisect.bisect_right(self.line_starts, offset)

    def text_of(self, line: int) -> str:
        start = self.line_starts[line - 1]
        return (
            self.text[start:].partition("\n")[0]
            if line == len(self.line_starts)
            else self.text[start : self.line_starts[line] - 1]
        )

    def define_row(self, row: Declared) -> Definition:
        symbol, kind, line, last_line = row
        owner = symbol.rpartition(".")[0]
        owner_kind = next((kind for name, kind, *_ in self.declared if name == owner), "") if owner else ""
        signature = self.text_of(line).strip() if self.family == "c" else ""
        return Definition(
            collection=self.collection,
            path=self.path,
            symbol=symbol,
            kind=kind,
            line=line,
            last_line=last_line,
            signature=signature,
            owner=owner,
            owner_kind=owner_kind,
        )

    def innermost_around(self, line: int) -> Declared:
        """Return the innermost definition around a line, except values; else empty texts."""
        inner: Declared = ("", "", 0, 0)
        for row in self.declared:
            is_value = row[1] in VALUE_KINDS or row[1] == "macro"
            if row[2] <= line <= row[3] and not is_value and (not inner[0] or row[2] >= inner[2]):
                inner = row
        return inner

    def class_around(self, line: int) -> str:
        """Return the name of the class around a line, without its parents."""
        classes = [row for row in self.declared if row[1] in CLASSES and row[2] <= line <= row[3]]
        symbol = (
            max(classes, key=lambda row: row[2])[0] if classes else self.innermost_around(line)[0].rpartition(".")[0]
        )
        return symbol.rpartition(".")[2]

    def declares_at(self, name: str, offset: int) -> bool:
        """Return whether a name that looks like a call belongs to a definition.

        The line of a definition may begin above its name, for example with the type in C.
        """
        line, named = self.line_of(offset), re.compile(rf"(?<![\w$]){re.escape(name)}(?![\w$])")
        for symbol, _, first, last in self.declared:
            if symbol.rpartition(".")[2] != name or not first <= line <= last:
                continue
            start = named.search(self.code, self.line_starts[first - 1])
            if line == first or (start and start.start() == offset):
                return True
        return False

    def declares_symbol(self, symbol: str) -> bool:
        return any(name == symbol or name.endswith(f".{symbol}") for name, *_ in self.declared)


class CodeFiles:
    """The files of some collections of an index that is open."""

    def __init__(self, index: IndexReader, collections: Sequence[str]) -> None:
        self._index, self._collections = index, collections
        every = NarrowingFilter(Narrowing())
        self._files = [
            CodeFile(name, document, index) for name in collections for document in every.list_documents(index, name)
        ]
        self._files.sort(key=lambda file: file.document.first)
        self._firsts = [file.document.first for file in self._files]

    def with_word(self, word: str, *, names: bool = False) -> Iterator[CodeFile]:
        """Return the files that contain a word. `names`: only files that declare it."""
        numbers = {
            bisect.bisect_right(self._firsts, row) - 1
            for terms in keywords.list_terms([word.lower()])
            for row in self._index.find_rows_with_word(terms, self._collections, names=names)
        }
        return (self._files[number] for number in sorted(numbers))

    def files_at(self, places: Collection[tuple[str, str]]) -> list[CodeFile]:
        """Return the files with these collections and paths."""
        return [file for file in self._files if (file.collection, file.path) in places]

    def definitions_of(self, name: str) -> list[Definition]:
        """Return the definitions of a dotted name, in which `*` matches any letters."""
        symbol = SymbolFilter(name, within=False)
        return [
            file.define_row(row)
            for file in self._files
            if symbol.may_be_in_metadata(file.document.metadata)
            for row in file.declared
            if symbol.accepts_symbol(row[0])
        ]

    def declared_names(self) -> Iterator[str]:
        return (row[0] for file in self._files for row in file.declared)

    @cached_property
    def folders(self) -> frozenset[str]:
        """The names of all folders with code, and of all files without endings."""
        return frozenset(part for file in self._files for part in module_parts(file.path))

    @cached_property
    def python_roots(self) -> frozenset[str]:
        """The first parts of modules that are imported from these files."""
        files = [file.path for file in self._files if file.family == "python"]
        packages = {path.rpartition("/")[0] for path in files if path.rpartition("/")[2].startswith("__init__.")}
        roots = set[str]()
        for path in files:
            folder = path.rpartition("/")[0]
            if folder not in packages:
                roots |= {module_parts(path)[-1], folder.rpartition("/")[2]}
            while folder in packages and folder.rpartition("/")[0] in packages - {""}:
                folder = folder.rpartition("/")[0]
            roots |= {folder.rpartition("/")[2], *folder.split("/")[:1]}
        return frozenset(roots - {""})


def module_parts(path: str) -> list[str]:
    """Return the parts of the module name of a file: `pkg.a` for `pkg/a/__init__.py`."""
    folders, _, name = path.rpartition("/")
    stem = name.partition(".")[0]
    parts = folders.split("/") if folders else []
    return parts if parts and stem in ("__init__", "index", "mod", "lib", "main") else [*parts, stem]


def definitions_among(files: Iterable[CodeFile], name: str) -> list[Definition]:
    """Return the definitions in these files whose names end with this part."""
    return [file.define_row(row) for file in files for row in file.declared if row[0].rpartition(".")[2] == name]
