"""What Linux itself keeps from this process, from its code in C as well: files by Landlock, system
calls by a filter.

Landlock came with Linux 5.13, and each version of its interface (ABI) refuses more. It knows
contents of files and of folders; who may open what (`chmod`) and the size of a file by its path
(`truncate`, before ABI 3) are refused by the filter. That a file exists, and how large it is, can
still be seen. https://docs.kernel.org/userspace-api/landlock.html

The filter (seccomp) fails what no conversion has reason for. Everything else is allowed: which
calls the libraries make differs from system to system. Calls that came to Linux since 2019 are
refused but for a few, so that none that is new passes unseen.
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
"""Numbers of system calls, the same on all architectures."""

_VERSION = 1
_PATH_BENEATH = 1

_WRITE_FILE, _READ_FILE, _READ_DIR, _REMOVE_DIR, _REMOVE_FILE = (1 << bit for bit in range(1, 6))
_TRUNCATE = 1 << 14
_READING = _READ_FILE | _READ_DIR
_REMOVING = _READING | _REMOVE_DIR | _REMOVE_FILE
_OF_FILES = _READ_FILE | _WRITE_FILE | _TRUNCATE

_FILES = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}
"""By ABI: what of files is refused unless a rule allows it. 5 adds requests to devices."""

_TCP, _TCP_SINCE = 3, 4
"""To listen and to connect."""

_SCOPE, _SCOPE_SINCE = 3, 6
"""Sockets with abstract names and signals, to processes beyond this one."""


def read_landlock_version() -> int:
    """The kernel's ABI; 0 where it has no Landlock, or refuses it to this process."""
    if sys.platform != "linux":
        return 0
    return max(0, _call(_CREATE_RULESET, None, 0, _VERSION))


def restrict_files(readable: Iterable[str], removable: str) -> bool:
    """For good, this thread and those that it starts; whether the kernel does it.

    No file can be made or written. `no_new_privs` has to be set. Some of `readable`, files and
    folders, may be missing. The process removes the folder `removable` when it ends. So empty
    folders beside it can be removed, too.
    """
    abi = read_landlock_version()
    if not abi:
        return False
    files = max(mask for since, mask in _FILES.items() if since <= abi)
    # A kernel takes the structure of each ABI before its own by its size.
    handled = [files]
    handled += [_TCP] if abi >= _TCP_SINCE else []
    handled += [_SCOPE] if abi >= _SCOPE_SINCE else []
    attributes = struct.pack(f"={len(handled)}Q", *handled)
    ruleset = _call(_CREATE_RULESET, attributes, len(attributes), 0)
    if ruleset < 0:
        return False
    try:
        for path in readable:
            _allow(ruleset, path, _READING & files)
        _allow(ruleset, removable, _REMOVING & files)
        _allow(ruleset, str(Path(removable).parent), _REMOVE_DIR & files)
        return _call(_RESTRICT_SELF, ruleset, 0) == 0
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: str, access: int) -> None:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError, PermissionError):
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
        try:
            allowed = access if Path(path).is_dir() else access & _OF_FILES
            _call(_ADD_RULE, ruleset, _PATH_BENEATH, struct.pack("=Qi", allowed, place), 0)
        finally:
            os.close(place)


def _call(number: int, *arguments: int | bytes | None) -> int:
    """What the system call returns; -1 for an error."""
    given = [ctypes.c_long(argument) if isinstance(argument, int) else argument for argument in arguments]
    return int(ctypes.CDLL(None).syscall(ctypes.c_long(number), *given))


_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
"""As the kernel names them; the order is that of the numbers below."""

