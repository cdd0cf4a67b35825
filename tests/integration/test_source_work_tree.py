"""Which files sources have in the work tree, and that looking at it harms nothing."""

from __future__ import annotations

import os
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.repos import Repo, make_repo
from vmrag_link.errors import FileFailed, GitFailed, LimitExceeded
from vmrag_link.git import index_copy, readonly
from vmrag_link.git.plumbing import locate_work_tree
from vmrag_link.settings import SourceSettings
from vmrag_link.sources import disk, listings, work_tree
from vmrag_link.sources.commit_files import list_at_commit
from vmrag_link.sources.documents import read_texts_in_work_tree
from vmrag_link.sources.listings import SourceListing, compute_token

DOCS = SourceSettings("docs", ("**/*.md", "docs/"), ("docs/old/",))
CODE = SourceSettings("code", ("src/",), (), "code")
MOST = 10_000


class Watched(Repo):
    """A working tree whose sources are listed."""

    def options(self, *, untracked: bool = False) -> dict:
        return {"max_bytes": MOST, "untracked": untracked, "cache": self.top / ".git" / "vmrag" / "sources"}

    def listed(self, *, untracked: bool = False) -> SourceListing:
        return work_tree.list_in_work_tree(
            locate_work_tree(self.top), [DOCS, CODE], **self.options(untracked=untracked)
        )

    def unchanged(self, *, untracked: bool = False) -> str | None:
        return work_tree.compare_last_listing(
            locate_work_tree(self.top), [DOCS, CODE], **self.options(untracked=untracked)
        ).token

    def docs(self, *, untracked: bool = False) -> dict[str, str]:
        return {file.path: file.uncommitted for file in self.listed(untracked=untracked).files["docs"]}

    def texts(self) -> dict[str, str | None]:
        files = self.listed().files["docs"]
        return {file.path: said.text for file, said in read_texts_in_work_tree(locate_work_tree(self.top), files)}

    def reasons(self) -> dict[str, str]:
        return {file.path: file.reason for file in self.listed().left_out}

    def grow_old(self) -> None:
        """Make all earlier writes look old."""
        past = time.time() - 100
        for path in self.top.rglob("*"):
            if path.is_file() and not path.is_symlink() and ".git" not in path.relative_to(self.top).parts:
                os.utime(path, (past, past))
        self.git("update-index", "-q", "--refresh", check=False)


@pytest.fixture
def repo(tmp_path) -> Watched:
    return Watched(make_repo(tmp_path / "repo").top)


@pytest.fixture
def committed(repo) -> Watched:
    repo.commit(**{"README.md": "# A\n", "docs/a.txt": "a\n", "docs/old/b.md": "b\n", "src/x.py": "x = 1\n"})
    return repo


def test_clean_work_tree_has_the_files_of_its_commit(committed):
    expected = list_at_commit(
        locate_work_tree(committed.top), committed.git("rev-parse", "HEAD"), [DOCS, CODE], max_bytes=MOST
    )
    assert committed.listed() == expected
    assert compute_token(committed.listed()) == compute_token(expected)


def test_each_kind_of_change_is_shown(committed):
    committed.commit(
        **{
            f"docs/{name}.md": f"{name}\n"
            for name in ("edited", "staged", "both", "deleted", "removed", "cached", "mode")
        }
    )
    committed.write("docs/edited.md", "edited now\n")
    committed.write("docs/staged.md", "staged now\n")
    committed.git("add", "docs/staged.md")
    committed.write("docs/both.md", "first\n")
    committed.git("add", "docs/both.md")
    committed.write("docs/both.md", "both now\n")
    (committed.top / "docs/deleted.md").unlink()
    committed.git("rm", "-q", "docs/removed.md")
    committed.git("rm", "-q", "--cached", "docs/cached.md")
    committed.write("docs/new.md", "new\n")
    committed.git("add", "docs/new.md")
    committed.write("docs/intended.md", "intended\n")
    committed.git("add", "-N", "docs/intended.md")
    committed.write("docs/untracked.md", "untracked\n")
    (committed.top / "docs/mode.md").chmod(0o755)
    result = committed.listed()
    assert committed.docs() == {
        "README.md": "",
        "docs/a.txt": "",
        "docs/both.md": "modified",
        "docs/edited.md": "modified",
        "docs/intended.md": "added",
        "docs/mode.md": "",
        "docs/new.md": "added",
        "docs/staged.md": "modified",
    }
    assert result.removed == ("docs/cached.md", "docs/deleted.md", "docs/removed.md")
    assert result.untracked == 2
    assert work_tree.count_untracked_files(locate_work_tree(committed.top), [DOCS, CODE]) == 2
    texts = committed.texts()
    assert {name: texts[f"docs/{name}.md"] for name in ("both", "edited", "staged", "new", "intended", "mode")} == {
        "both": "both now\n",
        "edited": "edited now\n",
        "staged": "staged now\n",
        "new": "new\n",
        "intended": "intended\n",
        "mode": "mode\n",
    }
    for file in result.files["docs"]:
        assert file.blob == committed.git("hash-object", file.path)
    shown = committed.docs(untracked=True)
    assert shown["docs/untracked.md"] == "added"
    assert shown["docs/cached.md"] == ""
    assert committed.listed(untracked=True).removed == ("docs/deleted.md", "docs/removed.md")


