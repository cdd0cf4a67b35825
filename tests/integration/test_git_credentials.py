"""A knowledge base gets in wherever the code's repository does: on a runner, with the token of the
checkout.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support import travel
from tests.support.checkout import TOKEN, Checkout, basic, ssh_command
from tests.support.engines import head
from tests.support.repos import Repo, make_repo
from tests.support.templates import copy_tree
from tests.support.travel import Clone, GitServer, Pair, git_server, ssh_server
from vmrag_link.engines.limits import USUAL_LIMITS
from vmrag_link.errors import AuthenticationFailed
from vmrag_link.git import credentials, plumbing, remotes, sidecar_repo
from vmrag_link.git.remotes import Peer
from vmrag_link.git.run import run_git
from vmrag_link.paths import Places
from vmrag_link.transport import quarantine

home, pair, _pair = travel.home, travel.pair, travel._pair

REAL_GIT = shutil.which("git")


@dataclass
class Host:
    """A private repository, `hub.git` in this folder, and the server that asks for a password."""

    folder: Path
    server: GitServer

    @property
    def hub(self) -> Repo:
        return Repo(self.folder / "hub.git")


@pytest.fixture(scope="module")
def _host(_pair: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    folder = tmp_path_factory.mktemp("host")
    copy_tree(_pair / "hub.git", folder / "hub.git")
    with git_server(folder, user="x-access-token", password=TOKEN) as server:
        yield Host(folder, server)


@pytest.fixture
def host(_host: Host, home: Path) -> Host:
    merged = _host.hub.git("rev-parse", "refs/heads/main")
    _host.hub.git("update-ref", "refs/pull/7/merge", merged)
    _host.server.seen.clear()
    return _host


@pytest.fixture
def typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The arguments of every git process, one a line: what everybody on a machine can read."""
    log, program = tmp_path / "typed", tmp_path / "recorder" / "git"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$*" >>"{log}"\nexec "{REAL_GIT}" "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    return log


def checkout(host: Host, tmp_path: Path, **options: object) -> Checkout:
    return Checkout(tmp_path / "work space", tmp_path / "temp", host.server.url, TOKEN, **options)  # type: ignore[arg-type]


def travels(clone: Clone, name: str) -> None:
    """Clone, fetch and push."""
    assert clone.clone_knowledge()
    clone.record(name, branch=name)
    clone.push("origin", name)
    assert clone.fetch()
    assert clone.heads()[name] == head(clone.engine, name)
    clone.close()


def assert_secret(*texts: object) -> None:
    for text in texts:
        data = text if isinstance(text, bytes) else str(text).encode()
        for secret in (TOKEN, basic(TOKEN)):
            assert secret.encode() not in data


@pytest.mark.parametrize(
    ("options", "ref"),
    [
        ({"version": "v4"}, "refs/heads/main"),
        ({"version": "v5", "fetch_depth": 0}, "refs/pull/7/merge"),
        ({"version": "v6", "path": "code/sub"}, "refs/heads/main"),
        ({"version": "v7"}, "refs/pull/7/merge"),
    ],
)
@pytest.mark.sample(2)
def test_token_of_a_checkout_lets_the_knowledge_base_in(
    options: dict[str, object], ref: str, host: Host, tmp_path: Path, typed: Path
) -> None:
    clone = Clone(checkout(host, tmp_path, **options).run("hub.git", ref).top)
    typed.unlink()
    travels(clone, f"from-{options['version']}")
    said = {request for request in host.server.seen if request}
    assert said == {f"basic {basic(TOKEN)}"}, "one header a request"
    assert_secret(clone.below(), typed.read_bytes())
    calls = [line.split(" ") for line in typed.read_text().splitlines()]
    talked = [line for line in calls if {"fetch", "push", "ls-remote"} & set(line)]
    assert 0 < len([line for line in calls if "--show-scope" in line]) <= len(talked)


