"""A knowledge base goes wherever git goes, by git's own transports, with the user's credentials and
whatever the user has configured.
"""

from __future__ import annotations

import base64
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support import travel
from tests.support.engines import head
from tests.support.pace import slack
from tests.support.repos import Repo
from tests.support.terminal import Project
from tests.support.travel import (
    DATA_REF,
    ROOT,
    Clone,
    Pair,
    bare,
    free_port,
    git_clone,
    git_server,
    silent_server,
    ssh_server,
)
from vmrag_link import proc
from vmrag_link.errors import (
    AuthenticationFailed,
    RemoteInvalid,
    RemoteMissing,
    RemoteRejected,
    RemoteUnreachable,
    VmragError,
)
from vmrag_link.git import remotes, transfer

home, pair, _pair = travel.home, travel.pair, travel._pair

SECRET = "s3cret-phrase"
BASIC = base64.b64encode(f"ada:{SECRET}".encode()).decode()
ANSWERS = f"!f() {{ echo username=ada; echo password={SECRET}; }}; f"


def configure(repo: Repo, *settings: tuple[str, str]) -> None:
    for key, value in settings:
        repo.git("config", "--add", key, value)


def travels(pair: Pair, url: str, *, clone: tuple[str, ...] = ()) -> Clone:
    """Ada pushes and fetches through the URL, a fresh clone of it (returned) gets all and pushes,
    too.
    """
    pair.ada.repo.git("remote", "set-url", "origin", url)
    pair.ada.record("next")
    pair.ada.push()
    fresh = git_clone(url, pair.folder / "fresh", *clone)
    assert fresh.clone_knowledge()
    assert fresh.heads() == {"main": head(pair.ada.engine, "main")}
    fresh.record("fresh", branch="fresh")
    fresh.push("origin", "fresh")
    for module in (pair.ada, fresh):  # who pushes through another URL than is fetched from sees it when that is fetched
        assert module.fetch()
        assert module.heads() == {"main": head(pair.ada.engine, "main"), "fresh": head(fresh.engine, "fresh")}
    fresh.close()
    return fresh


# -- transports ------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["{}", "file://{}"])
def test_folder_of_this_machine(form: str, pair: Pair) -> None:
    travels(pair, form.format(pair.hub.top))


def test_folder_with_a_name_that_has_a_meaning_elsewhere(pair: Pair) -> None:
    odd = pair.folder / "a b#c?d%20é"
    odd.mkdir()
    hub = pair.hub.top.rename(odd / "hub.git")
    pair.ada.close()
    shutil.move(pair.folder / "ada", odd / "ada")
    travels(Pair(odd, Clone(odd / "ada"), pair.bob, Repo(hub)), str(hub))


def test_http_that_lets_everybody_in(pair: Pair) -> None:
    with git_server(pair.folder) as server:
        travels(pair, f"{server.url}/hub.git")
        assert server.seen


@pytest.fixture
def guarded(pair: Pair) -> Iterator[travel.GitServer]:
    with git_server(pair.folder, user="ada", password=SECRET) as server:
        yield server


def assert_secret(*texts: object) -> None:
    for text in texts:
        data = text if isinstance(text, bytes) else str(text).encode()
        for secret in (SECRET, BASIC):
            assert secret.encode() not in data


@pytest.mark.parametrize("way", ["helper", "header", "url"])
@pytest.mark.sample(1)
def test_http_server_that_requires_credentials_is_used(
    way: str, pair: Pair, guarded: travel.GitServer, home: Path
) -> None:
    machine = Repo(home)
    url = f"{guarded.url}/hub.git"
    if way == "helper":
        machine.git("config", "--global", "credential.helper", ANSWERS)
    elif way == "header":  # as actions/checkout does
        machine.git("config", "--global", f"http.{guarded.url}/.extraheader", f"AUTHORIZATION: basic {BASIC}")
    else:
        url = url.replace("://", f"://ada:{SECRET}@")
    fresh = travels(pair, url)
    assert any(BASIC in request for request in guarded.seen)
    shown = [Project(fresh.repo.top).vmrag("remote", *options, code=None) for options in ((), ("--json",))]
    assert_secret(pair.ada.below(), fresh.below(), *shown)
    assert "hub.git" in shown[0].out


