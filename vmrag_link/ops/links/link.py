"""`vmrag link`: store which revision belongs to a code commit, and name it in the link file."""

from __future__ import annotations

import re
from pathlib import Path

from vmrag_link import clock, locks
from vmrag_link import pin as pins
from vmrag_link.engines import migrated
from vmrag_link.errors import FileFailed, UsageInvalid
from vmrag_link.git import plumbing, repository
from vmrag_link.merging.rows import LINK_AUTHOR
from vmrag_link.models import Link, Record, WorkingSet
from vmrag_link.ops.pin import refuse_if_in_conflict
from vmrag_link.paths import PIN_NAME, Places, read_regular, write_atomically
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.follow import follow_pin
from vmrag_link.workspace.pins import pinning

_SHORT = re.compile(r"~[0-9]+")


class LinkBlock(Record, frozen=True):
    """`git_branch` is None for a detached HEAD, and for a commit that is not HEAD."""

    dolt_commit: str
    dolt_branch: str
    git_commit: str
    git_branch: str | None
    git_repo: str


class Bidirectional(Record, frozen=True):
    """What became of the link file. `file_created`: there was none before."""

    enabled: bool
    link_file: str
    file_created: bool = False
    staged: bool = False


class LinkWarning(Record, frozen=True):
    code: str
    message: str


class LinkReport(Record, frozen=True):
    link: LinkBlock
    bidirectional: Bidirectional
    warnings: tuple[LinkWarning, ...] = ()


def link(
    ws: Workspace,
    *,
    git_repo_path: Path,
    git_commit: str = "HEAD",
    bidirectional: bool = False,
    link_file: str = PIN_NAME,
) -> LinkReport:
    """Link a commit of a repository to the workspace's revision.

    Uncommitted documents are left out.

    A second time the row is replaced. With `bidirectional` the link file, inside that repository's
    work tree, names the revision and is staged; it will be part of the next commit, not of the
    linked one. Raises `GitRepositoryMissing`, `GitReferenceMissing`, `UsageInvalid` for a link file
    that may not be (`_inside`), `FileFailed`, `NotInitialized`.
    """
    follow_pin.follow(ws, tolerate="git")
    found = repository.find_commit(git_repo_path, git_commit)
    path = _inside(found.places, link_file) if found.places else None
    revision, branch = ws.require_stored_revision(), ws.find_kb_branch()
    name = branch.name if branch and branch.head == revision else _current_kb_branch(ws)
    at = ws.locate_documents()
    warnings = []
    if isinstance(at, WorkingSet):
        message = f"The link names revision {revision[:7]}; the uncommitted documents are not part of it."
        warnings.append(LinkWarning("UNCOMMITTED_CHANGES", message))
    # The revision's own time, as in a pin: two people who link the same make equal rows.
    linked_at = ws.engine.read_revision(revision).date
    row = Link(found.commit, revision, name, found.branch or "", found.url, linked_at, "manual")
    store_links(ws, [row], f"Link {found.commit[:12]} to {revision[:12]}")
    written = Bidirectional(bidirectional, link_file)
    if bidirectional and found.places and path:
        written = _written(ws, found.places, path, link_file, revision=revision, name=name)
    elif bidirectional:
        warnings.append(LinkWarning("BARE_REPOSITORY", "The repository is bare: there is no link file to write."))
    repo = found.url or str(found.places.top if found.places else git_repo_path.resolve())
    return LinkReport(LinkBlock(revision, name, found.commit, found.branch, repo), written, tuple(warnings))


def store_links(ws: Workspace, rows: list[Link], message: str, *, remove: tuple[str, ...] = ()) -> None:
    """In the table `git_links`, whose author is the program: who links is not who knows."""
    ws.engine.write_links(rows, remove=remove, message=message, author=LINK_AUTHOR, date=clock.now())


def _inside(places: Places, link_file: str) -> Path:
    """The link file's path.

    It leads into no folder of a program, through no link, and over nothing but a link file.

    An agent may have its name from a stranger's text, and what is written is staged. So a new one
    has a name that no other program reads: not `.github/workflows/x.yml`, `conftest.py` or
    `package.json`. One of another name, made by an earlier version, is still followed.
    """
    parts = link_file.split("/")
    if not all(map(_plain, parts[:-1])) or not (parts[-1] == PIN_NAME or _plain(parts[-1])):
        raise _no_link_file(
            f"{link_file!r} is not a file in the work tree, out of folders that begin with a dot", link_file
        )
    path = places.top.joinpath(*parts)
    if path.is_dir() or any(places.top.joinpath(*parts[:count]).is_symlink() for count in range(1, len(parts) + 1)):
        raise _no_link_file(f"{link_file!r} is a folder, or leads through a link", link_file)
    named = parts[-1].endswith(PIN_NAME)
    if path != places.pin and path.exists() and not _links(path, empty=named):
        raise _no_link_file(f"{link_file!r} holds something else already, which is not overwritten", link_file)
    if not named and not path.exists():
        raise _no_link_file(f"{link_file!r} has a name that other programs may read", link_file)
    standing = next(parent for parent in path.parents if parent.exists())
    if not standing.is_dir():
        raise FileFailed(
            f"{standing} is a file; the link file cannot be below it.",
            hint=f"--link-file {PIN_NAME}",
            path=str(standing),
        )
    return path


def _plain(part: str) -> bool:
    """Whether a part of a path belongs to no program.

    Short names (`GIT~1`) and letters that some file systems skip are seen through.
    """
    return (
        part != "" and not part.startswith(".") and part.isprintable() and not _SHORT.search(part) and "\\" not in part
    )


def _links(path: Path, *, empty: bool) -> bool:
    """Whether a file is a link file that was made before, or `empty`.

    Anything else would be lost: nobody keeps a copy.
    """
    data = read_regular(path, pins.MAX_BYTES + 1)
    return (empty and not data.strip()) or pinning.is_pin(data)


def _no_link_file(why: str, link_file: str) -> UsageInvalid:
    hint = f"--link-file {PIN_NAME}, or another that ends so: --link-file docs/kb{PIN_NAME}"
    return UsageInvalid(f"The link file {why}.", hint=hint, parameter="link_file", value=link_file)


def _written(ws: Workspace, places: Places, path: Path, link_file: str, *, revision: str, name: str) -> Bidirectional:
    created = not path.exists()
    with locks.hold_exclusive(ws.places.workspace_lock, purpose="link", timeout=ws.lock_timeout):
        if path == places.pin:
            refuse_if_in_conflict(places)
        if path == ws.places.pin:
            staged = pinning.write_pin(ws, revision, name).staged
        else:
            old = None if created else path.read_bytes()
            new = pins.format_pin(pinning.next_pin(ws, migrated.try_read_pin(ws.places.kb, old), revision, name))
            if new != old:
                write_atomically(path, new)
            staged = plumbing.stage_path(places, path)
    return Bidirectional(enabled=True, link_file=link_file, file_created=created, staged=staged)


def _current_kb_branch(ws: Workspace) -> str:
    pin = migrated.try_read_pin(ws.places.kb, plumbing.read_pin_bytes(ws.places))
    return pin.dolt_branch if pin else ws.read_trigger().branch or "main"
