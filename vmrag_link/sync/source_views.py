"""Views of sources: indexes of files of the code's tree.

    .git/vmrag/sources/<contents>-<format>/     a view, and the file `files`

Their names derive from their contents, so that equal files are indexed once for all commits and
work trees. Their segments are among those of the knowledge base.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from vmrag_link.errors import FileFailed, IndexFailed, refuses_writing
from vmrag_link.file_access import write_atomically
from vmrag_link.index import storage
from vmrag_link.index import view as views
from vmrag_link.index.directories import lock_path, remove_orphaned_lock
from vmrag_link.index.view import SUFFIX, IndexView, find_damaged_segments, indexes_equally
from vmrag_link.index.views import MemoryViews, Views
from vmrag_link.models import Collection, Document, Record, encode_canonical_json
from vmrag_link.paths import TREE, Places
from vmrag_link.progress import INDEXING, Progress
from vmrag_link.sources.listings import NoDocument
from vmrag_link.sync.binding import list_worktree_folders
from vmrag_link.sync.chroma_state import read_committed

if TYPE_CHECKING:
    from vmrag_link.index.draft import Draft
    from vmrag_link.sync.adding import DocumentIndexer

FILE_NAME = "files"
BINDING_NAME = "bound"
"""File in a work tree's own folder that names its view (`SourceBinding`)."""

MOST_BASES = 8
"""Maximum number of views among which the nearest one is searched, the latest first."""

NEAR = 100

Tags = Mapping[str, Mapping[str, str]]
"""By collection and path: the blob, and the version of the code that cut it."""


class SourceContents(Record, frozen=True):
    """The content of a view of sources."""

    collections: tuple[Collection, ...]
    tags: Tags
    left_out: Mapping[str, Mapping[str, NoDocument]] = {}
    """Files without a document, by collection and path."""
    paths: Mapping[str, Mapping[str, str]] = {}
    """The files of notes, by collection and id."""

    @property
    def key(self) -> str:
        """Equal for equal documents that are indexed alike."""
        decisive = [
            [row.name, row.embedding_model, row.distance, row.chunking, *([row.metadata] if row.has_notes else [])]
            for row in self.collections
        ]
        return hashlib.sha256(encode_canonical_json([decisive, self.tags]).encode()).hexdigest()[:40]


class SourceBinding(Record, frozen=True):
    """The view of a work tree, by the name of its folder."""

    token: str
    """Text that identifies the state of the files."""
    settings: str
    """Text that identifies the settings with which the files were read."""
    view: str
    ephemeral: bool
    """True if some files are in no commit."""
    more: bytes
    """Further encoded data about the view."""


Read = Callable[[str, Sequence[str]], Iterable[tuple[str, Document | NoDocument]]]
"""Read files of a collection, by path, as documents. May return only the first ones, within the
budget of one answer.
"""


def read_contents(folder: Path) -> SourceContents:
    """Return the content of a view. Raises `IndexFailed`."""
    try:
        return msgspec.msgpack.decode(storage.read_file(folder / FILE_NAME), type=SourceContents)
    except (OSError, UnicodeDecodeError, msgspec.DecodeError) as error:
        raise IndexFailed(f"{folder.name} has an unreadable list of its files: {error}") from error


def read_binding(places: Places) -> SourceBinding | None:
    """Return the view of a work tree, or None if it is unknown."""
    return _read_binding(places.source_state / BINDING_NAME)


def write_binding(places: Places, binding: SourceBinding) -> None:
    """Bind a view to a work tree. The previous view is removed if it had uncommitted files."""
    previous = read_binding(places)
    write_atomically(places.source_state / BINDING_NAME, msgspec.msgpack.encode(binding), durable=False)
    existing = Views(places.source_views)
    if previous and previous.ephemeral and previous.view != binding.view:
        if existing.remove_if_unused(existing.root / previous.view, unless=lambda: list_bound_views(places)):
            remove_orphaned_lock(lock_path(existing.root / previous.view))
        existing.segments.collect_garbage(places.view_folders)


def list_bound_views(places: Places) -> set[Path]:
    """Return the views of sources to which some work tree, or its Chroma store, is bound."""
    folders = list(list_worktree_folders(places))
    bindings = [_read_binding(folder / TREE / BINDING_NAME) for folder in folders]
    committed = [read_committed(folder) for folder in folders]
    bound = {places.source_views / binding.view for binding in bindings if binding}
    return bound | {Views(places.source_views).view_path(files.view) for files in committed if files and files.view}


