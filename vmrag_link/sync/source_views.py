"""Views of sources: indexes of files of the code's tree.

    .git/vmrag/sources/<contents>-<format>/     a view, and the file `files`

They are named by what they were made of, so that equal files are indexed once, whatever commit or
work tree has them. Their segments lie among those of the knowledge base.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from vmrag_link.errors import FileFailed, IndexFailed, refuses_writing
from vmrag_link.index import storage
from vmrag_link.index import view as views
from vmrag_link.index.directories import lock_path, remove_orphaned_lock
from vmrag_link.index.view import SUFFIX, IndexView, find_damaged_segments, indexes_equally
from vmrag_link.index.views import MemoryViews, Views
from vmrag_link.models import Collection, Document, Record, encode_canonical_json
from vmrag_link.paths import TREE, Places, write_atomically
from vmrag_link.progress import INDEXING, Progress
from vmrag_link.sources.listings import NoDocument
from vmrag_link.sync.binding import list_worktree_folders
from vmrag_link.sync.chroma_state import read_committed

if TYPE_CHECKING:
    from vmrag_link.index.draft import Draft
    from vmrag_link.sync.adding import DocumentIndexer

FILE_NAME = "files"
BINDING_NAME = "bound"
"""In a work tree's own folder: what answers for it (`SourceBinding`)."""

MOST_BASES = 8
"""Views that are looked at for the nearest one, the latest first."""

NEAR = 100

Tags = Mapping[str, Mapping[str, str]]
"""By collection and path: the blob, and what cut it."""


class SourceContents(Record, frozen=True):
    """What a view of sources was made of. `left_out`: which files it does not hold, by collection
    and path.
    """

    collections: tuple[Collection, ...]
    tags: Tags
    left_out: Mapping[str, Mapping[str, NoDocument]] = {}
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
    """What answers for a work tree: `view`, by the name of its folder.

    `token`: how the files were; `settings`: what they were read by. `ephemeral`: some are in no
    commit. `more`: what else is said of them, as its maker encoded it.
    """

    token: str
    settings: str
    view: str
    ephemeral: bool
    more: bytes


Read = Callable[[str, Sequence[str]], Iterable[tuple[str, Document | NoDocument]]]
"""Reads files of a collection, by path, as documents: as many of them, in this order, as one answer
may cost.
"""


def read_contents(folder: Path) -> SourceContents:
    """Raises `IndexFailed`."""
    try:
        return msgspec.msgpack.decode(storage.read_file(folder / FILE_NAME), type=SourceContents)
    except (OSError, UnicodeDecodeError, msgspec.DecodeError) as error:
        raise IndexFailed(f"{folder.name} does not say of which files it was made: {error}") from error


def read_binding(places: Places) -> SourceBinding | None:
    """What answers for a work tree; None if that is not known."""
    return _read_binding(places.source_state / BINDING_NAME)


def write_binding(places: Places, binding: SourceBinding) -> None:
    """Let a view answer for a work tree. One of before that had uncommitted files goes."""
    before = read_binding(places)
    write_atomically(places.source_state / BINDING_NAME, msgspec.msgpack.encode(binding), durable=False)
    kept = Views(places.source_views)
    if before and before.ephemeral and before.view != binding.view:
        if kept.remove_if_unused(kept.root / before.view, unless=lambda: list_bound_views(places)):
            remove_orphaned_lock(lock_path(kept.root / before.view))
        kept.segments.collect_garbage(places.view_folders)


def list_bound_views(places: Places) -> set[Path]:
    """The views of sources that some work tree answers from, or its Chroma store is made of."""
    folders = list(list_worktree_folders(places))
    bindings = [_read_binding(folder / TREE / BINDING_NAME) for folder in folders]
    committed = [read_committed(folder) for folder in folders]
    bound = {places.source_views / binding.view for binding in bindings if binding}
    return bound | {Views(places.source_views).view_path(files.view) for files in committed if files and files.view}


