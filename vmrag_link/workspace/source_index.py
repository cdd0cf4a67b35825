"""The index of the files that are documents, in the work tree or in a commit.

    .git/vmrag/sources/          views, shared by all work trees (`sync.source_views`)
    <git dir>/vmrag/tree/        of this work tree: `bound` (the view that answers for it, and its
                                 origin), `stats` (of files, like in git's own index)

No background process is needed for a correct answer: each reader compares the tree first, whichever
command moved HEAD.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from vmrag_link import __version__
from vmrag_link.engines.limits import MEGABYTE
from vmrag_link.errors import (
    Busy,
    FileFailed,
    GitBusy,
    IndexFailed,
    SourcesIncomplete,
    first_of,
    plural,
    refuses_writing,
)
from vmrag_link.git import plumbing
from vmrag_link.index import seal
from vmrag_link.index import view as views
from vmrag_link.index.views import Views
from vmrag_link.models import Document, encode_canonical_json
from vmrag_link.paths import Places
from vmrag_link.settings import Config, SourceSettings
from vmrag_link.workspace.worktree import STORED, OpenSources, WorkTree

if TYPE_CHECKING:
    from vmrag_link.sources.listings import NoDocument, SourceListing, TreeFile
    from vmrag_link.sources.work_tree import LastListing
    from vmrag_link.sync.adding import DocumentIndexer
    from vmrag_link.sync.source_views import SourceBinding, SourceContents, SourceIndexer
    from vmrag_link.workspace.source_tree import SourceTree
    from vmrag_link.workspace.sources import Sources

PROGRAM = f"{__version__} {views.FORMAT}"
"""Files that another version of the program read are read again."""

LEAST_STEP, MOST_STEPS = 500, 12
"""Number of files in the first view of a build in steps, and the maximum number of such views."""

ATTEMPTS = 5
"""Number of attempts to read files that other programs keep writing."""


class SourceIndex:
    """The views of the files of sources. Methods raise the errors of git, the models and the
    disk.
    """

    def __init__(self, ws: WorkTree, sources: Sources) -> None:
        self._ws = ws
        self._sources = sources
        self.in_steps = False
        """True to index only part of the files at a time, so that a kill keeps the finished
        part.
        """

    @property
    def views(self) -> Views:
        return Views(self._ws.places.source_views)

    # -- the work tree -----------------------------------------------------------------------------

    @contextlib.contextmanager
    def open_work_tree(self, *, stored: Collection[str] = ()) -> Iterator[OpenSources | None]:
        """Yield the view of the files in the work tree, or None without sources.

        `stored`: the collections of the knowledge base, whose names no source can have.
        """
        config = self._sources.config
        if not config.sources:
            yield None
            return
        damaged = False
        for attempt in range(ATTEMPTS):
            try:
                opened = self._provide_current(config, stored, damaged=damaged)
            except FileFailed:  # a file was written between two reads, or the disk is full
                if attempt == ATTEMPTS - 1:
                    raise
                continue
            with self.views.lock_for_reading(opened.folder):
                if not self.views.find_problem(opened.folder.name.partition("-")[0]):
                    yield opened
                    return
                damaged = True
        raise Busy(
            f"files of sources changed {ATTEMPTS} times while they were read.",
            hint="run the command again when no other program writes them",
        )

    def _provide_current(self, config: Config, stored: Collection[str], *, damaged: bool) -> OpenSources:
        """Return the view of the present files, and build it if it is missing. While git keeps
        writing its index, return the last one.

        `damaged`: the last view is damaged.
        """
        from vmrag_link.sync import source_views

        available, unavailable = self._sources.select_available(config, stored)
        settings = _encode_settings(config, available, unavailable)
        before = None if self._sources.with_untracked else source_views.read_binding(self._ws.places)
        last: OpenSources | None = None
        compared: LastListing | None = None
        if before and before.settings == settings and not damaged:
            last = _decode_binding(before, self._ws.places)
        if before and last:
            compared = self._compare_last_listing(config, available, before)
            if compared.token == before.token:
                return self._renew_counts(last, config, available)
        try:
            listing = self._sources.list_work_tree(available, last=compared)
        except GitBusy:
            if last is None:
                raise
            return last
        return self._build_current(config, available, unavailable, listing, settings)

    def _compare_last_listing(
        self, config: Config, sources: Sequence[SourceSettings], before: SourceBinding
    ) -> LastListing:
        """Return whether the files are those of the last listing.

        Files of submodules are always listed. While git is busy, nothing counts as changed.
        """
        from vmrag_link.sources import work_tree

        if not config.sources_submodules:
            return work_tree.compare_last_listing(
                self._ws.places,
                sources,
                max_bytes=config.sources_max_bytes,
                untracked=config.searches_untracked,
                cache=self._sources.cache_file,
            )
        from vmrag_link.sources.listings import compute_token

        try:
            return work_tree.LastListing(compute_token(self._sources.list_work_tree(sources)))
        except GitBusy:
            return work_tree.LastListing(before.token)

    def _renew_counts(self, last: OpenSources, config: Config, sources: Sequence[SourceSettings]) -> OpenSources:
        """Return the last view with the present commit, which may have equal files, and the present
        number of untracked files.
        """
        from vmrag_link.sources import rules, work_tree

        places, untracked = self._ws.places, config.searches_untracked
        unsearched = [source for source in sources if not rules.searches_untracked(source, untracked=untracked)]
        count = work_tree.count_untracked_files(places, unsearched) if unsearched else 0
        return msgspec.structs.replace(last, commit=plumbing.read_head(places).commit, untracked=count)

    def _build_current(
        self,
        config: Config,
        sources: tuple[SourceSettings, ...],
        unavailable: Mapping[str, str],
        listing: SourceListing,
        settings: str,
    ) -> OpenSources:
        """Provide the view of the listed files, and bind it to the work tree."""
        from vmrag_link.sources.listings import compute_token
        from vmrag_link.sync import source_views
        from vmrag_link.sync.source_views import SourceBinding

        places = self._ws.places
        ephemeral = any(file.uncommitted for files in listing.files.values() for file in files)
        contents = self._build_contents(config, sources, listing)
        indexer = self._build_indexer(config, sources, listing, commit=None)
        path, remaining, is_new = indexer.provide_view(
            contents, durable=not ephemeral, max_files=self._compute_step(listing)
        )
        opened = OpenSources(
            folder=path,
            collections=tuple(source.collection for source in sources),
            commit=plumbing.read_head(places).commit,
            uncommitted=_list_uncommitted(listing),
            removed=listing.removed,
            untracked=listing.untracked,
            missing=listing.missing,
            unavailable=unavailable,
            failed=_list_failed(path),
            indexed=_compute_percent(listing, remaining),
        )
        more = msgspec.msgpack.encode(opened, enc_hook=str)
        binding = SourceBinding("" if remaining else compute_token(listing), settings, path.name, ephemeral, more)
        if path not in seal.MEMORY_FOLDERS and not self._sources.with_untracked:
            try:
                source_views.write_binding(places, binding)
            except OSError as error:
                if not refuses_writing(error):  # on a read-only disk, the next call lists the files again
                    raise
        if is_new:
            self._evict_views(path)
        return opened

    def _compute_step(self, listing: SourceListing) -> int | None:
        """Return the number of files to index now, or None for all."""
        return max(LEAST_STEP, _count_files(listing) // MOST_STEPS) if self.in_steps else None

    def percent_indexed(self, tree: SourceTree) -> int:
        """Return the percentage of the work tree's files that are in the view that answers for
        it.
        """
        from vmrag_link.sync import source_views

        bound, total = source_views.read_binding(self._ws.places), _count_files(tree.listing)
        if not bound or not total:
            return 0
        try:
            indexed = source_views.read_contents(self.views.root / bound.view).tags
        except IndexFailed:
            return 0
        current = self._build_contents(self._sources.config, tree.sources, tree.listing).tags
        same = sum(len(files.items() & indexed.get(name, {}).items()) for name, files in current.items())
        return 100 * same // total

    def _evict_views(self, built: Path) -> None:
        """Remove spare views after one was built."""
        from vmrag_link.sync import source_views

        if built in seal.MEMORY_FOLDERS:
            return
        keep_bytes = self._ws.settings.config.index.keep_mb * MEGABYTE
        source_views.evict_views(self._ws.places, keep_bytes=keep_bytes)
        self.views.segments.remove_unfinished()
        self.views.segments.collect_garbage(self._ws.places.view_folders)

    def distrust_view(self) -> None:
        """Verify the view of this work tree completely from now on. If it is damaged, it is built
        again.
        """
        from vmrag_link.sync import source_views

        if bound := source_views.read_binding(self._ws.places):
            views.require_verification(self.views.root / bound.view)

    # -- commits -----------------------------------------------------------------------------------

    @contextlib.contextmanager
    def open_commit(
        self, commit: str, config: Config, *, stored: Collection[str] | None = None
    ) -> Iterator[OpenSources | None]:
        """Yield the view of the files in a commit's tree, by the sources of its own settings, or
        None without sources.

        `stored`: collections whose names no source can have, instead of those of
        `Sources.list_stored_at`.
        """
        if not config.sources:
            yield None
            return
        available, unavailable = self._sources.select_available(
            config, self._sources.list_stored_at(commit) if stored is None else stored
        )
        listing = self._sources.list_commit(commit, available, config)
        contents = self._build_contents(config, available, listing)
        borrowed = self._sources.get_reading_places(config, commit).borrowed
        for _ in range(ATTEMPTS):
            indexer = self._build_indexer(config, available, listing, commit=commit)
            path, remaining, is_new = indexer.provide_view(
                contents, durable=True, max_files=self._compute_step(listing)
            )
            with self.views.lock_for_reading(path):
                if not self.views.find_problem(path.name.partition("-")[0]):
                    if is_new:
                        self._evict_views(path)
                    names = tuple(source.collection for source in available)
                    yield OpenSources(
                        path,
                        names,
                        commit,
                        missing=listing.missing,
                        unavailable=unavailable,
                        failed=_list_failed(path),
                        indexed=_compute_percent(listing, remaining),
                        objects=borrowed.objects if borrowed else (),
                    )
                    return
        raise Busy(
            f"other processes removed the index of sources {ATTEMPTS} times while it was opened.",
            hint="run the command again",
        )

    def read_contents_at(self, commit: str, config: Config) -> SourceContents:
        """Return the values that determine the documents of a commit. Raises
        `SourcesIncomplete`.
        """
        available, unavailable = self._sources.select_available(config, self._sources.list_stored_at(commit))
        listing = self._sources.list_commit(commit, available, config)
        return self._build_contents(config, available, _check_complete(listing, unavailable))

    def read_contents(self) -> SourceContents:
        """Return the values that determine the documents of the work tree. Raises
        `SourcesIncomplete`.
        """
        available, unavailable = self._sources.select_available(
            self._sources.config, self._ws.list_stored_collections()
        )
        return self._build_contents(
            self._sources.config, available, _check_complete(self._sources.list_work_tree(available), unavailable)
        )

    # -- building ----------------------------------------------------------------------------------

    def _build_contents(
        self, config: Config, sources: Iterable[SourceSettings], listing: SourceListing
    ) -> SourceContents:
        from vmrag_link.embedding import registry
        from vmrag_link.sources import documents
        from vmrag_link.sync.source_views import SourceContents

        # The settings of a repository are not enough to send its files to a service.
        name = config.embedding.model
        model = self._ws.models.load_named(name if name in registry.LOCAL_MODELS else "default")
        tags = {
            source.collection: {
                file.doc_id: documents.compute_tag(source, file) for file in listing.files.get(source.collection, ())
            }
            for source in sources
        }
        collections = tuple(documents.build_collection(source, model) for source in sources)
        paths = {
            source.collection: {file.doc_id: file.path for file in listing.files.get(source.collection, ())}
            for source in sources
            if source.write
        }
        return SourceContents(collections, tags, paths=paths)

    def _build_indexer(
        self, config: Config, sources: Sequence[SourceSettings], listing: SourceListing, *, commit: str | None
    ) -> SourceIndexer:
        from vmrag_link.code import languages
        from vmrag_link.sources import documents
        from vmrag_link.sync.source_views import SourceIndexer

        by_name = {source.collection: source for source in sources}
        budget = languages.CutBudget(languages.ANSWER_SECONDS)

        def read_documents(collection: str, paths: Sequence[str]) -> Iterator[tuple[str, Document | NoDocument]]:
            by_id = {file.doc_id: file for file in listing.files[collection]}
            files: list[TreeFile] = [by_id[doc_id] for doc_id in paths]
            read_texts = documents.read_texts_at_commit if commit else documents.read_texts_in_work_tree
            places = self._sources.get_reading_places(config, commit)
            return documents.build_documents(by_name[collection], files, read_texts(places, files), budget)

        return SourceIndexer(
            views=self.views,
            read_files=read_documents,
            indexer=self._create_document_indexer,
            progress=self._ws.progress,
            patience=self._ws.settings.lock_timeout,
        )

    def _create_document_indexer(self) -> DocumentIndexer:
        from vmrag_link.sync.adding import DocumentIndexer

        return DocumentIndexer(self._ws.embedding_cache, self._ws.models.load_for, self._ws.progress)


def _count_files(listing: SourceListing) -> int:
    return sum(map(len, listing.files.values()))


def build_without_index(tree: SourceTree) -> OpenSources:
    """Return the record of a place whose files are read without an index. Its folder is empty."""
    listing = tree.listing
    return OpenSources(
        Path(),
        tuple(source.collection for source in tree.sources),
        tree.commit,
        uncommitted=_list_uncommitted(listing),
        removed=listing.removed,
        untracked=listing.untracked,
        missing=listing.missing,
        unavailable=tree.unavailable,
    )


def _compute_percent(listing: SourceListing, remaining: int) -> int:
    total = _count_files(listing)
    return 100 * (total - remaining) // total if remaining else 100


def _decode_binding(bound: SourceBinding, places: Places) -> OpenSources | None:
    """Return the decoded view in the repository's present place, because the repository may have
    been moved. None if it is damaged.
    """
    try:
        opened = msgspec.msgpack.decode(bound.more, type=OpenSources, dec_hook=lambda _, value: Path(value))
    except (UnicodeDecodeError, msgspec.DecodeError):
        return None
    return msgspec.structs.replace(opened, folder=places.source_views / bound.view)


def _check_complete(listing: SourceListing, unavailable: Mapping[str, str]) -> SourceListing:
    require_complete(unavailable, listing.missing)
    return listing


def require_complete(
    unavailable: Mapping[str, str], missing: Sequence[str], failed: Sequence[str] = (), indexed: int = 100
) -> None:
    """Raise `SourcesIncomplete` if another machine would find more. The arguments are those of
    `OpenSources`.
    """
    for name, why in unavailable.items():
        if why != STORED:
            raise SourcesIncomplete(
                f"the collection {name!r} is unavailable: {why}.",
                hint="run 'vmrag sources' to show how to fix it",
                collection_name=name,
            )
    if submodules := [path for path in missing if path.endswith("/")]:
        raise SourcesIncomplete(
            f"{plural(len(submodules), 'submodule')} cannot be read in this clone: {first_of(submodules, 3)}.",
            hint="run 'git submodule update --init --recursive' to fetch the submodules",
            missing=list(missing[:100]),
        )
    if missing:
        raise SourcesIncomplete(
            f"{plural(len(missing), 'file')} of sources cannot be read, because this clone is incomplete: "
            f"{first_of(missing, 3)}.",
            hint="run 'git fetch --refetch' in a partial clone, or 'git fetch --unshallow' in a shallow one",
            missing=list(missing[:100]),
        )
    if failed:
        raise SourcesIncomplete(
            f"{plural(len(failed), 'file')} of sources could not be split into chunks on this machine: {first_of(failed, 3)}.",
            hint="run 'vmrag sources' to show the reasons",
            failed=list(failed[:100]),
        )
    if indexed < 100:  # noqa: PLR2004  percent
        raise SourcesIncomplete(
            f"{indexed} % of the files of sources are indexed.",
            hint="run the command again to continue",
            indexed=indexed,
        )


def _encode_settings(config: Config, available: Sequence[SourceSettings], unavailable: Mapping[str, str]) -> str:
    """Return what determines the view of the same files."""
    limits = (config.sources_max_bytes, config.searches_untracked)
    submodules = [True] if config.sources_submodules else []
    return encode_canonical_json(
        [PROGRAM, _list_grammars(available), available, unavailable, limits, config.embedding.model, *submodules]
    )


def _list_grammars(sources: Sequence[SourceSettings]) -> object:
    """Return a value that differs if other grammars are installed, or used differently."""
    if all(source.kind != "code" for source in sources):
        return None
    from vmrag_link.code import languages

    return languages.RULES, languages.RULES_OF_LINES, languages.read_stamps()


def _list_uncommitted(listing: SourceListing) -> dict[str, dict[str, str]]:
    uncommitted: dict[str, dict[str, str]] = {
        name: {file.doc_id: file.uncommitted for file in files if file.uncommitted}
        for name, files in listing.files.items()
    }
    return {name: files for name, files in uncommitted.items() if files}


def _list_failed(folder: Path) -> tuple[str, ...]:
    from vmrag_link.sync import source_views

    left_out = source_views.read_contents(folder).left_out
    return tuple(path for files in left_out.values() for path, file in files.items() if file.is_local)
