"""Paths of the files and folders that vmrag uses.

`Places` only computes names. The functions at the end also access the disk.
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
"""Bytes. It is twice the size of the largest valid pin, so that a pin that is cut off is
malformed.
"""

CONFIG_NAME = ".vmrag.yaml"
QUERIES_NAME = ".vmrag/queries.yaml"
TREE = "tree"
JJ_WORKSPACES = "vmrag/jj"
"""Folder in the common directory, with a git directory for each workspace of jj (`git.jj`)."""
STALE_SECONDS = 600
TEMPORARY_LENGTH = 50
"""Number of characters of a file's name that its temporary file's name contains."""
_TEMPORARY = r"(?s)\.(.*)\.[0-9a-f]{12}\.tmp"  # compiled if there is one
"""Pattern of a temporary file's name."""
SPARE_BYTES = 32_000_000
"""Bytes that stay free on the disk after a large write."""


class BorrowedParts(NamedTuple):
    """Parts of submodules that git uses in the repository around them.

    Git then reads no settings of a submodule.
    """

    objects: tuple[Path, ...]
    """Folders of objects that git also reads."""
    index_file: Path | None = None
    """The index to read in place of the repository's own."""
    commit: str | None = None
    """The commit to read in place of HEAD."""


class Places(NamedTuple):
    """The folders of one git work tree."""

    top: Path
    git_dir: Path
    """The git directory of the work tree."""
    common: Path
    """The git directory that all work trees of the repository share."""
    code_places: Places | None = None
    """For a repository of vmrag beside the code's (`git.sidecar_repo`): the places of the code."""
    hooks: Path | None = None
    """The folder in which git looked for hooks when the work tree was found, if it was found."""
    borrowed: BorrowedParts | None = None
    """Parts of submodules, to read them (`git.submodules`)."""

    @property
    def is_jj_workspace(self) -> bool:
        """True for a workspace of jj in which git finds no repository."""
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
        """The contents of the index of each revision. Derived data."""
        return self.shared / "views"

    @property
    def source_views(self) -> Path:
        """The contents of the indexes of files of the work tree, by their names and blobs. Derived
        data.
        """
        return self.shared / "sources"

    @property
    def segments(self) -> Path:
        """The pieces of which indexes consist. Derived data."""
        return self.shared / "segments"

    @property
    def chroma(self) -> Path:
        """Chroma's stores of views. Derived data."""
        return self.shared / "chroma"

    @property
    def builder(self) -> Path:
        """The state of the process that builds Chroma's stores."""
        return self.shared / "builder"

    @property
    def chroma_follows(self) -> Path:
        """A marker for the hooks: Chroma's stores follow the files of each commit."""
        return self.builder / "follows"

    @property
    def working_copies(self) -> Path:
        """The views of uncommitted documents. Derived data."""
        return self.shared / "uncommitted"

    @property
    def embeddings(self) -> Path:
        return self.shared / "embeddings.sqlite"

    @property
    def interpreter(self) -> Path:
        return self.shared / "interpreter"

    @property
    def shims(self) -> Path:
        """Hooks of vmrag that other tools start."""
        return self.shared / "shims"

    @property
    def configured_hooks(self) -> Path:
        """Hooks of vmrag that git runs from its configuration, and that part of the
        configuration.
        """
        return self.common / "vmrag-hooks"

    @property
    def lefthook(self) -> Path:
        """The part of lefthook's configuration that vmrag wrote."""
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
        """Copies of the contents of remotes. Derived data."""
        return self.shared / "remotes"

    @property
    def remote_objects(self) -> Path:
        """The git repository for transfers from and to remotes. Derived data."""
        return self.shared / "remotes.git"

    @property
    def quarantine(self) -> Path:
        """Untrusted knowledge bases while vmrag validates them."""
        return self.shared / "quarantine"

    @property
    def migration(self) -> Path:
        """A knowledge base on its way to another engine, and the earlier one."""
        return self.shared / "migration"

    @property
    def local_kb(self) -> Path:
        """Rows that stay on this machine. They are not derived data: nothing else contains them."""
        return self.shared / "local" / "kb"

    @property
    def local_index(self) -> Path:
        """The index of the local rows. Derived data."""
        return self.shared / "local" / "index"

    @property
    def local_segments(self) -> Path:
        """The pieces of which the local index consists. Derived data."""
        return self.shared / "local" / "segments"

    @property
    def trust_id(self) -> Path:
        """The id that distinguishes this repository from another one at the same path."""
        return self.shared / "trust-id"

    @property
    def folders(self) -> tuple[Path, ...]:
        """All folders of vmrag, outer ones first. Some do not exist."""
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
        """The commit up to which `vmrag status` found no commit that drops documents."""
        return self.work_tree_folder / "verified"

    @property
    def applied(self) -> Path:
        return self.work_tree_folder / "applied"

    @property
    def view_folders(self) -> tuple[Path, ...]:
        """The folders of the views that reference the segments of the work trees."""
        return self.views, self.working_copies, self.source_views

    @property
    def source_state(self) -> Path:
        """The name of the index of files for this work tree, and the state of these files. Derived
        data.
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
        """Why the last requested sync could not embed the documents of a collection."""
        return self.work_tree_folder / "index-failures.json"

    @property
    def workspace_lock(self) -> Path:
        return self.work_tree_folder / "workspace.lock"

    @property
    def settings_record(self) -> Path:
        """The parsed settings file. Derived data."""
        return self.work_tree_folder / "settings"

    @property
    def drafts(self) -> Path:
        """Texts that the user writes in an editor. They are not derived data: a draft can be the
        only copy.
        """
        return self.work_tree_folder / "drafts"


def read_regular(path: Path, limit: int) -> bytes:
    """Read at most `limit` bytes of a file that can be untrusted.

    Raises OSError for links, devices and pipes.
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
    """Return what is at a path, such as `a link to TARGET` or `a folder`.

    The result is empty for a regular file and for a missing one.
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
    """Raise `FileFailed` if a path exists and is not a regular file.

    Through a link, another file would be read or written.
    """
    for path in paths:
        if file_type := describe_file_type(path):
            raise in_the_way(path, f"{file_type}, not a file")


def require_folders(*paths: Path) -> None:
    """Raise `FileFailed` if a path exists and is not a folder.

    Through a link, another folder would be read or written.
    """
    for path in paths:
        file_type = describe_file_type(path) or ("a file" if path.exists() else "")
        if file_type not in ("", _KINDS[stat.S_IFDIR]):
            raise in_the_way(path, f"{file_type}, and no folder")


def require_no_link(path: Path, directory: Path) -> None:
    """Raise `FileFailed` if the path to a file has a link in the repository around `directory`.

    A pull request can have added the link.
    """
    place, start = (Path(os.path.abspath(part)) for part in (path, directory))  # noqa: PTH100  links stay
    top = next((folder for folder in (start, *start.parents) if (folder / ".git").exists()), None)
    if top is None or not place.is_relative_to(top):
        return
    for part in [place, *place.parents][: len(place.parts) - len(top.parts)]:
        if part.is_symlink():
            raise in_the_way(part, describe_file_type(part))


def is_outside_projects(directory: Path) -> bool:
    """Return whether a directory is the root or the home. Programs there belong to no project."""
    return os.path.realpath(directory) in {os.path.realpath(folder) for folder in ("/", os.path.expanduser("~"))}  # noqa: PTH111


def write_atomically(path: Path, content: bytes, *, durable: bool = True, mode: int | None = None) -> None:
    """Replace a file in one step; readers see the old or the new bytes.

    The new bytes survive a power cut, unless `durable` is False. That saves two waits for the disk,
    for files that can be rebuilt and can be empty after a power cut. `mode` is the mode of the
    file. By default, it depends on the folder.
    """
    fresh = [parent for parent in (path.parent, *path.parent.parents) if not parent.exists()]
    permissions.make_folder(path.parent)
    # The name is cut, so that the longest name has room for the rest. A character has at most 4
    # bytes.
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
        for folder in dict.fromkeys((path.parent, *(created.parent for created in fresh))):
            sync_to_disk(folder)


def sync_to_disk(path: Path) -> None:
    """Return when the content of a file, or the names in a folder, would survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_file_and_folder(path: Path) -> None:
    """Return when a replaced file, and its name, would survive a power cut."""
    sync_to_disk(path)
    sync_to_disk(path.parent)


