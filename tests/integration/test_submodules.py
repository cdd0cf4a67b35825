"""Files of submodules as documents: `sources_submodules: true`."""

from __future__ import annotations

import os
import shutil
import time

import pytest

from tests.support.mcp import Tools
from tests.support.repos import Repo, isolate, make_repo
from tests.support.terminal import Project, opened
from vmrag_link import hints
from vmrag_link.ops.query.word_search import WordQuestion, WordSearch
from vmrag_link.workspace import source_tree

pytestmark = pytest.mark.hooks("off")

_ALLOW = ("-c", "protocol.file.allow=always")
SETTINGS = """\
sources_submodules: true
sources:
  - {collection: docs, paths: ["**/*.md"]}
  - {collection: code, paths: ["**/*.py"], kind: code}
"""
PAGE = "vendor/lib/docs/a.md"


@pytest.fixture
def library(tmp_path, monkeypatch) -> Repo:
    isolate(monkeypatch, tmp_path / "home")
    monkeypatch.setenv("VMRAG_EMBEDDING_MODEL", "hash")
    made = make_repo(tmp_path / "library")
    made.commit(
        "first", **{"docs/a.md": "# Alpha\n\nquokka grazing\n", "tool.py": "def wombat():\n    return 'burrow'\n"}
    )
    return made


@pytest.fixture
def project(library, tmp_path) -> Project:
    made = Project(make_repo(tmp_path / "project").top)
    made.commit("one", **{"README.md": "# Read me\n\nplatypus\n", ".vmrag.yaml": SETTINGS})
    made.git(*_ALLOW, "submodule", "--quiet", "add", str(library.top), "vendor/lib")
    made.git("commit", "-qm", "submodule")
    return made


def listed(project: Project) -> set[str]:
    return {row["doc_id"] for row in project.ask("list")["documents"]}


def texts(project: Project, query: str, *arguments: str) -> dict[str, str]:
    return {row["doc_id"]: row["text"] for row in project.ask("query", query, *arguments)["results"]}


def update_library(project: Project, library: Repo) -> None:
    """Check out a newer commit in the submodule, and commit it in the library alone."""
    library.commit("second", **{"docs/a.md": "# Alpha\n\nnumbat digging\n", "docs/b.md": "# Beta\n\nbilby\n"})
    project.git("-C", "vendor/lib", "fetch", "-q")
    project.git("-C", "vendor/lib", "checkout", "-q", "FETCH_HEAD")


def test_files_of_a_submodule_are_documents_in_each_command(project):
    assert listed(project) == {"README.md", PAGE, "vendor/lib/tool.py"}
    assert "quokka" in texts(project, "quokka")[PAGE]
    assert "quokka" in texts(project, "quokka", "--at", "HEAD")[PAGE]
    assert "wombat" in texts(project, "wombat", "--kind", "code")["vendor/lib/tool.py"]
    for name in (PAGE, f"HEAD:{PAGE}"):
        assert "quokka grazing" in project.vmrag("show", name).out
    for at in ((), ("--at", "HEAD")):
        documents = project.ask("grep", "quokka", *at)["documents"]
        assert [(row["collection"], row["doc_id"]) for row in documents] == [("docs", PAGE)]
    report = project.ask("sources")
    assert {row["collection"]: row["documents"] for row in report["sources"]} == {"docs": 2, "code": 1}
    assert (report.get("left_out", []), report["submodules"][0]["is_read"]) == ([], True)
    assert "Not read:" not in project.vmrag("sources").out


def test_submodule_is_read_only_if_the_commit_configures_it(project):
    project.commit("off", **{".vmrag.yaml": SETTINGS.replace("true", "false")})
    assert listed(project) == {"README.md"}
    assert PAGE in texts(project, "quokka", "--at", "HEAD~1")


def test_edited_file_of_a_submodule_answers_as_it_is(project):
    assert "quokka" in texts(project, "quokka")[PAGE]
    project.write(PAGE, "# Alpha\n\nechidna\n")
    assert "echidna" in texts(project, "echidna")[PAGE]
    answer = project.ask("query", "echidna")
    assert answer["kb"]["sources"]["uncommitted"] == [f"docs/{PAGE}"]
    assert "quokka" in texts(project, "quokka", "--at", "HEAD")[PAGE]
    assert "echidna" in project.vmrag("show", PAGE).out
    assert [row["doc_id"] for row in project.ask("grep", "echidna")["documents"]] == [PAGE]
    changes = project.ask("diff")["documents"]
    assert [(row["doc_id"], row["kind"]) for row in changes] == [(PAGE, "modified")]
    (project.top / PAGE).unlink()
    assert PAGE not in listed(project)


