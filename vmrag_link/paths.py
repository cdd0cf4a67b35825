"""Where everything lies. Pure names: nothing here looks at the disk, except the functions at the
end.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from vmrag_link import permissions
from vmrag_link.errors import in_the_way, too_little_space

PIN_NAME = ".dolt-version"
PIN_READ_LIMIT = 8192
"""Bytes; twice what a valid pin may have, so that what is cut is malformed anyway."""

CONFIG_NAME = ".vmrag.yaml"
QUERIES_NAME = ".vmrag/queries.yaml"
TREE = "tree"
JJ_WORKSPACES = "vmrag/jj"
"""Below the common directory: a git directory for each workspace of jj (`git.jj`)."""
STALE_SECONDS = 600
TEMPORARY_LENGTH = 50
_TEMPORARY = r"(?s)\.(.*)\.[0-9a-f]{12}\.tmp"  # compiled if there is one
"""Characters of a file's name that stand in the name of its successor while that is written."""
SPARE_BYTES = 32_000_000
"""What is left free on a disk by whoever may be asked to write much."""


class BorrowedParts(NamedTuple):
    """Parts of submodules that git uses in the repository around them, so that it reads no setting
    of a submodule.

    `objects`: folders of objects, also read. `index_file`: if there is one, the index to read in
    place of the own one. `commit`: then in place of HEAD.
    """

    objects: tuple[Path, ...]
    index_file: Path | None = None
    commit: str | None = None


class Places(NamedTuple):
    """The folders of one git work tree: `top`, its own `git_dir`, and `common`, which all worktrees
    share.

    `code`: for a repository of ours beside the code's (`git.sidecar_repo`), the code's own.
    `hooks`: where git looked for hooks when the work tree was found, if it was. `borrowed`: for
    reading submodules (`git.submodules`).
    """

    top: Path
    git_dir: Path
    common: Path
    code_places: Places | None = None
    hooks: Path | None = None
    borrowed: BorrowedParts | None = None

    @property
    def is_jj_workspace(self) -> bool:
        """Return whether this is for a workspace of jj in which git finds no repository."""
        code = self.code_places or self
        return code.git_dir.parent == code.common / JJ_WORKSPACES

    @property
    def index_file(self) -> Path:
        return (self.borrowed and self.borrowed.index_file) or self.git_dir / "index"

    @property
    def pin(self) -> Path:
        return self.top / PIN_NAME

    @property
    def config(self) -> Path:
        return self.top / CONFIG_NAME

    @property
    def queries(self) -> Path:
        return self.top / QUERIES_NAME

    # -- shared by all worktrees

    @property
    def shared(self) -> Path:
        return self.common / "vmrag"

    @property
    def kb(self) -> Path:
        return self.shared / "kb"

    @property
    def views(self) -> Path:
        """What the index of each revision holds; derived."""
        return self.shared / "views"

    @property
    def source_views(self) -> Path:
        """What the index of files of the code's tree holds, by their names and blobs; derived."""
        return self.shared / "sources"

    @property
    def segments(self) -> Path:
        """The pieces of which indexes consist; derived."""
        return self.shared / "segments"

    @property
    def chroma(self) -> Path:
        """Chroma's stores of views; derived."""
        return self.shared / "chroma"

    @property
    def builder(self) -> Path:
        """What is known of the process that makes them."""
        return self.shared / "builder"

    @property
    def chroma_follows(self) -> Path:
        """A mark for the hooks: Chroma's stores follow the files of each commit."""
        return self.builder / "follows"

    @property
    def working_copies(self) -> Path:
        """The views of uncommitted documents; derived."""
        return self.shared / "uncommitted"

    @property
    def embeddings(self) -> Path:
        return self.shared / "embeddings.sqlite"

    @property
    def interpreter(self) -> Path:
        return self.shared / "interpreter"

    @property
    def shims(self) -> Path:
        """Hooks of ours that other tools start."""
        return self.shared / "shims"

    @property
    def configured_hooks(self) -> Path:
        """Hooks of ours that git runs from its configuration, and that part of it."""
        return self.common / "vmrag-hooks"

    @property
    def lefthook(self) -> Path:
        """Our part of lefthook's configuration."""
        return self.shared / "lefthook.yml"

    @property
    def locks(self) -> Path:
        return self.shared / "locks"

    @property
    def journal(self) -> Path:
        return self.shared / "journal"

    @property
    def link_queue(self) -> Path:
        return self.shared / "links.queue"

    @property
    def logs(self) -> Path:
        return self.shared / "logs"

    @property
    def remotes(self) -> Path:
        """Copies of what remotes hold; derived."""
        return self.shared / "remotes"

    @property
    def remote_objects(self) -> Path:
        """The git repository through which they come and go; derived."""
        return self.shared / "remotes.git"

    @property
    def quarantine(self) -> Path:
        """Where strangers' knowledge bases lie while they are looked at."""
        return self.shared / "quarantine"

    @property
    def migration(self) -> Path:
        """A knowledge base that is being moved to another engine, and the one of before."""
        return self.shared / "migration"

    @property
    def local_kb(self) -> Path:
        """Rows that stay on this machine. Not derived: nothing else holds them."""
        return self.shared / "local" / "kb"

    @property
    def local_index(self) -> Path:
        """Their index; derived."""
        return self.shared / "local" / "index"

    @property
    def local_segments(self) -> Path:
        """The pieces of which it consists; derived."""
        return self.shared / "local" / "segments"

    @property
    def trust_id(self) -> Path:
        """Holds an id that tells this repository from another one at the same path."""
        return self.shared / "trust-id"

    @property
    def folders(self) -> tuple[Path, ...]:
        """All folders of ours, outer ones before those in them; not each of them is there."""
        shared = (
            self.shared,
            self.kb,
            self.views,
            self.source_views,
            self.segments,
            self.chroma,
            self.builder,
            self.working_copies,
            self.shims,
        )
        upkeep = (self.locks, self.journal, self.logs, self.quarantine, self.migration, self.shared / "leases")
        local = (self.local_kb.parent, self.local_kb, self.local_index, self.local_segments)
        return (*shared, *upkeep, self.remotes, self.remote_objects, *local, self.work_tree_folder, self.source_state)

    # -- of this work tree

    @property
    def work_tree_folder(self) -> Path:
        return self.git_dir / "vmrag"

    @property
    def verified(self) -> Path:
        """The commit up to which `vmrag status` found no commit that drops knowledge."""
        return self.work_tree_folder / "verified"

    @property
    def applied(self) -> Path:
        return self.work_tree_folder / "applied"

    @property
    def view_folders(self) -> tuple[Path, ...]:
        """The folders of the views that count the segments of the work trees."""
        return self.views, self.working_copies, self.source_views

    @property
    def source_state(self) -> Path:
        """Which index of files of the tree answers for this work tree, and what was seen of them;
        derived.
        """
        return self.work_tree_folder / TREE

    @property
    def workspace(self) -> Path:
        return self.work_tree_folder / "workspace.json"

    @property
    def merge(self) -> Path:
        return self.work_tree_folder / "merge.json"

    @property
    def merge_in_git(self) -> Path:
        return self.work_tree_folder / "merge-git.json"

    @property
    def index_failures(self) -> Path:
        """Why the last sync that was asked for could not embed a collection's documents."""
        return self.work_tree_folder / "index-failures.json"

    @property
    def workspace_lock(self) -> Path:
        return self.work_tree_folder / "workspace.lock"

    @property
    def settings_record(self) -> Path:
        """What the settings file states, parsed; derived."""
        return self.work_tree_folder / "settings"

    @property
    def drafts(self) -> Path:
        """Texts that the user writes in an editor. Not derived: a draft may be the only copy."""
        return self.work_tree_folder / "drafts"