def test_file_that_is_edited_back_is_committed_again(committed):
    committed.write("README.md", "other\n")
    assert committed.docs()["README.md"] == "modified"
    committed.git("add", "README.md")
    committed.write("README.md", "# A\n")
    assert committed.docs()["README.md"] == ""


def test_unmerged_files_are_shown_unchanged(committed):
    committed.git("checkout", "-qb", "other")
    committed.commit(**{"README.md": "# other\n", "docs/a.txt": None})
    committed.git("checkout", "-q", "main")
    committed.commit(**{"README.md": "# main\n", "docs/a.txt": "changed\n"})
    committed.git("merge", "other", check=False)
    assert committed.docs() == {"README.md": "unmerged", "docs/a.txt": "unmerged"}
    assert "<<<<<<<" in (committed.texts()["README.md"] or "")
    (committed.top / "docs/a.txt").unlink()
    assert committed.listed().removed == ("docs/a.txt",)


def test_assume_unchanged_file_reads_from_index_and_sparse_file_is_hidden(committed):
    committed.git("update-index", "--assume-unchanged", "README.md")
    committed.write("README.md", "hidden\n")
    assert committed.docs()["README.md"] == ""
    assert committed.texts()["README.md"] == "# A\n"
    committed.git("update-index", "--no-assume-unchanged", "README.md")
    committed.git("checkout", "-q", "README.md")
    committed.git("sparse-checkout", "set", "--no-cone", "/README.md")
    result = committed.listed()
    assert committed.docs() == {"README.md": ""}
    assert result.removed == ()


def test_sparse_file_is_shown_while_it_exists(committed):
    committed.git("sparse-checkout", "set", "--no-cone", "/README.md")
    committed.write("docs/a.txt", "back\n")
    assert committed.docs() == {"README.md": "", "docs/a.txt": "modified"}
    (committed.top / "docs/a.txt").unlink()
    assert committed.docs() == {"README.md": ""}
    assert committed.listed().removed == ()


def test_before_the_first_commit_all_are_added(repo):
    assert repo.listed() == SourceListing({"docs": [], "code": []})
    assert repo.unchanged()
    repo.write("README.md", "# A\n")
    repo.git("add", "-A")
    assert repo.docs() == {"README.md": "added"}


def test_linked_work_tree_has_its_own_files(committed, tmp_path):
    committed.git("worktree", "add", "-q", str(tmp_path / "other"), "-b", "other")
    other = Watched(tmp_path / "other")
    other.write("README.md", "# other\n")
    places = locate_work_tree(other.top)
    in_work_tree = work_tree.list_in_work_tree(
        places, [DOCS], max_bytes=MOST, untracked=False, cache=places.work_tree_folder / "sources"
    )
    assert {file.path: file.uncommitted for file in in_work_tree.files["docs"]}["README.md"] == "modified"
    assert committed.docs()["README.md"] == ""


@pytest.mark.parametrize("setting", ["core.splitIndex", "core.untrackedCache", "feature.manyFiles", "index.sparse"])
def test_all_forms_of_the_index_are_read(committed, setting):
    committed.git("config", setting, "true")
    committed.write("docs/new.md", "new\n")
    committed.git("add", "-A")
    committed.write("README.md", "# B\n")
    assert committed.docs() == {"README.md": "modified", "docs/a.txt": "", "docs/new.md": "added"}
    assert committed.unchanged() == compute_token(committed.listed())


