"""Settings: their origin, rejected values with their place, and limits of untrusted files."""

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.support.pace import slack
from vmrag_link import config, settings, settings_docs
from vmrag_link.engines import logical
from vmrag_link.errors import ConfigInvalid, ProgramTooOld
from vmrag_link.models import IMPLIED, SYSTEM_COLLECTIONS
from vmrag_link.settings import Config, entries, file
from vmrag_link.settings.keys import KEYS, SECTIONS

ROOT = Path(__file__).parents[2]
MODEL_PATH = b"embedding:\n  model: minilm\n  model_path: /opt/model\n"


def cloned(text=None, *, overrides=None, environ=None, agreed=None, **more) -> config.LoadedSettings[Any]:
    """Return the settings with only the agreements in `agreed`."""
    return config.resolve_settings(
        text.encode() if isinstance(text, str) else text,
        path_label=".vmrag.yaml",
        overrides=overrides or {},
        environ=environ or {},
        agreed=agreed,
        **more,
    )


def load(text=None, **sources) -> config.LoadedSettings[Any]:
    """Return the settings with agreement to everything in the file."""
    data = text.encode() if isinstance(text, str) else text
    agreed = {setting.name: setting.value for setting in config.list_trust_settings(data, ".vmrag.yaml")}
    return cloned(data, agreed=agreed or None, **sources)


def refusal(text=None, **sources) -> ConfigInvalid:
    with pytest.raises(ConfigInvalid) as caught:
        load(text, **sources)
    return caught.value


# -- where values come from


@pytest.mark.parametrize("text", [None, "", "\n", "# nothing\n", "---\n", "{}", "index:\n", "index: {}\n", "\ufeff"])
def test_missing_or_empty_file_gives_the_defaults(text):
    assert load(text) == config.LoadedSettings(Config(), [])


def test_defaults_are_these():
    assert msgspec.to_builtins(Config()) == {
        "requires": "",
        "engine": "doltlite",
        "remote": "git:",
        "lock_timeout_s": 30,
        "auto_pin": True,
        "auto_fetch": True,
        "dolt": {"binary": "", "server": "", "database": "", "user": "root", "tls": False, "authorities": ""},
        "limits": {"knowledge_mb": 4000, "document_mb": 256},
        "embedding": {
            "model": "default",
            "model_path": "",
            "openai_model": "text-embedding-3-small",
            "openai_url": "https://api.openai.com/v1",
            "cohere_model": "embed-v4.0",
            "cohere_url": "https://api.cohere.com",
            "huggingface_model": "BAAI/bge-m3",
            "huggingface_url": "https://router.huggingface.co/hf-inference",
            "ollama_model": "bge-m3",
            "ollama_url": "http://localhost:11434",
            "cache_mb": 1000,
            "cache_days": 180,
        },
        "chunking": {"size": 512, "overlap": 50},
        "retrieval": {"mode": "hybrid", "k": 5, "vector_weight": 0.4, "document_weight": 0.6, "per_document": 0},
        "index": {"keep_mb": 500, "chroma": "auto", "store_documents": True},
        "chroma": {
            "sources": "documents",
            "mode": "embedded",
            "url": "",
            "tenant": "default_tenant",
            "database": "default_database",
            "share": "follow",
            "fallback": "embedded",
            "timeout_s": 30,
        },
        "hooks": {
            "place": "auto",
            "sync": "auto",
            "wait_s": 10,
            "on_dirty": "warn",
            "on_unreachable": "block",
            "quiet": False,
        },
        "link": {"share": False},
        "mcp": {
            "toolsets": "default",
            "tools": "",
            "exclude_tools": "",
            "read_only": False,
            "tool_prefix": "",
            "auto_commit": "off",
            "auto_push": False,
            "commit": "ask",
            "require_confirm": True,
            "page_chars": 30_000,
        },
        "ingest": {
            "max_bytes": 50_000_000,
            "timeout_s": 10,
            "allowed_roots": "",
            "allow_private_urls": "",
            "convert_s": 60,
            "convert_mb": 2000,
            "text_mb": 20,
        },
        "system": {"versioned": True},
        "sources": (),
        "sources_untracked": "false",
        "sources_submodules": False,
        "sources_max_bytes": 1_000_000,
    }


