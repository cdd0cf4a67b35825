"""The sources of a work tree: rules that make its files documents, and the files that match.

The setting `sources:` has these rules. A repository without vmrag uses the rules that `vmrag init`
would propose. A commit has its own rules. `source_index` indexes the files.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from vmrag_link import trust as trusted
from vmrag_link.engines import opening
from vmrag_link.engines.migrated import read_pin
from vmrag_link.errors import PinMalformed, ServerUnreachable
from vmrag_link.git import plumbing
from vmrag_link.paths import CONFIG_NAME, PIN_NAME, PIN_READ_LIMIT, Places
from vmrag_link.settings import Config, SourceSettings
from vmrag_link.workspace.worktree import STORED, WorkTree

if TYPE_CHECKING:
    from vmrag_link.git.submodules import Submodule
    from vmrag_link.sources.listings import SourceListing
    from vmrag_link.sources.work_tree import LastListing


class Sources:
    """The sources of a work tree and its commits. Methods raise the errors of git and the disk."""

    def __init__(self, ws: WorkTree) -> None:
        self._ws = ws
        self._proposals: tuple[SourceSettings, ...] | None = None
        self.with_untracked = False
        """True while untracked files are also documents (`searching_untracked`)."""

    @property
    def configured(self) -> tuple[SourceSettings, ...]:
        """The sources in the settings, or the proposed ones. Raises `ConfigInvalid`."""
        return self.config.sources

    def find_writable(self, collection: str | None = None) -> SourceSettings | None:
        """Return the writable source of a collection, or the first writable source, or None."""
        writable = (source for source in self.configured if source.write)
        return next((source for source in writable if collection in (None, source.collection)), None)

    @property
    def config(self) -> Config:
        """The settings with the configured or proposed sources. Raises `ConfigInvalid`."""
        config = self._ws.settings.config
        if self.with_untracked:
            config = msgspec.structs.replace(config, sources_untracked="true")
        if config.sources or not self.is_proposed:
            return config
        return msgspec.structs.replace(config, sources=self.propose())

    @contextlib.contextmanager
    def searching_untracked(self) -> Iterator[None]:
        """Treat untracked files as documents in the block, regardless of the settings."""
        before, self.with_untracked = self.with_untracked, not self._ws.settings.config.searches_untracked
        try:
            yield
        finally:
            self.with_untracked = before

    def read_config_at(self, ref: str, *, default: Config | None = None) -> Config:
        """Return the settings, like `config`, of the commit that a git ref names.

        `default`: the settings of a commit without vmrag, instead of the sources that `vmrag init`
        would propose. Raises `ConfigInvalid`, `GitReferenceMissing`.
        """
        places = self._ws.places
        config = trusted.load_at(places, ref).config
        names = (CONFIG_NAME, PIN_NAME)
        if config.sources or any(plumbing.read_blob(places, f"{ref}:{name}") is not None for name in names):
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
        """True in a repository without vmrag: it has neither settings nor a pin."""
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
        """Return the collections of the revision that a commit pins. Empty if it is missing.

        A source of the commit cannot have the name of one of these collections.
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
            from vmrag_link.index import view

            return view.read_view(self._ws.views.view_path(revision or "")).collections
        return ()

    # -- files -------------------------------------------------------------------------------------

    @property
    def cache_file(self) -> Path:
        """The cache for the state of files. A query with `--untracked` has its own."""
        return self._ws.places.source_state / ("untracked" if self.with_untracked else "stats")

    def list_work_tree(self, sources: Sequence[SourceSettings], *, last: LastListing | None = None) -> SourceListing:
        """Return the files of these sources in the work tree.

        `last`: the result of `work_tree.compare_last_listing` if the caller has it.
        """
        from vmrag_link.sources import work_tree

        config = self.config
        list_files = work_tree.list_in_work_tree
        if last and last.token is None:
            list_files = functools.partial(work_tree.survey_work_tree, last=last)
        if config.sources_submodules:
            from vmrag_link.sources import submodule_files

            list_files = submodule_files.list_in_work_tree
        return list_files(
            self._ws.places,
            sources,
            max_bytes=config.sources_max_bytes,
            untracked=config.searches_untracked,
            cache=self.cache_file,
        )

    def list_commit(self, commit: str, sources: Sequence[SourceSettings], config: Config) -> SourceListing:
        """Return the files of these sources at a commit."""
        from vmrag_link.sources import commit_files, listings

        has_notes = any(source.write for source in sources)
        cached = listings.read_listing(self.cache_file) if has_notes else None
        before = cached.listing if cached else None
        list_files = commit_files.list_at_commit
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
        """Return the places with which git reads the files, also those of submodules."""
        source_submodules = self.find_submodules(config, commit)
        if not source_submodules:
            return self._ws.places
        from vmrag_link.git import submodules

        return submodules.lend_objects(self._ws.places, source_submodules)

    # -- choice ------------------------------------------------------------------------------------

    def select_available(
        self, config: Config, stored: Collection[str]
    ) -> tuple[tuple[SourceSettings, ...], dict[str, str]]:
        """Return the sources that can be searched in this clone, and why others cannot, by
        collection.

        `stored`: the collections of the knowledge base, whose names no source can have.
        """
        from vmrag_link.sources import rules

        problems = {source.collection: self._find_problem(source, stored) for source in config.sources}
        unavailable = {name: problem for name, problem in problems.items() if problem}
        available = tuple(source for source in config.sources if source.collection not in unavailable)
        return rules.exclude_notes(available), unavailable

    def _find_problem(self, source: SourceSettings, stored: Collection[str]) -> str:
        """Return why a source cannot be searched in this clone, or ""."""
        if source.collection in stored and not source.write:  # a writable source hides the stored one
            return STORED
        if source.kind == "code":
            from vmrag_link.code import languages

            return languages.find_source_problem(source.paths)
        return ""
