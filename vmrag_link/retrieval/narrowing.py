"""The narrowing of a query to paths, languages, symbols and kinds.

People type it as `path:src/auth lang:python symbol:Session kind:code`. Options of commands and
arguments of tools have the same values. `narrowing_filter` finds the rows that match.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Literal

from vmrag_link import hints
from vmrag_link.errors import UsageInvalid, shortened
from vmrag_link.models import Record

MAX_VALUE_CHARS = 1000
"""Maximum number of characters of a value."""

MAX_VALUES = 200
"""Maximum number of values of one field. Each document is compared with all of them."""

Field = Literal["path", "lang", "symbol", "kind"]

_FIELD_NAMES = {"path": "paths", "lang": "languages", "symbol": "symbols", "kind": "kinds"}
"""Fields of a `Narrowing` by prefix."""

_TOKEN = re.compile(
    r"""(?P<field>path|lang|symbol|kind):(?:"(?P<quoted>[^"]+)"(?!\S)|(?P<plain>[^\s":]\S*))"""
    r"""|"[^"]*"\S*"""  # quoted words are never prefixes
    r"""|\S+"""
)
_SEPARATOR = r"::|->|[.#\\]"
_WILDCARD = r"[*?]"
_SURROGATE = "[\ud800-\udfff]"

_EXAMPLES: dict[Field, str] = {
    "path": "path:src/auth, path:*.py",
    "lang": "lang:python",
    "symbol": "symbol:Session.refresh",
    "kind": "kind:code, kind:class",
}


class Narrowing(Record, frozen=True):
    """The paths, languages, symbols and kinds to which a query is narrowed. Create it with
    `make_narrowing`, which checks the values.

    A document or symbol passes a field if it matches any of the values. It has to pass all fields.
    """

    paths: tuple[str, ...] = ()
    """A part of the path. With `/` at the beginning, the beginning of the path. With `*`, `?` or
    `**/`, the whole path from any folder on.
    """

    languages: tuple[str, ...] = ()
    """Values of `LANGUAGES`."""

    symbols: tuple[str, ...] = ()
    """Dotted: the last parts of the name of a symbol, or of a symbol around it. `*` matches within
    a part.
    """

    kinds: tuple[str, ...] = ()
    """Values of `KINDS`."""

    @property
    def display_text(self) -> str:
        """The narrowing as people type it, shortened."""
        given = [(prefix, value) for prefix, name in _FIELD_NAMES.items() for value in getattr(self, name)]
        typed = (f'{prefix}:"{value}"' if re.search(r"\s", value) else f"{prefix}:{value}" for prefix, value in given)
        return shortened(" ".join(typed))

    @property
    def words(self) -> str:
        """The words to rank by if the query has no other words. Names of symbols stay whole."""
        values = self.paths if self.symbols or self.paths else (*self.kinds, *self.languages)
        names = [".".join(re.findall(r"\w+", symbol)) for symbol in self.symbols]
        return " ".join(filter(None, [*names, *re.findall(r"\w+", " ".join(values))]))


def make_narrowing(
    *, paths: Iterable[str] = (), languages: Iterable[str] = (), symbols: Iterable[str] = (), kinds: Iterable[str] = ()
) -> Narrowing | None:
    """Return a checked narrowing, or None if there are no values.

    Raises `UsageInvalid` for an unknown language or kind, and for an empty value.
    """
    narrowing = Narrowing(
        paths=_check_values("path", paths, lambda path: path.removeprefix("./")),
        languages=_check_values("lang", languages, _parse_language),
        symbols=_check_values("symbol", symbols, lambda symbol: normalize_symbol(symbol.removesuffix("()"))),
        kinds=_check_values("kind", kinds, _parse_kind),
    )
    return None if narrowing == Narrowing() else narrowing


def _check_values(field: Field, values: Iterable[str], normalize: Callable[[str], str]) -> tuple[str, ...]:
    """Return the distinct normalized values of a field. Raises `UsageInvalid`."""
    checked = []
    for given in values:
        is_legal = given.strip() and len(given) <= MAX_VALUE_CHARS and not re.search(_SURROGATE, given)
        value = normalize(given.strip()) if is_legal else ""
        if not value:
            raise UsageInvalid(
                f"invalid value of {field!r}: {shortened(given)!r}.",
                hint=f"write it as in: {_EXAMPLES[field]}",
                parameter=field,
            )
        checked.append(value)
    distinct = tuple(dict.fromkeys(checked))
    if len(distinct) > MAX_VALUES:
        raise UsageInvalid(
            f"the query has {len(distinct):,} values of {field!r}, but the maximum is {MAX_VALUES}.",
            hint="use a folder or a pattern to match many values",
            parameter=field,
        )
    return distinct


