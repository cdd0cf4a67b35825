"""Hosts that may be contacted without a question: the decision table, and how a remote's text is
parsed.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.repos import Repo, isolate, make_repo
from vmrag_link import hints
from vmrag_link.errors import RemoteNotTrusted
from vmrag_link.git import plumbing
from vmrag_link.pin_values import find_remote_flaw
from vmrag_link.transport import address

URL = "git+https://kb.example/team/kb.git"


@pytest.fixture
def repo(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Repo:
    isolate(monkeypatch, tmp_path / "home")
    return make_repo(tmp_path / "repo")


def refusal(repo: Repo, remote: str, *, accepted: str | None = None) -> RemoteNotTrusted | None:
    try:
        address.require_trusted(plumbing.locate_work_tree(repo.top), remote, accepted=lambda: accepted)
    except RemoteNotTrusted as error:
        return error
    return None


@pytest.mark.parametrize(
    ("remote", "config", "accepted", "trusted"),
    [
        ("git:", {}, None, True),
        ("git:refs/heads/vmrag/data", {}, None, True),
        ("git:refs/heads/main", {}, None, False),
        (URL, {}, None, False),
        (URL, {"vmrag.trustedRemote": URL}, None, True),
        (URL, {"VMRAG.TrustedRemote": URL}, None, True),
        (URL, {"vmrag.trustedRemote": URL + "/"}, None, False),
        (URL, {"vmrag.trustedRemote": URL.upper()}, None, False),
        (URL, {"vmrag.trustedRemote": "git+https://kb.example/"}, None, False),
        (URL, {"vmrag.trustedRemote": URL.removeprefix("git+")}, None, False),
        (URL, {"vmrag.trustedRemotes": URL}, None, False),
        (URL, {"vmrag.remote": URL}, None, False),
        (URL, {"remote.Up.Stream.url": URL.removeprefix("git+")}, None, True),
        (URL, {"remote.up.pushurl": URL.removeprefix("git+")}, None, True),
        (URL, {"remote.up.url": URL}, None, False),
        (URL, {"remote.up.proxy": URL.removeprefix("git+")}, None, False),
        (URL, {"url.https://kb.example/.insteadOf": "kb:", "remote.up.url": "kb:team/kb.git"}, None, False),
        (URL.removeprefix("git+"), {"remote.up.url": URL.removeprefix("git+")}, None, False),
        (URL, {}, URL, True),
        (URL, {}, "git:", False),
        ("team/kb", {}, "team/kb", True),
        ("http://127.0.0.1:1/kb", {}, "http://127.0.0.1:2/kb", False),
        ("http://127.0.0.1:1/kb", {}, "http://localhost:1/kb", False),
    ],
)
def test_remote_is_contacted_only_if_its_exact_text_is_trusted(repo, remote, config, accepted, trusted):
    for key, value in config.items():
        repo.git("config", "--add", key, value)
    assert (refusal(repo, remote, accepted=accepted) is None) is trusted


@pytest.mark.parametrize(
    ("remote", "roots", "trusted"),
    [
        ("file://{here}/kbs/one", [], False),
        ("file://{here}/kbs/one", ["{here}/other"], False),
        ("file://{here}/kbs/one", ["{here}/other", "{here}/kbs"], True),
        ("git+file://{here}/kbs/one.git", ["{here}/kbs"], True),
        ("file://{here}/kbs", ["{here}/kbs"], True),
        ("file://{here}/kbs-of-others/one", ["{here}/kbs"], False),
        ("file://{here}/KBS/one", ["{here}/kbs"], False),
        ("file://{here}/kbs/../one", ["{here}/kbs"], False),
        ("file://{here}/kbs/%2e%2e/one", ["{here}/kbs"], False),
        ("file://{here}/kbs/%2E./one", ["{here}/kbs"], False),
        ("file://{here}/kbs/deep/..%2fone", ["{here}/kbs"], True),
        ("file://{here}/kbs/%252e%252e/%252e%252e/one", ["{here}/kbs"], True),
        ("git+file://{here}/kbs/a?/../../one", ["{here}/kbs"], False),
        ("git+file://{here}/kbs/a#/../../one", ["{here}/kbs"], False),
        ("file://{here}/kbs/out/one", ["{here}/kbs"], False),
        ("file://{here}/way-in/one", ["{here}/kbs"], True),
        ("file://{here}/kbs/one", ["{here}/way-in"], True),
        ("file://{here}/kbs/ring/one", ["{here}/other"], False),
        ("file:////{here}/kbs/one", ["{here}/kbs"], True),
        ("file://{here}/kbs/one", [""], False),
        ("file://{here}/kbs/one", ["."], False),
        ("file://{here}/kbs/one", ["../kbs"], False),
        ("file://{here}/home/kbs/one", ["~/kbs"], True),
        ("http://kb.example/kb", [], True),
    ],
)
def test_accepted_folder_counts_below_an_allowed_root_only(repo, monkeypatch, remote, roots, trusted):
    parent = repo.top.parent
    (parent / "kbs" / "deep").mkdir(parents=True)
    (parent / "kbs" / "out").symlink_to("/")
    (parent / "kbs" / "ring").symlink_to("ring")
    (parent / "way-in").symlink_to("kbs")
    monkeypatch.chdir(parent)
    remote = remote.format(here=parent)
    for root in roots:
        repo.git("config", "--add", "vmrag.fileRoot", root.format(here=parent))
    error = refusal(repo, remote, accepted=remote)
    assert (error is None) is trusted
    if error:
        assert "outside of the allowed folders" in error.message


def test_agreeing_to_one_folder_needs_no_root(repo, tmp_path):
    repo.git("config", "vmrag.trustedRemote", f"file://{tmp_path}/kb")
    assert refusal(repo, f"file://{tmp_path}/kb") is None
    assert refusal(repo, f"file://{tmp_path}/kb2") is not None


def test_hint_trusts_the_exact_text_and_survives_a_shell(repo):
    remote = "git+https://kb.example/a b';touch x;'/$(id)`id`"
    error = refusal(repo, remote)
    assert error is not None
    assert (error.code, error.exit_code) == ("REMOTE_NOT_TRUSTED", 1)
    [command] = hints.list_commands(error.hint)
    arguments = subprocess.run(
        ["sh", "-c", f"printf '%s|' {command}"], capture_output=True, text=True, check=True
    ).stdout
    assert arguments.split("|")[:-1] == ["vmrag", "remote", "--trust", remote]
    assert error.hint.endswith("if you know its owner")


def test_maintainers_list_is_read_only_if_it_matters(repo):
    repo.git("config", "vmrag.trustedRemote", URL)
    places = plumbing.locate_work_tree(repo.top)

    def never() -> str:
        raise AssertionError("nobody needs to know")

    for remote in ("git:", URL):
        address.require_trusted(places, remote, accepted=never)


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("file:///srv/kb", "/srv/kb"),
        ("git+file:///srv/kb.git", "/srv/kb.git"),
        ("file:///srv/C%23/k%20b", "/srv/C#/k b"),
        ("file:///srv/a?b#c", "/srv/a?b#c"),
        ("file:///srv/%C3%BC", "/srv/ü"),
        ("file:///srv/%252e%252e", "/srv/%2e%2e"),
        ("https://kb.example/kb", None),
        ("git+ssh://git@kb.example/kb", None),
        ("git:", None),
        ("team/kb", None),
    ],
)
def test_local_folder_returns_the_path_that_git_opens(text, path):
    assert address.local_folder(text) == (Path(path) if path else None)
    if path and text.startswith("file"):
        assert address.parse_url(text).url == f"file://{path}"


@pytest.mark.parametrize(
    ("text", "schemes"),
    [
        ("git+file:///srv/kb", ("file",)),
        ("git+https://kb.example/kb", ("https", "ssh")),
        ("git+ssh://kb.example/kb", ("https", "ssh")),
        ("git+http://kb.example/kb", ("http", "https", "ssh")),
    ],
)
def test_named_git_scheme_allows_no_less_secure_transport(text, schemes):
    peer = address.parse_url(text).peer
    assert peer is not None
    assert (peer.remote, peer.schemes, peer.may_ask) == (text.removeprefix("git+"), schemes, False)


@pytest.mark.parametrize(
    ("remote", "part"),
    [
        ("git+ssh://%2doProxyCommand=x/y", "other characters"),
        ("git+ssh://[-oProxyCommand=x]/y", "other characters"),
        ("git+ssh://[%2doProxyCommand=x]/y", "other characters"),
        ("git+ssh://host;id/y", "other characters"),
        ("git+ssh://$(id)/y", "other characters"),
        ("git+ssh://`id`@host/y", "other characters"),
        ("git+ssh://git%40github.com@host/y", "other characters"),
        ("git+ssh://a@b@host/y", "other characters"),
        ("git+https://g\u0456thub.com/x", "other characters"),
        ("git+https://github.com\u2044x/y", "other characters"),
        ("git+https://github.com%2fx/y", "other characters"),
        ("file://host/srv/kb", "file:///PATH"),
        ("file://localhost/srv/kb", "file:///PATH"),
        ("git+file://me@/srv/kb", "git+file:///PATH"),
        ("git+https://host/%0ahost=github.com", "percent-encoded"),
        ("git+https://host/%0D%0A", "percent-encoded"),
        ("file:///srv/a%00b", "percent-encoded"),
        ("file:///srv/a%1b[31m", "percent-encoded"),
        ("file:///srv/a%e2%80%ae", "percent-encoded"),
        ("file:///srv/a%ff", "percent-encoded"),
    ],
)
def test_ambiguous_remotes_are_rejected_with_the_reason(remote, part):
    flaw = find_remote_flaw(remote)
    assert flaw is not None
    assert part in flaw
    assert flaw.isprintable()


def test_remote_in_another_case_or_form_has_its_own_key():
    forms = ["file:///srv/kb", "file:///srv/KB", "file:///srv/kb/", "git+file:///srv/kb", "http://h/kb", "https://h/kb"]
    keys = [address.parse_url(form).key for form in forms]
    assert len(set(keys)) == len(forms)
    assert all(key.startswith(("url-", "git-")) and os.sep not in key for key in keys)


def test_git_remote_that_gets_another_url_is_another_place(repo):
    places = plumbing.locate_work_tree(repo.top)
    repo.git("remote", "add", "somewhere", "https://user:secret@example.org/r.git")
    before = address.remote_address(places, "somewhere").key
    assert before == address.parse_url("git+https://example.org/r.git").key, "whoever asks, and by whatever name"
    assert address.remote_address(places, "somewhere", ref="refs/heads/vmrag/data").key != before
    repo.git("remote", "set-url", "somewhere", "https://example.org/other.git")
    assert address.remote_address(places, "somewhere").key != before
