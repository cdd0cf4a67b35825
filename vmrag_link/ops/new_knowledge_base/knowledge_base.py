"""Start the knowledge base of a repository, with its settings file and its first pin.

`vmrag init`, the first `vmrag add` and MCP tools call this. Each step checks what exists, so that
another run finishes one that was killed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from vmrag_link import clock, hints, locks
from vmrag_link.engines import migrated, opening
from vmrag_link.engines.base import Write
from vmrag_link.engines.folder import EngineName, detect_engine
from vmrag_link.engines.own_branches import read_root
from vmrag_link.errors import AlreadyInitialized, InitializedElsewhere, KnowledgeElsewhere, RemoteEmpty, RemoteError
from vmrag_link.file_access import require_files, require_folders
from vmrag_link.git import folder_modes, identity, own_keys, plumbing, staging
from vmrag_link.models import Record
from vmrag_link.ops.branch.switch import require_free_branch
from vmrag_link.ops.init import own_settings
from vmrag_link.paths import Places
from vmrag_link.workspace import Workspace, reasons
from vmrag_link.workspace.pins import empty_pin, history_pins, kb_branches, pinning
from vmrag_link.workspace.pins.history_pins import Offer, list_offers
from vmrag_link.workspace.pins.pinning import ATTRIBUTES, PinBlock
from vmrag_link.workspace.remotes.clone import clone


class Start(Record, frozen=True):
    """How the knowledge base of HEAD's code branch starts or continues."""

    branch: str | None = None
    """The KB branch; None if it gets the name of the code branch."""
    revision: str = ""
    """The first revision of the branch; empty for the root, which has no documents."""
    detached: bool = False
    """True if the revision is pinned by its hash, without a branch."""
    rows: Write | None = None
    """Rows of the first commit."""
    message: str = ""
    """The message of the first commit."""
    remote: str = ""
    """The remote to write into the settings; empty for the default one."""


class KnowledgeBaseReport(Record, frozen=True):
    """The result of `start_knowledge_base`."""

    started: bool
    """True if there was no knowledge base."""
    pinned: bool
    """True if there was a knowledge base and no pin."""
    cloned: str | None
    """The remote that the knowledge base was fetched from, because the repository's history has
    pins.
    """
    kb: str
    engine: str
    revision: str
    pin: PinBlock
    written: tuple[str, ...]
    """Files that were created or changed, or left unstaged by an interrupted run. Empty if nothing
    was left to do.
    """
    unstaged: tuple[str, ...]
    """Files that could not be staged, because git was busy or they have changes of the user."""
    edited: bool
    """True if `.gitattributes` has unstaged changes of the user, so that it is not staged."""
    staged: bool
    """True if all files are staged."""
    others: tuple[Offer, ...]
    """Revisions that the checked-out commit could have started with, because other commits pin
    them.
    """


ChooseOffer = Callable[[Sequence[Offer]], Offer | None]
"""A function that chooses the first revision of a code branch; None to start without documents."""


def start_knowledge_base(
    ws: Workspace,
    *,
    new: bool = False,
    start: Start | None = None,
    engine: EngineName | None = None,
    choose: ChooseOffer = lambda _: None,
) -> KnowledgeBaseReport:
    """Create the knowledge base, the settings file and the pin.

    After a kill, run it again to finish. If git's history pins a knowledge base, this fetches it,
    because a new one would share no history with it and could not be pushed to the same remote.

    * `new`: start a new knowledge base anyway, unless the checked-out commit has a pin.
    * `start`: how to start. It is ignored if a knowledge base was fetched.
    * `engine`: the engine of a new knowledge base, instead of the setting.
    * `choose`: called without `start` if the checked-out commit has no pin and other commits have
      one.

    Raises `AlreadyInitialized` if the pinned knowledge base cannot be fetched, or if it exists with
    another engine, and `DoltMissing`, `ConfigInvalid` or `EngineFailed` if the engine cannot run
    here.
    """
    require_no_links(ws.places)
    pinned = plumbing.read_pin_bytes(ws.places)
    new_engine = engine or ws.config.engine  # raises an error for unreadable settings
    _require_engine(ws, engine)
    cloned = None
    if not new and opening.is_lost(ws.places.kb):
        raise reasons.explain_uninitialized(ws)
    if not ws.is_initialized and (pinned is not None or (not new and _has_pins(ws))):
        cloned = _clone_remote(ws)
        _require_engine(ws, engine)
    offers: Sequence[Offer] = ()
    if pinned is None and ws.is_initialized and not ws.find_kb_branch():
        offers = list_offers(ws)
    if cloned or start is None:
        start = None
        if pinned is None:
            offer = choose(offers) if offers else None
            start = Start(revision=offer.revision if offer else "", detached=ws.read_trigger().branch is None)
    return create_missing_parts(ws, start, cloned=cloned, engine=new_engine, others=offers)


