"""The author of new commits, as git determines it."""

from __future__ import annotations

import re

from vmrag_link import env
from vmrag_link.errors import GitFailed
from vmrag_link.git.configuration import list_entries
from vmrag_link.git.run import build_failure, run_git
from vmrag_link.paths import Places


def read_configured_identity(places: Places) -> str | None:
    """Return the configured author of a commit, as `Name <email>`, or None if git would have to
    guess one.
    """
    finished = run_git(places, "-c", "user.useConfigOnly=true", "var", "GIT_AUTHOR_IDENT")
    author = finished.text.rsplit(" ", 2)[0]
    return author if finished.returncode == 0 and not author.endswith("<>") else None


def read_identity(places: Places) -> str:
    """Return the author of a commit made now, as `Name <email>`.

    Raises `GitFailed` if git has no name or e-mail address.
    """
    if author := _read_identity_settings(places):
        return author
    arguments = ("var", "GIT_AUTHOR_IDENT")
    finished = run_git(places, *arguments)
    hint = "run 'git config --global user.name \"Your Name\" && git config --global user.email you@example.com'"
    if finished.returncode != 0:
        raise build_failure(arguments, finished, hint=hint)
    author = finished.text.rsplit(" ", 2)[0]  # without seconds and time zone
    if author.endswith("<>"):
        raise GitFailed(f"git has no e-mail address for {author.removesuffix(' <>')}.", hint=hint)
    return author


_WORD = r"[^\x00-\x20.,:;<>\"\\']"
_CLEAN = rf"{_WORD}(?:[^\x00-\x1f<>]*{_WORD})?"
"""A name or an address that git uses unchanged. From others git removes blanks and punctuation at
both ends, and `<` and `>` everywhere.
"""


def _read_identity_settings(places: Places) -> str:
    """Return the author if environment and configuration name one completely. Otherwise return an
    empty text, and only git knows the author.
    """
    configured = dict(list_entries(places))
    author = [
        configured.get(f"author.{key}", configured.get(f"user.{key}", "")) if variable is None else variable
        for key, variable in zip(("name", "email"), env.git_author(), strict=True)
    ]
    return "{} <{}>".format(*author) if all(re.fullmatch(_CLEAN, value) for value in author) else ""
