"""Filters over metadata and texts: normalize what people write, and evaluate it.

This is the only evaluator of filters, for chunks that a query ranks and for whole documents.

In the normal form, every object has one key: `$and` or `$or` with at least two parts, a key of
metadata with one comparison, or a match of texts. Several keys in one object are joined with
`$and`, an `$and` or `$or` with one element is replaced by the element, and a bare value means
`$eq`. Chroma accepts the same form, except comparisons of strings by `$gt` and similar operators.

The evaluator decides like Chroma, except for some comparisons: strings are ordered by their code
points, and an integer and a fraction are compared by their values. Chroma truncates the fraction of
an operand before it compares it with an integer, and rounds an integer above 2^53 before it
compares it with a fraction.
"""

from __future__ import annotations

import json
import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from vmrag_link.errors import FilterInvalid, IndexExtraMissing
from vmrag_link.models import parse_user_json

ORDERINGS = frozenset({"$gt", "$gte", "$lt", "$lte"})
COMPARISONS = ORDERINGS | {"$eq", "$ne", "$in", "$nin", "$contains", "$not_contains"}
TEXT_MATCHES = frozenset({"$contains", "$not_contains", "$regex", "$not_regex"})
JUNCTIONS = frozenset({"$and", "$or"})
MAX_DEPTH = 50
MAX_CONDITIONS = 1000
"""Maximum number of conditions of a filter. Each one is evaluated for every document."""

NormalFilter = dict[str, Any]
LeafNormalizer = Callable[[str, Any], NormalFilter]
"""Returns the normal form of a key and its value that are not an `$and` or `$or`."""

EXAMPLE = 'for example \'{"status": "open"}\' or \'{"$and": [{"year": {"$gte": 2024}}, {"team": "core"}]}\''


def parse_filter(text: str) -> dict[str, Any]:
    """Parse a filter from the command line. Raises `FilterInvalid`."""
    try:
        value = parse_user_json(text)
    except ValueError as error:
        raise FilterInvalid(f"the filter {error}.", hint=f"write it as one JSON object, {EXAMPLE}") from None
    if not isinstance(value, dict):
        raise _make_error("is not an object", value)
    return value


def normalize_where(given: Mapping[str, Any] | None) -> NormalFilter | None:
    """Return the normal form of a filter over metadata; None for an empty filter. Raises
    `FilterInvalid`.
    """
    return _limit_conditions(_normalize_filter(given, _normalize_comparison)) if given else None


def normalize_where_document(given: Mapping[str, Any] | None) -> NormalFilter | None:
    """Return the normal form of a filter over texts; None for an empty filter. Raises
    `FilterInvalid`.
    """
    return _limit_conditions(_normalize_filter(given, _normalize_text_match)) if given else None


def _limit_conditions(normal: NormalFilter) -> NormalFilter:
    """Return a filter. Raise `FilterInvalid` if it has too many conditions."""
    conditions = _count_conditions(normal)
    if conditions > MAX_CONDITIONS:
        raise FilterInvalid(
            f"the filter has {conditions:,} conditions, but the maximum is {MAX_CONDITIONS:,}.",
            hint="compare one key with many values by $in",
        )
    return normal


def _count_conditions(normal: NormalFilter) -> int:
    ((key, value),) = normal.items()
    return sum(map(_count_conditions, value)) if key in JUNCTIONS else 1


def _normalize_filter(given: Any, normalize_leaf: LeafNormalizer, depth: int = 0) -> NormalFilter:
    if not isinstance(given, Mapping) or not given:
        raise _make_error("is not an object with keys", given)
    if depth > MAX_DEPTH:
        raise FilterInvalid(f"the filter is nested deeper than {MAX_DEPTH} levels.", hint="join conditions in one $and")
    parts = [
        _normalize_junction(key, value, normalize_leaf, depth) if key in JUNCTIONS else normalize_leaf(key, value)
        for key, value in given.items()
    ]
    return parts[0] if len(parts) == 1 else {"$and": parts}


def _normalize_junction(key: str, value: Any, normalize_leaf: LeafNormalizer, depth: int) -> NormalFilter:
    if not isinstance(value, list) or not value:
        raise _make_error(f"needs a non-empty list after {key}", value)
    parts = [_normalize_filter(part, normalize_leaf, depth + 1) for part in value]
    return parts[0] if len(parts) == 1 else {key: parts}


def _normalize_comparison(key: str, value: Any) -> NormalFilter:
    if key.startswith("$"):
        raise _make_error(f"uses the unknown operator {key}", value)
    if not isinstance(value, Mapping):
        return {key: {"$eq": _check_scalar(value)}}
    parts = [{key: {operator: _check_operand(operator, operand)}} for operator, operand in value.items()]
    if not parts:
        raise _make_error(f"has an empty condition on {key!r}", value)
    return parts[0] if len(parts) == 1 else {"$and": parts}


def _check_operand(operator: str, operand: Any) -> Any:
    if operator not in COMPARISONS:
        raise _make_error(f"uses the unknown operator {operator}", operand)
    if operator in ("$in", "$nin"):
        if not isinstance(operand, list) or not operand:
            raise _make_error(f"needs a non-empty list after {operator}", operand)
        if len({type(item) for item in operand}) > 1:
            raise _make_error(f"mixes types of values after {operator}", operand)
        return [_check_scalar(item) for item in operand]
    if operator in ORDERINGS and isinstance(operand, bool):
        raise _make_error(f"needs a number or a string after {operator}", operand)
    return _check_scalar(operand)


