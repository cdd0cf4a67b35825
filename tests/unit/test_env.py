"""Environment variables: one place names them all."""

import re
from pathlib import Path

import pytest

from vmrag_link import env
from vmrag_link.settings.keys import KEYS

ROOT = Path(__file__).parents[2]
OWN = {
    value
    for name, value in vars(env).items()
    if name.isupper() and isinstance(value, str) and name not in ("SWITCH", "SETTING_PREFIX")
}
SETTINGS = {key.variable for key in KEYS.values()}


def sources() -> list[Path]:
    files = [path for folder in ("vmrag_link", "hooks") for path in (ROOT / folder).rglob("*") if path.is_file()]
    return [path for path in files if "__pycache__" not in path.parts and b"\0" not in path.read_bytes()]


def test_every_variable_that_the_sources_name_is_declared():
    named = {
        (variable, str(path.relative_to(ROOT)))
        for path in sources()
        for variable in re.findall(r"\bVMRAG_[A-Z][A-Z_]*\b", path.read_text())
    }
    assert named
    assert sorted((variable, path) for variable, path in named if variable not in OWN | SETTINGS) == []


def test_settings_have_unique_variables():
    assert len(SETTINGS) == len(KEYS)
    assert not SETTINGS & (OWN | {env.SWITCH})


def test_settings_variable_follows_from_its_name():
    assert env.setting_variable("embedding.model_path") == "VMRAG_EMBEDDING_MODEL_PATH"


@pytest.mark.parametrize(
    ("environ", "text"), [({}, None), ({"VMRAG_INDEX_KEEP_MB": ""}, None), ({"VMRAG_INDEX_KEEP_MB": "8"}, "8")]
)
def test_empty_variable_counts_as_absent(environ, text):
    assert env.read_variable(KEYS["index.keep_mb"].variable, environ) == text


@pytest.mark.parametrize(
    ("environ", "on"),
    [({}, False), ({"VMRAG_DEBUG": ""}, False), ({"VMRAG_DEBUG": "0"}, False), ({"VMRAG_DEBUG": "1"}, True)],
)
def test_debugging_is_on_for_anything_but_nothing_and_zero(environ, on):
    assert env.is_debug(environ) is on


def test_child_process_can_be_kept_from_inheriting_variables():
    environ = {"GIT_DIR": "x", "PATH": "y"}
    assert env.copy_without(frozenset({"GIT_DIR", "GIT_INDEX_FILE"}), environ) == {"PATH": "y"}
    assert environ == {"GIT_DIR": "x", "PATH": "y"}
