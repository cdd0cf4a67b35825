"""A hostile branch is checked out: its `.dolt-version` and `.vmrag.yaml` cause no contact, run
nothing, and read nothing outside; the earlier knowledge still answers.

Each recorder is shown to notice a contact after an agreement.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import threading
import time
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from tests.support.doltlite_server import doltlite_server
from tests.support.outside import PROGRAMS, Outside
from tests.support.repos import isolate
from tests.support.strangers import (
    BROKEN,
    IMPOSSIBLE,
    NO_FILE,
    SECRET,
    SEEN,
    SETTINGS,
    SETTINGS_IGNORED,
    SETTINGS_OF_NO_FILE,
    SETTINGS_REFUSED,
    UNKNOWN,
    UNTRUSTED,
    members,
)
from tests.support.terminal import DOCUMENTS, Done, Project, new_project
from vmrag_link import hints
from vmrag_link.git import plumbing
from vmrag_link.sync import background

# -- which of them are checked out each time -------------------------------------------------------

FEW_UNTRUSTED = (
    "doltlite over HTTP",
    "over TLS",
    "git over HTTP",
    "another host, through the proxy",
    "git over ssh",
    "a command as a path",
    "a database",
    "a repository",
    "the code's remote by another name",
    "endless zeros",
    "DoltHub",
    "a bucket",
)
"""One of each way in which a remote is contacted, and of each thing that it could read or run."""

FEW_SEEN = tuple(what for what in FEW_UNTRUSTED if what in SEEN)

FEW_REFUSED = (
    "a transport helper",
    "an option of git",
    "a host that is an option",
    "a password",
    "an escape sequence",
    "a remote's name",
    "the remote twice",
    "a branch that is an option",
    "a revision upwards",
    "ten kilobytes",
    "an executable",
)

FEW_SETTINGS = (
    "an object",
    "a helper as the remote",
    "a remote with a password",
    "a folder that is allowed",
    "laughs",
    "a control character",
    "another encoding",
    "a megabyte",
    *SETTINGS_OF_NO_FILE,
)

FEW_IGNORED = ("a model", "a model that is a command")


def some(all_of_them: Iterable[str], few: Collection[str]) -> list[Any]:
    """The names of a table, of which all but `few` are for a long run: those that repeat what a
    unit test and one of the few show.
    """
    names = list(all_of_them)
    assert set(few) <= set(names)
    return [what if what in few else pytest.param(what, marks=pytest.mark.long) for what in names]


# -- the scene -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scene:
    """A folder with `project` and its remote `origin.git`, to be copied; the outside; and the
    values with `{a}` filled in.
    """

    folder: Path
    outside: Outside

    def filled(self, text: str) -> str:
        ports = dict(zip("abc", map(str, self.outside.ports), strict=True))
        values = ports | {"out": str(self.outside.folder), "origin": str(self.folder / "origin.git")}
        for name, value in values.items():
            text = text.replace(f"{{{name}}}", value)
        return text


def pr(kind: str, what: str) -> str:
    """Return the branch with the hostile commit."""
    return f"{kind}/{what.translate(str.maketrans(' :,', '---'))}"


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("scene")
    outside = Outside(tmp_path_factory.mktemp("world"))
    made = Scene(folder, outside)
    with pytest.MonkeyPatch.context() as patch:
        isolate(patch, folder / "home")
        project = _project(folder)
        _strangers(made, project)
        _bait(outside, project)
        yield made
    outside.close()


def _project(folder: Path) -> Project:
    """Pushed code and knowledge: `first` (three documents), then `faq`, on `main`."""
    subprocess.run(["git", "init", "-q", "--bare", folder / "origin.git"], check=True)
    project = new_project(folder / "project", settings=SETTINGS)
    project.git("remote", "add", "origin", "../origin.git")
    project.vmrag("init", "--knowledge-base", "--no-sources")
    for name, text in DOCUMENTS.items():
        project.put(name, text)
    project.vmrag("commit", "-m", "first")
    project.git("add", "-A")
    project.git("commit", "-q", "-m", "first")
    project.record("faq", faq="A frequent question.")
    project.vmrag("install")
    project.git("push", "-q", "-u", "origin", "main")
    project.git("remote", "set-head", "origin", "main")
    return project


def _bait(outside: Outside, project: Project) -> None:
    """Create attractive targets outside: a sound database, a repository that carries one, a pin,
    settings.
    """
    project.vmrag("push", f"file://{outside.folder}/kb.doltlite")
    subprocess.run(
        ["git", "clone", "-q", "--mirror", project.top.parent / "origin.git", outside.folder / "kb.git"], check=True
    )
    (outside.folder / "x").mkdir()
    (outside.folder / "link").symlink_to(".")
    (outside.folder / "pin.json").write_bytes(members())
    (outside.folder / "settings.yaml").write_text(SETTINGS)
    outside.watch()


def _strangers(scene: Scene, project: Project) -> None:
    """Fetch each hostile branch at once, as `gh pr checkout` and `git fetch URL` do."""
    dolt_commit = json.loads(project.git("show", "HEAD~1:.dolt-version"))["dolt_commit"]
    with_pins = {
        (kind, what): [(".dolt-version", "100644", members(dolt_remote=scene.filled(text), dolt_commit=revision))]
        for kind, revision, texts in (
            ("missing", UNKNOWN, UNTRUSTED | IMPOSSIBLE),
            ("known", dolt_commit, {what: UNTRUSTED[what] for what in SEEN}),
        )
        for what, text in texts.items()
    }
    files = {("pin", what): (".dolt-version", *value) for what, value in (BROKEN | NO_FILE).items()}
    settings = SETTINGS_REFUSED | SETTINGS_IGNORED
    files |= {("settings", what): (".vmrag.yaml", "100644", text.encode()) for what, text in settings.items()}
    files |= {("settings", what): (".vmrag.yaml", *value) for what, value in SETTINGS_OF_NO_FILE.items()}
    filled = {key: [(path, mode, _filled(scene, data))] for key, (path, mode, data) in files.items()}
    remotes = {
        ("remote", what): [
            (".vmrag.yaml", "100644", f"{SETTINGS}remote: {json.dumps(scene.filled(text))}\n".encode()),
            (".dolt-version", "D", b""),
        ]
        for what, text in UNTRUSTED.items()
        if what in SEEN
    }
    commit = project.git("rev-parse", "HEAD")
    stream = b"".join(_commit(pr(*key), commit, changes) for key, changes in (with_pins | filled | remotes).items())
    subprocess.run(["git", "fast-import", "--quiet"], cwd=project.top, input=stream, check=True)


def _filled(scene: Scene, data: bytes) -> bytes:
    return scene.filled(data.decode("latin-1")).encode("latin-1")


def _commit(branch: str, parent: str, changes: list[tuple[str, str, bytes]]) -> bytes:
    lines = [
        f"commit refs/heads/{branch}\ncommitter Mallory <m@mallory.example> 1700000000 +0000\ndata 3\npr\nfrom {parent}\n"
    ]
    encoded_lines = [line.encode() for line in lines]
    for path, mode, data in changes:
        if mode == "D":
            encoded_lines.append(f"D {path}\n".encode())
        elif mode == "160000":
            encoded_lines.append(f"M 160000 {parent} {path}\n".encode())
        else:
            encoded_lines.append(f"M {mode} inline {path}\ndata {len(data)}\n".encode() + data + b"\n")
    return b"".join(encoded_lines)


EXIT_CODES = {
    "REMOTE_NOT_TRUSTED": 1,
    "PIN_MALFORMED": 1,
    "PIN_MISSING_REVISION": 1,
    "CONFIG_INVALID": 2,
    "INVALID_REMOTE_URL": 2,
    "NOT_INITIALIZED": 2,
    "GIT_FAILED": 3,
    "REMOTE_UNREACHABLE": 3,
}


@dataclass(frozen=True)
class Victim(Project):
    """A reviewer of pull requests.

    `outside` must stay untouched.
    """

    outside: Outside

    def check_out(self, kind: str, what: str) -> str:
        """Return the output of git and the hooks."""
        result = self.run("checkout", pr(kind, what))
        assert result.returncode == 0, result.stderr
        settled(self)
        return result.stderr

    def fails(self, *command: str) -> dict[str, Any]:
        """Return the error of a command; as text it is also short and clear, and names a command to
        type.
        """
        said = self.run_quietly("--json", *command)
        error = json.loads(said.err[said.err.index('{"error"' if '{"error"' in said.err else "{") :])["error"]
        assert said.code == EXIT_CODES[error["code"]], said
        for text in (error["message"], error["hint"]):
            assert text
            assert text.isprintable()
            assert SECRET not in text
            assert len(text) < 1800
        return error

    def answers_from_before(self) -> Done:
        result = self.run_quietly("query", "frequent question", "--mode", "keyword")
        assert result.code == 0, result
        assert "faq.md" in result.out
        return result


def settled(project: Project) -> None:
    """Wait until no background process works."""
    places = plumbing.locate_work_tree(project.top)
    until = time.monotonic() + 30
    while background.is_running(background.get_sync_job(places)):
        assert time.monotonic() < until
        time.sleep(0.02)


@pytest.fixture
def victim(scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Victim]:
    """A copy of the project beside its remote. In the end nothing was contacted, run, read or made,
    unless the test has looked at that.
    """
    isolate(monkeypatch, tmp_path / "home")
    for name in ("project", "origin.git"):
        subprocess.run(["cp", "-a", scene.folder / name, tmp_path / name], check=True)
    monkeypatch.setenv("PATH", f"{scene.outside.programs}{os.pathsep}{os.environ['PATH']}")
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{scene.outside.ports[0]}")
    monkeypatch.setenv("no_proxy", "127.0.0.1,localhost,::1")
    monkeypatch.delenv("GIT_EDITOR")
    monkeypatch.setenv("EDITOR", "editor")
    made = Victim(tmp_path / "project", scene.outside)
    made.git("status")  # the copied index is refreshed
    before = _around(made)
    scene.outside.contacts()
    yield made
    settled(made)
    assert scene.outside.contacts() == []
    assert _around(made) - before <= {made.top.parent / "elsewhere"}


def _around(victim: Victim) -> set[Path]:
    return {*victim.top.parent.iterdir(), *victim.outside.folder.iterdir(), *(Path("/tmp").glob("pwned*"))}


# -- pins ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", some(UNTRUSTED, FEW_UNTRUSTED))
@pytest.mark.sample(3)
def test_pin_of_an_unknown_revision_causes_no_contact(victim, scene, what):
    remote = scene.filled(UNTRUSTED[what])
    assert "did not contact the untrusted remote" in victim.check_out("missing", what)
    status = victim.status()
    assert (status["state"], status["pin"]["dolt_remote"]) == ("missing", remote)
    for command in (("sync",), ("fetch",), ("pull",), ("push",)):
        error = victim.fails(*command)
        assert (error["code"], error["details"]["remote"]) == ("REMOTE_NOT_TRUSTED", remote)
        hinted = hints.list_commands(error["hint"])[0]
        assert shlex.split(hinted) == ["vmrag", "remote", "--trust", remote]
    assert "did not contact the untrusted remote" in victim.answers_from_before().out
    assert victim.ask("remote")["remotes"] == []


@pytest.mark.parametrize("what", some(SEEN, FEW_SEEN))
@pytest.mark.sample(3)
def test_pin_of_a_known_revision_sends_no_knowledge(victim, scene, what):
    victim.check_out("known", what)
    assert victim.status()["state"] == "in_sync"
    assert victim.fails("push")["code"] == "REMOTE_NOT_TRUSTED"
    pushed = victim.run("push", "origin", "HEAD:review")
    assert pushed.returncode != 0
    assert "the documents that these commits pin were not pushed" in pushed.stderr
    assert "git push --no-verify" in pushed.stderr
    assert not victim.git("ls-remote", "origin", "review")


@pytest.mark.parametrize("what", some([*IMPOSSIBLE, *BROKEN], FEW_REFUSED))
@pytest.mark.sample(4)
def test_impossible_pin_is_reported_with_its_line(victim, what):
    said = victim.check_out("missing" if what in IMPOSSIBLE else "pin", what)
    assert "vmrag: .dolt-version, line " in said
    assert SECRET not in said
    error = victim.fails("sync")
    assert error["code"] == "PIN_MALFORMED"
    assert error["hint"].startswith("run 'vmrag pin'")  # the committed pin is also unusable
    assert victim.status()["state"] == "malformed"
    victim.answers_from_before()


@pytest.mark.parametrize("what", NO_FILE)
def test_pin_other_than_a_file_is_not_followed(victim, what):
    victim.check_out("pin", what)
    for command in (("sync",), ("status",), ("fetch",), ("query", "x")):
        assert "must be a file" in victim.fails(*command)["message"]
    victim.git("checkout", "-q", "-f", "main")
    victim.answers_from_before()


@pytest.mark.parametrize("what", ["a database", "git over HTTP", "git over ssh"])
def test_fresh_clone_of_an_untrusted_branch_fetches_no_knowledge(victim, tmp_path, what):
    victim.git("push", "-q", "--no-verify", "origin", f"refs/heads/{pr('missing', what)}:refs/heads/pr")
    victim.git("clone", "-q", "-b", "pr", "../origin.git", "../elsewhere")
    clone = Victim(tmp_path / "elsewhere", victim.outside)
    clone.vmrag("install", code=None)
    for command in (("query", "x"), ("sync",), ("clone",)):
        assert "did not contact the untrusted remote" in clone.fails(*command)["message"]
    assert clone.status()["state"] == "not_initialized"
    assert not (clone.top / ".git" / "vmrag" / "kb").exists()


def test_untrusted_pin_in_the_history_does_not_stop_a_push(victim):
    victim.check_out("known", "git over HTTP")
    victim.git("checkout", "-q", "main", "--", ".dolt-version")
    victim.git("commit", "-q", "-m", "back to git:")
    pushed = victim.run("push", "origin", "HEAD:mended")
    assert pushed.returncode == 0, pushed.stderr
    assert "did not contact the untrusted remote" in pushed.stderr


def test_switching_back_forgets_the_untrusted_remote(victim):
    victim.check_out("missing", "doltlite over HTTP")
    assert victim.fails("sync")["code"] == "REMOTE_NOT_TRUSTED"
    victim.git("checkout", "-q", "main")
    assert victim.status()["state"] == "in_sync"
    assert "agreed" not in victim.answers_from_before().err


# -- settings --------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", some([*SETTINGS_REFUSED, *SETTINGS_OF_NO_FILE], FEW_SETTINGS))
@pytest.mark.sample(4)
def test_invalid_settings_file_stops_every_command_until_checkout(victim, what):
    victim.check_out("settings", what)  # with the same pin: the hook has nothing to do
    for command in (("query", "x"), ("sync",), ("fetch",), ("push",)):
        error = victim.fails(*command)
        assert error["code"] == "CONFIG_INVALID"
        assert error["message"].startswith(".vmrag.yaml")
    victim.git("checkout", "-q", "-f", "main")
    victim.answers_from_before()


@pytest.mark.parametrize("what", some(SETTINGS_IGNORED, FEW_IGNORED))
def test_untrusted_settings_are_ignored_with_a_warning(victim, what):
    victim.check_out("settings", what)
    warned = victim.answers_from_before().err
    assert re.search(r"untrusted settings? .*embedding\.model_path \(line \d+\)", warned)
    assert "vmrag trust" in warned
    assert victim.status()["state"] == "in_sync"
    victim.put("new.md", "Something new.")


def does_not_count(victim: Victim, remote: str, *command: str, code: int = 0) -> None:
    """Check that the command continues without the remote of the file and prints a warning."""
    said = victim.run_quietly("--json", *command)
    assert re.search(r"untrusted setting remote \(line \d+\)", said.err), said
    assert said.code == code, said
    assert remote not in said.out + said.err


@pytest.mark.parametrize("what", some(SEEN, FEW_SEEN))
@pytest.mark.sample(3)
def test_remote_of_untrusted_settings_is_not_contacted(victim, scene, what):
    victim.check_out("remote", what)
    remote = scene.filled(UNTRUSTED[what])
    for command, code in (("fetch", 0), ("push", 0), ("pull", 3)):  # the branch has no upstream
        does_not_count(victim, remote, command, code=code)
    assert "has no pin" in victim.answers_from_before().out


def test_pin_written_with_untrusted_settings_is_not_pushed_elsewhere(victim, scene):
    victim.check_out("remote", "doltlite over HTTP")
    victim.git("checkout", "-q", "main", "--", ".dolt-version")
    victim.git("commit", "-q", "-m", "the pin is back")
    victim.record("mine", mine="My own page.")
    assert json.loads((victim.top / ".dolt-version").read_text())["dolt_remote"] == "git:"
    victim.git("push", "-q", "origin", "HEAD:mine")


def test_remote_of_a_contributor_does_not_apply_to_the_project(victim, scene):
    """Its default branch is what the contributor likes, whichever branch of it is checked out."""
    victim.git("remote", "add", "contributor", "../contributor.git")
    victim.git("update-ref", "refs/remotes/contributor/main", f"refs/heads/{pr('remote', 'doltlite over HTTP')}")
    victim.git("symbolic-ref", "refs/remotes/contributor/HEAD", "refs/remotes/contributor/main")
    victim.git("checkout", "-q", "-b", "theirs", "--track", "contributor/main")
    does_not_count(victim, scene.filled(UNTRUSTED["doltlite over HTTP"]), "fetch")
    victim.git("update-ref", "refs/remotes/contributor/main", f"refs/heads/{pr('settings', 'a model')}")
    victim.git("reset", "-q", "--hard", "contributor/main")
    assert re.search(r"ignoring untrusted settings? .*embedding\.model_path", victim.answers_from_before().err)


def test_branch_with_the_name_of_head_is_not_the_default_branch(victim, scene):
    """Any user with push access can create such a branch; if git stored no default branch, it is
    fetched as `origin/HEAD`.
    """
    theirs = f"refs/heads/{pr('remote', 'doltlite over HTTP')}"
    victim.git("push", "-q", "--no-verify", "origin", f"{theirs}:refs/heads/HEAD")
    victim.git("remote", "set-head", "origin", "--delete")
    victim.git("fetch", "-q", "origin")
    assert victim.git("rev-parse", "refs/remotes/origin/HEAD") == victim.git("rev-parse", theirs)
    victim.check_out("remote", "doltlite over HTTP")
    does_not_count(victim, scene.filled(UNTRUSTED["doltlite over HTTP"]), "fetch")


@pytest.mark.parametrize("name", ["--upload-pack=touch", "-x", "ext::sh", "../../outside", "a\x1b[2J"])
def test_configured_remote_with_invalid_name_is_rejected(victim, name):
    victim.git("config", "vmrag.remote", name)
    assert victim.fails("fetch")["code"] == "INVALID_REMOTE_URL"


@pytest.mark.parametrize("name", ["--upload-pack=touch", "-x"])
def test_git_remote_named_like_an_option_is_not_contacted(victim, name):
    victim.git("config", f"remote.{name}.url", f"{victim.outside.folder}/kb.git")
    victim.git("config", "vmrag.remote", name)
    assert victim.ask("fetch")["remote"] == "origin"


@pytest.mark.parametrize(
    "text", ["--upload-pack=touch /tmp/pwned", "ext::sh -c id/x", "-oProxyCommand=id/x", "evil::x/y"]
)
def test_not_even_a_person_can_name_a_program_as_a_remote(victim, text):
    for command in (("fetch", "--", text), ("push", "--", text), ("remote", "--trust", text)):
        assert victim.fails(*command)["code"] == "INVALID_REMOTE_URL"


class Distorting(BaseHTTPRequestHandler):
    """Hands everything on to `url`, and gives branches other names."""

    url = ""

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)) or None
        kind = {"Content-Type": self.headers["Content-Type"]} if body else {}
        with urlopen(Request(self.url + self.path, data=body, headers=kind, method=self.command)) as answer:
            content = answer.read().replace(b"topic-branch", b"\x1b[2Jtopic\r\nx")
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_POST = do_GET  # noqa: N815  the name is given

    def log_message(self, *_: object) -> None:
        pass


def test_trusted_server_cannot_move_the_cursor_by_branch_names(victim, tmp_path):
    victim.git("switch", "-q", "-c", "topic-branch")
    victim.record("topic", topic="A topic.")
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "served").mkdir(parents=True)
    with (
        doltlite_server(elsewhere / "served") as url,
        ThreadingHTTPServer(("127.0.0.1", 0), type("", (Distorting,), {"url": url})) as distorting,
    ):
        threading.Thread(target=distorting.serve_forever, daemon=True).start()
        victim.vmrag("push", f"file://{elsewhere}/served/kb")
        said = {}
        for port in (url.rpartition(":")[2], distorting.server_port):
            victim.git("clone", "-q", "../origin.git", f"../elsewhere/{port}")
            said[port] = Project(elsewhere / str(port)).vmrag("clone", f"http://127.0.0.1:{port}/kb")
        distorting.shutdown()
    honest, distorted = said.values()
    assert "topic-branch" in honest.out
    assert "Fetched the knowledge base" in distorted.out
    assert "topic" not in distorted.out
    assert not any(sign in distorted.out + distorted.err for sign in "\x1b\r")


# -- the recorders see what is trusted -------------------------------------------------------------


def contacts(victim: Victim) -> list[str]:
    settled(victim)
    return victim.outside.contacts()


@pytest.mark.parametrize("what", some(SEEN, FEW_SEEN))
@pytest.mark.sample(3)
def test_trusted_remote_is_contacted_at_once(victim, scene, what):
    victim.check_out("missing", what)
    assert victim.fails("sync")["code"] == "REMOTE_NOT_TRUSTED"
    assert contacts(victim) == []
    victim.vmrag("remote", "--trust", scene.filled(UNTRUSTED[what]))
    victim.answers_from_before()  # a query fetches what is missing
    assert any(contact.endswith(scene.filled(SEEN[what])) for contact in contacts(victim))
    victim.vmrag("remote", "--forget", scene.filled(UNTRUSTED[what]))
    assert victim.fails("sync")["code"] == "REMOTE_NOT_TRUSTED"


def test_remote_of_the_settings_that_were_agreed_to_is_contacted(victim, scene):
    accept(victim, scene.filled(UNTRUSTED["git over HTTP"]))
    victim.check_out("missing", "git over HTTP")
    assert victim.fails("sync")["code"] == "PIN_MISSING_REVISION"
    assert scene.filled("port {a}") in contacts(victim)
    victim.check_out("missing", "git over IPv6")
    assert victim.fails("sync")["code"] == "REMOTE_NOT_TRUSTED"


@pytest.mark.parametrize(
    "what", ["a database", "a database through a link", "a repository", "a repository through a link"]
)
@pytest.mark.sample(1)
def test_folder_remote_of_trusted_settings_needs_an_allowed_root(victim, scene, what):
    accept(victim, scene.filled(UNTRUSTED[what]))
    victim.check_out("missing", what)
    error = victim.fails("sync")
    assert error["code"] == "REMOTE_NOT_TRUSTED"
    assert contacts(victim) == []
    command = shlex.split(hints.list_commands(error["hint"])[1])
    assert command[:3] == ["git", "config", "--add"]
    victim.git(*command[1:])
    assert victim.fails("sync")["code"] == "PIN_MISSING_REVISION"
    assert any(contact.endswith(scene.filled(SEEN[what])) for contact in contacts(victim))


def test_url_of_a_configured_git_remote_is_contacted(victim, scene):
    victim.git("remote", "add", "knowledge", scene.filled(UNTRUSTED["git over HTTP"]).removeprefix("git+"))
    victim.check_out("missing", "git over HTTP")
    assert victim.fails("sync")["code"] == "PIN_MISSING_REVISION"
    assert scene.filled("port {a}") in contacts(victim)


def test_remote_of_the_code_is_contacted_and_sends_missing_revisions(victim, tmp_path):
    victim.git("clone", "-q", "../origin.git", "../elsewhere")
    colleague = Project(tmp_path / "elsewhere")
    colleague.vmrag("clone")
    colleague.vmrag("install")
    revision = colleague.record("news", news="The newest page.")
    colleague.git("push", "-q", "origin", "main")
    victim.git("pull", "-q")
    settled(victim)
    assert "news.md" in victim.vmrag("query", "newest page", "--mode", "keyword").out
    assert victim.pinned == revision


def test_rewritten_url_is_followed_only_if_equally_protected(victim, scene):
    """`insteadOf` is the user's own; but what was agreed to as HTTPS is not fetched in the clear,
    or by a program.
    """
    what = "git over HTTPS"
    remote = scene.filled(UNTRUSTED[what])
    victim.vmrag("remote", "--trust", remote)
    victim.check_out("missing", what)
    contacts(victim)
    rewritten = remote.removeprefix("git+").removesuffix("/kb.git")
    ways = {"ssh://git@kb.example": True, "http://127.0.0.1:{a}": False, "evil::http://x": True, "ext::editor": False}
    for way, taken in ways.items():
        victim.git("config", f"url.{scene.filled(way)}.insteadOf", rewritten)
        error = victim.fails("fetch")
        assert bool(contacts(victim)) is taken, way
        assert error["code"] == ("REMOTE_UNREACHABLE" if taken else "INVALID_REMOTE_URL"), error
        victim.git("config", "--remove-section", f"url.{scene.filled(way)}")


def test_trusted_remote_does_not_use_a_transport_that_git_forbids(victim, scene):
    remote = scene.filled(UNTRUSTED["git over HTTP"])
    victim.vmrag("remote", "--trust", remote)
    victim.git("config", "protocol.http.allow", "never")
    victim.check_out("missing", "git over HTTP")
    error = victim.fails("fetch")
    assert (error["code"], contacts(victim)) == ("INVALID_REMOTE_URL", [])


def test_every_program_on_the_path_is_recorded(victim):
    for name in PROGRAMS:
        subprocess.run([name, "x"], check=False)
    assert contacts(victim) == [f"{name} x" for name in PROGRAMS]
    victim.run("ls-remote", "evil::x")
    assert contacts(victim) == ["git-remote-evil evil::x x"]


def accept(victim: Victim, remote: str) -> None:
    """The maintainers write it into the settings, and this person agrees to it."""
    victim.commit("accepted", **{".vmrag.yaml": f"{SETTINGS}remote: {json.dumps(remote)}\n"})
    victim.git("push", "-q", "--no-verify", "origin", "main")
    victim.vmrag("trust", "--yes")
