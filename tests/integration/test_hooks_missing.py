"""Hooks that git does not run, and pins pushed without their knowledge, are reported: by `status`,
`commit`, `query` and in answers to agents, with the command that helps.
"""

import os
import time
from pathlib import Path

import pytest

from tests.support import people, terminal
from tests.support.hooks import add_foreign_hook
from tests.support.mcp import Tools, warned
from tests.support.people import SETTINGS, World
from tests.support.terminal import Project
from vmrag_link import hints, proc
from vmrag_link.git import hook_choice, hook_config, hooks, plumbing
from vmrag_link.ops.status.cautions import list_cautions
from vmrag_mcp import resources
from vmrag_mcp.call_progress import CallProgress

shared, world = people.shared, people.world
template, project = terminal.template, terminal.project

INSTALL = "; run 'vmrag install' to install them"


def said(project: Project, *command: str) -> list[str]:
    """The warnings on standard error, without the one about stored copies; the same are among the
    reasons of `status`.
    """
    err = project.vmrag(*(command or ("query", "uv"))).err
    result = [line.removeprefix("warning: ") for line in err.splitlines() if line.startswith("warning: ")]
    if not command:
        reasons = [
            reason.removeprefix("warning: ") for reason in project.status()["reasons"] if reason.startswith("warn")
        ]
        assert without_copies(reasons) == without_copies(result)
    return without_copies(result)


def without_copies(lines: list[str]) -> list[str]:
    return [line for line in lines if "stored cop" not in line]


def warnings(result: dict) -> dict[str, str]:
    return {warning["code"]: warning["message"] for warning in result.get("warnings", ())}


# -- a clone without hooks


NONE = (
    "vmrag's git hooks are not installed in this clone: 'git push' does not push the knowledge base, "
    f"and 'git checkout' does not move it{INSTALL}"
)


def test_first_query_after_clone_warns_about_missing_hooks(world: World) -> None:
    bob = world.join("bob")
    assert said(bob) == [NONE]
    bob.put("new.md", "brand new")
    assert said(bob, "commit", "-m", "new") == [NONE]
    assert NONE not in bob.vmrag("-q", "query", "uv").err
    bob.vmrag("install")
    assert said(bob) == []


def test_vmrag_clone_explains_the_use_of_installing(world: World) -> None:
    bob = world.join("bob")
    assert "hint: run 'vmrag install' to let git update and push it with the code" in bob.vmrag("clone").out


def test_agent_is_warned_in_first_answer_status_and_commit(world: World) -> None:
    bob = world.join("bob")
    tools = Tools(bob.top)
    assert warnings(tools("chroma_list_collections"))["HOOKS_MISSING"] == NONE
    assert "warnings" not in tools("chroma_list_collections")
    assert "HOOKS_MISSING" in warned(tools("dolt_status"))
    tools("chroma_add_documents", collection_name="handbook", documents=["brand new"], ids=["new"])
    assert "HOOKS_MISSING" in warned(tools("dolt_commit", message="new"))
    bob.vmrag("install")
    assert "warnings" not in tools("dolt_status")


def test_first_tool_call_warns_after_reading_resources(world: World) -> None:
    tools = Tools(world.join("bob").top)
    with tools.session.open_call(CallProgress()) as call:
        assert "vmrag://collections/handbook" in {resource.uri for resource in resources.list_resources(call)}
    assert warnings(tools("chroma_list_collections"))["HOOKS_MISSING"] == NONE
    assert "warnings" not in tools("chroma_list_collections")


def test_dolt_clone_warns_about_missing_hooks(world: World) -> None:
    bob = world.join("bob")
    assert "HOOKS_MISSING" in warned(Tools(bob.top)("dolt_clone", remote_url=str(world.hub.top)))


def test_deliberately_missing_hooks_cause_no_warning(world: World, newcomer: Project) -> None:
    bob = world.join("bob")
    bob.vmrag("install")
    bob.vmrag("uninstall")
    assert said(bob) == []
    bob.vmrag("install")
    assert hook_choice.list_chosen_hooks(plumbing.locate_work_tree(bob.top)) == hook_config.HOOKS
    newcomer.write(".vmrag.yaml", SETTINGS)
    newcomer.vmrag("init", "--knowledge-base", "--no-sources", "--no-hooks")
    assert said(newcomer) == []
    assert not any(plumbing.locate_work_tree(newcomer.top).hooks.glob("post-*[!e]"))


newcomer = people.newcomer


# -- existing hooks


def written_over(project: Project) -> None:
    for hook in hook_config.HOOKS:
        add_foreign_hook(project.top / ".git" / "hooks", project.top.parent, hook)


def deleted(project: Project) -> None:
    (project.top / ".git" / "hooks" / "pre-push").unlink()


def not_executable(project: Project) -> None:
    (project.top / ".git" / "hooks" / "post-merge").chmod(0o644)


def elsewhere(project: Project) -> None:
    project.git("config", "core.hooksPath", ".hooks")
    (project.top / ".hooks").mkdir()


def in_another_work_tree(project: Project) -> None:
    project.vmrag("uninstall")
    project.git("worktree", "add", "-q", "../linked", "feature")
    Project(project.top.parent / "linked").vmrag("install", "--worktree")


