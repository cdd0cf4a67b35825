"""SQL literals: every value that goes into a statement is quoted here.

The program takes statements as text, without parameters, and a server gets the same text. So the
texts, which may be a stranger's, depend on this module alone. Sessions are opened with an SQL mode
in which a backslash escapes and double quotes are quotes (`connection.SQL_MODE`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from vmrag_link.engines.records import Value

T = TypeVar("T")

_AT_ONCE = 500

_ESCAPES = str.maketrans({"\\": "\\\\", "'": "\\'", "\n": "\\n", "\r": "\\r", "\0": "\\0", "\x1a": "\\Z"})
"""Line ends, too: a statement is one line, so an error message that repeats it is one line."""


def literal(value: Value) -> str:
    """A value as SQL."""
    if value is None:
        return "NULL"
    return str(value) if isinstance(value, int) else f"'{value.translate(_ESCAPES)}'"


def literals(values: Iterable[Value]) -> str:
    """Values with commas between."""
    return ", ".join(map(literal, values))


def parts(values: Sequence[T]) -> Iterator[Sequence[T]]:
    """Values by as many as one statement takes."""
    return (values[start : start + _AT_ONCE] for start in range(0, len(values), _AT_ONCE))


def identifier(name: str) -> str:
    """A name as SQL.

    None of ours has a backslash, which the program takes for an escape within backticks, too; the
    server does not. Raises `ValueError`.
    """
    if "\\" in name:
        raise ValueError("a name with a backslash")
    return "`" + name.replace("`", "``") + "`"
