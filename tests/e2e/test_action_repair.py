"""`mode: repair` of the Action: it imports knowledge that a merge button dropped, on the hosted
branch.
"""

from __future__ import annotations

import html
import json
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support import dropping, events, hosted, people
from tests.support.actions_runner import ACTION, CacheService, Finished
from tests.support.checkout import TOKEN
from tests.support.dropping import Landed
from tests.support.github_rest import github_api
from tests.support.hosted import Ci
from vmrag_link import hints
from vmrag_link.ops.pull_requests.update_branch import BOT

pytestmark = pytest.mark.hooks("off")

shared, parted, world, ci = people.shared, dropping.parted, dropping.world, hosted.ci

BOTH = {"topic.md": "Only the topic knows of otters.", "rest.md": "# Rest\n\nSleep at noon.\n"}


def repair(ci: Ci, landed: Landed, mode: str = "repair", **given: str) -> Finished:
    return ci.on_push(before=landed.before, sha=landed.after, mode=mode, **given)


def pinned(ci: Ci, commit: str = "main") -> str:
    return json.loads(ci.world.hub.git("show", f"{commit}:.dolt-version"))["dolt_commit"]


def assert_repaired(ci: Ci, tip: str, commit: str = "main") -> None:
    """One commit on the tip that changes the pin alone, and has everybody's documents."""
    hub = ci.world.hub
    assert hub.git("rev-parse", f"{commit}^@") == tip
    assert hub.git("diff", "--name-only", tip, commit) == ".dolt-version"
    assert BOTH.items() <= dropping.documents(ci.world, commit).items()


def test_closed_pull_request_reveals_squash_that_kept_the_base_pin(ci):
    """No pin changed on `main`, so no look at its commits alone can find it."""
    ada, hub = ci.ada, ci.world.hub
    before, proposed = hub.git("rev-parse", "main"), hub.git("rev-parse", "topic")
    ada.git("switch", "-q", "--detach", "main")
    ada.git("checkout", "-q", "topic", "--", "docs")
    ada.git("commit", "-q", "--no-verify", "-m", "Squashed topic (#7)")
    landed = dropping.land(ada, before)
    assert ci.on_push(before=before, sha=landed.after, mode="verify").passed
    comparison = events.pull_request(
        before, proposed, source=events.OWN, action="closed", merged=True, merge_commit_sha=landed.after
    )
    hub.git("update-ref", "refs/pull/7/head", proposed)
    hub.git("branch", "-q", "-D", "topic")
    result = ci.run("pull_request", comparison, sha=landed.after, ref="refs/heads/main", mode="verify")
    [said] = result.said("error")
    assert (result.passed, "the pull request pinned" in said) == (False, True)
    unknown = hub.git("show", f"{proposed}:.dolt-version").replace(
        pinned(ci, proposed), "0" * len(pinned(ci, proposed))
    )
    ada.git("switch", "-q", "--detach", proposed)
    ada.commit(pin=unknown + "\n")
    nowhere = ada.git("rev-parse", "HEAD")
    ada.git("push", "-q", "--no-verify", "origin", "HEAD:refs/pull/7/head")
    comparison["pull_request"]["head"]["sha"] = nowhere
    result = ci.run("pull_request", comparison, sha=landed.after, ref="refs/heads/main", mode="verify")
    assert (result.passed, "cannot be compared" in result.said("error")[0]) == (False, True)
    ada.git("switch", "-q", "main")
    ada.git("pull", "-q")
    ada.vmrag("merge", pinned(ci, proposed))
    ada.git("commit", "-q", "-m", "Take it in")
    assert BOTH.items() <= ada.texts().items()


def test_repair_restores_dropped_squash_once_and_accepts_its_own_commit(ci):
    landed = dropping.squash(ci.ada)
    run = repair(ci, landed, mode="repair,verify,link")
    assert run.passed
    assert (run.outputs["repaired"], run.outputs["repair-branch"]) == ("true", "")
    assert run.outputs["linked"] == "2"  # of the repair, too, whose push starts no job
    assert_repaired(ci, landed.after)
    message = ci.world.hub.git("log", "-1", "--format=%B", "main")
    assert "1 document modified" in message
    assert message.endswith(f"Vmrag-Repairs: {landed.after}")
    assert ci.world.hub.git("log", "-1", "--format=%an <%ae>", "main") == "Ada Lovelace <ada@example.com>"
    assert "restores them" in run.summary
    assert run.step("verify").outcome == "success"  # it looks at what was repaired

    made = ci.tip
    again = ci.on_push(before=landed.after, sha=made, mode="repair")
    late = repair(ci, landed, mode="repair,verify")
    assert again.passed
    assert late.passed
    assert (again.outputs["repaired"], late.outputs["repaired"]) == ("false", "false")
    assert "No documents were dropped on main" in again.log
    assert "already repaired" in late.log
    assert f"repaired by {made[:12]}".replace(" ", "") in late.summary.replace(" ", "")
    assert ci.tip == made


