"""An entry goes into a client's file and out of it; no other byte of the file changes."""

from __future__ import annotations

import json
import tomllib

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.long import examples
from vmrag_mcp.clients import entries
from vmrag_mcp.clients.settings_file import TextRefused

ENTRY = {
    "command": "/opt/a b/bin/vmrag-mcp",
    "args": ["--repo", '/home/é/"quoted" \\ #x', "--read-only"],
    "enabled": True,
}
OTHER = {"command": "x", "args": []}
SECTION, NAME = "servers", "vmrag-here"

JSON = [
    "",
    "\n",
    "{}",
    "{ }\n",
    "{\n}\n",
    '{"servers": {}}',
    '{"servers": { }, "b": 1}',
    '{\n  "servers": {\n  }\n}',
    '{\n\t"a": [1, 2.50, "é\\u00e9"],\n\t"servers": {\n\t\t"zulu": {"url": "https://é"},\n\t\t"alpha": {}\n\t},\n\t"z": null\n}\n',
    '{"servers": {"a": {}}, "b": {"c": [ ]}}\n',
    '{\n    "b": 1e5 ,\n    "servers"   :   {"a": {"x" :1}}\n}\n\n\n',
    '{"a": 1,\n "b": 2}',
    '{\r\n  "servers": {\r\n    "a": {}\r\n  }\r\n}\r\n',
]
JSONC = [
    *JSON,
    '// first\n{\n  // mine\n  "servers": {} // none yet\n}\n// last',
    '{\n  "servers": { // none yet\n  }\n}',
    '{\n  "servers": {\n    // nothing\n  },\n}\n',
    '{\n  "servers": {\n    "a": {}, // about a\n    "b": {} // about b\n    // the end\n  }\n}\n',
    '{\n  "servers": {\n    "a": {}, /* about a */\n    "b": {"x": [1, 2, ],} /* b */ , // more\n    /* the end */\n  },\n}\n',
    '{\n  "a": 1,\n  "b": 2/* about\n b */\n}',
    '{"servers": {"a": {} /* a */}}',
    '{"servers": {"a": {} // a\n}}',
    '{\n  "theme": "x", // "servers": {}\n  /* { */\n}\n',
    '{"servers": {"a": 1,}}',
]
TOML = [
    "",
    "# mine\n",
    'model = "o3"',
    'model = "o3"\n\n\n',
    '# c\nmodel = "o3" # d\n\n[servers.zulu]\ncommand = "x"\nargs = [\n  "a", # one\n]\n\n  [other]\nkey = """\n[servers.no]\n"""\n# end\n',
    '[servers]\n\n["quoted"."k"]\na = 1979-05-27\n',
    'a = 1\r\n[servers.b]\r\nc = "d"\r\n',
    "[[many]]\na = 1\n[[many]]\na = 2",
]
YAML = [
    "",
    "# mine\n",
    "\n\n",
    'GOOSE_MODEL: "x"',
    "GOOSE_MODEL: x # y\n\n# end\n",
    "servers:\n  zulu:\n    enabled: true\n    args: [a, b] # c\n    # d\n\n  memory:\n    text: |\n      several\n      lines\n\nother:\n  - 1\n  # e\n",
    "servers: # none\nother: 'x'\n",
    "servers: {}\n",
    "servers: {a: {b: 1}} # c\n",
    "a: 1\nservers:\n    b:\n        c: 1",
    "a: 1\r\nservers:\r\n  b:\r\n    c: 1\r\n",
    "---\na: 1\n",
]
SAMPLES = [
    *(("json", text) for text in JSON),
    *(("jsonc", text) for text in JSONC),
    *(("toml", text) for text in TOML),
    *(("yaml", text) for text in YAML),
]


def is_in(short: str, long: str) -> bool:
    """Return whether `short` is a subsequence of `long`: nothing was removed."""
    rest = iter(long)
    return all(text in rest for text in short)


def check(form: str, text: str) -> str:
    after, added = entries.with_entry(form, text, SECTION, NAME, ENTRY)
    assert entries.find_entry(form, after, SECTION, NAME) == ENTRY
    assert is_in(text, after) or is_in("".join(text.split()), after), "something else was changed"
    assert entries.without_entry(form, after, SECTION, NAME, added) == text
    return after


@pytest.mark.parametrize(("form", "text"), SAMPLES)
def test_added_entry_is_removed_to_the_last_byte(form, text):
    after = check(form, text)
    assert "\r\n" not in text or "\n" not in after.replace("\r\n", "")


@pytest.mark.parametrize(("form", "text"), SAMPLES)
def test_only_the_entry_is_removed_without_a_receipt(form, text):
    after, _ = entries.with_entry(form, text, SECTION, NAME, ENTRY)
    remaining = entries.without_entry(form, after, SECTION, NAME, None)
    assert entries.find_entry(form, remaining, SECTION, NAME) is None
    assert entries.find_entry(form, remaining, SECTION, "zulu") == entries.find_entry(form, text, SECTION, "zulu")


@pytest.mark.parametrize(("form", "text"), SAMPLES)
def test_entry_that_others_follow_comes_out_from_between(form, text):
    """The person, or another program, adds one more with the same editor."""
    after, added = entries.with_entry(form, text, SECTION, NAME, ENTRY)
    more, _ = entries.with_entry(form, after, SECTION, "later", OTHER)
    remaining = entries.without_entry(form, more, SECTION, NAME, added)
    assert entries.find_entry(form, remaining, SECTION, "later") == OTHER
    assert is_in("".join(text.split()), remaining)


