"""Update everything that names revisions, because a migration gives each revision a new name.

In the new knowledge base, these are branches, anchors, links and the map of old names. In the work
tree, it is the pin, and the settings file names the new engine. Both are staged, so that one git
commit shares them. A merge, a rebase or an interrupted commit also names revisions in files, so it
must be finished before.
"""

from __future__ import annotations

import msgspec

from vmrag_link import pin as pins
from vmrag_link import settings_edit
from vmrag_link.engines.base import Engine
from vmrag_link.engines.folder import EngineName
from vmrag_link.engines.own_branches import KEEP_BRANCH, read_root
from vmrag_link.errors import Busy, GitBusy, KnowledgeMoved, MergeConflict, PinMalformed, Uncommitted, plural
from vmrag_link.file_access import read_regular, require_files, write_atomically
from vmrag_link.git import git_operation, plumbing, staging, work_trees
from vmrag_link.models import Record
from vmrag_link.ops.migrate.copy_revisions import CopiesByName
from vmrag_link.ops.migrate.exchange import MigrationState, RewrittenFile
from vmrag_link.ops.migrate.plan import MigrationPlan, is_migrated_branch
from vmrag_link.paths import CONFIG_NAME, PIN_NAME
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.follow.recovery import recover
from vmrag_link.workspace.merge import merge_state
from vmrag_link.workspace.remotes import revision_map

_AUTHOR = "vmrag <vmrag@localhost>"


class ChangedFiles(Record, frozen=True, rename={"skipped": "left"}):
    """Files of the work tree that a migration changed."""

    written: tuple[str, ...] = ()
    unstaged: tuple[str, ...] = ()
    """Written files that are not staged, because of the user's changes or because git was busy."""
    skipped: tuple[str, ...] = ()
    """Files that were not written, because they changed since."""


def require_nothing_open(ws: Workspace) -> None:
    """Raise `GitBusy`, `MergeConflict` or `Busy` if an operation of git, a merge or a commit is
    unfinished.
    """
    if operation := git_operation.find_operation(ws.places):
        raise GitBusy(f"git has an unfinished {operation}.", hint=git_operation.suggest_finish(operation))
    recover(ws)
    merge_state.refuse_if_open(ws)
    for folder in work_trees.list_git_dirs(ws.places):
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


def transfer_names(old: Engine, new: Engine, plan: MigrationPlan, copies: CopiesByName) -> None:
    """Make the copies reachable like the old revisions, and store their old names."""
    with new.write_lock("migrate"):
        for name, head in plan.branches.items():
            _set_branch(new, name, copies[head].revision)
        for branch in new.list_branches():
            if not new.shared and is_migrated_branch(branch.name) and branch.name not in plan.branches:
                # The branch was deleted since an earlier run of the migration.
                new.delete_branch(branch.name, expected=branch.head)
        for revision in plan.anchors:
            new.anchor_revision(copies[revision].revision, reason="kept before the migration")
        names = _map_old_names(old, new, copies)
        has_new_names = not names.items() <= revision_map.read_map(new).items()
        revision_map.store_entries(new, names)
        _transfer_links(old, new, copies)
        if has_new_names and not new.shared:
            new.collect_garbage()


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


def _map_old_names(old: Engine, new: Engine, copies: CopiesByName) -> revision_map.Entries:
    """Return the copies by old names, and by names that an earlier migration made old."""
    earlier = {
        name: copies[entry.revision] for name, entry in revision_map.read_map(old).items() if entry.revision in copies
    }
    existing = new.map_parents(earlier)
    return {name: copy for name, copy in earlier.items() if name not in existing} | copies


def _transfer_links(old: Engine, new: Engine, copies: CopiesByName) -> None:
    """Store the links from git commits to revisions under the new names."""
    links = []
    for link in old.list_links():
        copy = copies.get(link.dolt_commit)
        links.append(msgspec.structs.replace(link, dolt_commit=copy.revision) if copy else link)
    if links != new.list_links():
        date = new.read_revision(read_root(new)).date
        new.write_links(links, message="Migrate the links", author=_AUTHOR, date=date)


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
        if is_migrated_branch(branch.name) or branch.name == KEEP_BRANCH:
            heads.append(branch.head)
    copies = {entry.revision for entry in revision_map.read_map(engine).values()}
    known_revisions = copies | engine.map_parents([read_root(engine)]).keys()
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


def plan_settings_change(ws: Workspace, to: EngineName) -> RewrittenFile:
    """Return the change of the settings file. Raises `ConfigInvalid` if the engine cannot be set in
    it.
    """
    require_files(ws.places.config)
    before = ws.places.config.read_bytes() if ws.places.config.exists() else b""
    return RewrittenFile(before.decode(), settings_edit.set_value(before, "engine", to).decode())


def plan_pin_change(ws: Workspace, copies: CopiesByName) -> RewrittenFile | None:
    """Return the change of the pin; None if the pin does not name a copied revision."""
    try:
        data = read_regular(ws.places.pin, pins.MAX_BYTES + 1)
        pin = pins.parse_pin(data)
    except (OSError, PinMalformed):
        return None
    if pin.dolt_commit not in copies:
        return None
    new = msgspec.structs.replace(pin, dolt_commit=copies[pin.dolt_commit].revision)
    return RewrittenFile(data.decode(), pins.format_pin(new).decode())


def change_files(ws: Workspace, state: MigrationState) -> ChangedFiles:
    """Write the files of a migration, or restore them if it is being undone.

    A file that changed since then is not written. git's index is not waited for.
    """
    written: list[str] = []
    unstaged: list[str] = []
    skipped: list[str] = []
    for name, rewritten in ((CONFIG_NAME, state.settings), (PIN_NAME, state.pin)):
        if rewritten is None or rewritten.before == rewritten.after:
            continue
        texts = (rewritten.before.encode(), rewritten.after.encode())
        old, new = reversed(texts) if state.stage == "undoing" else texts
        path = ws.places.top / name
        require_files(path)
        contents = path.read_bytes() if path.exists() else b""
        if contents not in texts:
            skipped.append(name)
            continue
        if contents == old:
            write_atomically(path, new)
        written.append(name)
        has_own_changes = (plumbing.read_blob(ws.places, f":{name}") or b"") not in texts  # those of the user
        if has_own_changes or not staging.stage_path(ws.places, path):
            unstaged.append(name)
    return ChangedFiles(tuple(written), tuple(unstaged), tuple(skipped))
