"""`vmrag uninstall --all`: remove what `vmrag init` created, but never the only copy of a user's
work.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

from msgspec.structs import asdict

from vmrag_link import agreements, config, env, hints, locks, settings_docs
from vmrag_link.engines.own_branches import ASIDE_PREFIX, is_memory_branch, is_reserved, read_root
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
from vmrag_link.file_access import remove_lines, write_atomically
from vmrag_link.git import (
    git_operation,
    merge_driver,
    own_keys,
    pin_conflict,
    pin_merge,
    plumbing,
    refs,
    remotes,
    staging,
    transfer,
    work_trees,
)
from vmrag_link.git.remotes import Peer
from vmrag_link.models import Record
from vmrag_link.ops.new_knowledge_base.knowledge_base import require_no_links
from vmrag_link.paths import PIN_NAME, Places
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

DISCARD = "add --discard-knowledge to lose that for good"
_SHOW_BRANCHES = "run 'vmrag branch' to list the KB branches"
MOVE_HINT = "set system.versioned to true, then run 'vmrag learning move && vmrag commit -m \"What stayed here\"'"


class Losses(Record, frozen=True):
    """Contents that exist only on this machine."""

    uncommitted: tuple[str, ...] = ()
    """KB branches with uncommitted documents."""
    set_aside: tuple[str, ...] = ()
    """KB branches with stashed documents."""
    commits: int = 0
    """Number of commits that no remote has, on `branches` or pinned by the code's history."""
    branches: tuple[str, ...] = ()
    problem: str = ""
    """Why a remote could not be contacted."""
    merge: str = ""
    """The source of the open merge."""
    local: bool = False
    """True if there are documents that are never pushed."""
    pin: bool = False
    """True if the commits include the revision that the work tree pins."""

    @property
    def is_empty(self) -> bool:
        return not (self.uncommitted or self.set_aside or self.commits or self.merge or self.local)


class RemovalReport(Record, frozen=True):
    """The result of `uninstall`."""

    changed: tuple[str, ...]
    """Tracked files that were changed or deleted."""
    kept: tuple[str, ...]
    """The settings file, if its contents were never committed, and files that the user wrote for
    vmrag.
    """
    settings: tuple[str, ...]
    """The keys that were removed from git's configuration."""
    agreed: bool
    """True if the user had trusted something."""
    knowledge: str | None
    """The former path of the knowledge base; None if there was none."""
    lost: Losses | None
    """The losses that the user accepted."""
    pin: Literal["kept", "restored", "removed"] = "kept"
    """The pin in git's index.

    If its revision was lost and no commit has the pin, HEAD's pin was `restored`, or the pin was
    `removed`.
    """
    folders: tuple[str, ...] = ()
    refs: tuple[str, ...] = ()


class RemovalPlan(Record, frozen=True):
    """Everything that `uninstall` is going to remove."""

    files: tuple[str, ...]
    """Files of the work tree that are deleted. `.gitattributes` only loses a line."""
    settings: tuple[str, ...]
    """Keys in git's configuration."""
    refs: tuple[str, ...]
    """Refs in this repository."""
    folders: tuple[str, ...]
    agreed: bool


def plan_removal(places: Places) -> RemovalPlan:
    """List everything that `uninstall` is going to remove. Changes nothing."""
    files = [ATTRIBUTES] if _has_attribute(places.top / ATTRIBUTES) else []
    files += [places.config.name] if _settings_are_saved(places) else []
    files += [places.pin.name] if places.pin.is_file() else []
    return RemovalPlan(
        files=tuple(files),
        settings=own_keys.list_own_keys(places),
        refs=tuple(refs.list_refs(places, RESERVED_REFS)),
        folders=tuple(map(str, _list_folders(places))),
        agreed=agreements.has_agreement(places),
    )


def require_saved(ws: Workspace, *, discard: bool) -> Losses | None:
    """Return what a removal would lose, after a check of the remotes; None if nothing.

    It changes nothing, except that it finishes killed commands. Raises `MergeConflict` while git's
    pin has a conflict, and `KnowledgeNotPushed` with the losses unless `discard`.
    """
    require_no_links(ws.places)
    if not ws.is_initialized:
        return None
    recover(ws)
    if pin_conflict.read_stages(ws.places):
        busy = git_operation.find_operation(ws.places)
        raise MergeConflict(
            f"{PIN_NAME} has a conflict, which cannot be resolved without the knowledge base.",
            hint=hints.join_steps(
                "run 'vmrag resolve' to resolve the conflicts", git_operation.suggest_finish(busy) if busy else ""
            ),
        )
    losses = _find_losses(ws)
    if losses.is_empty:
        return None
    if not discard:
        raise KnowledgeNotPushed(
            f"nothing was removed, because only this machine has {'; '.join(_list_losses(losses))}.",
            hint=hints.join_alternatives(_form_save_hint(ws, losses), DISCARD),
            **{key: value for key, value in asdict(losses).items() if value},
        )
    return losses


