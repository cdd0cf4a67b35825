"""Check for `vmrag doctor` what is committed with the code.

This is the pin (`.dolt-version`) in work tree and index, the line of `.gitattributes` for vmrag's
merge driver, and the settings of `.vmrag.yaml`, with overriding values in git's configuration.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

from vmrag_link import config, hints, toolset
from vmrag_link.config import TRUST_COMMAND
from vmrag_link.errors import ConfigInvalid, PinMalformed
from vmrag_link.file_access import describe_file_type
from vmrag_link.formats import SOURCES_VERSION, is_below
from vmrag_link.git import merge_driver, pin_conflict, pin_merge, plumbing
from vmrag_link.git.run import run_git
from vmrag_link.ops.doctor.findings import Finding, Topic
from vmrag_link.paths import CONFIG_NAME, PIN_NAME
from vmrag_link.settings import file as settings_file
from vmrag_link.settings.keys import is_new_setting
from vmrag_link.sync.target import read_own_pin
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.follow import lazy_fetch
from vmrag_link.workspace.pins import empty_pin
from vmrag_link.workspace.pins.pinning import ATTRIBUTES

_MISSPELLED = re.compile(r"^git config (\S+) is not a setting; did you mean (\S+)\?")


def _check_pin(ws: Workspace) -> Iterator[Finding]:
    """Check the pin. A missing knowledge base is reported by the topic `knowledge`."""
    data = plumbing.read_pin_bytes(ws.places)
    is_empty = False
    with contextlib.suppress(ConfigInvalid):  # the topic `settings` reports it
        is_empty = empty_pin.is_empty(ws)
    if data is not None:
        yield from _check_pin_file(ws, data)
    if is_empty:
        command = empty_pin.form_uninstall(ws) if data is None else empty_pin.REMOVE_PIN
        fix = hints.suggest_command(command, "remove it")
        yield Finding("PIN_EMPTY", "note", empty_pin.MESSAGE, fix, PIN_NAME)
    elif data is None and ws.is_initialized:
        message = "this commit has no pin, so the knowledge base stays at its revision."
        fix = "run 'vmrag init --knowledge-base' to create a knowledge base"
        if ws.current_revision:
            fix = "run 'vmrag pin' to write the pin"
        yield Finding("PIN_NOT_THERE", "warning", message, fix, PIN_NAME)


def _check_pin_file(ws: Workspace, data: bytes) -> Iterator[Finding]:
    if pin_conflict.read_stages(ws.places):
        fix = "run 'vmrag resolve' to resolve the conflicts"
        yield Finding("PIN_IN_CONFLICT", "error", "the pin has a merge conflict.", fix, PIN_NAME)
        return
    try:
        pin = read_own_pin(ws.places, data)
    except PinMalformed as error:
        yield Finding("PIN_MALFORMED", "error", error.message, error.hint, PIN_NAME)
        return
    if data != pin_merge.read_staged_pin(ws.places):
        message = "the pin of this working tree is not staged, so the next commit will not contain it."
        yield Finding("PIN_NOT_STAGED", "warning", message, f"run 'git add --force {PIN_NAME}' to stage it", PIN_NAME)
    if ws.is_initialized and not ws.engine.has_revision(pin.dolt_commit):
        problem = lazy_fetch.unusable_pin(ws, ws.resolve_target())
        yield Finding("PIN_REVISION_MISSING", "error", problem.message, problem.hint, pin.dolt_commit)


def _check_attributes(ws: Workspace) -> Iterator[Finding]:
    """Check the attributes, if there is a pin."""
    if plumbing.read_pin_bytes(ws.places) is None:
        return
    path = ws.places.top / ATTRIBUTES
    names_driver = path.exists() and not describe_file_type(path) and merge_driver.names_driver(path.read_bytes())
    if not names_driver:
        message = f"{ATTRIBUTES} does not name vmrag's merge driver for the pin, so git merges it line by line, with conflicts."
        if merge_driver.is_attributed(ws.places):
            message = f"only this clone uses vmrag's merge driver for the pin, because {ATTRIBUTES} does not name it."
        fix = "run 'vmrag init --knowledge-base' to add the line"
        yield Finding("ATTRIBUTES_MISSING", "warning", message, fix, str(path))
    elif not merge_driver.is_attributed(ws.places):
        message = f"{ATTRIBUTES} names vmrag's merge driver, but another line or file overrides that."
        yield Finding("ATTRIBUTES_OVERRIDDEN", "warning", message, _form_override_hint(ws), str(path))
    elif not merge_driver.names_driver(plumbing.read_blob(ws.places, f":{ATTRIBUTES}") or b""):
        ignored = run_git(ws.places, "check-ignore", "--quiet", "--", ATTRIBUTES).returncode == 0
        message = f"the line of {ATTRIBUTES} that names vmrag's merge driver is not staged{', and ignored' * ignored}."
        fix = f"run 'git add --force {ATTRIBUTES}' to stage it"
        yield Finding("ATTRIBUTES_NOT_STAGED", "warning", message, fix, str(path))


def _form_override_hint(ws: Workspace) -> str:
    own_file = ws.places.common / "info" / "attributes"
    files = f"{own_file} and {ATTRIBUTES}" if own_file.exists() else ATTRIBUTES
    return f"delete the later line in {files} that matches {PIN_NAME} and sets merge"


def _check_settings(ws: Workspace) -> Iterator[Finding]:
    """Report ignored settings. Invalid settings stop every command."""
    for warning in ws.settings.loaded.warnings:
        yield Finding("CONFIG_IGNORED", "warning", warning, _form_settings_hint(ws, warning))
    yield from _check_requirement(config.read_settings_file(ws.places.config) or b"")


def _form_settings_hint(ws: Workspace, warning: str) -> str:
    """Return the hint for a warning, which begins with the position of the ignored setting."""
    for setting in ws.settings.loaded.removed.values():
        if warning.startswith(setting.place):
            return f"delete the setting {setting.place}"
    misspelled = _MISSPELLED.search(warning)
    if misspelled:
        name, right_name = misspelled.groups()
        return f"run 'git config {right_name} \"$(git config {name})\" && git config --unset-all {name}' to rename it"
    return f"run '{TRUST_COMMAND}' to trust the settings"


def _check_requirement(text: bytes) -> Iterator[Finding]:
    """Find settings that an older program cannot read if the file does not require a
    newer version.
    """
    entries = settings_file.read_entries(text, CONFIG_NAME)
    requirement = next((entry for entry in entries if entry.key == "requires"), None)
    required_version = (requirement.text if requirement else "") or "0"
    new_setting = next((entry for entry in entries if is_new_setting(entry.key, entry.text or "")), None)
    if new_setting is None or not is_below(required_version, SOURCES_VERSION):
        return
    message = (
        f"{CONFIG_NAME}, line {new_setting.line}: versions before {SOURCES_VERSION} do not support this value of "
        f"{new_setting.key}, and fail in every command."
    )
    line = f'requires: "{SOURCES_VERSION}"'
    fix = f"run 'printf '\\n{line}\\n' >> {CONFIG_NAME}'"
    if requirement:
        fix = f"write {line} in line {requirement.line}"
    yield Finding("VERSION_NOT_REQUIRED", "warning", message, fix, new_setting.key)


def _check_toolsets(ws: Workspace) -> Iterator[Finding]:
    """Find toolsets that cannot be used, and settings that no toolset reads."""
    toolsets = toolset.installed()
    for problem in toolsets.problems:
        yield Finding("TOOLSET_BROKEN", "warning", problem, "reinstall its package, or install another version")
    read_sections = {section for installed in toolsets.toolsets.values() for section in installed.settings}
    for section, line in config.list_foreign_sections(config.read_settings_file(ws.places.config), CONFIG_NAME).items():
        if section not in read_sections:
            message = f"{CONFIG_NAME}, line {line}: no installed toolset reads the section {section}."
            fix = "install the toolset of this section, or delete the section"
            yield Finding("SECTION_UNREAD", "warning", message, fix, section)


PIN = Topic("pin", _check_pin)
PIN_ATTRIBUTES = Topic("attributes", _check_attributes)
SETTINGS = Topic("settings", _check_settings)
TOOLSETS = Topic("toolsets", _check_toolsets)
