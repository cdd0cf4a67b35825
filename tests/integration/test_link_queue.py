"""From what git does, with our hooks, to rows of links; and how the queue between them loses
nothing.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support import terminal
from tests.support.repos import DATABASE_FILE
from tests.support.terminal import Project
from vmrag_link.ops.links import link_queue

template, project = terminal.template, terminal.project


def links(project: Project) -> dict[str, dict[str, str]]:
    return {link["git_commit"]: link for link in project.ask("links", "list")["links"]}


def commit_of(project: Project, ref: str = "HEAD") -> str:
    return project.git("rev-parse", ref)


# -- real git, real hooks


def amend(project: Project) -> dict[str, str]:
    old = commit_of(project)
    project.git("commit", "-q", "--amend", "-m", "in other words")
    return {old: commit_of(project)}


def amend_and_back(project: Project) -> dict[str, str]:
    """Create the same commit again: it is no longer superseded."""
    old, message = commit_of(project), project.git("log", "-1", "--format=%B")
    project.git("commit", "-q", "--amend", "-m", "in other words")
    new = commit_of(project)
    project.git("commit", "-q", "--amend", "-m", message)
    assert commit_of(project) == old
    return {new: old}


def rebase(project: Project, *options: str) -> dict[str, str]:
    project.git("switch", "-q", "feature")
    project.record("more", more="More.")
    old = project.git("rev-list", "--reverse", "main..").split()
    project.git("rebase", "-q", *options, "main")
    return dict(zip(old, project.git("rev-list", "--reverse", "main..").split(), strict=True))


def squash(project: Project) -> dict[str, str]:
    project.git("switch", "-q", "feature")
    project.record("more", more="More.")
    old = project.git("rev-list", "main..").split()
    project.git("rebase", "-q", "-i", "main", env={"GIT_SEQUENCE_EDITOR": "sed -i 2s/pick/fixup/"})
    return dict.fromkeys(old, commit_of(project))


def edited(project: Project) -> dict[str, str]:
    project.git("switch", "-q", "feature")
    old = commit_of(project)
    project.git("rebase", "-q", "-i", "main", env={"GIT_SEQUENCE_EDITOR": "sed -i 1s/pick/edit/"})
    project.git("commit", "-q", "--amend", "-m", "edited")
    project.git("rebase", "--continue")
    return {old: commit_of(project)}


def pick(project: Project) -> dict[str, str]:
    project.git("cherry-pick", "feature")
    return {}


def revert(project: Project) -> dict[str, str]:
    project.git("revert", "--no-edit", "HEAD")
    return {}


def merge(project: Project) -> dict[str, str]:
    project.git("merge", "-q", "--no-edit", "feature")
    return {}


def merge_of_one_side(project: Project) -> dict[str, str]:
    project.git("switch", "-q", "-c", "code", "first")
    project.commit("code", code="1")
    project.git("merge", "-q", "--no-edit", "main")
    return {}


def squash_merge(project: Project) -> dict[str, str]:
    project.git("merge", "-q", "--squash", "feature")
    project.git("commit", "-q", "-m", "all of it")
    return {}


def am(project: Project) -> dict[str, str]:
    project.git("switch", "-q", "-c", "mailed", "first")
    project.git("am", "-q", stdin=project.git("format-patch", "--stdout", "first..feature") + "\n")
    return {}


def in_a_work_tree(project: Project) -> dict[str, str]:
    project.git("worktree", "add", "-q", "../linked", "feature")
    Project(project.top.with_name("linked")).record("more", more="More.")
    return {}


def backwards(project: Project) -> dict[str, str]:
    """Commits that no ref reaches keep a row until the links are derived again."""
    project.git("reset", "-q", "--hard", "first")
    return {}


@pytest.mark.parametrize(
    "happens",
    [
        amend,
        amend_and_back,
        rebase,
        lambda project: rebase(project, "--apply"),
        squash,
        edited,
        pick,
        revert,
        merge,
        merge_of_one_side,
        squash_merge,
        am,
        in_a_work_tree,
        backwards,
    ],
    ids=lambda function: function.__name__.replace("<lambda>", "rebase --apply"),
)
@pytest.mark.sample(3)
def test_hooks_record_the_links_of_the_history(project: Project, happens: Callable[[Project], dict[str, str]]) -> None:
    links(project)
    superseded = happens(project)
    written = links(project)
    rebuilt = project.ask("links", "rebuild")
    derived = links(project)
    reachable = set(project.git("rev-list", "--all").split())
    assert rebuilt["changed"] == 0
    assert derived == {commit: row for commit, row in written.items() if commit in reachable}
    result = {commit: row["superseded_by"] for commit, row in written.items() if row["superseded_by"]}
    assert superseded.items() <= result.items()
    assert not {commit for commit in result if commit in reachable}


def test_rebased_commit_keeps_the_name_of_its_branch(project: Project) -> None:
    moved = rebase(project)
    rows = links(project)
    assert {rows[new]["git_branch"] for new in moved.values()} == {"feature"}


# -- many at once


def counted(project: Project, trace: Path, *arguments: str) -> int:
    """How many git processes a command starts."""
    trace.unlink(missing_ok=True)
    project.vmrag(*arguments, env={"GIT_TRACE2_EVENT": str(trace)})
    events = (json.loads(line) for line in trace.read_text().splitlines())
    return sum(event["event"] == "start" for event in events)


def grown(project: Project, number: int) -> list[str]:
    """So many commits on `many`, each with a pin of its own; made without hooks."""
    pin = (project.top / ".dolt-version").read_text()
    stream = [f"reset refs/heads/many\nfrom {commit_of(project)}\n"]
    for index in range(number):
        content = pin.replace(project.pinned, f"{index:040x}")
        stream.append(
            f"commit refs/heads/many\ncommitter A <a@example.com> {1_800_000_000 + index} +0000\ndata 1\nx\n"
            f"M 100644 inline .dolt-version\ndata {len(content)}\n{content}\n"
        )
    project.git("fast-import", "--quiet", stdin="".join(stream))
    return project.git("rev-list", "--reverse", "main..many").split()


def test_thousand_commits_cost_as_many_git_calls_as_one(project: Project, tmp_path: Path) -> None:
    commits = grown(project, 1000)
    project.vmrag("links")
    queue = project.shared / "links.queue"
    queue.write_text(f"commit {commits[0]} many\n")
    one = counted(project, tmp_path / "trace", "links")
    queue.write_text("".join(f"commit {commit} many\n" for commit in commits))
    assert counted(project, tmp_path / "trace", "links") == one
    rows = links(project)
    assert [rows[commit]["dolt_commit"] for commit in commits] == [f"{number:040x}" for number in range(1000)]
    assert project.ask("links", "rebuild")["changed"] == 0


def test_shallow_clone_links_its_available_commits(project: Project, tmp_path: Path) -> None:
    """The oldest commit there has parents that are not there: it counts as the first one, as it
    does in `links rebuild`.
    """
    project.git("clone", "-q", "--depth", "1", f"file://{project.top}", str(tmp_path / "clone"))
    clone = Project(tmp_path / "clone")
    clone.shared.mkdir()
    (clone.shared / "kb").symlink_to(project.shared / "kb")
    (clone.shared / "links.queue").write_text(f"commit {commit_of(clone)} main\n")
    assert commit_of(clone) in links(clone)


# -- the queue


def write(project: Project, *lines: str) -> None:
    (project.shared / "links.queue").write_text("".join(f"{line}\n" for line in lines))


@pytest.fixture
def quiet(project: Project) -> Project:
    """Nothing waits, and no hook adds to it."""
    project.vmrag("uninstall")
    project.vmrag("links")
    for path in project.shared.glob("links.queue*"):
        path.unlink()
    return project


def test_line_written_after_queue_was_processed_is_not_lost(quiet: Project) -> None:
    commits = grown(quiet, 3)
    write(quiet, f"commit {commits[0]} many")
    with (quiet.shared / "links.queue").open("a") as late:
        assert commits[0] in links(quiet)
        late.write(f"commit {commits[1]} many\n")
        late.flush()
        write(quiet, f"commit {commits[2]} many")
        assert links(quiet).keys() >= {commits[1], commits[2]}
        late.write("commit 12")  # half a line
        late.flush()
        links(quiet)
        late.write(f"34\ncommit {commits[0]} other\n")
    assert links(quiet)[commits[0]]["git_branch"] == "other"


def test_commits_queued_during_processing_are_linked(quiet: Project) -> None:
    commits = grown(quiet, 600)
    shim = 'while read -r each; do echo "commit $each many" >>.git/vmrag/links.queue; done'
    writing = subprocess.Popen(["sh", "-c", shim], cwd=quiet.top, stdin=subprocess.PIPE, text=True)
    assert writing.stdin
    other = subprocess.Popen([terminal.SCRIPT, "links"], cwd=quiet.top, stdout=subprocess.DEVNULL)
    for number in range(0, len(commits), 100):
        writing.stdin.write("".join(f"{commit}\n" for commit in commits[number : number + 100]))
        writing.stdin.flush()
        quiet.vmrag("links")
    writing.stdin.close()
    assert (writing.wait(), other.wait()) == (0, 0)
    assert links(quiet).keys() >= set(commits)


def test_queue_is_removed_after_its_last_writer(quiet: Project, monkeypatch) -> None:
    commits = grown(quiet, 2)
    write(quiet, f"commit {commits[0]} many")
    links(quiet)
    (taken,) = quiet.shared.glob("links.queue*")
    with taken.open("a") as late:
        late.write(f"commit {commits[1]} many\n")
    monkeypatch.setattr(link_queue, "GRACE_SECONDS", 0.0)
    assert commits[1] in links(quiet)
    assert list(quiet.shared.glob("links.queue*")) == []


def test_nothing_is_written_without_changes(quiet: Project, tmp_path: Path) -> None:
    before = (quiet.shared / "kb" / DATABASE_FILE).read_bytes()
    rows = links(quiet)
    row = next(iter(rows.values()))
    write(quiet, f"commit {row['git_commit']} {row['git_branch']}")
    assert links(quiet) == rows
    assert (quiet.shared / "kb" / DATABASE_FILE).read_bytes() == before


@pytest.mark.parametrize(
    "line",
    [
        "",
        "commit",
        "commit --all main",
        "commit " + "0" * 40 + " main",
        "rewrite " + "0" * 40 + " --all",
        "rewrite " + "0" * 40 + " " + "1" * 40,
        "commit TREE main",
        "rewrite HEAD TREE",
        "commit HEAD\x85 main",
        "\udcff",
    ],
)
@pytest.mark.sample(3)
def test_line_that_names_no_commit_is_passed_over(quiet: Project, line: str) -> None:
    commits = grown(quiet, 1)
    text = line.replace("TREE", commit_of(quiet, "HEAD^{tree}")).replace("HEAD", commit_of(quiet))
    queue = quiet.shared / "links.queue"
    queue.write_bytes(f"{text}\ncommit {commits[0]} many\n".encode(errors="surrogateescape"))
    rows: dict[str, Any] = links(quiet)
    assert commits[0] in rows


def test_branch_of_any_name_is_kept(quiet: Project) -> None:
    commits = grown(quiet, 2)
    queue = quiet.shared / "links.queue"
    queue.write_bytes(f"commit {commits[0]} a\u2028b c\n".encode() + f"commit {commits[1]} ".encode() + b"\xff\n")
    rows = links(quiet)
    assert (rows[commits[0]]["git_branch"], rows[commits[1]]["git_branch"]) == ("a\u2028b c", "\ufffd")