# -- harmless


def test_listing_neither_writes_nor_locks_index_and_ignores_its_lock(committed):
    index = committed.top / ".git" / "index"
    os.utime(committed.top / "README.md")
    committed.write("docs/a.txt", "b\n")
    before = index.read_bytes(), index.stat()
    (committed.top / ".git" / "index.lock").touch()
    assert committed.docs() == {"README.md": "", "docs/a.txt": "modified"}
    assert committed.unchanged()
    assert (index.read_bytes(), index.stat().st_mtime_ns, index.stat().st_ino) == (
        before[0],
        before[1].st_mtime_ns,
        before[1].st_ino,
    )


def test_programs_of_the_configuration_do_not_run(committed, tmp_path):
    mark = tmp_path / "ran"
    command = f"touch {mark}; cat"
    committed.write(".gitattributes", "*.md filter=a=b diff=c\n*.txt filter=proc\n")
    committed.git("add", ".gitattributes")
    for key, value in (
        ("filter.a=b.clean", command),
        ("filter.a=b.smudge", command),
        ("filter.a=b.required", "true"),
        ("filter.proc.process", command),
        ("diff.c.textconv", command),
        ("diff.c.command", command),
        ("core.fsmonitor", f"{mark.parent}/hook"),
        ("diff.external", command),
    ):
        committed.git("config", key, value)
    hooks = committed.top / ".git" / "hooks"
    hooks.mkdir(exist_ok=True)
    for hook in (hooks / "post-index-change", mark.parent / "hook"):
        hook.write_text(f"#!/bin/sh\ntouch {mark}\n")
        hook.chmod(0o755)
    committed.write("README.md", "# B\n")  # of the same size, within the second of the index
    os.utime(committed.top / "docs/a.txt")
    mark.unlink(missing_ok=True)
    committed.listed()
    committed.unchanged()
    assert not mark.exists()
    assert committed.reasons()["README.md"] == "has the filter a=b, which changes its content"


def test_files_with_a_filter_are_never_read(committed, monkeypatch):
    committed.commit(**{".gitattributes": "*.md filter=git-crypt\n"})
    committed.write("README.md", "secret\n")
    monkeypatch.setattr(disk.Disk, "read_file", lambda *_: pytest.fail("read"))
    assert "README.md" in committed.reasons()


def test_links_pipes_and_folders_in_place_of_files_are_not_followed(committed, tmp_path):
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "a.txt").write_text("secret\n")
    committed.commit(**{"docs/pipe.md": "x\n", "docs/link.md": "x\n", "docs/folder.md": "x\n", "other/a.md": "x\n"})
    for name in ("pipe", "link", "folder"):
        (committed.top / "docs" / f"{name}.md").unlink()
    os.mkfifo(committed.top / "docs/pipe.md")
    (committed.top / "docs/link.md").symlink_to(tmp_path / "secret" / "a.txt")
    (committed.top / "docs/folder.md").mkdir()
    (committed.top / "other").rename(tmp_path / "elsewhere")
    (committed.top / "other").symlink_to(tmp_path / "elsewhere")
    result = committed.listed()
    assert committed.docs() == {"README.md": "", "docs/a.txt": ""}
    assert committed.reasons() == {"docs/link.md": "is a link", "docs/pipe.md": "is not a regular file"}
    assert "other/a.md" in result.removed
    with disk.Disk(committed.top) as opened:
        for path in ("other/a.md", "docs/link.md", "docs/pipe.md", "docs/folder.md"):
            with pytest.raises(OSError):
                opened.read_file(path, 100)


def test_large_files_are_left_out_with_a_reason(committed):
    committed.write("README.md", "a" * (MOST + 1))
    assert committed.reasons()["README.md"] == "has 10,001 bytes, more than 10,000"


# -- names of what git would store


