"""`.vmrag.yaml` and git's configuration, as far as they are settings of ours."""

from __future__ import annotations

import re
from collections.abc import Iterator

from vmrag_link.config import AGREE
from vmrag_link.ops.upkeep.doctor.findings import Finding, Topic
from vmrag_link.workspace import Workspace

_WITHOUT_EFFECT = re.compile(r"^(git config (\S+)|.*): (\S+) has no effect any more")
_MISSPELLED = re.compile(r"^git config (\S+) is not a setting; did you mean (\S+)\?")


def check(ws: Workspace) -> Iterator[Finding]:
    """Settings that cannot be used stop every command; what was ignored is a warning each."""
    for warning in ws.settings.loaded.warnings:
        yield Finding("CONFIG_IGNORED", "warning", warning, _fix(warning))


def _fix(warning: str) -> str:
    if wrong := _MISSPELLED.search(warning):
        name, meant = wrong.groups()
        return f'git config {meant} "$(git config {name})" && git config --unset-all {name}'
    if old := _WITHOUT_EFFECT.search(warning):
        return f"git config --unset-all {old[2]}" if old[2] else f"Take {old[3]} out of {old[1]}."
    return AGREE


TOPIC = Topic("settings", check)
