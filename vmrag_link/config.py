"""What the settings are here and now: from the environment, git config and `.vmrag.yaml`, in that
order of precedence.

Cloned settings are a stranger's. Of those that need agreement only what this machine's person
agreed to counts; until then the file may narrow that, never widen it.
`python -m vmrag_link.config`
prints docs/configuration.md.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from vmrag_link import env
from vmrag_link.errors import ConfigInvalid, enumerated, in_the_way, nearest
from vmrag_link.formats import require_program_version
from vmrag_link.models import Record
from vmrag_link.paths import describe_file_type, read_regular
from vmrag_link.pin_values import quote_untrusted
from vmrag_link.settings import Config, SourceSettings
from vmrag_link.settings.entries import MAX_BYTES, SettingEntry, recall_entries, record_entries
from vmrag_link.settings.flaws import EXAMPLE_OF_SOURCES, EXAMPLE_OF_SOURCES_IN_JSON
from vmrag_link.settings.keys import CORE, KEYS, REMOVED, SECTIONS, Schema, SettingKey

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
"""The command by which a person agrees to what the file states."""

_REQUIRES = "requires"
_IN_GIT = "vmrag"  # the section of git config, whose keys are no settings of the file
_INTEGER = r"-?(?:0|[1-9][0-9]{0,17})"
_DECIMAL = r"(?=\.?[0-9])[0-9]{0,4}(?:\.[0-9]{1,3})?"
_NAMED = 2  # settings that a warning names before it counts the rest; `vmrag trust` shows them all
_MISSPELLED = 0.85
"""So alike, a section's name is another one's with a slip of the finger."""
_NOTHING = frozenset(("", "~", "null", "Null", "NULL"))
_BOOLEANS = {"true": True, "false": False}
# Where git's own spellings are at home. In YAML they differ between parsers, so the file keeps to
# two words.
_GIT_BOOLEANS = _BOOLEANS | {"yes": True, "on": True, "1": True, "no": False, "off": False, "0": False}


C = TypeVar("C")


class LoadedSettings(Record, Generic[C], frozen=True):
    """The settings that hold, and a sentence about everything that was ignored.

    `machine`: those that the environment or git config names, which only this machine's person can;
    `agreed`: those that count because this person agreed to them. `stated_remote`: what the file
    says of `remote`, agreed to or not.
    """

    config: C
    warnings: list[str]
    machine: frozenset[str] = frozenset()
    trusted: frozenset[str] = frozenset()
    stated_remote: str | None = None
    removed: Mapping[str, RemovedSetting] = {}
    """Settings that this version no longer has, by name."""
    trusted_writes: Mapping[str, str] = {}
    """Folders to which sources may write because the user trusts that, by `write_setting`."""

    def may_write(self, source: SourceSettings) -> bool:
        """Return whether the user trusts that a writable source writes to its folder."""
        return (
            "sources" in self.machine or self.trusted_writes.get(name_write_setting(source.collection)) == source.folder
        )


class RemovedSetting(Record, frozen=True):
    """What a setting says that this version no longer has."""

    value: str
    place: str
    """Where the setting is, such as `.vmrag.yaml, line 3`."""
    hint: str
    """What replaces the setting."""


def name_write_setting(collection: str) -> str:
    """Return the name under which the user trusts that a source writes files.

    The value is the folder, so that another folder is not trusted.
    """
    return f"sources.{collection}.write"


class StatedSetting(Record, frozen=True):
    """What the file says of one setting that needs agreement; `line` counts from 1."""

    name: str
    value: str | int | bool
    line: int


class _Place(Record, frozen=True):
    """Where a value stands: `label` begins a message about it, `hint` mends it, `details` are for
    programs.
    """

    label: str
    hint: str
    details: dict[str, Any]


class _Found(Record, frozen=True):
    value: Any
    place: _Place


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
    """The settings of a work tree whose `.vmrag.yaml` has these bytes (None: there is no such
    file).

    `overrides` is the section `vmrag.` of git config. `agreed`: what the person agreed to last in
    this repository, as `stated` gave it, by name; None: to nothing. `known_remote` says whether a
    remote was agreed to by itself. `stand_in`: the commit whose settings the agreement is, where
    no person agreed. `schema`: which settings; the file's others are passed over. `record`: where
    the entries of the file may be recorded (`settings.entries`). Raises `ConfigInvalid`,
    `ProgramTooOld`.
    """
    keys, entries = schema.keys, _read_entries(text, path_label, record)
    warnings = _misspelled(overrides) if schema is CORE else []
    removed = _find_removed(entries, path_label, overrides, environ) if schema is CORE else {}
    warnings += [f"{setting.place}: {name} was removed. {setting.hint}" for name, setting in removed.items()]
    machine = [_from_environment(environ, keys), _from_git(overrides, keys)]
    found = _from_file(entries, path_label, schema)
    own = {name: item.value for name, item in found.items() if keys[name].requires_trust(item.value)}
    trusted_writes = {name: value for name, value in (agreed or {}).items() if name.startswith("sources.")}
    before, agreed = agreed is not None, {name: value for name, value in (agreed or {}).items() if name in keys}
    if own != agreed:
        found, ignored = _before_agreement(found, own, agreed, known_remote, keys)
        if shown_ones := [text for name, text in ignored.items() if not any(name in source for source in machine)]:
            warnings.append(_unagreed(path_label, shown_ones, before=before, stand_in=stand_in))
    for source in reversed(machine):
        if asked := source.get(_REQUIRES):
            require_program_version(asked.value, asked.place.label)
        found |= {name: _added_up(keys[name], item, found.get(name)) for name, item in source.items()}
    config = _built(found, schema.struct)
    if isinstance(config, Config):
        _require_overlap(config, found)
    kept = frozenset(name for name, value in agreed.items() if name in found and found[name].value == value)
    named = frozenset().union(*machine)
    return LoadedSettings(config, warnings, named, kept, own.get("remote"), removed, trusted_writes)


def list_trust_settings(text: bytes | None, path_label: str, schema: Schema = CORE) -> list[StatedSetting]:
    """The settings of a file that need agreement, in its order. Raises `ConfigInvalid`."""
    found = _from_file(_read_entries(text, path_label), path_label, schema)
    return [
        StatedSetting(name, item.value, item.place.details["line"])
        for name, item in found.items()
        if schema.keys[name].requires_trust(item.value)
    ] + [
        StatedSetting(name_write_setting(source.collection), source.folder, found["sources"].place.details["line"])
        for source in (
            msgspec.convert(found["sources"].value, tuple[SourceSettings, ...]) if "sources" in found else ()
        )
        if source.write
    ]


def read_settings_file(path: Path) -> bytes | None:
    """The settings file that lies in a work tree; None if there is none.

    Raises `ConfigInvalid` for what is no file.
    """
    try:
        return read_regular(path, MAX_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        if file_type := describe_file_type(path):
            hint = in_the_way(path, file_type).hint
            raise ConfigInvalid(f"{path.name} is {file_type}, and no file.", hint=hint, file=path.name) from error
        raise ConfigInvalid(
            f"{path.name} cannot be read: {error.strerror}.", hint=f"See what it is: ls -ld '{path}'", file=path.name
        ) from error


def _require_overlap(config: Config, found: Mapping[str, _Found]) -> None:
    if config.chunking.overlap >= config.chunking.size:
        place = (found.get("chunking.overlap") or found["chunking.size"]).place
        sizes = f"{config.chunking.overlap} is not less than {config.chunking.size}"
        raise _invalid(f"chunking.overlap must be less than chunking.size; {sizes}", place)


def list_foreign_sections(text: bytes | None, path_label: str) -> dict[str, int]:
    """Sections of a file that the core does not have, with the lines at which they begin."""
    entries = _read_entries(text, path_label)
    found: dict[str, int] = {}
    for entry in entries:
        if _is_foreign(entry):
            found.setdefault(_section_of(entry), entry.line)
    return found


def _built(found: Mapping[str, _Found], struct: type[Record]) -> Record:
    nested: dict[str, Any] = {}
    for name, item in found.items():
        section, _, leaf = name.rpartition(".")
        (nested.setdefault(section, {}) if section else nested)[leaf] = item.value
    return msgspec.convert(nested, struct)


# -- the three sources


def _from_environment(environ: Mapping[str, str], keys: Mapping[str, SettingKey]) -> dict[str, _Found]:
    found = {}
    for key in keys.values():
        text = env.read_variable(key.variable, environ)
        if text is not None:
            hint = f"unset {key.variable}"
            if key.list_of:
                hint = f"export {key.variable}={key.list_of}   (with the names that are meant; or: {hint})"
            elif key.kind is tuple:
                hint = f"export {key.variable}='{EXAMPLE_OF_SOURCES_IN_JSON}'   (it is JSON; or: {hint})"
            place = _Place(f"environment variable {key.variable}", hint, {"variable": key.variable})
            found[key.name] = _Found(_value(key, text, place, booleans=_GIT_BOOLEANS), place)
    return found


def _from_git(overrides: Mapping[str, str], keys: Mapping[str, SettingKey]) -> dict[str, _Found]:
    found = {}
    for key in keys.values():
        if key.in_git and key.git_name in overrides:
            name = key.git_name
            hint = f"git config --unset {name}"
            if key.list_of:
                hint = f"git config {name} {key.list_of}   (with the names that are meant; or: {hint})"
            elif key.kind is tuple:
                hint = f"git config {name} '{EXAMPLE_OF_SOURCES_IN_JSON}'   (it is JSON; or: {hint})"
            place = _Place(f"git config {name}", hint, {"variable": name})
            found[key.name] = _Found(_value(key, overrides[name], place, booleans=_GIT_BOOLEANS), place)
    return found


def _misspelled(overrides: Mapping[str, str]) -> list[str]:
    """Sentences about keys that are nearly a setting's. Others in that section are not ours to
    judge.
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
        variable, git_name = env.setting_variable(name), f"{_IN_GIT}.{name.replace('_', '-')}"
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