def test_git_options_of_a_push_apply_in_its_hook(pair: Pair, guarded: travel.GitServer) -> None:
    """`git -c http.extraheader=… push`, and the hook pushes knowledge."""
    pair.ada.repo.git("remote", "set-url", "origin", f"{guarded.url}/hub.git")
    revision = pair.ada.record("next")
    pair.ada.close()
    program = pair.folder / "push.py"
    program.write_text("from tests.support.travel import *\nClone(Path.cwd()).push()\n")
    hook = pair.ada.repo.write(".git/hooks/pre-push", f"#!/bin/sh\nexec {sys.executable} {program}\n")
    hook.chmod(0o755)
    pair.ada.repo.commit("code")
    given = f"http.{guarded.url}/.extraheader=AUTHORIZATION: basic {BASIC}"
    result = pair.ada.repo.run("-c", given, "push", "origin", "main", env={"PYTHONPATH": str(ROOT)})
    assert result.returncode == 0, result.stderr
    assert_secret(pair.ada.below(), result.stdout, result.stderr)
    assert pair.bob.fetch()
    assert pair.bob.heads() == {"main": revision}


@pytest.mark.parametrize("way", ["helper", "url", "nothing"])
@pytest.mark.sample(1)
def test_wrong_credentials_are_reported_without_revealing_them(way: str, pair: Pair, home: Path) -> None:
    with git_server(pair.folder, user="ada", password="another") as server:
        url = f"{server.url}/hub.git"
        if way == "helper":
            Repo(home).git("config", "--global", "credential.helper", ANSWERS)
        elif way == "url":
            url = url.replace("://", f"://ada:{SECRET}@")
        pair.ada.repo.git("remote", "set-url", "origin", url)
        pair.ada.record("next")
        fresh = Clone(pair.folder / "fresh", create=True)
        shutil.rmtree(fresh.places.kb)
        fresh.repo.git("remote", "add", "origin", url)
        for action in (pair.ada.push, fresh.clone_knowledge):
            with pytest.raises(AuthenticationFailed) as caught:
                action()
            assert_secret(caught.value.message, caught.value.hint, caught.value.details)
        pair.ada.close()
        project = Project(pair.ada.repo.top)
        for command in (("fetch", "origin"), ("push", url, "--json"), ("remote",)):
            result = project.vmrag(*command, code=None)
            assert_secret(result.out, result.err)
        assert_secret(pair.ada.below(), fresh.below())


@pytest.mark.parametrize(
    "url",
    [
        f"https://ada:{SECRET}@host/repo",
        f"https://ada:p@ss:{SECRET}@host/repo",
        f"https://ada:p/{SECRET}@host/repo",
        f"https://{SECRET}@host:8443/repo",
        f"fatal: unable to access 'https://ada:{SECRET}@host/repo/': nothing",
    ],
)
def test_redacted_url_hides_user_information(url: str) -> None:
    from vmrag_link.git.remotes import redact_url

    assert SECRET not in redact_url(url)
    assert "host" in redact_url(url)
    assert "/repo" in redact_url(url)


@pytest.mark.parametrize(
    "url",
    ["https://host:8443/@scope/repo", "git@host:group/repo", "/a/b@c/d", "https://host/a:b", "http://[::1]:80/@a"],
)
def test_unrelated_urls_are_shown_unchanged(url: str) -> None:
    from vmrag_link.git.remotes import redact_url

    assert redact_url(url) == url


def test_ssh(pair: Pair, home: Path) -> None:
    with ssh_server(pair.folder / "sshd") as server:
        Repo(home).git("config", "--global", "core.sshCommand", server.command)
        travels(pair, f"{server.url}{pair.hub.top}")
        shutil.copy(pair.folder / "sshd" / "host", pair.folder / "sshd" / "user")  # a key that is not known there
        with pytest.raises(AuthenticationFailed):
            pair.ada.fetch()
        pair.ada.repo.git("remote", "set-url", "origin", f"{server.url}/nowhere.git")


