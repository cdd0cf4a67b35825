"""The Action over a private repository: it gets in with what the checkout left, or with its input
`token`, and leaves neither anywhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import dropping, events, people
from tests.support.actions_runner import ACTION, CacheService, Finished, Runner, restore_packages, setup_python
from tests.support.checkout import TOKEN, Checkout, basic
from tests.support.events import ZEROS, Job
from tests.support.people import World
from tests.support.repos import isolate
from tests.support.travel import GitServer, git_server

shared, world, parted = people.shared, people.world, dropping.parted


@pytest.fixture
def host(world: World) -> Iterator[GitServer]:
    with git_server(world.top, user="x-access-token", password=TOKEN) as server:
        yield server


def run(
    world: World,
    host: GitServer,
    machine: Path,
    *,
    token: str,
    persist: bool,
    mode: str = "sync,verify",
    before: str = ZEROS,
) -> Finished:
    """A job in a container, whose user does not own the workspace (git's switch for its tests)."""
    checkout = Checkout(machine / "work", machine / "temp", host.url, TOKEN, persist_credentials=persist)
    (machine / "temp").mkdir(parents=True)
    checkout.run("code.git")
    host.seen.clear()
    restore_packages(machine / "temp", {"mode": mode})
    tip = world.hub.git("rev-parse", "main")
    server = {"GITHUB_SERVER_URL": host.url, "GIT_TEST_ASSUME_DIFFERENT_OWNER": "1"}
    environ = Job(machine, "push", events.push(before, tip), sha=tip, ref="refs/heads/main", **server).environ
    cache = CacheService(machine / "cache")
    others = cache.actions | {"actions/setup-python": setup_python}
    finished = Runner(machine / "temp", checkout.workspace, environ, others, token=token, forks=True).run(
        ACTION, mode=mode
    )
    print(finished.log)
    shown = "\n".join(line for line in finished.log.splitlines() if not line.startswith("::add-mask::"))
    for secret in (TOKEN, basic(TOKEN)):
        assert not token or secret in finished.masks
        assert secret not in shown + finished.summary + str(finished.outputs) + str(finished.variables)
        for folder in (checkout.workspace / ".git" / "vmrag", cache.root):
            for path in folder.rglob("*"):
                assert not (path.is_file() and secret.encode() in path.read_bytes()), path
    return finished


@pytest.mark.parametrize("persist", [True, False])
def test_private_repository_is_read_with_one_header(
    persist: bool, world: World, host: GitServer, tmp_path: Path
) -> None:
    finished = run(world, host, tmp_path / "machine", token=TOKEN, persist=persist)
    assert finished.passed
    assert (finished.outputs["in-sync"], finished.outputs["revision"]) == ("true", world.ada.pinned)
    assert set(filter(None, host.seen)) == {f"basic {basic(TOKEN)}"}


@pytest.mark.parametrize("persist", [True, False])
@pytest.mark.hooks("off")
def test_repair_is_pushed_with_the_same_header(persist: bool, parted: Path, tmp_path: Path, monkeypatch) -> None:
    isolate(monkeypatch, tmp_path / "home")
    world = people.copy_world(parted, tmp_path / "world")
    landed = dropping.squash(world.ada)
    with git_server(world.top, user="x-access-token", password=TOKEN) as server:
        machine = tmp_path / "machine"
        finished = run(world, server, machine, token=TOKEN, persist=persist, mode="repair", before=landed.before)
        assert finished.outputs["repaired"] == "true"
        assert world.hub.git("rev-parse", "main^") == landed.after
        assert set(filter(None, server.seen)) == {f"basic {basic(TOKEN)}"}


def test_missing_credential_is_reported(world: World, host: GitServer, tmp_path: Path) -> None:
    finished = run(world, host, tmp_path / "machine", token="", persist=False)
    assert not finished.passed
    errors = [annotation for annotation in finished.annotations if annotation.level == "error"]
    assert {(error.title, error.file) for error in errors} == {("The job's environment: AUTHENTICATION_FAILED", "")}
    assert all("denied access" in error.message and "persist-credentials" in error.message for error in errors)
