"""The pin: the content of `.dolt-version`, and its encoding.

The file is untrusted. Any bytes become a `Pin` or raise `PinMalformed`, which names the line and a
fix. Reading it executes nothing, and uses no network.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any, NoReturn

from vmrag_link.errors import PinMalformed, quoted
from vmrag_link.models import Record
from vmrag_link.paths import PIN_NAME
from vmrag_link.pin_values import FLAWS, quote_untrusted

KEYS = ("dolt_remote", "dolt_branch", "dolt_commit", "linked_at")
MAX_BYTES = 4096
MAX_DEPTH = 32

_FRESH = f"run 'vmrag pin' to write a fresh one, or 'git log -p -- {PIN_NAME}' to see earlier ones"
_EARLIER = f"run 'git log -p {{}} -- {PIN_NAME}' to see its earlier ones, or write a fresh one on its branch"
_RESOLVE = "run 'vmrag resolve' to resolve the conflict, or 'vmrag pin' if the markers are staged or committed"

# No line of JSON can begin with any of these, so they need no parsing to be recognised.
_CONFLICT = r"(?m)^(?:<{7}|\|{7}|={7}|>{7})"
_SPACE = re.compile(r"[ \t\n\r]*")


class Pin(Record, frozen=True):
    """The pin of a git commit."""

    dolt_remote: str
    dolt_branch: str
    dolt_commit: str
    linked_at: str
    extra: tuple[tuple[str, str], ...] = ()
    """Keys that this version does not know, in their order, each with its value as JSON text."""

    def is_same_state(self, other: Pin) -> bool:
        """Return whether both pins name the same revision, branch and remote.

        `linked_at` is only for display.
        """
        return self._state == other._state

    @property
    def _state(self) -> tuple[str, str, str]:
        return (self.dolt_remote, self.dolt_branch, self.dolt_commit)


def parse_pin(data: bytes, *, source: str = PIN_NAME) -> Pin:
    """Read a pin.

    `source` is `REF:.dolt-version` for a pin that is not in the work tree. Raises only
    `PinMalformed`, with the details `file` (= `source`) and `line`.
    """
    try:
        return _parse_strictly(data)
    except _Flaw as flaw:
        ref, elsewhere, _ = source.partition(":")
        hint = _EARLIER.format(quoted(ref)) if elsewhere else flaw.hint
        raise PinMalformed(
            f"{source}, line {flaw.line}: {flaw.reason}", hint=hint, file=source, line=flaw.line
        ) from None


def format_pin(pin: Pin) -> bytes:
    """Encode a pin in its canonical form.

    Raises `PinMalformed` for a pin that `parse_pin` would refuse, so that such a file is never
    written.
    """
    data = _encode_pin(pin)
    parse_pin(data)
    return data


def update_pin(old: Pin | None, *, remote: str, branch: str, commit: str, committed_at: str) -> Pin:
    """Return the pin that follows `old`.

    Unknown keys stay. `linked_at` stays if the rest is the same. `committed_at` is the commit time
    of the revision, so that two users who pin the same revision write the same bytes.
    """
    new = Pin(remote, branch, commit, committed_at, old.extra if old else ())
    return old if old is not None and old.is_same_state(new) else new


_KINDS = {
    dict: "an object",
    list: "an array",
    int: "a number",
    float: "a number",
    bool: "a boolean",
    type(None): "null",
}


class _Flaw(Exception):
    """An error in a pin, and its line, from 1."""

    def __init__(self, reason: str, line: int, hint: str = _FRESH) -> None:
        super().__init__(reason)
        self.reason = reason
        self.line = line
        self.hint = hint


class _ValueRefused(ValueError):
    """Raised in the JSON decoder, which does not know the line."""


def _parse_strictly(data: bytes) -> Pin:
    text = _decode_text(data)
    values: dict[str, str] = {}
    extra: dict[str, str] = {}
    for key, value, line in _parse_members(text):
        if key in values or key in extra:
            raise _Flaw(f"the key {quote_untrusted(key)} occurs twice", line)
        if key in FLAWS:
            values[key] = _check_value(key, value, line)
        else:
            extra[key] = _to_json(key, value, line)
    if missing := [key for key in KEYS if key not in values]:
        raise _Flaw(
            f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing", _count_line(text, text.index("{"))
        )
    pin = Pin(**values, extra=tuple(extra.items()))
    if extra and len(_encode_pin(pin)) > MAX_BYTES:
        raise _Flaw(f"more than {MAX_BYTES} bytes in canonical form", 1)
    return pin


def _encode_pin(pin: Pin) -> bytes:
    values = {key: getattr(pin, key) for key in KEYS} | {key: json.loads(value) for key, value in pin.extra}
    return (json.dumps(values, indent=2, ensure_ascii=False) + "\n").encode(errors="surrogatepass")


def _decode_text(data: bytes) -> str:
    if len(data) > MAX_BYTES:
        raise _Flaw(f"{len(data)} bytes; a pin has at most {MAX_BYTES}", 1)
    if data.startswith(b"\xef\xbb\xbf"):
        raise _Flaw("begins with a byte order mark; save the file as UTF-8 without one", 1)
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise _Flaw("is not UTF-8", data.count(b"\n", 0, error.start) + 1) from None
    if marker := re.search(_CONFLICT, text):
        raise _Flaw(f"an unresolved merge conflict ({marker[0]})", _count_line(text, marker.start()), _RESOLVE)
    return text


def _parse_members(text: str) -> Iterator[tuple[str, Any, int]]:
    """Yield key, value and line of each member of the JSON object, in the order of the file."""
    at = _expect_sign(text, 0, "{")
    if text[at : at + 1] == "}":
        _expect_end(text, at + 1)
        return
    while True:
        line = _count_line(text, at)
        if text[at : at + 1] != '"':
            raise _Flaw("is not JSON: a key in double quotes is expected", line)
        key, at = _parse_value(text, at)
        at = _expect_sign(text, at, ":")
        value, at = _parse_value(text, at)
        yield key, value, line
        at = _skip_blanks(text, at)
        if text[at : at + 1] == "}":
            _expect_end(text, at + 1)
            return
        at = _expect_sign(text, at, ",")


def _parse_value(text: str, at: int) -> tuple[Any, int]:
    try:
        return _DECODER.raw_decode(text, at)
    except json.JSONDecodeError as error:
        raise _Flaw(f"is not JSON: {error.msg}", error.lineno) from None
    except _ValueRefused as refusal:
        raise _Flaw(str(refusal), _count_line(text, at)) from None
    except RecursionError:
        raise _Flaw("is nested too deeply", _count_line(text, at)) from None


def _expect_sign(text: str, at: int, sign: str) -> int:
    at = _skip_blanks(text, at)
    if text[at : at + 1] != sign:
        shown_text = quote_untrusted(text[at : at + 20]) if text[at:] else "the end of the file"
        raise _Flaw(f"is not JSON: {sign!r} is expected, found {shown_text}", _count_line(text, at))
    return _skip_blanks(text, at + 1)


def _expect_end(text: str, at: int) -> None:
    at = _skip_blanks(text, at)
    if text[at:]:
        raise _Flaw(
            f"something follows the closing brace: {quote_untrusted(text[at : at + 20])}", _count_line(text, at)
        )


def _skip_blanks(text: str, at: int) -> int:
    space = _SPACE.match(text, at)
    return space.end() if space else at


def _count_line(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1


def _check_value(key: str, value: object, line: int) -> str:
    if not isinstance(value, str):
        raise _Flaw(f"{key} must be a text in double quotes; found {_KINDS[type(value)]}", line)
    if flaw := FLAWS[key](value):
        raise _Flaw(f"{key} {flaw}", line)
    return value


def _to_json(key: str, value: object, line: int) -> str:
    """Return the value of an unknown key as JSON text that never changes."""
    if _deeper_than(value, MAX_DEPTH):
        raise _Flaw(f"the value of {quote_untrusted(key)} is nested more than {MAX_DEPTH} deep", line)
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    try:
        (key + text).encode()
    except UnicodeEncodeError:
        raise _Flaw(f"{quote_untrusted(key)} holds half of a surrogate pair, which is not a character", line) from None
    return text


def _deeper_than(value: object, levels: int) -> bool:
    # Level by level, so that the limit does not depend on the stack of the caller.
    nodes = [value]
    for _ in range(levels):
        nodes = [
            child
            for node in nodes
            if isinstance(node, dict | list)
            for child in (node.values() if isinstance(node, dict) else node)
        ]
    return bool(nodes)


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise _ValueRefused("an object has the same key twice")
    return members


def _parse_integer(digits: str) -> int:
    if len(digits) > 20 or not -(2**63) <= int(digits) < 2**64:  # noqa: PLR2004  more digits than 64 bits hold
        raise _ValueRefused(f"a number that does not fit into 64 bits: {quote_untrusted(digits)}")
    return int(digits)


def _parse_fraction(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise _ValueRefused(f"a number too large to be stored: {quote_untrusted(digits)}")
    return number


def _refuse_constant(name: str) -> NoReturn:
    raise _ValueRefused(f"{name} is not JSON")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_refuse_duplicates,
    parse_int=_parse_integer,
    parse_float=_parse_fraction,
    parse_constant=_refuse_constant,
)
