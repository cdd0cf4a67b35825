"""After any sequence of user commands, the lists match git and the files."""

from __future__ import annotations

import os
import random
import time

import pytest

from tests.support.long import examples
from tests.support.repos import Repo, make_repo
from vmrag_link.git.plumbing import locate_work_tree
from vmrag_link.settings import SourceSettings
from vmrag_link.sources.commit_files import list_at_commit
from vmrag_link.sources.documents import read_texts_at_commit, read_texts_in_work_tree
from vmrag_link.sources.listings import SourceListing, compute_token
from vmrag_link.sources.work_tree import compare_last_listing, list_in_work_tree

SOURCES = [SourceSettings("all", ("**/*",), (), "code")]
NAMES = ("a.md", "b.py", "docs/c.md", "docs/deep/d.txt", "e")


def _work(repo: Repo, chosen: random.Random) -> None:
    """One thing that a person does; it may fail."""
    name, other = chosen.choice(NAMES), chosen.choice(NAMES)
    path = repo.top / name
    branch = chosen.choice(["main", "other", "third"])

    def write() -> None:
        if path.parent.is_dir() or not path.parent.exists():
            repo.write(name, f"{chosen.randrange(4)}\n")

    def touch() -> None:
        if path.is_file():
            os.utime(path, (chosen.randrange(2) * 1000 + 1e9,) * 2)

    def chmod() -> None:
        if path.is_file():
            path.chmod(chosen.choice([0o644, 0o755]))

    commands = (
        ("add", "-A"), ("add", name), ("add", "-N", name), ("mv", name, other), ("rm", "-qf", name), ("rm", "-q", "--cached", name),
        ("commit", "-qam", "x"), ("commit", "-qm", "x"), ("commit", "-q", "--amend", "-m", "y"), ("stash", "-q"), ("stash", "pop", "-q"),
        ("checkout", "-q", branch), ("checkout", "-qf", branch), ("checkout", "-q", "-b", branch), ("merge", "-q", branch), ("merge", "--abort"),
        ("reset", "-q", "--hard"), ("reset", "-q", "--soft", "HEAD~1"), ("reset", "-q", "HEAD~1"), ("restore", name), ("status",), ("add", "-u"),
    )  # fmt: skip
    what = chosen.choice(
        [write, write, write, write, touch, chmod, lambda: path.unlink(missing_ok=True), None, None, None, None, None]
    )
    if what is None:
        repo.run(*chosen.choice(commands))
    else:
        what()


def _head(repo: Repo, ref: str = "HEAD") -> dict[str, str]:
    listed = repo.git("ls-tree", "-r", ref, check=False).splitlines()
    return {line.split("\t")[1]: line.split()[2] for line in listed}


def _require_agreement(repo: Repo, listing: SourceListing) -> None:
    head = _head(repo)
    entries = [line.split("\t") for line in repo.git("ls-files", "--stage").splitlines()]
    unmerged = {path for about, path in entries if about.split()[2] != "0"}
    expected = {}
    empty = set()
    for path in sorted({path for _, path in entries}):
        if not (repo.top / path).is_file():
            continue
        if not (repo.top / path).stat().st_size:
            empty.add(path)
            continue
        blob = repo.git("hash-object", path)
        how = (
            "unmerged"
            if path in unmerged
            else "added"
            if path not in head
            else ""
            if head[path] == blob
            else "modified"
        )
        expected[path] = (blob, (repo.top / path).stat().st_size, how)
    assert {file.path: (file.blob, file.size, file.uncommitted) for file in listing.files["all"]} == expected
    assert listing.removed == tuple(sorted(head.keys() - expected.keys() - empty))
    texts = {
        file.path: said.text for file, said in read_texts_in_work_tree(locate_work_tree(repo.top), listing.files["all"])
    }
    assert texts == {path: (repo.top / path).read_text() for path in expected}


@pytest.mark.parametrize("seed", range(examples(6)))
def test_listings_agree_with_git_after_random_work(tmp_path, seed):
    chosen = random.Random(seed)
    repo = make_repo(tmp_path / "repo")
    places, cache = locate_work_tree(repo.top), tmp_path / "cache" / "sources"
    options = {"max_bytes": 1000, "untracked": False, "cache": cache}
    for _ in range(60):
        for _ in range(chosen.randrange(1, 4)):
            _work(repo, chosen)
        if chosen.random() < 0.2:
            time.sleep(0.06)
        token = compare_last_listing(places, SOURCES, **options).token
        listing = list_in_work_tree(places, SOURCES, **options)
        assert token in (None, compute_token(listing))
        assert compare_last_listing(places, SOURCES, **options).token == compute_token(listing)
        _require_agreement(repo, listing)
        if head := repo.git("rev-parse", "-q", "--verify", "HEAD", check=False):
            committed = list_at_commit(places, head, SOURCES, max_bytes=1000)
            assert {file.path: file.blob for file in committed.files["all"]} == _head(repo)
            for file, said in read_texts_at_commit(places, committed.files["all"]):
                assert said.text == repo.git("show", f"HEAD:{file.path}") + "\n"