def evict_views(places: Places, *, keep_bytes: int) -> None:
    """Remove the spare views of sources beyond the limit, and files of killed builders."""
    existing = Views(places.source_views)
    existing.remove_unfinished()
    existing.evict_spare(bound=lambda: list_bound_views(places), keep_bytes=keep_bytes)


def _read_binding(path: Path) -> SourceBinding | None:
    try:
        return msgspec.msgpack.decode(path.read_bytes(), type=SourceBinding)
    except (OSError, UnicodeDecodeError, msgspec.DecodeError):
        return None


class SourceView(NamedTuple):
    """A view's folder, the number of files that it still lacks, and whether it was just built."""

    folder: Path
    remaining: int
    is_new: bool


class SourceIndexer(NamedTuple):
    """Build views of sources."""

    views: Views
    read_files: Read
    indexer: Callable[[], DocumentIndexer]
    """Create an indexer. Called only if something must be indexed."""
    progress: Progress
    patience: float
    """Seconds to wait for another process that builds the same view."""

    def provide_view(self, contents: SourceContents, *, durable: bool, max_files: int | None = None) -> SourceView:
        """Return a usable view of these files. If it is missing, it is derived from the nearest
        one.

        `durable`: flush it to disk, so that it survives a power cut. `max_files`: index at most so
        many files now, and leave the others to the next call. A view that cannot be written is kept
        in memory. Raises the errors of `read_files` and of models.
        """
        try:
            return self.make_view(contents, durable=durable, max_files=max_files)
        except (OSError, FileFailed, IndexFailed) as error:
            if not refuses_writing(error):
                raise
        return self._replace(views=MemoryViews(self.views.root)).make_view(
            contents, durable=durable, max_files=max_files
        )

    def make_view(self, contents: SourceContents, *, durable: bool, max_files: int | None) -> SourceView:
        """Provide a view in one place. Raises if it cannot be written."""
        existing = self.views
        turn = existing.hold_turn(contents.key, timeout=self.patience)
        with turn, existing.segments.pause_collection(), contextlib.ExitStack() as held:
            base = _find_nearest(existing, contents, held) if existing.find_problem(contents.key) else None
            remaining = 0
            if max_files is not None and existing.find_problem(contents.key):
                contents, remaining = _select_part(contents, read_contents(base).tags if base else {}, max_files)
            if not existing.find_problem(contents.key):
                path = existing.view_path(contents.key)
                existing.mark_used(path)
                return SourceView(path, remaining, is_new=False)
            path, unread = self._derive_view(contents, base, durable=durable)
            return SourceView(path, remaining + unread, is_new=True)

    def _derive_view(self, contents: SourceContents, base: Path | None, *, durable: bool) -> tuple[Path, int]:
        """Return a new view, and the number of the files that it lacks."""
        existing = self.views
        with existing.temporary_folder() as folder:
            try:
                held = self._build_view(folder, contents, base, durable=durable)
            except IndexFailed:  # reusing a segment may reveal damage
                if base is None:
                    raise
                held = self._build_view(folder, contents, None, durable=durable)
            unread = _count_files(contents.tags) - _count_files(held.tags)
            if durable:
                return existing.publish(folder, held.key), unread
            path = existing.view_path(held.key)
            existing.move_into_place(folder, path, problem=lambda: existing.find_problem(held.key))
            return path, unread

    def _build_view(self, folder: Path, sources: SourceContents, base: Path | None, *, durable: bool) -> SourceContents:
        """Return the files that the view contains."""
        from vmrag_link.index.draft import Draft

        before, view = SourceContents((), {}), IndexView()
        if base and not find_damaged_segments(base):
            before, view = read_contents(base), views.read_view(base)
        with Draft(self.views.segments, view) as draft:
            left_out, unread = self._add_files(draft, sources, before, _remove_changed(draft, sources, before))
            storage.make_folder(folder)
            tags = {
                name: {path: tag for path, tag in files.items() if path not in unread[name]}
                for name, files in sources.tags.items()
            }
            contents = msgspec.structs.replace(sources, tags=tags, left_out=left_out)
            storage.write_file(folder / FILE_NAME, msgspec.msgpack.encode(contents))
            draft.publish(folder, revision=contents.key, durable=durable)
            return contents

    def _add_files(
        self, draft: Draft, contents: SourceContents, before: SourceContents, stay: Mapping[str, set[str]]
    ) -> tuple[dict[str, dict[str, NoDocument]], dict[str, set[str]]]:
        """Read and add the files that are not in `stay`. Return the files that are not documents,
        and those that were not read because of their cost.
        """
        left_out: dict[str, dict[str, NoDocument]] = {}
        new: dict[str, list[str]] = {}
        for name, tags in contents.tags.items():
            left_out_before, kept = before.left_out.get(name, {}), stay.get(name, set())
            left_out[name] = {
                path: reason for path, reason in left_out_before.items() if path in kept and not reason.is_local
            }
            # Files that failed on this machine come last, because they may be slow again.
            again = [path for path, reason in left_out_before.items() if reason.is_local and path in tags]
            new[name] = [*(path for path in tags if path not in kept and path not in again), *again]
        unread = {name: set(paths) for name, paths in new.items()}

        def read_documents(name: str) -> Iterator[Document]:
            for path, file in self.read_files(name, new[name]):
                unread[name].discard(path)
                if isinstance(file, Document):
                    yield file
                else:
                    left_out[name][path] = file

        with self.progress.task(INDEXING, sum(map(len, new.values()))) as task:
            lacking = {name: why for name, why in draft.unembedded().items() if name in contents.tags}
            by_collection = ((name, read_documents(name)) for name in sorted(new) if new[name])
            self.indexer().add_documents(draft, by_collection, task, lacking=lacking)
        return left_out, unread


