"""Restrictions of this process that Linux enforces, also for C code: files by Landlock, system
calls by a filter.

Landlock exists since Linux 5.13, and each version of its interface (ABI) can refuse more. It covers
contents of files and of folders. Changing permissions (`chmod`) and sizes by path (`truncate`,
before ABI 3) are refused by the filter. The process can still see whether a file exists, and its
size. https://docs.kernel.org/userspace-api/landlock.html

The filter (seccomp) makes calls fail that no conversion needs. Other calls are allowed, because the
libraries use different calls on different systems. Calls that were added to Linux since 2019 are
refused with a few exceptions, so that no future call is allowed by accident.
https://docs.kernel.org/userspace-api/seccomp_filter.html
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import struct
import sys
from collections.abc import Iterable
from pathlib import Path

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
"""Numbers of system calls. They are the same on all architectures."""

_VERSION = 1
_PATH_BENEATH = 1

_WRITE_FILE, _READ_FILE, _READ_DIR, _REMOVE_DIR, _REMOVE_FILE = (1 << bit for bit in range(1, 6))
_TRUNCATE = 1 << 14
_READING = _READ_FILE | _READ_DIR
_REMOVING = _READING | _REMOVE_DIR | _REMOVE_FILE
_OF_FILES = _READ_FILE | _WRITE_FILE | _TRUNCATE

_FILES = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}
"""The file operations of each ABI that are refused unless a rule allows them. ABI 5 adds requests
to devices.
"""

_TCP, _TCP_SINCE = 3, 4
"""Listening and connecting."""

_SCOPE, _SCOPE_SINCE = 3, 6
"""Sockets with abstract names, and signals, to processes outside of this one."""


def read_landlock_version() -> int:
    """Return the kernel's ABI; 0 if it has no Landlock, or refuses it to this process."""
    if sys.platform != "linux":
        return 0
    return max(0, _call_kernel(_CREATE_RULESET, None, 0, _VERSION))


def restrict_files(readable: Iterable[str], removable: str) -> bool:
    """Restrict this thread and its future threads permanently, and return whether the kernel did
    it.

    No file can be created or written. `no_new_privs` must be set. Some of `readable` (files and
    folders) may be missing. The process removes the folder `removable` when it ends, so it can also
    remove empty folders next to it.
    """
    abi = read_landlock_version()
    if not abi:
        return False
    files = max(mask for since, mask in _FILES.items() if since <= abi)
    # A kernel recognizes the structure of an older ABI by its size.
    handled = [files]
    handled += [_TCP] if abi >= _TCP_SINCE else []
    handled += [_SCOPE] if abi >= _SCOPE_SINCE else []
    attributes = struct.pack(f"={len(handled)}Q", *handled)
    ruleset = _call_kernel(_CREATE_RULESET, attributes, len(attributes), 0)
    if ruleset < 0:
        return False
    try:
        for path in readable:
            _allow_path(ruleset, path, _READING & files)
        _allow_path(ruleset, removable, _REMOVING & files)
        _allow_path(ruleset, str(Path(removable).parent), _REMOVE_DIR & files)
        return _call_kernel(_RESTRICT_SELF, ruleset, 0) == 0
    finally:
        os.close(ruleset)


def _allow_path(ruleset: int, path: str, access: int) -> None:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError, PermissionError):
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
        try:
            allowed = access if Path(path).is_dir() else access & _OF_FILES
            _call_kernel(_ADD_RULE, ruleset, _PATH_BENEATH, struct.pack("=Qi", allowed, descriptor), 0)
        finally:
            os.close(descriptor)


def _call_kernel(number: int, *arguments: int | bytes | None) -> int:
    """Return the result of a system call; -1 for an error."""
    converted = [ctypes.c_long(argument) if isinstance(argument, int) else argument for argument in arguments]
    return int(ctypes.CDLL(None).syscall(ctypes.c_long(number), *converted))


_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
"""The kernel's names. The numbers below are in this order."""