def test_bot_repairs_merge_that_was_resolved_in_web_editor(ci):
    (ci.folder / "home" / "gitconfig").write_text('[protocol "file"]\n\tallow = always\n')
    landed = dropping.resolve_in_the_web_editor(ci.ada)
    run = repair(ci, landed)
    assert run.passed
    assert run.outputs["repaired"] == "true"
    assert_repaired(ci, landed.after)
    assert ci.world.hub.git("log", "-1", "--format=%an <%ae>", "main") == BOT
    assert ci.world.hub.git("log", "-1", "--format=%(trailers:key=Vmrag-Repairs,valueonly)", "main") == landed.dropping


@pytest.mark.long
def test_repair_makes_the_revision_of_a_manual_repair(ci):
    landed = dropping.squash(ci.ada)
    bob = ci.world.join("bob")
    bob.vmrag("install")
    bob.vmrag("merge", "--repair", landed.after[:12])
    assert repair(ci, landed).outputs["repaired"] == "true"
    assert pinned(ci) == bob.pinned


def test_repair_reports_conflict_and_pushes_nothing_before_a_person_decides(ci):
    landed = dropping.squash(ci.ada, "clash")
    data = ci.world.hub.git("rev-parse", people.DATA)
    run = repair(ci, landed)
    assert not run.passed
    assert run.outputs["repaired"] == "false"
    assert (ci.tip, ci.world.hub.git("rev-parse", people.DATA)) == (landed.after, data)
    [error] = [annotation for annotation in run.annotations if annotation.level == "error"]
    assert (error.title, error.file) == ("MERGE_CONFLICT", ".dolt-version")
    assert "handbook/rest.md" in error.message

    bob = ci.world.join("bob")
    bob.vmrag("install")
    bob.vmrag("merge", "--repair", landed.dropping[:12], code=1)
    bob.vmrag("resolve", "--ours")
    bob.vmrag("merge", "--continue")
    bob.git("commit", "-q", "-m", "Restore dropped documents")
    bob.push("origin", "main")
    after = repair(ci, landed)
    assert after.passed
    assert "already repaired" in after.log


# -- a branch that refuses


def test_protected_branch_gets_the_repair_on_another_branch(ci):
    landed = dropping.squash(ci.ada)
    dropping.protect(ci.world.hub)
    branch = f"vmrag/repair-{landed.after[:8]}"
    run = repair(ci, landed)
    assert not run.passed  # main still lacks it, and a maintainer has to open the pull request
    assert (run.outputs["repaired"], run.outputs["repair-branch"]) == ("false", branch)
    assert ci.tip == landed.after
    assert_repaired(ci, landed.after, branch)
    [error] = run.said("error")
    assert "GH006: Protected branch update failed." in error
    command = error.splitlines()[-1]
    assert command.startswith(f"run 'gh pr create --repo them/project --base main --head {branch} --title ")
    assert f"https://github.example/them/project/compare/main...{branch}?expand=1" in run.summary


def test_repair_opens_pull_request_if_input_and_repository_allow(ci):
    landed = dropping.squash(ci.ada)
    dropping.protect(ci.world.hub)
    with github_api(TOKEN) as api:
        api.refuses = True
        refused = repair(ci, landed, pull_request="true", environ={"GITHUB_API_URL": api.url})
        api.refuses = False
        run = repair(ci, landed, pull_request="true", environ={"GITHUB_API_URL": api.url})
    [opened] = api.pulls
    assert (opened["head"], opened["base"]) == (f"vmrag/repair-{landed.after[:8]}", "main")
    assert "1 document modified" in opened["body"]
    assert run.passed  # a maintainer sees the pull request
    assert "https://github.example/them/project/pull/40" in run.summary
    assert (run.said("error"), run.outputs["repaired"]) == ([], "false")
    assert not refused.passed
    assert "allow GitHub Actions to create pull requests" in refused.said("error")[0]
    assert "gh pr create" in refused.said("error")[1]


# -- several at once, and a kill


