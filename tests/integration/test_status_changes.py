"""`vmrag status`: what is not committed, what differs from imported files, what is not pushed."""

from __future__ import annotations

import json
import os
import shlex
import time
from pathlib import Path

import pytest

from tests.support import terminal
from tests.support.terminal import Project, opened
from vmrag_link.documents import seen_files
from vmrag_link.engines.base import Write
from vmrag_link.models import Document
from vmrag_link.ops.documents import file_changes
from vmrag_link.ops.documents.update import DocumentUpdate, update

pytestmark = pytest.mark.hooks("off")

template, project = terminal.template, terminal.project


def changes(project: Project) -> dict:
    return project.ask("status")["changes"]


def documents(project: Project) -> dict[str, str]:
    return {f"{each['collection']}/{each['doc_id']}": each["kind"] for each in changes(project)["documents"]}


def files(project: Project) -> dict[str, str]:
    return {each["path"]: each["kind"] for each in changes(project)["files"]["files"]}


def follow(project: Project) -> None:
    """Type the commands that status prints for files."""
    for command in changes(project)["files"]["commands"]:
        project.vmrag(*shlex.split(command)[1:])


# -- documents -------------------------------------------------------------------------------------


def test_documents_are_listed_with_what_became_of_them_and_what_to_type(project):
    project.put("new.md", "New.")
    project.put("rest.md", "Changed.")
    project.drop("faq.md")
    project.put("a", "text", collection="notes")
    assert project.vmrag("status").out.split("\n\n")[1].splitlines() == [
        "Documents not committed:",
        '  (use "vmrag diff" to see, "vmrag commit" to keep them)',
        '  (use "vmrag restore NAME" to discard them)',
        "    added:     notes/ (a new collection)",
        "    removed:   handbook/faq.md",
        "    added:     handbook/new.md",
        "    modified:  handbook/rest.md",
        "    added:     notes/a",
    ]
    assert documents(project) == {
        "handbook/faq.md": "removed",
        "handbook/new.md": "added",
        "handbook/rest.md": "modified",
        "notes/a": "added",
    }
    project.vmrag("restore", "--yes")
    assert (documents(project), changes(project)["collections"]) == ({}, [])


def test_of_many_documents_something_of_each_kind_is_seen(project):
    names = [f"{number:02}.md" for number in range(60)]
    with opened(project) as ws:
        branch = ws.kb_branch()
        rows = [Document("handbook", each, each, "text", "0" * 64) for each in names]
        ws.engine.write(branch.name, Write(put_documents=rows), expected=branch.head)
    project.put("rest.md", "Changed.")
    project.drop("faq.md")
    said = project.vmrag("status").out.split("\n\n")[1].splitlines()
    listed = [line.split() for line in said[3:]]
    assert [line for line in listed if line[0] != "added:"] == [
        ["removed:", "handbook/faq.md"],
        ["modified:", "handbook/rest.md"],
        ["…", "and", "42", "more", "added", "(-v", "shows", "all)"],
    ]
    assert sum(line[0] == "added:" for line in listed) == 18
    every = project.vmrag("status", "-v").out
    assert all(f"handbook/{each}" in every for each in names)
    assert "more added" not in every
    assert len(documents(project)) == 62


# -- files -----------------------------------------------------------------------------------------


def test_files_that_differ_from_what_was_imported_are_listed_and_the_command_takes_them_in(project):
    project.vmrag("import", "docs", "--collection", "handbook", "--copy")
    assert files(project) == {}
    project.write("docs/setup.md", "# Setup\n\nInstall the program with uv.\n")
    project.write("docs/more/new.md", "# New\n")
    project.write("docs/.hidden.md", "# Hidden\n")
    project.write("docs/picture.xyz", "no document")
    project.write("elsewhere/other.md", "# Not imported\n")
    (project.top / "docs/deep/tls.txt").unlink()
    assert files(project) == {
        "docs/deep/tls.txt": "removed",
        "docs/more/new.md": "added",
        "docs/setup.md": "modified",
    }
    assert project.vmrag("status").out.split("\n\n")[1].splitlines() == [
        "Files that differ from their documents:",
        '  (use "vmrag import docs --collection handbook --prune")',
        "    removed:   docs/deep/tls.txt",
        "    added:     docs/more/new.md",
        "    modified:  docs/setup.md",
    ]
    follow(project)
    assert files(project) == {}
    assert documents(project) == {
        "handbook/deep/tls.txt": "removed",
        "handbook/more/new.md": "added",
        "handbook/setup.md": "modified",
    }


