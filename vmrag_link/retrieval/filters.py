"""Filters over metadata and texts, translated for Chroma or applied to whole documents.

Several keys in one object are joined with `$and`, a one-element `$and` or `$or` is unwrapped, a
bare value means `$eq`: Chroma 1.5 refuses the first two forms.
"""

from __future__ import annotations

import json
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

from vmrag_link.errors import FilterInvalid, IndexExtraMissing
from vmrag_link.models import json_from_user

ORDERINGS = frozenset({"$gt", "$gte", "$lt", "$lte"})
COMPARISONS = ORDERINGS | {"$eq", "$ne", "$in", "$nin", "$contains", "$not_contains"}
TEXT_MATCHES = frozenset({"$contains", "$not_contains", "$regex", "$not_regex"})
JUNCTIONS = frozenset({"$and", "$or"})
DEEPEST = 50
Leaf = Callable[[str, Any], dict[str, Any]]
Matches = Callable[[Mapping[str, Any]], bool]
TextMatches = Callable[[str], bool]
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


def where(given: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """A filter over metadata as Chroma takes it; None for none."""
    return _exact(_normal(given, _comparison)) if given else None


def where_document(given: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """A filter over the text of chunks as Chroma takes it; None for none."""
    return _normal(given, _text_match) if given else None


def matching(given: Mapping[str, Any] | None) -> Matches | None:
    """Whether a filter passes a document with this metadata, as Chroma decides. None passes all."""
    return _decision(_normal(given, _comparison), _holds) if given else None


def matching_text(given: Mapping[str, Any] | None) -> TextMatches | None:
    """Whether a filter lets a whole text pass; None: it lets all pass."""
    normal = where_document(given)
    return None if normal is None else _decision(normal, _reads)


def _decision(normal: Mapping[str, Any], leaf: Callable[[str, Any], Callable[[Any], bool]]) -> Callable[[Any], bool]:
    [(key, value)] = normal.items()
    if key not in JUNCTIONS:
        return leaf(key, value)
    parts, together = [_decision(each, leaf) for each in value], all if key == "$and" else any
    return lambda asked: together(part(asked) for part in parts)


def _holds(key: str, condition: Mapping[str, Any]) -> Matches:
    """One comparison.

    A missing key is unequal to everything, and neither less nor more than anything.
    """
    [(name, operand)] = condition.items()
    negated = _NEGATIONS.get(name)
    compare = _COMPARISONS[negated or name]

    def holds(metadata: Mapping[str, Any]) -> bool:
        value = metadata.get(key)
        return (value is not None and compare(value, operand)) is not (negated is not None)

    return holds


def _reads(name: str, operand: str) -> TextMatches:
    negated = _NEGATIONS.get(name)
    found: TextMatches = _regex(operand) if (negated or name) == "$regex" else lambda text: operand in text
    return lambda text: found(text) is not (negated is not None)


def _regex(pattern: str) -> TextMatches:
    """Uses Chroma's own engine: the same syntax, and linear time for every pattern."""
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
        reason = str(error).rpartition("error: ")[2]
        raise FilterInvalid(
            f"The filter holds no regular expression: {pattern!r} ({reason}).",
            hint="Its syntax is that of docs.rs/regex: no look-around, no backreferences.",
        ) from None


def _equal(value: Any, operand: Any) -> bool:
    """Numbers equal numbers; otherwise kinds differ: true is not 1."""
    alike = type(value) is type(operand) or (_number(value) and _number(operand))
    return bool(alike and value == operand)


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _ordered(compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    return lambda value, operand: _number(value) and compare(value, operand)


_NEGATIONS = {"$ne": "$eq", "$nin": "$in", "$not_contains": "$contains", "$not_regex": "$regex"}
_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "$eq": _equal,
    "$in": lambda value, operand: any(_equal(value, each) for each in operand),
    "$contains": lambda value, operand: (
        isinstance(value, list) and any(type(each) is type(operand) and each == operand for each in value)
    ),
    "$gt": _ordered(operator.gt),
    "$gte": _ordered(operator.ge),
    "$lt": _ordered(operator.lt),
    "$lte": _ordered(operator.le),
}


def _exact(normal: dict[str, Any]) -> dict[str, Any]:
    """The filter made exact: Chroma cuts fractions off before it compares with whole numbers."""
    [(key, condition)] = normal.items()
    if key in JUNCTIONS:
        return {key: [_exact(each) for each in condition]}
    [(name, operand)] = condition.items()
    if name in ("$in", "$nin") and any(map(_fractional, operand)):
        one, junction = ("$eq", "$or") if name == "$in" else ("$ne", "$and")
        parts = [_exact({key: {one: each}}) for each in operand]
        return parts[0] if len(parts) == 1 else {junction: parts}
    if not _fractional(operand):
        return normal
    whole = math.trunc(operand)
    if name in ("$ne", "$lt" if operand > 0 else "$gt"):
        return {"$or": [normal, {key: {"$eq": whole}}]}
    if name in ("$eq", "$gte" if operand > 0 else "$lte"):
        return {"$and": [normal, {key: {"$ne": whole}}]}
    return normal


def _fractional(operand: Any) -> bool:
    return isinstance(operand, float) and not operand.is_integer()


def _normal(given: Any, leaf: Leaf, depth: int = 0) -> dict[str, Any]:
    if not isinstance(given, Mapping) or not given:
        raise _refusal("is not an object with keys", given)
    if depth > DEEPEST:
        raise FilterInvalid(f"The filter is nested deeper than {DEEPEST} levels.", hint="Join conditions in one $and.")
    parts = [
        _junction(key, value, leaf, depth) if key in JUNCTIONS else leaf(key, value) for key, value in given.items()
    ]
    return parts[0] if len(parts) == 1 else {"$and": parts}


def _junction(key: str, value: Any, leaf: Leaf, depth: int) -> dict[str, Any]:
    if not isinstance(value, list) or not value:
        raise _refusal(f"needs a non-empty list behind {key}", value)
    parts = [_normal(each, leaf, depth + 1) for each in value]
    return parts[0] if len(parts) == 1 else {key: parts}


def _comparison(key: str, value: Any) -> dict[str, Any]:
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
    if operator in ORDERINGS and (isinstance(operand, bool) or not isinstance(operand, int | float)):
        raise _refusal(f"needs a number behind {operator}", operand)
    return _scalar(operand)


def _scalar(value: Any) -> Any:
    if not isinstance(value, str | int | float | bool):
        raise _refusal("compares with something that is not a string, number or boolean", value)
    if isinstance(value, float) and not math.isfinite(value):
        raise _refusal("compares with a number that is not finite", value)
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise _refusal("compares with a whole number beyond 64 bits", value)
    return value


def _text_match(key: str, value: Any) -> dict[str, Any]:
    if key not in TEXT_MATCHES or not isinstance(value, str) or not value:
        raise _refusal(f"may hold {', '.join(sorted(TEXT_MATCHES | JUNCTIONS))} with a text, not {key!r}", value)
    return {key: value}


def _refusal(problem: str, value: Any) -> FilterInvalid:
    return FilterInvalid(
        f"The filter {problem}: {json.dumps(value, default=str)}.", hint=f"Write it as one JSON object, {EXAMPLE}."
    )