def test_submodule_at_another_commit_differs_from_head(project, library):
    texts(project, "quokka")
    update_library(project, library)
    assert "numbat" in texts(project, "numbat")[PAGE]
    assert "quokka" in texts(project, "quokka", "--at", "HEAD")[PAGE]
    kinds = {row["doc_id"]: row["kind"] for row in project.ask("diff")["documents"]}
    assert kinds == {PAGE: "modified", "vendor/lib/docs/b.md": "added"}
    project.git("commit", "-qam", "update")
    assert project.ask("diff")["documents"] == []
    assert "numbat" in texts(project, "numbat", "--at", "HEAD")[PAGE]
    assert "quokka" in texts(project, "quokka", "--at", "HEAD~1")[PAGE]
    kinds = {row["doc_id"]: row["kind"] for row in project.ask("diff", "HEAD~1..HEAD")["documents"]}
    assert kinds == {PAGE: "modified", "vendor/lib/docs/b.md": "added"}


def test_fingerprint_depends_on_the_commit_of_the_submodule(project, library):
    before = project.vmrag("fingerprint").out
    update_library(project, library)
    assert project.vmrag("fingerprint").out == before
    project.git("commit", "-qam", "update")
    assert project.vmrag("fingerprint").out != before


def test_missing_submodule_is_named(project, tmp_path):
    project.git("clone", "-q", ".", str(tmp_path / "clone"))
    clone = Project(tmp_path / "clone")
    answer = clone.ask("query", "platypus")
    assert answer["kb"]["sources"]["missing"] == ["vendor/lib/"]
    assert "vendor/lib/" in clone.vmrag("query", "platypus").out
    assert clone.ask("query", "platypus", "--at", "HEAD")["kb"]["sources"]["missing"] == ["vendor/lib/"]
    assert clone.ask("sources")["missing"] == ["vendor/lib/"]
    assert clone.vmrag("fingerprint", "--json", code=1).error["details"]["missing"] == ["vendor/lib/"]
    clone.git("config", "protocol.file.allow", "always")
    clone.git(*_ALLOW, "submodule", "--quiet", "update", "--init")
    assert "quokka" in texts(clone, "quokka")[PAGE]
    assert clone.vmrag("fingerprint").out == project.vmrag("fingerprint").out


def test_deinitialized_submodule_is_missing_but_readable_at_a_commit(project):
    project.git("submodule", "--quiet", "deinit", "--all", "--force")
    assert project.ask("query", "platypus")["kb"]["sources"]["missing"] == ["vendor/lib/"]
    assert "quokka" in texts(project, "quokka", "--at", "HEAD")[PAGE]


def test_worktree_reads_its_own_submodule(project, tmp_path):
    project.git("worktree", "add", "-q", "--detach", str(tmp_path / "second"))
    second = Project(tmp_path / "second")
    assert "quokka" in texts(second, "quokka", "--at", "HEAD")[PAGE]
    second.git(*_ALLOW, "submodule", "--quiet", "update", "--init")
    second.write(PAGE, "# Alpha\n\nechidna\n")
    assert "echidna" in texts(second, "echidna")[PAGE]
    assert "quokka" in texts(project, "quokka")[PAGE]


def test_submodule_of_a_submodule_is_read(project, library, tmp_path):
    inner = make_repo(tmp_path / "inner")
    inner.commit("inner", **{"deep.md": "# Deep\n\ndugong\n"})
    library.git(*_ALLOW, "submodule", "--quiet", "add", str(inner.top), "inner")
    library.git("commit", "-qm", "inner")
    project.git("-C", "vendor/lib", *_ALLOW, "pull", "-q", "origin", "main")
    project.git("commit", "-qam", "update")
    assert project.ask("query", "platypus")["kb"]["sources"]["missing"] == ["vendor/lib/inner/"]
    project.git(*_ALLOW, "submodule", "--quiet", "update", "--init", "--recursive")
    for at in ((), ("--at", "HEAD")):
        assert "dugong" in texts(project, "dugong", *at)["vendor/lib/inner/deep.md"]


def test_attributes_and_limits_of_a_submodule_apply(project, library):
    library.commit(
        "marks", **{".gitattributes": "gen.md linguist-generated\n", "gen.md": "# Gen\n", "big.md": "x" * 3000}
    )
    project.git("-C", "vendor/lib", *_ALLOW, "pull", "-q", "origin", "main")
    project.commit("update", **{".vmrag.yaml": f"sources_max_bytes: 2000\n{SETTINGS}"})
    project.git("commit", "-qam", "update")
    for at in ((), ("--at", "HEAD")):
        left_out = {row["path"] for row in project.ask("sources", *at)["left_out"]}
        assert left_out == {"vendor/lib/gen.md", "vendor/lib/big.md"}


def test_excluded_submodule_is_not_searched(project, tmp_path):
    project.git("clone", "-q", ".", str(tmp_path / "clone"))
    clone = Project(tmp_path / "clone")
    clone.write(
        ".vmrag.yaml", SETTINGS.replace('"**/*.md"]', '"**/*.md"], exclude: [vendor/]').replace("**/*.py", "*.py")
    )
    assert "missing" not in clone.ask("query", "platypus")["kb"]["sources"]


