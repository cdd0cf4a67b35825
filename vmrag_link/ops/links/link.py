"""`vmrag link`: store which revision belongs to a code commit, and write it to the link file.

The link file has the format of a pin, and may be in another repository. An agent can name it, so
the path is checked like untrusted text.
"""

from __future__ import annotations

import re
from pathlib import Path

from vmrag_link import clock, locks
from vmrag_link import pin as pins
from vmrag_link.engines import migrated
from vmrag_link.errors import FileFailed, UsageInvalid
from vmrag_link.file_access import read_regular, write_atomically
from vmrag_link.git import plumbing, repository, staging
from vmrag_link.merging.rows import LINK_AUTHOR
from vmrag_link.models import Link, Record, WorkingSet
from vmrag_link.ops.pin import refuse_if_in_conflict
from vmrag_link.paths import PIN_NAME, Places
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.follow import follow_pin
from vmrag_link.workspace.pins import pinning

_SHORT_NAME = re.compile(r"~[0-9]+")


class LinkBlock(Record, frozen=True):
    """A link."""

    dolt_commit: str
    dolt_branch: str
    git_commit: str
    git_branch: str | None
    """None for a detached HEAD, and for a commit other than HEAD."""
    git_repo: str


class Bidirectional(Record, frozen=True):
    """The link file."""

    enabled: bool
    link_file: str
    file_created: bool = False
    """True if the file did not exist before."""
    staged: bool = False


class LinkWarning(Record, frozen=True):
    """A warning: `UNCOMMITTED_CHANGES` or `BARE_REPOSITORY`."""

    code: str
    message: str


class LinkReport(Record, frozen=True):
    """The result of `link`."""

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
    """Link a commit of a repository to the workspace's revision, without its uncommitted documents.

    A second call replaces the row. With `bidirectional`, the link file in that repository's work
    tree names the revision and is staged. It will be part of the next commit, not of the linked
    one.

    Raises `GitRepositoryMissing`, `GitReferenceMissing`, `UsageInvalid` for an invalid link file
    (see `_resolve_link_file`), `FileFailed` and `NotInitialized`.
    """
    follow_pin.follow(ws, tolerate="git")
    commit = repository.find_commit(git_repo_path, git_commit)
    path = _resolve_link_file(commit.places, link_file) if commit.places else None
    revision = ws.require_stored_revision()
    branch = ws.find_kb_branch()
    name = branch.name if branch and branch.head == revision else _read_kb_branch(ws)
    warnings = []
    if isinstance(ws.locate_documents(), WorkingSet):  # there are uncommitted documents
        message = f"The link names the revision {revision[:7]}, which does not contain the uncommitted documents."
        warnings.append(LinkWarning("UNCOMMITTED_CHANGES", message))
    # The time is that of the revision, as in a pin, so that two people make equal rows.
    linked_at = ws.engine.read_revision(revision).date
    row = Link(
        git_commit=commit.commit,
        dolt_commit=revision,
        dolt_branch=name,
        git_branch=commit.branch or "",
        git_repo_url=commit.url,
        linked_at=linked_at,
        source="manual",
    )
    store_links(ws, [row], f"Link {commit.commit[:12]} to {revision[:12]}")
    file_report = Bidirectional(enabled=bidirectional, link_file=link_file)
    if bidirectional and commit.places and path:
        file_report = _write_link_file(ws, commit.places, path, link_file, revision=revision, name=name)
    elif bidirectional:
        warnings.append(LinkWarning("BARE_REPOSITORY", "The repository is bare, so no link file was written."))
    repo = commit.url or str(commit.places.top if commit.places else git_repo_path.resolve())
    block = LinkBlock(
        dolt_commit=revision, dolt_branch=name, git_commit=commit.commit, git_branch=commit.branch, git_repo=repo
    )
    return LinkReport(block, file_report, tuple(warnings))


def store_links(ws: Workspace, rows: list[Link], message: str, *, remove: tuple[str, ...] = ()) -> None:
    """Write rows to the table `git_links`. Their author is the program, not the person
    who links.
    """
    ws.engine.write_links(rows, remove=remove, message=message, author=LINK_AUTHOR, date=clock.now())