EFFECT = "'git push' does not push the knowledge base, and 'git checkout' does not move it"
GONE = {
    written_over: f"another tool has overwritten these vmrag hooks: {', '.join(hook_config.HOOKS)}: {EFFECT}{INSTALL}",
    deleted: f"git does not run these vmrag hooks: pre-push: 'git push' does not push the knowledge base{INSTALL}",
    not_executable: f"git does not run these vmrag hooks: post-merge{INSTALL}",
    elsewhere: f"git now uses the hooks in .hooks, without vmrag's hooks: {EFFECT}; run 'vmrag doctor' to find out why",
    in_another_work_tree: f"vmrag's git hooks only run in other worktrees: {EFFECT}; run 'vmrag install --worktree' to install them here",
}


@pytest.mark.parametrize("breaks", GONE, ids=lambda function: function.__name__)
@pytest.mark.sample(2)
def test_lost_hooks_are_reported_and_restored_by_printed_command(project: Project, breaks) -> None:
    breaks(project)
    [sentence] = said(project)
    assert sentence.replace(f"{project.top}/", "") == GONE[breaks]
    command = hints.list_commands(sentence)[-1].split()[1:]
    result = project.vmrag(*command, code=None)
    if command == ["doctor"]:
        assert "vmrag install" in result.out
        project.vmrag("install")
    assert said(project) == []


def test_disabled_hooks_are_not_reported(project: Project) -> None:
    deleted(project)
    assert project.vmrag("query", "uv", env={"VMRAG": "0"}).err == ""


def test_hooks_run_by_pre_commit_cause_no_warning(project: Project) -> None:
    project.vmrag("uninstall")
    hook_choice.record_chosen_hooks(plumbing.locate_work_tree(project.top), hook_config.HOOKS)
    for hook in hook_config.HOOKS:
        path = project.top / ".git" / "hooks" / hook
        path.write_text("#!/usr/bin/env bash\n# File generated by pre-commit: https://pre-commit.com\n")
        path.chmod(0o755)
    project.write(".pre-commit-config.yaml", "- id: vmrag-check\n- id: vmrag-sync\n")
    [sentence] = said(project)
    assert (
        sentence
        == f"git does not run these vmrag hooks: pre-push: 'git push' does not push the knowledge base{INSTALL}"
    )
    project.write(".pre-commit-config.yaml", "- id: vmrag-check\n- id: vmrag-sync\n- id: vmrag-push\n")
    assert said(project) == []


def test_looking_for_hooks_starts_no_process(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    written_over(project)
    places = plumbing.locate_work_tree(project.top)
    monkeypatch.setattr(proc, "run", lambda *_, **__: pytest.fail("a process was started"))
    assert hooks.find_missing_hooks(places).why == "replaced"


def test_empty_hooks_path_is_reported_without_an_error(project: Project) -> None:
    project.git("config", "core.hooksPath", "")
    assert "git now uses the hooks in" in said(project)[0]


# -- pins that went without their knowledge


def test_unpushed_knowledge_is_reported_until_printed_command_pushes_it(world: World) -> None:
    bob = world.join("bob")
    bob.vmrag("clone")
    for branch in ("main", "topic"):
        bob.git("switch", "-q", "-C", branch)
        bob.write_document("install.md", f"what bob knows on {branch}")
        bob.git("push", "-q", "origin", branch)
    bob.vmrag("install")
    assert not world.holds(bob.pinned)
    [sentence] = said(bob)
    assert sentence == (
        "origin/main, origin/topic: the pushed code pins 2 revisions of the knowledge base, which was not pushed "
        "to origin; run 'vmrag push --all' to push all revisions"
    )
    assert warned(Tools(bob.top)("dolt_status")) == {"KNOWLEDGE_NOT_PUSHED"}
    carol = world.join("carol")
    carol.vmrag("clone", code=None)
    carol.vmrag("install")
    reasons = [
        reason for reason in carol.status()["reasons"] if reason.startswith("warning") and "stored copies" not in reason
    ]
    assert reasons == [], "it is somebody else's to push"

    bob.vmrag("push", "--all")
    assert said(bob) == []
    assert world.holds(bob.pinned)
    bob.write_document("install.md", "not pushed yet")
    assert said(bob) == []
    bob.git("remote", "set-url", "origin", f"file://{world.hub.top}")
    assert said(bob) == [], "it is still the same place, as far as anybody knows"


def test_negative_result_is_cached_until_a_tracking_branch_moves(world: World, monkeypatch) -> None:
    ada = world.ada
    settled(ada)
    assert said(ada) == []
    with terminal.opened(ada) as ws:
        ws.engine  # noqa: B018  opened before nothing may be started
        monkeypatch.setattr(proc, "run", lambda *_, **__: pytest.fail("a process was started"))
        assert list_cautions(ws) == ()
        monkeypatch.undo()
    ada.write_document("install.md", "again without")
    ada.git("push", "-q", "--no-verify", "origin", "main")
    [sentence] = said(ada)
    assert sentence.startswith(f"origin/main: the pushed code pins revision {ada.pinned[:7]} of the ")
    assert sentence.endswith("; run 'vmrag push' to push the revision")


def test_unpushed_knowledge_is_reported_again_without_new_refs(world: World) -> None:
    ada = world.ada
    ada.write_document("install.md", "without its knowledge")
    ada.git("push", "-q", "--no-verify", "origin", "main")
    settled(ada)
    [sentence] = said(ada)
    assert said(ada) == [sentence]
    ada.vmrag("push")
    assert said(ada) == []


def settled(project: Project) -> None:
    """The tracking branches moved a while ago."""
    files = [Path(folder) for folder, _, _ in os.walk(project.top / ".git" / "refs" / "remotes")]
    for path in (*files, project.top / ".git" / "packed-refs"):
        if path.exists():
            os.utime(path, (time.time() - 60,) * 2)
