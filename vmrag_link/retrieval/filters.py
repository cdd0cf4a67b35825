"""Filters over metadata and texts: from what people write to one normal form, or to a refusal; and
the only evaluator of that form, for the chunks that a query ranks and for whole documents.

In the normal form every object has one key: `$and` or `$or` with two parts or more, a key of
metadata with one comparison, or a match of texts. Several keys in one object are joined with
`$and`, a one-element `$and` or `$or` is unwrapped, a bare value means `$eq`. Chroma takes the same
form, but for comparisons of strings by `$gt` and the like.

The evaluator decides as Chroma does, but for what comparing means there: strings are ordered by
their code points, and a whole number and a fraction compare as the numbers that they are. Chroma
cuts an operand's fraction off before it compares with a whole number, and rounds a whole number
beyond 2^53 before it compares with a fraction.
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
MOST_CONDITIONS = 1000
"""Conditions of one filter: each is evaluated for every document."""
Normal = dict[str, Any]
Leaf = Callable[[str, Any], Normal]
EXAMPLE = 'for example \'{"status": "open"}\' or \'{"$and": [{"year": {"$gte": 2024}}, {"team": "core"}]}\''


def parse_filter(text: str) -> dict[str, Any]:
    """A filter from the command line. Raises `FilterInvalid`."""
    try:
        value = parse_user_json(text)
    except ValueError as error:
        raise FilterInvalid(f"The filter {error}.", hint=f"Write it as one JSON object, {EXAMPLE}.") from None
    if not isinstance(value, dict):
        raise _refusal("is not an object", value)
    return value


def normalize_where(given: Mapping[str, Any] | None) -> Normal | None:
    """The normal form of a filter over metadata; None for none."""
    return _require_few(_normal(given, _comparison)) if given else None


def normalize_where_document(given: Mapping[str, Any] | None) -> Normal | None:
    """The normal form of a filter over texts; None for none."""
    return _require_few(_normal(given, _text_match)) if given else None


def _require_few(normal: Normal) -> Normal:
    """Return the filter. Raise `FilterInvalid` if it has too many conditions."""
    conditions = _count_conditions(normal)
    if conditions > MOST_CONDITIONS:
        raise FilterInvalid(
            f"The filter has {conditions:,} conditions; at most {MOST_CONDITIONS:,} are accepted.",
            hint="Compare one key with many values by $in.",
        )
    return normal


def _count_conditions(normal: Normal) -> int:
    ((key, value),) = normal.items()
    return sum(map(_count_conditions, value)) if key in JUNCTIONS else 1


def _normal(given: Any, leaf: Leaf, depth: int = 0) -> Normal:
    if not isinstance(given, Mapping) or not given:
        raise _refusal("is not an object with keys", given)
    if depth > MAX_DEPTH:
        raise FilterInvalid(
            f"The filter is nested deeper than {MAX_DEPTH} levels.", hint="Join conditions in one $and."
        )
    parts = [
        _junction(key, value, leaf, depth) if key in JUNCTIONS else leaf(key, value) for key, value in given.items()
    ]
    return parts[0] if len(parts) == 1 else {"$and": parts}


def _junction(key: str, value: Any, leaf: Leaf, depth: int) -> Normal:
    if not isinstance(value, list) or not value:
        raise _refusal(f"needs a non-empty list behind {key}", value)
    parts = [_normal(each, leaf, depth + 1) for each in value]
    return parts[0] if len(parts) == 1 else {key: parts}


def _comparison(key: str, value: Any) -> Normal:
    if key.startswith("$"):
        raise _refusal(f"uses the unknown operator {key}", value)
    if not isinstance(value, Mapping):
        return {key: {"$eq": _scalar(value)}}
    parts = [{key: {operator: _operand(operator, operand)}} for operator, operand in value.items()]
    if not parts:
        raise _refusal(f"has an empty condition on {key!r}", value)
    return parts[0] if len(parts) == 1 else {"$and": parts}


def _operand(operator: str, operand: Any) -> Any:
    if operator not in COMPARISONS:
        raise _refusal(f"uses the unknown operator {operator}", operand)
    if operator in ("$in", "$nin"):
        if not isinstance(operand, list) or not operand:
            raise _refusal(f"needs a non-empty list behind {operator}", operand)
        if len({type(each) for each in operand}) > 1:
            raise _refusal(f"mixes kinds of values behind {operator}", operand)
        return [_scalar(each) for each in operand]
    if operator in ORDERINGS and isinstance(operand, bool):
        raise _refusal(f"needs a number or a string behind {operator}", operand)
    return _scalar(operand)


def _scalar(value: Any) -> Any:
    if not isinstance(value, str | int | float | bool):
        raise _refusal("compares with something that is not a string, number or boolean", value)
    if isinstance(value, float) and not math.isfinite(value):
        raise _refusal("compares with a number that is not finite", value)
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise _refusal("compares with a whole number beyond 64 bits", value)
    return value


def _text_match(key: str, value: Any) -> Normal:
    if key not in TEXT_MATCHES or not isinstance(value, str) or not value:
        raise _refusal(f"may hold {', '.join(sorted(TEXT_MATCHES | JUNCTIONS))} with a text, not {key!r}", value)
    return {key: value}


def _refusal(problem: str, value: Any) -> FilterInvalid:
    return FilterInvalid(
        f"The filter {problem}: {json.dumps(value, default=str)}.", hint=f"Write it as one JSON object, {EXAMPLE}."
    )


Columns = Mapping[str, Sequence[Any]]
"""The values that a filter asks for, by key. Rows have the same place in each; None is missing."""

RowTest = Callable[[Columns], list[bool]]
TextTest = Callable[[str], bool]
ValueTest = Callable[[Any], bool]


def compile_where(where: Normal) -> RowTest:
    """Which rows pass a filter over metadata, in normal form."""
    [(key, value)] = where.items()
    if key not in JUNCTIONS:
        return _metadata_test(key, value)
    parts, together = [compile_where(each) for each in value], all if key == "$and" else any
    return lambda columns: [*map(together, zip(*(part(columns) for part in parts), strict=True))]


def compile_where_document(where_document: Normal) -> TextTest:
    """Whether a text passes a filter over texts, in normal form.

    Raises `FilterInvalid` for what is no regular expression.
    """
    [(key, value)] = where_document.items()
    if key not in JUNCTIONS:
        return _text_test(key, value)
    parts, together = [compile_where_document(each) for each in value], all if key == "$and" else any
    return lambda text: together(part(text) for part in parts)


def list_keys(where: Normal) -> frozenset[str]:
    """The keys of metadata that a filter asks for."""
    return frozenset(_keys(where))


def _keys(normal: Normal) -> Iterator[str]:
    for key, value in normal.items():
        if key not in JUNCTIONS:
            yield key
        else:
            for each in value:
                yield from _keys(each)


def _metadata_test(key: str, condition: Mapping[str, Any]) -> RowTest:
    """A missing key is unequal to everything, and neither less nor more than anything."""
    [(name, operand)] = condition.items()
    compares = _COMPARISONS[_NEGATIONS.get(name, name)](operand)
    if name in _NEGATIONS:
        return lambda columns: [not compares(each) for each in columns[key]]
    return lambda columns: [*map(compares, columns[key])]


def _text_test(name: str, operand: str) -> TextTest:
    negated = _NEGATIONS.get(name)
    found: TextTest = compile_pattern(operand) if (negated or name) == "$regex" else lambda text: operand in text
    return lambda text: found(text) is not (negated is not None)


def compile_pattern(pattern: str, *, said: str = "The filter holds") -> TextTest:
    """Whether a regular expression is found in a text, by Chroma's own engine: the same syntax, and
    linear time for every pattern. Raises `FilterInvalid`, which begins with `said`, and
    `IndexExtraMissing`.
    """
    try:
        from pydantic_core import SchemaError, SchemaValidator
    except ImportError as error:
        raise IndexExtraMissing(
            "Filters by regular expressions need pydantic-core, which the base installation leaves out.",
            hint="pip install 'vmrag-link[index]'",
        ) from error
    try:
        return SchemaValidator({"type": "str", "pattern": pattern, "regex_engine": "rust-regex"}).isinstance_python
    except SchemaError as error:
        reason = str(error).replace("SchemaError: ", "error: ").rpartition("error: ")[2].rstrip(".")
        raise FilterInvalid(
            f"{said} no regular expression: {pattern!r} ({reason}).",
            hint="Its syntax is that of docs.rs/regex: no look-around, no backreferences.",
        ) from None


def _kinds(operand: Any) -> frozenset[type]:
    """The types of what can be compared with it: true is not 1, but 1 is 1.0."""
    return frozenset({int, float}) if type(operand) in (int, float) else frozenset({type(operand)})


def _equal(operand: Any) -> ValueTest:
    kinds = _kinds(operand)
    return lambda value: type(value) in kinds and value == operand


def _in(operands: list[Any]) -> ValueTest:
    kinds, wanted = _kinds(operands[0]), frozenset(operands)
    return lambda value: type(value) in kinds and value in wanted


def _contains(operand: Any) -> ValueTest:
    """The elements of a list are of one type, which is not converted: 1 is not in [1.0]."""
    kind = type(operand)
    return lambda value: type(value) is list and type(value[0]) is kind and operand in value


def _ordered(compare: Callable[[Any, Any], bool]) -> Callable[[Any], ValueTest]:
    def with_operand(operand: Any) -> ValueTest:
        kinds = _kinds(operand)
        return lambda value: type(value) in kinds and compare(value, operand)

    return with_operand


_NEGATIONS = {"$ne": "$eq", "$nin": "$in", "$not_contains": "$contains", "$not_regex": "$regex"}
_COMPARISONS: dict[str, Callable[[Any], ValueTest]] = {
    "$eq": _equal,
    "$in": _in,
    "$contains": _contains,
    "$gt": _ordered(operator.gt),
    "$gte": _ordered(operator.ge),
    "$lt": _ordered(operator.lt),
    "$lte": _ordered(operator.le),
}
