"""The settings that count in a work tree."""

from __future__ import annotations

import os

from vmrag_link import config, settings_file
from vmrag_link.config import Loaded
from vmrag_link.git import plumbing
from vmrag_link.git.settings import config_section
from vmrag_link.paths import CONFIG_NAME, Places
from vmrag_link.trust import agreements


def load(places: Places) -> Loaded:
    """Of the environment, git config, and `.vmrag.yaml` as far as this person agreed to it.

    Raises `ConfigInvalid`.
    """
    return _load(places, config.own_text(places.config), CONFIG_NAME)


def load_at(places: Places, ref: str) -> Loaded:
    """As `load`, with the `.vmrag.yaml` in the commit that a git ref names.

    Raises `ConfigInvalid`, `GitReferenceMissing`.
    """
    spec = f"{plumbing.resolve(places, ref)}:{CONFIG_NAME}"
    return _load(places, plumbing.blob(places, spec, limit=settings_file.MAX_BYTES), f"{ref}:{CONFIG_NAME}")


def _load(places: Places, text: bytes | None, label: str) -> Loaded:
    def known(remote: str) -> bool:
        from vmrag_link.transport import trust  # few files name a remote

        return trust.named_here(places, remote)

    return config.load(
        text,
        path_label=label,
        overrides=config_section(places, "vmrag"),
        environ=os.environ,
        agreements=agreements.read(places).settings,
        known_remote=known,
    )
