"""The sources of a work tree: the files of its tree that are documents, and the index of them.

    .git/vmrag/sources/          views, shared by all work trees (`sync.source_views`)
    <git dir>/vmrag/tree/        of this work tree: `bound` (the view that answers for it, and its
                                 origin), `stats` (of files, like in git's own index)

No background process is needed for a correct answer: each reader compares the tree first, whichever
command moved HEAD.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from vmrag_link import __version__
from vmrag_link import trust as trusted
from vmrag_link.engines import opening
from vmrag_link.engines.limits import MEGABYTE
from vmrag_link.engines.migrated import read_pin
from vmrag_link.errors import (
    Busy,
    FileFailed,
    GitBusy,
    IndexFailed,
    PinMalformed,
    ServerUnreachable,
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
from vmrag_link.paths import CONFIG_NAME, PIN_NAME, PIN_READ_LIMIT, Places
from vmrag_link.settings import Config, SourceSettings
from vmrag_link.workspace.worktree import STORED, OpenSources

if TYPE_CHECKING:
    from vmrag_link.git.submodules import Submodule
    from vmrag_link.sources.listings import NoDocument, SourceListing, TreeFile
    from vmrag_link.sync.adding import DocumentIndexer
    from vmrag_link.sync.source_views import SourceBinding, SourceContents, SourceIndexer
    from vmrag_link.workspace.source_tree import SourceTree
    from vmrag_link.workspace.worktree import WorkTree

PROGRAM = f"{__version__} {views.FORMAT}"
"""Files that another version of the program read are read again."""

LEAST_STEP, MOST_STEPS = 500, 12
"""Number of files in the first view of a build in steps, and the maximum number of such views."""

ATTEMPTS = 5
"""Number of attempts to read files that other programs keep writing."""


class Sources:
    """The sources of a work tree. Methods raise the errors of git, the models and the disk."""

    def __init__(self, ws: WorkTree) -> None:
        self._ws = ws
        self._proposals: tuple[SourceSettings, ...] | None = None
        self._with_untracked = False
        self.in_steps = False
        """True to index only part of the files at a time, so that a kill keeps the finished
        part.
        """

    @property
    def views(self) -> Views:
        return Views(self._ws.places.source_views)

    @property
    def configured(self) -> tuple[SourceSettings, ...]:
        """The sources of the checked-out `.vmrag.yaml`. In a repository without vmrag, those that
        `vmrag init` would propose. Raises `ConfigInvalid`.
        """
        return self.config.sources

    def find_writable(self, collection: str | None = None) -> SourceSettings | None:
        """Return the writable source of a collection, or the first one. None if there is none."""
        named = (source for source in self.configured if source.write and collection in (None, source.collection))
        return next(named, None)

    @property
    def config(self) -> Config:
        """The settings, with these sources. Raises `ConfigInvalid`."""
        config = self._ws.settings.config
        if self._with_untracked:
            config = msgspec.structs.replace(config, sources_untracked="true")
        if config.sources or not self.is_proposed:
            return config
        return msgspec.structs.replace(config, sources=self.propose())

    @contextlib.contextmanager
    def searching_untracked(self) -> Iterator[None]:
        """Treat untracked files as documents in the block, regardless of the settings."""
        before, self._with_untracked = self._with_untracked, not self._ws.settings.config.searches_untracked
        try:
            yield
        finally:
            self._with_untracked = before

    def read_config_at(self, ref: str, *, default: Config | None = None) -> Config:
        """Return the settings, like `config`, of the commit that a git ref names.

        `default`: the settings of a commit without vmrag, instead of the sources that `vmrag init`
        would propose. Raises `ConfigInvalid`, `GitReferenceMissing`.
        """
        config, places = trusted.load_at(self._ws.places, ref).config, self._ws.places
        if config.sources or any(
            plumbing.read_blob(places, f"{ref}:{name}") is not None for name in (CONFIG_NAME, PIN_NAME)
        ):
            return config
        if default:
            return default
        from vmrag_link.git import raw_changes
        from vmrag_link.sources import first_bytes, proposal

        blobs = raw_changes.list_blobs(places, ref)
        beginnings = functools.partial(first_bytes.read_from_blobs, places, blobs)
        return msgspec.structs.replace(config, sources=proposal.propose_sources(blobs, beginnings))

    @property
    def is_proposed(self) -> bool:
        """True if the checkout has neither settings nor a pin, so that the proposed sources are
        used.
        """
        return not (self._ws.places.config.exists() or self._ws.places.pin.exists())

    def propose(self) -> tuple[SourceSettings, ...]:
        """Return the sources that `vmrag init` proposes."""
        if self._proposals is None:
            from vmrag_link.git import listing

            self._proposals = self.propose_for(
                listing.list_tracked_files(self._ws.places), self._ws.list_stored_collections()
            )
        return self._proposals

    def propose_for(self, paths: Iterable[str], stored: Collection[str] = ()) -> tuple[SourceSettings, ...]:
        """Return proposed sources for the readable files among these files of the work tree."""
        from vmrag_link.sources import first_bytes, proposal

        beginnings = functools.partial(first_bytes.read_in_work_tree, self._ws.places)
        return proposal.propose_sources(paths, beginnings, stored=stored)

    def list_stored_at(self, commit: str) -> Collection[str]:
        """Return the collections of the revision that a commit pins, whose names its sources cannot
        have. Empty if the revision is missing.
        """
        if not opening.engine_exists(self._ws.places.kb):
            return ()
        try:
            data = plumbing.read_blob(self._ws.places, f"{commit}:{PIN_NAME}", limit=PIN_READ_LIMIT)
            revision = read_pin(self._ws.places.kb, data).dolt_commit if data else None
        except PinMalformed:
            return ()
        try:
            if revision and self._ws.engine.has_revision(revision):
                return [collection.name for collection in self._ws.engine.list_collections(revision)]
        except ServerUnreachable:
            if self._ws.views.find_problem(revision or ""):
                raise
            return views.read_view(self._ws.views.view_path(revision or "")).collections
        return ()

    # -- the work tree -----------------------------------------------------------------------------

    @contextlib.contextmanager
    def open_work_tree(self, *, stored: Collection[str] = ()) -> Iterator[OpenSources | None]:
        """Yield the view of the files in the work tree, or None without sources.

        `stored`: the collections of the knowledge base, whose names no source can have.
        """
        config = self.config
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
            hint="Run the command again when no other program writes them.",
        )

    def _provide_current(self, config: Config, stored: Collection[str], *, damaged: bool) -> OpenSources:
        """Return the view of the present files, and build it if it is missing. While git keeps
        writing its index, return the last one.

        `damaged`: the last view is damaged.
        """
        from vmrag_link.sources import rules, work_tree
        from vmrag_link.sources.listings import compute_token
        from vmrag_link.sync import source_views
        from vmrag_link.sync.source_views import SourceBinding

        available, unavailable = self.select_available(config, stored)
        limits = (config.sources_max_bytes, config.searches_untracked)
        submodules = [True] if config.sources_submodules else []
        settings = encode_canonical_json(
            [PROGRAM, _list_grammars(available), available, unavailable, limits, config.embedding.model, *submodules]
        )
        places, (max_bytes, untracked) = self._ws.places, limits
        cache, before = self._cache_file, None if self._with_untracked else source_views.read_binding(places)
        last = _decode_binding(before, places) if before and before.settings == settings and not damaged else None
        if before and last:
            if config.sources_submodules:
                token: str | None = self._compute_token(available, before)
            else:
                token = work_tree.read_unchanged_token(
                    places, available, max_bytes=max_bytes, untracked=untracked, cache=cache
                )
            if token == before.token:  # possibly another commit with equal files
                unsearched = [
                    source for source in available if not rules.searches_untracked(source, untracked=untracked)
                ]
                others = work_tree.count_untracked_files(places, unsearched) if unsearched else 0
                return msgspec.structs.replace(last, commit=plumbing.read_head(places).commit, untracked=others)
        try:
            listing = self.list_work_tree(available)
        except GitBusy:
            if last is None:
                raise
            return last
        ephemeral = any(file.uncommitted for files in listing.files.values() for file in files)
        contents = self._build_contents(config, available, listing)
        indexer = self._build_indexer(config, available, listing, commit=None)
        path, remaining, is_new = indexer.provide_view(
            contents, durable=not ephemeral, max_files=self._compute_step(listing)
        )
        opened = OpenSources(
            folder=path,
            collections=tuple(source.collection for source in available),
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
        if path not in seal.MEMORY_FOLDERS and not self._with_untracked:
            try:
                source_views.write_binding(places, binding)
            except OSError as error:
                if not refuses_writing(error):  # on a read-only disk, the next call lists the files again
                    raise
        if is_new:
            self._evict_views(path)
        return opened

    @property
    def _cache_file(self) -> Path:
        """The cache for the state of files. A query with `--untracked` has its own."""
        return self._ws.places.source_state / ("untracked" if self._with_untracked else "stats")

    def _compute_token(self, sources: Sequence[SourceSettings], before: SourceBinding) -> str:
        """Return the token of the files, including those of submodules. While git is busy, return
        the last one.
        """
        from vmrag_link.sources.listings import compute_token

        try:
            return compute_token(self.list_work_tree(sources))
        except GitBusy:
            return before.token

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
        current = self._build_contents(self.config, tree.sources, tree.listing).tags
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

        `stored`: collections whose names no source can have, instead of those of `list_stored_at`.
        """
        if not config.sources:
            yield None
            return
        available, unavailable = self.select_available(
            config, self.list_stored_at(commit) if stored is None else stored
        )
        listing = self.list_commit(commit, available, config)
        contents = self._build_contents(config, available, listing)
        borrowed = self.get_reading_places(config, commit).borrowed
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
            hint="Run the command again.",
        )

    def read_contents_at(self, commit: str, config: Config) -> SourceContents:
        """Return the values that determine the documents of a commit. Raises
        `SourcesIncomplete`.
        """
        available, unavailable = self.select_available(config, self.list_stored_at(commit))
        listing = self.list_commit(commit, available, config)
        return self._build_contents(config, available, _check_complete(listing, unavailable))

    def read_contents(self) -> SourceContents:
        """Return the values that determine the documents of the work tree. Raises
        `SourcesIncomplete`.
        """
        available, unavailable = self.select_available(self.config, self._ws.list_stored_collections())
        return self._build_contents(
            self.config, available, _check_complete(self.list_work_tree(available), unavailable)
        )

    def list_work_tree(self, sources: Sequence[SourceSettings]) -> SourceListing:
        """Return the files of these sources in the work tree."""
        from vmrag_link.sources import work_tree

        config, places = self.config, self._ws.places
        max_bytes, untracked = config.sources_max_bytes, config.searches_untracked
        list_files = work_tree.list_in_work_tree
        if config.sources_submodules:
            from vmrag_link.sources import submodule_files

            list_files = submodule_files.list_in_work_tree
        return list_files(places, sources, max_bytes=max_bytes, untracked=untracked, cache=self._cache_file)

    def list_commit(self, commit: str, sources: Sequence[SourceSettings], config: Config) -> SourceListing:
        """Return the files of these sources at a commit."""
        from vmrag_link.sources import listings, selection

        notes = any(source.write for source in sources)
        stored = listings.read_listing(self._cache_file) if notes else None
        before = stored.listing if stored else None
        list_files = selection.list_at_commit
        if config.sources_submodules:
            from vmrag_link.sources import submodule_files

            list_files = submodule_files.list_at_commit
        return list_files(self._ws.places, commit, sources, max_bytes=config.sources_max_bytes, before=before)

    def find_submodules(self, config: Config, commit: str | None) -> list[Submodule]:
        """Return the submodules that the sources read at a commit, or in the work tree."""
        if not config.sources_submodules:
            return []
        from vmrag_link.sources import submodule_files

        return submodule_files.find_source_submodules(self._ws.places, config.sources, commit)

    def get_reading_places(self, config: Config, commit: str | None) -> Places:
        """Return the places with which git reads the files of the sources."""
        nested = self.find_submodules(config, commit)
        if not nested:
            return self._ws.places
        from vmrag_link.git import submodules

        return submodules.lend_objects(self._ws.places, nested)

    # -- parts -------------------------------------------------------------------------------------

    def select_available(
        self, config: Config, stored: Collection[str]
    ) -> tuple[tuple[SourceSettings, ...], dict[str, str]]:
        """Return the sources that can be searched in this clone, and why others cannot, by
        collection.
        """
        from vmrag_link.sources import rules

        unavailable = {source.collection: self._find_problem(source, stored) for source in config.sources}
        unavailable = {name: why for name, why in unavailable.items() if why}
        available = tuple(source for source in config.sources if source.collection not in unavailable)
        return rules.exclude_notes(available), unavailable

    def _find_problem(self, source: SourceSettings, stored: Collection[str]) -> str:
        if source.collection in stored and not source.write:  # notes hide stored documents
            return STORED
        if source.kind == "code":
            from vmrag_link.code import languages

            return languages.find_source_problem(source.paths)
        return ""

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
            places = self.get_reading_places(config, commit)
            return documents.build_documents(by_name[collection], files, read_texts(places, files), budget)

        return SourceIndexer(self.views, read_documents, self._create_document_indexer, self._ws.progress)

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
                hint="vmrag sources   (shows how to fix it)",
                collection_name=name,
            )
    if submodules := [path for path in missing if path.endswith("/")]:
        raise SourcesIncomplete(
            f"{plural(len(submodules), 'submodule')} cannot be read in this clone: {first_of(submodules, 3)}.",
            hint="git submodule update --init --recursive",
            missing=list(missing[:100]),
        )
    if missing:
        raise SourcesIncomplete(
            f"{plural(len(missing), 'file')} of sources cannot be read, because this clone is incomplete: "
            f"{first_of(missing, 3)}.",
            hint="git fetch --refetch   (in a partial clone; in a shallow one: git fetch --unshallow)",
            missing=list(missing[:100]),
        )
    if failed:
        raise SourcesIncomplete(
            f"{plural(len(failed), 'file')} of sources could not be cut on this machine: {first_of(failed, 3)}.",
            hint="vmrag sources   (shows the reasons)",
            failed=list(failed[:100]),
        )
    if indexed < 100:  # noqa: PLR2004  percent
        raise SourcesIncomplete(
            f"{indexed} % of the files of sources are indexed.",
            hint="Run the command again: it continues.",
            indexed=indexed,
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