def test_file_sets_only_its_own_keys():
    loaded = load(
        "remote: org/kb\nauto_pin: False\nindex: {keep_mb: 0, store_documents: false}\nretrieval.k: 7\nhooks:\n  sync: off\n"
    )
    assert loaded.config == Config(
        remote="org/kb",
        auto_pin=False,
        index=settings.IndexSettings(keep_mb=0, store_documents=False),
        retrieval=settings.RetrievalSettings(k=7),
        hooks=settings.HookSettings(sync="off"),
    )
    assert loaded.warnings == []


@pytest.mark.parametrize(
    ("sources", "keep"),
    [
        ({}, 1),
        ({"overrides": {"vmrag.index.keep-mb": "2"}}, 2),
        ({"overrides": {"vmrag.index.keep-mb": "2"}, "environ": {"VMRAG_INDEX_KEEP_MB": "3"}}, 3),
        ({"environ": {"VMRAG_INDEX_KEEP_MB": ""}}, 1),
    ],
)
def test_environment_precedes_git_config_which_precedes_the_file(sources, keep):
    assert load("index:\n  keep_mb: 1\n", **sources).config.index.keep_mb == keep


@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS)
def test_every_setting_is_accepted_from_file_environment_and_git_config(key):
    text = str(key.default).lower() if key.kind is bool else str(key.default)
    if key.kind is tuple:
        text = "[]"
    quoted = f'"{text}"' if key.kind is str else text
    section, _, leaf = key.name.rpartition(".")
    assert load(f"{section}:\n  {leaf}: {quoted}\n" if section else f"{leaf}: {quoted}\n").config == Config()
    assert load(overrides={key.git_name: text}).config == Config()
    assert load(environ={"VMRAG_" + key.name.replace(".", "_").upper(): text}).config == Config()


@pytest.mark.parametrize(("word", "value"), [("yes", True), ("On", True), ("1", True), ("NO", False), ("0", False)])
def test_git_config_and_the_environment_take_gits_words_for_booleans(word, value):
    assert load(overrides={"vmrag.auto-pin": word}).config.auto_pin is value
    assert load(environ={"VMRAG_AUTO_PIN": word}).config.auto_pin is value


def test_git_remote_named_by_git_config_is_not_the_setting_remote():
    assert load(overrides={"vmrag.remote": "upstream"}) == config.LoadedSettings(Config(), [])


def test_misspelled_git_config_name_warns_and_foreign_name_does_not():
    loaded = load(overrides={"vmrag.index.kep-mb": "3", "vmrag.install.version": "1"})
    assert loaded == config.LoadedSettings(
        Config(), ["git config vmrag.index.kep-mb is not a setting; did you mean vmrag.index.keep-mb?"]
    )


# -- what counts of a clone's file before its person agreed

STATED = "remote: git+https://kb.example/kb.git\nhooks.on_dirty: commit\n"


def test_untrusted_settings_are_ignored_with_one_warning():
    loaded = cloned(STATED + "retrieval.k: 7\n")
    assert loaded.config == Config(retrieval=settings.RetrievalSettings(k=7))
    assert loaded.warnings == [
        "ignoring untrusted settings remote (line 1) and hooks.on_dirty (line 2) of .vmrag.yaml; run 'vmrag trust'"
    ]


def test_line_stays_short_however_many_settings_a_file_states():
    loaded = cloned(STATED + "auto_pin: false\nindex.keep_mb: 9\nhooks.quiet: true\n")
    [line] = loaded.warnings
    assert "untrusted settings remote (line 1), index.keep_mb (line 4) and 2 more settings of .vmrag.yaml" in line


@pytest.mark.parametrize("name", [name for name, key in KEYS.items() if key.needs_trust])
def test_setting_that_needs_agreement_widens_nothing_without_it(name):
    """For any file, the default or a narrower value applies."""
    key = KEYS[name]
    others = {bool: (True, False), int: (key.lowest, key.highest), str: key.choices or (_TEXTS.get(name, "other"),)}
    for value in others[key.kind]:
        if not key.requires_trust(value):
            continue
        text = str(value).lower() if key.kind is bool else str(value)
        setting = leaf(cloned(f"{name}: {text}\n").config, name)
        assert setting == key.narrow_value(value, key.default)
        assert setting == key.default or (key.narrower is not None and setting == value)


