"""Find the repository of a server, and its settings.

A person names the repository with an option or a variable. Otherwise the client can name it, at the
start or with the first call (`deferred_setup`). Otherwise it is the current folder. A folder that
cannot be a project, such as the home, is refused.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Literal

from vmrag_link import config, env, trust
from vmrag_link.errors import ConfigInvalid, GitRepositoryMissing, VmragError
from vmrag_link.git import plumbing
from vmrag_link.models import Record
from vmrag_link.paths import CONFIG_NAME, is_outside_projects
from vmrag_link.settings import Config


class NamedDirectory(Record, frozen=True):
    """A directory, and who named it."""

    directory: Path
    named_by: Literal["person", "client", ""] = "client"
    """Empty for the current folder."""


def find_repository(repository: Path | None) -> NamedDirectory:
    """Return the directory that the command line, the environment or the client names, or else the
    current folder.
    """
    try:
        current = Path.cwd()
    except FileNotFoundError:
        current = Path("/")
    if named := repository or env.read_variable(env.REPOSITORY):
        return NamedDirectory(current / Path(named).expanduser(), "person")
    if project := env.read_variable(env.CLIENT_PROJECT):
        return NamedDirectory(current / project)
    return NamedDirectory(current, "")


class DirectorySettings(Record, frozen=True):
    """The settings of a directory."""

    config: Config
    problem: VmragError | None = None
    """Why the files of the settings could not be read. Every call will fail for this reason."""
    stated: frozenset[str] = frozenset()
    """Names of the settings that are set and in effect."""


def load_settings(repository: NamedDirectory) -> DirectorySettings:
    """Return the settings of a directory. If they cannot be read, the result has the `problem`."""
    try:
        require_project(repository, repository.directory)
        places = plumbing.locate_work_tree(repository.directory)
        require_project(repository, places.top)
        loaded = trust.load_settings(places)
    except VmragError as problem:
        return _settings_without_files(problem)
    return DirectorySettings(loaded.config, stated=loaded.machine | loaded.trusted)


def require_project(repository: NamedDirectory, folder: Path) -> None:
    """Raise `GitRepositoryMissing` if the folder cannot be a project, such as the home.

    If a person named the directory, every folder is allowed.
    """
    if repository.named_by != "person" and is_outside_projects(folder):
        raise GitRepositoryMissing(
            f"{repository.directory} is not a git repository, and no other repository is named.",
            hint="start the server in a repository, or with '--repo DIR'",
            path=str(repository.directory),
        )


def _settings_without_files(problem: VmragError) -> DirectorySettings:
    with contextlib.suppress(ConfigInvalid):
        resolved = config.resolve_settings(None, path_label=CONFIG_NAME, overrides={}, environ=os.environ)
        return DirectorySettings(resolved.config, problem, resolved.machine)
    return DirectorySettings(Config(), problem)
