"""The files of code in an index, and the definitions in them.

`relations` and `call_matching` use them. The text of a file is read from the index, and its
declarations were stored when it was indexed. Everything else is computed when it is first used.
A *family* is a group of languages that can call each other (`code.calls.FAMILY_OF`).
"""

from __future__ import annotations

import bisect
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from posixpath import basename, dirname
from typing import NamedTuple

from vmrag_link.code.calls import CallSite, Imported, blank_comments, find_calls, find_family, find_imports
from vmrag_link.code.grammars import CLASSES
from vmrag_link.code.languages import VALUE_KINDS, SymbolDeclaration, detect_language
from vmrag_link.index import keywords
from vmrag_link.index.reader import IndexReader
from vmrag_link.models import parse_pieces
from vmrag_link.retrieval.narrowing import Narrowing
from vmrag_link.retrieval.narrowing_filter import NarrowedDocument, NarrowingFilter, SymbolFilter

_NAMED_OWNERS = frozenset(("javascript", "c", "ruby"))
"""Families in which the owner of a method may be declared in another file, or not at all."""


class Definition(NamedTuple):
    """A declaration with its file and its owner."""

    file: CodeFile
    symbol: str
    kind: str
    line: int
    last_line: int
    signature: str
    """The first line, in C; otherwise empty."""
    owner: str
    """Symbol of the class, module or function around it; empty at the top of a file."""
    owner_kind: str
    """Kind of the owner; empty if the file does not declare it."""

    @property
    def name(self) -> str:
        return self.symbol.rpartition(".")[2]

    @property
    def owner_name(self) -> str:
        return self.owner.rpartition(".")[2]

    @property
    def is_member(self) -> bool:
        """True if it is a member of an object or a class."""
        if self.kind in ("method", "property") or self.owner_kind in CLASSES:
            return True
        return bool(self.owner) and not self.owner_kind and self.file.family in _NAMED_OWNERS

    @property
    def is_local(self) -> bool:
        """True if it is within a function."""
        return self.owner_kind in ("function", "method")


class CodeFile:
    """A file of code, with its declarations and imports."""

    def __init__(self, collection: str, document: NarrowedDocument, index: IndexReader) -> None:
        self.collection = collection
        self.path = document.doc_id
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
    def declarations(self) -> list[SymbolDeclaration]:
        return [SymbolDeclaration(*row) for piece in parse_pieces(self.document) for row in piece.declared]

    @cached_property
    def declarations_by_name(self) -> Mapping[str, Sequence[SymbolDeclaration]]:
        """The declarations by the last part of their symbol."""
        by_name = defaultdict[str, list[SymbolDeclaration]](list)
        for declaration in self.declarations:
            by_name[declaration.symbol.rpartition(".")[2]].append(declaration)
        return dict(by_name)

    @cached_property
    def _lines(self) -> list[str]:
        return self.text.split("\n")

    @cached_property
    def _line_starts(self) -> list[int]:
        return [0, *(match.end() for match in re.finditer("\n", self.text))]

    def line_of(self, offset: int) -> int:
        return bisect.bisect_right(self._line_starts, offset)

    def text_of(self, line: int) -> str:
        return self._lines[line - 1]

    def form_definition(self, declaration: SymbolDeclaration) -> Definition:
        owner = declaration.symbol.rpartition(".")[0]
        owner_kinds = (row.kind for row in self.declarations if owner and row.symbol == owner)
        return Definition(
            file=self,
            symbol=declaration.symbol,
            kind=declaration.kind,
            line=declaration.line,
            last_line=declaration.last_line,
            signature=self.text_of(declaration.line).strip() if self.family == "c" else "",
            owner=owner,
            owner_kind=next(owner_kinds, ""),
        )

    def innermost_around(self, line: int) -> SymbolDeclaration | None:
        """Return the innermost declaration around a line, except values and macros."""
        around = [
            row
            for row in self.declarations
            if row.line <= line <= row.last_line and row.kind not in VALUE_KINDS and row.kind != "macro"
        ]
        return max(
            reversed(around), key=lambda row: row.line, default=None
        )  # of one line, the last is within the others

    def class_around(self, line: int) -> str:
        """Return the last part of the name of the class around a line; empty outside of classes.

        If the file does not declare the class, a method names it: `Session` in `Session.refresh`.
        """
        classes = [row for row in self.declarations if row.kind in CLASSES and row.line <= line <= row.last_line]
        if classes:
            symbol = max(classes, key=lambda row: row.line).symbol
        else:
            inner = self.innermost_around(line)
            symbol = inner.symbol.rpartition(".")[0] if inner else ""
        return symbol.rpartition(".")[2]

    def find_calls(self, names: Mapping[str, str]) -> Iterator[CallSite]:
        """Yield the calls of some names, without definitions that look like calls.

        `names`: as in `code.calls.find_calls`, the meaning of each name that this file uses.
        """
        for site in find_calls(self.code, self.language, names):
            if not self._declares_at(site.name, site.start):
                yield site

    def _declares_at(self, name: str, offset: int) -> bool:
        """Return whether a name that looks like a call belongs to a definition.

        The line of a definition may begin above its name, for example with the type in C.
        """
        line = self.line_of(offset)
        whole_name = re.compile(rf"(?<![\w$]){re.escape(name)}(?![\w$])")
        for declaration in self.declarations_by_name.get(name, ()):
            if not declaration.line <= line <= declaration.last_line:
                continue
            first = whole_name.search(self.code, self._line_starts[declaration.line - 1])
            if line == declaration.line or (first and first.start() == offset):
                return True
        return False

    def declares_symbol(self, symbol: str) -> bool:
        return any(row.symbol == symbol or row.symbol.endswith(f".{symbol}") for row in self.declarations)