_TEXTS = {
    "remote": "file:///srv/kb",
    "dolt.binary": "/evil/dolt",
    "dolt.authorities": "/evil/ca.pem",
    "dolt.server": "evil.example:3306",
    "ingest.allowed_roots": "/etc",
    "chroma.url": "http://evil.example:8000",
    **{
        f"embedding.{service}_url": "http://evil.example/v1"
        for service in ("openai", "cohere", "huggingface", "ollama")
    },
}


def leaf(config, name):
    config = msgspec.to_builtins(config)
    for part in name.split("."):
        config = config[part]
    return config


@pytest.mark.parametrize(
    ("line", "name", "value"),
    [
        ("hooks.on_dirty: block", "hooks.on_dirty", "block"),
        ("auto_fetch: false", "auto_fetch", False),
        ("auto_pin: false", "auto_pin", False),
        ("mcp.read_only: true", "mcp.read_only", True),
        ("ingest.max_bytes: 1000", "ingest.max_bytes", 1000),
        ("mcp.exclude_tools: dolt_push", "mcp.exclude_tools", "dolt_push"),
    ],
)
def test_narrower_setting_applies_without_a_warning(line, name, value):
    loaded = cloned(f"{line}\n")
    assert (leaf(loaded.config, name), loaded.warnings) == (value, [])


def test_trusted_settings_apply_without_a_warning():
    agreed = {"remote": "git+https://kb.example/kb.git", "hooks.on_dirty": "commit"}
    loaded = cloned("# other lines\n" + STATED, agreed=agreed)
    assert (loaded.config.remote, loaded.config.hooks.on_dirty) == ("git+https://kb.example/kb.git", "commit")
    assert (loaded.warnings, loaded.trusted) == ([], frozenset(agreed))


def test_last_trusted_values_apply_until_changes_are_trusted():
    agreed = {"hooks.on_dirty": "commit", "mcp.read_only": True, "remote": "file:///srv/kb"}
    loaded = cloned("hooks.on_dirty: commit\nremote: file:///evil\n", agreed=agreed)
    assert (loaded.config.remote, loaded.config.mcp.read_only) == ("file:///srv/kb", True)
    assert loaded.config.hooks.on_dirty == "commit"
    assert loaded.warnings == [
        "using the last trusted value of settings remote (line 2) and mcp.read_only (gone) of .vmrag.yaml; run 'vmrag trust'"
    ]


def test_file_that_is_deleted_takes_no_restriction_back():
    loaded = cloned(None, agreed={"mcp.exclude_tools": "dolt_push", "hooks.on_dirty": "commit"})
    assert loaded.config.mcp.exclude_tools == "dolt_push"
    assert loaded.config.hooks.on_dirty == "warn"  # the file narrows it


def test_restrictions_of_all_sources_add_up():
    loaded = cloned(
        "mcp.exclude_tools: a, b\nmcp.read_only: true\nmcp.require_confirm: true\n",
        overrides={"vmrag.mcp.exclude-tools": "b,c", "vmrag.mcp.require-confirm": "false"},
        environ={"VMRAG_READ_ONLY": "0", "VMRAG_EXCLUDE_TOOLS": "d"},
    )
    assert set(loaded.config.mcp.exclude_tools.split(",")) == {*"abcd"}
    assert (loaded.config.mcp.read_only, loaded.config.mcp.require_confirm) == (True, True)


@pytest.mark.parametrize(
    "sources",
    [
        {"overrides": {"vmrag.embedding.model-path": "/mine"}},
        {"environ": {"VMRAG_EMBEDDING_MODEL_PATH": "/mine"}},
    ],
)
def test_settings_of_the_machine_need_no_agreement(sources):
    loaded = cloned(MODEL_PATH, **sources)
    assert loaded.config.embedding.model_path == "/mine"
    assert (loaded.warnings, loaded.machine) == ([], {"embedding.model_path"})


def test_remote_that_git_config_trusts_needs_no_second_agreement():
    loaded = cloned("remote: file:///srv/kb\n", known_remote="file:///srv/kb".__eq__)
    assert (loaded.config.remote, loaded.warnings) == ("file:///srv/kb", [])


def test_default_address_of_a_service_is_not_trusted_by_stating_it():
    assert cloned("embedding.openai_url: https://api.openai.com/v1\n").trusted == frozenset()


def test_unknown_value_in_trusted_settings_is_refused_instead_of_dropped():
    with pytest.raises(ConfigInvalid, match=r"the trusted settings: hooks\.on_dirty must be one of"):
        cloned("hooks.sync: off\n", agreed={"hooks.on_dirty": "shout"})


