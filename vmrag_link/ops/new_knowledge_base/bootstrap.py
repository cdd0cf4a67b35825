"""Begin a knowledge base for a tool, new or from a remote: all of it, or nothing.

It uses `ops.setup.knowledge_base` and `ops.remotes.clone`. You can run those again after a kill. An
agent would try something else instead, so this undoes them.
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
from vmrag_link.paths import write_atomically
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
"""What is meant by `organisation/repository`."""

_STAYS = frozenset(("locks", "logs", "embeddings.sqlite"))
"""In the folder of the knowledge base; the next attempt needs it, too."""


class StartedKnowledgeBase(Record, frozen=True):
    """`branch` is the name of HEAD's KB branch, made or not.

    `remote`: what the settings say now, if that was asked for. `cloned`: where the knowledge base
    was fetched from, because the repository's history pins one. `taken`: what was imported;
    `others`: knowledge that the checked-out commit could have taken, because other commits pin it.
    `pending`: why the index did not follow, and `standing` where the workspace stands then, with
    nothing to read from yet.
    """

    path: str
    branch: str
    commit: RevisionInfo
    staged: bool
    remote: str = ""
    cloned: str | None = None
    taken: ForeignRows = ForeignRows()
    others: tuple[Offer, ...] = ()
    pending: str = ""
    standing: AnswerOrigin | None = None


class ClonedKnowledgeBase(Record, frozen=True):
    """`url` without credentials; `branch`: HEAD's KB branch, made or not; None if a commit that is
    no branch's head is read by its hash.
    """

    path: str
    url: str
    branch: str | None
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
    """Start a knowledge base, with another program's Chroma `store` as first commit, and pin it.

    `url` becomes the remote of the settings; it is not contacted, and naming it here is no
    agreement to it. `allow` raises for a URL that may not be named. Where the repository's
    history pins a knowledge base, that is fetched instead. Raises `AlreadyInitialized`,
    `RemoteInvalid`, `IndexFailed` for what is no store, `GitBusy`, and the errors of
    `start_knowledge_base`.
    """
    if not message.strip():
        raise MessageMissing("A commit needs a message.", hint="commit_message says what is imported")
    with _founding(ws):
        setting = _setting(ws, url, allow) if url else ""
        taken = _read_store(ws, store) if store else ForeignRows()
        rows = Write(put_collections=taken.collections, put_documents=taken.documents) if taken.collections else None
        with all_or_nothing(ws):
            report = start_knowledge_base(ws, start=Start(branch=branch, rows=rows, message=message, remote=setting))
            if report.cloned:
                taken, setting = ForeignRows(), ""
            _require_pinned(ws)
        pending = _index_problem(ws)
    info = ws.engine.read_revision(report.revision)
    at = _standing(ws, report.revision, pending) if pending and not ws.binding else None
    return StartedKnowledgeBase(
        report.kb,
        report.pin.dolt_branch,
        info,
        report.staged,
        setting,
        report.cloned,
        taken,
        report.others,
        pending,
        at,
    )


def clone_and_index(
    ws: Workspace, url: str, *, allow: Callable[[str], None], branch: str | None = None, commit: str | None = None
) -> ClonedKnowledgeBase:
    """Clone a knowledge base, go to a branch or a commit of it (which wins), and index that.

    With neither it is HEAD's pin, else the KB branch of the code branch's name, or `main`. Where
    nothing was pinned, the remote becomes that of the settings, or a git remote `vmrag.remote` in
    git's configuration; `allow` is as of `found`, and is asked first. Raises `AlreadyInitialized`,
    `BranchMissing`, `RevisionMissing`, `GitBusy`, and as `ops.remotes.clone.clone`.
    """
    with _founding(ws), all_or_nothing(ws):
        setting = _setting(ws, url, allow)
        pinned = plumbing.read_pin_bytes(ws.places) is not None
        named = url if setting == GIT_REMOTE else setting
        source, staged, detached = clone(ws, named), True, False
        if commit or branch or not pinned:
            key = next(each.key for each in destinations.list_fetch_addresses(ws, named) if each.text == source.remote)
            start = _start(ws, source.remote, ws.engine.remote_heads(key), branch, commit)
            staged = create_missing_parts(
                ws, start if pinned else msgspec.structs.replace(start, remote=setting)
            ).staged
            detached = start.detached
        _require_pinned(ws)
        ws.bring_to_pin()
        own, revision, pin = ws.find_kb_branch(), ws.require_stored_revision(), ws.resolve_target().pin
        if not pinned and setting == GIT_REMOTE:
            _prefer(ws, remotes.find_name(ws.places, url))
    names = tuple(collection.name for collection in ws.engine.list_collections(revision))
    return ClonedKnowledgeBase(
        str(ws.places.kb),
        _url(ws, source.remote),
        own.name if own else pin.dolt_branch if pin and not detached else None,
        ws.engine.read_revision(revision),
        ws.engine.count_documents(revision),
        names,
        staged,
    )


def _start(ws: Workspace, source: str, heads: Mapping[str, str], branch: str | None, commit: str | None) -> Start:
    """Where the clone of a remote with these branches starts."""
    there = {name: head for name, head in heads.items() if not is_reserved(name)}
    code = ws.read_trigger().branch or ""
    if commit:
        revision = _commit(ws, source, there.values(), commit)
        names = [name for name in (branch, code, *sorted(there)) if name and there.get(name) == revision]
        return Start(branch=names[0], revision=revision) if names else Start(revision=revision, detached=True)
    if branch:
        if branch not in there:
            raise build_branch_missing(source, branch, there)
        return Start(branch=branch, revision=there[branch])
    usual = (code, "main", "master", *sorted(there))
    return Start(revision=next((there[name] for name in usual if name in there), ""))


def _commit(ws: Workspace, source: str, heads: Collection[str], name: str) -> str:
    """The only commit behind these heads whose hash begins so."""
    found = sorted(parent for parent in ws.engine.map_parents(heads) if parent.startswith(name.lower()))
    if len(found) == 1 and len(name) >= SHORTEST_HASH:
        return found[0]
    raise RevisionMissing(
        f"{source} has {'more than one' if found else 'no'} commit whose hash begins with {name[:80]!r}.",
        hint="Clone without commit, then look for it: vmrag log",
        revision=name,
        candidates=found[:CANDIDATES],
    )


@contextlib.contextmanager
def _founding(ws: Workspace) -> Iterator[None]:
    """Let one process begin a knowledge base, where none is pinned.

    An unused one was left by a kill, and is removed. Raises `AlreadyInitialized`, `GitBusy`.
    """
    lock = locks.hold_exclusive(
        ws.places.locks / "founding.lock", purpose="begin a knowledge base", timeout=ws.lock_timeout
    )
    with lock:
        _make_room(ws)
        yield


def _make_room(ws: Workspace) -> None:
    writing.refuse_git_operation(ws)
    pinned = plumbing.read_pin_bytes(ws.places) is not None
    if ws.is_initialized and not pinned and _unused(ws):
        ws.close()
        shutil.rmtree(ws.places.kb)
    if ws.is_initialized and pinned:
        raise AlreadyInitialized("There is a knowledge base here already.", hint="vmrag status")


def _unused(ws: Workspace) -> bool:
    used = [branch for branch in ws.engine.list_branches() if branch.name != ROOT_BRANCH or branch.dirty]
    return not (used or plumbing.list_kb_mappings(ws.places) or any(True for _ in history_pins.read_pins(ws.places)))


def _require_pinned(ws: Workspace) -> None:
    target = ws.resolve_target()
    if target.state != "pinned":
        raise reasons.explain_unusable(ws, target)


def _setting(ws: Workspace, url: str, allow: Callable[[str], None]) -> str:
    """The value of the setting `remote` for a place that a caller names, if it is allowed.

    Raises `RemoteInvalid`.
    """
    if parse_git_ref(url):
        return url
    if remotes.find_name(ws.places, url):
        return GIT_REMOTE
    text = DOLTHUB_URL + url if is_hosted_database(url) else url
    address.parse_url(text, engine=destinations.find_engine(ws))
    allow(text)
    return text


def _prefer(ws: Workspace, name: str | None) -> None:
    """Let `git:` mean this git remote on this machine, if it would mean another one."""
    if name and name not in remotes.list_for_reading(ws.places, ws.read_trigger().branch)[:1]:
        configuration.add_value(ws.places, "vmrag.remote", name)


def _read_store(ws: Workspace, store: Path) -> ForeignRows:
    sizes = ws.config.chunking
    model = collection_writes.load_working_model(ws, ws.config.embedding.model)
    return import_chroma.read_store(store, model=model, chunking=Chunking(size=sizes.size, overlap=sizes.overlap))


def _index_problem(ws: Workspace) -> str:
    """Why the index could not follow; empty if it has."""
    try:
        ws.bring_to_pin()
    except (*INDEXING_FAILURES, GitBusy, LockError) as error:
        return f"The knowledge base is there, but the index could not follow yet: {error.sentence}"
    return ""


def _standing(ws: Workspace, revision: str, why: str) -> AnswerOrigin:
    own = ws.find_kb_branch()
    head = plumbing.read_head(ws.places).commit
    kb = KbBlock(str(ws.places.top), head, own.name if own else None, revision, dirty=False, in_sync=False)
    return AnswerOrigin(revision, revision, kb, (why,))


def _url(ws: Workspace, remote: str) -> str:
    return remotes.redact_url(
        remotes.read_url(ws.places, remote) if remote in remotes.list_remotes(ws.places) else remote
    )


@contextlib.contextmanager
def all_or_nothing(ws: Workspace) -> Iterator[None]:
    """If the block fails, remove the knowledge base; restore work tree, index and configuration."""
    require_no_links(ws.places)
    files = (ws.places.config, ws.places.pin, ws.places.top / ATTRIBUTES)
    contents = {path: path.read_bytes() if path.is_file() else None for path in files}
    entries = listing.read_index_entries(ws.places, files)
    code = ws.read_trigger().branch or ""
    kb_branch = plumbing.find_kb_branch(ws.places, code)
    kept = {folder: _names(folder) | _STAYS for folder in (ws.places.shared, ws.places.work_tree_folder)}
    try:
        yield
    except BaseException:  # a call that was given up, too
        ws.close()
        ws.reload_settings()
        for folder, names in kept.items():
            _remove_all_but(folder, names)
        _restore(contents)
        with contextlib.suppress(GitFailed):  # why the block failed says more
            listing.restore_index_entries(ws.places, files, entries)
        if kb_branch is None:
            plumbing.forget_kb_branch(ws.places, code)
        else:
            plumbing.set_kb_branch(ws.places, code, kb_branch)
        raise


def _names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} if folder.is_dir() else set()


def _remove_all_but(folder: Path, names: set[str]) -> None:
    for path in folder.iterdir() if folder.is_dir() else ():
        if path.name not in names:
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def _restore(contents: Mapping[Path, bytes | None]) -> None:
    for path, content in contents.items():
        if content is None:
            path.unlink(missing_ok=True)
        elif not path.is_file() or path.read_bytes() != content:
            write_atomically(path, content)
