"""The process that converts untrusted files: its limits, and how it ends."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from vmrag_link.conversion.child import kernel_rules, serving
from vmrag_link.conversion.converter import Converter
from vmrag_link.conversion.limits import MIB, ConversionLimits
from vmrag_link.errors import ConversionFailed

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="Linux alone has it")


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder for the temporary folders of child processes."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def child(converter: Converter) -> int:
    assert converter._process
    return converter._process._process.pid


def reason(converter: Converter, data: bytes, name: str) -> str:
    with pytest.raises(ConversionFailed) as failed:
        converter.convert(data, name=name)
    return str(failed.value.details["reason"])


def within(seconds: float, holds: Callable[[], object]) -> bool:
    end = time.monotonic() + seconds
    while not holds() and time.monotonic() < end:
        time.sleep(0.02)
    return bool(holds())


def is_alive(pid: int) -> bool:
    """Return whether a process is alive: one that waits to be reaped is dead."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


# -- what it cannot do

_ATTEMPTS = """
import ctypes, json, os, socket, subprocess, sys
from pathlib import Path
from vmrag_link.conversion.child.serving import confine_process
from vmrag_link.conversion.limits import ConversionLimits
libc = ctypes.CDLL(None, use_errno=True)
confine_process(ConversionLimits(), Path.cwd())
port = int(sys.argv[1])

def native():  # what code in C may do behind Python's back
    address = bytes([2, 0]) + port.to_bytes(2, "big") + bytes([127, 0, 0, 1]) + bytes(8)
    return libc.connect(libc.socket(2, 1, 0), address, 16)

attempts = {
    "socket": lambda: socket.create_connection(("127.0.0.1", port)),
    "unix socket": lambda: socket.socket(socket.AF_UNIX),
    "program": lambda: subprocess.run(["true"]),
    "fork": os.fork,
    "shell": lambda: os.system("true"),
    "signal": lambda: os.kill(os.getppid(), 0),
    "secret": lambda: open("/etc/passwd"),
    "link": lambda: (os.symlink("/etc/passwd", "x"), open("x")),
    "listing": lambda: os.listdir(Path("/etc")),
    "moving": lambda: (open("mine", "w").close(), os.rename("mine", Path(sys.argv[2], "moved"))),
    "write": lambda: open(sys.argv[2] + "/written", "w"),
    "remove": lambda: Path(sys.argv[2], "kept").unlink(),
    "hard link": lambda: os.link("mine", sys.argv[2] + "/linked"),
    "truncate": lambda: os.truncate(sys.argv[2] + "/kept", 0),
    "mode": lambda: os.chmod(sys.argv[2] + "/kept", 0),
    "time": lambda: os.utime(sys.argv[2] + "/kept", (1, 1)),
    "file in its own folder": lambda: open("new", "w").write("x"),
    "folder in its own folder": lambda: os.mkdir("new"),
    "own file": lambda: open("mine").read(),
    "removing its own file": lambda: os.remove("removable"),
    "module": lambda: __import__("html.parser"),
    "database": lambda: __import__("sqlite3"),
}
found = {}
for name, attempt in attempts.items():
    try:
        attempt()
        found[name] = "done"
    except (OSError, ImportError) as error:
        found[name] = type(error).__name__
print(json.dumps(found | {"native": native(), "network": os.readlink("/proc/self/ns/net") if sys.platform == "linux" else ""}))
"""

_UNSHARE = "import ctypes, sys; l = ctypes.CDLL(None); sys.exit(bool(l.unshare(1 << 30) and l.unshare(5 << 28)))"


def test_child_reaches_only_its_own_folder_and_the_libraries(tmp_path: Path) -> None:
    """Code in C is kept from the network only where the kernel lets this user make a namespace."""
    outside, own_folder = tmp_path / "outside", tmp_path / "own"
    outside.mkdir()
    own_folder.mkdir()
    (outside / "kept").touch()
    for name in ("mine", "removable"):
        (own_folder / name).touch()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        argv = [sys.executable, "-P", "-c", _ATTEMPTS, str(listener.getsockname()[1]), str(outside)]
        content = json.loads(subprocess.run(argv, cwd=own_folder, capture_output=True, text=True, check=True).stdout)
    network, native = content.pop("network"), content.pop("native")
    allowed = {"own file", "removing its own file", "module"}
    assert {name for name, outcome in content.items() if outcome == "done"} == allowed
    assert content.pop("database") == "ImportError"
    assert {outcome for name, outcome in content.items() if name not in allowed} == {"PermissionError"}
    assert [path.name for path in outside.iterdir()] == ["kept"]
    if sys.platform == "linux" and subprocess.run([sys.executable, "-c", _UNSHARE], check=False).returncode == 0:
        assert network != str(Path("/proc/self/ns/net").readlink())
        assert native == -1


