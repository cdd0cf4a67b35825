"""`vmrag uninstall --all`: take out of a repository what `vmrag init` put there, and never the only
copy of something that a person wrote.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

from vmrag_link import config, env, locks, settings_docs
from vmrag_link import trust as agreements
from vmrag_link.engines.base import ASIDE_PREFIX, is_memory_branch, is_reserved, read_root
from vmrag_link.errors import (
    Busy,
    ConfigInvalid,
    KnowledgeNotPushed,
    MergeConflict,
    RemoteError,
    RemoteMissing,
    plural,
    quoted,
    shortened,
)
from vmrag_link.git import configuration, pin_conflict, pin_merge, plumbing, refs, remotes, transfer
from vmrag_link.git.remotes import Peer
from vmrag_link.models import Record
from vmrag_link.ops.new_knowledge_base.knowledge_base import require_no_links
from vmrag_link.paths import PIN_NAME, Places, remove_lines, write_atomically
from vmrag_link.sync import background
from vmrag_link.transport import connection
from vmrag_link.workspace import Workspace, local_store
from vmrag_link.workspace.commits import revisions
from vmrag_link.workspace.follow.recovery import recover
from vmrag_link.workspace.merge import merge_state
from vmrag_link.workspace.pins import history_pins
from vmrag_link.workspace.pins.pinning import ATTRIBUTES
from vmrag_link.workspace.remotes import destinations

RESERVED_REFS = "refs/vmrag/"

DISCARD = "vmrag uninstall --all … with --discard-knowledge loses that for good"
MOVE_HINT = "let system.versioned be true, then: vmrag learning move && vmrag commit -m 'What stayed here'"


class Losses(Record, frozen=True):
    """What only this machine has.

    `uncommitted`: the KB branches with uncommitted documents; `set_aside`: those with documents
    that were set aside. `commits`, on `branches` or pinned by the code's history, that no remote
    holds; `problem`: why a remote could not be asked. `merge`: the one that is open. `local`: there
    are documents that are never pushed. `pin`: what the work tree pins is among the commits.
    """

    uncommitted: tuple[str, ...] = ()
    set_aside: tuple[str, ...] = ()
    commits: int = 0
    branches: tuple[str, ...] = ()
    problem: str = ""
    merge: str = ""
    local: bool = False
    pin: bool = False

    @property
    def is_empty(self) -> bool:
        return not (self.uncommitted or self.set_aside or self.commits or self.merge or self.local)


class RemovalReport(Record, frozen=True):
    """`changed`: the files that git tracks and that were changed or deleted; `kept`: the settings
    file, where its content was never committed. `settings`: the keys that git's configuration had.
    `agreed`: there was something that the person had agreed to. `knowledge`: where the knowledge
    base was, None if there was none; `lost` with it. `pin`: where nobody else has what it named,
    and no commit has it, that of HEAD is back (`restored`), or there is none (`removed`).
    """

    changed: tuple[str, ...]
    kept: tuple[str, ...]
    settings: tuple[str, ...]
    agreed: bool
    knowledge: str | None
    lost: Losses | None
    pin: Literal["kept", "restored", "removed"] = "kept"
    folders: tuple[str, ...] = ()
    refs: tuple[str, ...] = ()


class RemovalPlan(Record, frozen=True):
    """Everything that `remove` is going to remove.

    `files` of the work tree are deleted, except `.gitattributes`, which loses a line. `settings`
    are keys in git config, `refs` are in this repository.
    """

    files: tuple[str, ...]
    settings: tuple[str, ...]
    refs: tuple[str, ...]
    folders: tuple[str, ...]
    agreed: bool


def plan_removal(places: Places) -> RemovalPlan:
    """List everything that `remove` is going to remove. Changes nothing."""
    files = [ATTRIBUTES] if _has_attribute(places.top / ATTRIBUTES) else []
    files += [places.config.name] if _settings_are_saved(places) else []
    files += [places.pin.name] if places.pin.is_file() else []
    return RemovalPlan(
        tuple(files),
        configuration.list_own_keys(places),
        tuple(refs.list_refs(places, RESERVED_REFS)),
        tuple(map(str, _folders(places))),
        agreements.has_agreement(places),
    )


def require_saved(ws: Workspace, *, discard: bool) -> Losses | None:
    """What would be lost. Asks the remotes. Changes nothing but what killed commands left to do.

    Raises `MergeConflict` while git has the pin in conflict, and `KnowledgeNotPushed`, which names
    what would be lost, unless it is to be discarded.
    """
    require_no_links(ws.places)
    if not ws.is_initialized:
        return None
    recover(ws)
    if pin_conflict.read_stages(ws.places):
        busy = plumbing.find_operation(ws.places)
        raise MergeConflict(
            f"{PIN_NAME} is in conflict, and nothing could merge it without the knowledge base.",
            hint="vmrag resolve" + (f", then {plumbing.operation_hint(busy)}" if busy else ""),
        )
    losses = _losses(ws)
    if losses.is_empty:
        return None
    if not discard:
        raise KnowledgeNotPushed(
            f"Nothing was removed, because only this machine has {_describe(losses)}.",
            hint=f"{_saving(ws, losses)} ({DISCARD})",
            **{key: value for key in Losses.__struct_fields__ if (value := getattr(losses, key))},
        )
    return losses


def uninstall(ws: Workspace, losses: Losses | None) -> RemovalReport:
    """Remove settings, agreements, attributes, and last of all the knowledge base with its indexes.
    Run it again after a kill.

    The pin is removed from the work tree, and stays in git's history. The knowledge base of a Dolt
    server stays. Raises `Busy` while a process of ours works in the background.
    """
    places = ws.places
    _wait(ws)
    knowledge = str(places.kb) if ws.is_initialized else None
    ws.close()
    files = [places.top / ATTRIBUTES, places.config, places.pin]
    tracked = [file.name for file in files if plumbing.read_blob(places, f":{file.name}") is not None]
    gone: list[str] = []
    with locks.hold_exclusive(places.workspace_lock, purpose="uninstall", timeout=ws.lock_timeout):
        gone += [ATTRIBUTES] if _take_out_attribute(places.top / ATTRIBUTES) else []
        if _settings_are_saved(places):
            places.config.unlink()
            gone.append(places.config.name)
        pin = pin_merge.withdraw_pin(places) if losses and losses.pin else "kept"
        gone += [places.pin.name] if places.pin.is_file() or pin == "removed" else []
        places.pin.unlink(missing_ok=True)
        plumbing.unstage_files(places, gone)
        agreed = agreements.revoke_agreements(places)
        keys = configuration.remove_own_keys(places)
        for ref in refs.list_refs(places, RESERVED_REFS):
            transfer.set_ref(places, ref, None)
        folders = _folders(places)
        for folder in folders:
            shutil.rmtree(folder)
    changed = tuple(name for name in gone if name in tracked and plumbing.read_blob(places, f":{name}") is not None)
    kept = (places.config.name,) if places.config.exists() else ()
    return RemovalReport(
        changed, (*kept, *_own_files(places)), keys, agreed, knowledge, losses, pin, tuple(map(str, folders))
    )


def list_remote_refs(ws: Workspace, name: str) -> Mapping[str, str]:
    """The refs with knowledge on a git remote, and their commits. Asks the remote.

    Raises `RemoteMissing` for a name that git does not know, and as `transfer.fetch`.
    """
    names = remotes.list_remotes(ws.places)
    if name not in names:
        raise RemoteMissing(f"There is no git remote {shortened(name)!r}.", hint="git remote -v", remotes=[*names])
    return transfer.list_remote_refs(ws.places, Peer(name, may_ask=True), RESERVED_REFS)


def delete_refs(ws: Workspace, name: str, found: Mapping[str, str]) -> tuple[str, ...]:
    """Delete the refs of a remote that `require_remote` returned."""
    if found:
        transfer.delete_refs(ws.places, Peer(name, may_ask=True), found)
    return tuple(found)


def remove_empty_folders() -> None:
    """Remove our folders of this person's data if nothing is left in them."""
    data = env.data_home()
    clients = data / "vmrag" / "clients"
    default = [data.parent] if data == env.user_home() / ".local" / "share" else []
    with contextlib.suppress(OSError):  # not there, or not empty
        if [path.name for path in clients.iterdir()] == ["lock"]:
            (clients / "lock").unlink()
    for folder in (clients, data / "vmrag" / "trust", data / "vmrag", data, *default):
        with contextlib.suppress(OSError):
            folder.rmdir()


