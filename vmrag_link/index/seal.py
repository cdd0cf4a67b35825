"""The seal of a finished segment or view: its checksums, and when they were last verified.

    seal.json      format, revision and segments of a view, and the SHA-256 of each other file
    proven.json    the boot of this machine during which the files were verified, and their stamps

An ordinary query does not read every byte. The contents are verified if the files are not those of
`proven.json` (because they were copied, restored or written), and once after each boot, because a
power cut may have preceded it. Damage while the machine runs is found at these times, when a
segment becomes part of another one, or by `vmrag doctor`.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from vmrag_link import file_access, permissions
from vmrag_link.file_access import write_atomically
from vmrag_link.models import Record

SEAL = "seal.json"
VERIFIED = "proven.json"
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")

BYTES_AT_ONCE = 4_000_000
"""Number of bytes that are read and hashed without the interpreter's lock. Acquiring the lock again
can take 5 ms each time if another thread computes.
"""

MEMORY_FOLDERS: set[Path] = set()
"""Folders that this process keeps in memory (`storage`). They have no seal."""

Identity = tuple[int, int, int]
"""Inode, and the times of the last change of content and of metadata. Every change alters one of
them.
"""


class IndexSeal(Record, frozen=True):
    """The seal of a segment or a view."""

    format: str
    revision: str
    files: dict[str, str]
    """The SHA-256 of each file by name."""

    segments: Mapping[str, int] = {}
    """The bytes of each segment of a view."""


class _Verification(Record, frozen=True):
    boot: str
    files: dict[str, Identity]


def write_seal(
    folder: Path,
    *,
    format: str,  # noqa: A002  the usual term
    revision: str,
    segments: Mapping[str, int] | None = None,
) -> None:
    """Seal all files of a folder."""
    names = sorted(path.name for path in folder.iterdir() if path.name not in (SEAL, VERIFIED))
    files = _hash_files(folder, names)
    sealed = IndexSeal(format, revision, files, dict(segments or {}))
    write_atomically(folder / SEAL, msgspec.json.encode(sealed), durable=False)
    _record_verification(folder, files)


def read_seal(folder: Path) -> IndexSeal:
    """Return the seal of a folder.

    Raises `FileNotFoundError`, `UnicodeDecodeError` and `msgspec.DecodeError`.
    """
    return msgspec.json.decode((folder / SEAL).read_bytes(), type=IndexSeal)


def find_seal_problem(folder: Path) -> str:
    """Return why the contents must not be used; empty if they are as sealed.

    The files are read only if they were not verified since the last boot.
    """
    return "" if folder in MEMORY_FOLDERS or _is_verified(folder, _read_verification(folder)) else find_mismatch(folder)


def find_mismatch(folder: Path) -> str:
    """Read every byte, and return why the contents must not be used; empty if they are as sealed.

    This takes half a second per gigabyte. The result is recorded.
    """
    if folder in MEMORY_FOLDERS:
        return ""
    try:
        files = read_seal(folder).files
        digests = _hash_files(folder, files)
        for name, digest in files.items():
            if digests[name] != digest:
                require_verification(folder)
                return f"{name} is not what was written"
    except FileNotFoundError as error:
        require_verification(folder)
        return f"{Path(error.filename).name} is missing" if folder.is_dir() else "it is being removed"
    except (IsADirectoryError, NotADirectoryError, ValueError) as error:  # a flipped bit in JSON, or in a name
        require_verification(folder)
        return f"{SEAL} cannot be read ({error})"
    _record_verification(folder, files)
    return ""


def require_verification(folder: Path) -> None:
    """Require that the contents are verified before they are used again."""
    if (folder / VERIFIED).exists():
        _write_verification(folder, b"")


def sync_folder(folder: Path) -> None:
    """Return when the files are on the disk, so that they survive a power cut."""
    files = (path for path in folder.iterdir() if path.is_file() and path.name != VERIFIED)
    for path in (*files, folder):
        file_access.sync_to_disk(path)


@functools.cache
def read_boot_id() -> str:
    """Return an id of this boot of the machine; empty if the system does not provide one."""
    if sys.platform == "darwin":
        return _read_darwin_boot()
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return ""  # without an id, contents are verified once for each copy


def _read_darwin_boot() -> str:
    import ctypes

    value, size = ctypes.create_string_buffer(64), ctypes.c_size_t(64)
    failed = ctypes.CDLL(None).sysctlbyname(b"kern.bootsessionuuid", value, ctypes.byref(size), None, 0)
    return "" if failed else value.value.decode()


def _read_verification(folder: Path) -> _Verification | None:
    try:
        return msgspec.json.decode((folder / VERIFIED).read_bytes(), type=_Verification)
    except (OSError, UnicodeDecodeError, msgspec.DecodeError):
        return None


def _is_verified(folder: Path, proven: _Verification | None) -> bool:
    if proven is None or proven.boot != read_boot_id():
        return False
    try:
        return SEAL in proven.files and all(
            _identify_file(folder / name) == file for name, file in proven.files.items()
        )
    except (OSError, ValueError):
        return False


def _record_verification(folder: Path, names: Iterable[str]) -> None:
    files = {name: _identify_file(folder / name) for name in (*names, SEAL)}
    _write_verification(folder, msgspec.json.encode(_Verification(read_boot_id(), files)))


def _write_verification(folder: Path, content: bytes) -> None:
    """Write the file in place. A concurrent copy of the folder must not miss the file, and an
    incomplete file is ignored.
    """
    path = folder / VERIFIED
    with contextlib.suppress(OSError):  # in a read-only folder, contents are verified each time
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        with os.fdopen(os.open(path, flags, permissions.choose_file_mode(path)), "wb") as out:
            permissions.restore_mode(out.fileno(), path)
            out.write(content)


def _identify_file(path: Path) -> Identity:
    status = path.stat()
    return status.st_ino, status.st_mtime_ns, status.st_ctime_ns


def _hash_files(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """Return the SHA-256 of each of these files. Large files are read in parallel."""
    paths = {name: folder / name for name in names}
    large = {name: path for name, path in paths.items() if path.stat().st_size >= BYTES_AT_ONCE}
    if not large:
        return {name: hash_file(path) for name, path in paths.items()}
    from vmrag_link.thread_task import ThreadTask

    tasks = {name: ThreadTask(functools.partial(hash_file, path)) for name, path in large.items()}
    return {name: tasks[name].result() if name in tasks else hash_file(path) for name, path in paths.items()}


def hash_file(path: Path) -> str:
    """Return the SHA-256 of a file."""
    import hashlib  # a checkout of an index that was verified before does not need it

    digest, buffer = hashlib.sha256(), bytearray(min(BYTES_AT_ONCE, path.stat().st_size + 1))
    with path.open("rb", buffering=0) as file:
        while size := file.readinto(buffer):
            digest.update(memoryview(buffer)[:size])
    return digest.hexdigest()