_NATIVE = """
import ctypes, os, resource, sys
from pathlib import Path
from vmrag_link.conversion.child.serving import confine_process
from vmrag_link.conversion.limits import ConversionLimits
libc = ctypes.CDLL(None, use_errno=True)
libc.opendir.restype = ctypes.c_void_p
home, parent = sys.argv[1].encode(), os.getppid()
limit = (ctypes.c_ulong * 2)(*resource.getrlimit(resource.RLIMIT_NOFILE))
clone, sched_setattr, fallocate = (56, 314, 285) if os.uname().machine == "x86_64" else (220, 274, 47)
segment = libc.shmget(0, 4096, 0o1600)
libc.shmat.restype = ctypes.c_void_p
libc.shmat(segment, None, 0)
libc.shmctl(segment, 0, None)  # it ends with this process
pipe, socket = os.pipe()[0], libc.socket(1, 1, 0)
number = ctypes.c_int(parent)
by_type = (ctypes.c_int * 2)(1, parent)
cpus, plain, attributes = (ctypes.c_char * 128)(255), (ctypes.c_int * 1)(0), (ctypes.c_int * 12)(48)
confine_process(ConversionLimits(), Path.cwd())

def parent_of(child):
    if child == 0:
        os._exit(0)
    return child

attempts = {
    "join its parent's group": lambda: libc.setpgid(0, os.getpgid(parent)),
    "read": lambda: libc.open(home + b"/.ssh/id", os.O_RDONLY),
    "read of its parent": lambda: libc.open(f"/proc/{parent}/environ".encode(), os.O_RDONLY),
    "list": lambda: libc.opendir(home) or -1,
    "write": lambda: libc.open(home + b"/new", os.O_CREAT | os.O_WRONLY, 0o600),
    "overwrite": lambda: libc.open(home + b"/.ssh/id", os.O_WRONLY),
    "remove": lambda: libc.unlink(home + b"/.ssh/other"),
    "link": lambda: libc.link(home + b"/.ssh/id", home + b"/linked"),
    "move": lambda: libc.rename(home + b"/.ssh/moved", home + b"/moved"),
    "truncate": lambda: libc.truncate(home + b"/.ssh/id", 0),
    "mode": lambda: libc.chmod(home + b"/.ssh/id", 0o777),
    "shell": lambda: -1 if libc.system(b"touch " + home + b"/made") else 0,
    "process": lambda: parent_of(libc.fork()),
    "process by clone": lambda: parent_of(libc.syscall(clone, 17, 0, 0, 0, 0)),
    "process by clone3": lambda: parent_of(libc.syscall(435, (ctypes.c_ulonglong * 11)(), 88)),
    "socket": lambda: libc.socket(2, 1, 0),
    "unix socket": lambda: libc.socket(1, 1, 0),
    "pair": lambda: libc.socketpair(1, 1, 0, (ctypes.c_int * 2)()),
    "ring": lambda: libc.syscall(425, 1, (ctypes.c_char * 120)()),
    "another numbering": lambda: libc.syscall(0x40000000 | 41, 2, 1, 0),
    "signal": lambda: libc.kill(parent, 0),
    "trace": lambda: libc.ptrace(0x4206, parent, 0, 0),
    "signal of a descriptor": lambda: libc.fcntl(pipe, 10, 28),  # ignored, unlike SIGIO
    "owner of a descriptor": lambda: libc.fcntl(pipe, 8, parent),
    "owner by its type": lambda: libc.fcntl(pipe, 15, by_type),
    "signals of a descriptor": lambda: libc.fcntl(pipe, 4, 0x2000),
    "signals by a request": lambda: libc.ioctl(pipe, 0x5452, ctypes.byref(ctypes.c_int(1))),
    "owner of a socket": lambda: libc.ioctl(socket, 0x8901, ctypes.byref(number)),
    "group of a socket": lambda: libc.ioctl(socket, 0x8902, ctypes.byref(number)),
    "lease": lambda: libc.fcntl(libc.open(b"mine", os.O_RDONLY), 1024, 0),
    "watch": lambda: libc.fcntl(libc.open(b".", os.O_RDONLY), 1026, 4),
    "processors of its parent": lambda: libc.sched_setaffinity(parent, 128, cpus),
    "scheduling of its parent": lambda: libc.sched_setscheduler(parent, 0, plain),
    "priority of its parent": lambda: libc.sched_setparam(parent, plain),
    "attributes of its parent": lambda: libc.syscall(sched_setattr, parent, attributes, 0),
    "nice value of its parent": lambda: libc.setpriority(0, parent, 0),
    "locks of its parent": lambda: libc.syscall(274 if clone == 56 else 100, parent, by_type, by_type),
    "shared memory": lambda: libc.shmctl(segment, 2, (ctypes.c_char * 256)()),
    "room on the disk": lambda: libc.syscall(fallocate, libc.open(b"mine", os.O_RDWR), 1, 0, 4096),
    "room for its complaints": lambda: libc.syscall(fallocate, 2, 1, 0, 4096),
    "new file in its own folder": lambda: libc.open(b"new", os.O_CREAT | os.O_WRONLY, 0o600),
    "file without a name": lambda: libc.open(b".", os.O_TMPFILE | os.O_WRONLY, 0o600),
    "folder in its own folder": lambda: libc.mkdir(b"folder", 0o700),
    "own file to write": lambda: libc.open(b"mine", os.O_WRONLY),
    "limit": lambda: libc.prlimit(parent, 7, ctypes.byref(limit), None),
    "namespace": lambda: libc.unshare(0x10000000),
    "privileges": lambda: -1 if libc.prctl(39, 0, 0, 0, 0) == 1 else 0,
    "own file": lambda: libc.open(b"mine", os.O_RDONLY),
    "own descriptor": lambda: min(libc.fcntl(pipe, 1030, 0), libc.fcntl(pipe, 4, os.O_NONBLOCK), libc.ioctl(pipe, 0x5451)),
    "own processors": lambda: libc.sched_setaffinity(0, 128, cpus),
    "own signal": lambda: libc.kill(os.getpid(), 0),
    "own limit": lambda: libc.prlimit(0, 7, None, ctypes.byref(limit)),
    "library": lambda: libc.open(os.__file__.encode(), os.O_RDONLY),
    "program": lambda: libc.execv(b"/bin/echo", (ctypes.c_char_p * 3)(b"echo", b"a program", None)),
}
for name, attempt in attempts.items():
    if attempt() != -1:
        print(name, flush=True)
"""

