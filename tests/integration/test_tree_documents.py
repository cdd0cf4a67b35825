"""Documents of sources: they match the files after each kind of change."""

from __future__ import annotations

import random
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from tests.support.long import examples
from tests.support.repos import Repo, isolate
from tests.support.sources import SETTINGS
from tests.support.terminal import SCRIPT, Project, new_project, opened
from vmrag_link.code import languages
from vmrag_link.errors import IndexExtraMissing
from vmrag_link.sync import source_views
from vmrag_link.workspace.indexed_rows import IndexedRows

pytestmark = pytest.mark.hooks("off")

APP = '''\
"""An app."""

class Session:
    def refresh(self):
        return "token"


def parse_args(argv):
    return argv[1:]
'''


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """Two files of documents and one of code, committed; no knowledge base."""
    isolate(monkeypatch, tmp_path / "home")
    project = new_project(tmp_path / "project", settings=SETTINGS)
    project.write("docs/setup.md", "# Setup\n\nThe port is eighty.\n")
    project.write("README.md", "# Tool\n\nAbout the tool.\n")
    project.write("src/app.py", APP)
    project.git("add", "-A")
    project.git("commit", "-qm", "first")
    project.git("tag", "first")
    return project


def first(project: Project, text: str, *arguments: str) -> dict:
    return project.ask("query", text, "-k", "1", *arguments)["results"][0]


def known(project: Project) -> dict[str, str]:
    """The text of each document, by path."""
    listed = project.ask("list")["documents"]
    view = source_views.read_binding(opened_places(project))
    rows = IndexedRows(project.shared / "sources" / view.view)
    texts = {document.doc_id: document.content for document in rows.read_documents("")}
    assert {document["doc_id"] for document in listed} == texts.keys()
    return texts


def opened_places(project: Project):
    from vmrag_link.git.plumbing import locate_work_tree

    return locate_work_tree(project.top)


def on_disk(project: Project) -> dict[str, str]:
    """Return the texts of tracked files on disk."""
    tracked = project.git("ls-files", "--deduplicate", "docs", "README.md", "src").splitlines()
    paths = [project.top / name for name in tracked if (project.top / name).is_file()]
    return {path.relative_to(project.top).as_posix(): path.read_text() for path in paths if path.read_text().strip()}


# -- the work tree ---------------------------------------------------------------------------------


def test_edited_file_is_answered_as_edited_and_marked(project):
    assert first(project, "port")["text"].endswith("eighty.\n")
    project.write("docs/setup.md", "# Setup\n\nThe port is ninety.\n")
    answer = project.ask("query", "port", "-k", "1")
    assert answer["results"][0]["text"].endswith("ninety.\n")
    assert answer["results"][0]["uncommitted"] == "modified"
    assert answer["kb"]["sources"]["uncommitted"] == ["docs/docs/setup.md"]
    project.git("commit", "-qam", "second", "--no-verify")
    answer = project.ask("query", "port", "-k", "1")
    assert answer["results"][0]["text"].endswith("ninety.\n")
    assert (answer["results"][0]["uncommitted"], "uncommitted" in answer["kb"]["sources"]) == ("", False)


def test_code_has_symbol_and_lines(project):
    result = first(project, "refresh token", "--collection", "code")
    assert (result["symbol"], result["file"], result["metadata"]["line"]) == ("Session.refresh", "src/app.py", 1)
    assert result["metadata"]["language"] == "python"
    assert "vmrag:pieces" not in result["metadata"]


def test_checkout_by_anything_changes_the_answer(project):
    pygit = [project.git("rev-parse", "HEAD"), project.git("commit-tree", "-p", "HEAD", "-m", "x", "HEAD^{tree}")]
    project.write("docs/setup.md", "# Setup\n\nThe port is ninety.\n")
    project.git("commit", "-qam", "second")
    assert "ninety" in first(project, "port")["text"]
    # As a program does that knows nothing of hooks: refs and files written one by one.
    project.git("update-ref", "HEAD", pygit[1])
    project.git("read-tree", "HEAD")
    project.git("checkout-index", "-fa")
    assert "eighty" in first(project, "port")["text"]


def test_git_rm_stash_and_sparse_checkouts_take_documents_away(project):
    project.git("rm", "-q", "README.md")
    assert known(project).keys() == {"docs/setup.md", "src/app.py"}
    project.git("reset", "-q", "--hard")
    project.write("docs/setup.md", "stashed\n")
    project.git("stash", "-q")
    assert known(project) == on_disk(project)
    project.git("sparse-checkout", "set", "docs")
    assert known(project).keys() == {"README.md", "docs/setup.md"}
    project.git("sparse-checkout", "disable")
    assert known(project) == on_disk(project)