# -- what is refused, and where

BOMB = "a: &a [x, x]\n" + "".join(
    f"{new}: &{new} [*{old}, *{old}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "line", "part"),
    [
        ("retreival:\n  k: 3\n", 1, "there is no setting 'retreival'; the nearest is retrieval"),
        ("\nretrieval:\n  kk: 3\n", 3, "there is no setting 'retrieval.kk'; the nearest is retrieval.k"),
        ("keep_mb: 3\n", 1, "the nearest is index.keep_mb"),
        ("index:\n  store-documents: true\n", 2, "the nearest is index.store_documents"),
        ("plugins: 3\n", 1, "there is no setting 'plugins'"),
        ("retreival.foo: 3\n", 1, "there is no setting 'retreival.foo'"),
        ("chunk:\n  size: 3\n", 2, "the nearest is chunking.size"),
        ("7: x\n", 1, "there is no setting '7'"),
        ('"\\e[31m": x\n', 1, "there is no setting '\\x1b[31m'"),
        ("index:\n  keep_mb: lots\n", 2, "index.keep_mb must be a whole number from 0 to 1000000; found 'lots'"),
        ("index:\n  keep_mb: '4'\n", 2, "found the text '4' in quotes"),
        ("index:\n  keep_mb: 4.0\n", 2, "found '4.0'"),
        ("index:\n  keep_mb: 010\n", 2, "found '010'"),
        ("index:\n  keep_mb: 0x10\n", 2, "found '0x10'"),
        ("index:\n  keep_mb: 1_0\n", 2, "found '1_0'"),
        ("index:\n  keep_mb: -1\n", 2, "found '-1'"),
        ("index:\n  keep_mb: ٤\n", 2, "found '٤'"),
        ("index:\n  keep_mb: " + "9" * 5000 + "\n", 2, "index.keep_mb must be"),
        ("index:\n  keep_mb:\n", 2, "found nothing"),
        ("index:\n  keep_mb: ~\n", 2, "found nothing"),
        ("index:\n  keep_mb: true\n", 2, "found 'true'"),
        ("index:\n  keep_mb: [4]\n", 2, "'index.keep_mb' is a list"),
        ("index:\n  keep_mb:\n    deep: 4\n", 2, "'index.keep_mb' is a section"),
        ("index.keep_mb:\n  deep: 4\n", 1, "index.keep_mb must be a whole number from 0 to 1000000; found a section"),
        (
            "index: 4\n",
            1,
            "index is a section with the keys index.keep_mb, index.chroma, index.store_documents",
        ),
        ("index:\n- keep: 4\n", 1, "index is a section with the keys"),
        ("retrieval.k: 0\n", 1, "from 1 to 1000"),
        ("retrieval.k: 1001\n", 1, "from 1 to 1000"),
        ("retrieval.per_document: -1\n", 1, "from 0 to 1000"),
        ("retrieval.vector_weight: 1.001\n", 1, "a number from 0 to 1 with at most three decimals; found '1.001'"),
        ("retrieval.vector_weight: -0.1\n", 1, "found '-0.1'"),
        ("retrieval.vector_weight: 0.4000\n", 1, "at most three decimals"),
        ("retrieval.vector_weight: 4e-1\n", 1, "found '4e-1'"),
        ("retrieval.vector_weight: 0,4\n", 1, "found '0,4'"),
        ("retrieval.vector_weight: .\n", 1, "found '.'"),
        ("retrieval.vector_weight: '0.4'\n", 1, "found the text '0.4' in quotes"),
        ("retrieval.vector_weight: .nan\n", 1, "found '.nan'"),
        ("retrieval.document_weight: 10.5\n", 1, "from 0 to 10"),
        ("auto_pin: yes\n", 1, "auto_pin must be true or false; found 'yes'"),
        ("auto_pin: 'true'\n", 1, "found the text 'true' in quotes"),
        ("auto_pin: 1\n", 1, "found '1'"),
        ("retrieval:\n  mode: fuzzy\n", 2, "one of hybrid, vector, keyword; found 'fuzzy'"),
        ("retrieval:\n  mode: Hybrid\n", 2, "found 'Hybrid'"),
        ("engine: mysql\n", 1, "engine must be one of doltlite, dolt; found 'mysql'"),
        ("dolt.binary: ./dolt\n", 1, "dolt.binary must be an absolute path, or empty"),
        ("ingest.allowed_roots: /srv/docs, docs\n", 1, "must be absolute paths with commas between them, or empty"),
        ("dolt.server: db.example\n", 1, "dolt.server must be the host and the port of a server"),
        ("dolt.server: root:secret@db.example:3306\n", 1, "dolt.server must be the host and the port of a server"),
        ("dolt.server: db.example:70000\n", 1, "dolt.server must be the host and the port of a server"),
        ("dolt.server: '-x:1'\n", 1, "dolt.server must be the host and the port of a server"),
        ("dolt.database: kb/main\n", 1, "dolt.database must be the name of a database"),
        ("dolt.user: ''\n", 1, "dolt.user must be the name of a server's user"),
        ("dolt:\n  password: x\n", 2, "there is no setting 'dolt.password'"),
        ("remote: nowhere\n", 1, "remote must be git:"),
        ("remote: ext::sh -c id\n", 1, "transport helper"),
        ("remote: https://user:secret@host/kb\n", 1, "password"),
        ("remote: null\n", 1, "found nothing"),
        ("remote: git:\n", 1, "is not YAML"),
        ('embedding.model_path: "a\\nb"\n', 1, "embedding.model_path must be text; found 'a\\nb'"),
        ("chunking:\n  size: 100\n  overlap: 100\n", 3, "must be less than chunking.size; 100 is not less than 100"),
        ("chunking:\n  size: 50\n", 2, "50 is not less than 50"),
        ("index.keep_mb: 1\nindex.keep_mb: 1\n", 2, "'index.keep_mb' occurs twice"),
        ("index:\n  keep_mb: 1\nindex.keep_mb: 2\n", 3, "'index.keep_mb' occurs twice"),
        ("index: {}\nhooks: {}\nindex: {}\n", 3, "'index' occurs twice"),
        ("engine: &x doltlite\n", 1, "anchors and aliases"),
        ("hooks:\n  quiet: *x\n", 2, "anchors and aliases"),
        (BOMB, 1, "anchors and aliases"),
        ("hooks:\n  <<: {quiet: true}\n", 2, "merge keys"),
        ("<<: {engine: doltlite}\n", 1, "merge keys"),
        ("engine: !!python/object/apply:os.system ['touch pwned']\n", 1, "tags are not allowed"),
        ("engine: !!str doltlite\n", 1, "tags are not allowed"),
        ("! engine: doltlite\n", 1, "tags are not allowed"),
        ("!!set {engine}\n", 1, "tags are not allowed"),
        ("engine: doltlite\n---\nengine: doltlite\n", 3, "a second YAML document"),
        ("- engine\n", 1, "`key: value`"),
        ("engine\n", 1, "`key: value`"),
        ("'': x\n", 1, "there is no setting ''"),
        ("? [engine]\n: doltlite\n", 1, "a key must be a word"),
        ("index:\n\tkeep: 4\n", 2, "is not YAML"),
        ("engine: doltlite\n index: 4\n", 2, "is not YAML"),
        ("engine: 'doltlite\n", 1, "is not YAML"),
        ("index: {keep_mb: 4\n", 1, "is not YAML"),
        ("engine: @x\n", 1, "is not YAML"),
        ("%YAML 9.9\n---\n{}\n", 1, "is not YAML"),
        ("[" * 60_000, 1, "line 1: is nested deeper than 100 levels"),
        ("{" * 60_000, 1, "line 1: is nested deeper than 100 levels"),
        ("retrieval:\n  k: " + "[" * 500 + "]" * 500, 2, "is nested deeper than 100 levels"),
        ("a: " * 20_000, 1, "is not YAML"),
        (b"engine: doltlite\nremote: \xff\n", 2, "is not UTF-8"),
        ("engine: doltlite\n".encode("utf-16"), 1, "is not UTF-8"),
        ("engine: doltlite\nremote: \x07\n", 2, "holds a control character: '\\x07'"),
        (b"engine: \x00\n", 1, "holds a control character"),
        ("engine: doltlite\n# \u2028x: y\n", 2, "holds a control character: '\\u2028'"),
        ("#" * 70_000, 1, "at most 65536"),
    ],
)
def test_invalid_file_is_rejected_with_line_and_expected_value(text, line, part):
    began = time.monotonic()
    error = refusal(text)
    assert part in error.message
    assert error.message.startswith(f".vmrag.yaml, line {line}: ")
    assert error.details.items() >= {"file": ".vmrag.yaml", "line": line}.items()
    assert error.hint
    assert error.exit_code == 2
    assert "secret" not in error.message
    assert error.message.isprintable()
    assert time.monotonic() - began < 1 * slack()
    assert not Path("pwned").exists()


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("remote: git:\n", 'remote: "git:"'),
        ("index:\n\tkeep: 4\n", "spaces instead of the tab"),
        ("index.kep: 4\n", "write 'index.keep_mb'"),
        ("hooks:\n  on-dirty: warn\n", "write 'on_dirty', or"),
        ("hooks:\n  on_dirty: no\n", "write 'on_dirty: warn'"),
        ("hooks:\n  store-documents: true\n", "write 'index.store_documents' at the beginning of a line"),
        ("index.keep_mb: x\n", "write 'index.keep_mb: 500'"),
        ("auto_pin: no\n", "write 'auto_pin: true'"),
        ("xyzzy: 1\n", "docs/configuration.md for all settings"),
    ],
)
def test_hint_shows_a_valid_value(text, part):
    assert part in refusal(text).hint