def test_ssh_runs_in_batch_mode_with_a_timeout(pair: Pair, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a program of that name that writes down how it is called."""
    recorder = pair.folder / "bin" / "ssh"
    recorder.parent.mkdir()
    recorder.write_text(f'#!/bin/sh\necho "$@" >> {pair.folder}/asked\nexit 255\n')
    recorder.chmod(0o755)
    other = recorder.with_name("plink")
    shutil.copy(recorder, other)
    pair.ada.repo.git("remote", "set-url", "origin", "git@nowhere.invalid:hub.git")

    def asked() -> str:
        with pytest.raises(RemoteUnreachable):
            pair.ada.fetch()
        said = (pair.folder / "asked").read_text()
        (pair.folder / "asked").unlink()
        return said

    monkeypatch.setenv("PATH", f"{recorder.parent}:{os.environ['PATH']}")
    assert "BatchMode=yes" in asked()
    pair.ada.repo.git("config", "core.sshCommand", f"{recorder} -i key")
    assert "-i key -o ConnectTimeout=" in asked()
    monkeypatch.setenv("GIT_SSH_COMMAND", f"{recorder} -i other")
    assert "-i other -o ConnectTimeout=" in asked()
    monkeypatch.setenv("GIT_SSH_COMMAND", str(other))
    assert "ConnectTimeout" not in asked()
    monkeypatch.delenv("GIT_SSH_COMMAND")
    pair.ada.repo.git("config", "--unset", "core.sshCommand")
    monkeypatch.setenv("GIT_SSH", str(other))
    assert "ConnectTimeout" not in asked()


# -- unreachable hosts -----------------------------------------------------------------------------


def refused(pair: Pair, url: str, error: type[VmragError]) -> None:
    """By push, fetch and clone alike; nothing has changed, and the right place works."""
    before, heads, sound = pair.ada.state(), pair.ada.heads(), pair.ada.repo.git("remote", "get-url", "origin")
    pair.ada.repo.git("remote", "set-url", "origin", url)
    for action in (pair.ada.fetch, pair.ada.push):
        with pytest.raises(error) as caught:
            action()
        assert caught.value.hint
    pair.ada.repo.git("remote", "set-url", "origin", sound)
    assert (pair.ada.state(), pair.ada.heads()) == (before, heads)


def test_missing_host_is_reported(pair: Pair) -> None:
    port = free_port()
    for url in (f"http://127.0.0.1:{port}/r", f"ssh://a@127.0.0.1:{port}/r", f"git://127.0.0.1:{port}/r"):
        refused(pair, url, RemoteUnreachable)
    refused(pair, "http://nowhere.invalid/r", RemoteUnreachable)


def test_paths_other_than_repositories_raise_remote_missing(pair: Pair) -> None:
    (pair.folder / "folder").mkdir()
    (pair.folder / "file").write_text("text")
    for name in ("nowhere", "folder", "file"):
        refused(pair, str(pair.folder / name), RemoteMissing)
    with git_server(pair.folder) as server:
        refused(pair, f"{server.url}/nowhere.git", RemoteMissing)


@pytest.mark.parametrize("scheme", ["http", "ssh"])
def test_host_that_never_answers_is_given_up(scheme: str, pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_HTTP_LOW_SPEED_TIME", "1")  # overrides vmrag's value
    monkeypatch.setenv("GIT_SSH_COMMAND", "ssh -F /dev/null -o ConnectTimeout=1")
    with silent_server() as port:
        pair.ada.repo.git("remote", "set-url", "origin", f"{scheme}://a@127.0.0.1:{port}/r")
        since = time.monotonic()
        with pytest.raises(RemoteUnreachable):
            pair.ada.fetch()
        assert time.monotonic() - since < 10 * slack()


@pytest.mark.parametrize("action", ["fetch", "push"])
def test_silent_host_of_git_protocol_is_abandoned_after_timeout(
    action: str, pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "_MAX_SECONDS", 1)
    monkeypatch.setattr(transfer, "_MAX_LISTING_SECONDS", 1)
    pair.ada.record("next")
    with silent_server() as port:
        pair.ada.repo.git("remote", "set-url", "origin", f"git://127.0.0.1:{port}/r")
        since = time.monotonic()
        with pytest.raises(RemoteUnreachable):
            getattr(pair.ada, action)()
        assert time.monotonic() - since < 10 * slack()


def test_program_that_is_given_up_ends_with_all_that_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proc, "_GRACE_SECONDS", 0.2)
    command = f"trap '' TERM; (sleep 1.5; touch {tmp_path}/still-there) & wait"
    with pytest.raises(TimeoutError):
        proc.run(["sh", "-c", command], timeout=0.3)
    time.sleep(1.6)
    assert not (tmp_path / "still-there").exists()


def test_transport_that_runs_a_program_is_refused(pair: Pair) -> None:
    pair.ada.repo.git("remote", "set-url", "origin", f"ext::touch {pair.folder}/ran")
    with pytest.raises(RemoteInvalid):
        pair.ada.fetch()
    assert not (pair.folder / "ran").exists()


# -- a host with rules -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["pre-receive", "update"])
def test_rejection_of_the_ref_quotes_the_host(name: str, pair: Pair) -> None:
    hook = pair.hub.write(
        f"hooks/{name}",
        "#!/bin/sh\nprintf 'only \\033[31mheads\\033[0m are protected, failed to lock\\n' >&2\nexit 1\n",
    )
    hook.chmod(0o755)
    heads = pair.ada.heads()
    pair.ada.record("next")
    since = time.monotonic()
    with pytest.raises(RemoteRejected, match=r"only .*heads.* are protected") as caught:
        pair.ada.push()
    assert time.monotonic() - since < 5 * slack()
    assert caught.value.message.isprintable()
    assert pair.ada.heads() == heads
    hook.unlink()
    pair.ada.push()
    assert pair.bob.fetch()
    assert pair.bob.heads() == pair.ada.heads()


def held(hub: Repo) -> Callable[[], None]:
    lock = hub.write("refs/vmrag/data.lock", "")
    return lock.unlink


def in_the_way(hub: Repo) -> Callable[[], None]:
    hub.git("update-ref", "-d", DATA_REF)
    hub.git("update-ref", "refs/vmrag", "refs/heads/main")
    return lambda: hub.git("update-ref", "-d", "refs/vmrag")


@pytest.mark.parametrize("obstacle", [held, in_the_way])
def test_ref_obstacle_raises_remote_rejected_at_once(
    obstacle: Callable[[Repo], Callable[[], None]], pair: Pair
) -> None:
    pair.ada.record("next")
    remove = obstacle(pair.hub)
    since = time.monotonic()
    with pytest.raises(RemoteRejected, match="cannot lock ref") as caught:
        pair.ada.push()
    assert time.monotonic() - since < 8 * slack()
    assert "what blocks" in caught.value.hint
    remove()
    pair.ada.push()
    assert pair.bob.fetch()
    assert pair.bob.heads() == pair.ada.heads()


def test_host_that_hides_the_ref(pair: Pair) -> None:
    configure(pair.hub, ("transfer.hideRefs", "refs/vmrag"))
    assert not pair.bob.fetch()
    with pytest.raises(RemoteRejected, match="hidden ref"):
        pair.bob.push("origin", "bob")
    assert not git_clone(pair.hub.top, pair.folder / "fresh").clone_knowledge()


def test_host_that_takes_no_changes_of_history(pair: Pair) -> None:
    configure(
        pair.hub,
        ("receive.denyNonFastForwards", "true"),
        ("receive.denyDeletes", "true"),
        ("receive.fsckObjects", "true"),
        ("receive.unpackLimit", "1"),
        ("receive.certNonceSeed", "seed"),
        ("receive.advertisePushOptions", "true"),
        ("uploadpack.allowFilter", "true"),
        ("core.logAllRefUpdates", "always"),
    )
    travels(pair, str(pair.hub.top))


# -- what users configure --------------------------------------------------------------------------

CONFIGURED = {
    "pushing": [
        ("push.followTags", "true"),
        ("push.gpgSign", "true"),
        ("push.pushOption", "ci.skip"),
        ("push.default", "nothing"),
        ("push.useForceIfIncludes", "true"),
        ("push.negotiate", "true"),
        ("push.recurseSubmodules", "only"),
        ("submodule.recurse", "true"),
        ("remote.origin.push", "refs/heads/*:refs/heads/backup/*"),
        ("remote.pushDefault", "nowhere"),
        ("commit.gpgSign", "true"),
    ],
    "fetching": [
        ("fetch.prune", "true"),
        ("fetch.pruneTags", "true"),
        ("remote.origin.tagOpt", "--tags"),
        ("fetch.fsckObjects", "true"),
        ("fetch.output", "compact"),
        ("fetch.writeCommitGraph", "true"),
        ("fetch.unpackLimit", "1"),
        ("fetch.recurseSubmodules", "true"),
        ("fetch.negotiationAlgorithm", "skipping"),
        ("remote.origin.prune", "true"),
    ],
    "everything": [
        ("color.ui", "always"),
        ("color.remote", "always"),
        ("color.push", "always"),
        ("color.transport", "always"),
        ("core.autocrlf", "true"),
        ("core.compression", "0"),
        ("core.bigFileThreshold", "1k"),
        ("core.logAllRefUpdates", "always"),
        ("core.quotePath", "false"),
        ("gc.auto", "1"),
        ("maintenance.auto", "true"),
        ("i18n.commitEncoding", "ISO-8859-1"),
        ("user.useConfigOnly", "true"),
        ("protocol.version", "0"),
        ("transfer.fsckObjects", "true"),
        ("status.showUntrackedFiles", "no"),
    ],
    "a mirror": [
        ("remote.origin.mirror", "yes"),
        ("remote.origin.fetch", "+refs/*:refs/*"),
        ("fetch.prune", "true"),
    ],
}


@pytest.mark.parametrize("name", CONFIGURED)
@pytest.mark.sample(1)
def test_git_configuration_for_code_does_not_affect_knowledge(name: str, pair: Pair) -> None:
    configure(pair.ada.repo, *CONFIGURED[name])
    pair.ada.repo.git("-c", "tag.gpgSign=false", "tag", "-a", "-m", "x", "v1")
    refs = pair.hub.git("for-each-ref", "--format=%(refname)")
    travels(pair, str(pair.hub.top))
    assert pair.hub.git("for-each-ref", "--format=%(refname)") == refs


def test_coloured_refusals_are_understood(pair: Pair) -> None:
    configure(pair.ada.repo, *CONFIGURED["everything"])
    pair.bob.push("origin", "bob")
    pair.ada.record("next")
    pair.ada.push()  # stale: it must differ from a rejection
    assert pair.ada.heads().keys() == {"main", "bob"}


def test_hooks_of_the_user_that_are_for_code_are_not_run(pair: Pair) -> None:
    hook = pair.ada.repo.write(".git/hooks/pre-push", "#!/bin/sh\nexit 1\n")
    hook.chmod(0o755)
    travels(pair, str(pair.hub.top))


def test_knowledge_is_pushed_to_the_push_url_of_the_code(pair: Pair) -> None:
    """Fetched from the project, pushed to a fork, which knows nothing yet."""
    fork = bare(pair.folder / "fork.git")
    project = pair.tip
    pair.ada.repo.git("remote", "set-url", "--push", "origin", str(fork.top))
    for _ in range(2):
        revision = pair.ada.record("next", str(_))
        pair.ada.push()
    assert pair.tip == project
    assert pair.ada.fetch()
    assert pair.ada.heads() != {"main": revision}
    contributor = git_clone(fork.top, pair.folder / "fresh")
    assert contributor.clone_knowledge()
    assert contributor.heads() == {"main": revision}
    contributor.close()


def test_knowledge_is_pushed_to_both_push_urls(pair: Pair) -> None:
    second = bare(pair.folder / "second.git")
    for url in ("../hub.git", str(second.top)):
        pair.ada.repo.git("remote", "set-url", "--add", "--push", "origin", url)
    for number in range(2):
        pair.ada.record("next", str(number))
        assert len(pair.ada.push()) == 2
    assert pair.bob.fetch()
    assert pair.bob.heads() == {"main": head(pair.ada.engine, "main")}
    other = git_clone(second.top, pair.folder / "fresh")
    assert other.clone_knowledge()
    assert other.heads() == pair.bob.heads()
    other.close()


def test_url_rewrites_are_followed(pair: Pair, home: Path) -> None:
    machine = Repo(home)
    machine.git("config", "--global", f"url.{pair.folder}/.insteadOf", "hub:")
    machine.git("config", "--global", f"url.file://{pair.folder}/.pushInsteadOf", "hub:")
    travels(pair, "hub:hub.git")


@pytest.mark.parametrize("name", ["team/größe", "a.b", "x=y"])
@pytest.mark.sample(1)
def test_remotes_with_unusual_names(name: str, pair: Pair) -> None:
    pair.ada.repo.git("remote", "rename", "origin", name)
    configure(pair.ada.repo, (f"remote.{name}.mirror", "true"))
    pair.ada.record("next")
    pair.ada.push(name)
    pair.bob.push("origin", "bob")
    assert pair.ada.fetch(name)
    assert pair.ada.heads(name).keys() == {"main", "bob"}


# -- repositories ----------------------------------------------------------------------------------


def test_repositories_with_sha256(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_DEFAULT_HASH", "sha256")
    hub = bare(pair.folder / "new.git")
    ada = Clone(pair.folder / "new", create=True)
    ada.repo.git("remote", "add", "origin", str(hub.top))
    ada.repo.git("push", "-q", "origin", "main")
    ada.begin()
    ada.push()
    assert len(hub.git("rev-parse", DATA_REF)) == 64
    travels(Pair(pair.folder, ada, pair.bob, hub), str(hub.top))
    ada.close()
    pair.bob.repo.git("remote", "set-url", "origin", str(hub.top))
    with pytest.raises((RemoteUnreachable, RemoteInvalid)):
        pair.bob.fetch()


@pytest.mark.parametrize("options", [("--depth=1",), ("--filter=blob:none",), ("--filter=tree:0", "--no-checkout")])
@pytest.mark.sample(1)
def test_clones_that_lack_a_part_of_the_code(options: tuple[str, ...], pair: Pair) -> None:
    configure(pair.hub, ("uploadpack.allowFilter", "true"))
    pair.ada.repo.commit("more code", file="text")
    pair.ada.repo.git("push", "-q", "origin", "main")
    fresh = travels(pair, f"file://{pair.hub.top}", clone=options)
    tracking = fresh.tracking
    fresh.repo.git("remote", "set-url", "origin", "/nowhere")  # everything of it is here
    assert fresh.store.git("rev-list", "--objects", "--missing=print", tracking).count("?") == 0
    assert (fresh.repo.run("rev-parse", "--is-shallow-repository").stdout.strip() == "true") is ("--depth=1" in options)


def linked(pair: Pair) -> Clone:
    pair.bob.repo.git("worktree", "add", "-q", "-b", "topic", "../linked")
    return Clone(pair.folder / "linked")


def beside_bare(pair: Pair) -> Clone:
    Repo(pair.folder).git("clone", "-q", "--bare", str(pair.hub.top), "bare.git")
    Repo(pair.folder / "bare.git").git("worktree", "add", "-q", "../tree", "main")
    return Clone(pair.folder / "tree")


@pytest.mark.parametrize("make", [linked, beside_bare])
def test_worktrees_of_one_repository_share_fetched_data(make: Callable[[Pair], Clone], pair: Pair) -> None:
    tree = make(pair)
    if make is beside_bare:
        assert tree.clone_knowledge()
    revision = pair.ada.record("next")
    pair.ada.push()
    assert tree.fetch()
    assert tree.heads() == {"main": revision}
    tree.record("tree", branch="tree")
    tree.push("origin", "tree")
    assert pair.ada.fetch()
    assert pair.ada.heads().keys() == {"main", "tree"}
    if make is linked:
        assert pair.bob.heads() == tree.heads()
    tree.close()


# -- which remote is meant -------------------------------------------------------------------------


def test_knowledge_is_pushed_to_the_remote_of_the_code(tmp_path: Path, home: Path) -> None:
    clone = Clone(tmp_path / "clone", create=True)
    places = clone.places

    def chosen(branch: str | None = "main") -> list[str]:
        return remotes.list_for_writing(places, branch)

    assert chosen() == []
    clone.repo.git("remote", "add", "upstream", "/upstream")
    assert chosen() == ["upstream"], "there is no other"
    clone.repo.git("remote", "add", "mine", "/mine")
    assert chosen() == []
    clone.repo.git("remote", "add", "origin", "/origin")
    assert chosen() == ["origin"]
    assert remotes.list_for_reading(places, "main") == ["upstream", "origin"]
    configure(clone.repo, ("branch.main.remote", "upstream"))
    assert chosen() == ["upstream", "origin"]
    configure(clone.repo, ("remote.pushDefault", "mine"))
    assert chosen() == ["mine", "upstream", "origin"]
    assert chosen(None) == ["mine", "origin"]
    configure(clone.repo, ("branch.main.pushRemote", "origin"))
    assert chosen() == ["origin", "mine", "upstream"]
    configure(clone.repo, ("vmrag.remote", "upstream"))
    assert chosen() == ["upstream", "origin", "mine"]
    configure(clone.repo, ("vmrag.remote", "nowhere"))
    with pytest.raises(RemoteInvalid):
        chosen()
    clone.close()