def create_missing_parts(
    ws: Workspace,
    start: Start | None,
    *,
    cloned: str | None = None,
    engine: EngineName = "doltlite",
    others: Sequence[Offer] = (),
) -> KnowledgeBaseReport:
    """Create what a knowledge base needs in this work tree and does not have yet.

    * `start`: the revision to pin; None keeps the pin of the work tree.
    * `cloned`, `others`: fields of the report.
    * `engine`: the engine of a new knowledge base.

    Raises the errors of `kb_branches.require_new` and `opening.create_engine`.
    """
    had_pin = plumbing.read_pin_bytes(ws.places) is not None
    if not ws.is_initialized:
        opening.require_runnable(engine, ws.settings.dolt_access)
    folder_modes.prepare_folders(ws.places)
    with locks.hold_exclusive(ws.places.workspace_lock, purpose="init", timeout=ws.lock_timeout):
        had_kb = ws.is_initialized
        if not had_kb:
            author = identity.read_identity(ws.places)
            access = ws.settings.dolt_access
            opening.create_engine(engine, ws.places.kb, author=author, date=clock.now(), access=access).close()
        untracked = [
            path for path in (ws.places.config, ws.places.pin) if plumbing.read_blob(ws.places, f":{path.name}") is None
        ]
        if start:
            _create_branch(ws, start)
            _write_files(ws, start)
        remote = start.remote if start else ""
        to_stage = [path for path in untracked if _is_ours(ws, path, remote)]
        unstaged = [path.name for path in to_stage if not staging.stage_path(ws.places, path)]
        attributes = pinning.send_to_driver(ws.places)
    written = [path.name for path in to_stage]
    if attributes.written:
        written.append(ATTRIBUTES)
    if not attributes.staged:
        unstaged.append(ATTRIBUTES)
    pin = migrated.read_pin(ws.places.kb, plumbing.read_pin_bytes(ws.places) or b"")
    return KnowledgeBaseReport(
        started=not had_kb and not cloned,
        pinned=not had_pin and had_kb and not cloned,
        cloned=cloned,
        kb=str(ws.places.kb),
        engine=ws.engine.name,
        revision=pin.dolt_commit,
        pin=pinning.form_block(pin),
        written=tuple(written),
        unstaged=tuple(unstaged),
        edited=attributes.edited,
        staged=not unstaged,
        others=tuple(offer for offer in others if offer.revision != pin.dolt_commit),
    )


def require_no_links(places: Places) -> None:
    """Refuse symbolic links in place of the files that a knowledge base needs in a work tree.

    Raises `FileFailed`.
    """
    require_files(places.config, places.pin, places.top / ATTRIBUTES)
    require_folders(places.shared, places.work_tree_folder)


def _require_engine(ws: Workspace, engine: EngineName | None) -> None:
    """Raise `AlreadyInitialized` if the knowledge base exists with another engine."""
    existing = detect_engine(ws.places.kb)
    if engine and existing and existing != engine:
        raise AlreadyInitialized(
            f"the engine of this knowledge base is already {existing}.",
            hint=f"run 'vmrag migrate --to {engine}' to migrate it",
            engine=existing,
        )


def _has_pins(ws: Workspace) -> bool:
    """Return whether a commit of any branch or tag has a pin."""
    return any(True for _ in history_pins.read_pins(ws.places, reflogs=False))


def _clone_remote(ws: Workspace) -> str:
    """Fetch the pinned knowledge base, and return the name of its remote."""
    try:
        return clone(ws).remote
    except RemoteError as error:
        elsewhere = reasons.explain_uninitialized(ws, error)
        if isinstance(elsewhere, KnowledgeElsewhere):
            raise InitializedElsewhere(elsewhere.message, hint=elsewhere.hint, **elsewhere.details) from error
        start_hint = hints.suggest_command("vmrag init --new", "start another one, which cannot be merged with it")
        retry_hint = hints.join_steps(error.hint, hints.suggest_command("vmrag init --knowledge-base"))
        raise AlreadyInitialized(
            f"other branches of this repository pin a knowledge base, which could not be fetched: {error.message}",
            hint=hints.join_alternatives(error.hint, start_hint) if isinstance(error, RemoteEmpty) else retry_hint,
        ) from error


def _create_branch(ws: Workspace, start: Start) -> None:
    """Create HEAD's KB branch, unless the start is detached.

    An existing branch was created before a kill, and stays.
    """
    code_branch = ws.read_trigger().branch or ""
    if start.detached:
        if code_branch:
            own_keys.forget_kb_branch(ws.places, code_branch)
        return
    if start.branch is None:
        name = kb_branches.prepare_branch(ws, ws.resolve_target())
    else:
        name = start.branch
        if ws.engine.find_branch(name) is None:
            kb_branches.require_new(ws, name)
        require_free_branch(ws, name, code_branch)
    first_revision = start.revision or read_root(ws.engine)
    branch = ws.engine.find_branch(name)
    if branch is None:
        ws.engine.create_branch(name, first_revision)
    if start.rows is not None and (branch is None or branch.head == first_revision):
        ws.engine.write(name, start.rows, expected=first_revision)
        author = identity.read_identity(ws.places)
        ws.engine.commit(name, message=start.message, author=author, date=clock.now(), expected=first_revision)
    own_keys.set_kb_branch(ws.places, code_branch, name)


def _write_files(ws: Workspace, start: Start) -> None:
    """Write the settings file if it does not exist, and then the pin."""
    own_settings.write_settings(ws, remote=start.remote)
    branch = None if start.detached else ws.find_kb_branch()
    revision = branch.head if branch else start.revision or read_root(ws.engine)
    pinning.write_pin(ws, revision, branch.name if branch else ws.read_trigger().branch or "main", remote=start.remote)
    empty_pin.mark_clone(ws)  # the user has just requested it


def _is_ours(ws: Workspace, path: Path, remote: str) -> bool:
    """Return whether vmrag wrote this file. The user stages settings that the user wrote."""
    return path.is_file() and (path == ws.places.pin or own_settings.is_written_by_us(ws, remote=remote))