def evict_views(places: Places, *, keep_bytes: int) -> None:
    """Remove the spare views of sources beyond the limit, and what killed builders left."""
    kept = Views(places.source_views)
    kept.remove_unfinished()
    kept.evict_spare(bound=lambda: list_bound_views(places), keep_bytes=keep_bytes)


def _read_binding(path: Path) -> SourceBinding | None:
    try:
        return msgspec.msgpack.decode(path.read_bytes(), type=SourceBinding)
    except (OSError, UnicodeDecodeError, msgspec.DecodeError):
        return None


class SourceView(NamedTuple):
    """A view's folder, how many files it still lacks, and whether it was not there before."""

    folder: Path
    remaining: int
    is_new: bool


class SourceIndexer(NamedTuple):
    """Makes views of sources. `indexer` is called only if something has to be indexed."""

    views: Views
    read_files: Read
    indexer: Callable[[], DocumentIndexer]
    progress: Progress

    def provide_view(self, wanted: SourceContents, *, durable: bool, most: int | None = None) -> SourceView:
        """A usable view of these files; where there is none, it is derived from the nearest one.

        `durable`: it survives a power cut. `most`: index so many files now, and leave others to
        the next call. A view that cannot be written is kept in memory. Raises what `read_files`
        and models raise.
        """
        try:
            return self.make_view(wanted, durable=durable, most=most)
        except (OSError, FileFailed, IndexFailed) as error:
            if not refuses_writing(error):
                raise
        return self._replace(views=MemoryViews(self.views.root)).make_view(wanted, durable=durable, most=most)

    def make_view(self, wanted: SourceContents, *, durable: bool, most: int | None) -> SourceView:
        """Provide a view at one place. Raises if it cannot be written."""
        kept = self.views
        with kept.segments.pause_collection(), contextlib.ExitStack() as held:
            base = _find_nearest(kept, wanted, held) if kept.find_problem(wanted.key) else None
            left = 0
            if most is not None and kept.find_problem(wanted.key):
                wanted, left = _take_part(wanted, read_contents(base).tags if base else {}, most)
            if not kept.find_problem(wanted.key):
                path = kept.view_path(wanted.key)
                kept.mark_used(path)
                return SourceView(path, left, is_new=False)
            path, unread = self._derive(wanted, base, durable=durable)
            return SourceView(path, left + unread, is_new=True)

    def _derive(self, wanted: SourceContents, base: Path | None, *, durable: bool) -> tuple[Path, int]:
        """Return a new view, and how many of the files it lacks."""
        kept = self.views
        with kept.temporary_folder() as folder:
            try:
                held = self._build(folder, wanted, base, durable=durable)
            except IndexFailed:  # damage may show only when a segment is taken over
                if base is None:
                    raise
                held = self._build(folder, wanted, None, durable=durable)
            unread = _count(wanted.tags) - _count(held.tags)
            if durable:
                return kept.publish(folder, held.key), unread
            path = kept.view_path(held.key)
            kept.move_into_place(folder, path, problem=lambda: kept.find_problem(held.key))
            return path, unread

    def _build(self, folder: Path, wanted: SourceContents, base: Path | None, *, durable: bool) -> SourceContents:
        """Return what the view holds of the files."""
        from vmrag_link.index.draft import Draft

        before, view = SourceContents((), {}), IndexView()
        if base and not find_damaged_segments(base):
            before, view = read_contents(base), views.read_view(base)
        with Draft(self.views.segments, view) as draft:
            left_out, unread = self._add(draft, wanted, before, _take_over(draft, wanted, before))
            storage.make_folder(folder)
            tags = {
                name: {path: tag for path, tag in files.items() if path not in unread[name]}
                for name, files in wanted.tags.items()
            }
            contents = msgspec.structs.replace(wanted, tags=tags, left_out=left_out)
            storage.write_file(folder / FILE_NAME, msgspec.msgpack.encode(contents))
            draft.publish(folder, revision=contents.key, durable=durable)
            return contents

    def _add(
        self, draft: Draft, wanted: SourceContents, before: SourceContents, stay: Mapping[str, set[str]]
    ) -> tuple[dict[str, dict[str, NoDocument]], dict[str, set[str]]]:
        """Read and add the files that do not `stay` as they are. Return which are no documents, and
        which were not read, because that would cost too much now.
        """
        left_out: dict[str, dict[str, NoDocument]] = {}
        new: dict[str, list[str]] = {}
        for name, tags in wanted.tags.items():
            known, kept = before.left_out.get(name, {}), stay.get(name, set())
            left_out[name] = {path: each for path, each in known.items() if path in kept and not each.here}
            # Files that failed here come last: they may cost much again.
            again = [path for path, each in known.items() if each.here and path in tags]
            new[name] = [*(path for path in tags if path not in kept and path not in again), *again]
        unread = {name: set(paths) for name, paths in new.items()}

        def documents(name: str) -> Iterator[Document]:
            for path, file in self.read_files(name, new[name]):
                unread[name].discard(path)
                if isinstance(file, Document):
                    yield file
                else:
                    left_out[name][path] = file

        with self.progress.task(INDEXING, sum(map(len, new.values()))) as task:
            lacking = {name: why for name, why in draft.unembedded().items() if name in wanted.tags}
            some = ((name, documents(name)) for name in sorted(new) if new[name])
            self.indexer().add_documents(draft, some, task, lacking=lacking)
        return left_out, unread


