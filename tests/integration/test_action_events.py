"""Which commits the Action compares, by event, in real checkouts; and what a payload cannot do."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from copy import copy
from pathlib import Path

import pytest

from tests.support import events
from tests.support.events import FORK, OWN, ZEROS, Job, checkout
from tests.support.repos import Repo, isolate, make_repo
from tests.support.templates import copy_tree
from vmrag_action import work_tree
from vmrag_action.events import Comparison, read_comparison
from vmrag_action.payload import MAX_PAYLOAD_BYTES
from vmrag_action.runner import Runner, WorkflowJob
from vmrag_link import env, hints, trust
from vmrag_link.errors import HistoryMissing, UsageInvalid
from vmrag_link.git import plumbing
from vmrag_link.ops.verify.verify_commits import Fork
from vmrag_link.workspace.commits import deepen


class Host:
    """The base repository: `main` moved on since the pull request was opened at `opened`, and
    GitHub made the merge `merge` of the base's tip and the pull request's `head`.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.repo = repo = make_repo(folder / "host")
        self._checkouts = 0
        repo.git("config", "uploadpack.allowFilter", "true")
        repo.commit("1", a="1")
        self.opened = repo.commit("2", a="2")
        repo.git("switch", "-q", "-c", "topic")
        repo.commit("topic 1", b="topic 1")
        self.head = repo.commit("topic 2", b="topic 2")
        repo.git("switch", "-q", "main")
        self.base = repo.commit("3", a="3", **{".vmrag.yaml": "hooks.on_dirty: block\n"})
        repo.git("switch", "-q", "--detach")
        repo.git("merge", "-q", "--no-ff", "--no-edit", self.head)
        self.merge = repo.git("rev-parse", "HEAD")
        repo.git("update-ref", "refs/pull/7/merge", self.merge)
        repo.git("update-ref", "refs/pull/7/head", self.head)
        repo.git("switch", "-q", "main")
        repo.git("branch", "-q", "-D", "topic")

    def copied(self, folder: Path) -> Host:
        result = copy(self)
        result.folder, result.repo = folder, Repo(copy_tree(self.repo.top, folder / "host"))
        return result

    def of(self, event: str, payload: object, *, sha: str, ref: str, at: str = "", depth: int | None = 1, **more: str):
        """Return the comparison in a checkout of `at`, by default of the event's commit."""
        self._checkouts += 1
        self.checkout = checkout(self.repo.top, self.folder / f"c{self._checkouts}", at or sha, depth=depth)
        job = Job(self.folder, event, payload, sha=sha, ref=ref, **more)
        return read_comparison(job.environ, plumbing.locate_work_tree(self.checkout.top))

    def pull_request(self, *, event: str = "pull_request", sha: str = "", at: str = "", **more) -> Comparison:
        payload = more.pop("payload", None) or events.pull_request(self.opened, self.head)
        return self.of(event, payload, sha=sha or self.merge, ref="refs/pull/7/merge", at=at, **more)

    def push(self, before: str, after: str = "", *, ref: str = "refs/heads/main", forced: bool = False, **more: str):
        after = after or self.base
        return self.of("push", events.push(before, after, ref=ref, forced=forced), sha=after, ref=ref, **more)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("events")
        isolate(patch, folder / "home")
        host = Host(folder)
        host.pull_request()
        yield host


