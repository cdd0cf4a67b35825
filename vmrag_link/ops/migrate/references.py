"""What names revisions, and names the new ones after a migration: branches, anchors, links and old
names in the new knowledge base, the pin in the work tree.

The settings file, which names the engine, changes with the pin; both are staged, so that one commit
of git's tells everybody. Before that, whatever else names revisions in files has to be over: a
merge, a rebase, an interrupted commit.
"""

from __future__ import annotations

import msgspec

from vmrag_link import pin as pins
from vmrag_link import settings_docs
from vmrag_link.engines.base import KEEP_BRANCH, Engine, EngineName, read_root
from vmrag_link.errors import Busy, GitBusy, KnowledgeMoved, MergeConflict, PinMalformed, Uncommitted, plural
from vmrag_link.git import plumbing, refs
from vmrag_link.models import Record
from vmrag_link.ops.migrate.carry import CarriedEntries, MigrationPlan, is_carried
from vmrag_link.ops.migrate.exchange import MigrationState, RewrittenFile
from vmrag_link.paths import CONFIG_NAME, PIN_NAME, read_regular, require_files, write_atomically
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.follow.recovery import recover
from vmrag_link.workspace.merge import merge_state
from vmrag_link.workspace.remotes import revision_map

_AUTHOR = "vmrag <vmrag@localhost>"


def transfer_names(old: Engine, new: Engine, plan: MigrationPlan, made: CarriedEntries) -> None:
    """Let what was carried be reached as the old revisions are, and known by their names."""
    with new.write_lock("migrate"):
        for name, head in plan.branches.items():
            _branch(new, name, made[head].revision)
        for branch in new.list_branches():
            if not new.shared and is_carried(branch.name) and branch.name not in plan.branches:
                new.delete_branch(branch.name, expected=branch.head)  # it is gone since an earlier run
        for revision in plan.anchors:
            new.anchor_revision(made[revision].revision, reason="kept before the migration")
        entries = _entries(old, new, made)
        grown = not entries.items() <= revision_map.read_map(new).items()
        revision_map.store_entries(new, entries)
        links = [
            msgspec.structs.replace(link, dolt_commit=made[link.dolt_commit].revision)
            if link.dolt_commit in made
            else link
            for link in old.list_links()
        ]
        if links != new.list_links():
            date = new.read_revision(read_root(new)).date
            new.write_links(links, message="Migrate the links", author=_AUTHOR, date=date)
        if grown and not new.shared:
            new.collect_garbage()


def require_nothing_new(engine: Engine) -> None:
    """Raise `KnowledgeMoved`, or `Uncommitted`, where a migrated knowledge base holds what the one
    of before does not.
    """
    heads = []
    for branch in engine.list_branches():
        if branch.dirty:
            raise Uncommitted(
                f"The branch {branch.name!r} has uncommitted documents, which the knowledge base of before does not have.",
                hint="Discard them, or keep them and stay: vmrag restore . && vmrag migrate --undo",
                branch=branch.name,
            )
        if is_carried(branch.name) or branch.name == KEEP_BRANCH:
            heads.append(branch.head)
    carried = {entry.revision for entry in revision_map.read_map(engine).values()}
    known = carried | engine.map_parents([read_root(engine)]).keys()
    new = sorted(each for each in engine.map_parents(heads).keys() - known if not engine.is_bare(each))
    if new:
        raise KnowledgeMoved(
            f"Since the migration {plural(len(new), 'revision')} {'was' if len(new) == 1 else 'were'} made here"
            f" ({new[0][:12]}{', …' * (len(new) > 1)}), which going back would lose.",
            hint="To move on with them, to another engine: vmrag migrate --help",
            revisions=new[:10],
        )


def _branch(engine: Engine, name: str, head: str) -> None:
    """Let a branch be at this head. On a server, which other clones use, it only moves forward."""
    found = engine.find_branch(name)
    if found is None:
        engine.create_branch(name, head)
    elif found.head == head or (engine.shared and engine.is_ancestor(head, found.head)):
        return
    elif engine.shared and not engine.is_ancestor(found.head, head):
        engine.anchor_revision(head, reason=f"the head of {name} before the migration")
    else:
        engine.move_branch(name, head, expected=found.head)


