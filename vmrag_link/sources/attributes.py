"""What the `.gitattributes` files of a tree say, as far as it matters here.

They are parsed, because git answers for the work tree alone, and from places that a commit knows
nothing of: `info/attributes`, the person's own file. Macros are those that are built in.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from vmrag_link.errors import LimitExceeded
from vmrag_link.git import beside
from vmrag_link.settings import SourceSettings
from vmrag_link.sources import wildmatch
from vmrag_link.sources.rules import build_included

FILE_NAME = ".gitattributes"
PATHSPEC = f":(top,glob)**/{FILE_NAME}"

GENERATED, VENDORED = "linguist-generated", "linguist-vendored"
FILTER, ENCODING, TEXT, DIFF, EOL = "filter", "working-tree-encoding", "text", "diff", "eol"

FOR_LISTING = (GENERATED, VENDORED, FILTER, ENCODING, TEXT, DIFF)
FOR_STORING = (TEXT, EOL, ENCODING)
"""What decides which blob git would store of a file, without filters."""

Value = bool | str
"""Set, unset, or a text. What is not specified has none."""

MOST_BYTES = 1_000_000
"""Of one such file; of a larger one nothing is read."""

_MOST_BYTES_TOGETHER = 20_000_000
_MOST_RULES = 20_000
_MOST_RULES_OF_A_FILE = 1_000
"""Each file asks all rules of the folders around it."""

_MOST_MATCHES = 50_000_000
"""Rules asked, of all files together."""

_LONGEST_PATTERN = 255
_MOST_WILDCARDS = 10
"""Of a pattern that is read; brackets cost no more than letters. `*a` with `?` a hundred times
takes a hundred steps at each letter of a name.
"""

_LONGEST_LINE = 2048  # git's own
_BINARY: Mapping[str, Value | None] = {DIFF: False, "merge": False, TEXT: False}
_LINE = re.compile(r'"((?:[^"\\]|\\.)*)"|(\S+)')
_ESCAPE = re.compile(r"\\([0-7]{3}|.)", re.DOTALL)
_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_WILDCARD = re.compile(r"\*+|\?")
_LITERAL = re.compile(r"\*?[^*?\[\\/]+")


class AttributeRule(NamedTuple):
    """`matches` gets a path from the rule's folder, and the file's name. None: not specified."""

    matches: Callable[[str, str], bool]
    values: Mapping[str, Value | None]


class TreeAttributes:
    """The attributes of files below the top. A rule counts more than those above it, and than those
    of the folders around.

    `files`: contents by path. `names`: which attributes matter. Raises `LimitExceeded` for too many
    rules.
    """

    def __init__(self, files: Mapping[str, bytes], names: Collection[str]) -> None:
        rules: dict[str, list[AttributeRule]] = {}
        for path, content in files.items():
            folder = path.removesuffix(FILE_NAME)
            rules[folder] = [*_rules(content, names)]
        if sum(map(len, rules.values())) > _MOST_RULES:
            raise _too_many(f"more than {_MOST_RULES:,} rules")
        self._rules = _that_matter(rules, names)
        self._chains: dict[str, list[tuple[int, list[AttributeRule]]]] = {}
        self._matches = 0

    def get_values(self, path: str) -> dict[str, Value]:
        """What is specified for a file. Raises `LimitExceeded`, also as `beside.require_time`."""
        folder, _, name = path.rpartition("/")
        chain = self._chain(folder)
        if not chain:
            return {}
        self._matches += sum(len(rules) for _, rules in chain)
        if self._matches > _MOST_MATCHES:
            raise _too_many("too many rules for so many files")
        beside.require_time(f"Matching files with {FILE_NAME}")
        found: dict[str, Value | None] = {}
        path, name = wildmatch.encode_path(path), wildmatch.encode_path(name)
        for start, rules in chain:
            below = path[start:]
            for rule in rules:
                if rule.matches(below, name):
                    found |= rule.values
        return {name: value for name, value in found.items() if value is not None}

    def _chain(self, folder: str) -> list[tuple[int, list[AttributeRule]]]:
        """The rules that count for the files of a folder, outer ones first, and where the paths
        begin that they are asked.
        """
        if (known := self._chains.get(folder)) is not None:
            return known
        around = [""]
        for part in folder.split("/") if folder else []:
            around.append(f"{around[-1]}{part}/")
        chain = [(len(wildmatch.encode_path(each)), self._rules[each]) for each in around if self._rules.get(each)]
        if sum(len(each) for _, each in chain) > _MOST_RULES_OF_A_FILE:
            raise _too_many(f"more than {_MOST_RULES_OF_A_FILE:,} rules for one file")
        self._chains[folder] = chain
        return chain


def require_few_bytes(size: int) -> None:
    """Raises `LimitExceeded` if all these files together have too many."""
    if size > _MOST_BYTES_TOGETHER:
        raise _too_many(f"{size:,} bytes; at most {_MOST_BYTES_TOGETHER:,} are read")


def _too_many(what: str) -> LimitExceeded:
    return LimitExceeded(
        f"The {FILE_NAME} files of the repository have {what}.",
        hint=f"git ls-files '*{FILE_NAME}'   (and remove what is not needed)",
    )


def _that_matter(rules: Mapping[str, list[AttributeRule]], names: Collection[str]) -> dict[str, list[AttributeRule]]:
    """Without those of `text` and `diff` where they are asked because of binary files, and nothing
    is said to be one: most rules are of these two.
    """
    if DIFF not in names or any(rule.values.get(DIFF) is False for each in rules.values() for rule in each):
        return dict(rules)
    kept = {}
    for folder, each in rules.items():
        left = [rule._replace(values={k: v for k, v in rule.values.items() if k not in (TEXT, DIFF)}) for rule in each]
        kept[folder] = [rule for rule in left if rule.values]
    return kept


def _rules(content: bytes, names: Collection[str]) -> Iterator[AttributeRule]:
    if len(content) > MOST_BYTES:
        return
    text = content.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "surrogateescape")
    for line in text.split("\n"):
        stripped = line.strip(" \t\r")
        if not stripped or stripped.startswith("#") or len(stripped) > _LONGEST_LINE:
            continue
        if (found := _LINE.match(stripped)) is None:
            continue
        pattern = found[2] if found[1] is None else _ESCAPE.sub(_unescaped, found[1])
        # A negative pattern is none; that of a folder says nothing of the files in it.
        if not pattern or pattern.startswith(("!", "[attr]")) or pattern.endswith("/"):
            continue
        if len(pattern) > _LONGEST_PATTERN or len(_WILDCARD.findall(pattern)) > _MOST_WILDCARDS:
            continue
        stated = _values(_valid(stripped[found.end() :]).split())
        if values := {name: value for name, value in stated.items() if name in names}:
            yield AttributeRule(_matcher(pattern), values)


def _valid(text: str) -> str:
    """As text that can be written: reasons and encodings quote values. Patterns stay as they are,
    for names that are not UTF-8.
    """
    return text if text.isascii() else text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _unescaped(found: re.Match[str]) -> str:
    what = found[1]
    if len(what) == 1:
        return _ESCAPES.get(what, what)
    return bytes([int(what, 8) & 0xFF]).decode("utf-8", "surrogateescape")


def _values(words: list[str]) -> dict[str, Value | None]:
    found: dict[str, Value | None] = {}
    for word in words:
        name, equals, value = word.partition("=")
        match word[0]:
            case "-":
                found[word[1:]] = False
            case "!":
                found[word[1:]] = None
            case _ if name == "binary" and not equals:
                found |= _BINARY
            case _:
                found[name] = value if equals else True
    return found


def _matcher(pattern: str) -> Callable[[str, str], bool]:
    """A pattern without a slash is one of the file's name alone."""
    if "/" not in pattern:
        if _LITERAL.fullmatch(pattern):
            wanted = wildmatch.encode_path(pattern.removeprefix("*"))
            if pattern.startswith("*"):
                return lambda _, name: name.endswith(wanted)
            return lambda _, name: name == wanted
        of_name = wildmatch.compile_pattern(pattern).fullmatch
        return lambda _, name: of_name(name) is not None
    of_path = wildmatch.compile_pattern(pattern).fullmatch
    return lambda path, _: of_path(path) is not None


