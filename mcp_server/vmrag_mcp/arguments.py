"""The arguments of tools: declared by annotations, listed as JSON Schema, parsed for the function.

A parameter is a keyword of the function, annotated `Annotated[type, Given(...)]`. `read_parameters`
reads these declarations, `Parameter.build_schema` describes one for clients, and `parse_arguments`
returns the keywords for a call. A parameter can also be a field of the record that an operation
takes (`fields_as_keywords`), annotated with msgspec's `Meta`, whose `extra` holds the other fields
of `Given`.

Clients were written for several servers, so this module accepts more than the schema: JSON as text,
numbers and booleans as text, one string in place of a list of strings, and aliases. Only this
module checks arguments: the SDK's models require an object, and the SDK's server does not apply the
schema.
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

_NUMBER_LIMIT = 2**63
"""Numbers, without their signs, are smaller than this one."""

_MAX_NUMBER_CHARACTERS = 29
"""Maximum length of a number as text. Longer texts are never valid numbers."""

_MAX_OBJECT_CHARACTERS = 1 << 20
"""Maximum length of all texts in an object, or of the object as JSON text."""

_MAX_UNKNOWN_NAMES = 10
"""Maximum number of unknown parameters that an error names."""


class Given(Record, frozen=True):
    """Properties of a parameter that its type does not express."""

    about: str = ""
    """Description for clients."""
    low: int | None = None
    """Smallest number."""
    high: int | None = None
    """Largest number. A larger number is refused, or lowered to this number if `clamped`."""
    clamped: bool = False
    unset: int | None = None
    """A number outside these bounds that some clients send in place of no number."""
    min_items: int = 0
    """Minimum number of elements of a list."""
    max_items: int = 0
    """Maximum number of texts of a list. All texts together have at most `longest` characters."""
    wire: str = ""
    """Name for clients, if Python does not allow it as a keyword."""
    aliases: tuple[str, ...] = ()
    """Other accepted names. The schema does not list them."""
    spelled: Mapping[str, str] = {}
    """Other accepted spellings of values, and the values that they mean."""
    blank: bool = False
    """Accept an empty text, because the operation has a better error for it."""
    full: bool = False
    """Refuse empty elements of a list."""
    choices: tuple[str, ...] = ()
    """Values of a text, or of each text in a list, that the schema lists."""
    read: Callable[[str], str] | None = None
    """Function that converts any spelling to one of `choices`, or raises `UsageInvalid`."""
    longest: int = 0
    """Maximum number of characters of a text, of each text in a list, or of all texts in an object.
    0: the default of the kind.
    """
    ref: bool = False
    """Git resolves the text as a ref."""
    address: bool = False
    """The text is the address of a host, so it must not contain a user name or a password."""
    omitted: Any = msgspec.UNSET
    """Value for the function if the client sends none, if it differs from the default in the
    schema.
    """


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
    """A parameter of a tool."""

    keyword: str
    kind: Literal["string", "integer", "number", "boolean", "object", "array"]
    """Its type in JSON."""
    item_kind: Literal["", "string", "object", "array"]
    """The type of a list's elements in JSON."""
    nullable_items: bool
    """Elements of a list can be null."""
    choices: tuple[str, ...]
    """The values of a text, or of each text in a list."""
    required: bool
    default: Any
    given: Given
    record: type[msgspec.Struct] | None
    """Type of the objects in a list."""

    @property
    def name(self) -> str:
        return self.given.wire or self.keyword

    @property
    def longest(self) -> int:
        return self.given.longest or (
            _MAX_OBJECT_CHARACTERS if "object" in (self.kind, self.item_kind) else LONGEST_NAME
        )

    @property
    def longest_json(self) -> int:
        """Maximum number of characters of an object or a list as JSON text."""
        return self.longest if self.kind == "object" else LONGEST_TEXT

    # -- for clients

    def build_schema(self) -> dict[str, Any]:
        """Return a JSON Schema with all limits. Clients get a shorter one (`options`)."""
        schema: dict[str, Any] = self._build_list_schema() if self.kind == "array" else {"type": self.kind}
        if self.kind in ("object", "array"):
            schema = {"anyOf": [schema, {"type": "string", "maxLength": self.longest_json}]}
        if self.kind == "string":
            schema |= {"enum": list(self.choices)} if self.choices else {"maxLength": self.longest}
        if self.given.low is not None:
            schema["minimum"] = self.given.low if self.given.unset is None else self.given.unset
        if self.given.high is not None:
            schema["maximum"] = self.given.high
        if not self.required and self.default not in (None, "", [], {}):
            schema["default"] = self.default
        if self.given.about:
            schema["description"] = self.given.about
        return schema

    def _build_list_schema(self) -> dict[str, Any]:
        limits = {"minItems": self.given.min_items, "maxItems": self.given.max_items}
        element: dict[str, Any] = {"type": self.item_kind}
        if self.item_kind == "array":
            element["items"] = {"type": "number"}
        if self.choices:
            element["enum"] = list(self.choices)
        elif self.item_kind == "string":
            element["maxLength"] = self.longest
        if self.nullable_items:
            element = {"anyOf": [element, {"type": "null"}]}
        return {"type": "array", "items": element} | {name: number for name, number in limits.items() if number}

    # -- from clients

    def parse_value(self, value: Any, warn: Warn) -> Any:
        """Return the value for the function. Raises `UsageInvalid` and `JsonInvalid`."""
        match self.kind:
            case "string":
                return self._parse_text(value, self.name)
            case "integer" | "number":
                return self._parse_number(value, warn)
            case "boolean":
                return self._parse_boolean(value)
            case "object":
                members = self._parse_json(value) if isinstance(value, str) else value
                if not isinstance(members, dict):
                    raise self._build_refusal(value, "an object", can_be_json=True)
                _require_length(_count_characters(members), self.name, self.longest, self.name)
                return members
            case "array":
                return self._parse_list(value)

    def is_absent(self, value: Any) -> bool:
        """Return whether a value means "no value": null, an empty text, or `Given.unset`."""
        if value == "":
            return not (self.required and self.given.blank)
        return value is None or (self.given.unset is not None and _parse_float(value) == self.given.unset)

    def _parse_text(self, value: Any, label: str) -> str:
        """Return the text. `label` names the value in errors, such as `ids[2]`."""
        if not isinstance(value, str):
            raise self._build_refusal(value, "a text", label=label)
        require_text(value, label, longest=self.longest, ref=self.given.ref, parameter=self.name)
        if self.given.address and hosts.has_user(value):
            raise AddressWithCredentials(
                f"{self.name} contains a user name or a password, which an agent must not send.",
                hint=f"remove the part of {self.name} before the @",
                parameter=self.name,
            )
        text: str = self.given.spelled.get(value, value)
        if self.given.read:
            self._require_storable(text, label)
            return self.given.read(text)
        if self.choices and text not in self.choices and text not in self.given.spelled.values():
            raise self._build_refusal(value, f"one of {', '.join(self.choices)}", label=label)
        self._require_storable(text, label)
        return text

    def _parse_number(self, value: Any, warn: Warn) -> int | float:
        number = _parse_integer(value) if self.kind == "integer" else _parse_float(value)
        if number is None:
            raise self._build_refusal(value, "a whole number" if self.kind == "integer" else "a number")
        low, high = self.given.low, self.given.high
        if high is not None and number > high and self.given.clamped:
            warn("IGNORED_SETTING", f"{self.name} can be at most {high}; used {high} instead of {number}.")
            return high
        if (low is not None and number < low) or (high is not None and number > high) or abs(number) >= _NUMBER_LIMIT:
            bounds = f"at least {low}" if high is None else f"{low} to {high}"
            raise UsageInvalid(
                f"{self.name} must be {bounds}, not {number}.",
                parameter=self.name,
                value=number if abs(number) < _NUMBER_LIMIT else str(number),
                minimum=low,
                maximum=high,
            )
        return number

    def _parse_boolean(self, value: Any) -> bool:
        booleans = {"true": True, "false": False}
        if isinstance(value, str) and value.strip().lower() in booleans:
            return booleans[value.strip().lower()]
        if not isinstance(value, bool):
            raise self._build_refusal(value, "true or false")
        return value

    def _parse_list(self, value: Any) -> list[Any]:
        elements = value
        if isinstance(value, str):
            elements = self._parse_text_list(value) if self.item_kind == "string" else self._parse_json(value)
        if not isinstance(elements, list):
            raise self._build_refusal(value, "a list", can_be_json=True)
        elements = [
            element if element is None and self.nullable_items else self._parse_element(element, index)
            for index, element in enumerate(elements)
        ]
        self._require_list_size(elements)
        return elements

    def _require_list_size(self, elements: list[Any]) -> None:
        """Raise `UsageInvalid` for too many elements or characters, or too few elements."""
        max_items = self.given.max_items
        if max_items and len(elements) > max_items:
            raise UsageInvalid(
                f"{self.name} has {len(elements):,} elements; at most {max_items:,} are accepted.",
                hint=f"call the tool again for the rest of {self.name}",
                parameter=self.name,
                value=len(elements),
                maximum=max_items,
            )
        if self.item_kind == "string":
            longest = self.longest if max_items else self.longest_json
            _require_length(_count_characters(elements), self.name, longest, self.name)
        if len(elements) < self.given.min_items:
            raise UsageInvalid(
                f"{self.name} needs at least {self.given.min_items} element.", parameter=self.name, value=elements
            )

    def _parse_text_list(self, text: str) -> Any:
        """Return the JSON list that a text contains, or else a list of this one text."""
        _require_length(len(text), self.name, self.longest_json, self.name)
        try:
            parsed = parse_user_json(text)
        except ValueError:
            return [text]
        return parsed if isinstance(parsed, list) else [text]

    def _parse_element(self, element: Any, index: int) -> Any:
        label = f"{self.name}[{index}]"
        if self.item_kind == "string":
            if element == "" and self.given.full:
                raise self._build_refusal(element, "a text that is not empty", label=label)
            return self._parse_text(element, label)
        if self.item_kind == "object":
            if not isinstance(element, dict):
                raise self._build_refusal(element, "an object", label=label)
            _require_length(_count_characters(element), label, self.longest, self.name)
        if self.record:
            try:
                return msgspec.convert(element, self.record)
            except msgspec.ValidationError as error:
                raise UsageInvalid(f"{label} cannot be used: {error}.", parameter=self.name) from None
        if self.item_kind == "array" and not (isinstance(element, list) and all(map(_is_number, element))):
            raise self._build_refusal(element, "a list of numbers", label=label)
        return element

    def _parse_json(self, text: str) -> Any:
        _require_length(len(text), self.name, self.longest_json, self.name)
        try:
            return parse_user_json(text)
        except ValueError as error:
            raise JsonInvalid(f"{self.name} {error}.", parameter=self.name) from None

    def _require_storable(self, text: str, label: str) -> None:
        """Refuse half a surrogate pair, which is not a character, and NUL, which no database stores
        exactly.
        """
        index = text.find("\0")
        problem = "a NUL"
        if index < 0 and not text.isascii():
            try:
                text.encode()
            except UnicodeEncodeError as error:
                index, problem = error.start, "half of a surrogate pair"
        if index >= 0:
            raise UsageInvalid(
                f"{label} contains {problem} at character {index + 1}, which cannot be stored.",
                hint="remove that character",
                parameter=self.name,
                character=index + 1,
            )

    def _build_refusal(
        self, value: Any, expected: str, *, label: str = "", can_be_json: bool = False
    ) -> UsageInvalid | JsonInvalid:
        """Return the error for a value of a wrong type, or text that is JSON of a wrong type."""
        shown_value = shortened(repr(value))
        return (JsonInvalid if can_be_json and isinstance(value, str) else UsageInvalid)(
            f"{label or self.name} must be {expected}, not {shown_value}.",
            parameter=self.name,
            value=value if isinstance(value, int | float) or value is None else shown_value,
        )