def _own_files(places: Places) -> Iterator[str]:
    """List the files that a person wrote for vmrag, such as golden queries."""
    folder = places.top / ".vmrag"
    if folder.is_dir() and not folder.is_symlink():
        yield from sorted(path.relative_to(places.top).as_posix() for path in folder.rglob("*") if path.is_file())


# -- what would be lost


def _losses(ws: Workspace) -> Losses:
    local = ws.local.exists and ws.local.engine.count_documents(local_store.AT) > 0
    if ws.engine.shared:  # the server keeps all of it
        return Losses(local=local)
    branches = ws.engine.list_branches()
    aside = tuple(branch.name for branch in branches if branch.name.startswith(ASIDE_PREFIX))
    own = [branch for branch in branches if not is_reserved(branch.name)]
    here = ws.resolve_target().pin
    named = [*([here] if here else ()), *(pin for pin, _ in history_pins.read_pins(ws.places))]
    pinned = [pin.dolt_commit for pin in named if ws.engine.has_revision(pin.dolt_commit)]
    heads, problem = _remote_heads(ws)
    known = {*heads, read_root(ws.engine)}
    lacking = set(ws.engine.find_unreachable([*(each.head for each in own), *pinned], heads=known))
    merge = merge_state.read_merge(ws)
    return Losses(
        tuple(each.name for each in own if each.dirty),
        aside,
        revisions.count_beyond(ws.engine, sorted(lacking), sorted(known)) if lacking else 0,
        tuple(each.name for each in own if each.head in lacking),
        problem if lacking else "",
        merge.source if merge else "",
        local,
        here is not None and here.dolt_commit in lacking,
    )


