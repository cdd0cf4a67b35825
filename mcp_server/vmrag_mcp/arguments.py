"""The arguments of tools: declared by annotations, listed as JSON Schema, parsed for the function.

A parameter is a keyword of the function, annotated `Annotated[type, Given(...)]`, or a field of the
record that an operation takes (`fields_as_keywords`), annotated with msgspec's `Meta`, whose
`extra` holds what else `Given` knows. Clients were written against several servers, so more is
taken than the schema says: JSON as text, numbers and booleans as text, one string for a list of
them, aliases. Nothing else checks arguments: the SDK's models require an object, and its server
does not apply the schema.
"""

from __future__ import annotations

import inspect
import math
import types
from collections.abc import Callable, Mapping, Sequence
from functools import cache, wraps
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from vmrag_link import hosts
from vmrag_link.errors import AddressWithCredentials, JsonInvalid, UsageInvalid, nearest, shortened
from vmrag_link.git.plumbing import searches_messages
from vmrag_link.models import LONGEST_NAME, LONGEST_QUERY, LONGEST_TEXT, Record, parse_user_json

Warn = Callable[[str, str], None]
"""Takes the code and the sentence of a warning."""

R = TypeVar("R")

_LARGEST = 2**63

_LONGEST_OBJECT = 1 << 20
"""Characters of all texts in an object, or of the object as JSON text."""

_MOST_UNKNOWN = 10
"""Unknown parameters that an error names."""


class Given(Record, frozen=True):
    """What an annotation says of a parameter beside its type.

    `low`, `high`: bounds of a number. A number above `high` is refused, or lowered to it if
    `clamped`. `unset`: a number out of these bounds by which clients say that they give none.
    `least`: the smallest number of elements of a list. `most`: the largest number of texts of a
    list, which have at most `longest` characters together. `wire`: the name that clients use, where
    Python has another use for it. `aliases`: names that are accepted as well; the schema does not
    list them. `spelled`: other spellings of a value that are accepted, and the value that they
    mean. `blank`: an empty text is accepted here, because the operation has a better error for it.
    `full`: no element of a list may be empty. `choices`: the values of a text, or of each text in
    a list, that clients are told of; `read` makes one of them of any spelling, or raises
    `UsageInvalid`. `longest`: the most characters of a text, of each text in a list, or of all
    texts in an object; 0: the default of the kind. `ref`: git resolves the text as a ref.
    `omitted`: what the function gets if a client gives nothing, where that is not the default that
    the schema names. `address`: a host is contacted, so the text must not hold a user name or a
    password.
    """

    about: str = ""
    low: int | None = None
    high: int | None = None
    clamped: bool = False
    unset: int | None = None
    least: int = 0
    most: int = 0
    wire: str = ""
    aliases: tuple[str, ...] = ()
    spelled: Mapping[str, str] = {}
    blank: bool = False
    full: bool = False
    choices: tuple[str, ...] = ()
    read: Callable[[str], str] | None = None
    longest: int = 0
    ref: bool = False
    address: bool = False
    omitted: Any = msgspec.UNSET


# -- parameters that several tools have

DOCUMENTS = "maximum number of documents"
RESULTS = "maximum number of results"
EXISTING_FILE = "path in the working directory or the repository"
METADATA = 'metadata such as {"team": "core"}'
IF_UNCOMMITTED = "uncommitted documents; reset_first discards them"

MESSAGE = Given("message of the commit", longest=LONGEST_QUERY)
FILTER = Given('metadata filter such as {"year": {"$gte": 2024}}')
TEXT_FILTER = Given('text filter such as {"$contains": "TLS"}')

QueryText = Annotated[str, Given("question or words to search for", longest=LONGEST_QUERY)]
LongText = Annotated[str, Given("text of the document", longest=LONGEST_TEXT)]
Message = Annotated[str, MESSAGE]
Ref = Annotated[str, Given("branch, tag or commit such as v1.0", ref=True)]
CollectionName = Annotated[str, Given("collection such as handbook")]
Offset = Annotated[int, Given("number of results to skip", low=0)]