def _from_file(entries: Sequence[SettingEntry], label: str, schema: Schema) -> dict[str, _Found]:
    found, sections = {}, schema.sections
    for entry in entries:  # first of all, because an old program does not know other settings
        if entry.key == _REQUIRES:
            require_program_version(entry.text or "", f"{label}, line {entry.line}")
    for entry in entries:
        hint = "Write the keys of a section below it, indented by two spaces."
        place = _Place(f"{label}, line {entry.line}", hint, {"file": label, "line": entry.line, "key": entry.key})
        if schema is CORE and any(entry.key in (name, name.partition(".")[0]) for name in REMOVED):
            continue
        if entry.key in sections:
            if entry.text:
                raise _invalid(f"{entry.key} is a section with the keys {', '.join(sections[entry.key])}", place)
        elif entry.key in schema.keys:
            found[entry.key] = _from_entry(schema.keys[entry.key], entry, place)
        elif _section_of(entry) in sections or (schema is CORE and not _is_foreign(entry)):
            raise _unknown(entry, place, schema)
    return found


def _from_entry(key: SettingKey, entry: SettingEntry, place: _Place) -> _Found:
    written = entry.format_key(key.name)
    hint = f"Write `{written}: {key.default_text}`, which is the default, or delete the line."
    if key.list_of:
        hint = f"Write `{written}: [{key.list_of}]`, with the names that are meant, or delete the line."
    elif key.kind is tuple:
        hint = f"Write for example `{EXAMPLE_OF_SOURCES}`; then `vmrag sources` shows what it names."
    place = _Place(place.label, hint, place.details)
    if entry.listed and not key.list_of and key.kind is not tuple:
        raise _invalid(f"{quote_untrusted(key.name)} holds a list; it takes {key.expected}", place)
    return _Found(_value(key, entry.text, place, quoted=entry.quoted), place)