@pytest.fixture
def host(built: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    isolate(monkeypatch, tmp_path / "home")
    return built.copied(tmp_path)


def refused(built: Host, payload: object, event: str = "pull_request", **more: str) -> UsageInvalid:
    """In a checkout that all tests share: a job that cannot be understood changes nothing."""
    job = Job(built.folder, event, payload, sha=built.base, ref="refs/pull/7/merge")
    with pytest.raises(UsageInvalid) as caught:
        read_comparison(job.environ | more, plumbing.locate_work_tree(built.checkout.top))
    return caught.value


# -- pull requests


@pytest.mark.parametrize("event", ["pull_request", "pull_request_review", "pull_request_review_comment"])
def test_pull_request_is_compared_from_the_parents_of_its_merge(host, event):
    comparison = host.pull_request(event=event)
    assert (comparison.base, comparison.head) == (host.base, host.head)
    assert comparison.base != host.opened
    assert (comparison.settings_from, comparison.trusted, comparison.saves, comparison.checked_out) == (
        host.base,
        False,
        False,
        True,
    )
    assert (comparison.base_name, comparison.fork) == (
        "origin/main",
        Fork("https://github.example/me/project", "refs/pull/7/head"),
    )


@pytest.mark.parametrize("depth", [1, None])
def test_comparison_is_equal_in_a_checkout_of_the_head(host, depth):
    comparison = host.pull_request(at=host.head, depth=depth)
    assert (comparison.base, comparison.head, comparison.checked_out) == (host.base, host.head, True)
    assert host.pull_request(at=host.base, depth=depth).checked_out is False


@pytest.mark.parametrize("at", ["merge", "head"])
@pytest.mark.parametrize("depth", [1, None])
def test_base_settings_can_be_read_offline_and_checkout_is_unchanged(host, monkeypatch, at, depth):
    """By later steps that have no way in, too."""
    comparison = host.pull_request(at=getattr(host, at), depth=depth)
    top = host.checkout
    top.git("remote", "set-url", "origin", "file:///nowhere")
    assert settings_named(top, comparison, monkeypatch) == "block"
    assert top.git("rev-parse", "HEAD") == getattr(host, at)
    assert top.git("for-each-ref", "--format=%(refname)") == "refs/remotes/pull/checkout"
    assert top.git("status", "--porcelain") == ""


def settings_named(top: Repo, comparison: Comparison, monkeypatch: pytest.MonkeyPatch) -> str:
    for name, value in comparison.environment.items():
        monkeypatch.setenv(name, value)
    return trust.load_settings(plumbing.locate_work_tree(top.top)).config.hooks.on_dirty


def test_untrusted_files_are_not_fetched(host):
    host.of("pull_request_target", events.pull_request(host.opened, host.head), sha=host.base, ref="refs/heads/main")
    top = host.checkout
    deepen.make_comparable(plumbing.locate_work_tree(top.top), host.base, host.head)
    missing = top.git("rev-list", "--objects", "--missing=print", "--no-object-names", f"{host.base}..{host.head}")
    assert f"?{host.repo.git('rev-parse', f'{host.head}:b')}" in missing.split()


def test_pull_request_of_own_or_deleted_repository_has_no_fork(host):
    for source in (OWN, None):
        assert host.pull_request(payload=events.pull_request(host.opened, host.head, source=source)).fork is None


def test_base_branch_tip_is_read_without_a_merge(host):
    comparison = host.pull_request(sha=host.head)
    assert (comparison.base, comparison.head, comparison.settings_from) == (host.base, host.head, host.base)


def test_merged_pull_request_compares_the_landed_commit(host):
    host.repo.git("merge", "-q", "--squash", host.head)
    landed = host.repo.commit("squashed")
    payload = events.pull_request(host.opened, host.head, action="closed", merged=True, merge_commit_sha=landed)
    comparison = host.pull_request(payload=payload, sha=landed)
    assert (comparison.base, comparison.head, comparison.base_name) == (host.opened, landed, "")
    assert comparison.settings_from == host.base


def test_pull_request_closed_without_merge_compares_like_any_other(host):
    payload = events.pull_request(host.opened, host.head, action="closed", merge_commit_sha=host.merge)
    assert host.pull_request(payload=payload).head == host.head


def test_pull_request_target_uses_settings_of_the_default_branch(host):
    host.repo.git("branch", "release", host.opened)
    payload = events.pull_request(host.opened, host.head, ref="release")
    comparison = host.of("pull_request_target", payload, sha=host.base, ref="refs/heads/main")
    assert (comparison.base, comparison.head, comparison.base_name) == (host.opened, host.head, "origin/release")
    assert (comparison.settings_from, comparison.trusted, comparison.saves, comparison.checked_out) == (
        host.base,
        False,
        False,
        False,
    )


def test_base_branch_that_is_gone_is_an_error(built):
    assert refused(built, events.pull_request(built.opened, built.head, ref="gone"), "pull_request_target")


def test_pull_request_steps_use_no_service(host):
    assert host.pull_request().environment == {"VMRAG_SETTINGS_FROM": host.base, "VMRAG_NO_SERVICES": "1"}


def test_steps_without_services_see_no_key(host, tmp_path, monkeypatch):
    added = ("GIT_CONFIG_COUNT", "GIT_CONFIG_KEY_0", "GIT_CONFIG_VALUE_0")  # by the step, and gone with the test
    environ = dict.fromkeys(added, "") | dict.fromkeys(env.SERVICE_KEYS, "secret") | {env.NO_SERVICES: "1"}
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    job = WorkflowJob.from_environment({"RUNNER_TEMP": str(tmp_path), "GITHUB_WORKSPACE": str(host.repo.top)})
    with work_tree.open_workspace(Runner(), job):
        assert not os.environ.keys() & {*env.SERVICE_KEYS}


# -- merge groups


def test_merge_group_is_compared_with_its_base(host):
    ref = f"refs/heads/gh-readonly-queue/main/pr-7-{host.base}"
    comparison = host.of("merge_group", events.merge_group(host.base, host.merge), sha=host.merge, ref=ref)
    assert (comparison.base, comparison.head, comparison.settings_from) == (host.base, host.merge, host.base)
    assert (comparison.trusted, comparison.saves, comparison.checked_out) == (False, False, True)


# -- pushes, schedules, by hand


def test_push_is_compared_with_what_was_there_before(host):
    comparison = host.push(host.opened)
    assert (comparison.base, comparison.head) == (host.opened, host.base)
    assert (comparison.trusted, comparison.saves, comparison.checked_out) == (True, True, True)
    assert comparison.environment == {"VMRAG_SETTINGS_FROM": ""}


def test_force_push_is_compared_with_the_previous_head(host):
    host.repo.git("update-ref", "refs/keep", host.head)
    assert host.push(host.head, forced=True).base == host.head


def test_force_push_with_missing_base_is_compared_as_new_branch(host):
    assert host.push("ab" * 20, forced=True).base is None
    assert host.push("ab" * 20, host.head, ref="refs/heads/topic", forced=True).base == host.base


def test_push_with_missing_base_raises_history_missing(host):
    with pytest.raises(HistoryMissing) as caught:
        host.push("ab" * 20)
    assert "fetch-depth: 0" in caught.value.hint


def test_host_that_does_not_answer_makes_no_branch_a_new_one(host):
    job = Job(
        host.folder,
        "push",
        events.push("ab" * 20, host.base, forced=True),
        sha=host.base,
        ref="refs/heads/main",
    )
    repo = checkout(host.repo.top, host.folder / "away", host.base)
    repo.git("remote", "set-url", "origin", "file:///nowhere")
    with pytest.raises(HistoryMissing):
        read_comparison(job.environ, plumbing.locate_work_tree(repo.top))


def test_new_branch_has_default_branch_as_base_and_first_push_none(host):
    comparison = host.push(ZEROS, host.head, ref="refs/heads/topic")
    assert (comparison.base, comparison.head, comparison.trusted, comparison.saves) == (
        host.base,
        host.head,
        True,
        False,
    )
    assert host.push(ZEROS).base is None


@pytest.mark.parametrize("before", [ZEROS, "ab" * 20])
def test_tag_follows_nothing_and_nobodys_settings_count(host, before):
    comparison = host.push(before, ref="refs/tags/v1", GITHUB_REF_PROTECTED="true")
    assert (comparison.base, comparison.head, comparison.settings_from, comparison.saves) == (
        None,
        host.base,
        None,
        False,
    )


@pytest.mark.parametrize(("protected", "counts"), [("true", True), ("false", False), ("", False), ("TRUE", False)])
def test_settings_come_from_the_base_of_protected_branches_only(host, protected, counts):
    expected = host.base if counts else None
    assert host.push(host.opened, GITHUB_REF_PROTECTED=protected).settings_from == expected
    ref = {"sha": host.base, "ref": "refs/heads/main", "GITHUB_REF_PROTECTED": protected}
    assert host.of("schedule", {"schedule": "0 5 * * *"}, **ref).settings_from == expected
    tag = ref | {"ref": "refs/tags/v1"}
    assert host.of("release", {"action": "published", "repository": OWN}, **tag).settings_from is None


def test_workflow_may_choose_the_source_of_settings(host):
    given = {"VMRAG_SETTINGS_FROM": "12" * 20}
    assert host.push(host.opened, **given).settings_from == "12" * 20
    assert host.pull_request(**given).environment["VMRAG_SETTINGS_FROM"] == "12" * 20


@pytest.mark.parametrize(
    ("event", "ref", "trusted", "saves"),
    [
        ("schedule", "refs/heads/main", True, True),
        ("workflow_dispatch", "refs/heads/main", True, True),
        ("workflow_dispatch", "refs/heads/topic", True, False),
        ("workflow_dispatch", "refs/tags/main", True, False),
        ("workflow_run", "refs/heads/main", False, False),
        ("issue_comment", "refs/heads/main", False, False),
        ("release", "refs/tags/v1", True, False),
    ],
)
def test_remaining_events_compare_one_commit_and_few_are_trusted(host, event, ref, trusted, saves):
    payload = {"repository": OWN, "inputs": None} if event != "schedule" else {"schedule": "0 5 * * *"}
    comparison = host.of(event, payload, sha=host.base, ref=ref)
    assert (comparison.base, comparison.head, comparison.trusted, comparison.saves) == (None, host.base, trusted, saves)
    assert ("VMRAG_NO_SERVICES" in comparison.environment) is not trusted


# -- checkouts of other repositories


OTHERS = ["https://github.example/them/lib", "git@github.example:other/project.git", "ssh://git@h.example:2/a/b/c.git/"]
OURS = [
    "http://127.0.0.1:9/them/project",
    "http://127.0.0.1:9/a/b/Them/Project.git",
    "ssh://git@127.0.0.1:9/them/project",
]


@pytest.mark.parametrize("url", OTHERS)
@pytest.mark.parametrize("event", ["pull_request", "push", "schedule"])
def test_other_repository_is_known_only_by_its_checkout(host, tmp_path, url, event):
    other = make_repo(tmp_path / "other")
    at = other.commit("other")
    other.git("remote", "add", "origin", url)
    payload = events.pull_request(host.opened, host.head)
    job = Job(tmp_path, event, payload, sha=host.merge, ref="refs/heads/main", GITHUB_REF_PROTECTED="true")
    comparison = read_comparison(job.environ, plumbing.locate_work_tree(other.top))
    assert (comparison.base, comparison.head, comparison.settings_from, comparison.checked_out) == (
        None,
        at,
        None,
        True,
    )
    assert comparison.trusted is (event != "pull_request")


@pytest.mark.parametrize("event", ["pull_request", "pull_request_target"])
def test_checkout_of_an_untrusted_fork_is_rejected(host, tmp_path, event):
    repo = checkout(host.repo.top, tmp_path / "fork", host.head)
    repo.git("remote", "set-url", "origin", "https://github.example/Me/Project")
    job = Job(tmp_path, event, events.pull_request(host.opened, host.head), sha=host.merge, ref="refs/x")
    with pytest.raises(UsageInvalid, match="is of the fork me/project"):
        read_comparison(job.environ, plumbing.locate_work_tree(repo.top))


@pytest.mark.parametrize("url", OURS)
def test_checkout_without_commit_of_its_repository_raises_history_missing(host, tmp_path, url):
    repo = make_repo(tmp_path / "other")
    repo.commit("other")
    repo.git("remote", "add", "origin", url)
    job = Job(tmp_path, "pull_request", events.pull_request(host.opened, host.head), sha=host.merge, ref="refs/x")
    with pytest.raises(HistoryMissing):
        read_comparison(job.environ, plumbing.locate_work_tree(repo.top))


# -- hostile payloads


def changed(path: str, value: object, host: Host) -> object:
    payload = events.pull_request(host.opened, host.head)
    *parents, last = path.split(".")
    at = payload
    for part in parents:
        at = at[part]
    at[last] = value
    return payload


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("pull_request", None),
        ("pull_request", []),
        ("pull_request.number", "7; rm -rf ."),
        ("pull_request.number", -1),
        ("pull_request.head.sha", "--upload-pack=touch /tmp/x"),
        ("pull_request.head.sha", "HEAD"),
        ("pull_request.head.sha", "a" * 39),
        ("pull_request.head.sha", "a" * 40 + "\n"),
        ("pull_request.head.sha", "A" * 40),
        ("pull_request.head.sha", 1),
        ("pull_request.base.ref", ""),
        ("pull_request.base.ref", 3),
        ("pull_request.head.repo", {"full_name": "me/project --help"}),
        ("pull_request.head.repo", {"full_name": "../../x"}),
        ("pull_request.head.repo", {"full_name": "me/pro\nject"}),
        ("pull_request.head.repo", "me/project"),
    ],
)
def test_value_of_another_form_is_refused(built, path, value):
    error = refused(built, changed(path, value, built))
    assert "::" not in error.message
    assert str(value) not in error.message or value in (None, [], 1, 3, -1, "")


