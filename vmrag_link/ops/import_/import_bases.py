"""Decide which import base an import uses.

The base is the folder that the user gave, the recorded one, or the one that the documents imply. If
none of them decides, an error asks the user and shows the command that answers.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from vmrag_link import hints, terminal_text
from vmrag_link.documents import import_base
from vmrag_link.documents.import_base import OUTSIDE, ROOT, ImportBase
from vmrag_link.errors import UsageInvalid, VmragError, plural, quoted
from vmrag_link.git import configuration
from vmrag_link.models import At, Collection, Record
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.documents import collections

_SHOWN = 5
"""Number of sources or bases that an error names."""


class BaseRequest(Record, frozen=True):
    """An import of files and folders."""

    sources: tuple[Path, ...]
    """Paths as `import_base.locate_path` returns them."""
    given: Path | None = None
    """The base that the user gave."""
    replace: bool = False
    """True if files may replace documents of other files."""
    alternative: str = ""
    """The hint for a command that has no option for the base."""
    copy: bool = False
    """True if the command has the option `--copy`."""


def decide_base(ws: Workspace, at: At, collection: Collection, request: BaseRequest) -> ImportBase:
    """Return the base for an import into a collection. All sources are in it.

    A new collection has `ROOT` recorded. Raises `UsageInvalid` if the user must choose the base.
    """
    top = import_base.locate_path(ws.places.top)
    question = _Question(collection.name, top, request)
    if request.given is not None:
        base = _check_given_base(ws, at, collection, question, request.given)
    elif collection.import_base:
        base = _read_recorded_base(ws, at, collection, question)
    else:
        base = _derive_base(ws, at, question)
    if not all(map(base.contains, request.sources)):
        raise question.form_outside_base(base, empty=not ws.engine.count_documents(at, collection=collection.name))
    return base


def guess_base(ws: Workspace, sources: Sequence[Path], given: Path | None) -> ImportBase | None:
    """Return the base for an import into a new collection; None if the import would be refused."""
    top = import_base.locate_path(ws.places.top)
    base = import_base.make_base(import_base.locate_path(given), top) if given else import_base.restore_base(ROOT, top)
    return base if base.folder.is_dir() and all(map(base.contains, sources)) else None


def remember_folder(ws: Workspace, collection: str, base: ImportBase) -> None:
    """Record on this machine where a base outside of the repository is."""
    if base.recorded == OUTSIDE and configuration.read_import_folder(ws.places, collection) != base.folder:
        configuration.set_import_folder(ws.places, collection, base.folder)


def describe_base(base: ImportBase) -> str:
    """Return a base for a message: `docs`, `the root of the repository`, `/home/ada/notes`."""
    if base.recorded == ROOT:
        return "the root of the repository"
    return terminal_text.escape_line(str(base.folder) if base.recorded == OUTSIDE else base.recorded)


def _check_given_base(ws: Workspace, at: At, collection: Collection, question: _Question, given: Path) -> ImportBase:
    if not given.is_dir():
        raise UsageInvalid(
            f"--base {given} is not a folder.", hint="use the folder that ids are relative to, such as '--base docs'"
        )
    base = import_base.make_base(import_base.locate_path(given), question.top)
    if problem := import_base.find_base_problem(base.recorded):
        raise UsageInvalid(f"the path of --base {base.recorded!r} {problem}.", hint="use another folder")
    # Sources inside the repository are relative to its root, sources outside to the base. The two
    # kinds could be confused.
    if (base.recorded == OUTSIDE) != (collection.import_base == OUTSIDE) and any(
        not source.startswith("/") for _, source in ws.engine.list_sources(at, collection.name)
    ):
        before, now = ("outside", "inside") if collection.import_base == OUTSIDE else ("inside", "outside")
        raise question.form_error(
            f"the documents of collection {collection.name!r} come from {before} the repository, "
            f"and {describe_base(base)} is {now}.",
            question.form_own_collection(),
        )
    _require_same_outside(ws, collection, question, base)
    return base


def _require_same_outside(ws: Workspace, collection: Collection, question: _Question, base: ImportBase) -> None:
    """Refuse a second folder outside of the repository if the first one still exists.

    Sources do not name the folder. So files of the same name would replace each other's documents,
    and other documents would look as if their files were gone. A moved folder is allowed.
    """
    if not base.recorded == collection.import_base == OUTSIDE or question.request.replace:
        return
    before = configuration.read_import_folder(ws.places, collection.name)
    if before and before.is_dir() and import_base.locate_path(before) != base.folder:
        raise question.form_error(
            f"the documents of collection {collection.name!r} come from {terminal_text.escape_line(str(before))}, which "
            f"still exists; only --replace lets files below {describe_base(base)} replace them.",
            question.form_own_collection(),
        )


def _read_recorded_base(ws: Workspace, at: At, collection: Collection, question: _Question) -> ImportBase:
    recorded = collection.import_base
    if problem := import_base.find_base_problem(recorded):
        raise question.form_unknown(f"the import base {recorded!r} of collection {collection.name!r} {problem}.")
    if recorded != OUTSIDE:
        return import_base.restore_base(recorded, question.top)
    folder = configuration.read_import_folder(ws.places, collection.name)
    if folder is None:
        raise question.form_unknown_outside(source for _, source in ws.engine.list_sources(at, collection.name))
    return ImportBase(OUTSIDE, import_base.locate_path(folder), question.top)


def _derive_base(ws: Workspace, at: At, question: _Question) -> ImportBase:
    documents = ws.engine.count_documents(at, collection=question.collection)
    if not documents:
        return import_base.restore_base(ROOT, question.top)
    bases = import_base.count_bases(ws.engine.list_sources(at, question.collection))
    if len(bases) == 1 and not next(iter(bases)).startswith("/"):
        return import_base.restore_base(next(iter(bases)), question.top)
    name = question.collection
    if not bases:
        bases = question.count_matching(header.doc_id for header in ws.engine.read_headers(at, collection=name))
        origin = f"none of its {plural(documents, 'document')} came from a file"
        if bases:
            folder, number = bases.most_common(1)[0]
            origin += f", though files below {folder!r} have {number} of their ids"
    elif len(bases) == 1:
        origin = f"its documents come from {next(iter(bases))!r}, outside of the repository"
    else:
        shown = ", ".join(f"{folder!r} ({plural(number, 'document')})" for folder, number in bases.most_common(_SHOWN))
        origin = f"the ids of its documents are relative to {shown}" + (" and others" if len(bases) > _SHOWN else "")
    raise question.form_unknown(f"the import base of collection {name!r} is not recorded, and {origin}.", bases)


class _Question(Record, frozen=True):
    """Forms the errors of one import, with commands for the user's current directory."""

    collection: str
    top: Path
    request: BaseRequest

    def form_unknown(self, message: str, counts: Counter[str] | None = None) -> VmragError:
        """Return the error for an unknown base.

        `counts`: numbers of documents by base. The hint has the likeliest base.
        """
        folder = self._find_common_folder(self.request.sources)
        if folder.is_relative_to(self.top):
            inside = (self.top / base for base, _ in (counts or Counter()).most_common() if not base.startswith("/"))
            folder = next((parent for parent in inside if folder.is_relative_to(parent)), self.top)
        bases = [{"base": base, "documents": number} for base, number in (counts or Counter()).most_common()]
        return self.form_error(message, self._form_command(self.collection, folder), bases=bases)

    def form_unknown_outside(self, stored: Iterable[str]) -> VmragError:
        """Return the error for a base outside of the repository that this machine does not know.

        The hint has the folder with most of the `stored` files.
        """
        inner = self._find_common_folder(self.request.sources)
        counts = self._count_files(stored, [inner, *inner.parents])
        folder = max(counts, key=lambda candidate: (counts[candidate], len(candidate.parts)), default=inner)
        return self.form_error(
            f"the import base of collection {self.collection!r} is a folder outside of the repository, "
            "which is unknown on this machine.",
            self._form_command(self.collection, folder),
        )

    def count_matching(self, ids: Iterable[str]) -> Counter[str]:
        """Count the files with these ids in each folder around the sources, inside the
        repository.
        """
        inner = self._find_common_folder(self.request.sources)
        counts = self._count_files(
            ids, [parent for parent in (inner, *inner.parents) if parent.is_relative_to(self.top)]
        )
        return Counter({folder.relative_to(self.top).as_posix(): number for folder, number in counts.items()})

    def _count_files(self, names: Iterable[str], folders: list[Path]) -> Counter[Path]:
        """Count the files with these names in each folder. Folders without any are left out."""
        counts: Counter[Path] = Counter()
        for name in names:
            if import_base.escapes_folder(name):
                continue
            counts.update(folder for folder in folders if _is_file(folder / name))
        return counts

    def form_outside_base(self, base: ImportBase, *, empty: bool) -> VmragError:
        """Return the error for a source outside of the base.

        An `empty` collection can get another base.
        """
        outside = next(source for source in self.request.sources if not base.contains(source))
        message = (
            f"{terminal_text.escape_line(str(self._show_path(outside)))} is not below {describe_base(base)}, "
            f"the import base of collection {self.collection!r}."
        )
        inside = [source.is_relative_to(self.top) for source in (base.folder, *self.request.sources)]
        if all(inside) or self.request.given is not None:
            advice = " With a wider base, existing documents keep their ids." if all(inside) else ""
            wider = self._find_common_folder([base.folder, *self.request.sources])
            return self.form_error(message + advice, self._form_command(self.collection, wider))
        if empty:
            return self.form_error(
                message, self._form_command(self.collection, self._find_common_folder(self.request.sources))
            )
        return self.form_error(message, self.form_own_collection())

    def form_own_collection(self) -> str:
        """Return the command that imports the sources into a new collection."""
        folder = self._find_common_folder(self.request.sources)
        name = collections.similar_name(f"{self.collection}-{folder.name}")
        return self._form_command(name, self.top if folder.is_relative_to(self.top) else folder)

    def form_error(self, message: str, command: str, **details: object) -> VmragError:
        return UsageInvalid(
            message,
            hint=hints.suggest_command(self.request.alternative or command),
            collection_name=self.collection,
            **details,
        )

    def _form_command(self, collection: str, base: Path) -> str:
        """Return the command to type. It has `…` for further sources."""
        away = ["-C", quoted(self.top)] if self._is_elsewhere() else []
        sources = [quoted(self._show_path(source)) for source in self.request.sources[:_SHOWN]]
        more = ["…"] if len(self.request.sources) > _SHOWN else []
        copy = ["--copy"] if self.request.copy else []
        words = ["vmrag", *away, "import", *sources, *more, "--collection", collection, *copy, "--base"]
        return " ".join([*words, quoted(self._show_path(base))])

    def _show_path(self, path: Path) -> Path:
        """Return a path from the current directory, if both are in the repository."""
        current = Path(os.path.realpath(Path.cwd()))
        return path.relative_to(current) if path.is_relative_to(current) and not self._is_elsewhere() else path

    def _is_elsewhere(self) -> bool:
        return not Path(os.path.realpath(Path.cwd())).is_relative_to(self.top)

    def _find_common_folder(self, paths: Iterable[Path]) -> Path:
        """Return the innermost folder that contains all paths."""
        return Path(os.path.commonpath([path if path.is_dir() else path.parent for path in paths]))


def _is_file(path: Path) -> bool:
    """Return whether a path is a file; False for a name that the system refuses."""
    try:
        return path.is_file()
    except OSError:
        return False