def _find_nearest(kept: Views, wanted: SourceContents, held: contextlib.ExitStack) -> Path | None:
    """The sound view with the fewest other files, locked in `held`."""
    best: tuple[int, Path] | None = None
    total = _count(wanted.tags)
    for each in kept.list_views()[:MOST_BASES]:
        with contextlib.suppress(IndexFailed):
            differing = _count_differing(read_contents(each.path).tags, wanted.tags)
            if best is None or differing < best[0]:
                best = (differing, each.path)
            if differing <= max(NEAR, total // 10):
                break
    if best is None or best[0] > 2 * total:
        return None
    path = best[1]
    with contextlib.ExitStack() as reading:
        reading.enter_context(kept.lock_for_reading(path))
        if kept.find_problem(path.name.removesuffix(f"-{SUFFIX}")):
            return None
        held.enter_context(reading.pop_all())
    return path


def _take_part(wanted: SourceContents, there: Tags, most: int) -> tuple[SourceContents, int]:
    """What is there as it is wanted, with so many more files, and the number of the others."""
    part: dict[str, dict[str, str]] = {}
    left = 0
    for name, tags in wanted.tags.items():
        same = there.get(name, {})
        kept = {path: tag for path, tag in tags.items() if same.get(path) == tag}
        new = [path for path in tags if path not in kept]
        taken = set(new[:most])
        part[name] = {path: tag for path, tag in tags.items() if path in kept or path in taken}
        most, left = most - len(taken), left + len(new) - len(taken)
    return msgspec.structs.replace(wanted, tags=part), left


def _count(tags: Tags) -> int:
    return sum(map(len, tags.values()))


def _count_differing(one: Tags, other: Tags) -> int:
    names = one.keys() | other.keys()
    return sum(len(one.get(name, {}).items() ^ other.get(name, {}).items()) for name in names)


def _take_over(draft: Draft, wanted: SourceContents, before: SourceContents) -> dict[str, set[str]]:
    """Remove what is not wanted as it is, and return which files stay, by collection."""
    definitions = {collection.name: collection for collection in wanted.collections}
    stay: dict[str, set[str]] = {}
    for name, held in draft.list_collections().items():
        if name not in definitions or not indexes_equally(held, definitions[name]):
            draft.drop_collection(name)
            continue
        draft.redefine_collection(definitions[name])
        tags, there = wanted.tags.get(name, {}), before.tags.get(name, {})
        without = before.left_out.get(name, {})
        stay[name] = {path for path, tag in there.items() if tags.get(path) == tag}
        draft.remove_documents(name, sorted(path for path in there if path not in stay[name] and path not in without))
    for name in definitions.keys() - stay.keys():
        draft.create_collection(definitions[name])
    return stay
