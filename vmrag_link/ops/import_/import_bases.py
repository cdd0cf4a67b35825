"""Which import base an import takes: what the person gave, what is recorded, or what the documents
say. If none of these tells, the person is asked, by an error with the command that answers.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from vmrag_link import terminal_text
from vmrag_link.documents import import_base
from vmrag_link.documents.import_base import OUTSIDE, ROOT, ImportBase
from vmrag_link.errors import UsageInvalid, VmragError, plural, quoted
from vmrag_link.git import configuration
from vmrag_link.models import At, Collection, Record
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.documents import collections

_MOST = 5
"""Sources or bases that an error names."""


class BaseRequest(Record, frozen=True):
    """An import of these files and folders, as `import_base.located` has them.

    `given` is the base that the person named. `replace`: files may take the place of documents
    that came from other files. `alternative` is the hint of a command that cannot be given a base.
    `copy`: the command has this option.
    """

    sources: tuple[Path, ...]
    given: Path | None = None
    replace: bool = False
    alternative: str = ""
    copy: bool = False


def decide_base(ws: Workspace, at: At, collection: Collection, request: BaseRequest) -> ImportBase:
    """The base for an import into a collection at a place; a new collection has `ROOT` recorded.

    Every source lies in it. Raises `UsageInvalid` where the person has to say which base is meant.
    """
    top = import_base.locate_path(ws.places.top)
    question = _Question(collection.name, top, request)
    if request.given is not None:
        base = _base_given(ws, at, collection, question, request.given)
    elif collection.import_base:
        base = _base_recorded(ws, at, collection, question)
    else:
        base = _base_from_documents(ws, at, question)
    if not all(map(base.contains, request.sources)):
        raise question.not_in(base, empty=not ws.engine.count_documents(at, collection=collection.name))
    return base


def guess_base(ws: Workspace, sources: Sequence[Path], given: Path | None) -> ImportBase | None:
    """Return the base for an import into a new collection; None if that would be refused."""
    top = import_base.locate_path(ws.places.top)
    base = import_base.make_base(import_base.locate_path(given), top) if given else import_base.restore_base(ROOT, top)
    return base if base.folder.is_dir() and all(map(base.contains, sources)) else None


def remember_folder(ws: Workspace, collection: str, base: ImportBase) -> None:
    """Let this machine know where a base outside of the repository lies."""
    if base.recorded == OUTSIDE and configuration.read_import_folder(ws.places, collection) != base.folder:
        configuration.set_import_folder(ws.places, collection, base.folder)


def describe_base(base: ImportBase) -> str:
    """For a sentence: `docs`, `the root of the repository`, `/home/ada/notes`."""
    if base.recorded == ROOT:
        return "the root of the repository"
    return terminal_text.escape_line(str(base.folder) if base.recorded == OUTSIDE else base.recorded)


def _base_given(ws: Workspace, at: At, collection: Collection, question: _Question, given: Path) -> ImportBase:
    if not given.is_dir():
        raise UsageInvalid(f"--base {given} is not a folder.", hint="Name the folder from which ids count.")
    base = import_base.make_base(import_base.locate_path(given), question.top)
    if why := import_base.find_base_problem(base.recorded):
        raise UsageInvalid(f"The path of --base {base.recorded!r} {why}.", hint="Name another folder.")
    # A source inside the repository counts from its root, one outside from the base: they would be
    # mistaken for each other.
    if (base.recorded == OUTSIDE) != (collection.import_base == OUTSIDE) and any(
        not source.startswith("/") for _, source in ws.engine.list_sources(at, collection.name)
    ):
        before, now = ("outside", "inside") if collection.import_base == OUTSIDE else ("inside", "outside")
        raise question.error(
            f"The documents of collection {collection.name!r} come from {before} the repository, "
            f"and {describe_base(base)} is {now}.",
            question.own_collection(),
        )
    _require_same_outside(ws, collection, question, base)
    return base


def _require_same_outside(ws: Workspace, collection: Collection, question: _Question, base: ImportBase) -> None:
    """Refuse a second folder outside of the repository beside one that is still there.

    Sources do not name the folder: files of the same name would be taken for the same documents,
    and the others' documents for ones whose file is gone. A folder that was moved is fine.
    """
    if not base.recorded == collection.import_base == OUTSIDE or question.request.replace:
        return
    before = configuration.read_import_folder(ws.places, collection.name)
    if before and before.is_dir() and import_base.locate_path(before) != base.folder:
        raise question.error(
            f"The documents of collection {collection.name!r} come from {terminal_text.escape_line(str(before))}, which "
            f"is still there; files below {describe_base(base)} take their place with --replace only.",
            question.own_collection(),
        )


def _base_recorded(ws: Workspace, at: At, collection: Collection, question: _Question) -> ImportBase:
    recorded = collection.import_base
    if why := import_base.find_base_problem(recorded):
        raise question.which(f"The import base {recorded!r} of collection {collection.name!r} {why}.")
    if recorded != OUTSIDE:
        return import_base.restore_base(recorded, question.top)
    folder = configuration.read_import_folder(ws.places, collection.name)
    if folder is None:
        raise question.elsewhere(source for _, source in ws.engine.list_sources(at, collection.name))
    return ImportBase(OUTSIDE, import_base.locate_path(folder), question.top)


def _base_from_documents(ws: Workspace, at: At, question: _Question) -> ImportBase:
    documents = ws.engine.count_documents(at, collection=question.collection)
    if not documents:
        return import_base.restore_base(ROOT, question.top)
    found = import_base.count_bases(ws.engine.list_sources(at, question.collection))
    if len(found) == 1 and not next(iter(found)).startswith("/"):
        return import_base.restore_base(next(iter(found)), question.top)
    name = question.collection
    if not found:
        found = question.matching(header.doc_id for header in ws.engine.read_headers(at, collection=name))
        what = f"none of its {plural(documents, 'document')} came from a file"
        if found:
            folder, number = found.most_common(1)[0]
            what += f", though files below {folder!r} have {number} of their ids"
    elif len(found) == 1:
        what = f"its documents come from {next(iter(found))!r}, outside of the repository"
    else:
        shown = ", ".join(f"{folder!r} ({plural(number, 'document')})" for folder, number in found.most_common(_MOST))
        what = f"those of its documents count from {shown}" + (" and others" if len(found) > _MOST else "")
    raise question.which(f"It is not recorded from where ids of collection {name!r} count, and {what}.", found)


class _Question(Record, frozen=True):
    """The errors of one import, with commands that can be typed where the person is."""

    collection: str
    top: Path
    request: BaseRequest

    def which(self, message: str, found: Counter[str] | None = None) -> VmragError:
        """`found`: the bases of documents, of which the hint takes the likeliest."""
        folder = self._common(self.request.sources)
        if folder.is_relative_to(self.top):
            inside = (self.top / each for each, _ in (found or Counter()).most_common() if not each.startswith("/"))
            folder = next((each for each in inside if folder.is_relative_to(each)), self.top)
        bases = [{"base": base, "documents": number} for base, number in (found or Counter()).most_common()]
        return self.error(message, self._command(self.collection, folder), bases=bases)

    def elsewhere(self, stored: Iterable[str]) -> VmragError:
        """The base lies outside, where is not known here. The likeliest has most `stored` files."""
        inner = self._common(self.request.sources)
        found = self._having(stored, [inner, *inner.parents])
        folder = max(found, key=lambda each: (found[each], len(each.parts)), default=inner)
        return self.error(
            f"The ids of collection {self.collection!r} count from a folder outside of the repository, "
            "and this machine does not know which.",
            self._command(self.collection, folder),
        )

    def matching(self, ids: Iterable[str]) -> Counter[str]:
        """The folders around the sources, inside the repository, that have files of these ids."""
        inner = self._common(self.request.sources)
        found = self._having(ids, [parent for parent in (inner, *inner.parents) if parent.is_relative_to(self.top)])
        return Counter({each.relative_to(self.top).as_posix(): number for each, number in found.items()})

    def _having(self, names: Iterable[str], folders: list[Path]) -> Counter[Path]:
        """How many files of these names each of the folders has, if it has any."""
        found: Counter[Path] = Counter()
        for name in names:
            if import_base.escapes_folder(name):
                continue
            found.update(folder for folder in folders if _is_file(folder / name))
        return found

    def not_in(self, base: ImportBase, *, empty: bool) -> VmragError:
        """A source does not lie in the base. An `empty` collection can take any other."""
        strange = next(source for source in self.request.sources if not base.contains(source))
        message = (
            f"{terminal_text.escape_line(str(self._shown(strange)))} is not below {describe_base(base)}, "
            f"from where the ids of collection {self.collection!r} count."
        )
        inside = [source.is_relative_to(self.top) for source in (base.folder, *self.request.sources)]
        if all(inside) or self.request.given is not None:
            kept = " With a wider base, the documents that are there keep their ids." if all(inside) else ""
            wider = self._common([base.folder, *self.request.sources])
            return self.error(message + kept, self._command(self.collection, wider))
        if empty:
            return self.error(message, self._command(self.collection, self._common(self.request.sources)))
        return self.error(message, self.own_collection())

    def own_collection(self) -> str:
        """The command that imports the sources into a collection of their own."""
        folder = self._common(self.request.sources)
        name = collections.similar_name(f"{self.collection}-{folder.name}")
        return self._command(name, self.top if folder.is_relative_to(self.top) else folder)

    def error(self, message: str, command: str, **details: object) -> VmragError:
        return UsageInvalid(
            message, hint=self.request.alternative or command, collection_name=self.collection, **details
        )

    def _command(self, collection: str, base: Path) -> str:
        """What to type; with `…` for the sources beyond the first few."""
        away = ["-C", quoted(self.top)] if self._away() else []
        sources = [quoted(self._shown(source)) for source in self.request.sources[:_MOST]]
        more = ["…"] if len(self.request.sources) > _MOST else []
        copy = ["--copy"] if self.request.copy else []
        words = ["vmrag", *away, "import", *sources, *more, "--collection", collection, *copy, "--base"]
        return " ".join([*words, quoted(self._shown(base))])

    def _shown(self, path: Path) -> Path:
        """From the current directory, if that is in the repository and the path in it."""
        here = Path(os.path.realpath(Path.cwd()))
        return path.relative_to(here) if path.is_relative_to(here) and not self._away() else path

    def _away(self) -> bool:
        return not Path(os.path.realpath(Path.cwd())).is_relative_to(self.top)

    def _common(self, paths: Iterable[Path]) -> Path:
        """The innermost folder that holds them all."""
        return Path(os.path.commonpath([path if path.is_dir() else path.parent for path in paths]))


def _is_file(path: Path) -> bool:
    """Not so of a name, perhaps a stranger's, that the system refuses to look up."""
    try:
        return path.is_file()
    except OSError:
        return False
