"""The repository and settings of a server. They are known at the start or after the first call."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from vmrag_link import config, env, trust
from vmrag_link.errors import ConfigInvalid, GitRepositoryMissing, VmragError
from vmrag_link.git import plumbing
from vmrag_link.models import Record
from vmrag_link.paths import CONFIG_NAME, is_outside_projects
from vmrag_link.settings import Config


class Place(Record, frozen=True):
    """A directory, and who named it."""

    directory: Path
    named: bool = True
    """The client or a person named it."""
    outright: bool = False
    """A person named it, for this server."""


def find_repository(repository: Path | None) -> Place:
    """Return the place that the command line, the environment or the client names, or else the
    current folder.
    """
    try:
        current = Path.cwd()
    except FileNotFoundError:
        current = Path("/")
    if named := repository or env.read_variable(env.REPOSITORY):
        return Place(current / Path(named).expanduser(), outright=True)
    if project := env.read_variable(env.CLIENT_PROJECT):
        return Place(current / project)
    return Place(current, named=False)


def build_refusal(directory: Path) -> GitRepositoryMissing:
    """Return the error for a directory that is not a project."""
    return GitRepositoryMissing(
        f"{directory} is not a git repository, and no other repository is named.",
        hint="start the server in a repository, or with '--repo DIR'",
        path=str(directory),
    )


class PlaceSettings(Record, frozen=True):
    """The settings of a place."""

    config: Config
    problem: VmragError | None = None
    """Why the files of the settings could not be read. Every call will fail for this reason."""
    stated: frozenset[str] = frozenset()
    """Names of the settings that are set and in effect."""


def load_settings(place: Place) -> PlaceSettings:
    """Return the settings of a place. If they cannot be read, the result has the `problem`."""
    try:
        places = (
            plumbing.locate_work_tree(place.directory)
            if place.outright or not is_outside_projects(place.directory)
            else None
        )
        if places is None or (not place.outright and is_outside_projects(places.top)):
            raise build_refusal(place.directory)
        loaded = trust.load_settings(places)
    except VmragError as problem:
        return _settings_without_files(problem)
    return PlaceSettings(loaded.config, stated=loaded.machine | loaded.trusted)


def _settings_without_files(problem: VmragError) -> PlaceSettings:
    with contextlib.suppress(ConfigInvalid):
        resolved = config.resolve_settings(None, path_label=CONFIG_NAME, overrides={}, environ=os.environ)
        return PlaceSettings(resolved.config, problem, resolved.machine)
    return PlaceSettings(Config(), problem)
