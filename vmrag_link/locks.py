"""Locks between processes, and between two holders in one process.

A lock belongs to the open file (`flock`). The system drops it when the process dies. If the process
closes another descriptor of the file, the lock stays, unlike a POSIX record lock.

After locking, check that the path still names this inode, because the exclusive holder can remove
the lock file. Next to an exclusive lock is the file `<name>.holder`, which tells waiting processes
who holds it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from vmrag_link import permissions
from vmrag_link.errors import Busy, FileFailed, refuses_writing

POLL_SECONDS = 0.02


@contextlib.contextmanager
def hold_exclusive(path: Path, *, purpose: str, timeout: float) -> Iterator[None]:
    """Hold the lock alone. It is not re-entrant.

    `timeout` is in seconds, and 0 does not wait. Raises `Busy` with the process and the purpose of
    the holder, and `FileFailed` if the lock file cannot be created.
    """
    with _hold_lock(path, fcntl.LOCK_EX, purpose, timeout):
        name = _holder_file(path)
        try:
            with contextlib.suppress(OSError):  # a full disk: the name is a courtesy
                permissions.make_file(name)
                name.write_text(f"{os.getpid()} {purpose}")
            yield
        finally:
            with contextlib.suppress(OSError):
                name.unlink()


@contextlib.contextmanager
def hold_shared(path: Path, *, purpose: str, timeout: float) -> Iterator[None]:
    """Hold the lock together with other readers.

    If the lock file cannot be created, or the file system has no locks, the block reads without
    one. Raises `Busy` with the process and the purpose of the holder.
    """
    with contextlib.ExitStack() as held:
        try:
            held.enter_context(_hold_lock(path, fcntl.LOCK_SH, purpose, timeout))
        except FileFailed as error:
            if not (refuses_writing(error) or _has_no_locks(error.__cause__)):
                raise
        yield


def is_held(path: Path) -> bool:
    """Return whether another holder has the lock exclusively.

    It takes the lock for an instant, so others wait that long.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError as error:
        if not _has_no_locks(error):
            raise
    finally:
        os.close(descriptor)
    return False


class Holder(NamedTuple):
    pid: int
    purpose: str


def read_holder(path: Path) -> Holder | None:
    """Return the exclusive holder, if it has recorded itself."""
    with contextlib.suppress(OSError, ValueError):
        pid, _, purpose = _holder_file(path).read_text().partition(" ")
        if is_process_alive(int(pid)):  # a killed holder could not remove its file
            return Holder(int(pid), purpose)
    return None


def is_process_alive(pid: int) -> bool:
    """Return whether a process of this number exists.

    The number comes from a file, which can be wrong.
    """
    if pid < 1:
        return False  # to the system, these are groups of processes
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):  # no system has so large a number
        return False
    except PermissionError:
        pass  # another user's
    return True


def _holder_file(path: Path) -> Path:
    return path.with_name(path.name + ".holder")


@contextlib.contextmanager
def _hold_lock(path: Path, kind: int, purpose: str, timeout: float) -> Iterator[None]:
    descriptor = _lock_file(path, kind, purpose, timeout)
    try:
        yield
    finally:
        os.close(descriptor)  # which releases the lock


def _lock_file(path: Path, kind: int, purpose: str, timeout: float) -> int:
    access = os.O_RDONLY if kind == fcntl.LOCK_SH else os.O_RDWR
    descriptor = _open_lock_file(path, access, purpose)
    while True:
        try:
            _acquire_lock(descriptor, kind, path, purpose, timeout)
            if _is_at(path, descriptor):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # it was removed during the wait, and others lock a new file
        # Do not create its folders: the work tree can have been removed in the meantime.
        descriptor = _open_lock_file(path, access, purpose, parents=False)


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _open_lock_file(path: Path, access: int, purpose: str, *, parents: bool = True) -> int:
    """Open the lock file, and create it if it is missing.

    A shared lock on an existing file needs no write permission.
    """
    try:
        with contextlib.suppress(FileNotFoundError):
            return os.open(path, access | os.O_CLOEXEC)
        permissions.make_folder(path.parent, parents=parents)
        descriptor = os.open(path, access | os.O_CREAT | os.O_CLOEXEC, permissions.choose_file_mode(path))
        permissions.restore_mode(descriptor, path)
    except OSError as error:
        raise FileFailed(
            f"cannot {purpose}: cannot write {path} ({error.strerror}).",
            hint=f"check that you can write to {path.parent}, and that its disk has room",
            path=str(path),
        ) from error
    return descriptor


def _acquire_lock(descriptor: int, kind: int, path: Path, purpose: str, timeout: float) -> None:
    deadline = time.monotonic() + timeout
    while True:
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise _busy_error(path, purpose, timeout) from None
            time.sleep(POLL_SECONDS)
        except OSError as error:
            if not _has_no_locks(error):
                raise
            raise FileFailed(
                f"cannot {purpose}: the file system of {path} does not support locks ({error.strerror}).",
                hint="move the repository to a local disk, or mount that file system with locks, such as "
                "local_lock=flock for NFS",
                path=str(path),
            ) from error
        else:
            return


def _has_no_locks(error: BaseException | None) -> bool:
    return isinstance(error, OSError) and error.errno in (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)


def _busy_error(path: Path, purpose: str, timeout: float) -> Busy:
    holder = read_holder(path)
    who = f"process {holder.pid} ({holder.purpose})" if holder else "another process"
    waited = f" for {timeout:g} s" if timeout else ""
    look = f", or run 'ps -fp {holder.pid}' to see it" if holder else ""
    return Busy(
        f"cannot {purpose}: {who} has held {path.name}{waited}.",
        hint=f"wait for it to finish and run the command again{look}",
        lock=str(path),
        holder_pid=holder.pid if holder else None,
        holder=holder.purpose if holder else "another process",
    )