class CodeFiles:
    """The files of some collections of code. Use them while the index is open."""

    def __init__(self, index: IndexReader, collections: Sequence[str]) -> None:
        self._index = index
        self._collections = collections
        no_filter = NarrowingFilter(Narrowing())
        self._files = [
            CodeFile(name, document, index)
            for name in collections
            for document in no_filter.list_documents(index, name)
        ]
        self._files.sort(key=lambda file: file.document.first)
        self._first_rows = [file.document.first for file in self._files]

    def with_word(self, word: str, *, declared_only: bool = False) -> list[CodeFile]:
        """Return the files that contain a word. `declared_only`: only files that declare it."""
        numbers = {
            bisect.bisect_right(self._first_rows, row) - 1
            for terms in keywords.list_terms([word.lower()])
            for row in self._index.find_rows_with_word(terms, self._collections, names=declared_only)
        }
        return [self._files[number] for number in sorted(numbers)]

    def definitions_of(self, name: str) -> list[Definition]:
        """Return the definitions of a dotted name, in which `*` matches any letters."""
        symbol = SymbolFilter(name, within=False)
        return [
            file.form_definition(declaration)
            for file in self._files
            if symbol.may_be_in_metadata(file.document.metadata)
            for declaration in file.declarations
            if symbol.accepts_symbol(declaration.symbol)
        ]

    def declared_names(self) -> Iterator[str]:
        return (declaration.symbol for file in self._files for declaration in file.declarations)

    @cached_property
    def folders(self) -> frozenset[str]:
        """The names of all folders with code, and of all files without endings."""
        return frozenset(part for file in self._files for part in module_parts(file.path))

    @cached_property
    def python_roots(self) -> frozenset[str]:
        """First names of imports that may lead to these files: packages, modules and folders."""
        files = [file.path for file in self._files if file.family == "python"]
        packages = {dirname(path) for path in files if basename(path).startswith("__init__.")}
        roots = set[str]()
        for path in files:
            folder = dirname(path)
            if folder not in packages:
                roots |= {module_parts(path)[-1], basename(folder)}
            while folder in packages and dirname(folder) in packages - {""}:
                folder = dirname(folder)
            roots |= {basename(folder), *folder.split("/")[:1]}
        return frozenset(roots - {""})


def module_parts(path: str) -> list[str]:
    """Return the parts of the module name of a file: `pkg.a` for `pkg/a/__init__.py`."""
    folders, _, name = path.rpartition("/")
    stem = name.partition(".")[0]
    parts = folders.split("/") if folders else []
    return parts if parts and stem in ("__init__", "index", "mod", "lib", "main") else [*parts, stem]