def list_stale_temporaries(*folders: Path, name: str = "") -> list[Path]:
    """Return the temporary files of killed `write_atomically` calls, for files of this name or of
    any name.
    """
    leftovers = []
    for folder in folders:
        for path in _list_temporaries(folder, name):
            with contextlib.suppress(FileNotFoundError):
                if time.time() - path.stat().st_mtime > STALE_SECONDS:
                    leftovers.append(path)
    return leftovers


def remove_temporaries(path: Path) -> None:
    """Remove temporary files of killed writers.

    The caller holds the lock under which the file is written.
    """
    for leftover in _list_temporaries(path.parent, path.name):
        leftover.unlink(missing_ok=True)


def _list_temporaries(folder: Path, name: str) -> Iterator[Path]:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(folder) as entries:
        for entry in entries:
            match = re.fullmatch(_TEMPORARY, entry.name) if entry.name.endswith(".tmp") else None
            if match and (not name or match[1] == name[:TEMPORARY_LENGTH]):
                yield Path(entry)


def remove_stale_temporaries(*folders: Path) -> None:
    for path in list_stale_temporaries(*folders):
        path.unlink(missing_ok=True)


def require_space(folder: Path, needed: int, what: str) -> None:
    """Raise `FileFailed` unless `needed` bytes for `what` fit on the disk, with some to spare.

    The error names both numbers. `folder` does not have to exist yet.
    """
    import shutil  # a checkout should not wait for it

    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    if needed + SPARE_BYTES > free:
        raise too_little_space(folder, what, needed + SPARE_BYTES, free)


def measure_size(folder: Path) -> int:
    """Return the number of bytes of all files in a folder.

    Other processes can remove files in the meantime.
    """
    total = 0
    for path in folder.rglob("*") if folder.is_dir() else [folder]:
        with contextlib.suppress(FileNotFoundError):
            total += path.stat().st_size if path.is_file() else 0
    return total


FileStamp = tuple[int, int, int, int]


def read_file_stamp(path: Path) -> FileStamp | None:
    """Return a value that changes if the file is written to, or replaced like git does it; None
    without the file.
    """
    try:
        status = os.stat(path)  # noqa: PTH116  Path's own is slower, and every call of a tool asks for several
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def read_file_stamps(paths: Iterable[Path]) -> tuple[FileStamp | None, ...]:
    return tuple(map(read_file_stamp, paths))


def append_line(content: bytes, line: bytes) -> bytes:
    """Append a line, which ends like the last one, so that `remove_lines` restores every byte."""
    if content and not content.endswith(b"\n"):
        return content + b"\n" + line
    return content + line + b"\n"


def remove_lines(content: bytes, is_ours: Callable[[bytes], bool]) -> bytes:
    """Remove the lines that `append_line` appended."""
    lines = content.splitlines(keepends=True)
    rest = b"".join(line for line in lines if not is_ours(line))
    joined = bool(lines) and not lines[-1].endswith(b"\n") and is_ours(lines[-1])
    return rest.removesuffix(b"\n") if joined else rest