@pytest.mark.parametrize("seed", range(examples(9)))
@pytest.mark.sample(1)
def test_documents_equal_the_files_after_any_git_operation(project, seed):
    chance = random.Random(seed)
    git = project.git
    git("branch", "other")

    def edit() -> None:
        path = chance.choice(sorted(on_disk(project)) or ["docs/new.md"])
        project.write(path, f"# Word{chance.randrange(1000)}\n\nText {chance.randrange(1000)}.\n")

    def add() -> None:
        folder = chance.choice(["docs", "src", "docs/deep"])
        name = f"{folder}/f{chance.randrange(20)}.{'py' if folder == 'src' else 'md'}"
        project.write(name, f"word{chance.randrange(1000)} = 1\n")
        git("add", name)

    def move() -> None:
        if existing := sorted(on_disk(project)):
            path = chance.choice([file for file in existing if "/" in file] or existing)
            git("mv", "-k", path, f"{path.partition('/')[0]}/moved{chance.randrange(99)}.{path[-2:]}", check=False)

    operations = [
        edit,
        edit,
        add,
        add,
        move,
        lambda: git("rm", "-q", "-f", "--ignore-unmatch", chance.choice(sorted(on_disk(project)) or ["x"])),
        lambda: git("commit", "-qam", "more", "--no-verify", check=False),
        lambda: git("stash", "-q", check=False),
        lambda: git("stash", "pop", "-q", check=False),
        lambda: git("switch", "-q", chance.choice(["main", "other", "-"]), check=False),
        lambda: git("merge", "-q", "--no-edit", "other", check=False),
        lambda: git("merge", "--abort", check=False),
        lambda: git("cherry-pick", "other", check=False),
        lambda: git("cherry-pick", "--abort", check=False),
        lambda: git("reset", "-q", "--hard", check=False),
        lambda: git("rebase", "-q", "other", check=False),
        lambda: git("rebase", "--abort", check=False),
        lambda: (project.top / chance.choice(sorted(on_disk(project)) or ["x"])).unlink(missing_ok=True),
    ]
    for _ in range(25):
        chance.choice(operations)()
        assert known(project) == on_disk(project), git("status")
    for path, text in on_disk(project).items():
        words = [part for part in text.split() if part.isalnum() and len(part) > 4]
        hits = project.ask("query", " ".join(words[:3]) or "x", "-k", "100", "--mode", "keyword")["results"]
        assert not words or path in {hit["doc_id"] for hit in hits}


# -- commits ---------------------------------------------------------------------------------------


def test_query_at_a_ref_uses_its_tree_and_settings(project):
    project.write("docs/setup.md", "# Setup\n\nThe port is ninety.\n")
    project.write(".vmrag.yaml", SETTINGS.replace("docs/, README.md", "docs/"))
    project.git("commit", "-qam", "second")
    project.write("docs/setup.md", "# Setup\n\nThe port is a hundred.\n")
    assert "eighty" in first(project, "port", "--at", "first")["text"]
    assert "ninety" in first(project, "port", "--at", "HEAD")["text"]
    assert "hundred" in first(project, "port")["text"]
    for ref, collection in (("first", "docs"), ("HEAD", "")):
        [match] = project.ask("grep", "tool", "--at", ref)["documents"]
        assert (match["collection"], match["doc_id"]) == (collection, "README.md")
    assert project.ask("grep", "tool", "--at", "HEAD", "--collection", "docs", code=1)["documents"] == []


def test_fresh_clone_has_the_fingerprint(project, tmp_path):
    project.write("docs/other.md", "not committed\n")
    project.git("add", "docs/other.md")
    clone = Project(tmp_path / "clone")
    project.git("clone", "-q", ".", str(clone.top))
    assert project.ask("fingerprint")["fingerprint"] == clone.ask("fingerprint")["fingerprint"]
    assert project.ask("fingerprint", "--at", "first") == clone.ask("fingerprint", "--at", "origin/main")
    clone.write("docs/setup.md", "another text\n")
    clone.git("commit", "-qam", "second")
    assert project.ask("fingerprint")["fingerprint"] != clone.ask("fingerprint")["fingerprint"]