def fields_as_keywords(function: Callable[..., R]) -> Callable[..., R]:
    """Turn `function(call, request, **keywords)` into the function of a tool.

    The parameters of the tool are the keywords, and then the fields of the request, which is a
    record.
    """
    hints = get_type_hints(function, include_extras=True)
    request = hints.pop("request")
    _, _, *own_parameters = inspect.signature(function).parameters.values()

    @wraps(function)
    def call_with_request(call: Any, **values: Any) -> R:
        keywords = {parameter.name: values.pop(parameter.name) for parameter in own_parameters}
        return function(call, request(**values), **keywords)

    call_with_request.__annotations__ = hints | get_type_hints(request, include_extras=True)
    fields = [
        inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=_find_default(field))
        for field in msgspec.structs.fields(request)
    ]
    call_with_request.__dict__["__signature__"] = inspect.Signature([*own_parameters, *fields])
    return call_with_request


def _find_default(field: msgspec.structs.FieldInfo) -> Any:
    """Return the default of a field, or `inspect.Parameter.empty`."""
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return inspect.Parameter.empty if field.required else field.default


@cache
def read_parameters(function: Callable[..., Any]) -> tuple[Parameter, ...]:
    """Return the parameters that the function of a tool declares: its keywords."""
    hints = get_type_hints(function, include_extras=True)
    return tuple(
        _read_parameter(hints[parameter.name], parameter)
        for parameter in inspect.signature(function).parameters.values()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    )


