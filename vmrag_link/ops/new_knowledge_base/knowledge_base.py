"""Start the knowledge base of a repository, with its settings file and its first pin."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from vmrag_link import clock, locks
from vmrag_link.engines import migrated, opening
from vmrag_link.engines.base import EngineName, Write, detect_engine, read_root
from vmrag_link.errors import AlreadyInitialized, InitializedElsewhere, KnowledgeElsewhere, RemoteEmpty, RemoteError
from vmrag_link.git import plumbing, sidecar_repo
from vmrag_link.models import Record
from vmrag_link.ops.branch.switch import require_free_branch
from vmrag_link.ops.init import own_settings
from vmrag_link.paths import Places, require_files, require_folders
from vmrag_link.workspace import Workspace, reasons
from vmrag_link.workspace.pins import empty_pin, history_pins, kb_branches, pinning
from vmrag_link.workspace.pins.history_pins import Offer, list_offers
from vmrag_link.workspace.pins.pinning import ATTRIBUTES, PinBlock
from vmrag_link.workspace.remotes.clone import clone


class Start(Record, frozen=True):
    """How the knowledge base of HEAD's code branch begins, or continues.

    `branch`: its KB branch (None: named after the code branch), made at `revision` (empty: the
    root). `detached`: no branch, the revision is pinned by its hash. `rows` become the first commit
    there. `remote` is written into the settings.
    """

    branch: str | None = None
    revision: str = ""
    detached: bool = False
    rows: Write | None = None
    message: str = ""
    remote: str = ""


class KnowledgeBaseReport(Record, frozen=True):
    """`started`: there was no knowledge base; `pinned`: there was one, and no pin.

    `written` are the files that were made or changed, or left unstaged by a run that was
    interrupted; empty: nothing was left to do. `unstaged` are those that could not be staged,
    because git was busy; `.gitattributes` is not staged where it is `edited`, that is, has unstaged
    changes of the user. `staged`: all are. `cloned`: the remote that the knowledge base came from,
    because the repository's history has pins already. `others`: knowledge that the checked-out
    commit could have taken, because other commits pin it.
    """

    started: bool
    pinned: bool
    cloned: str | None
    kb: str
    engine: str
    revision: str
    pin: PinBlock
    written: tuple[str, ...]
    unstaged: tuple[str, ...]
    edited: bool
    staged: bool
    others: tuple[Offer, ...]


ChooseOffer = Callable[[Sequence[Offer]], Offer | None]
"""Which of these a code branch begins with; None: without documents."""


def start_knowledge_base(
    ws: Workspace,
    *,
    new: bool = False,
    start: Start | None = None,
    engine: EngineName | None = None,
    choose: ChooseOffer = lambda _: None,
) -> KnowledgeBaseReport:
    """Create the knowledge base, the settings file and the pin.

    After a kill, run it again to finish. If the history of git pins a knowledge base, this fetches
    it: a new one shares no history with it and cannot be pushed to the same remote. `new` starts a
    new one, unless the checked-out commit has a pin. `start`: how to begin; it is ignored if a
    knowledge base was fetched. `engine`: the engine of a new knowledge base, instead of the
    setting. `choose` is called without `start` if the checked-out commit has no pin and other
    commits have one.

    Raises `AlreadyInitialized` if the pinned knowledge base cannot be fetched, or if it exists with
    another engine; `DoltMissing`, `ConfigInvalid` or `EngineFailed` if the engine cannot run here.
    """
    require_no_links(ws.places)
    pinned = plumbing.read_pin_bytes(ws.places)
    made_by = engine or ws.config.engine  # a settings file that cannot be read stops here, before anything is made
    _require_engine(ws, engine)
    cloned = None
    if not new and opening.is_lost(ws.places.kb):
        raise reasons.explain_uninitialized(ws)
    if not ws.is_initialized and (pinned is not None or (not new and _pinned_somewhere(ws))):
        cloned = _cloned(ws)
        _require_engine(ws, engine)
    found = list_offers(ws) if pinned is None and ws.is_initialized and not ws.find_kb_branch() else ()
    if cloned or start is None:
        start = None if pinned is not None else _start(ws, choose(found) if found else None)
    return create_missing_parts(ws, start, cloned=cloned, engine=made_by, others=found)


def _start(ws: Workspace, taken: Offer | None) -> Start:
    revision = taken.revision if taken else ""
    return Start(revision=revision, detached=ws.read_trigger().branch is None)


def _require_engine(ws: Workspace, engine: EngineName | None) -> None:
    """Raise `AlreadyInitialized` where a knowledge base is there that is not of this engine."""
    found = detect_engine(ws.places.kb)
    if engine and found and found != engine:
        raise AlreadyInitialized(
            f"The knowledge base of this repository is stored by {found} already.",
            hint=f"Move it: vmrag migrate --to {engine}",
            engine=found,
        )


def require_no_links(places: Places) -> None:
    """Refuse symbolic links in place of the files that a knowledge base needs in a work tree.

    Raises `FileFailed`.
    """
    require_files(places.config, places.pin, places.top / ATTRIBUTES)
    require_folders(places.shared, places.work_tree_folder)


def create_missing_parts(
    ws: Workspace,
    start: Start | None,
    *,
    cloned: str | None = None,
    engine: EngineName = "doltlite",
    others: Sequence[Offer] = (),
) -> KnowledgeBaseReport:
    """Make what a knowledge base needs in this work tree and lacks; see `start_knowledge_base`.

    Raises as `branches.require_new` and `opening.create`.
    """
    pinned = plumbing.read_pin_bytes(ws.places)
    if not ws.is_initialized:
        opening.require_runnable(engine, ws.settings.dolt_access)
    sidecar_repo.prepare_folders(ws.places)
    with locks.hold_exclusive(ws.places.workspace_lock, purpose="init", timeout=ws.lock_timeout):
        started = not ws.is_initialized
        if started:
            now = clock.now()
            who, access = plumbing.read_identity(ws.places), ws.settings.dolt_access
            opening.create_engine(engine, ws.places.kb, author=who, date=now, access=access).close()
        if start:
            _branch(ws, start)
        unknown = [each for each in (ws.places.config, ws.places.pin) if not _in_index(ws, each)]
        remote = start.remote if start else ""
        if start:
            _write(ws, start)
        # Settings that a user wrote are theirs to stage.
        ours = [
            each
            for each in unknown
            if each.is_file() and (each == ws.places.pin or own_settings.is_written_by_us(ws, remote=remote))
        ]
        unstaged = [our.name for our in ours if not plumbing.stage_path(ws.places, our)]
        merging = pinning.send_to_driver(ws.places)
    written = [*(our.name for our in ours), *([ATTRIBUTES] if merging.written else [])]
    unstaged += [] if merging.staged else [ATTRIBUTES]
    pin = migrated.read_pin(ws.places.kb, plumbing.read_pin_bytes(ws.places) or b"")
    return KnowledgeBaseReport(
        started and not cloned,
        pinned is None and not started and not cloned,
        cloned,
        str(ws.places.kb),
        ws.engine.name,
        pin.dolt_commit,
        pinning.form_block(pin),
        tuple(written),
        tuple(unstaged),
        merging.edited,
        not unstaged,
        tuple(each for each in others if each.revision != pin.dolt_commit),
    )


def _pinned_somewhere(ws: Workspace) -> bool:
    return any(True for _ in history_pins.read_pins(ws.places, reflogs=False))


def _cloned(ws: Workspace) -> str:
    try:
        return clone(ws).remote
    except RemoteError as error:
        elsewhere = reasons.explain_uninitialized(ws, error)
        if isinstance(elsewhere, KnowledgeElsewhere):
            raise InitializedElsewhere(elsewhere.message, hint=elsewhere.hint, **elsewhere.details) from error
        then = "or start another one, which cannot be merged with theirs: vmrag init --new"
        raise AlreadyInitialized(
            f"Other branches of this repository pin a knowledge base, and it cannot be fetched: {error.message}",
            hint=f"{error.hint}; {then if isinstance(error, RemoteEmpty) else 'then: vmrag init --knowledge-base'}",
        ) from error


def _branch(ws: Workspace, start: Start) -> None:
    """Make HEAD's KB branch, unless it is to have none.

    An existing one was made before a kill, and stays.
    """
    code = ws.read_trigger().branch or ""
    if start.detached:
        if code:
            plumbing.forget_kb_branch(ws.places, code)
        return
    if start.branch is None:
        name = kb_branches.prepare_branch(ws, ws.resolve_target())
    else:
        name = start.branch
        if ws.engine.find_branch(name) is None:
            kb_branches.require_new(ws, name)
        require_free_branch(ws, name, code)
    root = start.revision or read_root(ws.engine)
    if ws.engine.find_branch(name) is None:
        ws.engine.create_branch(name, root)
    branch = ws.engine.find_branch(name)
    if start.rows is not None and branch and branch.head == root:
        now = clock.now()
        ws.engine.write(name, start.rows, expected=root)
        who = plumbing.read_identity(ws.places)
        ws.engine.commit(name, message=start.message, author=who, date=now, expected=root)
    plumbing.set_kb_branch(ws.places, code, name)


def _write(ws: Workspace, start: Start) -> None:
    """Write the settings file, if there is none, and last of all the pin."""
    own_settings.write_settings(ws, remote=start.remote)
    own = None if start.detached else ws.find_kb_branch()
    revision = own.head if own else start.revision or read_root(ws.engine)
    pinning.write_pin(ws, revision, own.name if own else ws.read_trigger().branch or "main", remote=start.remote)
    empty_pin.mark_clone(ws)  # the user has just asked for it


def _in_index(ws: Workspace, path: Path) -> bool:
    return plumbing.read_blob(ws.places, f":{path.name}") is not None
