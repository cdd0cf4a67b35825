"""The input `token` of the Action: where it is used, where it is not, and what it must not do."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import travel
from tests.support.checkout import TOKEN, Checkout, basic
from tests.support.repos import Repo, make_repo
from tests.support.templates import copy_tree
from tests.support.travel import Clone, GitServer, git_server
from vmrag_action import git_access
from vmrag_link import env
from vmrag_link.errors import GitFailed
from vmrag_link.git import plumbing

home, _pair = travel.home, travel._pair

SERVER = "https://github.example"
HEADER = f"AUTHORIZATION: basic {basic(TOKEN)}"


@pytest.fixture(scope="module")
def host(_pair: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GitServer]:
    folder = tmp_path_factory.mktemp("host")
    copy_tree(_pair / "hub.git", folder / "hub.git")
    with git_server(folder, user="x-access-token", password=TOKEN) as server:
        yield server


@pytest.mark.parametrize("version", ["v4", "v7"])
@pytest.mark.parametrize("persist", [True, False])
@pytest.mark.usefixtures("home")
def test_token_is_used_if_the_checkout_kept_none(
    version: str, persist: bool, host: GitServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a container, whose user does not own the workspace (git's own switch for its tests)."""
    checkout = Checkout(tmp_path / "work", tmp_path / "temp", host.url, TOKEN, version, persist_credentials=persist)
    repo = checkout.run("hub.git")
    monkeypatch.setenv("GITHUB_SERVER_URL", host.url)
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    with pytest.raises(GitFailed, match="dubious ownership"):
        plumbing.locate_work_tree(repo.top)
    inside = repo.top / "docs"
    inside.mkdir()
    os.environ.update(git_access.allow_directory(inside))
    places = plumbing.locate_work_tree(repo.top)
    added = git_access.build_git_environment(places, f" {TOKEN}\n")
    assert bool(added) is not persist
    os.environ.update(added)
    host.seen.clear()
    clone = Clone(repo.top)
    assert clone.clone_knowledge()
    assert set(filter(None, host.seen)) == {f"basic {basic(TOKEN)}"}, "one header a request"
    assert TOKEN.encode() not in clone.below()
    assert basic(TOKEN).encode() not in clone.below()
    with pytest.raises(GitFailed):
        plumbing.locate_work_tree(make_repo(tmp_path / "another").top)


@pytest.fixture(autouse=True)
def _variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove variables that a test adds to the environment."""
    for number in range(4):
        for name in ("COUNT", f"KEY_{number}", f"VALUE_{number}"):
            monkeypatch.setenv(f"GIT_CONFIG_{name}", "")
            monkeypatch.delenv(f"GIT_CONFIG_{name}")


@pytest.mark.parametrize(
    ("settings", "used"),
    [
        ({}, True),
        ({"remote.origin.url": f"{SERVER}/o/r"}, True),
        ({"remote.origin.url": "git@github.example:o/r"}, True),
        ({"remote.origin.url": "https://[nowhere"}, True),
        ({"remote.origin.url": f"https://ada:key@{SERVER.removeprefix('https://')}/o/r"}, False),
        ({"remote.origin.url": "https://ada:key@other.example/o/r"}, True),
        ({f"http.{SERVER}/.extraheader": "Authorization: bearer x"}, False),
        ({f"http.{SERVER}/o/.extraheader": "authorization: bearer x"}, False),
        ({"http.extraheader": "AUTHORIZATION: bearer x"}, False),
        ({f"http.{SERVER}/.extraheader": "X-Trace: 1"}, True),
        ({f"http.{SERVER}.evil.example/.extraheader": "Authorization: bearer x"}, True),
        ({"credential.helper": "!f() { echo username=ada; echo password=key; }; f"}, False),
        ({"credential.helper": "!f() { exit 1; }; f"}, True),
        ({f"credential.{SERVER}.helper": "!f() { echo username=ada; echo password=key; }; f"}, False),
        ({"credential.https://other.example.helper": "!f() { echo username=ada; echo password=key; }; f"}, True),
    ],
    ids=str,
)
def test_token_is_used_only_without_git_credentials(
    settings: dict[str, str], used: bool, home: Path, tmp_path: Path
) -> None:
    repo = make_repo(tmp_path / "repo")
    for key, value in settings.items():
        repo.git("config", key, value)
    added = git_access.build_git_environment(plumbing.locate_work_tree(repo.top), TOKEN, {"GITHUB_SERVER_URL": SERVER})
    assert added == (env.git_settings(above=[(f"http.{SERVER}/.extraheader", HEADER)], environ={}) if used else {})


@pytest.mark.parametrize(
    "server",
    [
        "",
        "github.example",
        "http://github.example",
        "file:///etc",
        f"{SERVER}/o",
        "https://ada@github.example",
        "https://[github.example",
        "https://",
    ],
)
def test_token_is_not_passed_elsewhere(server: str, home: Path, tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "repo")
    assert (
        git_access.build_git_environment(plumbing.locate_work_tree(repo.top), TOKEN, {"GITHUB_SERVER_URL": server})
        == {}
    )


def test_empty_token_is_ignored(home: Path, tmp_path: Path) -> None:
    repo = Repo(make_repo(tmp_path / "repo").top)
    assert (
        git_access.build_git_environment(plumbing.locate_work_tree(repo.top), " \n", {"GITHUB_SERVER_URL": SERVER})
        == {}
    )
    assert git_access.list_secret_forms("\n") == ()
    assert git_access.list_secret_forms(TOKEN) == (TOKEN, basic(TOKEN))


def test_git_settings_keep_inherited_variables() -> None:
    inherited = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "a.b", "GIT_CONFIG_VALUE_0": "x"}
    assert env.git_settings(below=[("c.d", "y")], above=[("e.f", "z")], environ=inherited) == {
        "GIT_CONFIG_COUNT": "3",
        "GIT_CONFIG_KEY_0": "c.d",
        "GIT_CONFIG_VALUE_0": "y",
        "GIT_CONFIG_KEY_1": "a.b",
        "GIT_CONFIG_VALUE_1": "x",
        "GIT_CONFIG_KEY_2": "e.f",
        "GIT_CONFIG_VALUE_2": "z",
    }
    assert env.git_settings(environ=inherited) == {}