_OWN = ["own file", "own descriptor", "own processors", "own signal", "own limit", "library"]

LANDLOCK = pytest.mark.skipif(not kernel_rules.read_landlock_version(), reason="this kernel has no Landlock")
SECCOMP = pytest.mark.skipif(not kernel_rules.supports_filters(), reason="this kernel takes no filter of system calls")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home" / ".ssh").mkdir(parents=True)
    for name in ("id", "other", "moved"):
        (tmp_path / "home" / ".ssh" / name).write_text("secret")
    return tmp_path / "home"


def natively_done(home: Path, without: str = "") -> list[str]:
    """List the actions that C code can do after the confinement; `without`: the omitted part of
    it.
    """
    own_folder = home.parent / "own"
    own_folder.mkdir()
    (own_folder / "mine").touch()
    module, _, name = without.rpartition(".")
    left_out = f"import vmrag_link.conversion.child.{module} as part\npart.{name} = lambda *_: False\n" if name else ""
    argv = [sys.executable, "-P", "-c", left_out + _NATIVE, str(home)]
    with (own_folder / "stderr").open("wb") as complaints:
        ended = subprocess.run(argv, cwd=own_folder, stdout=subprocess.PIPE, stderr=complaints, text=True, check=True)
    return ended.stdout.splitlines()


@LANDLOCK
@SECCOMP
def test_native_code_reaches_no_foreign_file_program_process_or_network(home: Path) -> None:
    assert natively_done(home) == _OWN
    assert {path.name for path in home.rglob("*")} == {".ssh", "id", "other", "moved"}
    assert (home / ".ssh" / "id").read_text() == "secret"
    assert stat.S_IMODE((home / ".ssh" / "id").stat().st_mode) != 0o777