def test_reading_a_submodule_starts_no_program_that_it_names(project, tmp_path):
    trace, program = tmp_path / "started", tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {trace}\ncat\n")
    program.chmod(0o755)
    folder = project.top / ".git/modules/vendor/lib"
    for key in ("core.fsmonitor", "core.sshCommand", "filter.evil.clean", "filter.evil.smudge", "filter.evil.process"):
        project.git("config", "--file", str(folder / "config"), key, str(program))
    for hook in ("post-checkout", "post-index-change"):
        shutil.copy(program, folder / "hooks" / hook)
    (folder / "info/attributes").write_text("* filter=evil\n")
    project.write("vendor/lib/.gitattributes", "*.py filter=evil\n")
    project.write(PAGE, "# Alpha\n\nechidna\n")
    assert "echidna" in texts(project, "echidna")[PAGE]
    assert "quokka" in texts(project, "quokka", "--at", "HEAD")[PAGE]
    assert project.ask("grep", "echidna")["documents"]
    assert not trace.exists()


@pytest.mark.parametrize("kind", ["elsewhere", "pipe", "link", "index", "folder"])
@pytest.mark.sample(2)
def test_strange_submodule_is_named_and_not_followed(project, library, kind):
    git_file, folder = project.top / "vendor/lib/.git", project.top / ".git/modules/vendor/lib"
    if kind == "index":
        (folder / "index").unlink()
        os.mkfifo(folder / "index")
    elif kind == "folder":
        shutil.rmtree(git_file.parent)
        git_file.parent.symlink_to(library.top)
    else:
        git_file.unlink()
    if kind == "elsewhere":
        git_file.write_text(f"gitdir: {library.top / '.git'}\n")
    elif kind == "pipe":
        os.mkfifo(git_file)
    elif kind == "link":
        git_file.symlink_to(library.top / ".git")
    answer = project.ask("query", "quokka")
    assert answer["kb"]["sources"]["missing"] == ["vendor/lib/"]
    assert [row["doc_id"] for row in answer["results"]] == ["README.md"]


@pytest.mark.parametrize("command", ["log", "blame"])
def test_history_names_the_repository_of_the_submodule(project, command):
    failed = project.vmrag(command, PAGE, "--json", code=2).error
    assert (failed["code"], failed["hint"]) == ("INVALID_PARAMETER", f"run 'git -C vendor/lib {command} -- docs/a.md'")


@pytest.mark.parametrize("ref", ["", "HEAD"])
def test_search_without_an_index_reads_submodules(project, ref):
    with opened(project) as ws:
        head = project.git("rev-parse", "HEAD")
        tree = source_tree.read_commit(ws, head) if ref else source_tree.read_work_tree(ws)
        search = WordSearch(ws, tree, WordQuestion("quokka", "", None), time.monotonic() + 60)
        assert [passage.doc_id for passage in search.find_passages(500).passages] == [PAGE]
        assert [row.path for row in search.find_definitions("wombat")] == ["vendor/lib/tool.py"]


def test_tools_read_and_search_submodules(project):
    project.write(PAGE, "# Alpha\n\nechidna\n")
    tools = Tools(project.top)
    assert "echidna" in tools("read", name=PAGE)
    assert "quokka" in tools("read", name=PAGE, ref="HEAD")
    answer = tools("grep", pattern="echidna")
    assert PAGE in answer
    assert PAGE in answer.message


def test_submodule_that_head_does_not_name_is_added(project, library):
    project.git(*_ALLOW, "submodule", "--quiet", "add", str(library.top), "other")
    answer = project.ask("query", "quokka")
    assert set(answer["kb"]["sources"]["uncommitted"]) == {"code/other/tool.py", "docs/other/docs/a.md"}
    assert {row["doc_id"]: row["kind"] for row in project.ask("diff")["documents"]} == {"other/docs/a.md": "added"}


def test_missing_objects_of_a_submodule_are_named(project, library):
    library.git("config", "uploadpack.allowFilter", "true")
    library.commit("second", **{"docs/a.md": "# Alpha\n\nnumbat\n"})
    submodule = ("-C", "vendor/lib")
    project.git(*submodule, "config", "remote.origin.promisor", "true")
    project.git(*submodule, *_ALLOW, "fetch", "-q", "--filter=blob:none", "origin")
    project.git("update-index", "--cacheinfo", f"160000,{library.git('rev-parse', 'HEAD')},vendor/lib")
    project.git("commit", "-qm", "update")
    assert project.ask("query", "platypus", "--at", "HEAD")["kb"]["sources"]["missing"] == [PAGE]
    assert project.vmrag("fingerprint", "--json", code=1).error["details"]["missing"] == [PAGE]
    assert "quokka" in texts(project, "quokka")[PAGE]


def test_history_tool_names_the_repository_of_the_submodule(project):
    error = Tools(project.top).error("INVALID_PARAMETER", "history", name=PAGE)
    assert hints.list_commands(error["suggestions"][0]) == ["git -C vendor/lib log -- docs/a.md"]