def test_fingerprint_of_the_worktree_includes_uncommitted_files(project):
    committed, working = project.ask("fingerprint"), project.ask("fingerprint", "--working")
    assert committed["fingerprint"] == working["fingerprint"]
    project.write("docs/setup.md", "edited\n")
    assert project.ask("fingerprint")["fingerprint"] == committed["fingerprint"]
    assert project.ask("fingerprint", "--working")["fingerprint"] != committed["fingerprint"]
    project.vmrag("fingerprint", "--working", "--at", "HEAD", code=2)


def test_lines_of_code_match_those_of_editors(project):
    project.write("src/feeds.py", "# one\n" + "\f\n\n" * 20 + "def find_me(a):\n    return a\n")
    project.git("add", "-A")
    result = first(project, "find_me", "--collection", "code")
    assert (result["file"], result["header_path"]) == ("src/feeds.py", "")
    lines = (project.top / "src/feeds.py").read_text().split("\n")
    assert "def find_me" in "\n".join(lines[result["metadata"]["line"] - 1 : result["metadata"]["last_line"]])
    assert "find_me" in lines[result["file_line"] - 1]


def test_files_missing_in_a_partial_clone_are_listed(project, tmp_path):
    project.git("config", "uploadpack.allowFilter", "true")
    clone = Project(tmp_path / "clone")
    project.git("clone", "-q", "--filter=blob:none", "--no-checkout", f"file://{project.top}", str(clone.top))
    clone.git("sparse-checkout", "set", "--no-cone", "/README.md", "/.vmrag.yaml")
    clone.git("checkout", "-q", "main")
    answer = clone.ask("query", "tool", "--at", "HEAD")
    assert sorted(answer["kb"]["sources"]["missing"]) == ["docs/setup.md", "src/app.py"]
    assert answer["results"][0]["doc_id"] == "README.md"
    assert clone.vmrag("fingerprint", "--json", code=1).error["code"] == "NOT_COMPARABLE"


# -- beside stored documents -----------------------------------------------------------------------


def initialised(project: Project) -> None:
    project.vmrag("init", "--knowledge-base", "--no-sources")
    project.put("why.md", "We chose the port because it was free.")
    project.vmrag("commit", "-m", "why")
    project.git("add", "-A")
    project.git("commit", "-qm", "knowledge")


def test_question_searches_stored_documents_and_files_together(project):
    initialised(project)
    answer = project.ask("query", "port", "-k", "10")
    assert {(result["collection"], result["doc_id"]) for result in answer["results"]} >= {
        ("handbook", "why.md"),
        ("docs", "docs/setup.md"),
    }
    assert answer["kb"]["in_sync"]
    assert {document["collection"] for document in project.ask("list")["documents"]} == {"handbook", "docs", "code"}


def test_commit_of_code_leaves_the_rankings_of_documents_as_they_are(project):
    initialised(project)
    command = ("query", "port tool", "-k", "50", "--collection", "docs", "--collection", "handbook")
    before = project.ask(*command)["results"]
    project.write("src/more.py", "def port():\n    return 80\n" * 50)
    project.git("add", "-A")
    project.git("commit", "-qm", "code")
    assert project.ask(*command)["results"] == before


def test_collection_is_stored_or_derived(project):
    initialised(project)
    result = project.vmrag("add", "-", "--collection", "docs", "--id", "x.md", "--json", code=2, stdin="text")
    assert result.error["code"] == "SOURCE_READ_ONLY"
    project.write(".vmrag.yaml", SETTINGS.replace("collection: docs", "collection: handbook"))
    answer = project.ask("query", "port", "-k", "10")
    assert answer["kb"]["sources"]["unavailable"].keys() == {"handbook"}
    assert {result["collection"] for result in answer["results"]} == {"handbook", "code"}
    assert all(result["doc_id"] in ("why.md", "src/app.py") for result in answer["results"])


def test_stored_collection_of_a_name_precedes_at_a_commit(project):
    initialised(project)
    project.write(".vmrag.yaml", SETTINGS.replace("collection: docs", "collection: handbook"))
    project.git("commit", "-qam", "a source of that name")
    for ref in ([], ["--at", "HEAD"]):
        assert [document["doc_id"] for document in project.ask("grep", "free", *ref)["documents"]] == ["why.md"]
        answer = project.ask("query", "port", "--mode", "keyword", *ref)
        assert {result["doc_id"] for result in answer["results"]} == {"why.md"}
        assert answer["kb"]["sources"]["unavailable"].keys() == {"handbook"}


