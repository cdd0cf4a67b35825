"""The types of a project's documents, and what each requires of a document's front matter."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from typing import Any, Literal, get_args

from vmrag_link import extras, terminal_text
from vmrag_link.errors import FilterInvalid
from vmrag_link.models import Record, encode_canonical_json, parse_user_json
from vmrag_link.retrieval.filters import compile_pattern
from vmrag_link.yaml_tree import YamlRefused, convert_to_plain, parse_document

Level = Literal["standard", "important", "critical"]
LEVELS: tuple[Level, ...] = get_args(Level)
"""How much a document counts, from the least."""

MAX_SCHEMA_BYTES = 1 << 18
MOST_ERRORS = 20
_MOST_STEPS = 10_000
"""How often a part of a schema is applied to a part of one document; a few nested ones grow without
bounds. So many took up to 0.6 s on two busy cores.
"""

_SIGNIFICANCE = ("architectural", "behavioral", "performance", "correctness", "convention", "integration")
_DATE = r"[0-9]{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12][0-9]|3[01])"
_REQUIRED = ("doc_type", "title", "date", "summary", "significance")


class DocType(Record, frozen=True):
    """`schema`: canonical JSON of a JSON Schema for the front matter, empty for none; `shown`: what
    it is called. `folder` is relative to that of the documents.
    """

    name: str
    description: str
    folder: str
    schema: str = ""
    shown: str = "built-in"
    custom: bool = False


BUILT_IN = (
    DocType("problem", "Problems and their solutions", "problems"),
    DocType("insight", "Insights into the product and its domain", "insights"),
    DocType("codebase", "How the code is built, and why", "codebase"),
    DocType("tool", "Tools and libraries, and how they are used here", "tools"),
    DocType("style", "Conventions and preferences", "styles"),
)


class SchemaUnusable(ValueError):
    """The message completes a sentence that begins with the schema's file."""


def read_schema(text: str, *, is_json: bool) -> str:
    """Canonical JSON of a schema in JSON or YAML.

    Raises `SchemaUnusable`, and `IndexExtraMissing` where jsonschema is not installed.
    """
    _require_library()
    from jsonschema import SchemaError

    try:
        root = None if is_json else parse_document(text)
        found = parse_user_json(text) if is_json else convert_to_plain(root) if root else None
    except YamlRefused as error:
        raise SchemaUnusable(f"line {error.line} {error.reason}") from None
    except ValueError as error:
        raise SchemaUnusable(_shortened(str(error))) from None
    if not isinstance(found, dict):
        raise SchemaUnusable("holds no JSON Schema")
    written = encode_canonical_json(found)
    try:
        _validator(written).check_schema(found)
    except SchemaUnusable:
        raise
    except (SchemaError, RecursionError, ValueError, ArithmeticError) as error:
        raise SchemaUnusable(f"is no JSON Schema: {_shortened(str(error).partition(chr(10))[0])}") from None
    return written


def find_flaws(front_matter: Mapping[str, Any], doc_type: DocType, *, strict: bool) -> list[str]:
    """What is wrong with a document's front matter, each a sentence; `strict`: whether all of the
    usual keys are wanted.
    """
    found = list(_usual_flaws(front_matter, strict=strict))
    return (found + list(_schema_flaws(front_matter, doc_type.schema)))[:MOST_ERRORS]


def _usual_flaws(front_matter: Mapping[str, Any], *, strict: bool) -> Iterator[str]:
    level = front_matter.get("promotion_level")
    if level is not None and level not in LEVELS:
        yield f"promotion_level is {', '.join(LEVELS[:-1])} or {LEVELS[-1]}, not {_value_text(level)}"
    if not strict:
        return
    for key in _REQUIRED:
        value = front_matter.get(key)
        if not isinstance(value, str) or not value.strip():
            yield f"{key} is missing" if value in (None, "") else f"{key} is no text"
    date, significance = front_matter.get("date"), front_matter.get("significance")
    if isinstance(date, str) and date.strip() and not re.fullmatch(_DATE, date):
        yield f"date is YYYY-MM-DD, not {_value_text(date)}"
    if isinstance(significance, str) and significance.strip() and significance not in _SIGNIFICANCE:
        yield f"significance is one of {', '.join(_SIGNIFICANCE)}, not {_value_text(significance)}"


def _schema_flaws(front_matter: Mapping[str, Any], schema: str) -> Iterator[str]:
    if not schema:
        return
    _require_library()
    from referencing.exceptions import Unresolvable

    try:
        whole = _validator(schema).evolve()
        for number, error in enumerate(whole.iter_errors(dict(front_matter))):
            if number == MOST_ERRORS:
                return
            where = ".".join(map(str, error.absolute_path))
            yield f"{where}: {_shortened(error.message)}" if where else _shortened(error.message)
    except (RecursionError, Unresolvable, ValueError, ArithmeticError) as error:
        yield f"its schema cannot be applied: {_shortened(str(error)) or 'it refers to itself'}"


def _require_library() -> None:
    if find_spec("jsonschema") is None:
        raise extras.missing_extra_error("mcp", "JSON Schemas of documents need jsonschema, which is not installed.")


def _validator(schema: str) -> Any:
    """Of a schema that may be a stranger's: nothing is fetched, patterns are linear, and steps are
    counted.

    The library comes by `evolve` to every part that it applies, in whatever keyword it stands.
    There a part with a `$schema` of its own would get the library's validator in place of this one,
    and patternProperties are searched for by `re`, also where another keyword looks at them.
    Raises `SchemaUnusable`.
    """
    from jsonschema import Draft202012Validator, validators
    from referencing import Registry

    found = parse_user_json(schema)
    if not isinstance(found.get("$schema", ""), str):
        raise SchemaUnusable("is no JSON Schema: its $schema is no text")
    try:
        kind = validators.validator_for(found, default=Draft202012Validator)
    except ValueError as error:  # no URL
        raise SchemaUnusable(f"is no JSON Schema: {_shortened(str(error))}") from None
    steps = itertools.count(1)
    hardened: Any = validators.extend(kind, {"pattern": _pattern})
    evolve = hardened.evolve

    def bounded(self: Any, **changes: Any) -> Any:
        part = changes.get("schema", self.schema)
        if next(steps) > _MOST_STEPS:
            raise SchemaUnusable(f"it takes more than {_MOST_STEPS:,} steps")
        if isinstance(part, dict) and "$schema" in part:
            if validators.validator_for(part, default=kind) is not kind:
                raise SchemaUnusable(f"a part of it has another $schema: {_value_text(part['$schema'])}")
            part = {name: value for name, value in part.items() if name != "$schema"}
        if isinstance(part, dict) and "patternProperties" in part:
            raise SchemaUnusable("it has patternProperties, which are not applied here")
        return evolve(self, **changes | {"schema": part})

    hardened.evolve = bounded
    return hardened(found, registry=Registry())


def _pattern(_validator: Any, pattern: Any, instance: Any, _schema: Any) -> Iterator[Any]:
    from jsonschema import ValidationError

    if not isinstance(instance, str):
        return
    try:
        found = compile_pattern(pattern)
    except FilterInvalid as error:
        raise SchemaUnusable(error.message) from None
    if not found(instance):
        yield ValidationError(f"{_value_text(instance)} does not match {_value_text(pattern)}")


def _value_text(value: Any) -> str:
    return _shortened(repr(value))


def _shortened(text: str) -> str:
    return terminal_text.escape_line(text)[:200]
