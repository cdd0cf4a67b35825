"""Decide which import base an import uses.

The import base is the folder that the ids of a collection's documents are relative to. It is the
folder that the user gave, the recorded one, or the one that the documents imply. If none of them
decides, an error asks the user and shows the command that answers.
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
from vmrag_link.git import own_keys
from vmrag_link.models import At, Collection, Record
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.documents import collections

_MAX_NAMES = 5
"""Maximum number of sources or bases in an error."""


class BaseRequest(Record, frozen=True):
    """An import of files and folders."""

    sources: tuple[Path, ...]
    """Paths as `import_base.locate_path` returns them."""
    given: Path | None = None
    """The base that the user gave."""
    replace: bool = False
    """True if files may replace documents of other files."""
    alternative: str = ""
    """The command for the hint if the user's command has no option for the base."""
    copy: bool = False
    """True if the command has the option `--copy`."""


def decide_base(ws: Workspace, at: At, collection: Collection, request: BaseRequest) -> ImportBase:
    """Return the base for an import into a collection. All sources are in it.

    A new collection has `ROOT` recorded. Raises `UsageInvalid` if the user must choose the base.
    """
    top = import_base.locate_path(ws.places.top)
    errors = _BaseErrors(collection.name, top, request)
    if request.given is not None:
        base = _check_given_base(ws, at, collection, errors, request.given)
    elif collection.import_base:
        base = _read_recorded_base(ws, at, collection, errors)
    else:
        base = _derive_base(ws, at, errors)
    if not all(map(base.contains, request.sources)):
        raise errors.form_outside_base(base, empty=not ws.engine.count_documents(at, collection=collection.name))
    return base


def guess_base(ws: Workspace, sources: Sequence[Path], given: Path | None) -> ImportBase | None:
    """Return the base for an import into a new collection; None if the import would be refused."""
    top = import_base.locate_path(ws.places.top)
    base = import_base.make_base(import_base.locate_path(given), top) if given else import_base.restore_base(ROOT, top)
    return base if base.folder.is_dir() and all(map(base.contains, sources)) else None


def remember_folder(ws: Workspace, collection: str, base: ImportBase) -> None:
    """Record on this machine where a base outside of the repository is."""
    if base.recorded == OUTSIDE and own_keys.read_import_folder(ws.places, collection) != base.folder:
        own_keys.set_import_folder(ws.places, collection, base.folder)


def describe_base(base: ImportBase) -> str:
    """Return a base for a message: `docs`, `the root of the repository`, `/home/ada/notes`."""
    if base.recorded == ROOT:
        return "the root of the repository"
    return terminal_text.escape_line(str(base.folder) if base.recorded == OUTSIDE else base.recorded)


def _check_given_base(ws: Workspace, at: At, collection: Collection, errors: _BaseErrors, given: Path) -> ImportBase:
    if not given.is_dir():
        raise UsageInvalid(
            f"--base {given} is not a folder.", hint="use the folder that ids are relative to, such as '--base docs'"
        )
    base = import_base.make_base(import_base.locate_path(given), errors.top)
    problem = import_base.find_base_problem(base.recorded)
    if problem:
        raise UsageInvalid(f"the path of --base {base.recorded!r} {problem}.", hint="use another folder")
    # Sources inside the repository are relative to its root, sources outside to the base. The two
    # kinds could be confused.
    is_outside = base.recorded == OUTSIDE
    was_outside = collection.import_base == OUTSIDE
    if is_outside != was_outside and _has_relative_sources(ws, at, collection):
        before, now = ("outside", "inside") if was_outside else ("inside", "outside")
        raise errors.form_error(
            f"the documents of collection {collection.name!r} come from {before} the repository, "
            f"and {describe_base(base)} is {now}.",
            errors.form_own_collection(),
        )
    _require_same_outside(ws, collection, errors, base)
    return base


def _has_relative_sources(ws: Workspace, at: At, collection: Collection) -> bool:
    return any(not source.startswith("/") for _, source in ws.engine.list_sources(at, collection.name))


def _require_same_outside(ws: Workspace, collection: Collection, errors: _BaseErrors, base: ImportBase) -> None:
    """Refuse a second folder outside of the repository if the first one still exists.

    Sources do not name the folder. So files of the same name would replace each other's documents,
    and other documents would look as if their files were gone. A moved folder is allowed.
    """
    are_outside = base.recorded == OUTSIDE and collection.import_base == OUTSIDE
    if not are_outside or errors.request.replace:
        return
    before = own_keys.read_import_folder(ws.places, collection.name)
    if before and before.is_dir() and import_base.locate_path(before) != base.folder:
        raise errors.form_error(
            f"the documents of collection {collection.name!r} come from {terminal_text.escape_line(str(before))}, which "
            f"still exists; only --replace lets files below {describe_base(base)} replace them.",
            errors.form_own_collection(),
        )


def _read_recorded_base(ws: Workspace, at: At, collection: Collection, errors: _BaseErrors) -> ImportBase:
    recorded = collection.import_base
    problem = import_base.find_base_problem(recorded)
    if problem:
        raise errors.form_unknown(f"the import base {recorded!r} of collection {collection.name!r} {problem}.")
    if recorded != OUTSIDE:
        return import_base.restore_base(recorded, errors.top)
    folder = own_keys.read_import_folder(ws.places, collection.name)
    if folder is None:
        raise errors.form_unknown_outside(source for _, source in ws.engine.list_sources(at, collection.name))
    return ImportBase(OUTSIDE, import_base.locate_path(folder), errors.top)