BINARY = "is binary, as .gitattributes says"


def find_attribute_flaw(values: Mapping[str, Value]) -> str:
    if why := find_storage_flaw(values):
        return why
    for name, what in ((GENERATED, "generated"), (VENDORED, "vendored")):
        if is_set(values.get(name)):
            return f"is {what}, as .gitattributes says"
    return ""


def find_storage_flaw(values: Mapping[str, Value]) -> str:
    """Return why attributes make a file something else than text."""
    if not values:
        return ""
    if (driver := values.get(FILTER, False)) is not False:
        if driver == "lfs":
            return "is kept in Git LFS"
        return (
            f"has the filter {driver}: what lies in git is not what is read" if driver is not True else "has a filter"
        )
    return BINARY if is_binary(values) else ""


def is_binary(values: Mapping[str, Value]) -> bool:
    """Return True if attributes make a file binary."""
    return values.get(TEXT) is False and values.get(DIFF) is False


def is_set(value: Value | None) -> bool:
    return value is not None and value not in (False, "false")


def is_handwritten(values: Mapping[str, Value]) -> bool:
    """Whether attributes say that nothing generated it; then no rule here guesses otherwise."""
    return bool(values) and values.get(GENERATED, True) in (False, "false")


def list_relevant_names(sources: Sequence[SourceSettings]) -> list[str]:
    """All that matters to these sources, and some that none of them has."""
    return [*dict.fromkeys(each for source in sources for each in build_included(source)), PATHSPEC]