def test_old_commit_without_settings_answers_by_its_own_proposals(project):
    project.git("rm", "-qr", "--cached", ".vmrag.yaml", "docs", "README.md")
    for name in (".vmrag.yaml", "README.md", "docs/setup.md"):
        (project.top / name).unlink()
    project.write("docs/setup.rst", "Setup\n=====\n\nThe port is seventy.\n")
    project.git("add", "-A")
    project.git("commit", "-qm", "before")
    project.git("tag", "before")
    project.git("checkout", "-q", "first")
    assert "seventy" in first(project, "port", "--at", "before")["text"]
    fingerprint = project.ask("fingerprint", "--at", "before")["fingerprint"]
    project.git("checkout", "-q", "before")
    assert "seventy" in first(project, "port")["text"]
    assert project.ask("fingerprint")["fingerprint"] == fingerprint


# -- what is kept ----------------------------------------------------------------------------------


def segments(repo: Repo) -> set[str]:
    return {path.name for path in (repo.top / ".git" / "vmrag" / "segments").iterdir()}


def test_second_worktree_and_the_way_back_build_nothing(project, tmp_path):
    project.git("branch", "other")
    first(project, "port")
    segments_before = segments(project)
    project.git("worktree", "add", "-q", str(tmp_path / "wt"), "other")
    assert "eighty" in first(Project(tmp_path / "wt"), "port")["text"]
    assert segments(project) == segments_before
    project.write("docs/setup.md", "# Setup\n\nThe port is ninety.\n")
    project.git("commit", "-qam", "second")
    first(project, "port")
    built = segments(project)
    project.git("checkout", "-q", "first")
    assert "eighty" in first(project, "port")["text"]
    assert segments(project) == built


def test_many_single_edits_leave_little_behind(project):
    for number in range(examples(60)):
        project.write("docs/setup.md", f"# Setup\n\nThe port is number{number}.\n")
        assert f"number{number}." in first(project, "port")["text"]
    kept = [path for path in (project.shared / "sources").iterdir() if path.is_dir()]
    assert len(kept) <= 2
    assert len(segments(project)) <= 4
    assert len(list((project.shared / "sources").glob("*.lock"))) <= 3


def test_commit_that_is_named_is_the_one_that_is_checked_out(project):
    first(project, "port")
    project.git("commit", "-q", "--allow-empty", "-m", "nothing")
    project.vmrag("status")
    assert project.ask("query", "port")["kb"]["sources"]["commit"] == project.git("rev-parse", "HEAD")


def test_upgrade_of_a_grammar_cuts_again(project, monkeypatch):
    first(project, "port")
    before = segments(project)
    monkeypatch.setattr(languages, "read_stamps", lambda: {"tree-sitter": (1, 2)})
    monkeypatch.setattr(languages, "describe_cutter", lambda _: "another cutter")
    first(project, "port")
    assert segments(project) != before


def test_unused_views_are_removed_without_a_knowledge_base(project, monkeypatch):
    monkeypatch.setattr("vmrag_link.index.views.MOST_SPARE", 2)
    for number in range(6):
        project.write("docs/setup.md", f"# Setup\n\nThe port is number{number}.\n")
        project.git("commit", "-qam", "more")
        first(project, "port")
    assert len([path for path in (project.shared / "sources").iterdir() if path.is_dir()]) <= 4
    assert len(segments(project)) <= 8


@pytest.mark.parametrize("milliseconds", [150, 300, 450, 600, 750, 900])
def test_kill_at_any_moment_does_not_block_next_query(project, milliseconds):
    for number in range(200):
        project.write(f"docs/page{number}.md", f"# Page {number}\n\nword{number} and more.\n")
    project.git("add", "-A")
    started = subprocess.Popen([SCRIPT, "query", "word7"], cwd=project.top, stdout=subprocess.DEVNULL)
    time.sleep(milliseconds / 1000)
    started.kill()
    started.wait()
    project.write("docs/page7.md", "# Page\n\nword7 was edited.\n")
    assert "edited" in first(project, "word7", "--mode", "keyword")["text"]
    assert known(project) == on_disk(project)


def test_repository_that_was_moved_answers(project, tmp_path):
    expected = first(project, "port")
    moved = Project(project.top.rename(tmp_path / "elsewhere"))
    assert first(moved, "port") == expected
    assert not project.top.exists()


