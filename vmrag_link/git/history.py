"""The pins of the whole history, on GitPython (170 ms to import: only where history is worked on)."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from vmrag_link.errors import GitFailed
from vmrag_link.git.plumbing import PIN_READ_LIMIT
from vmrag_link.paths import PIN_NAME, Places

if TYPE_CHECKING:
    import git


def pins(places: Places, *, reflogs: bool = True) -> dict[bytes, list[str]]:
    """Every content that `.dolt-version` has in a commit that a ref or HEAD of any work tree reaches, or (`reflogs`) reached.

    Mapped to the commits that introduced it, newest first; a merge counts only where it equals none of its parents.
    Contents above 8 KiB pin nothing and are left out. The index and the work tree are no commits.
    """
    import git

    console = git.Git(places.top)
    # GIT_DIR of a hook's environment would send its children to another repository.
    console.set_persistent_git_options(git_dir=str(places.git_dir))
    try:
        commits = _commits_that_touch_the_pin(console, reflogs=reflogs)
        introduced: dict[str, list[str]] = {}
        for commit, name in zip(commits, _pin_blobs(console, commits), strict=True):
            if name is not None:
                introduced.setdefault(name, []).append(commit)
        return dict(zip(_contents(console, introduced), introduced.values(), strict=True))
    except git.GitCommandError as error:
        said = str(error.stderr).strip()
        raise GitFailed(f"Cannot read the history of {PIN_NAME}: {said}", hint="git fsck", said=said) from error


def _commits_that_touch_the_pin(console: git.Git, *, reflogs: bool) -> list[str]:
    sources = ("--all", "--reflog") if reflogs else ("--all",)
    # Without --full-history git skips side branches whose pin a merge dropped.
    return str(console.rev_list(*sources, "--full-history", "--", PIN_NAME)).split()


def _pin_blobs(console: git.Git, commits: Iterable[str]) -> Iterator[str | None]:
    """The blob's hash for each commit; None where the commit removed the pin, or has something else in its place."""
    answers = _cat_file(console, "--batch-check", (f"{commit}:{PIN_NAME}" for commit in commits))
    for line in answers.decode().splitlines():
        match line.split(" "):
            case [name, "blob", size] if int(size) <= PIN_READ_LIMIT:
                yield name
            case _:
                yield None


def _contents(console: git.Git, names: Iterable[str]) -> Iterator[bytes]:
    rest = _cat_file(console, "--batch", names)
    while rest:
        header, _, rest = rest.partition(b"\n")
        size = int(header.split(b" ")[2])
        yield rest[:size]
        rest = rest[size + 1 :]


def _cat_file(console: git.Git, mode: str, objects: Iterable[str]) -> bytes:
    with tempfile.TemporaryFile() as questions:  # GitPython hands git a file, not bytes
        questions.write("".join(f"{name}\n" for name in objects).encode())
        questions.seek(0)
        answers = console.cat_file(mode, istream=questions, stdout_as_string=False, strip_newline_in_stdout=False)
    assert isinstance(answers, bytes)  # noqa: S101  because of stdout_as_string=False
    return answers
