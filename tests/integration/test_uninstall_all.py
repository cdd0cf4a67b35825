"""`vmrag uninstall --all` leaves nothing of ours, and never removes the only copy of something."""

from pathlib import Path

import pytest

from tests.support import people, terminal
from tests.support.people import World
from tests.support.terminal import Project
from vmrag_link import trust as agreements
from vmrag_link.engines.base import ASIDE_PREFIX
from vmrag_link.git import hook_config, plumbing

shared, world, newcomer = people.shared, people.world, people.newcomer
template, project = terminal.template, terminal.project

DISCARD = "vmrag uninstall --all --discard-knowledge"


def files(folder: Path) -> dict[str, bytes]:
    """All of a git directory that is not git's own business."""
    own = ("objects", "logs", "refs", "worktrees")
    there = (path for path in folder.rglob("*") if path.is_file() and path.relative_to(folder).parts[0] not in own)
    return {str(path.relative_to(folder)): path.read_bytes() for path in there if path.name not in ("index", "HEAD")}


def test_what_is_pushed_is_removed_with_everything_else_and_comes_back_with_a_query(world: World) -> None:
    ada, plain = world.ada, world.join("plain")
    ada.vmrag("trust", "--service", "ollama")
    ada.git("branch", "side")
    ada.git("worktree", "add", "-q", "../linked", "side")
    linked = people.User(world.top / "linked", ada.home)
    linked.vmrag("query", "uv")
    ada.git("config", "vmrag.retrieval.k", "3")
    ada.vmrag("push")  # in this copy the hub lies elsewhere than it did
    answers = ada.answers()
    places = plumbing.locate(ada.top)
    with ada._here():
        assert agreements.read(places).services
        remembered = agreements.files(places)[1]

    done = ada.ask("uninstall", "--all")

    everything = done["everything"]
    assert set(done["hooks"]["removed"]) == set(hook_config.HOOKS)
    assert (everything["changed"], everything["kept"], everything["lost"]) == (
        [".gitattributes", ".vmrag.yaml"],
        [],
        None,
    )
    assert (everything["agreed"], everything["knowledge"]) == (True, str(places.kb))
    assert ada.git("status", "--porcelain") == "D .gitattributes\n D .vmrag.yaml"
    assert not any(
        "vmrag" in line for line in ada.git("config", "--local", "--name-only", "--list").lower().splitlines()
    )
    ours = {name for name in files(ada.top / ".git") if "vmrag" in name}
    assert (ours, plumbing.locate(linked.top).own.exists(), remembered.exists()) == (set(), False, False)
    assert set((ada.top / ".git" / "hooks").iterdir()) <= {
        ada.top / ".git" / "hooks" / path.name for path in (plain.top / ".git" / "hooks").iterdir()
    }
    assert ada.ask("uninstall", "--all")["everything"]["knowledge"] is None

    ada.git("checkout", "--", ".")
    ada.vmrag("query", "uv")
    assert ada.answers() == answers


def uncommitted(project: Project) -> str:
    project.put("new.md", "not committed")
    return "uncommitted documents on 'main'"


def set_aside(project: Project) -> str:
    with terminal.opened(project) as ws:
        ws.engine.create_branch(f"{ASIDE_PREFIX}main", ws.revision())
    return f"documents that were set aside ({ASIDE_PREFIX}main)"


def unpushed(_: Project) -> str:
    return ""


UNPUSHED = "commits of the knowledge base on 'feature', 'main' (as far as is known: This repository has no git remote"