def _check_scalar(value: Any) -> Any:
    if not isinstance(value, str | int | float | bool):
        raise _make_error("compares with something that is not a string, number or boolean", value)
    if isinstance(value, float) and not math.isfinite(value):
        raise _make_error("compares with a number that is not finite", value)
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise _make_error("compares with an integer of more than 64 bits", value)
    return value


def _normalize_text_match(key: str, value: Any) -> NormalFilter:
    if key not in TEXT_MATCHES or not isinstance(value, str) or not value:
        raise _make_error(f"may hold {', '.join(sorted(TEXT_MATCHES | JUNCTIONS))} with a text, not {key!r}", value)
    return {key: value}


def _make_error(problem: str, value: Any) -> FilterInvalid:
    return FilterInvalid(
        f"the filter {problem}: {json.dumps(value, default=str)}.", hint=f"write it as one JSON object, {EXAMPLE}"
    )


Columns = Mapping[str, Sequence[Any]]
"""The values of each key of a filter. A row has the same position in each column. None means
missing.
"""

RowTest = Callable[[Columns], list[bool]]
TextTest = Callable[[str], bool]
ValueTest = Callable[[Any], bool]


def compile_where(where: NormalFilter) -> RowTest:
    """Return a function that tests which rows pass a normalized filter over metadata."""
    [(key, value)] = where.items()
    if key not in JUNCTIONS:
        return _compile_comparison(key, value)
    parts = [compile_where(part) for part in value]
    combine = all if key == "$and" else any
    return lambda columns: [*map(combine, zip(*(part(columns) for part in parts), strict=True))]


def compile_where_document(where_document: NormalFilter) -> TextTest:
    """Return a function that tests whether a text passes a normalized filter over texts.

    Raises `FilterInvalid` for an invalid regular expression.
    """
    [(key, value)] = where_document.items()
    if key not in JUNCTIONS:
        return _compile_text_match(key, value)
    parts = [compile_where_document(part) for part in value]
    combine = all if key == "$and" else any
    return lambda text: combine(part(text) for part in parts)


def list_keys(where: NormalFilter) -> frozenset[str]:
    """Return the keys of metadata in a normalized filter."""
    return frozenset(_iterate_keys(where))


def _iterate_keys(normal: NormalFilter) -> Iterator[str]:
    for key, value in normal.items():
        if key not in JUNCTIONS:
            yield key
        else:
            for part in value:
                yield from _iterate_keys(part)


def _compile_comparison(key: str, condition: Mapping[str, Any]) -> RowTest:
    """Return a test of one comparison.

    A missing key is unequal to every value, and neither less nor greater than any value.
    """
    [(name, operand)] = condition.items()
    test = _COMPARISONS[_NEGATIONS.get(name, name)](operand)
    if name in _NEGATIONS:
        return lambda columns: [not test(value) for value in columns[key]]
    return lambda columns: [*map(test, columns[key])]


def _compile_text_match(name: str, operand: str) -> TextTest:
    is_regex = _NEGATIONS.get(name, name) == "$regex"
    test: TextTest = compile_pattern(operand) if is_regex else lambda text: operand in text
    if name in _NEGATIONS:
        return lambda text: not test(text)
    return test


def compile_pattern(pattern: str, *, place: str = " in the filter") -> TextTest:
    """Return a function that tests whether a text matches a regular expression.

    It uses Chroma's regex engine, which has the same syntax and needs linear time for every
    pattern. Raises `FilterInvalid`, whose message names the `place`, and `IndexExtraMissing`.
    """
    try:
        from pydantic_core import SchemaError, SchemaValidator
    except ImportError as error:
        raise IndexExtraMissing(
            "filters by regular expressions need the package pydantic-core, which is not installed.",
            hint="run 'pip install \"vmrag-link[index]\"' to install it",
        ) from error
    try:
        return SchemaValidator({"type": "str", "pattern": pattern, "regex_engine": "rust-regex"}).isinstance_python
    except SchemaError as error:
        reason = str(error).replace("SchemaError: ", "error: ").rpartition("error: ")[2].rstrip(".")
        raise FilterInvalid(
            f"invalid regular expression{place}: {pattern!r} ({reason}).",
            hint="use the syntax of docs.rs/regex, which has no look-around and no backreferences",
        ) from None


def _list_types(operand: Any) -> frozenset[type]:
    """Return the types of values that can be equal to the operand: true is not 1, but 1 is 1.0."""
    return frozenset({int, float}) if type(operand) in (int, float) else frozenset({type(operand)})


def _test_equal(operand: Any) -> ValueTest:
    types = _list_types(operand)
    return lambda value: type(value) in types and value == operand


def _test_in(operands: list[Any]) -> ValueTest:
    types, values = _list_types(operands[0]), frozenset(operands)
    return lambda value: type(value) in types and value in values


def _test_contains(operand: Any) -> ValueTest:
    """Return a test for lists. Values are not converted: 1 is not in [1.0]."""
    item_type = type(operand)
    return lambda value: type(value) is list and type(value[0]) is item_type and operand in value


def _test_ordered(compare: Callable[[Any, Any], bool]) -> Callable[[Any], ValueTest]:
    def with_operand(operand: Any) -> ValueTest:
        types = _list_types(operand)
        return lambda value: type(value) in types and compare(value, operand)

    return with_operand


_NEGATIONS = {"$ne": "$eq", "$nin": "$in", "$not_contains": "$contains", "$not_regex": "$regex"}
_COMPARISONS: dict[str, Callable[[Any], ValueTest]] = {
    "$eq": _test_equal,
    "$in": _test_in,
    "$contains": _test_contains,
    "$gt": _test_ordered(operator.gt),
    "$gte": _test_ordered(operator.ge),
    "$lt": _test_ordered(operator.lt),
    "$lte": _test_ordered(operator.le),
}