def test_unknown_key_carries_the_nearest_one_for_programs():
    assert refusal("index.kep: 4\n").details == {
        "file": ".vmrag.yaml",
        "line": 1,
        "key": "index.kep",
        "nearest": "index.keep_mb",
    }


def test_bad_value_in_the_environment_names_the_variable():
    error = refusal(environ={"VMRAG_INDEX_KEEP_MB": "lots"})
    assert error.message.startswith("environment variable VMRAG_INDEX_KEEP_MB: index.keep_mb must be a whole number")
    assert error.hint == "run 'unset VMRAG_INDEX_KEEP_MB'"


def test_bad_value_in_git_config_names_the_key():
    error = refusal(overrides={"vmrag.chunking.overlap": "600"})
    assert error.message.startswith("git config vmrag.chunking.overlap: chunking.overlap must be less than")
    assert error.hint == "run 'git config --unset vmrag.chunking.overlap'"


def loads_or_refuses(data: bytes) -> None:
    try:
        load(data)
    except ConfigInvalid as error:
        complaint = error
    else:
        return
    assert 1 <= complaint.details["line"] <= data.count(b"\n") + data.count(b"\r") + 1
    assert complaint.message.isprintable()


@given(st.binary(max_size=300))
def test_any_bytes_load_or_are_refused(data):
    loads_or_refuses(data)