def uninstall(ws: Workspace, losses: Losses | None) -> RemovalReport:
    """Remove settings, trust, attributes, and finally the knowledge base with its indexes. After a
    kill, run it again.

    The pin is removed from the work tree, and stays in git's history. The knowledge base of a Dolt
    server stays. Raises `Busy` while a background process of vmrag runs.
    """
    places = ws.places
    _wait_for_jobs(ws)
    knowledge = str(places.kb) if ws.is_initialized else None
    ws.close()
    files = [places.top / ATTRIBUTES, places.config, places.pin]
    tracked = [file.name for file in files if plumbing.read_blob(places, f":{file.name}") is not None]
    removed: list[str] = []
    with locks.hold_exclusive(places.workspace_lock, purpose="uninstall", timeout=ws.lock_timeout):
        removed += [ATTRIBUTES] if _remove_attribute(places.top / ATTRIBUTES) else []
        if _settings_are_saved(places):
            places.config.unlink()
            removed.append(places.config.name)
        pin = pin_merge.withdraw_pin(places) if losses and losses.pin else "kept"
        removed += [places.pin.name] if places.pin.is_file() or pin == "removed" else []
        places.pin.unlink(missing_ok=True)
        staging.unstage_files(places, removed)
        agreed = agreements.revoke_agreements(places)
        keys = own_keys.remove_own_keys(places)
        for ref in refs.list_refs(places, RESERVED_REFS):
            transfer.set_ref(places, ref, None)
        folders = _list_folders(places)
        for folder in folders:
            shutil.rmtree(folder)
    changed = tuple(name for name in removed if name in tracked and plumbing.read_blob(places, f":{name}") is not None)
    kept = (places.config.name,) if places.config.exists() else ()
    return RemovalReport(
        changed=changed,
        kept=(*kept, *_list_user_files(places)),
        settings=keys,
        agreed=agreed,
        knowledge=knowledge,
        lost=losses,
        pin=pin,
        folders=tuple(map(str, folders)),
    )


def list_remote_refs(ws: Workspace, name: str) -> Mapping[str, str]:
    """Return the refs of a git remote that contain knowledge, and their commits. Contacts the
    remote.

    Raises `RemoteMissing` for an unknown name, and the errors of `transfer.fetch`.
    """
    names = remotes.list_remotes(ws.places)
    if name not in names:
        raise RemoteMissing(
            f"no such git remote: {shortened(name)!r}.",
            hint="run 'git remote -v' to list the remotes",
            remotes=[*names],
        )
    return transfer.list_remote_refs(ws.places, Peer(name, may_ask=True), RESERVED_REFS)


def delete_refs(ws: Workspace, name: str, refs_to_delete: Mapping[str, str]) -> tuple[str, ...]:
    """Delete the refs of a remote that `list_remote_refs` returned."""
    if refs_to_delete:
        transfer.delete_refs(ws.places, Peer(name, may_ask=True), refs_to_delete)
    return tuple(refs_to_delete)


def remove_empty_folders() -> None:
    """Remove vmrag's folders of the user's data if they are empty."""
    data = env.data_home()
    clients = data / "vmrag" / "clients"
    default = [data.parent] if data == env.user_home() / ".local" / "share" else []
    with contextlib.suppress(OSError):  # missing, or not empty
        if [path.name for path in clients.iterdir()] == ["lock"]:
            (clients / "lock").unlink()
    for folder in (clients, data / "vmrag" / "trust", data / "vmrag", data, *default):
        with contextlib.suppress(OSError):
            folder.rmdir()


def _list_user_files(places: Places) -> Iterator[str]:
    """List the files that the user wrote for vmrag, such as golden queries."""
    folder = places.top / ".vmrag"
    if folder.is_dir() and not folder.is_symlink():
        yield from sorted(path.relative_to(places.top).as_posix() for path in folder.rglob("*") if path.is_file())


