"""A filter of system calls: what no conversion has reason for fails, in code in C as well.

Everything else is allowed: which calls the libraries make differs from system to system. Calls that
came to Linux since 2019 are refused but for a few, so that none that is new passes unseen.
https://docs.kernel.org/userspace-api/seccomp_filter.html
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import sys

_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
"""As the kernel names them; the order is that of the numbers below."""

_REFUSED = (
    # Programs and processes; `clone` is below.
    "execve 59 221, execveat 322 281, fork 57 -, vfork 58 -",
    # What leads to other processes, on this machine and elsewhere.
    "socket 41 198, socketpair 53 199, connect 42 203, bind 49 200, listen 50 201, accept 43 202, accept4 288 242",
    "shmget 29 194, shmat 30 196, msgget 68 186, semget 64 190, mq_open 240 180, mq_unlink 241 181",
    "keyctl 250 219, add_key 248 217, request_key 249 218",
    # What changes or reads other processes; `kill`, `tgkill` and `prlimit64` are below.
    "ptrace 101 117, process_vm_readv 310 270, process_vm_writev 311 271, kcmp 312 272, tkill 200 130",
    "rt_sigqueueinfo 129 138, rt_tgsigqueueinfo 297 240, setpriority 141 140, ioprio_set 251 30",
    # Whoever ends a conversion ends its group of processes.
    "setpgid 109 154, setsid 112 157",
    "migrate_pages 256 238, move_pages 279 239",
    # What of files Landlock leaves, or older kernels' Landlock.
    "chmod 90 -, fchmod 91 52, fchmodat 268 53, chown 92 -, fchown 93 55, lchown 94 -, fchownat 260 54",
    "utime 132 -, utimes 235 -, utimensat 280 88, futimesat 261 -, truncate 76 45",
    "setxattr 188 5, lsetxattr 189 6, fsetxattr 190 7, removexattr 197 14, lremovexattr 198 15, fremovexattr 199 16",
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

_NEW = 424
"""From here on numbers are the same everywhere (Linux 5.1, 2019)."""

_NEW_ALLOWED = (436, 437, 439, 449, 453, 454, 455, 456, 462)
"""close_range, openat2, faccessat2, futex_waitv, map_shadow_stack, futex_wake, futex_wait,
futex_requeue, mseal. Without `clone3` the C library takes `clone`, whose flags a filter sees.
"""

_CLONE_THREAD = 0x10000
_PR_SET_SECCOMP, _MODE_FILTER = 22, 2

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16
_KILL, _FAIL, _ALLOW = 0x80000000, 0x00050000, 0x7FFF0000


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def is_supported() -> bool:
    """Whether the kernel takes filters, and the numbers of its system calls are known here."""
    known = sys.platform == "linux" and os.uname().machine in _ARCHITECTURES and sys.maxsize > 1 << 32
    # Asked without a program the kernel looks for one at address 0, if it takes any.
    return known and _install(None) == errno.EFAULT


def refuse() -> bool:
    """For good, this thread and those that it starts; whether the kernel does it.

    `no_new_privs` has to be set.
    """
    if not is_supported():
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
    steps += _only(_CLONE[which], _ANY_BIT, _CLONE_THREAD)
    steps += _only(_PRLIMIT[which], _EQUAL, 0)
    for each in _SIGNALS:
        steps += _only(each[which], _EQUAL, pid)
    for call in ", ".join(_REFUSED).split(", "):
        own = call.split()[1 + which]
        if own != "-":
            steps += [_step(_EQUAL, int(own), no=1), _step(_RETURN, _FAIL | errno.EPERM)]
    return [*steps, _step(_RETURN, _ALLOW)]


def _only(number: int, test: int, value: int) -> list[bytes]:
    """The call with this number fails unless its first argument passes the test."""
    return [
        *(_step(_EQUAL, number, no=4), _step(_LOAD, _FIRST_ARGUMENT)),
        *(_step(test, value, yes=1), _step(_RETURN, _FAIL | errno.EPERM), _step(_RETURN, _ALLOW)),
    ]


def _step(code: int, value: int, *, yes: int = 0, no: int = 0) -> bytes:
    """`yes`, `no`: how many steps are left out after a comparison."""
    return struct.pack("=HBBI", code, yes, no, value)