words = st.sampled_from([*KEYS, *SECTIONS, "keep", "k", "x"])
pieces = st.sampled_from(
    [": ", ":", "\n", "\n  ", "\t", "- ", "[", "]", "{", "}", '"', "'", "&a ", "*a", "!!x ", "|\n", "? ", "#"]
)
values = st.sampled_from(
    ["true", "off", "4", "0x1", "hybrid", "git:", "~", "---\n", "...\n", "%YAML 1.1\n", "é", "\u2028"]
)


@given(st.lists(words | pieces | values, max_size=14).map("".join))
def test_any_mixture_of_yaml_loads_or_is_refused(text):
    loads_or_refuses(text.encode())


def test_python_yaml_parser_gives_equal_results(monkeypatch):
    monkeypatch.delattr(yaml, "CSafeLoader")
    assert load("index: {keep_mb: 1}\n").config.index.keep_mb == 1
    assert refusal("engine: &x doltlite\n").details["line"] == 1
    assert refusal("index:\n\tkeep: 4\n").details["line"] == 2
    assert refusal("engine: !!python/name:os.system\n").details["line"] == 1


# -- what people read


def test_template_loads_unchanged():
    assert load(settings_docs.format_template()) == config.LoadedSettings(Config(), [])


def test_every_line_of_the_template_can_be_uncommented():
    lines = [line[2:] for line in settings_docs.format_template().splitlines() if line[2:].partition(":")[0] in KEYS]
    assert len(lines) == 6
    assert load("\n".join(lines)) == config.LoadedSettings(Config(), [])


def test_documentation_is_up_to_date():
    written = (ROOT / "docs" / "configuration.md").read_text()
    assert written == settings_docs.format_documentation(), "run: python -m vmrag_link.config > docs/configuration.md"