def _read_kb_branch(ws: Workspace) -> str:
    """Return the KB branch that the pin names, or else the name of the code branch."""
    pin = migrated.try_read_pin(ws.places.kb, plumbing.read_pin_bytes(ws.places))
    return pin.dolt_branch if pin else ws.read_trigger().branch or "main"


def _resolve_link_file(places: Places, link_file: str) -> Path:
    """Return the path of the link file, and check that it is safe to write.

    The path must not lead into a folder of a program or through a link, and must not overwrite
    another file. The name may come from an untrusted text that an agent read, and what is written
    is staged. So a new file must have a name that no other program reads: not
    `.github/workflows/x.yml`, `conftest.py` or `package.json`. A file with another name that an
    earlier version made is still accepted.
    """
    parts = link_file.split("/")
    if not all(map(_is_plain, parts[:-1])) or not (parts[-1] == PIN_NAME or _is_plain(parts[-1])):
        raise _link_file_error(
            f"{link_file!r} must be in the working tree, outside folders that begin with a dot", link_file
        )
    path = places.top.joinpath(*parts)
    path_and_parents = (path, *path.parents[: len(parts) - 1])
    if path.is_dir() or any(parent.is_symlink() for parent in path_and_parents):
        raise _link_file_error(f"{link_file!r} is a folder, or its path contains a symbolic link", link_file)
    has_pin_name = parts[-1].endswith(PIN_NAME)
    if path != places.pin and path.exists() and not _is_replaceable(path, empty=has_pin_name):
        raise _link_file_error(f"{link_file!r} exists with other contents, which vmrag does not overwrite", link_file)
    if not has_pin_name and not path.exists():
        raise _link_file_error(f"{link_file!r} has a name that other programs may read", link_file)
    existing_parent = next(parent for parent in path.parents if parent.exists())
    if not existing_parent.is_dir():
        raise FileFailed(
            f"{existing_parent} is a file, so it cannot contain the link file.",
            hint=f"use '--link-file {PIN_NAME}'",
            path=str(existing_parent),
        )
    return path


def _is_plain(part: str) -> bool:
    """Return whether a part of a path belongs to no program.

    This includes short names (`GIT~1`) and characters that some file systems ignore.
    """
    return (
        part != ""
        and not part.startswith(".")
        and part.isprintable()
        and not _SHORT_NAME.search(part)
        and "\\" not in part
    )


def _is_replaceable(path: Path, *, empty: bool) -> bool:
    """Return whether a file is an existing link file or, if `empty`, an empty file.

    The contents of any other file would be lost, because no copy exists.
    """
    data = read_regular(path, pins.MAX_BYTES + 1)
    return (empty and not data.strip()) or pinning.is_pin(data)


def _link_file_error(reason: str, link_file: str) -> UsageInvalid:
    hint = f"use '--link-file {PIN_NAME}', or a name that ends with it, such as '--link-file docs/kb{PIN_NAME}'"
    return UsageInvalid(f"invalid link file: {reason}.", hint=hint, parameter="link_file", value=link_file)


def _write_link_file(
    ws: Workspace, places: Places, path: Path, link_file: str, *, revision: str, name: str
) -> Bidirectional:
    created = not path.exists()
    with locks.hold_exclusive(ws.places.workspace_lock, purpose="link", timeout=ws.lock_timeout):
        if path == places.pin:
            refuse_if_in_conflict(places)
        if path == ws.places.pin:
            staged = pinning.write_pin(ws, revision, name).staged
        else:
            text_before = None if created else path.read_bytes()
            pin_before = migrated.try_read_pin(ws.places.kb, text_before)
            text = pins.format_pin(pinning.next_pin(ws, pin_before, revision, name))
            if text != text_before:
                write_atomically(path, text)
            staged = staging.stage_path(places, path)
    return Bidirectional(enabled=True, link_file=link_file, file_created=created, staged=staged)