_REFUSED = (
    # Programs and processes; `clone` is below.
    "execve 59 221, execveat 322 281, fork 57 -, vfork 58 -",
    # What leads to other processes, on this machine and elsewhere.
    "socket 41 198, socketpair 53 199, connect 42 203, bind 49 200, listen 50 201, accept 43 202, accept4 288 242",
    "shmget 29 194, shmat 30 196, shmctl 31 195, semget 64 190, semop 65 193, semtimedop 220 192, semctl 66 191",
    "msgget 68 186, msgsnd 69 189, msgrcv 70 188, msgctl 71 187, mq_open 240 180, mq_unlink 241 181",
    "keyctl 250 219, add_key 248 217, request_key 249 218",
    # These calls change or read other processes; more of them are below.
    "ptrace 101 117, process_vm_readv 310 270, process_vm_writev 311 271, kcmp 312 272, tkill 200 130",
    "rt_sigqueueinfo 129 138, rt_tgsigqueueinfo 297 240, setpriority 141 140, ioprio_set 251 30, get_robust_list 274 100",
    # Whoever ends a conversion ends its group of processes.
    "setpgid 109 154, setsid 112 157",
    "migrate_pages 256 238, move_pages 279 239",
    # What of files Landlock leaves, or older kernels' Landlock.
    "chmod 90 -, fchmod 91 52, fchmodat 268 53, chown 92 -, fchown 93 55, lchown 94 -, fchownat 260 54",
    "utime 132 -, utimes 235 -, utimensat 280 88, futimesat 261 -, truncate 76 45",
    "setxattr 188 5, lsetxattr 189 6, fsetxattr 190 7, removexattr 197 14, lremovexattr 198 15, fremovexattr 199 16",
    "fallocate 285 47",  # FALLOC_FL_KEEP_SIZE takes room on the disk beyond the largest size of a file
    "name_to_handle_at 303 264, open_by_handle_at 304 265",
    "fanotify_init 300 262, inotify_init 253 -, inotify_init1 294 26",
    # What only root may, or whoever has made a namespace.
    "mount 165 40, umount2 166 39, pivot_root 155 41, chroot 161 51, unshare 272 97, setns 308 268",
    "swapon 167 224, swapoff 168 225, quotactl 179 60, acct 163 89, reboot 169 142, syslog 103 116",
    "kexec_load 246 104, kexec_file_load 320 294, init_module 175 105, finit_module 313 273, delete_module 176 106",
    "settimeofday 164 170, clock_settime 227 112, adjtimex 159 171, clock_adjtime 305 266",
    "sethostname 170 161, setdomainname 171 162, vhangup 153 58, iopl 172 -, ioperm 173 -",
    # Parts of the kernel in which many mistakes were found.
    "bpf 321 280, perf_event_open 298 241, userfaultfd 323 282, io_setup 206 0, personality 135 92, modify_ldt 154 -",
)
"""Names with their numbers on each architecture (`-`: it has none)."""

_CLONE, _PRLIMIT, _SIGNALS = (56, 220), (302, 261), ((62, 129), (234, 131))
_SCHEDULING = ((142, 118), (144, 119), (203, 122), (314, 274))
"""sched_setparam, sched_setscheduler, sched_setaffinity, sched_setattr."""

_FCNTL, _IOCTL, _PRCTL = (72, 25), (16, 29), (157, 167)

_F_SETFL, _O_ASYNC, _PR_SCHED_CORE = 4, 0x2000, 62
_DESCRIPTOR_COMMANDS = (0, 1, 2, 3, 5, 6, 7, 36, 37, 38, 1030, 1032, 1033, 1034)
"""The commands of fcntl that are allowed, beside F_SETFL: F_DUPFD, F_GETFD, F_SETFD, F_GETFL,
locks of both kinds, F_DUPFD_CLOEXEC, F_GETPIPE_SZ, F_ADD_SEALS, F_GET_SEALS. F_SETOWN, F_SETOWN_EX
and F_SETSIG would send signals to other processes, F_SETLEASE would stop them, F_NOTIFY watches
folders.
"""

_DEVICE_REQUESTS = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)
"""The requests of ioctl that are allowed: TCGETS (`isatty`), TIOCGWINSZ, FIONREAD, FIONBIO,
FIONCLEX, FIOCLEX. FIOASYNC, FIOSETOWN, SIOCSPGRP and TIOCSPGRP would send signals, TIOCSTI would
type at the terminal, and FICLONE would copy a file.
"""

_NEW = 424
"""From here on numbers are the same everywhere (Linux 5.1, 2019)."""

_NEW_ALLOWED = (436, 437, 439, 449, 453, 454, 455, 456, 462)
"""close_range, openat2, faccessat2, futex_waitv, map_shadow_stack, futex_wake, futex_wait,
futex_requeue, mseal. Without `clone3` the C library takes `clone`, whose flags a filter sees.
"""

_CLONE_THREAD = 0x10000
_PR_SET_SECCOMP, _MODE_FILTER = 22, 2

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _FIRST, _SECOND, _THIRD = 0, 4, 16, 24, 32
"""Offsets in `struct seccomp_data`. The lower half of an argument is enough: these are `int`."""