class Parameter(Record, frozen=True):
    """A parameter of a tool.

    `kind`: its type in JSON. `items`: that of a list's elements, which may be null if `holes`.
    `choices` are the values of a text, or of each text in a list. `record`: what the objects of a
    list are read as.
    """

    keyword: str
    kind: Literal["string", "integer", "number", "boolean", "object", "array"]
    items: Literal["", "string", "object", "array"]
    holes: bool
    choices: tuple[str, ...]
    required: bool
    default: Any
    given: Given
    record: type[msgspec.Struct] | None

    @property
    def name(self) -> str:
        return self.given.wire or self.keyword

    @property
    def longest(self) -> int:
        of_objects = self.kind == "object" or self.items == "object"
        return self.given.longest or (_LONGEST_OBJECT if of_objects else LONGEST_NAME)

    @property
    def longest_json(self) -> int:
        """The most characters of the JSON text of an object or a list."""
        return self.longest if self.kind == "object" else LONGEST_TEXT

    # -- for clients

    def build_schema(self) -> dict[str, Any]:
        """Return a JSON Schema with all limits. Clients get a shorter one (`options`)."""
        shape: dict[str, Any] = self._list_schema() if self.kind == "array" else {"type": self.kind}
        if self.kind in ("object", "array"):
            shape = {"anyOf": [shape, {"type": "string", "maxLength": self.longest_json}]}
        if self.kind == "string":
            shape |= {"enum": list(self.choices)} if self.choices else {"maxLength": self.longest}
        if self.given.low is not None:
            shape["minimum"] = self.given.low if self.given.unset is None else self.given.unset
        if self.given.high is not None:
            shape["maximum"] = self.given.high
        if not self.required and self.default not in (None, "", [], {}):
            shape["default"] = self.default
        if self.given.about:
            shape["description"] = self.given.about
        return shape

    def _list_schema(self) -> dict[str, Any]:
        element: dict[str, Any] = {"type": self.items}
        if self.items == "array":
            element["items"] = {"type": "number"}
        if self.choices:
            element["enum"] = list(self.choices)
        elif self.items == "string":
            element["maxLength"] = self.longest
        element = {"anyOf": [element, {"type": "null"}]} if self.holes else element
        shape: dict[str, Any] = {"type": "array", "items": element}
        limits = {"minItems": self.given.least, "maxItems": self.given.most}
        return shape | {name: number for name, number in limits.items() if number}

    # -- from clients

    def parse_value(self, value: Any, warn: Warn) -> Any:
        """The value for the function. Raises `UsageInvalid`, `JsonInvalid`."""
        match self.kind:
            case "string":
                return self._text(value)
            case "integer" | "number":
                return self._number(value, warn)
            case "boolean":
                return self._truth(value)
            case "object":
                found = self._json(value) if isinstance(value, str) else value
                if not isinstance(found, dict):
                    raise self._refusal(value, "an object", json=value)
                _require_length(_count_characters(found), self.name, self.longest, self.name)
                return found
            case "array":
                return self._list(value)

    def _text(self, value: Any) -> str:
        return self._choice(value, self.name)

    def _choice(self, value: Any, where: str) -> str:
        """A text, or one of a list."""
        if not isinstance(value, str):
            raise self._refusal(value, "a text", where=where)
        require_text(value, where, longest=self.longest, ref=self.given.ref, parameter=self.name)
        if self.given.address and hosts.has_user(value):
            raise AddressWithCredentials(
                f"{self.name} holds a user name or a password, which an agent must not send.",
                hint=f"Leave out of {self.name} what precedes the @.",
                parameter=self.name,
            )
        text: str = self.given.spelled.get(value, value)
        if self.given.read:
            self._require_characters(text, where)
            return self.given.read(text)
        if self.choices and text not in self.choices and text not in self.given.spelled.values():
            raise self._refusal(value, f"one of {', '.join(self.choices)}", where=where)
        self._require_characters(text, where)
        return text

    def _number(self, value: Any, warn: Warn) -> int | float:
        number = _integer(value) if self.kind == "integer" else _real(value)
        if number is None:
            raise self._refusal(value, "a whole number" if self.kind == "integer" else "a number")
        low, high = self.given.low, self.given.high
        if high is not None and number > high and self.given.clamped:
            warn("IGNORED_SETTING", f"{self.name} is at most {high}; {number} was taken as that.")
            return high
        if (low is not None and number < low) or (high is not None and number > high) or abs(number) >= _LARGEST:
            bounds = f"at least {low}" if high is None else f"from {low} to {high}"
            raise UsageInvalid(
                f"{self.name} is {bounds}, not {number}.",
                parameter=self.name,
                value=number if abs(number) < _LARGEST else str(number),
                minimum=low,
                maximum=high,
            )
        return number

    def says_none(self, value: Any) -> bool:
        """Whether a client says with this number that it gives none."""
        return self.given.unset is not None and _real(value) == self.given.unset

    def _truth(self, value: Any) -> bool:
        known = {"true": True, "false": False}
        if isinstance(value, str) and value.strip().lower() in known:
            return known[value.strip().lower()]
        if not isinstance(value, bool):
            raise self._refusal(value, "true or false")
        return value

    def _list(self, value: Any) -> list[Any]:
        found = value
        if isinstance(value, str):
            found = self._text_list(value) if self.items == "string" else self._json(value)
        if not isinstance(found, list):
            raise self._refusal(value, "a list", json=value)
        found = [each if each is None and self.holes else self._element(each, at) for at, each in enumerate(found)]
        self._require_number(found)
        if len(found) < self.given.least:
            raise UsageInvalid(
                f"{self.name} needs at least {self.given.least} element.", parameter=self.name, value=found
            )
        return found

    def _require_number(self, elements: list[Any]) -> None:
        """Raise `UsageInvalid` for more texts, or longer ones together, than a list may have."""
        most = self.given.most
        if most and len(elements) > most:
            raise UsageInvalid(
                f"{self.name} has {len(elements):,} elements; at most {most:,} are accepted.",
                hint=f"Call the tool again for the rest of {self.name}.",
                parameter=self.name,
                value=len(elements),
                maximum=most,
            )
        if self.items == "string":
            longest = self.longest if most else self.longest_json
            _require_length(_count_characters(elements), self.name, longest, self.name)

    def _text_list(self, text: str) -> Any:
        """A text where texts are wanted is one of them, unless it is a JSON list."""
        _require_length(len(text), self.name, self.longest_json, self.name)
        try:
            found = parse_user_json(text)
        except ValueError:
            return [text]
        return found if isinstance(found, list) else [text]

    def _element(self, each: Any, at: int) -> Any:
        where = f"{self.name}[{at}]"
        if self.items == "string":
            if each == "" and self.given.full:
                raise self._refusal(each, "a text that is not empty", where=where)
            return self._choice(each, where)
        if self.items == "object" and not isinstance(each, dict):
            raise self._refusal(each, "an object", where=where)
        if self.items == "object":
            _require_length(_count_characters(each), where, self.longest, self.name)
        if self.record:
            try:
                return msgspec.convert(each, self.record)
            except msgspec.ValidationError as error:
                raise UsageInvalid(f"{where} cannot be used: {error}.", parameter=self.name) from None
        if self.items == "array" and not (isinstance(each, list) and all(map(_is_number, each))):
            raise self._refusal(each, "a list of numbers", where=where)
        return each

    def _json(self, text: str) -> Any:
        _require_length(len(text), self.name, self.longest_json, self.name)
        try:
            return parse_user_json(text)
        except ValueError as error:
            raise JsonInvalid(f"{self.name} {error}.", parameter=self.name) from None

    def _require_characters(self, text: str, where: str) -> None:
        """Half of a surrogate pair is no character, and no database stores a NUL exactly."""
        found = text.find("\0")
        what = "a NUL"
        if found < 0 and not text.isascii():
            try:
                text.encode()
            except UnicodeEncodeError as error:
                found, what = error.start, "half of a surrogate pair"
        if found >= 0:
            raise UsageInvalid(
                f"{where} holds {what} at character {found + 1}, which cannot be stored.",
                hint="Leave that character out.",
                parameter=self.name,
                character=found + 1,
            )

    def _refusal(self, value: Any, expected: str, *, where: str = "", json: Any = None) -> UsageInvalid | JsonInvalid:
        """`json`: what was given, where that may be JSON text of another kind."""
        given = shortened(repr(value))
        shown = value if isinstance(value, int | float) or value is None else given
        kind = JsonInvalid if isinstance(json, str) else UsageInvalid
        return kind(f"{where or self.name} must be {expected}, not {given}.", parameter=self.name, value=shown)