def test_without_a_record_of_what_was_imported_files_are_compared_and_named_one_by_one(project):
    """As in a clone: whoever imported them did it elsewhere."""
    (project.own / "seen-files.json").unlink()
    (project.top / "docs/deep/tls.txt").unlink()  # perhaps it never was here
    project.write("docs/setup.md", "# Setup\n\nInstall the program with uv.\n")
    project.write("docs/new.md", "# New\n")
    assert files(project) == {"docs/setup.md": "modified"}
    assert changes(project)["files"]["commands"] == ["vmrag import docs/setup.md --collection handbook"]
    follow(project)
    assert files(project) == {}
    (project.top / "docs/rest.md").unlink()
    assert files(project) == {"docs/rest.md": "removed"}
    assert changes(project)["files"]["commands"] == ["vmrag rm handbook/rest.md"]
    follow(project)
    assert files(project) == {}


def test_a_folder_that_was_renamed_is_proposed_under_its_new_name(project):
    project.vmrag("import", "docs", "--collection", "handbook", "--copy")
    (project.top / "wiki").mkdir()
    project.git("mv", "docs", "wiki/pages")
    assert set(files(project).values()) == {"removed"}
    wider = "vmrag import wiki/pages --collection handbook --base ."  # ids counted from docs
    assert changes(project)["files"]["commands"] == [wider]
    follow(project)
    assert files(project) == {}
    assert "docs" not in json.loads((project.own / "seen-files.json").read_text())["folders"]["handbook"]
    project.git("commit", "-q", "-m", "wiki")
    project.git("mv", "wiki/pages", "wiki/all")
    assert changes(project)["files"]["commands"] == ["vmrag import wiki/all --collection handbook"]
    follow(project)
    assert (files(project), changes(project)["files"]["commands"]) == ({}, [])


def test_of_a_folder_that_is_gone_the_documents_go_and_no_folder_is_named(project):
    project.vmrag("import", "docs", "--collection", "handbook", "--copy")
    project.git("rm", "-q", "-r", "docs")
    assert changes(project)["files"]["commands"] == [
        "vmrag rm handbook/deep/tls.txt handbook/rest.md handbook/setup.md"
    ]
    project.vmrag("rm", *changes(project)["files"]["commands"][0].split()[2:])
    assert files(project) == {}


def test_many_files_that_were_imported_one_by_one_are_proposed_and_nothing_beside_them(project):
    names = [f"notes/{number:02}.md" for number in range(30)]
    for each in [*names, "notes/private.md"]:
        project.write(each, f"# {each}\n")
    project.vmrag("import", *names, "--collection", "notes", "--copy")
    for each in names:
        project.write(each, f"# {each}\n\nMore.\n")
    assert changes(project)["files"]["commands"] == [f"vmrag import {' '.join(names)} --collection notes"]
    follow(project)
    assert files(project) == {}
    assert "private.md" not in str(documents(project))


def test_what_the_import_left_out_is_not_missed_and_the_command_leaves_it_out_again(project):
    project.vmrag("import", "docs", "--collection", "handbook", "--copy", "--exclude", "drafts/")
    project.write(".gitignore", "build/\n")
    project.write(".gitattributes", "docs/api.md linguist-generated\n")
    for name in ("build/made.md", "drafts/idea.md", "api.md"):
        project.write(f"docs/{name}", "# Left out\n")
    assert files(project) == {}
    project.write("docs/new.md", "# New\n")
    assert files(project) == {"docs/new.md": "added"}
    assert changes(project)["files"]["commands"] == ["vmrag import docs --collection handbook --exclude drafts/"]
    follow(project)
    assert files(project) == {}
    assert {name.partition("/")[2] for name in documents(project)} == {"new.md"}


def test_a_file_with_the_same_stamp_is_not_read_again(project, monkeypatch):
    aged(project)
    assert files(project) == {}
    reads: list[str] = []
    content = seen_files._content
    monkeypatch.setattr(seen_files, "_content", lambda path, status: reads.append(path) or content(path, status))
    assert files(project) == {}
    assert reads == []
    (project.top / "docs/rest.md").touch()
    assert files(project) == {}
    assert [Path(each).name for each in reads] == ["rest.md"]


def test_a_change_within_the_time_stamp_of_the_last_look_is_seen(project):
    path = project.top / "docs/setup.md"
    path.write_text("# Setup\n\nInstall it with pip, once.\n")
    at = time.time_ns()
    os.utime(path, ns=(at, at))
    project.vmrag("import", "docs", "--collection", "handbook", "--copy")
    path.write_text("# Setup\n\nInstall it with pip, anew.\n")
    os.utime(path, ns=(at, at))
    assert files(project) == {"docs/setup.md": "modified"}


