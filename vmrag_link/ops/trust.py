"""`vmrag trust`: trust the settings of a clone and the services of its knowledge base on this
machine.

Only settings that could harm the user need trust, for example a remote or a hook's behaviour. The
module `vmrag_link.agreements` stores them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from vmrag_link import agreements, config, env, toolset, trust
from vmrag_link.agreements import Agreements
from vmrag_link.embedding.base import SERVICES
from vmrag_link.errors import UsageInvalid
from vmrag_link.git import remotes
from vmrag_link.models import Record
from vmrag_link.paths import CONFIG_NAME
from vmrag_link.settings import SourceSettings
from vmrag_link.settings.keys import CORE
from vmrag_link.workspace import Workspace

Value = str | int | bool

WRITE_EFFECT = "Folder in which `vmrag add` and agents write notes as files, and stage them."
"""Effect of `write: true` in a source."""


class ReportedSetting(Record, frozen=True):
    """A setting of the file that needs trust."""

    name: str
    value: Value
    line: int
    counts: Value
    """The value in effect."""
    about: str
    """The effect of the setting."""


class DroppedSetting(Record, frozen=True):
    """A trusted setting that the file no longer contains."""

    name: str
    counts: Value
    """The value in effect."""
    default: Value


class TrustReport(Record, frozen=True):
    """The settings to trust."""

    repository: str
    file: str
    agreed: bool
    """True if the user already trusts exactly these settings."""
    stated: tuple[ReportedSetting, ...]
    dropped: tuple[DroppedSetting, ...]
    services: tuple[str, ...]
    """Trusted embedding services."""


def examine_settings(ws: Workspace) -> TrustReport:
    """Return the settings that `trust_settings` would trust.

    It changes nothing and does not use the network. Raises `ConfigInvalid`.
    """
    text = config.read_settings_file(ws.places.config)
    trusted = agreements.read_agreements(ws.places)
    stated: list[ReportedSetting] = []
    dropped: list[DroppedSetting] = []
    trusted_values: dict[str, Any] = {}
    for schema in (CORE, *toolset.installed().schemas()):
        read_value = _make_value_reader(trust.load_sections(ws.places, schema).config)
        stated_settings = config.list_trust_settings(text, CONFIG_NAME, schema)
        trusted_here = trust.list_trusted_settings(ws.places, schema) or {}
        trusted_values |= trusted_here
        for setting in stated_settings:
            effective = trusted_here.get(setting.name, "")  # `write: true` of a source
            about = WRITE_EFFECT
            if setting.name in schema.keys:
                effective = read_value(setting.name)
                about = schema.keys[setting.name].doc
            stated.append(ReportedSetting(setting.name, setting.value, setting.line, effective, about))
        stated_names = {setting.name for setting in stated_settings}
        dropped += [
            DroppedSetting(name, read_value(name), schema.keys[name].default)
            for name in trusted_here
            if name in schema.keys and name not in stated_names
        ]
        dropped += [
            DroppedSetting(name, "", "")
            for name in trusted_here
            if schema is CORE and name.startswith("sources.") and name not in stated_names
        ]
    agreed_to_all = {setting.name: setting.value for setting in stated} == trusted_values
    return TrustReport(
        repository=trusted.repository,
        file=CONFIG_NAME,
        agreed=agreed_to_all,
        stated=tuple(sorted(stated, key=lambda setting: setting.line)),
        dropped=() if agreed_to_all else tuple(dropped),
        services=trusted.services,
    )


def trust_settings(ws: Workspace, report: TrustReport) -> None:
    """Trust exactly the settings of the report in this repository, even if the file has changed
    since.

    Raises `UsageInvalid` if the environment selects a commit whose settings apply instead.
    """
    commit = env.read_variable(env.SETTINGS_FROM)
    if commit:
        raise UsageInvalid(
            f"{env.SETTINGS_FROM} is set, so the settings of commit {commit[:12]} apply, whatever you trust.",
            hint=f"run 'unset {env.SETTINGS_FROM}'",
        )
    agreements.add_agreement(ws.places, {setting.name: setting.value for setting in report.stated})
    ws.reload_settings()


def trust_source(ws: Workspace, source: SourceSettings) -> None:
    """Also trust that exactly this source writes to its folder.

    It is for a command by which the user wrote `write: true`. If the environment selects a commit
    whose settings apply, nothing changes.
    """
    if env.read_variable(env.SETTINGS_FROM):
        return
    trusted = trust.list_trusted_settings(ws.places) or {}
    agreements.add_agreement(ws.places, {**trusted, config.name_write_setting(source.collection): source.folder})
    ws.reload_settings()


def trust_own_settings(ws: Workspace) -> bool:
    """Trust the settings that the user wrote to start a knowledge base. Return whether there were
    any.

    A committed file may be untrusted. Only a file that was never committed is the user's own.
    """
    report = examine_settings(ws)
    if report.agreed or env.read_variable(env.SETTINGS_FROM) or remotes.is_in_any_commit(ws.places, CONFIG_NAME):
        return False
    trust_settings(ws, report)
    return True


def trust_service(ws: Workspace, name: str) -> None:
    """Allow collections of this repository's knowledge base to use an embedding service.

    Raises `UsageInvalid` for an unknown service.
    """
    if name not in SERVICES:
        raise UsageInvalid(
            f"unknown embedding service {name[:80]!r}.", hint=f"run 'vmrag trust --service {next(iter(SERVICES))}'"
        )
    agreements.add_service(ws.places, name)
    ws.reload_settings()


def revoke_trust(ws: Workspace) -> bool:
    """Revoke all trust in this repository. Return whether there was any."""
    revoked = agreements.revoke_agreements(ws.places)
    ws.reload_settings()
    return revoked


def list_agreements() -> list[Agreements]:
    """Return what is trusted on this machine, by repository."""
    return agreements.read_all_agreements()


def _make_value_reader(values: Any) -> Callable[[str], Value]:
    """Return a function that returns the value in effect of a setting, by its dotted name."""
    sections = msgspec.to_builtins(values)

    def read_value(name: str) -> Value:
        value: Any = sections
        for part in name.split("."):
            value = value[part]
        effective: Value = value
        return effective

    return read_value
