"""Which files sources have at a commit, and their texts: by git's own trees."""

from __future__ import annotations

import os
import subprocess

import pytest

from tests.support.repos import Repo, make_repo
from vmrag_link.errors import GitReferenceMissing, LimitExceeded
from vmrag_link.git import raw_changes, readonly
from vmrag_link.git.plumbing import locate_work_tree
from vmrag_link.settings import SourceSettings
from vmrag_link.sources.commit_files import list_at_commit
from vmrag_link.sources.documents import read_texts_at_commit

DOCS = SourceSettings("docs", ("**/*.md", "docs/"), ("docs/old/",))
CODE = SourceSettings("code", ("src/",), (), "code")
MOST = 10_000


@pytest.fixture
def repo(tmp_path) -> Repo:
    return make_repo(tmp_path / "repo")


def listed(repo: Repo, commit: str = "HEAD", *sources: SourceSettings, most: int = MOST):
    return list_at_commit(
        locate_work_tree(repo.top), repo.git("rev-parse", commit), sources or (DOCS, CODE), max_bytes=most
    )


def paths(listing, collection: str = "docs") -> list[str]:
    return [file.path for file in listing.files[collection]]


def reasons(listing) -> dict[str, str]:
    return {file.path: file.reason for file in listing.left_out}


def test_each_source_has_the_files_of_its_paths_at_that_commit(repo):
    first = repo.commit(**{"README.md": "# A\n", "docs/a.txt": "a\n", "docs/old/b.md": "b\n", "src/x.py": "x = 1\n"})
    repo.commit(**{"README.md": "# B\n", "docs/a.txt": None})
    then = listed(repo, first)
    assert paths(then) == ["README.md", "docs/a.txt"]
    assert paths(then, "code") == ["src/x.py"]
    assert then.files["docs"][0] == ("README.md", repo.git("rev-parse", f"{first}:README.md"), 4, "", False, "", "", 0)
    assert paths(listed(repo)) == ["README.md"]


def test_texts_come_from_blobs_not_from_the_work_tree(repo):
    repo.commit(**{"README.md": "# A\r\n", "docs/b.md": b"\0"})
    repo.write("README.md", "other")
    result = {
        file.path: said for file, said in read_texts_at_commit(locate_work_tree(repo.top), listed(repo).files["docs"])
    }
    assert result["README.md"] == ("# A\n", "")
    assert result["docs/b.md"] == (None, "is not text")


def test_links_submodules_and_oversized_or_empty_files_are_left_out(repo, tmp_path):
    (repo.top / "docs").mkdir()
    (repo.top / "docs" / "link.md").symlink_to("/etc/passwd")
    other = make_repo(tmp_path / "other")
    other.commit(a="a")
    repo.git("submodule", "add", "-q", str(other.top), "docs/module")
    repo.git("add", "docs/link.md")
    repo.commit(**{"docs/empty.md": "", "docs/large.md": "a" * 20_000})
    assert reasons(listed(repo)) == {
        "docs/link.md": "is a link",
        "docs/module": "is a submodule",
        "docs/empty.md": "is empty",
        "docs/large.md": "has 20,000 bytes, more than 10,000",
    }


def test_attributes_are_those_of_the_commit_and_of_nothing_else(repo):
    repo.commit(
        **{
            ".gitattributes": "*.lfs.md filter=lfs\n",
            "a.lfs.md": "x\n",
            "b.md": "x\n",
            "gen/.gitattributes": "* linguist-generated\n",
            "gen/c.md": "c\n",
        }
    )
    (repo.top / ".git" / "info").mkdir(exist_ok=True)
    (repo.top / ".git" / "info" / "attributes").write_text("b.md filter=x\n")
    repo.write(".gitattributes", "b.md filter=x\n")
    result = listed(repo)
    assert paths(result) == ["b.md"]
    assert reasons(result) == {"a.lfs.md": "is kept in Git LFS", "gen/c.md": "is generated according to .gitattributes"}


def test_colliding_and_invalid_paths_are_left_out_with_reasons(repo):
    blob = repo.git("hash-object", "-w", "--stdin", stdin="text\n")
    names = [
        b"docs/A.md",
        b"docs/a.md",
        "docs/\u00e9.md".encode(),
        "docs/e\u0301.md".encode(),
        b"docs/\xff.md",
        b"docs/a\tb.md",
        b"docs/" + b"l" * 252 + b".md",
    ]
    tree = b"".join(b"100644 blob %s\t%s\0" % (blob.encode(), name) for name in names)
    subprocess.run(["git", "update-index", "-z", "--index-info"], cwd=repo.top, input=tree, check=True)
    repo.git("commit", "-qm", "names")
    result = listed(repo)
    assert paths(result) == ["docs/A.md", "docs/e\u0301.md"]
    assert sorted(reasons(result).values()) == [
        "has a path that has control characters",
        "has a path that is longer than 255 characters",
        "has a path that is not UTF-8",
        "has the same path as docs/A.md on systems that ignore letter case or accents",
        "has the same path as docs/e\u0301.md on systems that ignore letter case or accents",
    ]


