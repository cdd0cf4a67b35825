"""Start a knowledge base for a tool, new or from a remote, completely or not at all.

It uses `start_knowledge_base` and `clone`. A user can run those again after a kill.
An agent would try something else instead, so this module reverts a failed attempt.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path

import msgspec

from vmrag_link import locks
from vmrag_link.engines.base import ROOT_BRANCH, Write, is_reserved
from vmrag_link.errors import (
    INDEXING_FAILURES,
    AlreadyInitialized,
    GitBusy,
    GitFailed,
    LockError,
    MessageMissing,
    RevisionMissing,
)
from vmrag_link.file_access import write_atomically
from vmrag_link.git import configuration, listing, plumbing, remotes
from vmrag_link.models import Chunking, Record, RevisionInfo
from vmrag_link.ops import collection_writes
from vmrag_link.ops.new_knowledge_base import import_chroma
from vmrag_link.ops.new_knowledge_base.import_chroma import ForeignRows
from vmrag_link.ops.new_knowledge_base.knowledge_base import (
    Start,
    create_missing_parts,
    require_no_links,
    start_knowledge_base,
)
from vmrag_link.pin_values import GIT_REMOTE, is_hosted_database, parse_git_ref
from vmrag_link.transport import address
from vmrag_link.workspace import Workspace, reasons
from vmrag_link.workspace.documents import writing
from vmrag_link.workspace.follow.provenance import AnswerOrigin, KbBlock
from vmrag_link.workspace.history.revparse import CANDIDATES, SHORTEST_HASH
from vmrag_link.workspace.pins import history_pins
from vmrag_link.workspace.pins.history_pins import Offer
from vmrag_link.workspace.pins.pinning import ATTRIBUTES
from vmrag_link.workspace.remotes import destinations
from vmrag_link.workspace.remotes.clone import clone
from vmrag_link.workspace.remotes.fetch import build_branch_missing

DOLTHUB_URL = "https://doltremoteapi.dolthub.com/"
"""The host of a remote `organisation/repository`."""

_KEPT_NAMES = frozenset(("locks", "logs", "embeddings.sqlite"))
"""Names in the folder of the knowledge base that the next attempt also needs."""


class StartedKnowledgeBase(Record, frozen=True):
    """A knowledge base that was started."""

    path: str
    branch: str
    """The name of HEAD's KB branch, which may not exist yet."""
    commit: RevisionInfo
    staged: bool
    remote: str = ""
    """The remote that was written into the settings."""
    cloned: str | None = None
    """The remote that the knowledge base was fetched from, because the repository's history pins
    one.
    """
    taken: ForeignRows = ForeignRows()
    """The imported rows."""
    others: tuple[Offer, ...] = ()
    """Revisions that the checked-out commit could have started with, because other commits pin
    them.
    """
    pending: str = ""
    """Why the index did not follow."""
    origin: AnswerOrigin | None = None
    """The position of the workspace if nothing can be searched yet."""


class ClonedKnowledgeBase(Record, frozen=True):
    """A knowledge base that was cloned."""

    path: str
    url: str
    """The URL without credentials."""
    branch: str | None
    """The name of HEAD's KB branch, which may not exist yet; None if a commit is read by its hash.
    """
    commit: RevisionInfo
    documents: int
    collections: tuple[str, ...]
    staged: bool


def start_and_pin(
    ws: Workspace,
    *,
    url: str | None = None,
    allow: Callable[[str], None],
    branch: str | None = None,
    store: Path | None = None,
    message: str,
) -> StartedKnowledgeBase:
    """Start a knowledge base and pin it. Another program's Chroma `store` becomes its first commit.

    `url` becomes the remote of the settings. It is not contacted and not trusted. `allow` raises an
    error for a forbidden URL. If the repository's history pins a knowledge base, it is fetched
    instead.

    Raises `AlreadyInitialized`, `RemoteInvalid`, `IndexFailed` if the store cannot be read,
    `GitBusy`, and the errors of `start_knowledge_base`.
    """
    if not message.strip():
        raise MessageMissing("a commit needs a message.", hint="pass 'commit_message=\"Import the store\"'")
    with _lock_start(ws):
        setting = _resolve_setting(ws, url, allow) if url else ""
        imported = _read_store(ws, store) if store else ForeignRows()
        rows = (
            Write(put_collections=imported.collections, put_documents=imported.documents)
            if imported.collections
            else None
        )
        with all_or_nothing(ws):
            report = start_knowledge_base(ws, start=Start(branch=branch, rows=rows, message=message, remote=setting))
            if report.cloned:
                imported, setting = ForeignRows(), ""
            _require_pinned(ws)
        pending = _update_index(ws)
    info = ws.engine.read_revision(report.revision)
    origin = _build_origin(ws, report.revision, pending) if pending and not ws.binding else None
    return StartedKnowledgeBase(
        path=report.kb,
        branch=report.pin.dolt_branch,
        commit=info,
        staged=report.staged,
        remote=setting,
        cloned=report.cloned,
        taken=imported,
        others=report.others,
        pending=pending,
        origin=origin,
    )


