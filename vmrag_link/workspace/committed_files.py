"""Index the files of HEAD's commit that belong in Chroma's store on this machine.

Chroma's own clients search this store. It never changes once it is built, so it contains files as
they were committed, without edits of the work tree. This module indexes these files as a view, and
records the view's name in the worktree's folder (`CommittedFiles`). The background process
`vmrag_hooks.chroma` and `vmrag sync --wait` call it, and then build the store from the view.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from vmrag_link.errors import VmragError, file_failures
from vmrag_link.git import plumbing
from vmrag_link.index.view import SUFFIX
from vmrag_link.sync.chroma_state import CommittedFiles, name_files
from vmrag_link.workspace.source_index import require_complete

if TYPE_CHECKING:
    from vmrag_link.settings import Config
    from vmrag_link.workspace import Workspace


def bind_lacking_files(ws: Workspace, log: Callable[[str], None]) -> None:
    """Call `bind_files` if the store follows HEAD and was built for another commit.

    A failure is recorded and logged, not raised. Then the store is built without files.
    """
    chroma = ws.chroma.local
    if not chroma.lacks_files():
        return
    name = name_files(plumbing.read_head(ws.places).commit)
    chroma.note_start(name)
    try:
        bind_files(ws)
    except VmragError as error:
        log(f"failed: {error.message}")
        chroma.bind_files(None)
        chroma.note_failure(name, error)
    else:
        chroma.forget_failure(name)


def bind_files(ws: Workspace) -> None:
    """Index the files of HEAD's commit, and record their view for this worktree's store.

    All collections of files are indexed. If the knowledge base stores a collection of the same
    name, `OpenIndex` leaves the files out when the store is built. Raises `SourcesIncomplete` if
    indexing does not progress, and the errors of `SourceIndex.open_commit`.
    """
    chroma = ws.chroma.local
    commit = plumbing.read_head(ws.places).commit
    if not chroma.rules or commit is None:  # no file belongs in the store
        with file_failures():
            chroma.bind_files(None)
        return
    config = select_sources(ws, ws.sources.read_config_at(commit))
    percent = -1
    while True:  # `open_commit` may index only some files in each call
        with file_failures(), ws.source_index.open_commit(commit, config, stored=()) as opened:
            if opened is None or opened.is_complete:
                view = opened.folder.name.removesuffix(f"-{SUFFIX}") if opened and opened.collections else ""
                # In this block, no process removes the view before its name is recorded.
                chroma.bind_files(CommittedFiles(commit, chroma.rules, view))
                return
            if opened.indexed <= percent:
                require_complete({}, (), indexed=opened.indexed)  # raises `SourcesIncomplete`
            percent = opened.indexed


def select_sources(ws: Workspace, config: Config) -> Config:
    """Return the settings with only those sources whose files belong in a store.

    If the setting `chroma.sources` is not `all`, these are the sources of documents, without code.
    """
    if ws.config.chroma.sources == "all":
        return config
    sources = tuple(source for source in config.sources if source.kind == "document")
    return msgspec.structs.replace(config, sources=sources)
