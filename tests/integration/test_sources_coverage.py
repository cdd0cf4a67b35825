"""Paths of a source match git's result for existing files."""

from __future__ import annotations

import pytest

from tests.support.repos import make_repo
from vmrag_link.settings import SourceSettings
from vmrag_link.sources import rules

FILES = (
    "README.md",
    "a.md",
    "docs/a.md",
    "docs/b.txt",
    "docs/deep/c.md",
    "docs/deep/er/d.md",
    "docs.md",
    "docsmith/e.md",
    "src/a.py",
    "src/a/b.py",
    "src/[x].py",
    "src/x.py",
    "ü/é.md",
    "vendor/docs/f.md",
    ".github/g.md",
)


@pytest.mark.parametrize(
    ("paths", "exclude"),
    [
        (["docs/"], []),
        (["docs"], []),
        (["docs/*"], []),
        (["docs/**"], []),
        (["**/docs/**"], ["vendor/"]),
        (["*.md"], []),
        (["**/*.md"], ["**/deep/**"]),
        (["**"], ["docs/*.txt", "src"]),
        (["doc*"], []),
        (["doc?.md", "docs*/*.md"], []),
        (["src/[ax].py"], []),
        (["src/[x].py"], []),
        (["src/\\[x\\].py"], []),
        (["**/[a-c].*"], ["a.md"]),
        (["ü/", "*/é.md"], []),
        (["docs/**/d.md", "docs/deep/**"], ["docs/deep/er/"]),
    ],
)
def test_path_is_named_as_git_names_the_file(tmp_path, paths, exclude):
    repo = make_repo(tmp_path / "repo")
    repo.commit("all", **dict.fromkeys(FILES, "text\n"))
    source = SourceSettings("docs", tuple(paths), tuple(exclude))
    listed = repo.git("ls-files", "-z", "--", *rules.build_pathspecs(source)).split("\0")
    assert [file for file in sorted(FILES) if rules.is_named(source, file)] == sorted(filter(None, listed))


def test_file_types_without_documents_are_not_in_a_source():
    sources = [SourceSettings("docs", ("docs/",)), SourceSettings("code", ("docs/",), (), "code")]
    assert rules.find_source(sources, "docs/a.md") is sources[0]
    assert rules.find_source(sources, "docs/a.py") is sources[1]
    assert rules.find_source(sources[:1], "docs/a.pdf") is None
    assert rules.find_source(sources, "docs/package-lock.json") is None
    assert rules.find_source(sources, "elsewhere/a.md") is None