def test_file_in_two_sources_is_omitted_only_if_neither_accepts_it(repo):
    repo.commit(**{"src/a.py": "a\n", "src/b.md": "b\n"})
    result = listed(repo, "HEAD", SourceSettings("docs", ("src",)), CODE)
    assert paths(result) == ["src/b.md"]
    assert paths(result, "code") == ["src/a.py", "src/b.md"]
    assert result.left_out == ()


def test_replaced_objects_are_read_as_they_were_committed(repo):
    repo.commit(**{"a.md": "honest\n"})
    other = repo.git("hash-object", "-w", "--stdin", stdin="replaced\n")
    repo.git("replace", repo.git("rev-parse", "HEAD:a.md"), other)
    ((_, said),) = read_texts_at_commit(locate_work_tree(repo.top), listed(repo).files["docs"])
    assert said.text == "honest\n"


def test_partial_clone_lists_missing_files_and_fetches_nothing(repo, tmp_path, monkeypatch):
    repo.commit(**{"a.md": "a\n", "b.md": "b\n", "docs/c.md": "c\n"})
    repo.git("config", "uploadpack.allowFilter", "true")
    subprocess.run(
        ["git", "clone", "-q", "--no-checkout", "--filter=blob:none", repo.top.as_uri(), tmp_path / "part"], check=True
    )
    part = Repo(tmp_path / "part")
    blob = part.git("rev-parse", "HEAD:b.md")
    part.git("cat-file", "blob", blob)  # this one is fetched
    result = listed(part)
    assert paths(result) == ["b.md"]
    assert result.missing == ("a.md", "docs/c.md")
    whole = listed(repo).files["docs"]
    said = {file.path: text for file, text in read_texts_at_commit(locate_work_tree(part.top), whole)}
    assert said["b.md"].text == "b\n"
    assert said["a.md"] == (None, "is not in this clone")
    assert listed(part).missing == result.missing


def test_repository_with_sha256_names_works(tmp_path):
    top = tmp_path / "repo"
    subprocess.run(["git", "init", "-q", "--object-format=sha256", top], check=True)
    repo = Repo(top)
    repo.commit(**{"a.md": "a\n"})
    result = listed(repo)
    assert len(result.files["docs"][0].blob) == 64
    assert next(read_texts_at_commit(locate_work_tree(top), result.files["docs"]))[1].text == "a\n"


def test_missing_commit_is_named(repo):
    repo.commit(**{"a.md": "a\n"})
    for commit in ("0" * 40, "-x", "HEAD"):
        with pytest.raises(GitReferenceMissing):
            list_at_commit(locate_work_tree(repo.top), commit, [DOCS], max_bytes=MOST)


def test_tree_that_names_itself_over_and_over_ends_soon(repo, monkeypatch):
    blob = repo.git("hash-object", "-w", "--stdin", stdin="x\n")
    tree = repo.git("mktree", stdin=f"100644 blob {blob}\ta.md\n")
    for _ in range(12):
        tree = repo.git("mktree", stdin="".join(f"040000 tree {tree}\t{number}\n" for number in range(10)))
    commit = repo.git("commit-tree", tree, "-m", "bomb")
    for source in (DOCS, SourceSettings("docs", ("**/nothing",))):
        with pytest.raises(LimitExceeded, match="more than 2,000,000"):
            list_at_commit(locate_work_tree(repo.top), commit, [source], max_bytes=MOST)
    monkeypatch.setattr(readonly, "SECONDS", 0.02)
    with pytest.raises(LimitExceeded):
        list_at_commit(locate_work_tree(repo.top), commit, [DOCS], max_bytes=MOST)


def test_excessive_number_of_files_is_rejected(repo, monkeypatch):
    monkeypatch.setattr("vmrag_link.sources.selection.MOST_FILES", 2)
    repo.commit(**{"a.md": "a\n", "b.md": "b\n", "c.md": "c\n"})
    with pytest.raises(LimitExceeded):
        listed(repo)
    assert raw_changes.MOST_FILES > 100_000


def test_batches_hold_few_bytes_and_leave_nothing_out(repo, monkeypatch):
    monkeypatch.setattr("vmrag_link.sources.documents._BATCH_FILES", 3)
    monkeypatch.setattr("vmrag_link.sources.documents._BATCH_BYTES", 20)
    repo.commit(**{f"docs/{number:02}.md": "x" * (number + 1) for number in range(30)})
    files = listed(repo).files["docs"]
    assert [(file, len(said.text or "")) for file, said in read_texts_at_commit(locate_work_tree(repo.top), files)] == [
        (file, file.size) for file in files
    ]


def test_listing_ignores_environment_and_configuration(repo, monkeypatch):
    repo.commit(**{"a.md": "a\n", "docs/b.md": "b\n"})
    expected = listed(repo)
    repo.git("config", "diff.orderFile", "nowhere")
    repo.git("config", "diff.external", "false")
    repo.git("config", "core.quotePath", "true")
    repo.git("config", "core.abbrev", "4")
    monkeypatch.setenv("GIT_LITERAL_PATHSPECS", "1")
    monkeypatch.setenv("GIT_EXTERNAL_DIFF", "false")
    monkeypatch.setitem(os.environ, "GIT_DIR", "/nowhere")
    monkeypatch.delenv("GIT_DIR")
    assert listed(repo) == expected