def _find_nearest(existing: Views, contents: SourceContents, held: contextlib.ExitStack) -> Path | None:
    """Return the intact view with the fewest differing files, locked in `held`."""
    best: tuple[int, Path] | None = None
    total = _count_files(contents.tags)
    for view in existing.list_views()[:MOST_BASES]:
        with contextlib.suppress(IndexFailed):
            differing = _count_differing(read_contents(view.path).tags, contents.tags)
            if best is None or differing < best[0]:
                best = (differing, view.path)
            if differing <= max(NEAR, total // 10):
                break
    if best is None or best[0] > 2 * total:
        return None
    path = best[1]
    with contextlib.ExitStack() as reading:
        reading.enter_context(existing.lock_for_reading(path))
        if existing.find_problem(path.name.removesuffix(f"-{SUFFIX}")):
            return None
        held.enter_context(reading.pop_all())
    return path


def _select_part(contents: SourceContents, existing: Tags, max_files: int) -> tuple[SourceContents, int]:
    """Return the existing files that are wanted, with up to `max_files` more, and the number of the
    others.
    """
    part: dict[str, dict[str, str]] = {}
    remaining = 0
    for name, tags in contents.tags.items():
        same = existing.get(name, {})
        kept = {path: tag for path, tag in tags.items() if same.get(path) == tag}
        new = [path for path in tags if path not in kept]
        selected = set(new[:max_files])
        part[name] = {path: tag for path, tag in tags.items() if path in kept or path in selected}
        max_files, remaining = max_files - len(selected), remaining + len(new) - len(selected)
    return msgspec.structs.replace(contents, tags=part), remaining


def _count_files(tags: Tags) -> int:
    return sum(map(len, tags.values()))


def _count_differing(one: Tags, other: Tags) -> int:
    names = one.keys() | other.keys()
    return sum(len(one.get(name, {}).items() ^ other.get(name, {}).items()) for name in names)


def _remove_changed(draft: Draft, contents: SourceContents, before: SourceContents) -> dict[str, set[str]]:
    """Remove changed and unwanted files from the draft, and return the files that stay, by
    collection.
    """
    definitions = {collection.name: collection for collection in contents.collections}
    stay: dict[str, set[str]] = {}
    for name, held in draft.list_collections().items():
        if name not in definitions or not indexes_equally(held, definitions[name]):
            draft.drop_collection(name)
            continue
        draft.redefine_collection(definitions[name])
        tags, tags_before = contents.tags.get(name, {}), before.tags.get(name, {})
        without = before.left_out.get(name, {})
        stay[name] = {path for path, tag in tags_before.items() if tags.get(path) == tag}
        draft.remove_documents(
            name, sorted(path for path in tags_before if path not in stay[name] and path not in without)
        )
    for name in definitions.keys() - stay.keys():
        draft.create_collection(definitions[name])
    return stay