def fields_as_keywords(function: Callable[..., R]) -> Callable[..., R]:
    """Of a function of a call and a `request`: a tool whose parameters are the function's own
    keywords, and then the request's fields.
    """
    hints = get_type_hints(function, include_extras=True)
    request = hints.pop("request")
    _, _, *own = inspect.signature(function).parameters.values()

    @wraps(function)
    def called(call: Any, **given: Any) -> R:
        keywords = {each.name: given.pop(each.name) for each in own}
        return function(call, request(**given), **keywords)

    called.__annotations__ = hints | get_type_hints(request, include_extras=True)
    fields = [
        inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=_default(field))
        for field in msgspec.structs.fields(request)
    ]
    called.__dict__["__signature__"] = inspect.Signature([*own, *fields])
    return called


def _default(field: msgspec.structs.FieldInfo) -> Any:
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return inspect.Parameter.empty if field.required else field.default


@cache
def read_parameters(function: Callable[..., Any]) -> tuple[Parameter, ...]:
    """The parameters that a tool's function declares: its keywords."""
    hints = get_type_hints(function, include_extras=True)
    return tuple(
        _parameter(hints[parameter.name], parameter)
        for parameter in inspect.signature(function).parameters.values()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    )


def _parameter(hint: Any, found: inspect.Parameter) -> Parameter:
    bare, *marks = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    given = next(filter(None, map(_given, marks)), Given())
    base = _without_none(bare)
    items, holes, record = "", False, None
    choices: tuple[str, ...] = given.choices
    if get_origin(base) in (list, Sequence):
        element = get_args(base)[0]
        holes = type(None) in get_args(element)
        element = _without_none(element)
        choices = get_args(element) if get_origin(element) is Literal else choices
        record = element if isinstance(element, type) and issubclass(element, msgspec.Struct) else None
        items = "object" if record else "string" if choices else _KINDS[_plain(element)]
    elif get_origin(base) is Literal:
        choices = get_args(base)
    required = found.default is found.empty
    default = None if required else found.default
    if isinstance(default, tuple):
        default = list(default)  # as JSON has it
    return Parameter(
        found.name,
        "string" if get_origin(base) is Literal else _KINDS[_plain(base)],  # type: ignore[arg-type]
        items,  # type: ignore[arg-type]
        holes,
        choices,
        required,
        default,
        given,
        record,
    )