def test_concurrent_repairs_repair_once(ci, tmp_path):
    landed = dropping.squash(ci.ada)
    jobs = [Ci(ci.world, tmp_path / name, CacheService(tmp_path / name / "cache")) for name in ("one", "two")]
    with ThreadPoolExecutor(2) as pool:
        result = list(pool.map(lambda job: repair(job, landed), jobs))
    assert [run.passed for run in result] == [True, True]
    assert sorted(run.outputs["repaired"] for run in result) == ["false", "true"]
    assert_repaired(ci, landed.after)


def test_job_killed_before_pushing_the_branch_has_pushed_the_knowledge(ci, tmp_path):
    landed = dropping.squash(ci.ada)
    before = ci.world.hub.git("rev-parse", people.DATA)
    killed = repair(ci, landed, action=killing(tmp_path))
    assert killed.step("repair").outcome == "failure"
    assert ci.tip == landed.after
    data = ci.world.hub.git("rev-parse", people.DATA)
    assert data != before  # the knowledge came first
    assert repair(ci, landed).outputs["repaired"] == "true"
    assert ci.world.hub.git("rev-parse", people.DATA) == data  # which the next run found there
    assert_repaired(ci, landed.after)


def killing(folder: Path) -> Path:
    """The Action, whose repair dies when it is about to push the branch."""
    code = (
        "import os, sys; from vmrag_link.ops.pull_requests import update_branch; "
        "update_branch.push_branch = lambda *a, **k: os.kill(os.getpid(), 9); "
        'from vmrag_action.__main__ import main; sys.exit(main([\\"repair\\"]))'
    )
    text = ACTION.read_text()
    assert text.count("-m vmrag_action repair'") == 1
    (folder / "killing").mkdir()
    (folder / "killing" / "vmrag_action").symlink_to(ACTION.parent / "vmrag_action")
    (folder / "killing" / "requirements.txt").symlink_to(ACTION.parent / "requirements.txt")
    made = folder / "killing" / "action.yml"
    made.write_text(text.replace("-m vmrag_action repair'", f'-c "{code}"\''))
    return made


# -- what is left alone


@pytest.mark.parametrize(
    ("event", "ref", "given", "said"),
    [
        ("push", "refs/heads/topic", {}, "on push: the branch topic is not in the input"),
        ("push", "refs/tags/v1", {}, "only pushes to a branch are repaired"),
        ("merge_group", "refs/heads/gh-readonly-queue/main/pr-7", {}, "only pushes to a branch are repaired"),
        ("pull_request", "refs/pull/7/merge", {}, "only pushes to a branch are repaired"),
        ("schedule", "refs/heads/main", {}, "only pushes to a branch are repaired"),
        ("push", "refs/heads/main", {"repair_branches": "release, next"}, "names release and next"),
    ],
)
@pytest.mark.sample(1)
def test_repair_does_nothing_and_explains_on_other_events(ci, event, ref, given, said):
    landed = dropping.squash(ci.ada)
    if event == "pull_request":
        run = ci.on_pull_request(landed.before, landed.after, mode="repair", **given)
    else:
        payload = {
            "push": events.push(landed.before, landed.after, ref=ref),
            "merge_group": events.merge_group(landed.before, landed.after),
            "schedule": {"schedule": "0 3 * * *", "repository": events.OWN},
        }[event]
        run = ci.run(event, payload, sha=landed.after, ref=ref, mode="repair", **given)
    assert run.passed
    assert (run.outputs["repaired"], run.outputs["findings"]) == ("false", "0")
    assert said in run.log
    assert f"mode: repair has nothing to do on {event}: " in html.unescape(run.summary)
    assert ci.tip == landed.after


def test_named_branch_is_repaired(ci):
    landed = dropping.squash(ci.ada)
    ci.world.hub.git("update-ref", "refs/heads/-release;`id`", landed.after)
    ci.world.hub.git("update-ref", "refs/heads/main", landed.before)
    dropping.protect(ci.world.hub, "-release;`id`".replace("`", "\\`"))
    ref = "refs/heads/-release;`id`"
    run = ci.on_push(
        before=landed.before,
        sha=landed.after,
        ref=ref,
        mode="repair",
        repair_branches="main, -release;`id`",
        fail_on="never",
    )
    assert run.passed
    assert run.outputs["repair-branch"] == f"vmrag/repair-{landed.after[:8]}"
    [command] = hints.list_commands(run.said("warning")[0].splitlines()[-1])
    arguments = subprocess.run(
        ["sh", "-c", command.replace("gh ", "printf '%s|' ", 1)], capture_output=True, check=True
    )
    assert b"|--base|-release;`id`|--head|" in arguments.stdout
    assert ci.world.hub.git("rev-parse", ref) == landed.after
