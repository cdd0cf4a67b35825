"""The types of a project's documents, and the requirements of each type for the front matter."""

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
"""Promotion levels, lowest first."""

MAX_SCHEMA_BYTES = 1 << 18
MAX_FLAWS = 20
_MAX_STEPS = 10_000
"""Maximum number of applications of a part of a schema to a part of one document. A few nested
parts can grow without limit. This number took up to 0.6 s on two busy cores.
"""

_SIGNIFICANCE = ("architectural", "behavioral", "performance", "correctness", "convention", "integration")
_DATE = r"[0-9]{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12][0-9]|3[01])"
_REQUIRED = ("doc_type", "title", "date", "summary", "significance")


class DocType(Record, frozen=True):
    """A type of documents.

    `schema` is the canonical JSON of a JSON Schema for the front matter, or empty; `shown` is its
    name. `folder` is relative to the folder of the documents.
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
    """A schema cannot be used.

    The message is the end of a sentence that begins with the schema's file.
    """


def read_schema(text: str, *, is_json: bool) -> str:
    """Return the canonical JSON of a schema in JSON or YAML.

    Raises `SchemaUnusable`, and `IndexExtraMissing` without jsonschema.
    """
    _require_library()
    from jsonschema import SchemaError

    try:
        if is_json:
            schema = parse_user_json(text)
        else:
            root = parse_document(text)
            schema = convert_to_plain(root) if root else None
    except YamlRefused as error:
        raise SchemaUnusable(f"line {error.line} {error.reason}") from None
    except ValueError as error:
        raise SchemaUnusable(_shorten_text(str(error))) from None
    if not isinstance(schema, dict):
        raise SchemaUnusable("holds no JSON Schema")
    written = encode_canonical_json(schema)
    try:
        _build_validator(written).check_schema(schema)
    except SchemaUnusable:
        raise
    except (SchemaError, RecursionError, ValueError, ArithmeticError) as error:
        raise SchemaUnusable(f"is not a JSON Schema: {_shorten_text(str(error).partition(chr(10))[0])}") from None
    return written


def find_flaws(front_matter: Mapping[str, Any], doc_type: DocType, *, strict: bool) -> list[str]:
    """Return sentences about problems of a document's front matter.

    `strict` requires all of the usual keys.
    """
    flaws = list(_find_usual_flaws(front_matter, strict=strict))
    return (flaws + list(_find_schema_flaws(front_matter, doc_type.schema)))[:MAX_FLAWS]


def _find_usual_flaws(front_matter: Mapping[str, Any], *, strict: bool) -> Iterator[str]:
    level = front_matter.get("promotion_level")
    if level is not None and level not in LEVELS:
        yield f"promotion_level is {', '.join(LEVELS[:-1])} or {LEVELS[-1]}, not {_format_value(level)}"
    if not strict:
        return
    for key in _REQUIRED:
        value = front_matter.get(key)
        if not isinstance(value, str) or not value.strip():
            yield f"{key} is missing" if value in (None, "") else f"{key} is not a text"
    date = front_matter.get("date")
    significance = front_matter.get("significance")
    if isinstance(date, str) and date.strip() and not re.fullmatch(_DATE, date):
        yield f"date is YYYY-MM-DD, not {_format_value(date)}"
    if isinstance(significance, str) and significance.strip() and significance not in _SIGNIFICANCE:
        yield f"significance is one of {', '.join(_SIGNIFICANCE)}, not {_format_value(significance)}"


def _find_schema_flaws(front_matter: Mapping[str, Any], schema: str) -> Iterator[str]:
    if not schema:
        return
    _require_library()
    from referencing.exceptions import Unresolvable

    try:
        whole = _build_validator(schema).evolve()
        for number, error in enumerate(whole.iter_errors(dict(front_matter))):
            if number == MAX_FLAWS:
                return
            where = ".".join(map(str, error.absolute_path))
            yield f"{where}: {_shorten_text(error.message)}" if where else _shorten_text(error.message)
    except (RecursionError, Unresolvable, ValueError, ArithmeticError) as error:
        yield f"its schema cannot be applied: {_shorten_text(str(error)) or 'it refers to itself'}"


def _require_library() -> None:
    if find_spec("jsonschema") is None:
        raise extras.missing_extra_error("mcp", "JSON Schemas of documents need jsonschema, which is not installed.")


def _build_validator(schema: str) -> Any:
    """Return a validator for a schema, which can be untrusted: it fetches nothing, limits steps,
    and accepts only linear patterns.

    The library calls `evolve` for every part that it applies, in any keyword. Without this
    override, a part with its own `$schema` would get the library's validator, and patternProperties
    would use `re`, even for other keywords. Raises `SchemaUnusable`.
    """
    from jsonschema import Draft202012Validator, validators
    from referencing import Registry

    parsed = parse_user_json(schema)
    if not isinstance(parsed.get("$schema", ""), str):
        raise SchemaUnusable("is not a JSON Schema: its $schema is not a text")
    try:
        kind = validators.validator_for(parsed, default=Draft202012Validator)
    except ValueError as error:  # no URL
        raise SchemaUnusable(f"is not a JSON Schema: {_shorten_text(str(error))}") from None
    steps = itertools.count(1)
    hardened: Any = validators.extend(kind, {"pattern": _check_pattern})
    evolve = hardened.evolve

    def evolve_within_limits(self: Any, **changes: Any) -> Any:
        part = changes.get("schema", self.schema)
        if next(steps) > _MAX_STEPS:
            raise SchemaUnusable(f"it takes more than {_MAX_STEPS:,} steps")
        if isinstance(part, dict) and "$schema" in part:
            if validators.validator_for(part, default=kind) is not kind:
                raise SchemaUnusable(f"a part of it has another $schema: {_format_value(part['$schema'])}")
            part = {name: value for name, value in part.items() if name != "$schema"}
        if isinstance(part, dict) and "patternProperties" in part:
            raise SchemaUnusable("it has patternProperties, which are not applied here")
        return evolve(self, **changes | {"schema": part})

    hardened.evolve = evolve_within_limits
    return hardened(parsed, registry=Registry())


def _check_pattern(_validator: Any, pattern: Any, instance: Any, _schema: Any) -> Iterator[Any]:
    from jsonschema import ValidationError

    if not isinstance(instance, str):
        return
    try:
        compiled = compile_pattern(pattern)
    except FilterInvalid as error:
        raise SchemaUnusable(error.message) from None
    if not compiled(instance):
        yield ValidationError(f"{_format_value(instance)} does not match {_format_value(pattern)}")


def _format_value(value: Any) -> str:
    return _shorten_text(repr(value))


def _shorten_text(text: str) -> str:
    return terminal_text.escape_line(text)[:200]