def _given(mark: Any) -> Given | None:
    if isinstance(mark, msgspec.Meta):
        more = {"longest": mark.max_length or 0, **(mark.extra or {})}
        return Given(mark.description or "", low=mark.ge, high=mark.le, **more)  # type: ignore[arg-type]  # whole numbers
    return mark if isinstance(mark, Given) else None


_KINDS = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    dict: "object",
    Mapping: "object",
    list: "array",
    Sequence: "array",
}


def _plain(hint: Any) -> Any:
    return get_origin(hint) or hint


def _without_none(hint: Any) -> Any:
    if get_origin(hint) in (Union, types.UnionType):
        return next(each for each in get_args(hint) if each is not type(None))
    return hint


def format_usage(tool: str, declared: Sequence[Parameter]) -> str:
    """Return what a tool accepts, in one line: `NAME accepts: a (required), b`."""
    names = [f"{row.name}{' (required)' if row.required else ''}" for row in sorted(declared, key=_is_optional)]
    return f"{tool} accepts: {', '.join(names)}" if names else f"{tool} accepts no parameters"


def _is_optional(parameter: Parameter) -> bool:
    return not parameter.required


def parse_arguments(declared: Sequence[Parameter], arguments: Mapping[str, Any], warn: Warn) -> dict[str, Any]:
    """The function's keywords.

    Raises `UsageInvalid` for an unknown, missing or illegal argument, and `JsonInvalid`.
    """
    by_name = {each.name: each for each in declared}
    aliases = {alias: each.name for each in declared for alias in each.given.aliases}
    unknown = sorted(name for name in arguments if name not in by_name and name not in aliases)
    if unknown:
        near = nearest(unknown[0], by_name)
        raise UsageInvalid(
            f"There is no parameter {shortened(repr(unknown[0]))}." + (f" Is it {near!r}?" if near else ""),
            unknown=[shortened(each) for each in unknown[:_MOST_UNKNOWN]],
            allowed=sorted(by_name),
        )
    sent = {aliases.get(name, name): value for name, value in arguments.items() if name in aliases}
    sent |= {name: value for name, value in arguments.items() if name in by_name}
    keywords = {}
    for each in declared:
        value = sent.get(each.name)
        absent = value is None or (value == "" and not (each.required and each.given.blank)) or each.says_none(value)
        if not absent:
            keywords[each.keyword] = each.parse_value(value, warn)
        elif each.required:
            why = "is missing" if value is None else "is empty"
            raise UsageInvalid(f"The parameter {each.name!r} {why}.", parameter=each.name)
        else:
            omitted = each.given.omitted
            keywords[each.keyword] = each.default if omitted is msgspec.UNSET else omitted
    return keywords


