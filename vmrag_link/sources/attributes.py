"""Attributes from the `.gitattributes` files of a tree, as far as sources use them.

The files are parsed here, because git answers only for the work tree, and also reads places outside
of a commit: `info/attributes` and the user's own file. Only the built-in macros are supported.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from vmrag_link.errors import LimitExceeded
from vmrag_link.git import readonly
from vmrag_link.settings import SourceSettings
from vmrag_link.sources import wildmatch
from vmrag_link.sources.rules import build_included

FILE_NAME = ".gitattributes"
PATHSPEC = f":(top,glob)**/{FILE_NAME}"

GENERATED, VENDORED = "linguist-generated", "linguist-vendored"
FILTER, ENCODING, TEXT, DIFF, EOL = "filter", "working-tree-encoding", "text", "diff", "eol"

FOR_LISTING = (GENERATED, VENDORED, FILTER, ENCODING, TEXT, DIFF)
FOR_STORING = (TEXT, EOL, ENCODING)
"""Attributes that decide which blob git would store for a file, without filters."""

Value = bool | str
"""Set, unset, or a text. An unspecified attribute has no value."""

MAX_FILE_BYTES = 1_000_000
"""Size limit of one such file. A larger file is ignored."""

_MAX_TOTAL_BYTES = 20_000_000
_MAX_RULES = 20_000
_MAX_RULES_PER_FILE = 1_000
"""Limit for one file, which is matched with all rules of the folders around it."""

_MAX_MATCHES = 50_000_000
"""Maximum number of matched rules, for all files together."""

_MAX_PATTERN_CHARACTERS = 255
_MAX_WILDCARDS = 10
"""Limits of a pattern. Brackets cost no more than letters. `*a` with a hundred `?` takes a hundred
steps for each letter of a name.
"""

_MAX_LINE_CHARACTERS = 2048  # git's own
_BINARY: Mapping[str, Value | None] = {DIFF: False, "merge": False, TEXT: False}
_LINE = re.compile(r'"((?:[^"\\]|\\.)*)"|(\S+)')
_ESCAPE = re.compile(r"\\([0-7]{3}|.)", re.DOTALL)
_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_WILDCARD = re.compile(r"\*+|\?")
_LITERAL = re.compile(r"\*?[^*?\[\\/]+")


class AttributeRule(NamedTuple):
    """A rule. `matches` gets a path from the rule's folder, and the file's name. A value of None
    means unspecified.
    """

    matches: Callable[[str, str], bool]
    values: Mapping[str, Value | None]


class TreeAttributes:
    """The attributes of files below the top. A later rule overrides earlier ones, and a rule of an
    inner folder those of the folders around it.

    `files`: contents by path. `names`: the attributes to read. Raises `LimitExceeded` for too many
    rules.
    """

    def __init__(self, files: Mapping[str, bytes], names: Collection[str]) -> None:
        rules: dict[str, list[AttributeRule]] = {}
        for path, content in files.items():
            folder = path.removesuffix(FILE_NAME)
            rules[folder] = [*_parse_rules(content, names)]
        if sum(map(len, rules.values())) > _MAX_RULES:
            raise _build_limit_error(f"more than {_MAX_RULES:,} rules")
        self._rules_by_folder = _select_rules(rules, names)
        self._chains: dict[str, list[tuple[int, list[AttributeRule]]]] = {}
        self._matches = 0

    def get_values(self, path: str) -> dict[str, Value]:
        """Return the specified attributes of a file.

        Raises `LimitExceeded` for too many rules, and after the deadline of `readonly`.
        """
        folder, _, name = path.rpartition("/")
        chain = self._build_chain(folder)
        if not chain:
            return {}
        self._matches += sum(len(rules) for _, rules in chain)
        if self._matches > _MAX_MATCHES:
            raise _build_limit_error("too many rules for so many files")
        readonly.require_time(f"Matching files with {FILE_NAME}")
        values: dict[str, Value | None] = {}
        path, name = wildmatch.encode_path(path), wildmatch.encode_path(name)
        for start, rules in chain:
            below = path[start:]
            for rule in rules:
                if rule.matches(below, name):
                    values |= rule.values
        return {name: value for name, value in values.items() if value is not None}

    def _build_chain(self, folder: str) -> list[tuple[int, list[AttributeRule]]]:
        """Return the rules for the files of a folder, outer ones first, each with the start of the
        path that is matched.
        """
        if (cached := self._chains.get(folder)) is not None:
            return cached
        around = [""]
        for part in folder.split("/") if folder else []:
            around.append(f"{around[-1]}{part}/")
        chain = [
            (len(wildmatch.encode_path(name)), self._rules_by_folder[name])
            for name in around
            if self._rules_by_folder.get(name)
        ]
        if sum(len(rules) for _, rules in chain) > _MAX_RULES_PER_FILE:
            raise _build_limit_error(f"more than {_MAX_RULES_PER_FILE:,} rules for one file")
        self._chains[folder] = chain
        return chain


def require_few_bytes(size: int) -> None:
    """Raise `LimitExceeded` if all attribute files together have too many bytes."""
    if size > _MAX_TOTAL_BYTES:
        raise _build_limit_error(f"{size:,} bytes, more than {_MAX_TOTAL_BYTES:,}")


def _build_limit_error(what: str) -> LimitExceeded:
    return LimitExceeded(
        f"the {FILE_NAME} files of the repository have {what}.",
        hint=f"run 'git ls-files \"*{FILE_NAME}\"' to list them, then remove those that are not needed",
    )


def _select_rules(rules: Mapping[str, list[AttributeRule]], names: Collection[str]) -> dict[str, list[AttributeRule]]:
    """Return the rules without the attributes `text` and `diff` if they are read only to find
    binary files and no rule marks one. Most rules have only these two.
    """
    if DIFF not in names or any(rule.values.get(DIFF) is False for group in rules.values() for rule in group):
        return dict(rules)
    kept = {}
    for folder, group in rules.items():
        reduced = [
            rule._replace(values={k: v for k, v in rule.values.items() if k not in (TEXT, DIFF)}) for rule in group
        ]
        kept[folder] = [rule for rule in reduced if rule.values]
    return kept


def _parse_rules(content: bytes, names: Collection[str]) -> Iterator[AttributeRule]:
    if len(content) > MAX_FILE_BYTES:
        return
    text = content.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "surrogateescape")
    for line in text.split("\n"):
        stripped = line.strip(" \t\r")
        if not stripped or stripped.startswith("#") or len(stripped) > _MAX_LINE_CHARACTERS:
            continue
        if (match := _LINE.match(stripped)) is None:
            continue
        pattern = match[2] if match[1] is None else _ESCAPE.sub(_decode_escape, match[1])
        # git ignores negative patterns. The pattern of a folder does not apply to the files in it.
        if not pattern or pattern.startswith(("!", "[attr]")) or pattern.endswith("/"):
            continue
        if len(pattern) > _MAX_PATTERN_CHARACTERS or len(_WILDCARD.findall(pattern)) > _MAX_WILDCARDS:
            continue
        values = _parse_values(_escape_surrogates(stripped[match.end() :]).split())
        if selected := {name: value for name, value in values.items() if name in names}:
            yield AttributeRule(_build_matcher(pattern), selected)


def _escape_surrogates(text: str) -> str:
    """Return text that can be written, because reasons and encodings quote values. Patterns stay
    unchanged, for names that are not UTF-8.
    """
    return text if text.isascii() else text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _decode_escape(match: re.Match[str]) -> str:
    escaped = match[1]
    if len(escaped) == 1:
        return _ESCAPES.get(escaped, escaped)
    return bytes([int(escaped, 8) & 0xFF]).decode("utf-8", "surrogateescape")


def _parse_values(words: list[str]) -> dict[str, Value | None]:
    values: dict[str, Value | None] = {}
    for word in words:
        name, equals, value = word.partition("=")
        match word[0]:
            case "-":
                values[word[1:]] = False
            case "!":
                values[word[1:]] = None
            case _ if name == "binary" and not equals:
                values |= _BINARY
            case _:
                values[name] = value if equals else True
    return values


def _build_matcher(pattern: str) -> Callable[[str, str], bool]:
    """Return a function that matches a path. A pattern without a slash matches the file's name
    only.
    """
    if "/" not in pattern:
        if _LITERAL.fullmatch(pattern):
            literal = wildmatch.encode_path(pattern.removeprefix("*"))
            if pattern.startswith("*"):
                return lambda _, name: name.endswith(literal)
            return lambda _, name: name == literal
        match_name = wildmatch.compile_pattern(pattern).fullmatch
        return lambda _, name: match_name(name) is not None
    match_path = wildmatch.compile_pattern(pattern).fullmatch
    return lambda path, _: match_path(path) is not None


BINARY = "is binary according to .gitattributes"


def find_attribute_flaw(values: Mapping[str, Value]) -> str:
    """Return why a file with these attributes is not a document, or an empty text."""
    if why := find_storage_flaw(values):
        return why
    for name, what in ((GENERATED, "generated"), (VENDORED, "vendored")):
        if is_set(values.get(name)):
            return f"is {what} according to .gitattributes"
    return ""


def find_storage_flaw(values: Mapping[str, Value]) -> str:
    """Return why attributes make the stored file something else than text, or an empty text."""
    if not values:
        return ""
    if (driver := values.get(FILTER, False)) is not False:
        if driver == "lfs":
            return "is kept in Git LFS"
        return f"has the filter {driver}, which changes its content" if driver is not True else "has a filter"
    return BINARY if is_binary(values) else ""


def is_binary(values: Mapping[str, Value]) -> bool:
    """Return whether attributes make a file binary."""
    return values.get(TEXT) is False and values.get(DIFF) is False


def is_set(value: Value | None) -> bool:
    """Return whether an attribute is set. Like in linguist, the value `false` counts as unset."""
    return value is not None and value not in (False, "false")


def is_handwritten(values: Mapping[str, Value]) -> bool:
    """Return whether attributes mark a file as not generated. Then no rule here guesses
    otherwise.
    """
    return bool(values) and values.get(GENERATED, True) in (False, "false")


def list_relevant_names(sources: Sequence[SourceSettings]) -> list[str]:
    """Return pathspecs of all files that matter to these sources, possibly with some files that are
    in none of them.
    """
    return [*dict.fromkeys(pathspec for source in sources for pathspec in build_included(source)), PATHSPEC]
