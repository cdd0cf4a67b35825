"""Create or clone a knowledge base for an agent, by a tool of the MCP server.

If `vmrag init` or `vmrag clone` fails, it leaves unfinished parts, because a user can run it again.
An agent would try something else instead, so this module reverts a failed start.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path

import msgspec

from vmrag_link import locks
from vmrag_link.engines.base import Write
from vmrag_link.engines.own_branches import ROOT_BRANCH, is_reserved
from vmrag_link.errors import (
    INDEXING_FAILURES,
    AlreadyInitialized,
    GitBusy,
    LockError,
    MessageMissing,
    RevisionMissing,
)
from vmrag_link.git import configuration, own_keys, plumbing, remotes
from vmrag_link.models import Chunking, Record, RevisionInfo
from vmrag_link.ops import collection_writes
from vmrag_link.ops.new_knowledge_base import import_chroma
from vmrag_link.ops.new_knowledge_base.import_chroma import ForeignRows
from vmrag_link.ops.new_knowledge_base.knowledge_base import (
    Start,
    create_missing_parts,
    start_knowledge_base,
)
from vmrag_link.ops.new_knowledge_base.rollback import all_or_nothing
from vmrag_link.pin_values import GIT_REMOTE, is_hosted_database, parse_git_ref
from vmrag_link.transport import address
from vmrag_link.workspace import Workspace, reasons
from vmrag_link.workspace.documents import writing
from vmrag_link.workspace.follow.provenance import AnswerOrigin, KbBlock
from vmrag_link.workspace.history.revparse import MAX_LISTED_CANDIDATES, MIN_PREFIX_CHARACTERS
from vmrag_link.workspace.pins import history_pins
from vmrag_link.workspace.pins.history_pins import Offer
from vmrag_link.workspace.remotes import destinations
from vmrag_link.workspace.remotes.clone import clone
from vmrag_link.workspace.remotes.fetch import build_branch_missing

DOLTHUB_URL = "https://doltremoteapi.dolthub.com/"
"""The host of a remote `organisation/repository`."""


class StartedKnowledgeBase(Record, frozen=True):
    """The result of `start_and_pin`."""

    path: str
    branch: str
    """The name of HEAD's KB branch, which may not exist yet."""
    commit: RevisionInfo
    staged: bool
    """True if git's index has all new files."""
    remote: str = ""
    """The remote that was written into the settings."""
    cloned: str | None = None
    """The remote that the knowledge base was fetched from, because the repository's history pins
    one.
    """
    imported: ForeignRows = ForeignRows()
    """The rows of the Chroma store."""
    other_starts: tuple[Offer, ...] = ()
    """Revisions that the checked-out commit could have started with, because other commits pin
    them.
    """
    pending: str = ""
    """Why the index could not be updated; empty if it was."""
    origin: AnswerOrigin | None = None
    """The revision at which the workspace is, if no index can be searched yet."""