@LANDLOCK
def test_landlock_alone_keeps_every_file_from_code_in_c(home: Path) -> None:
    result = natively_done(home, without="kernel_rules.refuse_calls")
    assert not {"read", "read of its parent", "list", "write", "overwrite", "remove", "move", "link", "shell"} & {
        *result
    }
    assert {*_OWN} <= {*result}
    assert (home / ".ssh" / "id").read_text() == "secret"


@SECCOMP
def test_system_call_filter_alone_denies_native_code_programs_processes_and_sockets(home: Path) -> None:
    result = natively_done(home, without="kernel_rules.restrict_files")
    files = {"read", "list", "write", "overwrite", "remove", "move", "link"}
    own_files = {"new file in its own folder", "file without a name", "folder in its own folder", "own file to write"}
    assert {*result} - files - own_files - {"read of its parent"} == {*_OWN}
    assert files <= {*result}, "what is to show the filter shows Landlock"


_FILLS = """
import ctypes, os
from pathlib import Path
from vmrag_link.conversion.child.serving import confine_process
from vmrag_link.conversion.limits import ConversionLimits
libc = ctypes.CDLL(None, use_errno=True)
libc.signal(25, ctypes.c_void_p(1))
confine_process(ConversionLimits(), Path.cwd())
data = bytes(1 << 20)
for number in range(40):
    libc.write(2, data, len(data))
    file = libc.open(b"%d" % number, os.O_CREAT | os.O_WRONLY, 0o600)
    libc.write(file, data, len(data))
    libc.close(file)
"""


