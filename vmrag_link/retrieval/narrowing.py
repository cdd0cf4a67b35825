"""What a query is narrowed to: paths, languages, symbols and kinds, as people type them:
`path:src/auth lang:python symbol:Session kind:code`. `narrowed` finds the rows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from itertools import chain
from typing import Literal

from vmrag_link.errors import UsageInvalid, shortened
from vmrag_link.models import Record

LONGEST_VALUE = 1000
"""Characters."""

MOST_VALUES = 200
"""Of one field: each document is compared with all of them."""

Field = Literal["path", "lang", "symbol", "kind"]

_FIELDS = {"path": "paths", "lang": "languages", "symbol": "symbols", "kind": "kinds"}
"""Of a `Narrowing`, by prefix."""

_TOKEN = re.compile(
    r"""(?P<field>path|lang|symbol|kind):(?:"(?P<quoted>[^"]+)"(?!\S)|(?P<plain>[^\s":]\S*))"""
    r"""|"[^"]*"\S*"""  # these are words, whatever they look like
    r"""|\S+"""
)
_SEPARATOR = r"::|->|[.#\\]"
_GLOB = r"[*?]"
_HALF_PAIR = "[\ud800-\udfff]"

_EXAMPLES: dict[Field, str] = {
    "path": "path:src/auth, path:*.py",
    "lang": "lang:python",
    "symbol": "symbol:Session.refresh",
    "kind": "kind:code, kind:class",
}


class Narrowing(Record, frozen=True):
    """Several values of one field: any of them; the fields together: all. Made by `narrowing`,
    which knows what may stand here.

    `paths`: a part of the path, from the top with a `/` before it, or with `*`, `?` and `**/` the
    whole path from any folder on. `languages`: of `LANGUAGES`. `symbols`: dotted, the last parts of
    a symbol's name or of one around it; `*` within a part. `kinds`: of `KINDS`.
    """

    paths: tuple[str, ...] = ()
    languages: tuple[str, ...] = ()
    symbols: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()

    @property
    def display_text(self) -> str:
        """As it is typed, shortened."""
        given = [(prefix, each) for prefix, name in _FIELDS.items() for each in getattr(self, name)]
        typed = (f'{prefix}:"{each}"' if re.search(r"\s", each) else f"{prefix}:{each}" for prefix, each in given)
        return shortened(" ".join(typed))

    @property
    def words(self) -> str:
        """What to rank by where nothing else is asked: names of symbols stay whole."""
        named = [*self.paths] if self.symbols or self.paths else [*self.kinds, *self.languages]
        names = [".".join(re.findall(r"\w+", symbol)) for symbol in self.symbols]
        return " ".join(filter(None, [*names, *re.findall(r"\w+", " ".join(named))]))


def make_narrowing(
    *, paths: Iterable[str] = (), languages: Iterable[str] = (), symbols: Iterable[str] = (), kinds: Iterable[str] = ()
) -> Narrowing | None:
    """None if nothing is asked for.

    Raises `UsageInvalid` for a language or kind that there is not, and for an empty value.
    """
    found = Narrowing(
        paths=_each("path", paths, lambda path: path.removeprefix("./")),
        languages=_each("lang", languages, _name_language),
        symbols=_each("symbol", symbols, lambda symbol: normalize_symbol(symbol.removesuffix("()"))),
        kinds=_each("kind", kinds, _name_kind),
    )
    return None if found == Narrowing() else found


def _name_language(given: str) -> str:
    from vmrag_link.retrieval.narrowing_values import parse_language  # which loads all grammars' rules

    return parse_language(given)


def _name_kind(given: str) -> str:
    from vmrag_link.retrieval.narrowing_values import parse_kind

    return parse_kind(given)


def combine_narrowings(*some: Narrowing | None) -> Narrowing | None:
    """The values of all of them."""
    there = [each for each in some if each]
    return make_narrowing(**{name: [*chain(*(getattr(each, name) for each in there))] for name in _FIELDS.values()})