def _derive_base(ws: Workspace, at: At, errors: _BaseErrors) -> ImportBase:
    """Return the base that all documents of the collection imply, or raise the error that asks."""
    name = errors.collection
    documents = ws.engine.count_documents(at, collection=name)
    if not documents:
        return import_base.restore_base(ROOT, errors.top)
    counts = import_base.count_bases(ws.engine.list_sources(at, name))
    only_base = next(iter(counts)) if len(counts) == 1 else ""
    if only_base and not only_base.startswith("/"):
        return import_base.restore_base(only_base, errors.top)
    if only_base:
        reason = f"its documents come from {only_base!r}, outside of the repository"
    elif counts:
        bases = [f"{base!r} ({plural(number, 'document')})" for base, number in counts.most_common(_MAX_NAMES)]
        more = " and others" if len(counts) > _MAX_NAMES else ""
        reason = f"the ids of its documents are relative to {', '.join(bases)}{more}"
    else:
        reason = f"none of its {plural(documents, 'document')} came from a file"
        counts = errors.count_matching(header.doc_id for header in ws.engine.read_headers(at, collection=name))
        if counts:
            folder, number = counts.most_common(1)[0]
            reason += f", though files below {folder!r} have {number} of their ids"
    raise errors.form_unknown(f"the import base of collection {name!r} is not recorded, and {reason}.", counts)


class _BaseErrors(Record, frozen=True):
    """Builds the errors of one import, with commands for the user's current directory."""

    collection: str
    top: Path
    request: BaseRequest

    def form_unknown(self, message: str, counts: Counter[str] | None = None) -> VmragError:
        """Return the error for an unknown base.

        `counts`: numbers of documents by base. The hint has the likeliest base.
        """
        bases = (counts or Counter()).most_common()
        folder = _find_common_folder(self.request.sources)
        if folder.is_relative_to(self.top):
            candidates = (self.top / base for base, _ in bases if not base.startswith("/"))
            folder = next((candidate for candidate in candidates if folder.is_relative_to(candidate)), self.top)
        rows = [{"base": base, "documents": number} for base, number in bases]
        return self.form_error(message, self._form_command(self.collection, folder), bases=rows)

    def form_unknown_outside(self, stored: Iterable[str]) -> VmragError:
        """Return the error for a base outside of the repository that this machine does not know.

        The hint has the folder with most of the `stored` files.
        """
        inner = _find_common_folder(self.request.sources)
        counts = _count_files(stored, [inner, *inner.parents])
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
        inner = _find_common_folder(self.request.sources)
        folders = [folder for folder in (inner, *inner.parents) if folder.is_relative_to(self.top)]
        counts = _count_files(ids, folders)
        return Counter({folder.relative_to(self.top).as_posix(): number for folder, number in counts.items()})

    def form_outside_base(self, base: ImportBase, *, empty: bool) -> VmragError:
        """Return the error for a source outside of the base.

        An `empty` collection can get another base.
        """
        outside = next(source for source in self.request.sources if not base.contains(source))
        message = (
            f"{terminal_text.escape_line(str(self._show_path(outside)))} is not below {describe_base(base)}, "
            f"the import base of collection {self.collection!r}."
        )
        are_inside = all(path.is_relative_to(self.top) for path in (base.folder, *self.request.sources))
        if are_inside or self.request.given is not None:
            advice = " With a wider base, existing documents keep their ids." if are_inside else ""
            wider = _find_common_folder([base.folder, *self.request.sources])
            return self.form_error(message + advice, self._form_command(self.collection, wider))
        if empty:
            return self.form_error(
                message, self._form_command(self.collection, _find_common_folder(self.request.sources))
            )
        return self.form_error(message, self.form_own_collection())

    def form_own_collection(self) -> str:
        """Return the command that imports the sources into a new collection."""
        folder = _find_common_folder(self.request.sources)
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
        words = ["vmrag"]
        if self._is_elsewhere():
            words += ["-C", quoted(self.top)]
        words.append("import")
        words += [quoted(self._show_path(source)) for source in self.request.sources[:_MAX_NAMES]]
        if len(self.request.sources) > _MAX_NAMES:
            words.append("…")
        words += ["--collection", collection]
        if self.request.copy:
            words.append("--copy")
        return " ".join([*words, "--base", quoted(self._show_path(base))])

    def _show_path(self, path: Path) -> Path:
        """Return a path from the current directory, if both are in the repository."""
        current = Path(os.path.realpath(Path.cwd()))
        return path.relative_to(current) if path.is_relative_to(current) and not self._is_elsewhere() else path

    def _is_elsewhere(self) -> bool:
        """Return whether the current directory is outside of the repository."""
        return not Path(os.path.realpath(Path.cwd())).is_relative_to(self.top)


def _find_common_folder(paths: Iterable[Path]) -> Path:
    """Return the innermost folder that contains all paths."""
    return Path(os.path.commonpath([path if path.is_dir() else path.parent for path in paths]))


def _count_files(names: Iterable[str], folders: list[Path]) -> Counter[Path]:
    """Count the files with these names in each folder. Folders without any are left out."""
    counts: Counter[Path] = Counter()
    for name in names:
        if not import_base.escapes_folder(name):
            counts.update(folder for folder in folders if _is_file(folder / name))
    return counts


def _is_file(path: Path) -> bool:
    """Return whether a path is a file; False for a name that the system refuses."""
    try:
        return path.is_file()
    except OSError:
        return False
