"""The only evaluator of filters: for the chunks that a query ranks, and for whole documents.

It decides as Chroma does, but for what comparing means there: strings are ordered by their code
points, and a whole number and a fraction compare as the numbers that they are. Chroma takes no
strings behind `$gt` and its like. It cuts an operand's fraction off before it compares with a whole
number, and rounds a whole number beyond 2^53 before it compares with a fraction.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from vmrag_link.errors import FilterInvalid, IndexExtraMissing
from vmrag_link.retrieval.filters import JUNCTIONS, Normal

Columns = Mapping[str, Sequence[Any]]
"""The values that a filter asks for, by key. Rows have the same place in each; None is missing."""

Passes = Callable[[Columns], list[bool]]
TextPasses = Callable[[str], bool]
Compares = Callable[[Any], bool]


def matching(where: Normal) -> Passes:
    """Which rows pass a filter over metadata, in normal form."""
    [(key, value)] = where.items()
    if key not in JUNCTIONS:
        return _comparison(key, value)
    parts, together = [matching(each) for each in value], all if key == "$and" else any
    return lambda columns: [*map(together, zip(*(part(columns) for part in parts), strict=True))]


def matching_text(where_document: Normal) -> TextPasses:
    """Whether a text passes a filter over texts, in normal form.

    Raises `FilterInvalid` for what is no regular expression.
    """
    [(key, value)] = where_document.items()
    if key not in JUNCTIONS:
        return _text_match(key, value)
    parts, together = [matching_text(each) for each in value], all if key == "$and" else any
    return lambda text: together(part(text) for part in parts)


def keys_of(where: Normal) -> frozenset[str]:
    """The keys of metadata that a filter asks for."""
    return frozenset(_keys(where))


def _keys(normal: Normal) -> Iterator[str]:
    for key, value in normal.items():
        if key not in JUNCTIONS:
            yield key
        else:
            for each in value:
                yield from _keys(each)


def _comparison(key: str, condition: Mapping[str, Any]) -> Passes:
    """A missing key is unequal to everything, and neither less nor more than anything."""
    [(name, operand)] = condition.items()
    compares = _COMPARISONS[_NEGATIONS.get(name, name)](operand)
    if name in _NEGATIONS:
        return lambda columns: [not compares(each) for each in columns[key]]
    return lambda columns: [*map(compares, columns[key])]


def _text_match(name: str, operand: str) -> TextPasses:
    negated = _NEGATIONS.get(name)
    found: TextPasses = linear_pattern(operand) if (negated or name) == "$regex" else lambda text: operand in text
    return lambda text: found(text) is not (negated is not None)


def linear_pattern(pattern: str) -> TextPasses:
    """Whether a regular expression is found in a text, by Chroma's own engine: the same syntax, and
    linear time for every pattern. Raises `FilterInvalid`, `IndexExtraMissing`.
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
            f"The filter holds no regular expression: {pattern!r} ({reason}).",
            hint="Its syntax is that of docs.rs/regex: no look-around, no backreferences.",
        ) from None


def _kinds(operand: Any) -> frozenset[type]:
    """The types of what can be compared with it: true is not 1, but 1 is 1.0."""
    return frozenset({int, float}) if type(operand) in (int, float) else frozenset({type(operand)})


def _equal(operand: Any) -> Compares:
    kinds = _kinds(operand)
    return lambda value: type(value) in kinds and value == operand


def _in(operands: list[Any]) -> Compares:
    kinds, wanted = _kinds(operands[0]), frozenset(operands)
    return lambda value: type(value) in kinds and value in wanted


def _contains(operand: Any) -> Compares:
    """The elements of a list are of one type, which is not converted: 1 is not in [1.0]."""
    kind = type(operand)
    return lambda value: type(value) is list and type(value[0]) is kind and operand in value


def _ordered(compare: Callable[[Any, Any], bool]) -> Callable[[Any], Compares]:
    def with_operand(operand: Any) -> Compares:
        kinds = _kinds(operand)
        return lambda value: type(value) in kinds and compare(value, operand)

    return with_operand


_NEGATIONS = {"$ne": "$eq", "$nin": "$in", "$not_contains": "$contains", "$not_regex": "$regex"}
_COMPARISONS: dict[str, Callable[[Any], Compares]] = {
    "$eq": _equal,
    "$in": _in,
    "$contains": _contains,
    "$gt": _ordered(operator.gt),
    "$gte": _ordered(operator.ge),
    "$lt": _ordered(operator.lt),
    "$lte": _ordered(operator.le),
}
