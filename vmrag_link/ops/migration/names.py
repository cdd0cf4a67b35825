"""What leads to revisions, in the new knowledge base: branches, anchors, links, and old names."""

from __future__ import annotations

import msgspec

from vmrag_link.engines.base import KEEP_BRANCH, Engine, root_of
from vmrag_link.errors import KnowledgeMoved, Uncommitted, plural
from vmrag_link.ops.migration.carry import Made
from vmrag_link.ops.migration.plan import MigrationPlan, is_carried
from vmrag_link.ops.remotes import revision_map

_AUTHOR = "vmrag <vmrag@localhost>"


def transfer(old: Engine, new: Engine, plan: MigrationPlan, made: Made) -> None:
    """Let what was carried be reached as the old revisions are, and known by their names."""
    with new.writing("migrate"):
        for name, head in plan.branches.items():
            _branch(new, name, made[head].revision)
        for each in new.branches():
            if not new.shared and is_carried(each.name) and each.name not in plan.branches:
                new.delete_branch(each.name, expected=each.head)  # it is gone since an earlier run
        for revision in plan.anchors:
            new.anchor(made[revision].revision, reason="kept before the migration")
        entries = _entries(old, new, made)
        grown = not entries.items() <= revision_map.read(new).items()
        revision_map.store(new, entries)
        links = [
            msgspec.structs.replace(link, dolt_commit=made[link.dolt_commit].revision)
            if link.dolt_commit in made
            else link
            for link in old.links()
        ]
        if links != new.links():
            date = new.info(root_of(new)).date
            new.write_links(links, message="Migrate the links", author=_AUTHOR, date=date)
        if grown and not new.shared:
            new.collect_garbage()


def require_nothing_new(engine: Engine) -> None:
    """Raise `KnowledgeMoved`, or `Uncommitted`, where a migrated knowledge base holds what the one
    of before does not.
    """
    heads = []
    for each in engine.branches():
        if each.dirty:
            raise Uncommitted(
                f"The branch {each.name!r} has uncommitted documents, which the knowledge base of before does not have.",
                hint="Discard them, or keep them and stay: vmrag restore . && vmrag migrate --undo",
                branch=each.name,
            )
        if is_carried(each.name) or each.name == KEEP_BRANCH:
            heads.append(each.head)
    carried = {entry.revision for entry in revision_map.read(engine).values()}
    known = carried | engine.parents([root_of(engine)]).keys()
    new = sorted(each for each in engine.parents(heads).keys() - known if not engine.is_bare(each))
    if new:
        raise KnowledgeMoved(
            f"Since the migration {plural(len(new), 'revision')} {'was' if len(new) == 1 else 'were'} made here"
            f" ({new[0][:12]}{', …' * (len(new) > 1)}), which going back would lose.",
            hint="To move on with them, to another engine: vmrag migrate --help",
            revisions=new[:10],
        )


def _branch(engine: Engine, name: str, head: str) -> None:
    """Let a branch be at this head. On a server, which other clones use, it only moves forward."""
    found = engine.branch(name)
    if found is None:
        engine.create_branch(name, head)
    elif found.head == head or (engine.shared and engine.is_ancestor(head, found.head)):
        return
    elif engine.shared and not engine.is_ancestor(found.head, head):
        engine.anchor(head, reason=f"the head of {name} before the migration")
    else:
        engine.move_branch(name, head, expected=found.head)


def _entries(old: Engine, new: Engine, made: Made) -> revision_map.Entries:
    """The old names, and those that were old ones before."""
    earlier = {name: made[entry.revision] for name, entry in revision_map.read(old).items() if entry.revision in made}
    here = new.parents(earlier)
    return {name: entry for name, entry in earlier.items() if name not in here} | made