@pytest.mark.parametrize(
    "ref", ["x:y", "../main", "main^{commit}", "a b", "-main", "@{-1}", "x\x00y", "*", "main.lock"]
)
def test_comparison_rejects_invalid_base_branch_names(built, ref):
    assert refused(built, events.pull_request(built.opened, built.head, ref=ref), "pull_request_target")


@pytest.mark.parametrize(
    "content",
    [b"", b"null", b"[]", b"{", b"\xff\xfe", b"[" * 200_000, b'{"a":' * 200_000, b" " * (MAX_PAYLOAD_BYTES + 1)],
    ids=["empty", "null", "list", "cut", "no UTF-8", "deep lists", "deep objects", "huge"],
)
def test_comparison_rejects_invalid_payloads(built, content):
    assert "payload" in refused(built, content).message


def test_payload_is_a_file(built, tmp_path):
    (tmp_path / "target").write_text(json.dumps(events.pull_request(built.opened, built.head)))
    (tmp_path / "link").symlink_to(tmp_path / "target")
    os.mkfifo(tmp_path / "pipe")
    for path in ("", str(tmp_path), str(tmp_path / "gone"), str(tmp_path / "link"), str(tmp_path / "pipe")):
        assert "GITHUB_EVENT_PATH" in refused(built, {}, GITHUB_EVENT_PATH=path).message