def _section_of(entry: SettingEntry) -> str:
    return entry.key.partition(".")[0]


def _is_foreign(entry: SettingEntry) -> bool:
    """Whether it stands in a section that the core does not have, and that is not one of its own
    misspelled: toolsets read theirs, and `vmrag doctor` names those that nobody reads.
    """
    name, _, leaf = entry.key.partition(".")
    removed = (key.partition(".")[0] for key in REMOVED)
    if name in (*SECTIONS, *KEYS, _IN_GIT, *removed) or (not leaf and entry.text is not None):
        return False
    similar = nearest(name, SECTIONS)
    return similar is None or (f"{similar}.{leaf}" not in KEYS and nearest(name, SECTIONS, cutoff=_MISSPELLED) is None)


# -- what nobody has agreed to


def _before_agreement(
    found: Mapping[str, _Found],
    own: Mapping[str, Any],
    agreed: Mapping[str, Any],
    known_remote: Callable[[str], bool],
    keys: Mapping[str, SettingKey],
) -> tuple[dict[str, _Found], dict[str, str]]:
    """What counts of a file before it was agreed to as it is; and, by name, what does not.

    `own`: what it states of the settings that need agreement; `agreed`: what was agreed to last.
    """
    applied, ignored = dict(found), dict[str, str]()
    for name, key in keys.items():
        if name not in own and name not in agreed:
            continue
        here = found[name].value if name in found else key.default
        before = _agreed_value(key, agreed)
        trusted = name == "remote" and name in own and known_remote(here)
        value = here if trusted else key.narrow_value(here, before)
        if value == here:
            continue
        ignored[name] = f"{name} (line {found[name].place.details['line']})" if name in found else f"{name} (gone)"
        if name in agreed or value != key.default:
            applied[name] = _Found(value, _AGREED)
        else:
            del applied[name]  # as if it were not stated: this machine's own word is no second restriction
    return applied, ignored