@LANDLOCK
def test_child_writes_at_most_one_mebibyte_in_total(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    with (folder / "stderr").open("wb") as complaints:
        subprocess.run([sys.executable, "-P", "-c", _FILLS], cwd=folder, stderr=complaints, check=True)
    assert [path.name for path in folder.iterdir()] == ["stderr"]
    assert (folder / "stderr").stat().st_size <= MIB


@LINUX
def test_missing_kernel_features_are_listed_and_tolerated(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_rules, "read_landlock_version", lambda: 0)
    monkeypatch.setattr(kernel_rules, "supports_filters", lambda: False)
    assert serving.list_missing_limits() == ["Landlock", "a filter of system calls (seccomp)"]
    assert not kernel_rules.block_system_calls()
    assert not kernel_rules.restrict_files((), str(home))


@pytest.mark.parametrize(("column", "header"), [(1, "*/asm/unistd_64.h"), (2, "asm-generic/unistd.h")])
def test_numbers_of_system_calls_are_those_of_the_kernels_own_headers(column: int, header: str) -> None:
    """The column of x86_64, and the one that aarch64 shares with newer architectures."""
    path = next(Path("/usr/include").glob(header), None)
    if path is None:
        pytest.skip(f"{header}: this machine has no such header of the kernel (linux-libc-dev)")
    matches = dict(re.findall(r"^#define __NR(?:3264)?_(\w+)\s+(\d+)$", path.read_text(), re.MULTILINE))
    named = {call.split()[0]: call.split()[column] for call in ", ".join(kernel_rules._REFUSED).split(", ")}
    for name, numbers in {
        "clone": kernel_rules._CLONE,
        "prlimit64": kernel_rules._PRLIMIT,
        "kill": kernel_rules._SIGNALS[0],
        "tgkill": kernel_rules._SIGNALS[1],
        "fcntl": kernel_rules._FCNTL,
        "ioctl": kernel_rules._IOCTL,
        "prctl": kernel_rules._PRCTL,
        **dict(
            zip(
                ("sched_setparam", "sched_setscheduler", "sched_setaffinity", "sched_setattr"),
                kernel_rules._SCHEDULING,
                strict=True,
            )
        ),
    }.items():
        named[name] = str(numbers[column - 1])
    assert named == {name: matches.get(name, "-") for name in named}


@LINUX
def test_child_inherits_no_secret_and_no_open_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    with (tmp_path / "opened").open("w") as opened, Converter() as converter:
        os.set_inheritable(opened.fileno(), True)
        converter.convert(b"[1]", name="x.json")
        process = Path(f"/proc/{child(converter)}")
        names = {entry.partition(b"=")[0] for entry in (process / "environ").read_bytes().split(b"\0")}
        assert names - {b""} <= {b"TMPDIR", b"LC_ALL", b"LD_LIBRARY_PATH"}
        assert str(tmp_path / "opened") not in {str(path.readlink()) for path in (process / "fd").iterdir()}


# -- what becomes of it


def test_single_process_serves_many_files_and_plain_text_needs_none(temporary: Path) -> None:
    with Converter() as converter:
        for name in ("x.md", "x.txt", "x.rst", "x.adoc", "x.mdx"):
            converter.convert(b"text", name=name)
        assert converter._process is None
        converter.convert(b"<p>text", name="x.html")
        first = child(converter)
        converter.convert(b"[1]", name="x.json")
        assert reason(converter, b"[", "x.json")
        converter.convert(b"<a/>", name="x.xml")
        assert child(converter) == first
        assert len(list(temporary.iterdir())) == 1
    assert list(temporary.iterdir()) == []
    assert not is_alive(first)


def test_killed_child_is_replaced_for_the_next_file(temporary: Path) -> None:
    with Converter() as converter:
        converter.convert(b"[1]", name="x.json")
        os.kill(child(converter), signal.SIGKILL)
        running = converter._process
        assert running
        assert within(10, lambda: not running.is_usable)  # it may be a zombie before its parent can know
        assert converter.convert(b"[2]", name="x.json").text == "2"
        with stopped_when_busy(converter, signal.SIGKILL):
            assert reason(converter, LONG, "x.json") == "cannot be converted (its conversion was ended by SIGKILL)"
        assert converter.convert(b"[3]", name="x.json").text == "3"
    assert list(temporary.iterdir()) == []


LONG = b"[" + b"[]," * 2_000_000 + b"1]"
"""Seconds of work."""


@contextlib.contextmanager
def stopped_when_busy(converter: Converter, number: signal.Signals) -> Iterator[None]:
    pid = child(converter)
    timer = threading.Timer(0.2, os.kill, (pid, number))
    timer.start()
    yield
    timer.join()


def test_endless_conversion_is_stopped(temporary: Path) -> None:
    with Converter(ConversionLimits(max_seconds=4)) as converter:  # its start counts, which may be slow
        converter.convert(b"[1]", name="x.json")
        with stopped_when_busy(converter, signal.SIGSTOP):
            assert reason(converter, LONG, "x.json") == "takes more than 4 seconds to be converted"
        assert converter.convert(b"[2]", name="x.json").text == "2"
    assert list(temporary.iterdir()) == []


def test_computing_is_limited_for_each_file() -> None:
    with Converter(ConversionLimits(max_cpu_seconds=1)) as converter:
        busy = b"a,b\n" + b"1,2\n" * 3_000_000
        with pytest.raises(ConversionFailed, match="takes more than 1 seconds of computing to be converted") as failed:
            converter.convert(busy, name="x.csv")
        assert failed.value.hint == "git config vmrag.ingest.convert-s 5"
        options = b"<select>" + b"<option>" * 100_000  # quadratic in the parser, in C, where no Ctrl-C reaches
        assert reason(converter, options, "x.html") == "takes more than 1 seconds of computing to be converted"
        assert converter.convert(b"[2]", name="x.json").text == "2"


@LINUX
def test_memory_is_limited() -> None:
    with Converter(ConversionLimits(max_memory=300 * MIB)) as converter:
        assert (
            reason(converter, b"[" + b"[]," * 6_000_000 + b"1]", "x.json")
            == "needs more than 300 MiB of memory to be converted"
        )
        assert converter.convert(b"[2]", name="x.json").text == "2"


@pytest.mark.parametrize("busy", [False, True])
def test_child_does_not_outlive_a_killed_parent(temporary: Path, busy: bool) -> None:
    program = (
        "import sys, time; from vmrag_link.conversion.converter import Converter\n"
        f"import tempfile; tempfile.tempdir = {str(temporary)!r}\n"
        "converter = Converter(); converter.convert(b'[1]', name='x.json')\n"
        "print(converter._process._process.pid, flush=True)\n"
        f"converter.convert(b'[' + b'[],' * 10_000_000 + b'1]', name='x.json') if {busy} else time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-P", "-c", program], stdout=subprocess.PIPE) as parent:
        assert parent.stdout
        pid = int(parent.stdout.readline())
        time.sleep(0.3)
        parent.kill()
    assert within(20, lambda: not is_alive(pid))
    assert within(5, lambda: list(temporary.iterdir()) == [])
