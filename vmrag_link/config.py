"""Resolve the settings from the environment, git config and `.vmrag.yaml`, in that order of
precedence.

A cloned `.vmrag.yaml` is untrusted. A setting that needs trust applies only if the user of this
machine has trusted its value. Until then the file can narrow the setting, but not widen it.
`python -m vmrag_link.config` prints docs/configuration.md.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from vmrag_link import env
from vmrag_link.errors import ConfigInvalid, enumerated, in_the_way, nearest, quoted
from vmrag_link.file_access import describe_file_type, read_regular
from vmrag_link.formats import require_program_version
from vmrag_link.models import Record
from vmrag_link.pin_values import quote_untrusted
from vmrag_link.settings import Config, SourceSettings
from vmrag_link.settings.entries import MAX_BYTES, SettingEntry, recall_entries, record_entries
from vmrag_link.settings.flaws import EXAMPLE_OF_SOURCES, EXAMPLE_OF_SOURCES_IN_JSON
from vmrag_link.settings.keys import CORE, DOCUMENTATION, KEYS, REMOVED, SECTIONS, Schema, SettingKey

__all__ = [
    "TRUST_COMMAND",
    "Config",
    "LoadedSettings",
    "StatedSetting",
    "list_trust_settings",
    "read_settings_file",
    "resolve_settings",
]

TRUST_COMMAND = "vmrag trust"
"""The command by which a user trusts the settings of the file."""

_REQUIRES = "requires"
_IN_GIT = "vmrag"  # the section of git config, whose keys are not settings of the file
_INTEGER = r"-?(?:0|[1-9][0-9]{0,17})"
_DECIMAL = r"(?=\.?[0-9])[0-9]{0,4}(?:\.[0-9]{1,3})?"
_MAX_IN_WARNING = 2
"""Number of settings that a warning names; `vmrag trust` lists all of them."""
_MISSPELLED = 0.85
"""Similarity from which the name of a section counts as a misspelled one."""
_NOTHING = frozenset(("", "~", "null", "Null", "NULL"))
_BOOLEANS = {"true": True, "false": False}
# Where git's own spellings are at home. In YAML they differ between parsers, so the file keeps to
# two words.
_GIT_BOOLEANS = _BOOLEANS | {"yes": True, "on": True, "1": True, "no": False, "off": False, "0": False}


C = TypeVar("C")


class LoadedSettings(Record, Generic[C], frozen=True):
    """The settings in effect, and what was ignored."""

    config: C
    warnings: list[str]
    """One sentence for each thing that was ignored."""
    machine: frozenset[str] = frozenset()
    """Names that the environment or git config sets. Only the user of this machine can do that."""
    trusted: frozenset[str] = frozenset()
    """Names that apply because the user has trusted them."""
    stated_remote: str | None = None
    """The `remote` of the file, trusted or not."""
    removed: Mapping[str, RemovedSetting] = {}
    """Settings that this version no longer has, by name."""
    trusted_writes: Mapping[str, str] = {}
    """Folders to which sources can write, because the user trusts that, by `name_write_setting`."""

    def may_write(self, source: SourceSettings) -> bool:
        """Return whether the user trusts that a writable source writes to its folder."""
        return (
            "sources" in self.machine or self.trusted_writes.get(name_write_setting(source.collection)) == source.folder
        )


class RemovedSetting(Record, frozen=True):
    """A setting that this version no longer has, with its value."""

    value: str
    place: str
    """The place of the setting, such as `.vmrag.yaml, line 3`."""
    hint: str
    """The replacement of the setting."""


def name_write_setting(collection: str) -> str:
    """Return the name under which the user trusts that a source writes files.

    The value is the folder, so that another folder is not trusted.
    """
    return f"sources.{collection}.write"


class StatedSetting(Record, frozen=True):
    """A setting of the file that needs trust."""

    name: str
    value: str | int | bool
    line: int
    """The line of the file, from 1."""


class _Where(Record, frozen=True):
    """The source of a value, for messages about it."""

    label: str
    """The beginning of a message about the value."""
    hint: str
    """How to fix the value."""
    details: dict[str, Any]
    """The details of an error, for programs."""


_TRUSTED = _Where("the trusted settings", f"run '{TRUST_COMMAND}' to trust the settings", {})


class _Stated(Record, frozen=True):
    """A value, and its source."""

    value: Any
    where: _Where


def resolve_settings(
    text: bytes | None,
    *,
    path_label: str,
    overrides: Mapping[str, str],
    environ: Mapping[str, str],
    agreed: Mapping[str, Any] | None = None,
    known_remote: Callable[[str], bool] = lambda _: False,
    stand_in: str | None = None,
    schema: Schema = CORE,
    record: Path | None = None,
) -> LoadedSettings[Any]:
    """Return the settings of a work tree.

    `text` has the bytes of `.vmrag.yaml`, or None without that file. `overrides` is the section
    `vmrag.` of git config. `agreed` has the values that the user trusted last in this repository
    (`list_trust_settings`), by name, or None if nothing was trusted. `known_remote` returns whether
    the user trusts a remote on its own. `stand_in` names the commit whose settings are trusted in
    place of a user's decision. Settings that are not in `schema` are skipped. `record` is the file
    for the recorded entries (`settings.entries`).

    Raises `ConfigInvalid` for an invalid setting, and `ProgramTooOld` if the settings require a
    newer version.
    """
    keys = schema.keys
    entries = _read_entries(text, path_label, record)
    warnings = _warn_misspelled(overrides) if schema is CORE else []
    removed = _find_removed(entries, path_label, overrides, environ) if schema is CORE else {}
    warnings += [f"{setting.place}: {name} was removed; {setting.hint}" for name, setting in removed.items()]
    machine = [_read_environment(environ, keys), _read_git_config(overrides, keys)]
    values = _read_file(entries, path_label, schema)
    stated = {name: item.value for name, item in values.items() if keys[name].requires_trust(item.value)}
    trusted_writes = {name: value for name, value in (agreed or {}).items() if name.startswith("sources.")}
    trusted = {name: value for name, value in (agreed or {}).items() if name in keys}
    if stated != trusted:
        values, ignored = _narrow_untrusted(values, stated, trusted, known_remote, keys)
        ignored_here = [text for name, text in ignored.items() if not any(name in source for source in machine)]
        if ignored_here:
            had_decision = agreed is not None
            warnings.append(_describe_ignored(path_label, ignored_here, before=had_decision, stand_in=stand_in))
    for source in reversed(machine):
        if required := source.get(_REQUIRES):
            require_program_version(required.value, required.where.label)
        values |= {name: _add_restrictions(keys[name], item, values.get(name)) for name, item in source.items()}
    config = _build_struct(values, schema.struct)
    if isinstance(config, Config):
        _require_overlap(config, values)
    still_trusted = (name for name, value in trusted.items() if name in values and values[name].value == value)
    return LoadedSettings(
        config=config,
        warnings=warnings,
        machine=frozenset().union(*machine),
        trusted=frozenset(still_trusted),
        stated_remote=stated.get("remote"),
        removed=removed,
        trusted_writes=trusted_writes,
    )


def list_trust_settings(text: bytes | None, path_label: str, schema: Schema = CORE) -> list[StatedSetting]:
    """Return the settings of a file that need trust, in the order of the file.

    Raises `ConfigInvalid` if the file is invalid.
    """
    values = _read_file(_read_entries(text, path_label), path_label, schema)
    settings = [
        StatedSetting(name, item.value, item.where.details["line"])
        for name, item in values.items()
        if schema.keys[name].requires_trust(item.value)
    ]
    if sources := values.get("sources"):
        line = sources.where.details["line"]
        writable = (source for source in msgspec.convert(sources.value, tuple[SourceSettings, ...]) if source.write)
        settings += [StatedSetting(name_write_setting(source.collection), source.folder, line) for source in writable]
    return settings


def read_settings_file(path: Path) -> bytes | None:
    """Return the bytes of the settings file in a work tree, or None if it does not exist.

    Raises `ConfigInvalid` if it is not a regular file, or cannot be read.
    """
    try:
        return read_regular(path, MAX_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        if file_type := describe_file_type(path):
            hint = in_the_way(path, file_type).hint
            raise ConfigInvalid(f"{path.name} is {file_type}, not a file.", hint=hint, file=path.name) from error
        raise ConfigInvalid(
            f"cannot read {path.name}: {error.strerror}.",
            hint=f"run 'ls -ld {quoted(path)}' to check it",
            file=path.name,
        ) from error


def _require_overlap(config: Config, values: Mapping[str, _Stated]) -> None:
    if config.chunking.overlap >= config.chunking.size:
        where = (values.get("chunking.overlap") or values["chunking.size"]).where
        sizes = f"{config.chunking.overlap} is not less than {config.chunking.size}"
        raise _invalid_error(f"chunking.overlap must be less than chunking.size; {sizes}", where)


def list_foreign_sections(text: bytes | None, path_label: str) -> dict[str, int]:
    """Return the sections of a file that the core does not have, with the number of their first
    line.
    """
    entries = _read_entries(text, path_label)
    lines: dict[str, int] = {}
    for entry in entries:
        if _is_foreign(entry):
            lines.setdefault(_find_section(entry), entry.line)
    return lines


def _build_struct(values: Mapping[str, _Stated], struct: type[Record]) -> Record:
    nested: dict[str, Any] = {}
    for name, item in values.items():
        section, _, leaf = name.rpartition(".")
        (nested.setdefault(section, {}) if section else nested)[leaf] = item.value
    return msgspec.convert(nested, struct)


# -- the three sources


def _read_environment(environ: Mapping[str, str], keys: Mapping[str, SettingKey]) -> dict[str, _Stated]:
    values = {}
    for key in keys.values():
        text = env.read_variable(key.variable, environ)
        if text is not None:
            hint = f"run 'unset {key.variable}'"
            if key.list_of:
                hint = f"run 'export {key.variable}={key.list_of}' with your names, or 'unset {key.variable}'"
            elif key.kind is tuple:
                hint = (
                    f"run 'export {key.variable}='{EXAMPLE_OF_SOURCES_IN_JSON}'' with JSON, or 'unset {key.variable}'"
                )
            where = _Where(f"environment variable {key.variable}", hint, {"variable": key.variable})
            values[key.name] = _Stated(_parse_value(key, text, where, booleans=_GIT_BOOLEANS), where)
    return values


def _read_git_config(overrides: Mapping[str, str], keys: Mapping[str, SettingKey]) -> dict[str, _Stated]:
    values = {}
    for key in keys.values():
        if key.in_git and key.git_name in overrides:
            name = key.git_name
            hint = f"run 'git config --unset {name}'"
            if key.list_of:
                hint = f"run 'git config {name} {key.list_of}' with your names, or 'git config --unset {name}'"
            elif key.kind is tuple:
                hint = (
                    f"run 'git config {name} '{EXAMPLE_OF_SOURCES_IN_JSON}'' with JSON, or 'git config --unset {name}'"
                )
            where = _Where(f"git config {name}", hint, {"variable": name})
            values[key.name] = _Stated(_parse_value(key, overrides[name], where, booleans=_GIT_BOOLEANS), where)
    return values


def _warn_misspelled(overrides: Mapping[str, str]) -> list[str]:
    """Return a warning for each key of git config that is nearly the name of a setting.

    Other programs can use the section, so other unknown keys are not reported.
    """
    names = {key.git_name: key.name for key in KEYS.values() if key.in_git}
    similar = {name: nearest(name, names, cutoff=0.9) for name in overrides if name not in names}
    return [
        f"git config {name} is not a setting; did you mean {similar_name}?"
        for name, similar_name in similar.items()
        if similar_name
    ]


def _find_removed(
    stated: Sequence[SettingEntry], label: str, overrides: Mapping[str, str], environ: Mapping[str, str]
) -> dict[str, RemovedSetting]:
    """Return the removed settings that the environment, git config or the file still has."""
    entries = {entry.key: entry for entry in stated}
    removed: dict[str, RemovedSetting] = {}
    for name, hint in REMOVED.items():
        variable = env.setting_variable(name)
        git_name = f"{_IN_GIT}.{name.replace('_', '-')}"
        if (value := env.read_variable(variable, environ)) is not None:
            removed[name] = RemovedSetting(value, f"environment variable {variable}", hint)
        elif git_name in overrides:
            removed[name] = RemovedSetting(overrides[git_name], f"git config {git_name}", hint)
        elif entry := entries.get(name):
            removed[name] = RemovedSetting(entry.text or "", f"{label}, line {entry.line}", hint)
    return removed


def _read_entries(data: bytes | None, label: str, record: Path | None = None) -> list[SettingEntry]:
    if not data:
        return []
    if record and (entries := recall_entries(record, data)) is not None:
        return entries
    from vmrag_link.settings import file  # which loads YAML

    entries = file.read_entries(data, label)
    if record:
        record_entries(record, data, entries)
    return entries


def _read_file(entries: Sequence[SettingEntry], label: str, schema: Schema) -> dict[str, _Stated]:
    values, sections = {}, schema.sections
    for entry in entries:  # first of all, because an old program does not know other settings
        if entry.key == _REQUIRES:
            require_program_version(entry.text or "", f"{label}, line {entry.line}")
    for entry in entries:
        hint = "write the keys of a section below it, indented by two spaces"
        where = _Where(f"{label}, line {entry.line}", hint, {"file": label, "line": entry.line, "key": entry.key})
        if schema is CORE and any(entry.key in (name, name.partition(".")[0]) for name in REMOVED):
            continue
        if entry.key in sections:
            if entry.text:
                raise _invalid_error(f"{entry.key} is a section with the keys {', '.join(sections[entry.key])}", where)
        elif entry.key in schema.keys:
            values[entry.key] = _read_entry(schema.keys[entry.key], entry, where)
        elif _find_section(entry) in sections or (schema is CORE and not _is_foreign(entry)):
            raise _unknown_error(entry, where, schema)
    return values


def _read_entry(key: SettingKey, entry: SettingEntry, where: _Where) -> _Stated:
    written = entry.format_key(key.name)
    hint = f"write '{written}: {key.default_text}', which is the default, or delete the line"
    if key.list_of:
        hint = f"write '{written}: [{key.list_of}]' with your names, or delete the line"
    elif key.kind is tuple:
        hint = f"write it as in '{EXAMPLE_OF_SOURCES}', then run 'vmrag sources' to list its files"
    where = _Where(where.label, hint, where.details)
    if entry.listed and not key.list_of and key.kind is not tuple:
        raise _invalid_error(f"{quote_untrusted(key.name)} is a list, but must be {key.expected}", where)
    return _Stated(_parse_value(key, entry.text, where, quoted=entry.quoted), where)


def _find_section(entry: SettingEntry) -> str:
    return entry.key.partition(".")[0]


def _is_foreign(entry: SettingEntry) -> bool:
    """Return whether an entry is in a section of a toolset.

    Toolsets read their own sections, and `vmrag doctor` names the sections that nothing reads. A
    misspelled section of the core is not foreign.
    """
    name, _, leaf = entry.key.partition(".")
    removed = (key.partition(".")[0] for key in REMOVED)
    if name in (*SECTIONS, *KEYS, _IN_GIT, *removed) or (not leaf and entry.text is not None):
        return False
    similar = nearest(name, SECTIONS)
    return similar is None or (f"{similar}.{leaf}" not in KEYS and nearest(name, SECTIONS, cutoff=_MISSPELLED) is None)


# -- untrusted settings


def _narrow_untrusted(
    values: Mapping[str, _Stated],
    stated: Mapping[str, Any],
    agreed: Mapping[str, Any],
    known_remote: Callable[[str], bool],
    keys: Mapping[str, SettingKey],
) -> tuple[dict[str, _Stated], dict[str, str]]:
    """Return the values of a file that apply before the user trusts it, and a text for each ignored
    setting, by name.

    `stated` has the file's values of the settings that need trust, and `agreed` has the values that
    the user trusted last.
    """
    applied, ignored = dict(values), dict[str, str]()
    for name, key in keys.items():
        if name not in stated and name not in agreed:
            continue
        stated_value = values[name].value if name in values else key.default
        trusted_value = _parse_trusted_value(key, agreed)
        trusted = name == "remote" and name in stated and known_remote(stated_value)
        value = stated_value if trusted else key.narrow_value(stated_value, trusted_value)
        if value == stated_value:
            continue
        ignored[name] = f"{name} (line {values[name].where.details['line']})" if name in values else f"{name} (gone)"
        if name in agreed or value != key.default:
            applied[name] = _Stated(value, _TRUSTED)
        else:
            del applied[name]  # like a missing setting, so that it does not add to this machine's own restriction
    return applied, ignored


def _parse_trusted_value(key: SettingKey, agreed: Mapping[str, Any]) -> Any:
    """Return the trusted value of a setting.

    Raises `ConfigInvalid` for a value that this version no longer knows.
    """
    if key.name not in agreed:
        return key.default
    value = agreed[key.name]
    if key.list_of and isinstance(value, bool):
        return key.default  # a value from before the setting named hosts trusts none
    return _parse_value(key, str(value).lower() if isinstance(value, bool) else str(value), _TRUSTED)


def _describe_ignored(label: str, ignored: Sequence[str], *, before: bool, stand_in: str | None) -> str:
    if len(ignored) > _MAX_IN_WARNING + 1:
        ignored = [*ignored[:_MAX_IN_WARNING], f"{len(ignored) - _MAX_IN_WARNING} more settings"]
    settings = f"{'settings' if len(ignored) > 1 else 'setting'} {enumerated(ignored)} of {label}"
    if stand_in:
        return f"ignoring {settings}: those of commit {stand_in[:12]} apply ({env.SETTINGS_FROM})"
    if before:
        return f"using the last trusted value of {settings}; run '{TRUST_COMMAND}'"
    return f"ignoring untrusted {settings}; run '{TRUST_COMMAND}'"


def _add_restrictions(key: SettingKey, item: _Stated, below: _Stated | None) -> _Stated:
    """Return the value with precedence, with the restrictions of the lower one added."""
    if not key.adds_up or below is None or key.narrower is None:
        return item
    return _Stated(key.narrower(item.value, below.value), item.where)


# -- one value


def _parse_value(
    key: SettingKey,
    text: str | None,
    where: _Where,
    *,
    quoted: bool = False,
    booleans: Mapping[str, bool] = _BOOLEANS,
) -> Any:
    """Convert a text to the value of a setting.

    Only the declared kind decides: `hooks.sync: off` is a word, not a boolean.
    """
    if text is None:
        raise _expected_error(key, "a section", where)
    if key.kind is tuple:
        return _parse_sections(key, text, where)
    if text in _NOTHING and not quoted and not (key.kind is str and text == ""):
        raise _expected_error(key, "nothing", where)
    if key.kind is bool and not quoted and text.lower() in booleans:
        return booleans[text.lower()]
    if key.kind is int and not quoted and re.fullmatch(_INTEGER, text) and key.lowest <= int(text) <= key.highest:
        return int(text)
    if key.kind is float and not quoted and re.fullmatch(_DECIMAL, text) and key.lowest <= float(text) <= key.highest:
        return float(text)
    if "true" in key.choices and not quoted and text.lower() in booleans:
        return str(booleans[text.lower()]).lower()
    if key.kind is str and text.isprintable() and (not key.choices or text in key.choices):
        if key.flaw and (flaw := key.flaw(text)):
            raise _invalid_error(f"{key.name} {flaw}", where)
        return text
    raise _expected_error(
        key,
        f"the text {quote_untrusted(text)} in quotes" if quoted and key.kind is not str else quote_untrusted(text),
        where,
    )


def _parse_sections(key: SettingKey, text: str, where: _Where) -> list[Any]:
    """Parse a list that is written as JSON. An empty text is an empty list."""
    try:
        entries = msgspec.json.decode(text) if text not in ("", "[]") else []
    except (msgspec.DecodeError, UnicodeDecodeError):
        entries = None
    for entry in entries or ():
        if isinstance(entry, dict) and entry.get("write") in ("true", "false"):
            entry["write"] = entry["write"] == "true"  # the settings file has words only
    if key.flaw and (flaw := key.flaw(entries)):
        raise _invalid_error(f"{key.name} {flaw}", where)
    return list(entries or ())


def _expected_error(key: SettingKey, shown_value: str, where: _Where) -> ConfigInvalid:
    return _invalid_error(f"{key.name} must be {key.expected}; found {shown_value}", where)


def _invalid_error(reason: str, where: _Where) -> ConfigInvalid:
    return ConfigInvalid(f"{where.label}: {reason}", hint=where.hint, **where.details)


def _unknown_error(entry: SettingEntry, where: _Where, schema: Schema) -> ConfigInvalid:
    name, keys = entry.key, schema.keys
    spellings = {spelling: key for key in keys for spelling in (key.rpartition(".")[2], key)}
    spellings |= {section: section for section in schema.sections}
    similar = nearest(name, spellings) or nearest(name.rpartition(".")[2], spellings)
    meant = spellings[similar] if similar else None
    reason = f"there is no setting {quote_untrusted(name)}" + (f"; the nearest is {meant}" if meant else "")
    hint = f"delete the line, or see {DOCUMENTATION} for all settings"
    if meant:
        written = entry.format_key(meant)
        elsewhere = " at the beginning of a line" if entry.section and written == meant else ""
        hint = f"write '{written}'{elsewhere}, or delete the line"
    return _invalid_error(reason, _Where(where.label, hint, where.details | {"nearest": meant}))


if __name__ == "__main__":
    from vmrag_link.settings_docs import format_documentation

    sys.stdout.write(format_documentation())
