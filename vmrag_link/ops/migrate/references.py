"""Update everything that names revisions after a migration.

These are branches, anchors, links and old names in the new knowledge base, and the pin in the work
tree. The settings file, which names the engine, changes with the pin. Both are staged, so that one
git commit shares them. Operations that name revisions in files, such as a merge, a rebase or an
interrupted commit, must be finished before.
"""

from __future__ import annotations

import msgspec

from vmrag_link import pin as pins
from vmrag_link import settings_docs
from vmrag_link.engines.base import KEEP_BRANCH, Engine, EngineName, read_root
from vmrag_link.errors import Busy, GitBusy, KnowledgeMoved, MergeConflict, PinMalformed, Uncommitted, plural
from vmrag_link.file_access import read_regular, require_files, write_atomically
from vmrag_link.git import plumbing, refs, staging
from vmrag_link.models import Record
from vmrag_link.ops.migrate.carry import CarriedEntries, MigrationPlan, is_carried
from vmrag_link.ops.migrate.exchange import MigrationState, RewrittenFile
from vmrag_link.paths import CONFIG_NAME, PIN_NAME
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.follow.recovery import recover
from vmrag_link.workspace.merge import merge_state
from vmrag_link.workspace.remotes import revision_map

_AUTHOR = "vmrag <vmrag@localhost>"


def transfer_names(old: Engine, new: Engine, plan: MigrationPlan, entries_by_name: CarriedEntries) -> None:
    """Make the copies reachable like the old revisions, and note their old names."""
    with new.write_lock("migrate"):
        for name, head in plan.branches.items():
            _set_branch(new, name, entries_by_name[head].revision)
        for branch in new.list_branches():
            if not new.shared and is_carried(branch.name) and branch.name not in plan.branches:
                new.delete_branch(branch.name, expected=branch.head)  # it was deleted since an earlier run
        for revision in plan.anchors:
            new.anchor_revision(entries_by_name[revision].revision, reason="kept before the migration")
        entries = _merge_entries(old, new, entries_by_name)
        has_new_entries = not entries.items() <= revision_map.read_map(new).items()
        revision_map.store_entries(new, entries)
        links = [
            msgspec.structs.replace(link, dolt_commit=entries_by_name[link.dolt_commit].revision)
            if link.dolt_commit in entries_by_name
            else link
            for link in old.list_links()
        ]
        if links != new.list_links():
            date = new.read_revision(read_root(new)).date
            new.write_links(links, message="Migrate the links", author=_AUTHOR, date=date)
        if has_new_entries and not new.shared:
            new.collect_garbage()


def require_nothing_new(engine: Engine) -> None:
    """Raise `KnowledgeMoved` or `Uncommitted` if a migrated knowledge base contains more than the
    former one.
    """
    heads = []
    for branch in engine.list_branches():
        if branch.dirty:
            raise Uncommitted(
                f"the branch {branch.name!r} has uncommitted documents, which the former knowledge base does not have.",
                hint="run 'vmrag restore . && vmrag migrate --undo' to discard them",
                branch=branch.name,
            )
        if is_carried(branch.name) or branch.name == KEEP_BRANCH:
            heads.append(branch.head)
    carried = {entry.revision for entry in revision_map.read_map(engine).values()}
    known_revisions = carried | engine.map_parents([read_root(engine)]).keys()
    new = sorted(
        revision for revision in engine.map_parents(heads).keys() - known_revisions if not engine.is_bare(revision)
    )
    if new:
        raise KnowledgeMoved(
            f"the undo would lose {plural(len(new), 'revision')} that {'was' if len(new) == 1 else 'were'} made since the"
            f" migration ({new[0][:12]}{', …' * (len(new) > 1)}).",
            hint="run 'vmrag migrate --help' to see how to move to another engine with them",
            revisions=new[:10],
        )


def _set_branch(engine: Engine, name: str, head: str) -> None:
    """Set a branch to this head. On a server, which other clones use, it only moves forward."""
    branch = engine.find_branch(name)
    if branch is None:
        engine.create_branch(name, head)
    elif branch.head == head or (engine.shared and engine.is_ancestor(head, branch.head)):
        return
    elif engine.shared and not engine.is_ancestor(branch.head, head):
        engine.anchor_revision(head, reason=f"the head of {name} before the migration")
    else:
        engine.move_branch(name, head, expected=branch.head)