_REFUSED = (
    # Programs and processes; `clone` is below.
    "execve 59 221, execveat 322 281, fork 57 -, vfork 58 -",
    # Connections to other processes, on this machine and elsewhere.
    "socket 41 198, socketpair 53 199, connect 42 203, bind 49 200, listen 50 201, accept 43 202, accept4 288 242",
    "shmget 29 194, shmat 30 196, shmctl 31 195, semget 64 190, semop 65 193, semtimedop 220 192, semctl 66 191",
    "msgget 68 186, msgsnd 69 189, msgrcv 70 188, msgctl 71 187, mq_open 240 180, mq_unlink 241 181",
    "keyctl 250 219, add_key 248 217, request_key 249 218",
    # These calls change or read other processes; more of them are below.
    "ptrace 101 117, process_vm_readv 310 270, process_vm_writev 311 271, kcmp 312 272, tkill 200 130",
    "rt_sigqueueinfo 129 138, rt_tgsigqueueinfo 297 240, setpriority 141 140, ioprio_set 251 30, get_robust_list 274 100",
    # To end a conversion, vmrag kills its group of processes.
    "setpgid 109 154, setsid 112 157",
    "migrate_pages 256 238, move_pages 279 239",
    # File operations that Landlock, or Landlock of older kernels, does not cover.
    "chmod 90 -, fchmod 91 52, fchmodat 268 53, chown 92 -, fchown 93 55, lchown 94 -, fchownat 260 54",
    "utime 132 -, utimes 235 -, utimensat 280 88, futimesat 261 -, truncate 76 45",
    "setxattr 188 5, lsetxattr 189 6, fsetxattr 190 7, removexattr 197 14, lremovexattr 198 15, fremovexattr 199 16",
    "fallocate 285 47",  # FALLOC_FL_KEEP_SIZE takes more disk space than the maximum size of a file
    "name_to_handle_at 303 264, open_by_handle_at 304 265",
    "fanotify_init 300 262, inotify_init 253 -, inotify_init1 294 26",
    # Calls for root, or for processes that created a namespace.
    "mount 165 40, umount2 166 39, pivot_root 155 41, chroot 161 51, unshare 272 97, setns 308 268",
    "swapon 167 224, swapoff 168 225, quotactl 179 60, acct 163 89, reboot 169 142, syslog 103 116",
    "kexec_load 246 104, kexec_file_load 320 294, init_module 175 105, finit_module 313 273, delete_module 176 106",
    "settimeofday 164 170, clock_settime 227 112, adjtimex 159 171, clock_adjtime 305 266",
    "sethostname 170 161, setdomainname 171 162, vhangup 153 58, iopl 172 -, ioperm 173 -",
    # Parts of the kernel with many known vulnerabilities.
    "bpf 321 280, perf_event_open 298 241, userfaultfd 323 282, io_setup 206 0, personality 135 92, modify_ldt 154 -",
)
"""Names, with their numbers on each architecture (`-`: the architecture does not have the call)."""

_CLONE, _PRLIMIT, _SIGNALS = (56, 220), (302, 261), ((62, 129), (234, 131))
_SCHEDULING = ((142, 118), (144, 119), (203, 122), (314, 274))
"""sched_setparam, sched_setscheduler, sched_setaffinity, sched_setattr."""

_FCNTL, _IOCTL, _PRCTL = (72, 25), (16, 29), (157, 167)

_F_SETFL, _O_ASYNC, _PR_SCHED_CORE = 4, 0x2000, 62
_DESCRIPTOR_COMMANDS = (0, 1, 2, 3, 5, 6, 7, 36, 37, 38, 1030, 1032, 1033, 1034)
"""The allowed commands of fcntl, in addition to F_SETFL: F_DUPFD, F_GETFD, F_SETFD, F_GETFL, locks
of both kinds, F_DUPFD_CLOEXEC, F_GETPIPE_SZ, F_ADD_SEALS, F_GET_SEALS. F_SETOWN, F_SETOWN_EX and
F_SETSIG could send signals to other processes, F_SETLEASE could stop them, and F_NOTIFY watches
folders.
"""

_DEVICE_REQUESTS = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)
"""The allowed requests of ioctl: TCGETS (`isatty`), TIOCGWINSZ, FIONREAD, FIONBIO, FIONCLEX,
FIOCLEX. FIOASYNC, FIOSETOWN, SIOCSPGRP and TIOCSPGRP could send signals, TIOCSTI could type at the
terminal, and FICLONE could copy a file.
"""

_FIRST_COMMON = 424
"""From this number on, calls have the same number on all architectures (Linux 5.1, 2019)."""

_NEW_ALLOWED = (436, 437, 439, 449, 453, 454, 455, 456, 462)
"""close_range, openat2, faccessat2, futex_waitv, map_shadow_stack, futex_wake, futex_wait,
futex_requeue, mseal. Without `clone3`, the C library uses `clone`, whose flags a filter can check.
"""

_CLONE_THREAD = 0x10000
_PR_SET_SECCOMP, _MODE_FILTER = 22, 2

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _FIRST, _SECOND, _THIRD = 0, 4, 16, 24, 32
"""Offsets in `struct seccomp_data`. The lower half of an argument is enough, because the arguments
are `int`.
"""

_KILL, _FAIL, _ALLOW = 0x80000000, 0x00050000, 0x7FFF0000