@pytest.mark.parametrize("sha", ["", "main", "a" * 41, "-" * 40])
def test_commit_of_a_job_is_a_hash(built, sha):
    assert "GITHUB_SHA" in refused(built, events.pull_request(built.opened, built.head), GITHUB_SHA=sha).message


def test_comparison_outside_of_a_job_raises_an_error(built):
    hint = refused(built, {}, GITHUB_EVENT_NAME="").hint
    assert hints.list_commands(hint) == ["vmrag verify --pull-request BASE HEAD"]


@pytest.mark.parametrize("server", ["https://x.example/$(id)", "javascript:alert(1)", "https://user:pw@x.example"])
def test_invalid_server_url_names_no_fork(host, server):
    assert host.pull_request(GITHUB_SERVER_URL=server).fork is None


def test_untrusted_payload_fields_do_not_change_the_comparison(host):
    plain = host.pull_request()
    payload = events.pull_request(host.opened, host.head, source=FORK | {"name": "$(id)", "default_branch": "::x::"})
    payload["pull_request"]["head"]["ref"] = "\n::error::\n" * 1000
    payload["pull_request"] |= {"title": 1, "body": ["x"], "labels": None}
    assert host.pull_request(payload=payload) == plain


@pytest.mark.parametrize("name", ["\n::error::\n", "a..b", "a\0b", "x" * 200_000, ""])
def test_ref_name_check_rejects_invalid_branch_names(tmp_path, monkeypatch, name):
    isolate(monkeypatch, tmp_path / "home")
    assert not plumbing.is_ref_name(plumbing.locate_work_tree(make_repo(tmp_path / "repo").top), f"refs/heads/{name}")
