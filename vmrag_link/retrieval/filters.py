"""Filters over metadata and texts, from what people write to one normal form, or to a refusal.

In the normal form every object has one key: `$and` or `$or` with two parts or more, a key of
metadata with one comparison, or a match of texts. Several keys in one object are joined with
`$and`, a one-element `$and` or `$or` is unwrapped, a bare value means `$eq`. `matching` evaluates
it. Chroma takes the same form, but for comparisons of strings by `$gt` and the like.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

from vmrag_link.errors import FilterInvalid
from vmrag_link.models import json_from_user

ORDERINGS = frozenset({"$gt", "$gte", "$lt", "$lte"})
COMPARISONS = ORDERINGS | {"$eq", "$ne", "$in", "$nin", "$contains", "$not_contains"}
TEXT_MATCHES = frozenset({"$contains", "$not_contains", "$regex", "$not_regex"})
JUNCTIONS = frozenset({"$and", "$or"})
DEEPEST = 50
Normal = dict[str, Any]
Leaf = Callable[[str, Any], Normal]
EXAMPLE = 'for example \'{"status": "open"}\' or \'{"$and": [{"year": {"$gte": 2024}}, {"team": "core"}]}\''


def parse(text: str) -> dict[str, Any]:
    """A filter from the command line. Raises `FilterInvalid`."""
    try:
        value = json_from_user(text)
    except ValueError as error:
        raise FilterInvalid(f"The filter {error}.", hint=f"Write it as one JSON object, {EXAMPLE}.") from None
    if not isinstance(value, dict):
        raise _refusal("is not an object", value)
    return value


def where(given: Mapping[str, Any] | None) -> Normal | None:
    """The normal form of a filter over metadata; None for none."""
    return _normal(given, _comparison) if given else None


def where_document(given: Mapping[str, Any] | None) -> Normal | None:
    """The normal form of a filter over texts; None for none."""
    return _normal(given, _text_match) if given else None


def _normal(given: Any, leaf: Leaf, depth: int = 0) -> Normal:
    if not isinstance(given, Mapping) or not given:
        raise _refusal("is not an object with keys", given)
    if depth > DEEPEST:
        raise FilterInvalid(f"The filter is nested deeper than {DEEPEST} levels.", hint="Join conditions in one $and.")
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