def clone_and_index(
    ws: Workspace, url: str, *, allow: Callable[[str], None], branch: str | None = None, commit: str | None = None
) -> ClonedKnowledgeBase:
    """Clone a knowledge base, move to a branch or a commit of it, and index that.

    `commit` has priority over `branch`. Without both, this uses HEAD's pin, or else the KB branch
    with the name of the code branch, or else a default one (`_choose_start`). If nothing was
    pinned, the remote is written into the settings or, for a git remote, into git's configuration
    as `vmrag.remote`. `allow` is that of `start_and_pin`, and is called first.

    Raises `AlreadyInitialized`, `BranchMissing`, `RevisionMissing`, `GitBusy` and the errors of
    `clone`.
    """
    with _lock_start(ws), all_or_nothing(ws):
        setting = _resolve_setting(ws, url, allow)
        pinned = plumbing.read_pin_bytes(ws.places) is not None
        remote = url if setting == GIT_REMOTE else setting
        source, staged, detached = clone(ws, remote), True, False
        if commit or branch or not pinned:
            key = next(
                address.key
                for address in destinations.list_fetch_addresses(ws, remote)
                if address.text == source.remote
            )
            start = _choose_start(ws, source.remote, ws.engine.remote_heads(key), branch, commit)
            staged = create_missing_parts(
                ws, start if pinned else msgspec.structs.replace(start, remote=setting)
            ).staged
            detached = start.detached
        _require_pinned(ws)
        ws.bring_to_pin()
        branch_here, revision, pin = ws.find_kb_branch(), ws.require_stored_revision(), ws.resolve_target().pin
        if not pinned and setting == GIT_REMOTE:
            _prefer_remote(ws, remotes.find_name(ws.places, url))
    names = tuple(collection.name for collection in ws.engine.list_collections(revision))
    return ClonedKnowledgeBase(
        path=str(ws.places.kb),
        url=_find_url(ws, source.remote),
        branch=branch_here.name if branch_here else pin.dolt_branch if pin and not detached else None,
        commit=ws.engine.read_revision(revision),
        documents=ws.engine.count_documents(revision),
        collections=names,
        staged=staged,
    )


def _choose_start(
    ws: Workspace, source: str, heads: Mapping[str, str], branch: str | None, commit: str | None
) -> Start:
    """Return where the clone of a remote with these branches starts."""
    remote_heads = {name: head for name, head in heads.items() if not is_reserved(name)}
    code = ws.read_trigger().branch or ""
    if commit:
        revision = _find_commit(ws, source, remote_heads.values(), commit)
        names = [name for name in (branch, code, *sorted(remote_heads)) if name and remote_heads.get(name) == revision]
        return Start(branch=names[0], revision=revision) if names else Start(revision=revision, detached=True)
    if branch:
        if branch not in remote_heads:
            raise build_branch_missing(source, branch, remote_heads)
        return Start(branch=branch, revision=remote_heads[branch])
    candidates = (code, "main", "master", *sorted(remote_heads))
    return Start(revision=next((remote_heads[name] for name in candidates if name in remote_heads), ""))


def _find_commit(ws: Workspace, source: str, heads: Collection[str], name: str) -> str:
    """Return the only commit behind these heads whose hash has this prefix."""
    matching = sorted(commit for commit in ws.engine.map_parents(heads) if commit.startswith(name.lower()))
    if len(matching) == 1 and len(name) >= SHORTEST_HASH:
        return matching[0]
    problem = f"{source} has {'several commits' if matching else 'no commit'} with the hash prefix {name[:80]!r}."
    if len(matching) == 1:
        problem = f"the hash prefix {name!r} is shorter than {SHORTEST_HASH} characters."
    raise RevisionMissing(
        problem,
        hint="run 'vmrag log' to list the revisions after a clone without a commit",
        revision=name,
        candidates=matching[:CANDIDATES],
    )


@contextlib.contextmanager
def _lock_start(ws: Workspace) -> Iterator[None]:
    """Let one process start a knowledge base, unless one is pinned.

    An unused knowledge base was left by a kill and is removed. Raises `AlreadyInitialized` and
    `GitBusy`.
    """
    lock = locks.hold_exclusive(
        ws.places.locks / "founding.lock", purpose="begin a knowledge base", timeout=ws.lock_timeout
    )
    with lock:
        _remove_unused(ws)
        yield