@pytest.mark.parametrize("lose", [uncommitted, set_aside, unpushed], ids=lambda each: each.__name__)
def test_what_would_be_lost_is_named_and_nothing_is_changed_until_it_is_asked_for_twice(project: Project, lose) -> None:
    what = lose(project)
    before = files(project.top / ".git"), project.git("status", "--porcelain")
    error = project.vmrag("uninstall", "--all", "--json", code=1).error
    assert error["code"] == "KNOWLEDGE_NOT_PUSHED"
    assert what in error["message"]
    assert UNPUSHED in error["message"]
    assert error["hint"].endswith("(vmrag uninstall --all … with --discard-knowledge loses that for good)")
    after = files(project.top / ".git"), project.git("status", "--porcelain")
    assert {name: after[0][name] for name in before[0]} == before[0]
    assert after[1] == before[1]
    lost = project.ask(*DISCARD.split()[1:])["everything"]["lost"]
    assert lost["branches"] == ["feature", "main"]
    assert lost["uncommitted"] == (["main"] if lose is uncommitted else [])
    assert not (project.top / ".git" / "vmrag").exists()


def test_a_pin_that_was_never_committed_goes_with_its_knowledge(world: World) -> None:
    """Committed afterwards, it would name what nobody has; one that is pushed stays."""
    ada, pushed = world.ada, world.ada.pinned
    ada.vmrag("push")  # in this copy the hub lies elsewhere than it did
    for discarded in (True, False):
        ada.put("new.md", "News.")
        revision = ada.ask("commit", "-m", "news")["revision"]
        if not discarded:
            ada.vmrag("push")
        done = ada.ask("uninstall", "--all", *["--discard-knowledge"] * discarded)
        assert done["everything"]["pin"] == ("restored" if discarded else "kept")
        assert ada.pinned == (pushed if discarded else revision)
        assert (".dolt-version" in ada.git("status", "--porcelain")) is not discarded
        ada.git("checkout", "--", ".gitattributes", ".vmrag.yaml")
        ada.vmrag("clone", code=None)


def test_a_first_pin_that_was_never_committed_goes_with_its_knowledge(newcomer: Project) -> None:
    newcomer.vmrag("init")
    newcomer.put("a.md", "A.")
    newcomer.vmrag("commit", "-m", "a")
    assert newcomer.ask(*DISCARD.split()[1:])["everything"]["pin"] == "removed"
    assert not (newcomer.top / ".dolt-version").exists()
    assert ".dolt-version" not in newcomer.git("status", "--porcelain")


def test_of_a_committed_pin_whose_knowledge_was_discarded_it_is_said_that_nobody_has_it(project: Project) -> None:
    done = project.vmrag(*DISCARD.split()[1:])
    assert "names knowledge that is gone" in done.out
    assert "settings of git's configuration" in done.out
    assert "brings back" not in done.out


@pytest.mark.parametrize("discard", [False, True])
def test_while_git_has_the_pin_in_conflict_its_knowledge_is_not_removed(project: Project, discard: bool) -> None:
    project.record("rest", rest="Rest often.")
    project.git("merge", "feature", check=False)
    before = (project.top / ".dolt-version").read_bytes()
    error = project.vmrag("uninstall", "--all", *["--discard-knowledge"] * discard, "--json", code=1).error
    assert (error["code"], error["hint"].split(", ")[0]) == ("MERGE_CONFLICT", "vmrag resolve")
    project.vmrag("resolve", "--theirs")
    assert (project.top / ".dolt-version").read_bytes() != before


def test_what_others_wrote_stays(project: Project) -> None:
    project.write(".gitattributes", f"*.png binary\n{(project.top / '.gitattributes').read_text()}*.jpg binary\n")
    project.write(".vmrag.yaml", "embedding:\n  model: hash\nretrieval:\n  k: 3\n")
    done = project.vmrag(*DISCARD.split()[1:])
    assert (project.top / ".gitattributes").read_text() == "*.png binary\n*.jpg binary\n"
    assert ".vmrag.yaml stays: it has settings that were never committed." in done.out
    assert "k: 3" in (project.top / ".vmrag.yaml").read_text()
    assert project.pinned


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["--all", "--worktree"], "vmrag uninstall --all"),
        (["--all", "--hooks", "pre-push"], "vmrag uninstall --all"),
        (["--discard-knowledge"], "vmrag uninstall --all"),
    ],
)
def test_options_that_say_two_things_are_refused(project: Project, arguments, hint) -> None:
    assert project.vmrag("uninstall", "--json", *arguments, code=2).error["hint"] == hint