@pytest.mark.parametrize(("form", "text"), SAMPLES)
def test_values_of_an_entry_change_in_place_and_back(form, text):
    after, _ = entries.with_entry(form, text, SECTION, NAME, ENTRY)
    values = {"command": "vmrag-mcp", "args": ["--tools", "a\\1,b"]}
    changed = entries.with_values(form, after, SECTION, NAME, values)
    assert entries.find_entry(form, changed, SECTION, NAME) == ENTRY | values
    back = entries.with_values(form, changed, SECTION, NAME, {key: ENTRY[key] for key in values})
    assert back == after


@pytest.mark.parametrize("form", ["json", "jsonc", "toml", "yaml"])
def test_written_entry_is_parsed_equally_by_common_parsers(form):
    text = entries.render_file(form, SECTION, NAME, ENTRY)
    load = {"toml": tomllib.loads, "yaml": yaml.safe_load}.get(form, json.loads)
    assert load(text) == {SECTION: {NAME: ENTRY}}


# -- drawn files

names = st.text(st.sampled_from("abé-_ "), min_size=1, max_size=4)
scalars = st.one_of(st.none(), st.booleans(), st.integers(-9, 10**9), st.text(max_size=6))
values = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(names, inner, max_size=3)),
    max_leaves=6,
)
servers = st.dictionaries(names, st.dictionaries(names, values, max_size=3), max_size=3)
roots = st.tuples(st.dictionaries(names, values, max_size=3), st.one_of(st.none(), servers), st.booleans())


def rooted(drawn):
    others, section, first = drawn
    mine = {} if section is None else {SECTION: section}
    return {**mine, **others} if first else {**others, **mine}


@given(roots, st.sampled_from([None, 0, 1, 4, "\t"]), st.sampled_from(["", "\n", "\r\n", " \n\n"]))
@settings(max_examples=examples(60))
def test_any_json_is_edited_without_touching_the_rest(drawn, indent, tail):
    text = json.dumps(rooted(drawn), indent=indent, ensure_ascii=False) + tail
    check("json", text)
    check("jsonc", text)


@given(
    roots, st.lists(st.sampled_from(["// x\n", "/* y */", "/* { \n */", " ", "\n", "\t"]), max_size=12), st.randoms()
)
@settings(max_examples=examples(60))
def test_any_json_with_comments_between_its_tokens_is_edited_or_left(drawn, remarks, random):
    text = json.dumps(rooted(drawn), indent=2)
    for remark in remarks:
        places = [number for number, character in enumerate(text) if character == "\n"] or [len(text)]
        place = random.choice(places)
        text = text[:place] + remark + text[place:]
    try:
        before = entries.find_entry("jsonc", text, SECTION, NAME)
    except TextRefused:
        return
    assert before is None
    check("jsonc", text)


@given(roots)
@settings(max_examples=examples(60))
def test_any_yaml_is_edited_without_touching_the_rest(drawn):
    root = rooted(drawn)
    if not root:
        return
    text = yaml.safe_dump(root, allow_unicode=True, sort_keys=False)
    try:
        entries.EDITORS["yaml"].read_values(text)
    except TextRefused:
        return  # such as a key that is not a word
    after, added = entries.with_entry("yaml", text, SECTION, NAME, ENTRY)
    assert is_in(text, after)
    assert entries.without_entry("yaml", after, SECTION, NAME, added) == text


# -- what is left alone

BROKEN = [
    ("json", '{"servers": {}, // c\n}'),
    ("json", '{"servers": {},}'),
    ("json", "{'servers': {}}"),
    ("json", '{"servers": {"a": 01}}'),
    ("json", f'{{"a": {"9" * 5000}}}'),
    ("json", '{"a": "\n"}'),
    ("jsonc", "[" * 100_000),
    ("jsonc", '{"servers": {}, "servers": {}}'),
    ("jsonc", '{"servers": []}'),
    ("jsonc", '{"servers": {} /* open'),
    ("jsonc", "// nothing else"),
    ("jsonc", "{} {}"),
    ("toml", "servers = 1\n"),
    ("toml", "servers = {a = {}}\n"),
    ("toml", "a = \n"),
    ("toml", "[a]\n[a]\n"),
    ("yaml", "servers: [1]\n"),
    ("yaml", "servers: text\n"),
    ("yaml", "a: &x 1\nb: *x\n"),
    ("yaml", "a: !tag 1\n"),
    ("yaml", "{a: 1}\n"),
    ("yaml", "a: 1\n---\nb: 2\n"),
    ("yaml", "a: 1\na: 2\n"),
    ("yaml", "a: 1\n...\n"),
]


@pytest.mark.parametrize(("form", "text"), BROKEN)
def test_file_that_is_broken_or_built_otherwise_is_refused(form, text):
    with pytest.raises(TextRefused):
        entries.with_entry(form, text, SECTION, NAME, ENTRY)


def test_toml_table_changes_only_its_own_values_and_lines():
    text = '[servers.vmrag-here]\ncommand = "old" # mine\nargs = []\ntimeout = 9\n# about what follows\n[b]\nc = 1\n'
    changed = entries.with_values("toml", text, SECTION, NAME, {"command": "new", "args": ["x"]})
    assert changed == text.replace('"old"', '"new"').replace("[]", '["x"]')
    remaining = entries.without_entry("toml", changed, SECTION, NAME, None)
    assert remaining == "# about what follows\n[b]\nc = 1\n"


def test_toml_list_over_several_lines_is_not_changed():
    text = '[servers.vmrag-here]\ncommand = "old"\nargs = [\n"a",\n]\n'
    with pytest.raises(TextRefused):
        entries.with_values("toml", text, SECTION, NAME, {"args": ["x"]})
