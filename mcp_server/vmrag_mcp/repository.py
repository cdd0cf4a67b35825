"""A server's repository and its settings: known at the start, or settled by the first call."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from vmrag_link import config, env
from vmrag_link import trust as agreements
from vmrag_link.errors import ConfigInvalid, GitRepositoryMissing, VmragError
from vmrag_link.git import plumbing
from vmrag_link.models import Record
from vmrag_link.paths import CONFIG_NAME, is_outside_projects
from vmrag_link.settings import Config


class Place(Record, frozen=True):
    """A directory. `named`: by the client or a person; `outright`: by a person, for this server."""

    directory: Path
    named: bool = True
    outright: bool = False


def find_repository(repository: Path | None) -> Place:
    """What the command line names, or the environment, or the client, or the current folder."""
    try:
        here = Path.cwd()
    except FileNotFoundError:
        here = Path("/")
    if given := repository or env.read_variable(env.REPOSITORY):
        return Place(here / Path(given).expanduser(), outright=True)
    if project := env.read_variable(env.CLIENT_PROJECT):
        return Place(here / project)
    return Place(here, named=False)


def build_refusal(directory: Path) -> GitRepositoryMissing:
    return GitRepositoryMissing(
        f"{directory} is no project, and nothing says which one is meant.",
        hint="Start the server in a repository, or with --repo DIR (or VMRAG_REPO=DIR)",
        path=str(directory),
    )


class PlaceSettings(Record, frozen=True):
    """The settings of a place.

    `problem`: why its files could not be read, as every call will find. `stated`: the names of
    those that somebody has made, and that count.
    """

    config: Config
    problem: VmragError | None = None
    stated: frozenset[str] = frozenset()


def load_settings(place: Place) -> PlaceSettings:
    try:
        places = (
            plumbing.locate_work_tree(place.directory)
            if place.outright or not is_outside_projects(place.directory)
            else None
        )
        if places is None or (not place.outright and is_outside_projects(places.top)):
            raise build_refusal(place.directory)
        loaded = agreements.load_settings(places)
    except VmragError as problem:
        return _settings_without_files(problem)
    return PlaceSettings(loaded.config, stated=loaded.machine | loaded.trusted)


def _settings_without_files(problem: VmragError) -> PlaceSettings:
    with contextlib.suppress(ConfigInvalid):
        found = config.resolve_settings(None, path_label=CONFIG_NAME, overrides={}, environ=os.environ)
        return PlaceSettings(found.config, problem, found.machine)
    return PlaceSettings(Config(), problem)