_AGREED = _Place("what was agreed to", TRUST_COMMAND, {})


def _agreed_value(key: SettingKey, agreed: Mapping[str, Any]) -> Any:
    """What was agreed to. Raises `ConfigInvalid` for a value that this version does not know any
    more.
    """
    if key.name not in agreed:
        return key.default
    value = agreed[key.name]
    if key.list_of and isinstance(value, bool):
        return key.default  # of the time before it named hosts: nobody agreed to any
    return _value(key, str(value).lower() if isinstance(value, bool) else str(value), _AGREED)


def _unagreed(label: str, ignored: Sequence[str], *, before: bool, stand_in: str | None) -> str:
    if len(ignored) > _NAMED + 1:
        ignored = [*ignored[:_NAMED], f"{len(ignored) - _NAMED} more settings"]
    settings = f"{'settings' if len(ignored) > 1 else 'setting'} {enumerated(ignored)} of {label}"
    if stand_in:
        return f"ignoring {settings}: those of commit {stand_in[:12]} apply ({env.SETTINGS_FROM})"
    if before:
        return f"using the last trusted value of {settings}; run '{TRUST_COMMAND}'"
    return f"ignoring untrusted {settings}; run '{TRUST_COMMAND}'"


def _added_up(key: SettingKey, item: _Found, below: _Found | None) -> _Found:
    """The value of the source that takes precedence, with the other one's restrictions added."""
    if not key.adds_up or below is None or key.narrower is None:
        return item
    return _Found(key.narrower(item.value, below.value), item.place)


# -- one value


def _value(
    key: SettingKey, text: str | None, place: _Place, *, quoted: bool = False, booleans: Mapping[str, bool] = _BOOLEANS
) -> Any:
    """The value that a text stands for.

    Only the declared kind decides: `hooks.sync: off` is a word, never a boolean.
    """
    if text is None:
        raise _expected(key, "a section", place)
    if key.kind is tuple:
        return _sections(key, text, place)
    if text in _NOTHING and not quoted and not (key.kind is str and text == ""):
        raise _expected(key, "nothing", place)
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
            raise _invalid(f"{key.name} {flaw}", place)
        return text
    raise _expected(
        key,
        f"the text {quote_untrusted(text)} in quotes" if quoted and key.kind is not str else quote_untrusted(text),
        place,
    )


def _sections(key: SettingKey, text: str, place: _Place) -> list[Any]:
    """The list that a text of JSON stands for; empty: there are none."""
    try:
        found = msgspec.json.decode(text) if text not in ("", "[]") else []
    except (msgspec.DecodeError, UnicodeDecodeError):
        found = None
    for entry in found or ():
        if isinstance(entry, dict) and entry.get("write") in ("true", "false"):
            entry["write"] = entry["write"] == "true"  # the settings file has words only
    if key.flaw and (flaw := key.flaw(found)):
        raise _invalid(f"{key.name} {flaw}", place)
    return list(found or ())


def _expected(key: SettingKey, found: str, place: _Place) -> ConfigInvalid:
    return _invalid(f"{key.name} must be {key.expected}; found {found}", place)


def _invalid(reason: str, place: _Place) -> ConfigInvalid:
    return ConfigInvalid(f"{place.label}: {reason}", hint=place.hint, **place.details)


def _unknown(entry: SettingEntry, place: _Place, schema: Schema) -> ConfigInvalid:
    name, keys = entry.key, schema.keys
    spellings = {spelling: key for key in keys for spelling in (key.rpartition(".")[2], key)}
    spellings |= {section: section for section in schema.sections}
    similar = nearest(name, spellings) or nearest(name.rpartition(".")[2], spellings)
    meant = spellings[similar] if similar else None
    reason = f"there is no setting {quote_untrusted(name)}" + (f"; the nearest is {meant}" if meant else "")
    hint = f"Delete the line. There are: {', '.join(keys)}."
    if meant:
        written = entry.format_key(meant)
        elsewhere = " at the beginning of a line" if entry.section and written == meant else ""
        hint = f"Write `{written}`{elsewhere}, or delete the line."
    return _invalid(reason, _Place(place.label, hint, place.details | {"nearest": meant}))


if __name__ == "__main__":
    from vmrag_link.settings_docs import format_documentation

    sys.stdout.write(format_documentation())
