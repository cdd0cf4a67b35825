"""The seal of a finished segment or view: its checksums, and when they were last compared here.

    seal.json      format, a view's revision and segments, and the SHA-256 of each other file
    proven.json    the boot of this machine in which that was proven, and the files' stamps then

Reading every byte is no part of an ordinary query: contents are proven when the files are not those
of `proven.json` (they were copied, restored or written to), and once after each start of the
machine, which may have followed a power cut. Damage while the machine runs shows then, when a
segment becomes part of another, or with `vmrag doctor`.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from vmrag_link import paths, permissions
from vmrag_link.models import Record
from vmrag_link.paths import write_atomically

SEAL = "seal.json"
VERIFIED = "proven.json"
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")

BYTES_AT_ONCE = 4_000_000
"""Bytes that are read and hashed without the interpreter's lock. Asking for it again may take 5 ms
each time, where another thread computes.
"""

MEMORY_FOLDERS: set[Path] = set()
"""Folders that this process keeps in memory (`storage`). They have no seal."""

Identity = tuple[int, int, int]
"""Inode, and the times of the last change of content and of metadata: every change alters one of
them.
"""


class IndexSeal(Record, frozen=True):
    """`files`: the SHA-256 of each, by name. `segments`: the bytes of each that a view counts."""

    format: str
    revision: str
    files: dict[str, str]
    segments: Mapping[str, int] = {}


class _Proven(Record, frozen=True):
    boot: str
    files: dict[str, Identity]


def write_seal(
    folder: Path,
    *,
    format: str,  # noqa: A002  the word for it
    revision: str,
    segments: Mapping[str, int] | None = None,
) -> None:
    """Seal all files of a folder."""
    names = sorted(path.name for path in folder.iterdir() if path.name not in (SEAL, VERIFIED))
    files = _digests(folder, names)
    sealed = IndexSeal(format, revision, files, dict(segments or {}))
    write_atomically(folder / SEAL, msgspec.json.encode(sealed), durable=False)
    _note(folder, files)


def read_seal(folder: Path) -> IndexSeal:
    """Raises `FileNotFoundError`, `UnicodeDecodeError`, `msgspec.DecodeError`."""
    return msgspec.json.decode((folder / SEAL).read_bytes(), type=IndexSeal)


def find_seal_problem(folder: Path) -> str:
    """Why the contents must not be served; empty if they are as sealed. Read only where that is not
    known.
    """
    return "" if folder in MEMORY_FOLDERS or _is_proven(folder, _read_proven(folder)) else find_mismatch(folder)


def find_mismatch(folder: Path) -> str:
    """As `problem`, with every byte read (half a second per gigabyte). The result is remembered."""
    if folder in MEMORY_FOLDERS:
        return ""
    try:
        files = read_seal(folder).files
        found = _digests(folder, files)
        for name, digest in files.items():
            if found[name] != digest:
                require_verification(folder)
                return f"{name} is not what was written"
    except FileNotFoundError as error:
        require_verification(folder)
        return f"{Path(error.filename).name} is missing" if folder.is_dir() else "it is being removed"
    except (IsADirectoryError, NotADirectoryError, ValueError) as error:  # a flipped bit in JSON, or in a name
        require_verification(folder)
        return f"{SEAL} cannot be read ({error})"
    _note(folder, files)
    return ""


def require_verification(folder: Path) -> None:
    """Look at the contents before they are served, from now on."""
    if (folder / VERIFIED).exists():
        _write_proven(folder, b"")


def sync_folder(folder: Path) -> None:
    """Return when the files would survive a power cut."""
    lasting = (each for each in folder.iterdir() if each.is_file() and each.name != VERIFIED)
    for path in (*lasting, folder):
        paths.sync_to_disk(path)


@functools.cache
def read_boot_id() -> str:
    """Names this start of the machine."""
    if sys.platform == "darwin":
        return _darwin_boot()
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return ""  # a system that does not tell: contents are proven once for each copy


def _darwin_boot() -> str:
    import ctypes

    value, size = ctypes.create_string_buffer(64), ctypes.c_size_t(64)
    failed = ctypes.CDLL(None).sysctlbyname(b"kern.bootsessionuuid", value, ctypes.byref(size), None, 0)
    return "" if failed else value.value.decode()


def _read_proven(folder: Path) -> _Proven | None:
    try:
        return msgspec.json.decode((folder / VERIFIED).read_bytes(), type=_Proven)
    except (OSError, UnicodeDecodeError, msgspec.DecodeError):
        return None


def _is_proven(folder: Path, proven: _Proven | None) -> bool:
    if proven is None or proven.boot != read_boot_id():
        return False
    try:
        return SEAL in proven.files and all(_identity(folder / name) == file for name, file in proven.files.items())
    except (OSError, ValueError):
        return False


def _note(folder: Path, names: Iterable[str]) -> None:
    files = {name: _identity(folder / name) for name in (*names, SEAL)}
    _write_proven(folder, msgspec.json.encode(_Proven(read_boot_id(), files)))


def _write_proven(folder: Path, content: bytes) -> None:
    """Write in place: a concurrent copy of the folder must not miss the file, and half a file
    proves nothing.
    """
    path = folder / VERIFIED
    with contextlib.suppress(OSError):  # where nothing can be written, contents are proven each time
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        with os.fdopen(os.open(path, flags, permissions.choose_file_mode(path)), "wb") as out:
            permissions.restore_mode(out.fileno(), path)
            out.write(content)


def _identity(path: Path) -> Identity:
    found = path.stat()
    return found.st_ino, found.st_mtime_ns, found.st_ctime_ns


def _digests(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """The SHA-256 of each of these files. Large ones are read side by side."""
    paths = {name: folder / name for name in names}
    large = {name: path for name, path in paths.items() if path.stat().st_size >= BYTES_AT_ONCE}
    if not large:
        return {name: hash_file(path) for name, path in paths.items()}
    from vmrag_link.thread_task import ThreadTask

    tasks = {name: ThreadTask(functools.partial(hash_file, path)) for name, path in large.items()}
    return {name: tasks[name].result() if name in tasks else hash_file(path) for name, path in paths.items()}


def hash_file(path: Path) -> str:
    """The SHA-256 of a file."""
    import hashlib  # not needed on the way back to an index that is proven

    digest, buffer = hashlib.sha256(), bytearray(min(BYTES_AT_ONCE, path.stat().st_size + 1))
    with path.open("rb", buffering=0) as file:
        while size := file.readinto(buffer):
            digest.update(memoryview(buffer)[:size])
    return digest.hexdigest()