def test_quarantine_for_a_fork_gets_in(host: Host, tmp_path: Path) -> None:
    places = Clone(checkout(host, tmp_path).run("hub.git").top).places
    with quarantine.open_quarantine(places, timeout=5) as room:
        url = room.fetch_knowledge("doltlite", Peer(f"{host.server.url}/hub.git"), limits=USUAL_LIMITS)
        assert Path(url.removeprefix("file://")).is_file()
        assert room.fetch_code(Peer("origin"), "refs/heads/main")


def test_linked_work_tree_of_a_checkout_gets_in(host: Host, tmp_path: Path) -> None:
    repo = checkout(host, tmp_path).run("hub.git")
    repo.git("worktree", "add", "-q", str(tmp_path / "linked"))
    travels(Clone(tmp_path / "linked"), "linked")


def test_submodule_of_a_checkout_gets_in(host: Host, tmp_path: Path) -> None:
    action = checkout(host, tmp_path)
    outer = make_repo(action.workspace)
    action.temp.mkdir()
    header = f"http.{host.server.url}/.extraheader=AUTHORIZATION: basic {basic(TOKEN)}"
    outer.git("-c", header, "submodule", "--quiet", "add", f"{host.server.url}/hub.git", "sub")
    action.configure_token(Repo(outer.top / "sub"), outer.top / ".git" / "modules" / "sub")
    travels(Clone(outer.top / "sub"), "sub")