def test_example_in_the_documentation_loads():
    example = settings_docs.format_documentation().partition("```yaml\n")[2].partition("```")[0]
    loaded = load(example)
    assert loaded.config.index.keep_mb == 800
    assert loaded.warnings == []


@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS)
def test_every_setting_has_a_sentence_and_an_allowed_default(key):
    assert key.doc.endswith(".")
    assert type(key.default) is key.kind
    assert key.default in key.choices or not key.choices
    assert key.kind is not int or key.lowest <= key.default <= key.highest
    assert key.git_name == key.git_name.lower()
    assert "_" not in key.git_name


def test_yaml_is_imported_only_for_an_existing_file():
    program = (
        "import sys; from vmrag_link import config, pin; "
        "config.resolve_settings(None, path_label='', overrides={}, environ={}); "
        "sys.exit('yaml' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@pytest.fixture
def record(tmp_path: Path) -> Path:
    """A record of a settings file that was read once."""
    path = tmp_path / "settings"
    assert cloned("retrieval:\n  k: 7\n", record=path).config.retrieval.k == 7
    return path


def test_load_does_not_parse_an_unchanged_file_again(record, monkeypatch):
    def fail(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(file, "read_entries", fail)
    assert cloned("retrieval:\n  k: 7\n", record=record).config.retrieval.k == 7
    with pytest.raises(AssertionError):
        cloned("retrieval:\n  k: 8\n", record=record)


@pytest.mark.parametrize("text", ["retrieval:\n  k: 8\n", "retrieval.k: 8", '{"retrieval": {"k": 8}}'])
def test_load_replaces_the_record_of_a_changed_file(record, text):
    before = record.read_bytes()
    assert cloned(text, record=record).config.retrieval.k == 8
    assert record.read_bytes() != before
    assert cloned(text, record=record).config.retrieval.k == 8


def test_load_ignores_a_damaged_record_and_one_of_another_program(record, monkeypatch):
    content = record.read_bytes()
    for number in range(len(content)):
        for damaged in (content[:number], content[:number] + bytes([content[number] ^ 1]) + content[number + 1 :]):
            record.write_bytes(damaged)
            assert entries.recall_entries(record, b"retrieval:\n  k: 7\n") is None
    record.write_bytes(content)
    assert entries.recall_entries(record, b"retrieval:\n  k: 7\n")
    monkeypatch.setattr(entries, "_PARSER", "another")
    assert entries.recall_entries(record, b"retrieval:\n  k: 7\n") is None


def test_load_writes_no_record_of_refused_file_or_missing_folder(tmp_path):
    with pytest.raises(ConfigInvalid):
        cloned("retrieval: [", record=tmp_path / "settings")
    cloned("retrieval.k: 7", record=tmp_path / "missing" / "settings")
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    "url", ["https://api.\u043epenai.com/v1", "https://api.openai.com\u2215.example", "http://localhost\\.example"]
)
def test_service_addresses_with_lookalike_letters_are_rejected(url):
    with pytest.raises(ConfigInvalid, match=r"openai_url must be written in ASCII"):
        cloned(f"embedding.openai_url: {url}\n")


# -- the lowest version of the program


def program(monkeypatch, version):
    monkeypatch.setattr("vmrag_link.formats.__version__", version)


@pytest.mark.parametrize(
    ("required", "version", "enough"),
    [
        ("0.2", "0.1.0", False),
        ("0.2", "0.2.0", True),
        ("0.2.0.0", "0.2", True),
        ("0.2", "0.2.0.dev1", True),
        ("0.10", "0.9.9", False),
        ("0.9", "0.10", True),
        ("1", "0.99", False),
        ("", "0.1.0", True),
    ],
)
def test_outdated_program_rejects_and_shows_the_command(monkeypatch, required, version, enough):
    program(monkeypatch, version)
    for sources in (
        {"text": f'requires: "{required}"\n'},
        {"environ": {"VMRAG_REQUIRES": required}},
        {"overrides": {"vmrag.requires": required}},
    ):
        if enough:
            assert cloned(**sources).config.requires == required
        else:
            with pytest.raises(ProgramTooOld) as caught:
                cloned(**sources)
            assert f"requires vmrag-link {required} or newer; this is {version}" in caught.value.message
            assert (
                caught.value.hint
                == f"run 'python -m pip install --upgrade \"vmrag-link>={required}\"' to upgrade vmrag-link"
            )


def test_requirement_is_checked_before_unknown_settings(monkeypatch):
    program(monkeypatch, "0.1.0")
    with pytest.raises(ProgramTooOld, match=r"^\.vmrag\.yaml, line 3: "):
        cloned("future: 1\nretrieval: {mode: telepathy}\nrequires: 0.2\n")
    with pytest.raises(ConfigInvalid):
        cloned("future: 1\nrequires: 0.1\n")


def test_requirement_needs_no_agreement_and_nothing_takes_it_back(monkeypatch):
    program(monkeypatch, "0.1.0")
    assert config.list_trust_settings(b"requires: 0.1\n", ".vmrag.yaml") == []
    for sources in ({"environ": {"VMRAG_REQUIRES": "0.1"}}, {"overrides": {"vmrag.requires": "0.1"}}):
        with pytest.raises(ProgramTooOld):
            cloned("requires: 0.2\n", **sources)


@pytest.mark.parametrize("text", ["latest", ">=0.2", "0.2.", "v1", "1.2.3.4.5", "0.2rc1", "\u0662", "99999"])
def test_requires_rejects_invalid_versions(text):
    error = refusal(f'requires: "{text}"\n')
    assert "requires must be a version such as" in error.message
    assert error.details["line"] == 1


# -- sources

EXAMPLE = 'sources: [{collection: docs, paths: ["**/*.md"]}]'


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("sources: docs\n", "must be a list of up to"),
        ("sources:\n  - collection: docs\n", "must be a list of sources, each with collection and paths (source 1)"),
        ("sources:\n  - {collection: docs, paths: x}\n", 'paths must be a list: paths: ["x"] (source 1)'),
        ("sources:\n  - {collection: docs, path: [x]}\n", "has no key 'path'; the nearest is paths (source 1)"),
        ("sources:\n  - {collection: docs, paths: [x], zzz: y}\n", "has no key 'zzz', only collection, paths, exclude"),
        ("sources:\n  - {collection: docs, paths: [./x]}\n", "has the path './x', which has"),
        ("sources:\n  - {collection: docs, paths: ['*a*a*b']}\n", "has the path '*a*a*b', which has"),
    ],
)
def test_invalid_source_is_rejected_with_an_example(text, reason):
    error = refusal(text)
    assert reason in error.message
    assert EXAMPLE in error.hint
    assert "vmrag sources" in error.hint


