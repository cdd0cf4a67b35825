"""Sections of `.vmrag.yaml` that toolsets bring count by the same rules as the core's."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support import terminal
from tests.support.terminal import Project
from vmrag_link import config, toolset
from vmrag_link.errors import ConfigInvalid
from vmrag_link.settings.keys import KEYS, build_schema

template, project = terminal.template, terminal.project

ALL = build_schema(
    {
        section: installed.load(reference)
        for installed in toolset.installed().toolsets.values()
        for section, reference in installed.settings.items()
    }
)


def cloned(text: str) -> config.LoadedSettings[Any]:
    """Return the settings of all toolsets without any agreement."""
    return config.resolve_settings(text.encode(), path_label=".vmrag.yaml", overrides={}, environ={}, schema=ALL)


def test_toolset_names_differ_from_those_of_the_core():
    assert ALL.keys
    assert not ALL.keys.keys() & KEYS.keys()


@pytest.mark.parametrize("name", [name for name, key in ALL.keys.items() if key.needs_trust])
def test_toolset_settings_of_a_clone_require_agreement(name: str):
    key = ALL.keys[name]
    given = key.choices[-1] if key.choices else {bool: "true", str: "http://evil.example/v1"}.get(key.kind, "1")
    if key.flaw and key.flaw(given):
        given = "evil"
    section, leaf = name.split(".")
    value = getattr(getattr(cloned(f"{name}: {given}\n").config, section), leaf)
    assert value == key.default or (key.narrower is not None and value == key.narrow_value(value, key.default))


def test_narrower_toolset_setting_applies_without_agreement():
    loaded = cloned("learning.store_raw: false\n")
    assert (loaded.config.learning.store_raw, loaded.warnings) == (False, [])


def test_misspelled_key_in_a_section_is_rejected_with_the_nearest():
    with pytest.raises(ConfigInvalid, match=r"line 2: there is no setting 'llm\.modell'; the nearest is llm\.model"):
        cloned("index.keep_mb: nonsense\nllm.modell: x\n")


def test_core_ignores_foreign_sections_and_doctor_names_unread_ones(project: Project):
    (project.top / ".vmrag.yaml").write_text("llm:\n  timeout_s: 5\nweather:\n  units: metric\n")
    with terminal.opened(project) as ws:
        assert ws.settings.loaded.warnings == []
    answer = project.vmrag("doctor", "--json", code=None).json
    unread = [
        finding for topic in answer["topics"] for finding in topic["findings"] if finding["code"] == "SECTION_UNREAD"
    ]
    assert [(finding["subject"], finding["level"]) for finding in unread] == [("weather", "warning")]
    assert ".vmrag.yaml, line 3" in unread[0]["message"]