_KILL, _FAIL, _ALLOW = 0x80000000, 0x00050000, 0x7FFF0000


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def supports_filters() -> bool:
    """Whether the kernel takes filters, and the numbers of its system calls are known here."""
    known = sys.platform == "linux" and os.uname().machine in _ARCHITECTURES and sys.maxsize > 1 << 32
    # Asked without a program the kernel looks for one at address 0, if it takes any.
    return known and _install(None) == errno.EFAULT


def block_system_calls() -> bool:
    """For good, this thread and those that it starts; whether the kernel does it.

    `no_new_privs` has to be set.
    """
    if not supports_filters():
        return False
    code = b"".join(_program(os.uname().machine, os.getpid()))
    return _install(_Program(len(code) // 8, code)) == 0


def _install(program: _Program | None) -> int:
    """The number of an error, or 0."""
    libc = ctypes.CDLL(None, use_errno=True)
    failed = libc.prctl(_PR_SET_SECCOMP, _MODE_FILTER, program and ctypes.byref(program), 0, 0)
    return ctypes.get_errno() if failed else 0


def _program(machine: str, pid: int) -> list[bytes]:
    """A call of another architecture's, such as `int 0x80`, would be misread: it ends the
    process.
    """
    which = list(_ARCHITECTURES).index(machine)
    steps = [
        _step(_LOAD, _ARCHITECTURE),
        *(_step(_EQUAL, _ARCHITECTURES[machine], yes=1), _step(_RETURN, _KILL)),
        _step(_LOAD, _NUMBER),
    ]
    for number in _NEW_ALLOWED:
        steps += [_step(_EQUAL, number, no=1), _step(_RETURN, _ALLOW)]
    steps += [_step(_AT_LEAST, _NEW, no=1), _step(_RETURN, _FAIL | errno.ENOSYS)]  # x32's, too
    steps += _call_rule(_CLONE[which], _allow_only(_FIRST, _ANY_BIT, _CLONE_THREAD))
    for numbers in (_PRLIMIT, *_SCHEDULING):
        steps += _call_rule(numbers[which], _allow_only(_FIRST, _EQUAL, 0))
    for numbers in _SIGNALS:
        steps += _call_rule(numbers[which], _allow_only(_FIRST, _EQUAL, pid))
    steps += _call_rule(_PRCTL[which], _refuse_only(_FIRST, _EQUAL, _PR_SCHED_CORE))
    steps += _call_rule(_IOCTL[which], _allow_only(_SECOND, _EQUAL, *_DEVICE_REQUESTS))
    set_flags = _refuse_only(_THIRD, _ANY_BIT, _O_ASYNC)
    commands = _allow_only(_SECOND, _EQUAL, *_DESCRIPTOR_COMMANDS)
    steps += _call_rule(
        _FCNTL[which],
        [_step(_LOAD, _SECOND), _step(_EQUAL, _F_SETFL, no=len(set_flags)), *set_flags, *commands],
    )
    for call in ", ".join(_REFUSED).split(", "):
        column = call.split()[1 + which]
        if column != "-":
            steps += _call_rule(int(column), [_step(_RETURN, _FAIL | errno.EPERM)])
    return [*steps, _step(_RETURN, _ALLOW)]


def _call_rule(number: int, rule: list[bytes]) -> list[bytes]:
    """Return steps that decide about the call with this number by a rule."""
    return [_step(_EQUAL, number, no=len(rule)), *rule]


def _allow_only(argument: int, test: int, *values: int) -> list[bytes]:
    """Return a rule: the call fails unless its argument passes the test with one of the values."""
    steps = [_step(_LOAD, argument)]
    for value in values:
        steps += [_step(test, value, no=1), _step(_RETURN, _ALLOW)]
    return [*steps, _step(_RETURN, _FAIL | errno.EPERM)]


def _refuse_only(argument: int, test: int, value: int) -> list[bytes]:
    """Return a rule: the call fails if its argument passes the test with the value."""
    return [
        *(_step(_LOAD, argument), _step(test, value, no=1)),
        *(_step(_RETURN, _FAIL | errno.EPERM), _step(_RETURN, _ALLOW)),
    ]


def _step(code: int, value: int, *, yes: int = 0, no: int = 0) -> bytes:
    """`yes`, `no`: how many steps are left out after a comparison."""
    return struct.pack("=HBBI", code, yes, no, value)