RESERVED = (
    *SYSTEM_COLLECTIONS,
    *(logical.collection_name(kind, name) for kind in IMPLIED for name in ("vmrag", "Project of ours")),
    *("Chat_History_v1", "DERIVED_LEARNINGS_V1", "Issues_vmrag"),
)


@pytest.mark.parametrize("name", RESERVED)
def test_sources_reject_reserved_collection_names(name):
    error = refusal(f"sources: [{{collection: {name}, paths: [docs/]}}]\n")
    assert f"cannot name a collection '{name}': tools of vmrag write" in error.message
    assert "vmrag sources" in error.hint
    assert load(f"sources: [{{collection: my_{name}, paths: [docs/]}}]\n").config.sources


def test_example_of_sources_is_right():
    (source,) = load(EXAMPLE).config.sources
    assert source == settings.SourceSettings("docs", ("**/*.md",))


@pytest.mark.parametrize(
    ("places", "command"),
    [
        ({"environ": {"VMRAG_SOURCES": "docs"}}, "export VMRAG_SOURCES='[{"),
        ({"overrides": {"vmrag.sources": "docs"}}, "git config vmrag.sources '[{"),
    ],
)
def test_environment_and_git_config_take_sources_as_json(places, command):
    error = refusal(**places)
    assert command in error.hint
    stated = error.hint.split("'")[2]
    taken = {name: dict.fromkeys(values, stated) for name, values in places.items()}
    assert load(**taken).config.sources == (settings.SourceSettings("docs", ("**/*.md",)),)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a: 1\n<<<<<<< HEAD\nindex: 1\n=======\nindex: 2\n>>>>>>> topic\n", 2),
        ("<<<<<<< HEAD\r\n# a\r\n=======\r\n# b\r\n>>>>>>> topic\r\n", 1),
        ("retrieval:\n  k: 1\n=======\n  k: 2\n", 3),
    ],
)
def test_conflict_markers_of_git_are_named(text, line):
    error = refusal(text)
    assert f"line {line}: " in error.message
    assert "git add .vmrag.yaml" in error.hint
