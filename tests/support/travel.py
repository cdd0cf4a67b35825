"""Clones of a git repository with a knowledge base in each, without index and command line; and
servers that git can reach.

A test module takes the fixtures with `home, pair = travel.home, travel.pair`.
"""

from __future__ import annotations

import base64
import contextlib
import getpass
import os
import random
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from tests.support import local_http
from tests.support.engines import AUTHOR, DATE, document, guide, head, root, store
from tests.support.repos import Repo, isolate, make_repo
from tests.support.templates import build_once, copy_tree
from vmrag_link.engines import opening
from vmrag_link.engines.base import Engine, Write
from vmrag_link.engines.folder import EngineName
from vmrag_link.engines.limits import USUAL_LIMITS, Limits
from vmrag_link.git import plumbing
from vmrag_link.models import WorkingSet
from vmrag_link.paths import Places
from vmrag_link.pin_values import DATA_REF, ENGINE_DATA_REFS  # noqa: F401  tests of the embedded engine take DATA from here
from vmrag_link.transport import address, connection, copies
from vmrag_link.transport.address import Address
from vmrag_link.transport.publish import Published, PublishRequest, publish

ROOT = Path(__file__).parents[2]
PATIENCE = 60
LONG = random.Random(6).randbytes(300_000).hex()
"""A text that makes the file three segments long."""


class Clone:
    """A git repository, and the knowledge base of an engine (`kind`) in it."""

    def __init__(self, top: Path, *, create: bool = False, kind: EngineName = "doltlite") -> None:
        self.repo = make_repo(top) if create else Repo(top)
        self.places: Places = plumbing.locate_work_tree(top)
        self.kind = kind
        if create:
            self.repo.commit("code")
            opening.create_engine(kind, self.places.kb, author=AUTHOR, date=DATE).close()
        self._engine: Engine | None = None

    @property
    def engine(self) -> Engine:
        if self._engine is None:
            self._engine = opening.open_engine(self.places.kb)
        return self._engine

    def close(self) -> None:
        if self._engine is not None:
            self._engine.close()
            self._engine = None

    def reopen(self, limits: Limits) -> None:
        """Open the knowledge base with other limits."""
        self.close()
        self._engine = opening.open_engine(self.places.kb, limits=limits)

    # -- documents

    def record(self, doc_id: str, text: str = "text", *, branch: str = "main") -> str:
        """Commit one document; returns the revision."""
        return store(self.engine, branch, document(doc_id, text))

    def begin(self) -> str:
        """A collection and a long document on `main`."""
        self.engine.create_branch("main", root(self.engine))
        self.engine.write("main", Write(put_collections=(guide(),)), expected=root(self.engine))
        return self.record("long", LONG)

    def state(self) -> Any:
        """All that a remote must not change."""
        branches = self.engine.list_branches()
        return branches, [
            list(self.engine.read_documents(WorkingSet(branch.name))) for branch in branches if branch.dirty
        ]

    # -- travelling

    def at(self, where: str = "origin") -> Address:
        return address.parse_remote(self.places, where, branch="main", engine=self.kind)[0]

    @property
    def tracking(self) -> str:
        """The ref in `store` that is at what `origin` held when it was last asked."""
        return f"refs/remotes/{self.at().key}/data"

    def push(
        self, where: str = "origin", *branches: str, revisions: tuple[str, ...] = (), force: bool = False
    ) -> list[Published]:
        """Push these branches, or all of them (without `branches` and `revisions`), as `vmrag push`
        does.
        """
        names = branches or tuple(
            branch.name
            for branch in self.engine.list_branches()
            if not branch.name.startswith("vmrag") and not revisions
        )
        heads = {name: head(self.engine, name) for name in names}
        expected = PublishRequest(heads, revisions, force=heads if force else ())
        return [self._publish(target, expected) for target in address.list_push_targets(self.places, self.at(where))]

    def _publish(self, where: Address, request: PublishRequest) -> Published:
        with connection.open_transport(self.places, self.engine, where, timeout=PATIENCE) as peer:
            return publish(self.engine, where.key, peer, request)

    def fetch(self, where: str = "origin") -> bool:
        remote = self.at(where)
        with connection.open_transport(self.places, self.engine, remote, timeout=PATIENCE) as peer:
            peer.read_heads()  # as `vmrag fetch` does, to see what moves
            return peer.fetch()

    def heads(self, where: str = "origin") -> dict[str, str]:
        """The remote's branches but for the reserved ones, as last asked."""
        remote = self.at(where)
        with connection.open_transport(self.places, self.engine, remote, timeout=PATIENCE) as peer:
            result = peer.read_heads()
        return {name: revision for name, revision in result.items() if not name.startswith("vmrag")}

    def clone_knowledge(self, where: str = "origin") -> bool:
        """False: there is none."""

        def make(key: str, url: str) -> Engine:
            return opening.clone_engine(self.kind, self.places.kb, key, url, limits=USUAL_LIMITS)

        made = connection.clone_remote(self.places, self.at(where), make, timeout=PATIENCE, engine=self.kind)
        if made is not None:
            made.close()
        return made is not None

    @property
    def copy(self) -> Path:
        """The file that stands for `origin`."""
        return self.places.remotes / self.at().key / copies.FILE_NAME

    @property
    def store(self) -> Repo:
        """The git repository through which it comes and goes."""
        return Repo(self.places.remote_objects)

    def below(self) -> bytes:
        """Every byte that is kept for this clone."""
        return b"\n".join(path.read_bytes() for path in sorted(self.places.shared.rglob("*")) if path.is_file())


