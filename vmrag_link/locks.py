"""Locks between processes, and between two holders in one process.

They belong to the open file (`flock`). The system drops them when their process dies. Closing the
same file elsewhere in the process leaves them alone, which POSIX record locks do not.

After locking, check that the path still names this inode: the exclusive holder may remove the lock
file. Beside a lock that is held exclusively lies `<name>.holder`, which tells others for whom they
wait.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from vmrag_link import permissions
from vmrag_link.errors import Busy, FileFailed, refuses_writing

POLL_SECONDS = 0.02


@contextlib.contextmanager
def hold_exclusive(path: Path, *, purpose: str, timeout: float) -> Iterator[None]:
    """Hold the lock alone. `timeout` in seconds, 0 = do not wait. Not re-entrant.

    Raises `Busy` with the holder's process and purpose, `FileFailed` where the lock file cannot be
    made.
    """
    with _hold(path, fcntl.LOCK_EX, purpose, timeout):
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
    """Hold the lock together with other readers; waits and raises as `exclusive` does.

    Where no lock file can be made, or the file system has no locks, the block reads without one.
    """
    with contextlib.ExitStack() as held:
        try:
            held.enter_context(_hold(path, fcntl.LOCK_SH, purpose, timeout))
        except FileFailed as error:
            if not (refuses_writing(error) or _has_no_locks(error.__cause__)):
                raise
        yield


def is_held(path: Path) -> bool:
    """Whether another holder has the lock exclusively.

    Takes it for an instant, for which others wait.
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


def read_holder(path: Path) -> tuple[int, str] | None:
    """Process id and purpose of the exclusive holder, if it wrote them down."""
    with contextlib.suppress(OSError, ValueError):
        pid, _, purpose = _holder_file(path).read_text().partition(" ")
        if is_process_alive(int(pid)):  # one that was killed could not take its name away
            return int(pid), purpose
    return None


def is_process_alive(pid: int) -> bool:
    """Whether there is a process of that number, which a file may say wrongly."""
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
def _hold(path: Path, kind: int, purpose: str, timeout: float) -> Iterator[None]:
    descriptor = _lock(path, kind, purpose, timeout)
    try:
        yield
    finally:
        os.close(descriptor)  # which releases the lock


def _lock(path: Path, kind: int, purpose: str, timeout: float) -> int:
    access = os.O_RDONLY if kind == fcntl.LOCK_SH else os.O_RDWR
    descriptor = _open_lock_file(path, access, purpose)
    while True:
        try:
            _acquire(descriptor, kind, path, purpose, timeout)
            if _is_at(path, descriptor):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # it was removed while we waited: everybody else locks another file
        # Without its folders: a work tree that was removed meanwhile must not be made again.
        descriptor = _open_lock_file(path, access, purpose, parents=False)


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _open_lock_file(path: Path, access: int, purpose: str, *, parents: bool = True) -> int:
    """The descriptor of the lock file, made if missing. A shared lock needs no right to write once
    it is there.
    """
    try:
        with contextlib.suppress(FileNotFoundError):
            return os.open(path, access | os.O_CLOEXEC)
        permissions.make_folder(path.parent, parents=parents)
        descriptor = os.open(path, access | os.O_CREAT | os.O_CLOEXEC, permissions.choose_file_mode(path))
        permissions.restore_mode(descriptor, path)
    except OSError as error:
        raise FileFailed(
            f"Cannot {purpose}: {path} cannot be written ({error.strerror}).",
            hint=f"Check that you may write to {path.parent} and that its disk has room.",
            path=str(path),
        ) from error
    return descriptor


def _acquire(descriptor: int, kind: int, path: Path, purpose: str, timeout: float) -> None:
    deadline = time.monotonic() + timeout
    while True:
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise _busy(path, purpose, timeout) from None
            time.sleep(POLL_SECONDS)
        except OSError as error:
            if not _has_no_locks(error):
                raise
            raise FileFailed(
                f"Cannot {purpose}: the file system of {path} has no locks ({error.strerror}).",
                hint="Move the repository to a local disk, or mount that file system with locks "
                "(NFS: start its lock service, or use the mount option local_lock=flock).",
                path=str(path),
            ) from error
        else:
            return


def _has_no_locks(error: BaseException | None) -> bool:
    return isinstance(error, OSError) and error.errno in (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)


def _busy(path: Path, purpose: str, timeout: float) -> Busy:
    pid, theirs = read_holder(path) or (None, "another process")
    who = f"process {pid} ({theirs})" if pid else theirs
    waited = f" for {timeout:g} s" if timeout else ""
    return Busy(
        f"Cannot {purpose}: {who} has held {path.name}{waited}.",
        hint="Wait for it to finish and run the command again." + (f" See what it does: ps -fp {pid}" if pid else ""),
        lock=str(path),
        holder_pid=pid,
        holder=theirs,
    )