def test_touched_files_and_line_endings_are_unchanged(committed):
    committed.commit(**{".gitattributes": "*.txt text eol=crlf\n"})
    (committed.top / "docs/a.txt").unlink()
    committed.git("checkout", "-q", "docs/a.txt")
    assert (committed.top / "docs/a.txt").read_bytes() == b"a\r\n"
    os.utime(committed.top / "docs/a.txt")
    os.utime(committed.top / "README.md")
    assert set(committed.docs().values()) == {""}
    committed.write("docs/a.txt", "b\r\n")
    (file,) = [file for file in committed.listed().files["docs"] if file.uncommitted]
    assert file.blob == committed.git("hash-object", "docs/a.txt")
    assert committed.texts()["docs/a.txt"] == "b\n"


def test_touched_files_that_git_converts_are_unchanged(committed):
    committed.commit(**{"docs/crlf.txt": "a\r\nb\r\n", "docs/ident.txt": "$Id$\n"})
    committed.commit(**{".gitattributes": "docs/crlf.txt text=auto\ndocs/ident.txt ident\n"})
    committed.listed()
    for name in ("crlf", "ident"):
        os.utime(committed.top / f"docs/{name}.txt")
    assert set(committed.docs().values()) == {""}


def test_listing_after_an_edit_asks_git_little(committed, git_log):
    committed.commit(**{"docs/empty.txt": ""})
    committed.listed()
    git_log.write_text("")
    committed.write("README.md", "# Changed\n")
    assert committed.docs()["README.md"] == "modified"
    started = git_log.read_text()
    assert started.count(" diff-files ") == 2, "before and after git compares the contents"
    assert " ls-tree " not in started, "HEAD's tree was counted before"
    assert " cat-file " not in started, "every size is known"


def test_encoding_of_the_work_tree_is_decoded(committed):
    committed.commit(
        **{".gitattributes": "docs/*.txt working-tree-encoding=UTF-16LE\n", "docs/u.txt": "ä\n".encode("utf-16-le")}
    )
    assert committed.texts()["docs/u.txt"] == "ä\n"
    committed.write("docs/u.txt", "ö\n".encode("utf-16-le"))
    (file,) = [file for file in committed.listed().files["docs"] if file.path == "docs/u.txt"]
    assert file.blob == committed.git("hash-object", "docs/u.txt")
    assert committed.texts()["docs/u.txt"] == "ö\n"


def test_attributes_are_those_in_the_work_tree(committed):
    committed.commit(**{".gitattributes": "README.md linguist-generated\n"})
    assert "README.md" in committed.reasons()
    committed.write(".gitattributes", "*.txt linguist-generated\n")
    assert list(committed.reasons()) == ["docs/a.txt"]
    (committed.top / ".gitattributes").unlink()
    assert list(committed.reasons()) == ["README.md"]


def test_edited_file_that_moved_on_is_an_error_to_try_again(committed):
    committed.write("README.md", "# B\n")
    files = committed.listed().files["docs"]
    committed.write("README.md", "# C\n")
    with pytest.raises(FileFailed):
        list(read_texts_in_work_tree(locate_work_tree(committed.top), files))


# -- nothing changed


def test_token_is_stable_until_a_change(committed):
    committed.grow_old()
    token = compute_token(committed.listed())
    assert committed.unchanged() == token
    os.utime(committed.top / "README.md")
    assert compute_token(committed.listed()) == token
    assert committed.unchanged() == token
    for change in (
        lambda: committed.write("README.md", "# B\n"),
        lambda: committed.write("README.md", "# C\n"),
        lambda: committed.git("add", "README.md"),
        lambda: committed.git("commit", "-qm", "next"),
        (committed.top / "README.md").unlink,
        lambda: committed.git("checkout", "-q", "README.md"),
        lambda: committed.write(".gitattributes", "*.md -diff -text\n") and committed.git("add", ".gitattributes"),
        lambda: committed.write(".gitattributes", "*.md diff\n"),
        lambda: committed.git("rm", "-q", "-f", ".gitattributes"),
        lambda: committed.git("update-index", "--skip-worktree", "docs/a.txt"),
    ):
        change()
        assert committed.unchanged() is None
        fresh = committed.listed()
        assert committed.unchanged() == compute_token(fresh)


def test_change_of_equal_size_within_one_clock_tick_is_detected(committed):
    for number in range(30):
        committed.write("README.md", f"# {number:04}\n")
        assert committed.texts()["README.md"] == f"# {number:04}\n"


