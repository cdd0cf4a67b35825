"""The settings that count in a work tree."""

from __future__ import annotations

import os

from vmrag_link import config
from vmrag_link.config import Loaded
from vmrag_link.git.settings import config_section
from vmrag_link.paths import CONFIG_NAME, Places
from vmrag_link.trust import agreements


def load(places: Places) -> Loaded:
    """Of the environment, git config, and `.vmrag.yaml` as far as this person agreed to it.

    Raises `ConfigInvalid`.
    """

    def known(remote: str) -> bool:
        from vmrag_link.transport import trust  # few files name a remote

        return trust.named_here(places, remote)

    return config.load(
        config.own_text(places.config),
        path_label=CONFIG_NAME,
        overrides=config_section(places, "vmrag"),
        environ=os.environ,
        agreements=agreements.read(places).settings,
        known_remote=known,
    )