@pytest.mark.parametrize("what", ["view", "segment"])
def test_damaged_index_of_a_commit_is_made_again(project, what):
    project.write("docs/setup.md", "# Setup\n\nThe port is ninety.\n")
    project.git("commit", "-qam", "second")
    expected = first(project, "port", "--at", "first")
    for view in (path for path in (project.shared / "sources").iterdir() if path.is_dir()):
        damaged = next((project.shared / "segments").glob("*/words-1.idx")) if what == "segment" else view / what
        damaged.write_bytes(damaged.read_bytes()[:-20] + bytes(20))
    for proof in project.shared.rglob("proven.json"):
        proof.unlink()
    assert first(project, "port", "--at", "first") == expected


@pytest.mark.parametrize("what", ["view", "files", "segment", "gone", "bound", "answer"])
def test_damaged_index_is_made_again(project, what):
    expected = first(project, "port")
    view = next(path for path in (project.shared / "sources").iterdir() if path.is_dir())
    if what == "gone":
        shutil.rmtree(view)
    elif what == "bound":
        (project.own / "tree" / "bound").write_bytes(b"\x81\xa5to")
    elif what == "answer":  # within what is bound: the rest can be read
        bound = project.own / "tree" / "bound"
        bound.write_bytes(bound.read_bytes().replace(b"collections", b"collectionz"))
    else:
        damaged = next((project.shared / "segments").glob("*/words-1.idx")) if what == "segment" else view / what
        damaged.write_bytes(damaged.read_bytes()[:-20] + bytes(20))
        for proof in project.shared.rglob("proven.json"):
            proof.unlink()
    assert first(project, "port") == expected


def test_list_needs_no_index_extra(project, monkeypatch):
    listed = [
        (document["doc_id"], document["title"], document["content_hash"])
        for document in project.ask("list")["documents"]
    ]
    shutil.rmtree(project.shared)

    def missing(*_: object, **__: object) -> None:
        raise IndexExtraMissing("This needs a package.", hint="run 'pip install \"vmrag-link[index]\"' to install it")

    monkeypatch.setattr("vmrag_link.sync.source_views.SourceIndexer.provide_view", missing)
    documents = project.ask("list")["documents"]
    assert sorted(
        (document["doc_id"], document["title"], document["content_hash"]) for document in documents
    ) == sorted(listed)


def test_missing_code_extra_is_reported_as_unavailable(project):
    project.write(".vmrag/queries.yaml", "queries:\n  - query: port\n    expect: [docs/docs/setup.md]\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(languages, "find_language_problem", lambda: "it needs the extra 'code'")
        answer = project.ask("query", "port")
        assert answer["kb"]["sources"]["unavailable"] == {"code": "it needs the extra 'code'"}
        assert {result["collection"] for result in answer["results"]} == {"docs"}
        for command in ("fingerprint", "check"):
            assert project.vmrag(command, "--json", code=1).error["code"] == "NOT_COMPARABLE"
        assert project.vmrag("query", "port", "--collection", "code", code=3).err
    project.vmrag("check")


def test_text_of_sources_goes_to_no_service_that_the_settings_name(project):
    project.write(".vmrag.yaml", SETTINGS.replace("model: hash", "model: openai"))
    assert first(project, "port", "--mode", "keyword")["doc_id"] == "docs/setup.md"


# -- before anything is set up -------------------------------------------------------------------


def bare(project: Project) -> Project:
    project.git("rm", "-q", "--cached", ".vmrag.yaml")
    (project.top / ".vmrag.yaml").unlink()
    project.git("commit", "-qm", "nothing is set up")
    return project


def test_before_anything_is_set_up_the_files_answer(project):
    bare(project)
    answer = project.ask("query", "port", "-k", "10")
    assert {result["doc_id"] for result in answer["results"]} == {"docs/setup.md", "README.md", "src/app.py"}
    assert {result["collection"] for result in answer["results"]} == {"docs", "code"}
    assert (answer["kb"]["commit"], answer["kb"]["in_sync"]) == ("", True)
    assert project.git("status", "--porcelain") == ""
    assert project.git("config", "--get-regexp", "vmrag", check=False) == ""
    assert not any(path.suffix != ".sample" for path in (project.top / ".git/hooks").iterdir())


def test_query_waits_for_whole_index(project, monkeypatch):
    bare(project)
    monkeypatch.setattr("vmrag_link.workspace.source_index.LEAST_STEP", 1)
    with opened(project) as ws:
        ws.source_index.in_steps = True
        with ws.source_index.open_work_tree() as part:
            assert part.indexed == 33
    answer = project.ask("query", "port tool session", "-k", "10")
    assert answer["kb"]["sources"].get("indexed", 100) == 100
    assert len({result["doc_id"] for result in answer["results"]}) == 3