def test_files_as_young_as_index_are_compared_until_they_are_older(committed):
    committed.listed()
    folder = committed.top / ".git" / "vmrag"
    time.sleep(1.1)
    assert committed.unchanged()
    (copy,) = folder.glob("sources@*")
    assert copy.stat().st_mtime_ns % 10**9 == 1  # settled
    committed.write("README.md", "# B\n")
    assert committed.docs()["README.md"] == "modified"


def test_change_in_the_second_of_the_index_is_not_forgotten_later(committed):
    time.sleep(1 - time.time() % 1)
    committed.write("README.md", "# B\n")
    committed.git("add", "README.md")
    committed.write("README.md", "# C\n")
    token = compute_token(committed.listed())
    assert committed.texts()["README.md"] == "# C\n"
    for _ in range(2):
        time.sleep(1.1)
        assert committed.unchanged() == token
    assert committed.texts()["README.md"] == "# C\n"
    os.utime(committed.top / "docs/a.txt")
    assert committed.texts()["README.md"] == "# C\n"


def test_change_that_sets_the_time_back_is_seen(committed):
    committed.write("README.md", "# B\n")
    committed.listed()
    before = (committed.top / "README.md").stat()
    committed.write("README.md", "# C\n")
    os.utime(committed.top / "README.md", ns=(before.st_atime_ns, before.st_mtime_ns))
    assert committed.texts()["README.md"] == "# C\n"


def test_files_outside_of_sources_do_not_change_the_token(committed):
    committed.commit(**{"other.bin": "a", "docs/old/b.md": "c\n"})
    token = compute_token(committed.listed())
    committed.write("other.bin", "b")
    assert committed.unchanged() == token
    committed.write("docs/old/b.md", "d\n")
    committed.listed()
    committed.write("docs/old/b.md", "e\n")
    assert committed.unchanged() == token


def test_untracked_files_change_the_token_only_if_they_are_shown(committed):
    committed.listed()
    committed.write("docs/new.md", "new\n")
    assert committed.unchanged()
    shown = committed.listed(untracked=True)
    assert committed.unchanged(untracked=True) == compute_token(shown)
    committed.write("docs/newer.md", "newer\n")
    assert committed.unchanged(untracked=True) is None
    assert committed.docs(untracked=True)["docs/newer.md"] == "added"


def test_unchanged_hashes_nothing_and_files_once_hashed_are_not_read_again(committed, monkeypatch):
    committed.write("README.md", "# B\n")
    committed.write("docs/a.txt", "b\n")
    time.sleep(0.1)
    committed.listed()
    committed.write("docs/a.txt", "cc\n")
    read = []
    monkeypatch.setattr(
        disk.Disk,
        "read_file",
        lambda self, path, limit, of=disk.Disk.read_file: (read.append(path), of(self, path, limit))[1],
    )
    committed.listed()
    assert read == ["docs/a.txt"]


@pytest.mark.parametrize("content", [b"", b"\x80", b"not msgpack", b"\xc1" * 100])
def test_damaged_cache_is_forgotten(committed, content):
    expected = committed.listed()
    folder = committed.top / ".git" / "vmrag"
    for name in ("sources", "sources.listing"):
        (folder / name).write_bytes(content)
        assert committed.listed() == expected
    for copy in folder.glob("sources@*"):
        copy.unlink()
    assert committed.unchanged() is None
    committed.write("README.md", "# B\n")
    assert committed.docs()["README.md"] == "modified"
    assert not list(folder.glob(".*"))


def test_times_that_tell_nothing_are_known():
    second = 10**9
    assert listings.may_have_changed((1, 1, 5 * second + 7, 5 * second + 7), 5 * second + 9)
    assert not listings.may_have_changed((1, 1, 5 * second + 7, 5 * second + 7), 6 * second)
    assert listings.may_have_changed((1, 1, 5 * second, 5 * second), 6 * second)
    assert listings.may_have_changed((1, 1, 1, 9 * second), 6 * second)


def test_excessive_number_of_files_is_rejected(committed, monkeypatch):
    monkeypatch.setattr("vmrag_link.sources.selection.MOST_FILES", 1)
    with pytest.raises(LimitExceeded, match="more than 1"):
        committed.listed()