def read_regular(path: Path, limit: int) -> bytes:
    """At most `limit` bytes of a file that a stranger may have put there: links, devices and pipes
    raise OSError.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", str(path))
        return os.read(descriptor, limit)
    finally:
        os.close(descriptor)


def read_recorded_path(file: Path) -> Path | None:
    """Return the absolute path in a state file, or None if the file is missing or damaged."""
    try:
        data = file.read_bytes().removesuffix(b"\n")
    except OSError:
        return None
    return Path(os.fsdecode(data)) if data.startswith(b"/") and b"\0" not in data else None


def describe_file_type(path: Path) -> str:
    """`a link to TARGET`, `a folder`, `a named pipe` and so on; empty for a file, and for what is
    not there.
    """
    try:
        mode = path.lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return ""
    if stat.S_ISLNK(mode):
        return f"a link to {os.readlink(path)}"  # noqa: PTH115  a Path would tidy it up
    if stat.S_ISREG(mode):
        return ""
    return _KINDS.get(stat.S_IFMT(mode), "a device")


_KINDS = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a named pipe", stat.S_IFSOCK: "a socket"}


def require_files(*paths: Path) -> None:
    """Raise `FileFailed` if one of them exists and is no file: through a link, another place would
    be read or written.
    """
    for path in paths:
        if what := describe_file_type(path):
            raise in_the_way(path, f"{what}, and no file")


def require_folders(*paths: Path) -> None:
    """As `require_files`, for folders."""
    for path in paths:
        what = describe_file_type(path) or ("a file" if path.exists() else "")
        if what not in ("", _KINDS[stat.S_IFDIR]):
            raise in_the_way(path, f"{what}, and no folder")


def require_no_link(path: Path, directory: Path) -> None:
    """Raise `FileFailed` if a file is to be written through a link in the repository around
    `directory`: a pull request can have put the link there.
    """
    place, start = (Path(os.path.abspath(part)) for part in (path, directory))  # noqa: PTH100  links stay
    top = next((folder for folder in (start, *start.parents) if (folder / ".git").exists()), None)
    if top is None or not place.is_relative_to(top):
        return
    for part in [place, *place.parents][: len(place.parts) - len(top.parts)]:
        if part.is_symlink():
            raise in_the_way(part, describe_file_type(part))


def is_outside_projects(directory: Path) -> bool:
    """Whether programs are started there that belong to no project: the root and the home."""
    return os.path.realpath(directory) in {os.path.realpath(each) for each in ("/", os.path.expanduser("~"))}  # noqa: PTH111


def write_atomically(path: Path, content: bytes, *, durable: bool = True, mode: int | None = None) -> None:
    """Replace a file in one step; readers see the old or the new bytes. On return they survive a
    power cut.

    `durable` False: for what can be made again, and may be empty after a power cut; it spares two
    waits for the disk. `mode`: what the file may be used for, where its folder does not decide.
    """
    fresh = [parent for parent in (path.parent, *path.parent.parents) if not parent.exists()]
    permissions.make_folder(path.parent)
    # Cut, so that the longest possible name has room for the rest; a character has at most 4 bytes.
    temporary = path.with_name(f".{path.name[:TEMPORARY_LENGTH]}.{os.urandom(6).hex()}.tmp")
    try:
        with temporary.open("xb") as out:
            permissions.restore_mode(out.fileno(), temporary)
            if mode is not None:
                os.fchmod(out.fileno(), mode)
            out.write(content)
            if durable:
                out.flush()
                os.fsync(out.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    if durable:
        for folder in dict.fromkeys((path.parent, *(each.parent for each in fresh))):
            sync_to_disk(folder)


def sync_to_disk(path: Path) -> None:
    """Return when a file's content, or a folder's names, would survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_file_and_folder(path: Path) -> None:
    """Return when a file that was exchanged, and its name, would survive a power cut."""
    sync_to_disk(path)
    sync_to_disk(path.parent)


