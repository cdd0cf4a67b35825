"""The Action's `comment: true` over pull requests of the repository and of a fork, run from
`action.yml` by what stands for GitHub's runner, against what stands for its API.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.support import hosted, people
from tests.support.actions_runner import Finished
from tests.support.checkout import TOKEN
from tests.support.events import FORK, OWN
from tests.support.github_comments import CommentsApi
from tests.support.github_rest import serving
from tests.support.hosted import Ci

pytestmark = pytest.mark.hooks("off")

shared, world, ci = people.shared, people.world, hosted.ci

QUERIES = """\
queries:
  - query: how is the program installed?
    k: 1
    expect: [handbook/setup.md]
  - query: TLS certificates
    k: 1
"""
UV = "# Setup\n\nInstall the program with uv.\n"


@pytest.fixture
def api():
    with serving(TOKEN, CommentsApi) as server:
        yield server


@pytest.fixture
def base(ci: Ci) -> str:
    """The tip of `main`, with golden queries."""
    ci.ada.write(".vmrag/queries.yaml", QUERIES)
    ci.ada.git("add", "-A")
    ci.ada.git("commit", "-q", "-m", "queries")
    ci.ada.git("push", "-q", "origin", "main")
    ci.ada.git("switch", "-q", "-c", "topic")
    return ci.tip


def push(ci: Ci, name: str, text: str, *, remote: str = "origin") -> str:
    """The head of the topic with one more document, and its knowledge on a remote."""
    ci.ada.write_document(name, text)
    ci.ada.vmrag("push", remote)
    ci.ada.git("push", "-q", remote, "HEAD:refs/heads/topic")
    return ci.ada.git("rev-parse", "HEAD")


def on_pull_request(ci: Ci, api: CommentsApi, base: str, head: str, *, source: Any = OWN, **more: Any) -> Finished:
    api.open(7, head, source=source, base=OWN)
    run = ci.on_pull_request(base, head, source=source, mode="report", comment="true", environ=api.environ, **more)
    assert run.passed
    return run


def after_run(ci: Ci, api: CommentsApi, run: int, head: str) -> Finished:
    """The job on `workflow_run`, in an empty folder."""
    ci.workspace = ci.folder / f"empty-{run}"
    ci.workspace.mkdir()
    fields = {"id": run, "event": "pull_request", "head_sha": head, "head_repository": FORK}
    payload = {"action": "completed", "workflow_run": fields, "repository": OWN}
    given = {"mode": "report", "comment": "true", "again": True, "environ": api.environ}
    result = ci.run("workflow_run", payload, sha=ci.tip, ref="refs/heads/main", **given)
    assert result.passed
    return result


def test_pull_request_gets_one_comment_which_follows_it_and_is_resolved(ci, api, base):
    head = push(ci, "setup.md", UV)
    run = on_pull_request(ci, api, base, head)
    assert "#7: The comment was written." in run.step("comment").log
    [body] = api.ours(7)
    assert "### This pull request changes answers for agents\n" in body
    assert "1 of 2 questions has another answer. 1 document differs: 1 changed." in body
    assert "- `how is the program installed?`, first difference at place 1:" in body
    assert "  - before: `handbook/setup.md`: `# Setup Install the program with pip.`\n" in body
    assert "  - after: `handbook/setup.md`: `# Setup Install the program with uv.`\n" in body
    assert "- changed: `handbook/setup.md`\n" in body
    assert f"As of {head[:12]}, [see its run for details](https://github.example/them/project/actions/runs/" in body
    assert ci.uploads == {}

    (ci.ada.top / "docs" / "setup.md").unlink()
    ci.ada.vmrag("import", "docs", "--collection", "handbook", "--copy", "--base", "docs", "--prune")
    on_pull_request(ci, api, base, push(ci, "rest.md", "# Rest\n\nSleep.\n"))
    [body] = api.ours(7)
    assert "`how is the program installed?`, no longer as expected, first difference at place 1:" in body
    assert "Missing at the pin:\n\n- `handbook/setup.md`, which answers" in body

    ci.ada.git("checkout", "-q", base, "--", ".dolt-version", "docs")
    ci.ada.git("commit", "-q", "-m", "as it was")
    ci.ada.git("push", "-q", "origin", "HEAD:refs/heads/topic")
    run = on_pull_request(ci, api, base, ci.ada.git("rev-parse", "HEAD"))
    [body] = api.ours(7)
    assert "### This pull request no longer changes answers for agents\n" in body
    assert "2 questions asked: no answer changes. No document differs." in body


@pytest.mark.long
def test_job_on_the_target_also_writes_the_comment(ci, api, base):
    head = push(ci, "setup.md", UV)
    on_pull_request(ci, api, base, head, event="pull_request_target")
    assert "1 of 2 questions has another answer." in api.ours(7)[0]


def test_comment_names_a_conflict_of_pins_and_the_command(ci, api, base):
    ada = ci.ada
    head = push(ci, "rest.md", "# Rest\n\nSleep.\n")
    ada.git("switch", "-q", "main")
    ada.write_document("other.md", "# Other\n\nWalk.\n")
    ada.vmrag("push")
    ada.git("push", "-q", "origin", "main")
    on_pull_request(ci, api, ci.tip, head, event="pull_request_target")
    [body] = api.ours(7)
    assert "Only `.dolt-version` conflicts with the base branch." in body
    assert "`git pull --no-rebase origin main && git push`" in body
    ada.vmrag("install", "-q")
    ada.git("switch", "-q", "topic")
    ada.git("pull", "-q", "--no-rebase", "--no-edit", "origin", "main")  # the driver merges the pins
    assert ada.git("status", "--porcelain") == ""


def test_comment_is_not_written_for_code_changes(ci, api, base):
    ci.ada.commit("code", **{"main.py": "print()\n"})
    ci.ada.git("push", "-q", "origin", "HEAD:refs/heads/topic")
    run = on_pull_request(ci, api, base, ci.ada.git("rev-parse", "HEAD"))
    assert "no comment exists" in run.step("comment").log
    assert (api.comments, ci.uploads) == ({}, {})
    assert not [call for call in api.calls if not call.startswith(("GET", "POST /api/v3/graphql"))]


def test_comment_reports_unpushed_revision_until_it_is_pushed(ci, api, base):
    ci.ada.write_document("setup.md", UV)
    ci.ada.git("push", "-q", "--no-verify", "origin", "HEAD:refs/heads/topic")
    head = ci.ada.git("rev-parse", "HEAD")
    api.open(7, head, source=OWN, base=OWN)
    run = ci.on_pull_request(base, head, mode="report", comment="true", environ=api.environ)
    assert not run.passed
    [body] = api.ours(7)
    assert "### Could not compare answers\n" in body
    assert f"- the revision that `{head[:12]}` pins, which was not pushed\n" in body
    ci.ada.vmrag("push")
    on_pull_request(ci, api, base, head)
    [body] = api.ours(7)
    assert "1 of 2 questions has another answer." in body


def test_later_job_comments_on_pull_request_of_a_fork(ci, api, base):
    fork = ci.world.bare("fork.git")
    ci.ada.git("remote", "add", "fork", str(fork.top))
    ci.world.hub.git("config", "--global", f"url.file://{fork.top}.insteadOf", "https://github.example/me/project")
    head = push(ci, "setup.md", UV, remote="fork")
    ci.ada.git("push", "-q", "--no-verify", "origin", f"{head}:refs/heads/seen-by-github")  # refs/pull/7/head
    api.may_write = False
    run = on_pull_request(ci, api, base, head, source=FORK)
    assert (run.step("comment").outcome, api.calls) == ("skipped", [])
    [(name, uploaded)] = ci.uploads.items()
    api.keep(9, {uploaded.name: uploaded.read_bytes()}, name=name)

    api.may_write = True
    run = after_run(ci, api, 9, head)
    assert [step.name for step in run.steps if step.outcome == "success" and step.log] == ["prepare", "comment"]
    [body] = api.ours(7)
    assert "1 of 2 questions has another answer." in body
    assert "- the revision that" in body  # not adopted yet
    assert "/actions/runs/9)" in body
    assert "it is not verified" in body


def test_report_processes_do_not_get_the_token_as_variable(ci, api, base, tmp_path, monkeypatch):
    (tmp_path / "bin").mkdir()
    git, log = tmp_path / "bin" / "git", tmp_path / "environments"
    git.write_text(f'#!/bin/sh\n{{ env; echo "--- $1"; }} >>{log}\nexec {shutil.which("git")} "$@"\n')
    git.chmod(0o755)
    head = push(ci, "setup.md", UV)
    monkeypatch.setenv("PATH", f"{git.parent}:{os.environ['PATH']}")
    on_pull_request(ci, api, base, head)
    of_report = [
        part for part in log.read_text().split("\n--- ") if "INPUT_COMMENT=" in part and "INPUT_MODE=" not in part
    ]
    assert len(of_report) > 5
    assert not [line for line in of_report if "INPUT_TOKEN=" in line or TOKEN in line]


def test_comment_needs_a_report(ci, api):
    run = ci.on_push(mode="verify", comment="true", environ=api.environ)
    assert "the input mode must be report, with comment: true" in "\n".join(run.said("error"))
    payload = {"workflow_run": {}, "repository": OWN}
    run = ci.run("workflow_run", payload, sha=ci.tip, ref="refs/heads/main", mode="sync,report", comment="true")
    assert "the input mode must be report alone, with comment: true" in "\n".join(run.said("error"))
    assert api.calls == []


def test_step_that_comments_starts_nothing_and_reads_no_repository() -> None:
    """The step has the token for the comment and reads untrusted data."""
    folder = Path(__file__).parents[2] / "action" / "vmrag_action"
    for name in ("comments.py", "steps/comment.py"):
        imported = "\n".join(re.findall(r"(?m)^(?:from|import) .*", (folder / name).read_text()))
        assert not re.search(r"\b(proc|subprocess|git|workspace|Workspace|work)\b", imported), imported