def test_missing_credential_error_suggests_settings_for_a_runner(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clone = Clone(checkout(host, tmp_path, persist_credentials=False).run("hub.git").top)
    with pytest.raises(AuthenticationFailed) as laptop:
        clone.clone_knowledge()
    assert laptop.value.hint.startswith("run 'git ls-remote ")
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    with pytest.raises(AuthenticationFailed) as runner:
        clone.clone_knowledge()
    assert "persist-credentials" in runner.value.hint
    assert "token" in runner.value.hint


def test_traced_header_is_not_shown() -> None:
    said = f"=> Send header: Authorization: basic {basic(TOKEN)}\nfatal: no"
    assert_secret(remotes.redact_url(said))
    assert "fatal: no" in remotes.redact_url(said)


def test_key_of_a_checkout_lets_the_knowledge_base_in(
    pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The input `ssh-key`. Our time-outs reach the quoted program, too."""
    with ssh_server(tmp_path / "sshd") as server:
        monkeypatch.setenv("RUNNER_TEMP", str(tmp_path / "temp"))
        bob = Clone(pair.bob.repo.top)
        bob.repo.git("remote", "set-url", "origin", f"{server.url}{pair.hub.top}")
        shutil.rmtree(bob.places.kb)
        bob.repo.git("config", "core.sshCommand", ssh_command(tmp_path / "sshd", tmp_path / "temp"))
        travels(bob, "by-key")
        environment = credentials.build_environment(
            bob.places, credentials.read_credentials(bob.places), may_ask=False
        )["GIT_SSH_COMMAND"]
        assert environment.startswith(f'"{shutil.which("ssh")}" -i "$RUNNER_TEMP/')
        assert environment.endswith("-o ServerAliveCountMax=3 -o BatchMode=yes")


# -- the code's repository and ours beside it, on equal terms --------------------------------------


SAYS = "!f() {{ echo {0} >&2; }}; f"
CONDITIONS = {
    "local": "include.path",
    "here": "includeIf.gitdir:{git_dir}.path",
    "below": "includeIf.gitdir:{top}/.path",
    "elsewhere": "includeIf.gitdir:/nowhere/.path",
    "branch": "includeIf.onbranch:main.path",
}


@pytest.mark.parametrize(
    "settings",
    [
        [("global", "http.extraheader", "X: 1"), ("here", "http.{url}/.extraheader", "X: 2")],
        [("global", "http.{url}/.extraheader", "X: 1"), ("here", "http.extraheader", "X: 2")],
        [("global", "http.{url}.extraheader", "X: 1"), ("here", "http.{url}/hub.git.extraheader", "X: 2")],
        [("file", "http.{url}/.extraheader", "X: 1"), ("here", "http.{url}/.extraheader", "X: 2")],
        [("file", "http.{url}/.extraheader", "X: 1"), ("here", "http.{url}/.extraheader", "")],
        [("here", "http.{url}/.extraheader", "X: 1"), ("file", "http.{url}/.extraheader", "X: 2")],
        [("here", "http.{url}x/.extraheader", "X: 1"), ("here", "http.extraheader", "X: 2")],
        [("global below", "http.{url}/.extraheader", "X: 1")],
        [("global here", "http.{url}/.extraheader", "X: 1"), ("global elsewhere", "http.extraheader", "X: 2")],
        [("global branch", "http.{url}/.extraheader", "X: 1"), ("file", "http.{url}/.extraheader", "X: 2")],
        [("local", "http.{url}/.extraheader", "X: 1"), ("worktree", "http.{url}/.extraheader", "X: 2")],
        [("here", "http.{url}/.extraheader", "X: 1"), ("environment", "http.{url}/.extraheader", "X: 2")],
        [("global here", "http.userAgent", "one"), ("file", "http.userAgent", "two")],
        [("global", "http.{url}/.userAgent", "one"), ("here", "http.userAgent", "two")],
        [("global", "credential.helper", SAYS.format(1)), ("here", "credential.{url}.helper", SAYS.format(2))],
        [("here", "credential.helper", SAYS.format(1)), ("file", "credential.helper", SAYS.format(2))],
        [("file", "credential.helper", SAYS.format(1)), ("here", "credential.helper", "")],
        [("here", "url.{url}/other.git.insteadOf", "{url}/hub.git"), ("here", "core.askPass", "/bin/false")],
    ],
    ids=str,
)
def test_git_outside_the_repository_gives_the_same_configuration(
    settings: list[tuple[str, str, str]], host: Host, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Settings in any file apply under a condition that both, one or none of the clones meets."""
    repo = make_repo(tmp_path / "code")
    repo.git("remote", "add", "origin", f"{host.server.url}/hub.git")
    repo.git("config", "extensions.worktreeConfig", "true")
    places = plumbing.locate_work_tree(repo.top)
    for number, (where, *setting) in enumerate(settings):
        key, value = (text.replace("{url}", host.server.url) for text in setting)
        scope, _, condition = where.rpartition(" ")
        if condition in ("global", "worktree"):
            repo.git("config", f"--{condition}", "--add", key, value)
        elif condition == "environment":
            for name, text in (("COUNT", "1"), ("KEY_0", key), ("VALUE_0", value)):
                monkeypatch.setenv(f"GIT_CONFIG_{name}", text)
        elif condition == "file":
            repo.git("config", "--local", "--add", key, value)
        else:
            file = tmp_path / f"included-{number}"
            repo.git("config", "--file", str(file), key, value)
            include = CONDITIONS[condition].format(git_dir=places.git_dir, top=places.top)
            repo.git("config", f"--{scope or 'local'}", "--add", include, str(file))
    beside = sidecar_repo.provide_repository(places, places.remote_objects)
    assert said(beside) == said(places)


def said(places: Places) -> list[str]:
    """Return git's requests and prompts during authentication."""
    extra = credentials.build_environment(places, credentials.read_credentials(places), may_ask=False)
    trace = {"GIT_TRACE_CURL": "1", "GIT_TRACE_CURL_NO_DATA": "1", "GIT_TRACE_REDACT": "0", "GIT_ASKPASS": ""}
    error_text = run_git(places, "ls-remote", "origin", extra=extra | trace).error_text
    lines = re.findall(r"(?m)Send header: ((?:X|User-Agent|GET)\b.*)$|^(\d)$", error_text)
    assert lines, error_text
    return ["".join(line) for line in lines]