def _parse_language(given: str) -> str:
    from vmrag_link.retrieval.narrowing_values import parse_language  # this loads the rules of all grammars

    return parse_language(given)


def _parse_kind(given: str) -> str:
    from vmrag_link.retrieval.narrowing_values import parse_kind

    return parse_kind(given)


def combine_narrowings(*narrowings: Narrowing | None) -> Narrowing | None:
    """Return a narrowing with the values of all of these. Raises `UsageInvalid` for too many
    values.
    """
    values: dict[str, list[str]] = {name: [] for name in _FIELD_NAMES.values()}
    for narrowing in filter(None, narrowings):
        for name in values:
            values[name] += getattr(narrowing, name)
    return make_narrowing(**values)


def parse_query(text: str) -> tuple[str, Narrowing | None]:
    """Return the words of a query, and the narrowing by its prefixes. Quoted text is always words.

    If the query has no words, the words of the narrowing are used. Raises `UsageInvalid` for
    invalid values.
    """
    values: dict[str, list[str]] = {name: [] for name in _FIELD_NAMES.values()}
    words = []
    end = 0
    for token in _TOKEN.finditer(text):
        field = token["field"]
        if field:
            values[_FIELD_NAMES[field]].append(token["quoted"] or token["plain"])
            words.append(text[end : token.start()])
            end = token.end()
    if not end:
        return text, None
    try:
        narrowing = make_narrowing(**values)
    except UsageInvalid as error:
        error.hint = hints.join_alternatives(error.hint, "write it in quotes to search for the words")
        raise
    query = " ".join(filter(None, (word.strip() for word in (*words, text[end:]))))
    return query or (narrowing.words if narrowing else ""), narrowing


def normalize_symbol(symbol: str) -> str:
    """Return a symbol with dots: `Session.refresh` for `Session::refresh` and `Session#refresh`."""
    if symbol.replace(".", "").isidentifier() and ".." not in symbol:
        return symbol.strip(".")
    return ".".join(filter(None, re.split(_SEPARATOR, symbol)))


def has_capitals(name: str) -> bool:
    """Return whether a name has capital letters, so that case matters."""
    return name != name.lower()


def compile_symbol(name: str, *, within: bool) -> re.Pattern[str]:
    """Return a pattern that finds dotted symbols that end in this name.

    `within`: it also finds symbols inside such symbols.
    """
    parts = r"\.".join(_convert_wildcards(re.escape(part), r"[^.]", r"(?=\.|\Z)") for part in name.split("."))
    end = r"(?=\.|\Z)" if within else r"\Z"
    return re.compile(rf"(?:\A|\.){parts}{end}", re.DOTALL if has_capitals(name) else re.DOTALL | re.IGNORECASE)


def compile_path(path: str) -> Callable[[str], bool]:
    """Return a function that tests whether a path matches."""
    if re.search(_WILDCARD, path):
        pattern = _compile_glob(path)
        return lambda candidate: pattern.fullmatch(candidate.removeprefix("/")) is not None
    if path.startswith("/"):
        return lambda candidate: candidate.removeprefix("/").startswith(path[1:])
    return lambda candidate: path in candidate


def _compile_glob(glob: str) -> re.Pattern[str]:
    """Return a pattern for a glob. A glob that ends with `/` matches everything in the folder."""
    pattern = f"{glob}**" if glob.endswith("/") else glob
    parts = pattern.removeprefix("/").split("/") if pattern.startswith("/") else ["**", *pattern.split("/")]
    groups: list[list[str]] = [[]]
    """Regular expressions of path parts, split at `**`."""
    for part in parts:
        if part == "**":
            groups.append([])
        else:
            groups[-1].append(_convert_wildcards(re.escape(part).replace(r"\?", "[^/]"), "[^/]", r"(?=/|\Z)"))
    first, *others = groups
    if not others:
        return re.compile("/".join(first), re.DOTALL)
    *between, last = others
    expression = "".join(f"{part}/" for part in first)
    for group in between:
        if group:  # atomic: only the first folder that fits is tried
            expression += "(?>(?:[^/]+/)*?" + "".join(f"{part}/" for part in group) + ")"
    expression += r"(?:[^/]+/)*" + "/".join(last) if last else ".+"
    return re.compile(expression, re.DOTALL)


def _convert_wildcards(escaped: str, character: str, end: str) -> str:
    """Return a regular expression for an escaped text with `*`. It takes no exponential time.

    `character`: the expression of a character that `*` matches. `end`: the expression that follows.
    A `*` is not tried again at a later position, except the last one, which reaches to the end.
    """
    first, *others = re.split(r"(?:\\\*)+", escaped)
    if not others:
        return first
    *between, last = others
    return first + "".join(f"(?>{character}*?{piece})" for piece in between) + f"{character}*{last}{end}"
