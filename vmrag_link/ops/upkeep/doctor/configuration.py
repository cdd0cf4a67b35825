"""`.vmrag.yaml` and git's configuration, as far as they are settings of ours."""

from __future__ import annotations

import re
from collections.abc import Iterator

from vmrag_link import config, toolset
from vmrag_link.config import AGREE
from vmrag_link.ops.upkeep.doctor.findings import Finding, Topic
from vmrag_link.paths import CONFIG_NAME
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


def toolsets(ws: Workspace) -> Iterator[Finding]:
    """Toolsets that cannot be used, and settings that none reads."""
    found = toolset.installed()
    for problem in found.problems:
        yield Finding("TOOLSET_BROKEN", "warning", problem, "Install its package again, or another version of it.")
    read = {section for each in found.toolsets.values() for section in each.settings}
    for section, line in config.foreign_sections(config.own_text(ws.places.config), CONFIG_NAME).items():
        if section not in read:
            said = f"{CONFIG_NAME}, line {line}: no toolset that is installed here reads the section {section}."
            yield Finding(
                "SECTION_UNREAD", "warning", said, "Install the toolset that does, or delete the section.", section
            )


TOOLSETS = Topic("toolsets", toolsets)