def _entries(old: Engine, new: Engine, made: CarriedEntries) -> revision_map.Entries:
    """The old names, and those that were old ones before."""
    earlier = {
        name: made[entry.revision] for name, entry in revision_map.read_map(old).items() if entry.revision in made
    }
    here = new.map_parents(earlier)
    return {name: entry for name, entry in earlier.items() if name not in here} | made


class ChangedFiles(Record, frozen=True):
    """Files of the work tree: `written`, of which some are `unstaged` because of changes of the
    user's, or because git was busy; `left`: changed since, so they are as they were.
    """

    written: tuple[str, ...] = ()
    unstaged: tuple[str, ...] = ()
    left: tuple[str, ...] = ()


def plan_settings_change(ws: Workspace, to: EngineName) -> RewrittenFile:
    """What will become of the settings file. Raises `ConfigInvalid` where no line can be set."""
    require_files(ws.places.config)
    before = ws.places.config.read_bytes() if ws.places.config.exists() else b""
    return RewrittenFile(before.decode(), settings_docs.set_value(before, "engine", to).decode())


def plan_pin_change(ws: Workspace, made: CarriedEntries) -> RewrittenFile | None:
    """What will become of the pin; None where it names nothing that was carried."""
    try:
        data = read_regular(ws.places.pin, pins.MAX_BYTES + 1)
        pin = pins.parse_pin(data)
    except (OSError, PinMalformed):
        return None
    if pin.dolt_commit not in made:
        return None
    new = msgspec.structs.replace(pin, dolt_commit=made[pin.dolt_commit].revision)
    return RewrittenFile(data.decode(), pins.format_pin(new).decode())


def change_files(ws: Workspace, state: MigrationState, *, back: bool = False) -> ChangedFiles:
    """Write what a migration decided, or take it `back`.

    A file that was changed since stays as it is. Git's index is not waited for.
    """
    done = ChangedFiles()
    for name, stated in ((CONFIG_NAME, state.settings), (PIN_NAME, state.pin)):
        if stated and stated.before != stated.after:
            old, new = (stated.after, stated.before) if back else (stated.before, stated.after)
            done = _and(done, _replace(ws, name, old.encode(), new.encode()))
    return done


def _replace(ws: Workspace, name: str, old: bytes, new: bytes) -> ChangedFiles:
    path = ws.places.top / name
    require_files(path)
    found = path.read_bytes() if path.exists() else b""
    if found not in (old, new):
        return ChangedFiles(left=(name,))
    if found == old:
        write_atomically(path, new)
    # What a user has not staged is not ours to stage.
    untouched = (plumbing.read_blob(ws.places, f":{name}") or b"") in (old, new)
    staged = untouched and plumbing.stage_path(ws.places, path)
    return ChangedFiles((name,), () if staged else (name,))


def _and(one: ChangedFiles, other: ChangedFiles) -> ChangedFiles:
    return ChangedFiles(one.written + other.written, one.unstaged + other.unstaged, one.left + other.left)


def require_nothing_open(ws: Workspace) -> None:
    """Raises `GitBusy`, `MergeConflict` and `Busy` for what git, a merge or a commit has begun."""
    if what := plumbing.find_operation(ws.places):
        raise GitBusy(f"git is in the middle of a {what}.", hint=plumbing.operation_hint(what))
    recover(ws)
    merge_state.refuse_if_open(ws)
    for folder in refs.list_git_dirs(ws.places):
        if folder != ws.places.git_dir and (folder / "vmrag" / ws.places.merge.name).exists():
            raise MergeConflict(
                f"A merge is not finished in another work tree, of {folder}.", hint="There: vmrag merge --continue"
            )
    if next(iter(ws.journal.list_entries()), None):
        raise Busy(
            "A commit that was interrupted is not finished yet.",
            hint="On the branch or in the work tree where it was made: vmrag status",
        )