def _read_parameter(hint: Any, parameter: inspect.Parameter) -> Parameter:
    optional_type, *marks = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    given = next(filter(None, map(_read_mark, marks)), Given())
    value_type = _remove_none(optional_type)
    is_list = get_origin(value_type) in (list, Sequence)
    element: Any = get_args(value_type)[0] if is_list else None
    item_type = _remove_none(element)
    record = item_type if isinstance(item_type, type) and issubclass(item_type, msgspec.Struct) else None
    text_type = item_type if is_list else value_type
    choices = get_args(text_type) if get_origin(text_type) is Literal else given.choices
    required = parameter.default is parameter.empty
    default = None if required else parameter.default
    if isinstance(default, tuple):
        default = list(default)  # JSON has lists only
    return Parameter(
        keyword=parameter.name,
        kind=_find_kind(value_type),  # type: ignore[arg-type]
        item_kind=_find_kind(item_type) if is_list else "",  # type: ignore[arg-type]
        nullable_items=is_list and type(None) in get_args(element),
        choices=choices,
        required=required,
        default=default,
        given=given,
        record=record,
    )


def _read_mark(mark: Any) -> Given | None:
    """Return the properties in an annotation; None if it is for another library."""
    if isinstance(mark, msgspec.Meta):
        fields = {"longest": mark.max_length or 0, **(mark.extra or {})}
        return Given(mark.description or "", low=mark.ge, high=mark.le, **fields)  # type: ignore[arg-type]  # whole numbers
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