def test_changed_front_matter_counts_and_what_a_person_added_does_not(project):
    project.write("docs/team.md", "---\nteam: core\n---\n# Team\n")
    project.vmrag("import", "docs/team.md", "--collection", "handbook", "--copy")
    with opened(project) as ws:
        update(ws, "handbook", [DocumentUpdate("team.md", metadata={"team": "core", "year": 2026})])
    assert files(project) == {}
    project.write("docs/team.md", "---\nteam: docs\n---\n# Team\n")
    assert files(project)["docs/team.md"] == "modified"


def test_what_has_to_be_converted_is_converted_for_a_moment_and_the_rest_is_said(project, monkeypatch):
    project.write("docs/table.csv", "name,age\nAda,36\n")
    project.vmrag("import", "docs", "--collection", "handbook", "--copy")
    monkeypatch.setattr(file_changes, "CONVERTING_SECONDS", 0.0)
    assert files(project) == {}
    project.write("docs/table.csv", "name,age\nAda,37\n")
    assert (files(project), changes(project)["files"]["unknown"]) == ({}, 1)
    assert "have to be converted first: 1 file." in project.vmrag("status").out
    monkeypatch.undo()
    assert files(project) == {"docs/table.csv": "modified"}
    assert changes(project)["files"]["unknown"] == 0


def test_documents_of_strangers_have_no_file_read_outside_of_the_work_tree_and_none_again_and_again(
    project, tmp_path, monkeypatch
):
    (tmp_path / "secret.md").write_text("secret")
    (project.top / "out").symlink_to(tmp_path)
    (project.top / "docs/link.md").symlink_to(tmp_path / "secret.md")
    os.mkfifo(project.top / "docs/pipe.md")
    (project.top / ".git/secret.md").write_text("secret")
    (project.top / "docs/image.png").write_bytes(b"no text")
    (project.top / "docs/alias.png").symlink_to("image.png")
    outside = ["../secret.md", str(tmp_path / "secret.md"), "out/secret.md", "docs/link.md", ".git/secret.md"]
    images = ["docs/image.png", "docs/image.png", "docs/alias.png"]
    project.put("first", "text")
    with opened(project) as ws:
        branch = ws.kb_branch()
        rows = [
            Document("handbook", f"{number}", "", "text", "0" * 64, source=each)
            for number, each in enumerate([*outside, *images, "docs/pipe.md", "docs/" + "x" * 300])
        ]
        ws.engine.write(branch.name, Write(put_documents=rows), expected=branch.head)
    content = seen_files._content
    read: list[str] = []
    monkeypatch.setattr(seen_files, "_content", lambda path, status: read.append(path) or content(path, status))
    assert files(project) == {}
    assert changes(project)["files"]["unknown"] == 4  # with the pipe, which is not opened
    assert not [each for each in read if "secret" in each or "link" in each]
    assert len([each for each in read if each.endswith(".png")]) == 2  # once for each of the two commands


def test_a_checkout_of_another_branch_compares_with_that_branch(project):
    project.write("docs/setup.md", "# Setup\n\nInstall it with uv.\n")
    project.vmrag("import", "docs/setup.md", "--collection", "handbook", "--copy")
    project.vmrag("commit", "-m", "uv")
    project.git("commit", "-qam", "uv")
    assert files(project) == {}
    project.git("switch", "-q", "feature")
    project.vmrag("sync")
    assert files(project) == {  # documents that this branch removed, and wrote by hand
        "docs/deep/tls.txt": "added",
        "docs/rest.md": "modified",
    }
    project.git("switch", "-q", "main")
    project.vmrag("sync")
    assert files(project) == {}


def aged(project: Project) -> None:
    """The files are as old as those of a person who works here since yesterday."""
    for path in (project.top / "docs").rglob("*.*"):
        os.utime(path, (path.stat().st_atime, time.time() - 86_400))


# -- what is not pushed ----------------------------------------------------------------------------


def test_revisions_that_the_remote_is_not_known_to_have_are_counted(project, tmp_path):
    assert changes(project)["unpushed"] is None
    project.git("init", "-q", "--bare", str(tmp_path / "origin.git"))
    project.git("remote", "add", "origin", str(tmp_path / "origin.git"))
    assert changes(project)["unpushed"] == {"remote": "origin", "revisions": 2, "problem": ""}
    project.vmrag("push")
    assert changes(project)["unpushed"]["revisions"] == 0
    assert "  remote     origin, nothing to push\n" in project.vmrag("status").out
    project.record("one", one="1")
    project.record("two", two="2")
    (tmp_path / "origin.git").rename(tmp_path / "away.git")  # nothing asks it
    assert "  remote     origin, 2 revisions not pushed: vmrag push\n" in project.vmrag("status").out