def _find_losses(ws: Workspace) -> Losses:
    local = ws.local.exists and ws.local.engine.count_documents(local_store.AT) > 0
    if ws.engine.shared:  # the server keeps everything
        return Losses(local=local)
    branches = ws.engine.list_branches()
    aside = tuple(branch.name for branch in branches if branch.name.startswith(ASIDE_PREFIX))
    user_branches = [branch for branch in branches if not is_reserved(branch.name)]
    present_pin = ws.resolve_target().pin
    pins = [*([present_pin] if present_pin else ()), *(pin for pin, _ in history_pins.read_pins(ws.places))]
    pinned = [pin.dolt_commit for pin in pins if ws.engine.has_revision(pin.dolt_commit)]
    heads, problem = _fetch_remote_heads(ws)
    remote_heads = {*heads, read_root(ws.engine)}
    missing = set(ws.engine.find_unreachable([*(branch.head for branch in user_branches), *pinned], heads=remote_heads))
    merge = merge_state.read_merge(ws)
    return Losses(
        uncommitted=tuple(branch.name for branch in user_branches if branch.dirty),
        set_aside=aside,
        commits=revisions.count_beyond(ws.engine, sorted(missing), sorted(remote_heads)) if missing else 0,
        branches=tuple(branch.name for branch in user_branches if branch.head in missing),
        problem=problem if missing else "",
        merge=merge.source if merge else "",
        local=local,
        pin=present_pin is not None and present_pin.dolt_commit in missing,
    )


def _fetch_remote_heads(ws: Workspace) -> tuple[set[str], str]:
    """Return the heads of all remotes that `vmrag push` uses, and why one of them could not be
    contacted.
    """
    heads: set[str] = set()
    try:
        for address in destinations.list_push_addresses(ws, None):
            with connection.open_transport(ws.places, ws.engine, address, timeout=ws.lock_timeout) as peer:
                heads |= set(peer.read_heads().values()) if peer.fetch() else set()
    except RemoteError as error:
        return heads, error.message
    return heads, ""


def _list_losses(losses: Losses) -> Iterator[str]:
    if losses.uncommitted:
        yield f"uncommitted documents on {', '.join(map(repr, losses.uncommitted))}"
    if losses.set_aside:
        yield f"stashed documents ({', '.join(losses.set_aside)})"
    if losses.commits:
        places = f" on {', '.join(map(repr, losses.branches))}" if losses.branches else ""
        doubt = f" (as of the last fetch: {losses.problem.rstrip('.')})" if losses.problem else ""
        yield f"{plural(losses.commits, 'commit')} of the knowledge base{places}{doubt}"
    if losses.merge:
        yield f"the open merge of {losses.merge}"
    if losses.local:
        yield "documents that are never pushed (system.versioned: false)"


def _form_save_hint(ws: Workspace, losses: Losses) -> str:
    """Return the hint to save the first loss, or to see where it is."""
    if losses.merge:
        return "run 'vmrag resolve && vmrag commit -m Merge' to commit the merge"
    if losses.uncommitted:
        branch = ws.find_kb_branch()
        if branch and branch.name in losses.uncommitted:
            return "run 'vmrag commit -m \"What changed\"' to commit the documents"
        return _SHOW_BRANCHES
    if losses.set_aside:
        mergeable = next((name for name in losses.set_aside if not is_memory_branch(name)), "")
        return hints.suggest_command(f"vmrag merge {quoted(mergeable)}", "merge them") if mergeable else _SHOW_BRANCHES
    if losses.commits and not remotes.list_remotes(ws.places):
        return "run 'git remote add origin URL && vmrag push --all' to push them"
    return "run 'vmrag push --all' to push them" if losses.commits else MOVE_HINT


def _has_attribute(path: Path) -> bool:
    data = path.read_bytes() if path.is_file() else b""
    return remove_lines(data, merge_driver.names_driver) != data


def _remove_attribute(path: Path) -> bool:
    """Remove vmrag's line, and the file if nothing else is in it."""
    before = path.read_bytes() if path.is_file() else b""
    after = remove_lines(before, merge_driver.names_driver)
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
    except ConfigInvalid:  # not a file, or unreadable, so it stays
        return False
    return content is not None and content in (
        plumbing.read_blob(places, f":{places.config.name}"),
        settings_docs.format_template().encode(),
    )


def _list_folders(places: Places) -> list[Path]:
    """Return vmrag's folder in each work tree's git directory, and finally the shared one."""
    own_folders = [git_folder / "vmrag" for git_folder in work_trees.list_git_dirs(places)]
    folders = [folder for folder in dict.fromkeys((*own_folders, places.work_tree_folder)) if folder != places.shared]
    return [folder for folder in (*folders, places.shared) if folder.is_dir() and not folder.is_symlink()]


def _wait_for_jobs(ws: Workspace) -> None:
    for job in (
        background.get_sync_job(ws.places),
        background.get_chroma_job(ws.places),
        background.get_index_job(ws.places),
    ):
        if not background.wait_for_end(job, within=ws.lock_timeout):
            raise Busy(
                "a background process of vmrag is running in this repository.",
                hint="run 'vmrag status' to see it, then 'vmrag uninstall --all' when it has ended",
            )
