"""Read tracked files as texts, whether they are documents of a source or not.

`vmrag show` and the tools use this for a path that is not the name of a document.
"""

from __future__ import annotations

import functools
import posixpath
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal

from vmrag_link import terminal_text
from vmrag_link.errors import DocumentMissing
from vmrag_link.file_access import FileStamp, read_file_stamp
from vmrag_link.git import plumbing
from vmrag_link.models import Record
from vmrag_link.paths import Places
from vmrag_link.settings import SourceSettings
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.history import document_names, named_places, revparse

if TYPE_CHECKING:  # a list searches no files
    from vmrag_link.git.submodules import Submodule

MAX_LINKS = 4
"""Maximum number of symbolic links to follow, from link to link."""


def count_uncovered(ws: Workspace) -> int:
    """Return how many tracked text files do not belong to a source.

    The number is computed again if git's index or the sources change.
    """
    return _count_uncovered(ws.places, ws.sources.configured, read_file_stamp(ws.places.git_dir / "index"))


@functools.lru_cache(maxsize=8)
def _count_uncovered(places: Places, sources: tuple[SourceSettings, ...], _index: FileStamp | None) -> int:
    from vmrag_link.sources import rules, tracked_texts

    paths = tracked_texts.TrackedTexts(places).paths
    return tracked_texts.count_texts(places, [path for path in paths if not rules.find_source(sources, path)])


class TrackedFile(Record, frozen=True):
    """A tracked text file."""

    path: str
    text: str
    commit: str = ""
    """Full hash of the commit; empty for the work tree."""
    uncommitted: Literal["", "added", "modified"] = ""
    """How the file differs from HEAD."""


def find_named(ws: Workspace, name: str) -> TrackedFile | None:
    """Return the tracked text file that `[REF:]PATH[:LINE]` means."""
    parts = revparse.separate_ref(name)
    for ref, rest in (("", name), *([parts] if parts else [])):
        for path in dict.fromkeys((rest, document_names.without_line(rest))):
            if file := find_tracked(ws, path, ref):
                return file
    return None


def find_tracked(
    ws: Workspace, path: str, ref: str = "", *, is_document: bool = False, links: int = MAX_LINKS
) -> TrackedFile | None:
    """Return the tracked text file of a path, in the work tree or at a git ref.

    Return None if git does not track the file. `is_document`: a source has the file, even if git
    does not track it. `links`: maximum number of symbolic links to follow. Raises `DocumentMissing`
    if the file cannot be read as text, and the errors of `TrackedTexts`.
    """
    is_path = path and not path.startswith(("/", "../")) and posixpath.normpath(path) == path and "\0" not in path
    is_in_work_tree = ref in ("", revparse.WORKING)
    commit = "" if is_in_work_tree else named_places.git_commit(ws, ref)
    if not is_path or not (is_in_work_tree or commit):
        return None
    from vmrag_link.sources import tracked_texts

    untracked = [path] if is_document and not commit else []
    texts = tracked_texts.TrackedTexts(ws.places, commit, untracked=untracked, only=path)
    if target := texts.read_link_target(path):
        if links and (file := find_tracked(ws, target, ref, links=links - 1)):
            return file
        raise DocumentMissing(
            f"{terminal_text.escape_line(path)} is a symbolic link to {terminal_text.escape_line(target)}, "
            "which is not a tracked file.",
            hint=tracked_texts.OTHERWISE,
            doc_id=path,
        )
    if path not in texts:
        texts = tracked_texts.TrackedTexts(ws.places, commit, only=path, submodules=_list_submodules(ws, commit))
    if path not in texts:
        return None
    (tracked_text,) = texts.read_texts([path])
    if tracked_text.text is None:
        problem = f"{terminal_text.escape_line(path)} {tracked_text.reason}{f' at {ref}' if commit else ''}."
        hint = tracked_texts.HINTS.get(tracked_text.reason, tracked_texts.OTHERWISE)
        raise DocumentMissing(problem, hint=hint, doc_id=path)
    if commit:
        return TrackedFile(path, tracked_text.text, commit)
    state = _find_state(ws, path) if texts.is_tracked(path) else "added"
    return TrackedFile(path, tracked_text.text, uncommitted=state)


def _list_submodules(ws: Workspace, commit: str) -> list[Submodule]:
    """Return the submodules that the sources read, of the work tree or of a commit."""
    config = ws.sources.read_config_at(commit) if commit else ws.sources.config
    return ws.sources.find_submodules(config, commit or None)


def _find_state(ws: Workspace, path: str) -> Literal["", "added", "modified"]:
    """Return how a file of the work tree differs from HEAD."""
    if not plumbing.read_head(ws.places).commit:
        return "added"
    kinds = _find_changes(ws, [path]).values()
    if not kinds:
        return ""
    return "added" if "added" in kinds else "modified"


def list_modified(ws: Workspace, paths: Sequence[str]) -> list[str]:
    """Return the paths whose files in the work tree differ from HEAD."""
    return [*_find_changes(ws, paths)] if paths else []


def _find_changes(ws: Workspace, paths: Sequence[str]) -> dict[str, str]:
    """Return the kind of change since HEAD for each path. Without a commit, nothing has changed."""
    from vmrag_link.git import path_changes

    kinds: dict[str, str] = {}
    for prefix, places, commit in _list_trees(ws):
        below = [path for path in paths if path.startswith(prefix)]
        if below and commit:
            changes = path_changes.list_changes(
                places, commit, [f":(top,literal){path.removeprefix(prefix)}" for path in below]
            )
            kinds |= {prefix + change.path: change.kind for change in changes}
        elif below and prefix:  # HEAD's commit does not have this submodule
            kinds |= dict.fromkeys(below, "added")
    return kinds


def _list_trees(ws: Workspace) -> Iterator[tuple[str, Places, str | None]]:
    """Yield the work tree and each submodule: prefix of its paths, places, and commit in HEAD."""
    yield "", ws.places, plumbing.read_head(ws.places).commit
    for submodule in _list_submodules(ws, ""):
        if submodule.places:
            yield f"{submodule.path}/", submodule.places, submodule.commit