def _find_kind(hint: Any) -> str:
    """Return the type in JSON of a type of Python."""
    if get_origin(hint) is Literal:
        return "string"
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return "object"
    return _KINDS[get_origin(hint) or hint]


def _remove_none(hint: Any) -> Any:
    if get_origin(hint) in (Union, types.UnionType):
        return next(part for part in get_args(hint) if part is not type(None))
    return hint


def format_usage(tool: str, declared: Sequence[Parameter]) -> str:
    """Return the hint to call a tool: `call NAME with a (required), b`."""
    required_first = sorted(declared, key=lambda parameter: not parameter.required)
    names = [f"{parameter.name}{' (required)' if parameter.required else ''}" for parameter in required_first]
    return f"call {tool} with {', '.join(names)}" if names else f"call {tool} without parameters"


def parse_arguments(declared: Sequence[Parameter], arguments: Mapping[str, Any], warn: Warn) -> dict[str, Any]:
    """Return the keywords for the function of a tool.

    Raises `UsageInvalid` for an unknown, missing or illegal argument, and `JsonInvalid`.
    """
    by_name = {parameter.name: parameter for parameter in declared}
    aliases = {alias: parameter.name for parameter in declared for alias in parameter.given.aliases}
    unknown = sorted(name for name in arguments if name not in by_name and name not in aliases)
    if unknown:
        suggestion = nearest(unknown[0], by_name)
        raise UsageInvalid(
            f"no such parameter: {shortened(repr(unknown[0]))}."
            + (f" Did you mean {suggestion!r}?" if suggestion else ""),
            unknown=[shortened(name) for name in unknown[:_MAX_UNKNOWN_NAMES]],
            allowed=sorted(by_name),
        )
    values = {aliases.get(name, name): value for name, value in arguments.items() if name in aliases}
    values |= {name: value for name, value in arguments.items() if name in by_name}
    keywords = {}
    for parameter in declared:
        value = values.get(parameter.name)
        if not parameter.is_absent(value):
            keywords[parameter.keyword] = parameter.parse_value(value, warn)
        elif parameter.required:
            problem = "is missing" if value is None else "is empty"
            raise UsageInvalid(f"the parameter {parameter.name!r} {problem}.", parameter=parameter.name)
        else:
            omitted = parameter.given.omitted
            keywords[parameter.keyword] = parameter.default if omitted is msgspec.UNSET else omitted
    return keywords


def require_text(text: str, label: str, *, longest: int = LONGEST_NAME, ref: bool = False, parameter: str = "") -> None:
    """Raise `UsageInvalid` for a text that is too long, or for a `ref` that searches commit
    messages.
    """
    _require_length(len(text), label, longest, parameter or label)
    if ref and searches_messages(text):
        raise UsageInvalid(
            f"{label} cannot search commit messages: {shortened(repr(text))}.",
            hint="send a branch, a tag or a commit",
            parameter=parameter or label,
            value=shortened(text),
        )


def _require_length(characters: int, label: str, longest: int, parameter: str) -> None:
    if characters > longest:
        raise UsageInvalid(
            f"{label} has {characters:,} characters; at most {longest:,} are accepted.",
            hint=f"shorten {label}",
            parameter=parameter,
            value=characters,
            maximum=longest,
        )


def _count_characters(value: Any) -> int:
    """Return the number of characters of all texts in a JSON value, including keys."""
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


def _parse_integer(value: Any) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        try:
            return int(value.strip()) if len(value) <= _MAX_NUMBER_CHARACTERS else None
        except ValueError:
            return None
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    return value if isinstance(value, int) else None


def _parse_float(value: Any) -> int | float | None:
    if isinstance(value, str):
        try:
            value = float(value) if len(value) <= _MAX_NUMBER_CHARACTERS else None
        except ValueError:
            return None
    return value if _is_number(value) and math.isfinite(value) else None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
