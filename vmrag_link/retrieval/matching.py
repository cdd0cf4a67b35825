"""The only evaluator of filters: for the chunks that a query ranks, and for whole documents.

It decides as Chroma does, but for what comparing means there: strings are ordered by their code
points, and a whole number and a fraction compare as the numbers that they are. Chroma takes no
strings behind `$gt` and its like. It cuts an operand's fraction off before it compares with a whole
number, and rounds a whole number beyond 2^53 before it compares with a fraction.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from vmrag_link.errors import FilterInvalid, IndexExtraMissing
from vmrag_link.retrieval.filters import JUNCTIONS, Normal

Matches = Callable[[Mapping[str, Any]], bool]
TextMatches = Callable[[str], bool]
Compares = Callable[[Any], bool]
"""Of a value, or None for a missing key."""


def matching(where: Normal) -> Matches:
    """Whether metadata passes a filter over metadata, in normal form."""
    return _decision(where, _comparison)


def matching_text(where_document: Normal) -> TextMatches:
    """Whether a text passes a filter over texts, in normal form.

    Raises `FilterInvalid` for what is no regular expression.
    """
    return _decision(where_document, _text_match)


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


def _decision(normal: Normal, leaf: Callable[[str, Any], Callable[[Any], bool]]) -> Callable[[Any], bool]:
    [(key, value)] = normal.items()
    if key not in JUNCTIONS:
        return leaf(key, value)
    parts, together = [_decision(each, leaf) for each in value], all if key == "$and" else any
    return lambda asked: together([part(asked) for part in parts])


def _comparison(key: str, condition: Mapping[str, Any]) -> Matches:
    """One comparison. A key that is missing is like none that was asked for."""
    [(name, operand)] = condition.items()
    if name in _NEGATIONS:
        compares = _COMPARISONS[_NEGATIONS[name]](operand)
        return lambda metadata: not compares(metadata.get(key))
    compares = _COMPARISONS[name](operand)
    return lambda metadata: compares(metadata.get(key))


def _text_match(name: str, operand: str) -> TextMatches:
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
