"""The pin's codec: one encoding, and a clear refusal for everything else."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmrag_link import pin
from vmrag_link.errors import PinMalformed
from vmrag_link.pin import Pin

DOLTLITE_REVISION = "0123456789abcdef0123456789abcdef01234567"
DOLT_REVISION = "0123456789abcdefghijklmnopqrstuv"
GOOD = Pin("git:", "main", DOLTLITE_REVISION, "2026-01-31T12:00:00Z")
TEXT = pin.format_pin(GOOD).decode()


def with_value(key: str, value: object) -> bytes:
    members = json.loads(TEXT)
    members[key] = value
    return json.dumps(members, indent=2).encode()


def refusal(data: bytes) -> PinMalformed:
    with pytest.raises(PinMalformed) as caught:
        pin.parse_pin(data)
    return caught.value


# -- the one encoding


def test_canonical_bytes_are_these():
    canonical = (
        "{\n"
        '  "dolt_remote": "git:",\n'
        '  "dolt_branch": "main",\n'
        f'  "dolt_commit": "{DOLTLITE_REVISION}",\n'
        '  "linked_at": "2026-01-31T12:00:00Z"\n'
        "}\n"
    )
    assert canonical == TEXT


def test_text_beyond_ascii_is_not_escaped():
    data = pin.format_pin(Pin("git:", "größe/🙂", DOLT_REVISION, "2026-01-31T12:00:00Z", (("ü", '"é"'),)))
    assert "größe/🙂".encode() in data
    assert '"ü": "é"'.encode() in data


def test_unknown_keys_are_kept_in_their_order_after_the_four():
    shuffled = (
        '{"zeta": {"b": 1, "a": [true, null, 1.50]}, "linked_at": "2026-01-31T12:00:00Z", "alpha": "\\u00e9", '
        f'"dolt_commit": "{DOLT_REVISION}", "dolt_branch": "main", "dolt_remote": "org/repo", "extra": -7}}'
    )
    result = pin.parse_pin(shuffled.encode())
    assert result.extra == (("zeta", '{"b":1,"a":[true,null,1.5]}'), ("alpha", '"é"'), ("extra", "-7"))
    assert list(json.loads(pin.format_pin(result))) == [*pin.KEYS, "zeta", "alpha", "extra"]


def test_crlf_and_odd_spacing_are_read_and_written_canonically():
    assert pin.format_pin(pin.parse_pin(b" \n\t" + TEXT.replace("\n", "\r\n").encode() + b"\r\n ")) == TEXT.encode()


def test_pin_that_would_not_be_read_is_never_written():
    with pytest.raises(PinMalformed, match="line 2: dolt_remote names a transport helper"):
        pin.format_pin(Pin("ext::sh -c id", "main", DOLT_REVISION, GOOD.linked_at))
    with pytest.raises(PinMalformed):
        pin.format_pin(Pin("git:", "a\udcffb", DOLT_REVISION, GOOD.linked_at))


def test_pin_is_hashable_and_compared_by_value():
    assert {GOOD, pin.parse_pin(TEXT.encode())} == {GOOD}


# -- which pins are the same


def test_time_is_displayed_but_never_compared():
    assert GOOD.is_same_state(Pin("git:", "main", DOLTLITE_REVISION, "2020-01-01T00:00:00Z"))


@pytest.mark.parametrize("field", ["remote", "branch", "commit"])
def test_remote_branch_and_commit_are_compared(field):
    state = {"remote": "git:", "branch": "main", "commit": DOLTLITE_REVISION}
    other = state | {field: DOLT_REVISION}
    assert not GOOD.is_same_state(pin.update_pin(None, **other, committed_at=GOOD.linked_at))


def test_pinning_the_same_state_again_changes_no_byte():
    old = Pin("git:", "main", DOLTLITE_REVISION, "2020-01-01T00:00:00Z", (("note", '"x"'),))
    assert (
        pin.update_pin(old, remote="git:", branch="main", commit=DOLTLITE_REVISION, committed_at="2026-05-05T00:00:00Z")
        == old
    )


def test_pinning_another_revision_takes_its_time_and_keeps_unknown_keys():
    old = Pin("git:", "main", DOLTLITE_REVISION, "2020-01-01T00:00:00Z", (("note", '"x"'),))
    new = pin.update_pin(old, remote="git:", branch="main", commit=DOLT_REVISION, committed_at="2026-05-05T00:00:00Z")
    assert new == Pin("git:", "main", DOLT_REVISION, "2026-05-05T00:00:00Z", (("note", '"x"'),))


# -- what the values may be


@pytest.mark.parametrize(
    "remote",
    [
        "git:",
        "git:refs/heads/vmrag/data",
        "git:refs/heads/vmrag",
        "git+https://github.com/org/kb.git",
        "git+ssh://git@github.com/org/kb.git",
        "git+ssh://git@github.com:2222/org/kb",
        "git+http://host/x",
        "git+file:///srv/kb.git",
        "file:///srv/my knowledge",
        "http://127.0.0.1:8080/kb",
        "http://[::1]:8080/kb",
        "https://host/kb",
        "ssh://user@host/kb",
        "org/repo",
        "dolt-hub/under_scores.x",
        "aws://[table:bucket]/kb",
        "gs://bucket/kb",
        "az://account.blob.core.windows.net/c/kb",
        "oci://b/kb",
        "oss://b/kb",
        "s3://bucket/kb",
    ],
)
def test_these_remotes_are_accepted(remote):
    assert pin.parse_pin(with_value("dolt_remote", remote)).dolt_remote == remote


@pytest.mark.parametrize(
    ("remote", "part"),
    [
        ("", "is empty"),
        (" git:", "blanks"),
        ("git", "must be git:"),
        ("git://host/x", "must be git:"),
        ("git:refs/heads/main", "no code is on"),
        ("git:refs/heads/", "no code is on"),
        ("git:refs/heads/VMRAG/data", "no code is on"),
        ("git:refs/tags/vmrag", "no code is on"),
        ("git:refs/pull/7/vmrag", "no code is on"),
        ("git:refs/heads/vmrag/../main", "no code is on"),
        ("git:refs/heads/vmrag:refs/heads/main", "no code is on"),
        ("git:refs/heads/vmrag*", "no code is on"),
        ("git:refs/heads/vmrag.lock", "no code is on"),
        ("git:refs/heads/vmrag" + "x" * 300, "no code is on"),
        ("git:vmrag", "must be git:"),
        ("ftp://host/x", "must be git:"),
        ("HTTPS://host/x", "must be git:"),
        ("git@github.com:org/repo", "must be git:"),
        ("/srv/kb", "must be git:"),
        ("../kb", "must be git:"),
        ("org/repo/more", "must be git:"),
        ("https://host\\@evil/x", "password"),
        ("https://user:secret/x@host/kb", "must be git:"),
        ("--upload-pack=touch pwned", "option"),
        ("-oProxyCommand=x/y", "option"),
        ("ssh://-oProxyCommand=x/y", "option"),
        ("git+ssh://-oProxyCommand=x@host/y", "option"),
        ("git+ssh://git@-oProxyCommand=x/y", "option"),
        ("ext::sh -c 'touch pwned'", "transport helper"),
        ("fd::17", "transport helper"),
        ("git-remote-x.y+z::a/b", "transport helper"),
        ("::x", "transport helper"),
        ("https://user:secret@host/x", "password"),
        ("https://secret@host/x", "password"),
        ("git+https://secret@host/x", "password"),
        ("ssh://user:secret@host/x", "password"),
        ("ssh://user%3Asecret@host/x", "password"),
        ("https://a@user:secret@host/x", "password"),
        ("aws://key:secret@bucket/x", "password"),
        ("https:///x", "names no place"),
        ("file://", "names no place"),
        ("https://host/\x1b[31m", "cannot be shown"),
        ("https://host/\u202e", "cannot be shown"),
        ("https://host/\n", "blanks"),
        ("https://host/" + "x" * 2000, "longer than 1024"),
    ],
)
def test_these_remotes_are_refused_without_showing_a_secret(remote, part):
    error = refusal(with_value("dolt_remote", remote))
    assert error.message.startswith(".dolt-version, line 2: dolt_remote ")
    assert part in error.message
    assert "secret" not in error.message
    assert error.message.isprintable()


@pytest.mark.parametrize("branch", ["main", "feature/a-b_c", "b/größe-1234abcd", "HEAD", "a.b", "x@y", "日本"])
def test_these_branches_are_accepted(branch):
    assert pin.parse_pin(with_value("dolt_branch", branch)).dolt_branch == branch


@pytest.mark.parametrize(
    "branch",
    [
        "",
        "a b",
        " a",
        "-d",
        "--all",
        "a..b",
        "a~1",
        "a^",
        "a:b",
        "a?",
        "a*",
        "a[",
        "a\\b",
        "a@{1}",
        "@",
        "a/",
        "/a",
        "a//b",
        "a.lock",
        "a.lock/b",
        ".a",
        "a/.b",
        "a.",
        "a\x00b",
        "a\x7f",
        "a\nb",
        "a\u2028b",
        "a\u00a0b",
        "x" * 256,
    ],
)
def test_these_branches_are_refused(branch):
    assert refusal(with_value("dolt_branch", branch)).details["line"] == 3


@pytest.mark.parametrize("branch", ["vmrag", "vmrag_keep", "vmrag/wip/main", "VMRAG_links"])
def test_reserved_branches_are_refused(branch):
    assert "reserved" in refusal(with_value("dolt_branch", branch)).message


@pytest.mark.parametrize(
    "commit", ["a" * 39, "a" * 41, "A" * 40, "v" * 40, "w" * 32, "main", "HEAD", "", "a" * 40 + "\n"]
)
def test_revision_must_be_a_full_hash_and_the_error_quotes_it(commit):
    error = refusal(with_value("dolt_commit", commit))
    assert error.details["line"] == 4
    assert f"with {len(commit)} characters" in error.message
    assert commit[:5] in error.message


@pytest.mark.parametrize("time", ["2026-01-31T12:00:00.123Z", "2024-02-29T23:59:59Z"])
def test_these_times_are_accepted(time):
    assert pin.parse_pin(with_value("linked_at", time)).linked_at == time


@pytest.mark.parametrize(
    "time",
    [
        "",
        "now",
        "2026-01-31",
        "2026-01-31T12:00:00",
        "2026-01-31T12:00:00+00:00",
        "2026-01-31 12:00:00Z",
        "2026-13-01T00:00:00Z",
        "2023-02-29T00:00:00Z",
        "2026-01-31T12:00:60Z",
        "2026-01-31t12:00:00z",
        "٢٠٢٦-01-31T12:00:00Z",
    ],
)
def test_time_must_be_iso_8601_in_utc(time):
    assert refusal(with_value("linked_at", time)).details["line"] == 5


# -- what the file may be

CONFLICT = TEXT.replace(
    '  "dolt_branch": "main",\n',
    '<<<<<<< HEAD\n  "dolt_branch": "main",\n||||||| base\n  "dolt_branch": "x",\n=======\n  "dolt_branch": "y",\n>>>>>>> z\n',
)
LAST = '"2026-01-31T12:00:00Z"\n'


@pytest.mark.parametrize(
    ("data", "line", "part"),
    [
        (b"", 1, "found the end of the file"),
        (b" \n\n", 3, "found the end of the file"),
        (b"null", 1, "'{' is expected"),
        (b"[]", 1, "'{' is expected"),
        (b"{}", 1, "dolt_remote, dolt_branch, dolt_commit, linked_at are missing"),
        (b"\n{}\nx", 3, "follows the closing brace"),
        (b"main\n", 1, "'{' is expected, found 'main"),
        (b"\xef\xbb\xbf" + TEXT.encode(), 1, "byte order mark"),
        (TEXT.encode("utf-16"), 1, "not UTF-8"),
        (TEXT.replace("main", "m\udcffn").encode(errors="surrogateescape"), 3, "not UTF-8"),
        (TEXT.encode() + b" " * 5000, 1, "at most 4096"),
        (CONFLICT.encode(), 3, "unresolved merge conflict (<<<<<<<)"),
        (CONFLICT.replace("<<<<<<< HEAD\n", "").encode(), 4, "(|||||||)"),
        (TEXT.replace("{\n", "{\n=======\n").encode(), 2, "(=======)"),
        ((TEXT + ">>>>>>> z\n").encode(), 7, "(>>>>>>>)"),
        ((TEXT + TEXT).encode(), 7, "follows the closing brace"),
        ((TEXT + "// why").encode(), 7, "follows the closing brace"),
        (TEXT.replace('"main",', '"main"').encode(), 4, "',' is expected"),
        (TEXT.replace(LAST, LAST[:-1] + ",\n").encode(), 6, "a key in double quotes"),
        (TEXT.replace('"dolt_branch"', "'dolt_branch'").encode(), 3, "a key in double quotes"),
        (TEXT.replace('"main"', "main").encode(), 3, "not JSON"),
        (TEXT.replace('"main"', '"main').encode(), 3, "not JSON"),
        (TEXT.replace('"main"', '"ma\tin"').encode(), 3, "not JSON"),
        (TEXT.replace('"main"', '"ma\\qin"').encode(), 3, "not JSON"),
        (TEXT.replace('"main"', '"\\ud800"').encode(), 3, "cannot be shown"),
        (TEXT.replace('"main"', '"\\u0000"').encode(), 3, "cannot be shown"),
        (TEXT.replace('"main"', "7").encode(), 3, "dolt_branch must be a text in double quotes; found a number"),
        (TEXT.replace('"main"', "true").encode(), 3, "found a boolean"),
        (TEXT.replace('"main"', "null").encode(), 3, "found null"),
        (TEXT.replace('"main"', '["main"]').encode(), 3, "found an array"),
        (TEXT.replace('"main"', '{"name": "main"}').encode(), 3, "found an object"),
        (TEXT.replace('"main"', "[" * 3000).encode(), 3, "not JSON|nested too deeply"),
        (TEXT.replace('"main"', "[" * 1500 + "]" * 1500).encode(), 3, "found an array|nested too deeply"),
        (TEXT.replace('  "dolt_branch": "main",\n', "").encode(), 1, "dolt_branch is missing"),
        (TEXT.replace("{\n", '{\n  "dolt_branch": "x",\n').encode(), 4, "'dolt_branch' occurs twice"),
        (TEXT.replace("{\n", '{\n  "dolt_\\u0062ranch": "x",\n').encode(), 4, "'dolt_branch' occurs twice"),
        (TEXT.replace("{\n", '{\n  "x": 1,\n  "x": 1,\n').encode(), 3, "'x' occurs twice"),
        (TEXT.replace("{\n", '{\n  "x": [{"y": 1, "y": 2}],\n').encode(), 2, "the same key twice"),
        (TEXT.replace("{\n", '{\n  "x": NaN,\n').encode(), 2, "NaN is not JSON"),
        (TEXT.replace("{\n", '{\n  "x": [-Infinity],\n').encode(), 2, "-Infinity is not JSON"),
        (TEXT.replace("{\n", '{\n  "x": 1e999,\n').encode(), 2, "too large"),
        (TEXT.replace("{\n", '{\n  "x": %s,\n' % ("9" * 3000)).encode(), 2, "64 bits"),
        (TEXT.replace("{\n", '{\n  "x": 18446744073709551616,\n').encode(), 2, "64 bits"),
        (TEXT.replace("{\n", '{\n  "x": "\\udc00",\n').encode(), 2, "surrogate"),
        (TEXT.replace("{\n", '{\n  "\\udc00": 1,\n').encode(), 2, "surrogate"),
        (TEXT.replace("{\n", '{\n  "x": ' + "[" * 33 + "1" + "]" * 33 + ",\n").encode(), 2, "more than 32 deep"),
        (TEXT.replace("{\n", '{\n  "x": [%s1],\n' % ("1," * 1000)).encode(), 1, "canonical form"),
    ],
)
def test_invalid_pin_is_refused_with_its_line_and_a_hint(data, line, part):
    error = refusal(data)
    assert re.search(part if "|" in part and "(" not in part else re.escape(part), error.message)
    assert error.message.startswith(f".dolt-version, line {line}: ")
    assert error.details == {"file": ".dolt-version", "line": line}
    assert error.hint.startswith(("run 'vmrag pin'", "run 'vmrag resolve'"))
    assert error.message.isprintable()


def test_conflict_error_names_the_command_that_keeps_both_sides():
    assert refusal(CONFLICT.encode()).hint.startswith("run 'vmrag resolve'")


def test_message_names_the_place_that_the_bytes_came_from():
    with pytest.raises(PinMalformed, match=r"^origin/main:\.dolt-version, line 1: "):
        pin.parse_pin(b"", source="origin/main:.dolt-version")


# -- whatever comes

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=12),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=12,
)
pins = st.builds(
    Pin,
    st.sampled_from(["git:", "org/repo", "file:///a b", "git+ssh://git@host/x", "aws://[t:b]/x"]),
    st.from_regex(r"[a-uw-zA-UW-Zé][a-z0-9/é-]{0,20}[a-z0-9]", fullmatch=True).filter(lambda name: "//" not in name),
    st.from_regex(r"[0-9a-v]{32}|[0-9a-f]{40}", fullmatch=True),
    st.datetimes().map(lambda moment: moment.replace(microsecond=0).isoformat() + "Z"),
    st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"]), max_size=8).filter(lambda key: key not in pin.KEYS),
        st.recursive(
            st.none()
            | st.integers(-(2**63), 2**64 - 1)
            | st.floats(allow_nan=False, allow_infinity=False)
            | st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.just("k"), inner),
            max_leaves=6,
        ),
        max_size=3,
    ).map(lambda extra: tuple((k, json.dumps(v, ensure_ascii=False, separators=(",", ":"))) for k, v in extra.items())),
)


def gives_a_pin_or_a_refusal(data: bytes) -> None:
    try:
        result = pin.parse_pin(data)
    except PinMalformed as error:
        complaint = error
    else:
        keeps_its_bytes(result)
        return
    assert 1 <= complaint.details["line"] <= data.count(b"\n") + 1
    assert complaint.message.isprintable()


def keeps_its_bytes(pin_value: Pin) -> None:
    once = pin.format_pin(pin_value)
    assert len(once) <= pin.MAX_BYTES
    assert pin.parse_pin(once) == pin_value
    assert pin.format_pin(pin.parse_pin(once)) == once


@given(pins)
def test_pin_survives_parsing_and_formatting(value):
    data = pin.format_pin(value)
    assert pin.parse_pin(data) == value
    assert pin.format_pin(pin.parse_pin(data)) == data


@given(st.binary(max_size=5000))
def test_any_bytes_give_a_pin_or_a_refusal(data):
    gives_a_pin_or_a_refusal(data)


@given(pins, st.data())
def test_damaged_pin_gives_a_pin_or_a_refusal(value, data):
    content = bytearray(pin.format_pin(value))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(content)))
        cut = data.draw(st.integers(0, 6))
        content[at : at + cut] = data.draw(
            st.binary(max_size=4) | st.sampled_from([b'"', b"{", b"[", b",", b"\\u", b"\n", b"1e9999", b"-", b"NaN"])
        )
    gives_a_pin_or_a_refusal(bytes(content))


@given(json_values, st.dictionaries(st.sampled_from([*pin.KEYS, "more"]), json_values))
def test_any_json_gives_a_pin_or_a_refusal(anything, members):
    gives_a_pin_or_a_refusal(json.dumps(anything).encode())
    gives_a_pin_or_a_refusal(json.dumps(json.loads(TEXT) | members).encode())