def _remote_heads(ws: Workspace) -> tuple[set[str], str]:
    """The heads of all branches of the remotes to which `vmrag push` goes, as they are now, and why
    one of them could not be asked.
    """
    heads: set[str] = set()
    try:
        for place in destinations.list_push_addresses(ws, None):
            with connection.open_transport(ws.places, ws.engine, place, timeout=ws.lock_timeout) as peer:
                heads |= set(peer.read_heads().values()) if peer.fetch() else set()
    except RemoteError as error:
        return heads, error.message
    return heads, ""


def _describe(losses: Losses) -> str:
    return "; ".join(_parts(losses))


def _parts(losses: Losses) -> Iterator[str]:
    if losses.uncommitted:
        yield f"uncommitted documents on {', '.join(map(repr, losses.uncommitted))}"
    if losses.set_aside:
        yield f"documents that were set aside ({', '.join(losses.set_aside)})"
    if losses.commits:
        where = f" on {', '.join(map(repr, losses.branches))}" if losses.branches else ""
        why = f" (as far as is known: {losses.problem.rstrip('.')})" if losses.problem else ""
        yield f"{plural(losses.commits, 'commit')} of the knowledge base{where}{why}"
    if losses.merge:
        yield f"the open merge of {losses.merge}"
    if losses.local:
        yield "documents that are never pushed (system.versioned: false)"


def _saving(ws: Workspace, losses: Losses) -> str:
    """The command that keeps the first of it, or shows where it is."""
    if losses.merge:
        return "vmrag resolve && vmrag commit -m 'Merge'"
    if losses.uncommitted:
        own = ws.find_kb_branch()
        return "vmrag commit -m 'What changed'" if own and own.name in losses.uncommitted else "vmrag branch"
    if losses.set_aside:
        mergeable = [name for name in losses.set_aside if not is_memory_branch(name)]
        return f"vmrag merge {quoted(mergeable[0])}" if mergeable else "vmrag branch"
    return "vmrag push --all" if losses.commits else MOVE_HINT


# -- files


def _has_attribute(path: Path) -> bool:
    data = path.read_bytes() if path.is_file() else b""
    return remove_lines(data, pin_merge.names_driver) != data


def _take_out_attribute(path: Path) -> bool:
    """Remove our line; the file, if nothing else is in it."""
    before = path.read_bytes() if path.is_file() else b""
    after = remove_lines(before, pin_merge.names_driver)
    if after == before:
        return False
    if after.strip():
        write_atomically(path, after)
    else:
        path.unlink()
    return True


def _settings_are_saved(places: Places) -> bool:
    """Return True if git's index or our template has the text of the settings file."""
    try:
        content = config.read_settings_file(places.config)
    except ConfigInvalid:  # not a file, or it cannot be read: it stays
        return False
    return content is not None and content in (
        plumbing.read_blob(places, f":{places.config.name}"),
        settings_docs.format_template().encode(),
    )


def _folders(places: Places) -> list[Path]:
    """Ours in each work tree's git directory, and the one that they share, which is the last."""
    own = [git_folder / "vmrag" for git_folder in refs.list_git_dirs(places)]
    folders = [each for each in dict.fromkeys((*own, places.work_tree_folder)) if each != places.shared]
    return [folder for folder in (*folders, places.shared) if folder.is_dir() and not folder.is_symlink()]


def _wait(ws: Workspace) -> None:
    for job in (
        background.get_sync_job(ws.places),
        background.get_chroma_job(ws.places),
        background.get_index_job(ws.places),
    ):
        if not background.wait_for_end(job, within=ws.lock_timeout):
            raise Busy(
                "A process of vmrag works in the background of this repository.",
                hint="vmrag status (then again: vmrag uninstall --all)",
            )