class _FilterProgram(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def supports_filters() -> bool:
    """Return whether the kernel accepts filters, and the numbers of its system calls are known
    here.
    """
    is_known = sys.platform == "linux" and os.uname().machine in _ARCHITECTURES and sys.maxsize > 1 << 32
    # Without a program, a kernel that accepts filters reads one from address 0 and fails.
    return is_known and _install_filter(None) == errno.EFAULT


def block_system_calls() -> bool:
    """Block calls in this thread and its future threads permanently, and return whether the kernel
    did it.

    `no_new_privs` must be set.
    """
    if not supports_filters():
        return False
    code = b"".join(_build_filter(os.uname().machine, os.getpid()))
    return _install_filter(_FilterProgram(len(code) // 8, code)) == 0


def _install_filter(program: _FilterProgram | None) -> int:
    """Install a filter, and return the number of an error, or 0."""
    libc = ctypes.CDLL(None, use_errno=True)
    failed = libc.prctl(_PR_SET_SECCOMP, _MODE_FILTER, program and ctypes.byref(program), 0, 0)
    return ctypes.get_errno() if failed else 0


def _build_filter(machine: str, pid: int) -> list[bytes]:
    """Return the steps of the filter.

    A call of another architecture, such as `int 0x80`, would be misinterpreted, so it kills the
    process.
    """
    column_index = list(_ARCHITECTURES).index(machine)
    steps = [
        _encode_step(_LOAD, _ARCHITECTURE),
        *(_encode_step(_EQUAL, _ARCHITECTURES[machine], yes=1), _encode_step(_RETURN, _KILL)),
        _encode_step(_LOAD, _NUMBER),
    ]
    for number in _NEW_ALLOWED:
        steps += [_encode_step(_EQUAL, number, no=1), _encode_step(_RETURN, _ALLOW)]
    steps += [
        _encode_step(_AT_LEAST, _FIRST_COMMON, no=1),
        _encode_step(_RETURN, _FAIL | errno.ENOSYS),
    ]  # this includes the calls of x32
    steps += _call_rule(_CLONE[column_index], _allow_only(_FIRST, _ANY_BIT, _CLONE_THREAD))
    for numbers in (_PRLIMIT, *_SCHEDULING):
        steps += _call_rule(numbers[column_index], _allow_only(_FIRST, _EQUAL, 0))
    for numbers in _SIGNALS:
        steps += _call_rule(numbers[column_index], _allow_only(_FIRST, _EQUAL, pid))
    steps += _call_rule(_PRCTL[column_index], _refuse_only(_FIRST, _EQUAL, _PR_SCHED_CORE))
    steps += _call_rule(_IOCTL[column_index], _allow_only(_SECOND, _EQUAL, *_DEVICE_REQUESTS))
    set_flags = _refuse_only(_THIRD, _ANY_BIT, _O_ASYNC)
    commands = _allow_only(_SECOND, _EQUAL, *_DESCRIPTOR_COMMANDS)
    steps += _call_rule(
        _FCNTL[column_index],
        [_encode_step(_LOAD, _SECOND), _encode_step(_EQUAL, _F_SETFL, no=len(set_flags)), *set_flags, *commands],
    )
    for call in ", ".join(_REFUSED).split(", "):
        column = call.split()[1 + column_index]
        if column != "-":
            steps += _call_rule(int(column), [_encode_step(_RETURN, _FAIL | errno.EPERM)])
    return [*steps, _encode_step(_RETURN, _ALLOW)]


def _call_rule(number: int, rule: list[bytes]) -> list[bytes]:
    """Return steps that apply a rule to the call with this number."""
    return [_encode_step(_EQUAL, number, no=len(rule)), *rule]


def _allow_only(argument: int, test: int, *values: int) -> list[bytes]:
    """Return a rule: the call fails unless its argument passes the test with one of the values."""
    steps = [_encode_step(_LOAD, argument)]
    for value in values:
        steps += [_encode_step(test, value, no=1), _encode_step(_RETURN, _ALLOW)]
    return [*steps, _encode_step(_RETURN, _FAIL | errno.EPERM)]


def _refuse_only(argument: int, test: int, value: int) -> list[bytes]:
    """Return a rule: the call fails if its argument passes the test with the value."""
    return [
        *(_encode_step(_LOAD, argument), _encode_step(test, value, no=1)),
        *(_encode_step(_RETURN, _FAIL | errno.EPERM), _encode_step(_RETURN, _ALLOW)),
    ]


def _encode_step(code: int, value: int, *, yes: int = 0, no: int = 0) -> bytes:
    """Return a step. `yes`, `no`: the number of steps to skip after a comparison."""
    return struct.pack("=HBBI", code, yes, no, value)