def bare(top: Path, *options: str) -> Repo:
    top.mkdir(parents=True)
    repo = Repo(top)
    repo.git("init", "-q", "--bare", *options)
    return repo


def git_clone(url: str | Path, top: Path, *options: str, kind: EngineName = "doltlite") -> Clone:
    """A clone of the code, with no knowledge base yet."""
    result = Repo(top.parent).run("clone", "-q", *options, "--", str(url), str(top))
    assert result.returncode == 0, result.stderr
    return Clone(top, kind=kind)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An isolated home directory, as tests of git need it."""
    isolate(monkeypatch, tmp_path / "home")
    monkeypatch.setenv("GIT_TEMPLATE_DIR", "")  # a dozen samples of hooks less to copy
    return tmp_path / "home"


@dataclass
class Pair:
    """Ada pushed what Bob has fetched, through the bare repository `hub`."""

    folder: Path
    ada: Clone
    bob: Clone
    hub: Repo

    @property
    def tip(self) -> str:
        """The commit that holds the knowledge base on the hub."""
        return self.hub.git("rev-parse", ENGINE_DATA_REFS[self.ada.kind])


@pytest.fixture(scope="session")
def _pair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_once(tmp_path_factory, "pair", build_pair)


def build_pair(folder: Path, kind: EngineName = "doltlite") -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GIT_TEMPLATE_DIR", "")
        bare(folder / "hub.git")
        ada = Clone(folder / "ada", create=True, kind=kind)
        ada.repo.git("remote", "add", "origin", "../hub.git")
        ada.repo.git("push", "-q", "-u", "origin", "main")
        ada.begin()
        ada.push()
        bob = git_clone(folder / "hub.git", folder / "bob", kind=kind)
        bob.repo.git("remote", "set-url", "origin", "../hub.git")  # the folder is going to be copied
        assert bob.clone_knowledge()
        bob.record("bob", branch="bob")
        ada.close()
        bob.close()


@pytest.fixture
def pair(_pair: Path, tmp_path: Path, home: Path) -> Iterator[Pair]:
    for name in ("hub.git", "ada", "bob"):
        copy_tree(_pair / name, tmp_path / name)
    ada, bob = Clone(tmp_path / "ada"), Clone(tmp_path / "bob")
    yield Pair(tmp_path, ada, bob, Repo(tmp_path / "hub.git"))
    ada.close()
    bob.close()


def child(body: str, **environ: str) -> subprocess.Popen[str]:
    """A process that runs `body` with everything of this module at hand; its output captured."""
    program = "import os, signal, sys, time\nfrom tests.support.travel import *\n" + body
    return subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env=os.environ | environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def at_once(go: Path, bodies: Mapping[str, str]) -> list[str]:
    """Return the output of programs that start together: each prints `go` + name when it is ready,
    and waits for `go`.

    All of them succeed.
    """
    running = [child(body) for body in bodies.values()]
    try:
        while not all(go.with_name(f"{go.name}{name}").exists() for name in bodies):
            assert all(process.poll() is None for process in running), [process.communicate() for process in running]
        go.touch()
        said = [process.communicate(timeout=120) for process in running]
    finally:
        for process in running:
            process.kill()
    assert [process.returncode for process in running] == [0] * len(bodies), said
    return [out for out, _ in said]


# -- servers ---------------------------------------------------------------------------------------


@dataclass
class GitServer:
    """git over HTTP. `seen`: the Authorization header of each request."""

    url: str
    seen: list[str] = field(default_factory=list)

    def with_user(self, user: str) -> str:
        return self.url.replace("://", f"://{user}@")


Gate = Callable[[str, str], int]
"""With which status a request is refused, by its path with the query and its `Authorization`; 0: it
is not.
"""


@contextlib.contextmanager
def git_server(folder: Path, *, user: str = "", password: str = "", gate: Gate | None = None) -> Iterator[GitServer]:
    """Serve the repositories in the folder with git's own `http-backend`; all clients may push, or
    only those with user and password, or those that the `gate` admits.
    """
    expected = f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}" if user else ""
    ask = gate or (lambda _, given: 401 if expected and given.replace("basic", "Basic") != expected else 0)
    with local_http.serving(_Backend) as server:
        result = GitServer(f"http://127.0.0.1:{server.server_address[1]}")
        server.folder, server.gate, server.seen = folder, ask, result.seen  # type: ignore[attr-defined]
        yield result


class _Backend(BaseHTTPRequestHandler):
    """Runs git as a CGI program."""

    server: Any

    def do_GET(self) -> None:
        said = self.headers.get_all("Authorization", [])
        given = ", ".join(said)
        self.server.seen.append(given)
        if len(said) > 1:  # as GitHub refuses it
            self._answer(400, {"Content-Length": "0"}, b"")
            return
        if status := self.server.gate(self.path, given):
            self._answer(status, {"WWW-Authenticate": 'Basic realm="git"', "Content-Length": "0"}, b"")
            return
        path, _, query = self.path.partition("?")
        environ = {
            "PATH": os.environ["PATH"],
            "HOME": os.environ["HOME"],
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_PROJECT_ROOT": str(self.server.folder),
            "GIT_HTTP_EXPORT_ALL": "1",
            "REMOTE_USER": "somebody",
            "REMOTE_ADDR": "127.0.0.1",
            "REQUEST_METHOD": self.command,
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
        }
        body = self._body()
        environ["CONTENT_LENGTH"] = str(len(body))
        result = subprocess.run(["git", "http-backend"], env=environ, input=body, capture_output=True, check=False)
        lines, _, content = result.stdout.partition(b"\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in lines.decode().split("\r\n") if line)
        self._answer(int(headers.pop("Status", "200").split()[0]), headers, content)

    def do_POST(self) -> None:
        self.do_GET()

    def _answer(self, status: int, headers: dict[str, str], content: bytes) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        chunks = []
        while size := int(self.rfile.readline(), 16):
            chunks.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(chunks)

    def log_message(self, *_: object) -> None:
        pass


@dataclass(frozen=True)
class SshServer:
    """`url` of its root directory; `command`: what git must start to be let in."""

    url: str
    command: str


@contextlib.contextmanager
def ssh_server(folder: Path) -> Iterator[SshServer]:
    """OpenSSH's own server, with keys that are made for it. Skips where it is not installed."""
    program = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        pytest.skip("sshd is not installed")
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # its chroot while it talks to clients
    folder.mkdir(mode=0o700)
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
    port = free_port()
    (folder / "config").write_text(
        f"ListenAddress 127.0.0.1:{port}\nHostKey {folder}/host\nAuthorizedKeysFile {folder}/user.pub\nPidFile none\n"
        "StrictModes no\nUsePAM no\nPasswordAuthentication no\nPermitRootLogin yes\n"
    )
    key = (folder / "host.pub").read_text()
    (folder / "known").write_text(f"[127.0.0.1]:{port} {key}")
    options = f"-F /dev/null -i {folder}/user -o IdentitiesOnly=yes -o UserKnownHostsFile={folder}/known"
    with (folder / "log").open("w") as log:
        process = subprocess.Popen([program, "-D", "-e", "-f", folder / "config"], stdin=subprocess.DEVNULL, stderr=log)
    try:
        _await(port)
        yield SshServer(f"ssh://{getpass.getuser()}@127.0.0.1:{port}", f"ssh {options}")
    finally:
        process.terminate()
        process.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _await(port: int) -> None:
    deadline = time.monotonic() + 10
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except ConnectionRefusedError:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        else:
            return


@contextlib.contextmanager
def silent_server() -> Iterator[int]:
    """Yield the port of a host that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]
