"""The settings that count in a work tree."""

from __future__ import annotations

import os
import re
from typing import Any

from vmrag_link import config, env, settings_file
from vmrag_link.config import Loaded
from vmrag_link.errors import ConfigInvalid, GitReferenceMissing, shortened
from vmrag_link.git import plumbing
from vmrag_link.git.configuration import config_section
from vmrag_link.git.heads import COMMIT_NAME
from vmrag_link.paths import CONFIG_NAME, Places
from vmrag_link.settings import Config
from vmrag_link.settings_keys import CORE, Schema
from vmrag_link.trust import agreements


def load(places: Places) -> Loaded[Config]:
    """Of the environment, git config, and `.vmrag.yaml` as far as this person agreed to it.

    Raises `ConfigInvalid`.
    """
    return _load(places, config.own_text(places.config), CONFIG_NAME)


def load_sections(places: Places, schema: Schema) -> Loaded[Any]:
    """As `load`, of sections that toolsets bring. Raises `ConfigInvalid`."""
    return _load(places, config.own_text(places.config), CONFIG_NAME, schema)


def load_at(places: Places, ref: str) -> Loaded[Config]:
    """As `load`, with the `.vmrag.yaml` in the commit that a git ref names.

    Raises `ConfigInvalid`, `GitReferenceMissing`.
    """
    spec = f"{plumbing.resolve(places, ref)}:{CONFIG_NAME}"
    return _load(places, plumbing.blob(places, spec, limit=settings_file.MAX_BYTES), f"{ref}:{CONFIG_NAME}")


def _load(places: Places, text: bytes | None, label: str, schema: Schema = CORE) -> Loaded[Any]:
    def known(remote: str) -> bool:
        from vmrag_link.transport import address

        return address.named_here(places, remote)

    return config.load(
        text,
        path_label=label,
        overrides=config_section(places, "vmrag"),
        environ=os.environ,
        agreed=agreed(places, schema),
        known_remote=known,
        stand_in=env.settings_from(),
        schema=schema,
    )


def agreed(places: Places, schema: Schema = CORE) -> dict[str, Any] | None:
    """What counts as agreed to in this repository, by name; None: nobody has agreed to anything.

    In place of a person's agreement, what the commit of `VMRAG_SETTINGS_FROM` states. It is read
    as a blob, and no other file stands in for one that is not here. Raises `ConfigInvalid`.
    """
    commit = env.settings_from()
    if commit is None:
        return agreements.read(places).settings
    label = f"{commit[:12]}:{CONFIG_NAME}"
    return {each.name: each.value for each in config.stated(_committed(places, commit), label, schema)}


def _committed(places: Places, commit: str) -> bytes | None:
    if not re.fullmatch(COMMIT_NAME, commit):  # a name would be a stranger's to move
        raise ConfigInvalid(
            f"{env.SETTINGS_FROM} must be the full hash of a commit; found {shortened(commit)!r}.",
            hint=f"unset {env.SETTINGS_FROM}   (or: git rev-parse BRANCH)",
            variable=env.SETTINGS_FROM,
        )
    try:
        return plumbing.blob(places, f"{commit}:{CONFIG_NAME}", limit=settings_file.MAX_BYTES)
    except GitReferenceMissing as missing:
        raise ConfigInvalid(
            f"{env.SETTINGS_FROM} names commit {commit[:12]}, which is not here: nobody can say which settings count.",
            hint=f"git fetch origin {commit}",
            variable=env.SETTINGS_FROM,
        ) from missing