def require_text(text: str, where: str, *, longest: int = LONGEST_NAME, ref: bool = False, parameter: str = "") -> None:
    """Raise `UsageInvalid` for a text that is too long, and for a `ref` that searches messages."""
    _require_length(len(text), where, longest, parameter or where)
    if ref and searches_messages(text):
        raise UsageInvalid(
            f"{where} cannot search the messages of commits: {shortened(repr(text))}.",
            hint="Name a branch, a tag or a commit.",
            parameter=parameter or where,
            value=shortened(text),
        )


def _require_length(characters: int, where: str, longest: int, parameter: str) -> None:
    if characters > longest:
        raise UsageInvalid(
            f"{where} has {characters:,} characters; at most {longest:,} are accepted.",
            hint=f"Shorten {where}.",
            parameter=parameter,
            value=characters,
            maximum=longest,
        )


def _count_characters(value: Any) -> int:
    """The number of characters of all texts in a JSON value, keys included."""
    number, rest = 0, [value]
    while rest:
        match rest.pop():
            case str() as text:
                number += len(text)
            case dict() as members:
                rest += [*members.keys(), *members.values()]
            case list() as elements:
                rest += elements
    return number


def _integer(value: Any) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        try:
            return int(value.strip()) if len(value) < 30 else None  # noqa: PLR2004  no number that anything here counts
        except ValueError:
            return None
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    return value if isinstance(value, int) else None


def _real(value: Any) -> int | float | None:
    if isinstance(value, str):
        try:
            value = float(value) if len(value) < 30 else None  # noqa: PLR2004  as for whole numbers
        except ValueError:
            return None
    return value if _is_number(value) and math.isfinite(value) else None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
