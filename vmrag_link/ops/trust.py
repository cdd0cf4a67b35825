"""`vmrag trust`: agree to what cloned settings and knowledge ask for, on this machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from vmrag_link import config, env, toolset
from vmrag_link import trust as agreements
from vmrag_link.embedding.base import SERVICES
from vmrag_link.errors import UsageInvalid
from vmrag_link.git import remotes
from vmrag_link.models import Record
from vmrag_link.paths import CONFIG_NAME
from vmrag_link.settings import SourceSettings
from vmrag_link.settings.keys import CORE
from vmrag_link.trust import Agreements
from vmrag_link.workspace import Workspace

Value = str | int | bool

WRITE_EFFECT = "Folder in which `vmrag add` and agents write notes as files, and stage them."
"""Effect of `write: true` in a source."""


class ReportedSetting(Record, frozen=True):
    """A setting of the file that needs agreement; `counts`: its value now; `about`: its effect."""

    name: str
    value: Value
    line: int
    counts: Value
    about: str


class DroppedSetting(Record, frozen=True):
    """A setting that was agreed to, and that the file no longer states; `counts`: its value now."""

    name: str
    counts: Value
    default: Value


class TrustReport(Record, frozen=True):
    """`stated` and `dropped`: what agreeing is about.

    `agreed`: what this file states is what was agreed to last.
    """

    repository: str
    file: str
    agreed: bool
    stated: tuple[ReportedSetting, ...]
    dropped: tuple[DroppedSetting, ...]
    services: tuple[str, ...]


def examine_settings(ws: Workspace) -> TrustReport:
    """What `agree` would agree to. Contacts nobody, changes nothing. Raises `ConfigInvalid`."""
    text = config.read_settings_file(ws.places.config)
    remembered = agreements.read_agreements(ws.places)
    stated: list[ReportedSetting] = []
    dropped: list[DroppedSetting] = []
    last: dict[str, Any] = {}
    for schema in (CORE, *toolset.installed().schemas()):
        counting = _counting(agreements.load_sections(ws.places, schema).config)
        here = config.list_trust_settings(text, CONFIG_NAME, schema)
        agreed = agreements.list_trusted_settings(ws.places, schema) or {}
        last |= agreed
        stated += [
            ReportedSetting(
                setting.name, setting.value, setting.line, counting(setting.name), schema.keys[setting.name].doc
            )
            if setting.name in schema.keys
            else ReportedSetting(setting.name, setting.value, setting.line, agreed.get(setting.name, ""), WRITE_EFFECT)
            for setting in here
        ]
        stated_names = {setting.name for setting in here}
        dropped += [
            DroppedSetting(name, counting(name), schema.keys[name].default)
            for name in agreed
            if name in schema.keys and name not in stated_names
        ]
        dropped += [
            DroppedSetting(name, "", "")
            for name in agreed
            if schema is CORE and name.startswith("sources.") and name not in stated_names
        ]
    agreed_to_all = {each.name: each.value for each in stated} == last
    return TrustReport(
        remembered.repository,
        CONFIG_NAME,
        agreed_to_all,
        tuple(sorted(stated, key=lambda each: each.line)),
        () if agreed_to_all else tuple(dropped),
        remembered.services,
    )


def trust_settings(ws: Workspace, report: TrustReport) -> None:
    """Let exactly what the report shows count in this repository, whatever the file says by now.

    Raises `UsageInvalid` where a commit's settings stand for the person's agreement.
    """
    if commit := env.read_variable(env.SETTINGS_FROM):
        raise UsageInvalid(
            f"{env.SETTINGS_FROM} lets the settings of commit {commit[:12]} count here, whatever anybody agrees to.",
            hint=f"unset {env.SETTINGS_FROM}",
        )
    agreements.add_agreement(ws.places, {each.name: each.value for each in report.stated})
    ws.reload_settings()


def trust_source(ws: Workspace, source: SourceSettings) -> None:
    """Trust that exactly this source writes to its folder, beside what is trusted already.

    For a command by which the user wrote `write: true`. If a commit's settings stand for what the
    user trusts, nothing changes.
    """
    if env.read_variable(env.SETTINGS_FROM):
        return
    trusted = agreements.list_trusted_settings(ws.places) or {}
    agreements.add_agreement(ws.places, {**trusted, config.name_write_setting(source.collection): source.folder})
    ws.reload_settings()


def trust_own_settings(ws: Workspace) -> bool:
    """Agree to the settings that the user wrote to start a knowledge base; True if there were some.

    A file in any commit may be a stranger's: only one that was never committed is the user's own.
    """
    report = examine_settings(ws)
    if report.agreed or env.read_variable(env.SETTINGS_FROM) or remotes.is_in_any_commit(ws.places, CONFIG_NAME):
        return False
    trust_settings(ws, report)
    return True


def trust_service(ws: Workspace, name: str) -> None:
    """Let collections of this repository's knowledge base ask an embedding service.

    Raises `UsageInvalid`.
    """
    if name not in SERVICES:
        raise UsageInvalid(
            f"There is no embedding service {name[:80]!r}.", hint=f"vmrag trust --service {next(iter(SERVICES))}"
        )
    agreements.add_service(ws.places, name)
    ws.reload_settings()


def revoke_trust(ws: Workspace) -> bool:
    """Forget what was agreed to in this repository; returns whether there was anything."""
    done = agreements.revoke_agreements(ws.places)
    ws.reload_settings()
    return done


def list_agreements() -> list[Agreements]:
    """What was agreed to on this machine, by repository."""
    return agreements.read_all_agreements()


def _counting(values: Any) -> Callable[[str], Value]:
    """What counts of a setting, by its dotted name."""
    found = msgspec.to_builtins(values)

    def of(name: str) -> Value:
        value: Any = found
        for part in name.split("."):
            value = value[part]
        counts: Value = value
        return counts

    return of