def list_stale_temporaries(*folders: Path, name: str = "") -> list[Path]:
    """Temporary files of killed `write_atomically` calls, for files of that name or of any."""
    found = []
    for folder in folders:
        for path in _temporaries(folder, name):
            with contextlib.suppress(FileNotFoundError):
                if time.time() - path.stat().st_mtime > STALE_SECONDS:
                    found.append(path)
    return found


def remove_temporaries(path: Path) -> None:
    """Remove what killed writers of a file have left. Hold the lock under which it is written."""
    for leftover in _temporaries(path.parent, path.name):
        leftover.unlink(missing_ok=True)


def _temporaries(folder: Path, name: str) -> Iterator[Path]:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(folder) as entries:
        for entry in entries:
            match = re.fullmatch(_TEMPORARY, entry.name) if entry.name.endswith(".tmp") else None
            if match and (not name or match[1] == name[:TEMPORARY_LENGTH]):
                yield Path(entry)


def remove_stale_temporaries(*folders: Path) -> None:
    for path in list_stale_temporaries(*folders):
        path.unlink(missing_ok=True)


def require_space(folder: Path, needed: int, what: str) -> None:
    """Raise `FileFailed` unless `needed` bytes for `what` fit on the disk, with some left over.

    The error names both figures. `folder` need not exist yet.
    """
    import shutil  # a checkout should not wait for it

    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    if needed + SPARE_BYTES > free:
        raise too_little_space(folder, what, needed + SPARE_BYTES, free)


def measure_size(folder: Path) -> int:
    """Bytes of all files below; other processes may remove some meanwhile."""
    total = 0
    for path in folder.rglob("*") if folder.is_dir() else [folder]:
        with contextlib.suppress(FileNotFoundError):
            total += path.stat().st_size if path.is_file() else 0
    return total


FileStamp = tuple[int, int, int, int]


def read_file_stamp(path: Path) -> FileStamp | None:
    """Another one after the file was written to, or replaced as git does; None if there is none."""
    try:
        found = os.stat(path)  # noqa: PTH116  Path's own is slower, and every call of a tool asks for several
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def read_file_stamps(paths: Iterable[Path]) -> tuple[FileStamp | None, ...]:
    return tuple(map(read_file_stamp, paths))


def append_line(content: bytes, line: bytes) -> bytes:
    """Append a line, which ends as the last one did: so `without_lines` restores every byte."""
    if content and not content.endswith(b"\n"):
        return content + b"\n" + line
    return content + line + b"\n"


def remove_lines(content: bytes, is_ours: Callable[[bytes], bool]) -> bytes:
    """Remove the lines that `with_line` appended."""
    lines = content.splitlines(keepends=True)
    rest = b"".join(line for line in lines if not is_ours(line))
    joined = bool(lines) and not lines[-1].endswith(b"\n") and is_ours(lines[-1])
    return rest.removesuffix(b"\n") if joined else rest