def test_uncountable_untracked_files_hide_nothing(committed, monkeypatch):
    monkeypatch.setattr("vmrag_link.git.raw_changes.MOST_FILES", 5)
    for number in range(9):
        committed.write(f"docs/new{number}.md", "x")
    assert committed.listed().untracked == 5
    with pytest.raises(LimitExceeded):
        committed.listed(untracked=True)


def test_copy_of_the_index_that_another_process_removes_is_made_again(committed, monkeypatch):
    committed.write("README.md", "# B\n")
    real, folder = index_copy.refresh_copy, committed.top / ".git" / "vmrag"

    def refresh(places, copy):
        for path in folder.glob("sources@*"):
            path.unlink()
        monkeypatch.setattr(index_copy, "refresh_copy", real)
        real(places, copy)

    monkeypatch.setattr(index_copy, "refresh_copy", refresh)
    assert committed.docs()["README.md"] == "modified"
    assert committed.unchanged()


@pytest.mark.parametrize("content", [b"", b"DIRC", b"\0" * 200, b"DIRC\0\0\0\2\0\0\0\x09" + b"x" * 300])
def test_index_copy_damaged_by_power_cut_is_rebuilt(committed, content):
    committed.write("README.md", "# B\n")
    before = committed.listed()
    (copy,) = (committed.top / ".git" / "vmrag").glob("sources@*")
    copy.write_bytes(content)
    committed.unchanged()
    assert committed.listed() == before
    assert committed.unchanged()


def test_index_of_gits_that_is_damaged_is_an_error_of_gits(committed):
    committed.listed()
    (committed.top / ".git" / "index").write_bytes(b"x" * 200)
    with pytest.raises(GitFailed, match="index"):
        committed.listed()


def test_attribute_value_that_is_not_utf8_is_reported_as_reason(committed):
    (committed.top / ".gitattributes").write_bytes(b"README.md filter=\xff\n*.txt working-tree-encoding=\xff\n")
    committed.git("add", "-A")
    assert committed.reasons()["README.md"].startswith("has the filter \\xff")
    assert committed.unchanged()
    committed.write("docs/a.txt", "b\n")
    assert committed.reasons()["docs/a.txt"].startswith("has the unknown encoding ")


def test_single_listing_has_one_deadline(committed, monkeypatch):
    monkeypatch.setattr(readonly, "SECONDS", 0.0)
    with pytest.raises(LimitExceeded):
        committed.listed()


def test_calls_of_git_share_a_deadline(monkeypatch):
    with readonly.share_deadline():
        monkeypatch.setattr(readonly, "SECONDS", 1000.0)
        with readonly.share_deadline():
            assert readonly.seconds_left() <= 120
    assert readonly.seconds_left() == 1000


def test_listings_of_two_questions_do_not_disturb_each_other(committed):
    committed.write("README.md", "# B\n")
    with ThreadPoolExecutor(4) as pool:
        result = list(pool.map(lambda number: committed.docs(untracked=bool(number % 2)), range(12)))
    assert result == [{"README.md": "modified", "docs/a.txt": ""}] * 12
    assert not [path for path in (committed.top / ".git" / "vmrag").iterdir() if path.name.startswith(".")]


def test_work_tree_with_sha256_names_works(tmp_path):
    subprocess.run(["git", "init", "-q", "--object-format=sha256", tmp_path / "repo"], check=True)
    repo = Watched(tmp_path / "repo")
    repo.write("README.md", "# A\n")
    repo.git("add", "-A")
    assert repo.docs() == {"README.md": "added"}
    repo.git("commit", "-qm", "a")
    repo.write("README.md", "# B\n")
    (file,) = repo.listed().files["docs"]
    assert file.blob == repo.git("hash-object", "README.md")
    assert repo.texts() == {"README.md": "# B\n"}


def test_non_utf8_names_are_left_out_of_the_worktree(committed):
    name = os.fsencode(committed.top / "docs") + b"/\xff.md"
    Path(os.fsdecode(name)).write_text("x\n")
    committed.git("add", "-A")
    Path(os.fsdecode(name)).write_text("y\n")
    assert committed.reasons() == {"docs/\\udcff.md": "has a path that is not UTF-8"}
    assert committed.unchanged()
