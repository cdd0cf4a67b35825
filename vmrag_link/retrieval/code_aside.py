"""Which code few questions ask for: tests, examples, what is outdated, generated, or data.

Such code ranks lower, unless the question asks for it or names what it declares.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

WHOLE = 1000

ASIDE, STUB = 300, 700
"""Factors of what few ask for, and of declarations for a compiler, in thousandths."""

_TESTS = (
    r"(?:^|/)(?:tests?|__tests__|specs?|testing|testdata|_*e2e_*|_*(?:fixtures?|mocks?|snapshots?)_*)/"
    r"|(?:^|/)(?:test_[^/]*|conftest|[^/]*[_.-](?:test|tests|spec|specs))\.\w+$"
    r"|(?:Test|Tests|TestCase|Spec|Suite)\.(?:java|kt|kts|scala|swift|cs|php|groovy)$"
)
_EXAMPLES = r"(?:^|/)(?:_?examples?|docs?_src|samples?|demos?|bench|benchmarks?)/"
_OUTDATED = r"(?:^|/)_?(?:compat|legacy|deprecated)[/.]"
_MADE = (
    r"(?:^|/)(?:vendor|third_party|node_modules|_*generated_*|dist)/"
    r"|[.-](?:min|bundle)\.[cm]?js$|[._]generated\.\w+$|/zz_generated[^/]*$|\.g\.(?:cs|dart)$|\.designer\.cs$"
    r"|\.pb\.(?:cc|go|h)$|_pb2?(?:_grpc)?\.(?:js|pyi?|rb|ts)$"
)
_STUBS = r"\.d\.[cm]?ts$|\.pyi$"

_LOWER = (
    (_TESTS, r"(?i)\btest|\bspec|fixture|\bmock|snapshot", ASIDE),
    (_EXAMPLES, r"(?i)\bexample|\bsample|\bdemo|\bbench", ASIDE),
    (_OUTDATED, r"(?i)compat|legacy|deprecat", ASIDE),
    (_MADE, r"(?i)generated|vendor|third.party", ASIDE),
    (_STUBS, r"(?i)\bstub", STUB),
)
"""Patterns of files, of questions that ask for them, and the factor without such a question."""

_HEAD = 500
_GENERATED = re.compile(r"@generated\b|\bdo not edit\b|\b(?:auto|automatically|code)[- ]?generated\b", re.IGNORECASE)

_SHORTEST_DATA = 400
"""Characters. In a shorter text, one long literal decides."""

_FEWEST_SPACES, _MOST_DIGITS = 20, 4
"""A text is data if at most every 20th character is a blank, or at least every fourth a digit."""


def files_aside(question: str) -> Sequence[tuple[re.Pattern[str], int]]:
    """Return patterns of files that a question does not ask for, and their factors."""
    return [(re.compile(path), factor) for path, request, factor in _LOWER if not re.search(request, question)]


def is_generated(text: str) -> bool:
    """Return whether a file begins with a mark that a program made it."""
    return _GENERATED.search(text, 0, _HEAD) is not None


def is_data(text: str) -> bool:
    """Return whether a text is minified code, a table of numbers, or encoded bytes."""
    if len(text) < _SHORTEST_DATA:
        return False
    blanks = text.count(" ") + text.count("\n") + text.count("\t")
    if blanks * _FEWEST_SPACES <= len(text):
        return True
    encoded = text.encode()
    digits = len(encoded) - len(encoded.translate(None, b"0123456789"))
    return digits * _MOST_DIGITS >= len(text)