def _remove_unused(ws: Workspace) -> None:
    """Remove an unused knowledge base. Raises `AlreadyInitialized` if one is pinned."""
    writing.refuse_git_operation(ws)
    pinned = plumbing.read_pin_bytes(ws.places) is not None
    if ws.is_initialized and not pinned and _is_unused(ws):
        ws.close()
        shutil.rmtree(ws.places.kb)
    if ws.is_initialized and pinned:
        raise AlreadyInitialized("the knowledge base already exists.", hint="run 'vmrag status' to see the state")


def _is_unused(ws: Workspace) -> bool:
    used = [branch for branch in ws.engine.list_branches() if branch.name != ROOT_BRANCH or branch.dirty]
    return not (used or plumbing.list_kb_mappings(ws.places) or any(True for _ in history_pins.read_pins(ws.places)))


def _require_pinned(ws: Workspace) -> None:
    target = ws.resolve_target()
    if target.state != "pinned":
        raise reasons.explain_unusable(ws, target)


def _resolve_setting(ws: Workspace, url: str, allow: Callable[[str], None]) -> str:
    """Return the value of the setting `remote` for an allowed URL. Raises `RemoteInvalid`."""
    if parse_git_ref(url):
        return url
    if remotes.find_name(ws.places, url):
        return GIT_REMOTE
    text = DOLTHUB_URL + url if is_hosted_database(url) else url
    address.parse_url(text, engine=destinations.find_engine(ws))
    allow(text)
    return text


def _prefer_remote(ws: Workspace, name: str | None) -> None:
    """Make `git:` mean this git remote on this machine, if it would mean another one."""
    if name and name not in remotes.list_for_reading(ws.places, ws.read_trigger().branch)[:1]:
        configuration.add_value(ws.places, "vmrag.remote", name)


def _read_store(ws: Workspace, store: Path) -> ForeignRows:
    sizes = ws.config.chunking
    model = collection_writes.load_working_model(ws, ws.config.embedding.model)
    return import_chroma.read_store(store, model=model, chunking=Chunking(size=sizes.size, overlap=sizes.overlap))


def _update_index(ws: Workspace) -> str:
    """Update the index, and return why this failed; empty if it succeeded."""
    try:
        ws.bring_to_pin()
    except (*INDEXING_FAILURES, GitBusy, LockError) as error:
        return f"The knowledge base was created, but the index could not be updated yet: {error.sentence}"
    return ""


def _build_origin(ws: Workspace, revision: str, reason: str) -> AnswerOrigin:
    branch = ws.find_kb_branch()
    head = plumbing.read_head(ws.places).commit
    kb = KbBlock(str(ws.places.top), head, branch.name if branch else None, revision, dirty=False, in_sync=False)
    return AnswerOrigin(revision, revision, kb, (reason,))


def _find_url(ws: Workspace, remote: str) -> str:
    return remotes.redact_url(
        remotes.read_url(ws.places, remote) if remote in remotes.list_remotes(ws.places) else remote
    )


@contextlib.contextmanager
def all_or_nothing(ws: Workspace) -> Iterator[None]:
    """If the block fails, remove the knowledge base, and restore work tree, index and
    configuration.
    """
    require_no_links(ws.places)
    files = (ws.places.config, ws.places.pin, ws.places.top / ATTRIBUTES)
    contents = {path: path.read_bytes() if path.is_file() else None for path in files}
    entries = listing.read_index_entries(ws.places, files)
    code = ws.read_trigger().branch or ""
    kb_branch = plumbing.find_kb_branch(ws.places, code)
    kept_names = {
        folder: _list_names(folder) | _KEPT_NAMES for folder in (ws.places.shared, ws.places.work_tree_folder)
    }
    try:
        yield
    except BaseException:  # also if the call was cancelled
        ws.close()
        ws.reload_settings()
        for folder, names in kept_names.items():
            _remove_all_but(folder, names)
        _restore_files(contents)
        with contextlib.suppress(GitFailed):  # the error of the block is more helpful
            listing.restore_index_entries(ws.places, files, entries)
        if kb_branch is None:
            plumbing.forget_kb_branch(ws.places, code)
        else:
            plumbing.set_kb_branch(ws.places, code, kb_branch)
        raise


def _list_names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} if folder.is_dir() else set()


def _remove_all_but(folder: Path, names: set[str]) -> None:
    for path in folder.iterdir() if folder.is_dir() else ():
        if path.name not in names:
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def _restore_files(contents: Mapping[Path, bytes | None]) -> None:
    for path, content in contents.items():
        if content is None:
            path.unlink(missing_ok=True)
        elif not path.is_file() or path.read_bytes() != content:
            write_atomically(path, content)