def parse_query(text: str) -> tuple[str, Narrowing | None]:
    """The words of a query, and what it is narrowed to by prefixes; in quotes all are words.

    Where no words are left, they are those of the values. Raises as `narrowing`.
    """
    given: dict[str, list[str]] = {name: [] for name in _FIELDS.values()}
    words, at = [], 0
    for token in _TOKEN.finditer(text):
        if field := token["field"]:
            given[_FIELDS[field]].append(token["quoted"] or token["plain"])
            words.append(text[at : token.start()])
            at = token.end()
    if not at:
        return text, None
    try:
        found = make_narrowing(**given)
    except UsageInvalid as error:
        error.hint += "   (in quotes it is words)"
        raise
    rest = " ".join(filter(None, (word.strip() for word in (*words, text[at:]))))
    return rest or (found.words if found else ""), found


def normalize_symbol(symbol: str) -> str:
    """`Session::refresh` and `Session#refresh` are `Session.refresh`."""
    if symbol.replace(".", "").isidentifier() and ".." not in symbol:
        return symbol.strip(".")
    return ".".join(filter(None, re.split(_SEPARATOR, symbol)))


def has_capitals(name: str) -> bool:
    """Whether case counts."""
    return name != name.lower()


def compile_symbol(name: str, *, within: bool) -> re.Pattern[str]:
    """For `search` in a dotted symbol: whether it ends in this name. `within`: or lies in one that
    does.
    """
    parts = r"\.".join(_wild(re.escape(part), r"[^.]", r"(?=\.|\Z)") for part in name.split("."))
    end = r"(?=\.|\Z)" if within else r"\Z"
    return re.compile(rf"(?:\A|\.){parts}{end}", re.DOTALL if has_capitals(name) else re.DOTALL | re.IGNORECASE)


def compile_path(wanted: str) -> Callable[[str], bool]:
    """Whether a path is meant."""
    if re.search(_GLOB, wanted):
        pattern = _glob(wanted)
        return lambda path: pattern.fullmatch(path.removeprefix("/")) is not None
    if wanted.startswith("/"):
        return lambda path: path.removeprefix("/").startswith(wanted[1:])
    return lambda path: wanted in path


def _glob(wanted: str) -> re.Pattern[str]:
    """A part that ends with `/` is a folder, with all in it."""
    given = f"{wanted}**" if wanted.endswith("/") else wanted
    parts = given.removeprefix("/").split("/") if given.startswith("/") else ["**", *given.split("/")]
    groups: list[list[str]] = [[]]
    for part in parts:
        if part == "**":
            groups.append([])
        else:
            groups[-1].append(_wild(re.escape(part).replace(r"\?", "[^/]"), "[^/]", r"(?=/|\Z)"))
    first, *others = groups
    if not others:
        return re.compile("/".join(first), re.DOTALL)
    *between, last = others
    found = "".join(f"{part}/" for part in first)
    for group in between:
        if group:  # at the first folder where it fits: no time is lost on others
            found += "(?>(?:[^/]+/)*?" + "".join(f"{part}/" for part in group) + ")"
    return re.compile(found + (r"(?:[^/]+/)*" + "/".join(last) if last else ".+"), re.DOTALL)


def _wild(escaped: str, character: str, end: str) -> str:
    """A regular expression of an escaped text with `*`, which takes no exponential time: a `*` is
    not tried again at a later place, but for the last one, which reaches to the end.
    """
    first, *others = re.split(r"(?:\\\*)+", escaped)
    if not others:
        return first
    *between, last = others
    return first + "".join(f"(?>{character}*?{piece})" for piece in between) + f"{character}*{last}{end}"


def _each(field: Field, values: Iterable[str], normal: Callable[[str], str]) -> tuple[str, ...]:
    found = []
    for given in values:
        legal = given.strip() and len(given) <= LONGEST_VALUE and not re.search(_HALF_PAIR, given)
        value = normal(given.strip()) if legal else ""
        if not value:
            raise UsageInvalid(
                f"{shortened(given)!r} is no value of {field!r}.",
                hint=f"For example {_EXAMPLES[field]}",
                parameter=field,
            )
        found.append(value)
    if len(some := tuple(dict.fromkeys(found))) > MOST_VALUES:
        raise UsageInvalid(
            f"A query takes {MOST_VALUES} values of {field!r}, not {len(some):,}.",
            hint="A folder or a pattern says many.",
            parameter=field,
        )
    return some