class ClonedKnowledgeBase(Record, frozen=True):
    """The result of `clone_and_index`."""

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
        rows = None
        if imported.collections:
            rows = Write(put_collections=imported.collections, put_documents=imported.documents)
        with all_or_nothing(ws):
            report = start_knowledge_base(ws, start=Start(branch=branch, rows=rows, message=message, remote=setting))
            _require_pinned(ws)
        pending = _update_index(ws)
    can_search = ws.binding is not None
    return StartedKnowledgeBase(
        path=report.kb,
        branch=report.pin.dolt_branch,
        commit=ws.engine.read_revision(report.revision),
        staged=report.staged,
        remote="" if report.cloned else setting,
        cloned=report.cloned,
        imported=ForeignRows() if report.cloned else imported,
        other_starts=report.others,
        pending=pending,
        origin=_build_origin(ws, report.revision, pending) if pending and not can_search else None,
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
        remote = url if setting == GIT_REMOTE else setting
        had_pin = plumbing.read_pin_bytes(ws.places) is not None
        source = clone(ws, remote).remote
        staged = True
        detached = False
        if commit or branch or not had_pin:
            start = _choose_start(ws, source, _read_heads(ws, remote, source), branch, commit)
            if not had_pin:
                start = msgspec.structs.replace(start, remote=setting)
            staged = create_missing_parts(ws, start).staged
            detached = start.detached
        _require_pinned(ws)
        ws.bring_to_pin()
        target = ws.resolve_target()
        revision = ws.require_stored_revision()
        if not had_pin and setting == GIT_REMOTE:
            _prefer_remote(ws, remotes.find_name(ws.places, url))
    branch_name = target.pin.dolt_branch if target.pin and not detached else None
    return ClonedKnowledgeBase(
        path=str(ws.places.kb),
        url=_find_url(ws, source),
        branch=target.kb_branch.name if target.kb_branch else branch_name,
        commit=ws.engine.read_revision(revision),
        documents=ws.engine.count_documents(revision),
        collections=tuple(collection.name for collection in ws.engine.list_collections(revision)),
        staged=staged,
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
        writing.refuse_git_operation(ws)
        has_pin = plumbing.read_pin_bytes(ws.places) is not None
        if ws.is_initialized and has_pin:
            raise AlreadyInitialized("the knowledge base already exists.", hint="run 'vmrag status' to see the state")
        if ws.is_initialized and _is_unused(ws):
            ws.close()
            shutil.rmtree(ws.places.kb)
        yield


def _is_unused(ws: Workspace) -> bool:
    """Return whether the knowledge base has no branch and no document, and no commit pins it."""
    if any(branch.name != ROOT_BRANCH or branch.dirty for branch in ws.engine.list_branches()):
        return False
    has_pins = any(True for _ in history_pins.read_pins(ws.places))
    return not has_pins and not own_keys.list_kb_mappings(ws.places)


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


def _read_store(ws: Workspace, store: Path) -> ForeignRows:
    model = collection_writes.load_working_model(ws, ws.config.embedding.model)
    sizes = ws.config.chunking
    return import_chroma.read_store(store, model=model, chunking=Chunking(size=sizes.size, overlap=sizes.overlap))


def _require_pinned(ws: Workspace) -> None:
    """Raise the reason if the pin of the work tree names no stored revision."""
    target = ws.resolve_target()
    if target.state != "pinned":
        raise reasons.explain_unusable(ws, target)


def _update_index(ws: Workspace) -> str:
    """Update the index, and return why this failed; empty if it succeeded."""
    try:
        ws.bring_to_pin()
    except (*INDEXING_FAILURES, GitBusy, LockError) as error:
        return f"The knowledge base was created, but the index could not be updated yet: {error.sentence}"
    return ""


def _build_origin(ws: Workspace, revision: str, reason: str) -> AnswerOrigin:
    """Return the origin for a tool's answer, with the reason why the index is missing."""
    branch = ws.find_kb_branch()
    kb = KbBlock(
        worktree=str(ws.places.top),
        git_head=plumbing.read_head(ws.places).commit,
        branch=branch.name if branch else None,
        commit=revision,
        dirty=False,
        in_sync=False,
    )
    return AnswerOrigin(at=revision, revision=revision, kb=kb, notes=(reason,))


def _read_heads(ws: Workspace, remote: str, source: str) -> dict[str, str]:
    """Return the heads of the KB branches at `source`, one of the addresses of a remote."""
    addresses = destinations.list_fetch_addresses(ws, remote)
    key = next(address.key for address in addresses if address.text == source)
    return {name: head for name, head in ws.engine.remote_heads(key).items() if not is_reserved(name)}


def _choose_start(
    ws: Workspace, source: str, heads: Mapping[str, str], branch: str | None, commit: str | None
) -> Start:
    """Return where the clone of a remote with these branches starts.

    A `commit` at the head of branches starts one of them. The choice is `branch`, or else the one
    with the name of the code branch, or else the first by name.
    """
    code_branch = ws.read_trigger().branch or ""
    if commit:
        revision = _find_commit(ws, source, heads.values(), commit)
        candidates = (branch or "", code_branch, *sorted(heads))
        name = next((name for name in candidates if heads.get(name) == revision), None)
        return Start(branch=name, revision=revision, detached=name is None)
    if branch:
        if branch not in heads:
            raise build_branch_missing(source, branch, heads)
        return Start(branch=branch, revision=heads[branch])
    candidates = (code_branch, "main", "master", *sorted(heads))
    return Start(revision=next((heads[name] for name in candidates if name in heads), ""))


def _find_commit(ws: Workspace, source: str, heads: Collection[str], prefix: str) -> str:
    """Return the only commit behind these heads whose hash has this prefix."""
    matching = sorted(commit for commit in ws.engine.map_parents(heads) if commit.startswith(prefix.lower()))
    if len(matching) == 1 and len(prefix) >= MIN_PREFIX_CHARACTERS:
        return matching[0]
    if len(matching) == 1:
        problem = f"the hash prefix {prefix!r} is shorter than {MIN_PREFIX_CHARACTERS} characters."
    else:
        number = "several commits" if matching else "no commit"
        problem = f"{source} has {number} with the hash prefix {prefix[:80]!r}."
    raise RevisionMissing(
        problem,
        hint="run 'vmrag log' to list the revisions after a clone without a commit",
        revision=prefix,
        candidates=matching[:MAX_LISTED_CANDIDATES],
    )


def _prefer_remote(ws: Workspace, name: str | None) -> None:
    """Make the setting `git:` mean this git remote on this machine."""
    if name and name not in remotes.list_for_reading(ws.places, ws.read_trigger().branch)[:1]:
        configuration.add_value(ws.places, "vmrag.remote", name)


def _find_url(ws: Workspace, remote: str) -> str:
    """Return the URL of a git remote or of another remote, without credentials."""
    is_git_remote = remote in remotes.list_remotes(ws.places)
    return remotes.redact_url(remotes.read_url(ws.places, remote) if is_git_remote else remote)
