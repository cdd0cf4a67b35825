"""`vmrag link` and `vmrag links`: by hand, from the queue that hooks fill, and derived from git's
history.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support import terminal
from tests.support.terminal import Project

template = terminal.template


@pytest.fixture
def project(template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """Nothing is linked yet: what the hooks queued while the template was built is forgotten, and
    they queue no more.
    """
    made = terminal.copied(template, tmp_path, monkeypatch)
    (made.shared / "links.queue").unlink()
    made.vmrag("uninstall")
    return made


def links(project: Project, *options: str) -> dict[str, dict[str, str]]:
    return {link["git_commit"]: link for link in project.ask("links", "list", *options)["links"]}


def commit_of(project: Project, ref: str = "HEAD") -> str:
    return project.git("rev-parse", ref)


def test_commit_is_linked_to_the_current_revision(project: Project) -> None:
    report = project.ask("link")
    assert report == {
        "link": {
            "dolt_commit": project.pinned,
            "dolt_branch": "main",
            "git_commit": commit_of(project),
            "git_branch": "main",
            "git_repo": str(project.top),
        },
        "bidirectional": {"enabled": False, "link_file": ".dolt-version", "file_created": False, "staged": False},
        "warnings": [],
    }
    row = links(project)[commit_of(project)]
    assert (row["dolt_commit"], row["source"], row["superseded_by"]) == (project.pinned, "manual", "")
    assert project.git("status", "--porcelain") == ""


def test_linking_again_replaces_the_row_and_moves_nothing_else(project: Project) -> None:
    project.ask("link")
    before = project.pinned, project.git("rev-parse", "HEAD"), project.ask("branch")
    project.ask("link")
    assert len(links(project)) == 1
    assert (project.pinned, project.git("rev-parse", "HEAD"), project.ask("branch")) == before
    assert project.status()["in_sync"]


def test_link_accepts_any_commit_and_stores_branch_only_for_head(project: Project) -> None:
    first = project.ask("link", "--git-commit", "first")["link"]
    assert (first["git_commit"], first["git_branch"]) == (commit_of(project, "first"), None)
    project.git("checkout", "-q", "--detach")
    assert project.ask("link")["link"]["git_branch"] is None


def test_link_file_names_the_revision_and_is_staged(project: Project) -> None:
    report = project.ask("link", "--bidirectional")
    assert report["bidirectional"] == {
        "enabled": True,
        "link_file": ".dolt-version",
        "file_created": False,
        "staged": True,
    }
    assert project.git("status", "--porcelain") == ""  # it named that already: not a byte has changed


def test_link_file_has_the_encoding_of_a_pin(project: Project) -> None:
    (project.top / "deep").mkdir()
    report = project.ask("link", "--bidirectional", "--link-file", "deep/knowledge.dolt-version")["bidirectional"]
    assert (report["file_created"], report["staged"]) == (True, True)
    assert (project.top / "deep/knowledge.dolt-version").read_bytes() == (project.top / ".dolt-version").read_bytes()
    again = project.ask("link", "--bidirectional", "--link-file", "deep/knowledge.dolt-version")["bidirectional"]
    assert (again["file_created"], again["staged"]) == (False, True)


@pytest.mark.parametrize(
    "file", ["../.dolt-version", "/etc/passwd", ".git/config", "deep/../../.dolt-version", "docs", "link.dolt-version"]
)
def test_link_file_outside_work_tree_is_refused_without_a_link(project: Project, file: str) -> None:
    (project.top / "link.dolt-version").symlink_to("/etc/hostname")
    error = project.vmrag("link", "--bidirectional", "--link-file", file, "--json", code=2).error
    assert (error["code"], error["details"]["parameter"]) == ("INVALID_PARAMETER", "link_file")
    assert links(project) == {}


def test_link_leaves_out_uncommitted_documents_with_a_warning(project: Project) -> None:
    project.put("draft.md", "A draft.")
    report = project.ask("link", "--bidirectional")
    assert [warning["code"] for warning in report["warnings"]] == ["UNCOMMITTED_CHANGES"]
    assert report["link"]["dolt_commit"] == project.pinned
    assert project.marks()["draft.md"] == "added"


def test_bare_repository_gets_a_row_and_no_file(project: Project, tmp_path: Path) -> None:
    bare = tmp_path / "bare.git"
    project.git("clone", "-q", "--bare", str(project.top), str(bare))
    subprocess.run(
        ["git", "-C", bare, "config", "remote.origin.url", "https://me:secret@host.example/code.git"], check=True
    )
    report = project.ask("link", "--repo", str(bare), "--git-commit", "feature", "--bidirectional")
    assert [warning["code"] for warning in report["warnings"]] == ["BARE_REPOSITORY"]
    assert report["bidirectional"]["file_created"] is False
    assert report["link"]["git_repo"] == "https://host.example/code.git"
    assert links(project)[commit_of(project, "feature")]["git_repo_url"] == "https://host.example/code.git"


def test_external_repository_can_be_linked_and_gets_the_file(project: Project, tmp_path: Path) -> None:
    other = Project(tmp_path / "other")
    project.git("clone", "-q", str(project.top), str(other.top))
    other.git("rm", "-q", ".dolt-version")
    other.git("commit", "-q", "-m", "without")
    report = project.ask("link", "--repo", "../other", "--bidirectional")
    assert (report["bidirectional"]["file_created"], report["bidirectional"]["staged"]) == (True, True)
    assert other.pinned == project.pinned
    assert other.git("diff", "--cached", "--name-only") == ".dolt-version"


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (("--git-commit", "nowhere"), "GIT_COMMIT_NOT_FOUND"),
        (("--git-commit", "--all"), "GIT_COMMIT_NOT_FOUND"),
        (("--repo", "nowhere"), "GIT_REPO_NOT_FOUND"),
    ],
)
def test_link_rejects_missing_objects(project: Project, options: tuple[str, ...], code: str) -> None:
    result = project.vmrag("link", *options, "--json", code=None)
    assert result.error["code"] == code
    assert result.error["hint"]
    assert links(project) == {}


# -- derived from history


def test_rebuilding_derives_a_row_for_every_commit_that_brings_a_pin(project: Project) -> None:
    project.write("code.py", "1")
    project.git("add", "code.py")
    project.git("commit", "-q", "-m", "code alone")
    report = project.ask("links", "rebuild")
    assert report == {"derived": 3, "changed": 3, "removed": 0, "manual": 0}
    rows = links(project)
    assert set(rows) == {commit_of(project, ref) for ref in ("first", "feature", "main~1")}
    for ref in ("first", "feature", "main~1"):
        assert rows[commit_of(project, ref)]["dolt_commit"] in project.git("show", f"{ref}:.dolt-version")
    assert project.ask("links", "rebuild") == {"derived": 3, "changed": 0, "removed": 0, "manual": 0}


def test_rebuilding_keeps_manual_links_and_drops_lost_commits(project: Project) -> None:
    project.ask("links", "rebuild")
    project.ask("link", "--git-commit", "first")
    project.git("branch", "-q", "-D", "feature")
    assert project.ask("links", "rebuild") == {"derived": 1, "changed": 0, "removed": 1, "manual": 1}
    assert {link["source"] for link in links(project).values()} == {"manual", "pin"}


def test_commit_without_link_row_shows_the_pin_in_its_tree(project: Project) -> None:
    shown = project.ask("links", "show", "feature")
    assert shown["dolt_commit"] in project.git("show", "feature:.dolt-version")
    assert shown["git_commit"] == commit_of(project, "feature")
    project.ask("link", "--git-commit", "feature")
    assert project.ask("links", "show", "feature")["dolt_commit"] == project.pinned
    project.git("rm", "-q", ".dolt-version")
    project.git("commit", "-q", "-m", "without")
    error = project.vmrag("links", "show", "HEAD", "--json", code=1).error
    assert error["code"] == "LINK_NOT_FOUND"


def test_commits_of_a_revision_can_be_listed(project: Project) -> None:
    project.ask("links", "rebuild")
    assert list(links(project, "--revision", project.pinned)) == [commit_of(project)]
    assert links(project, "--revision", "0" * 40) == {}


# -- queued by hooks


def queue(project: Project, *lines: str) -> None:
    with (project.shared / "links.queue").open("a") as file:
        file.writelines(f"{line}\n" for line in lines)


def test_queued_commits_are_linked_by_the_next_command(project: Project) -> None:
    queue(project, f"commit {commit_of(project)} main", f"commit {commit_of(project, 'feature')} feature")
    rows = links(project)
    assert {value["git_branch"] for value in rows.values()} == {"main", "feature"}
    assert rows[commit_of(project)]["linked_at"] in project.git("show", "HEAD:.dolt-version")
    assert not (project.shared / "links.queue").exists()
    before = links(project)
    queue(project, f"commit {commit_of(project)} main")
    assert links(project) == before
    assert project.ask("links", "rebuild")["changed"] == 1  # `first` was never queued


def test_amended_commit_is_superseded_by_its_successor(project: Project) -> None:
    old = commit_of(project)
    queue(project, f"commit {old} main")
    project.git("commit", "-q", "--amend", "-m", "amended")
    new = commit_of(project)
    queue(project, f"rewrite {old} {new}")
    rows = links(project)
    assert (rows[old]["superseded_by"], rows[new]["superseded_by"]) == (new, "")
    assert rows[new]["dolt_commit"] == rows[old]["dolt_commit"]


def test_queue_with_rubbish_and_commits_that_are_gone_is_worked_off(project: Project) -> None:
    queue(
        project, "commit", "rm -rf /", "commit " + "0" * 40 + " main", f"commit {commit_of(project)} ünï", "commit 12"
    )
    assert list(links(project)) == [commit_of(project)]


def test_commit_that_brings_no_pin_of_its_own_gets_no_row(project: Project) -> None:
    project.write("code.py", "1")
    project.git("add", "code.py")
    project.git("commit", "-q", "-m", "code alone")
    queue(project, f"commit {commit_of(project)} main")
    assert links(project) == {}


def test_link_by_hand_outlives_the_queue(project: Project) -> None:
    project.git("switch", "-q", "feature")
    project.ask("link", "--git-commit", "main")
    queue(project, f"commit {commit_of(project, 'main')} main")
    (row,) = links(project).values()
    assert (row["source"], row["dolt_commit"]) == ("manual", project.pinned)