def _merge_entries(old: Engine, new: Engine, entries_by_name: CarriedEntries) -> revision_map.Entries:
    """Return the old names, and the names that were already old before."""
    earlier = {
        name: entries_by_name[entry.revision]
        for name, entry in revision_map.read_map(old).items()
        if entry.revision in entries_by_name
    }
    existing = new.map_parents(earlier)
    return {name: entry for name, entry in earlier.items() if name not in existing} | entries_by_name


class ChangedFiles(Record, frozen=True, rename={"skipped": "left"}):
    """Files of the work tree that a migration changed."""

    written: tuple[str, ...] = ()
    unstaged: tuple[str, ...] = ()
    """Written files that are not staged, because of the user's changes or because git was busy."""
    skipped: tuple[str, ...] = ()
    """Files that were not written, because they changed since."""


def plan_settings_change(ws: Workspace, to: EngineName) -> RewrittenFile:
    """Return the change of the settings file. Raises `ConfigInvalid` if the engine cannot be set in
    it.
    """
    require_files(ws.places.config)
    before = ws.places.config.read_bytes() if ws.places.config.exists() else b""
    return RewrittenFile(before.decode(), settings_docs.set_value(before, "engine", to).decode())


def plan_pin_change(ws: Workspace, entries_by_name: CarriedEntries) -> RewrittenFile | None:
    """Return the change of the pin; None if it does not name a copied revision."""
    try:
        data = read_regular(ws.places.pin, pins.MAX_BYTES + 1)
        pin = pins.parse_pin(data)
    except (OSError, PinMalformed):
        return None
    if pin.dolt_commit not in entries_by_name:
        return None
    new = msgspec.structs.replace(pin, dolt_commit=entries_by_name[pin.dolt_commit].revision)
    return RewrittenFile(data.decode(), pins.format_pin(new).decode())


def change_files(ws: Workspace, state: MigrationState, *, back: bool = False) -> ChangedFiles:
    """Write the files of a migration, or restore them if `back`.

    A file that changed since then is not written. git's index is not waited for.
    """
    changes = ChangedFiles()
    for name, rewritten in ((CONFIG_NAME, state.settings), (PIN_NAME, state.pin)):
        if rewritten and rewritten.before != rewritten.after:
            old, new = (rewritten.after, rewritten.before) if back else (rewritten.before, rewritten.after)
            changes = _join_changes(changes, _replace_file(ws, name, old.encode(), new.encode()))
    return changes


def _replace_file(ws: Workspace, name: str, old: bytes, new: bytes) -> ChangedFiles:
    path = ws.places.top / name
    require_files(path)
    contents = path.read_bytes() if path.exists() else b""
    if contents not in (old, new):
        return ChangedFiles(skipped=(name,))
    if contents == old:
        write_atomically(path, new)
    # The user's own changes are not staged.
    untouched = (plumbing.read_blob(ws.places, f":{name}") or b"") in (old, new)
    staged = untouched and staging.stage_path(ws.places, path)
    return ChangedFiles((name,), () if staged else (name,))


def _join_changes(first: ChangedFiles, second: ChangedFiles) -> ChangedFiles:
    return ChangedFiles(
        first.written + second.written, first.unstaged + second.unstaged, first.skipped + second.skipped
    )


def require_nothing_open(ws: Workspace) -> None:
    """Raise `GitBusy`, `MergeConflict` or `Busy` if an operation of git, a merge or a commit is
    unfinished.
    """
    if operation := plumbing.find_operation(ws.places):
        raise GitBusy(f"git has an unfinished {operation}.", hint=plumbing.suggest_finish(operation))
    recover(ws)
    merge_state.refuse_if_open(ws)
    for folder in refs.list_git_dirs(ws.places):
        if folder != ws.places.git_dir and (folder / "vmrag" / ws.places.merge.name).exists():
            raise MergeConflict(
                f"a merge is open in another worktree, whose git folder is {folder}.",
                hint="run 'vmrag merge --continue' in that worktree",
            )
    if next(iter(ws.journal.list_entries()), None):
        raise Busy(
            "an interrupted commit is not finished.",
            hint="run 'vmrag status' on the branch or in the worktree of the commit",
        )
