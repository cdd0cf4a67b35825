"""Write docs/git-operations.md: `python -m tests.operations.document > docs/git-operations.md`."""

from __future__ import annotations

import re
import sys

from tests.operations.table import TABLE, Follows, Operation

HOOKS = {
    "post-checkout": "moves documents and index to the pin",
    "post-merge": "the same, and queues the commit for the table of links",
    "post-commit": "the same as `post-merge`",
    "post-rewrite": "the same at the end of a rebase and after `--amend`, and queues which commit replaces which",
    "post-applypatch": "the same as `post-commit`, for `git am`",
    "pre-commit": "checks the pin of the commit, and warns about uncommitted documents",
    "pre-merge-commit": "checks the merged pin",
    "pre-push": "checks new pins, and pushes the knowledge base that they need",
}

UNCHANGED = ("Nothing.", "The former pin applies.", "The pin's file does not change.")
"""Results of operations that need no row of their own."""

SAVED = 20
"""A result is repeated if a reference to its operation saves fewer characters."""

FOLLOWS: dict[Follows, str] = {
    "hook": "at once",
    "query": "later",
    "nothing": "-",
}

PAGE = """\
# Git operations

<!-- Written by: python -m tests.operations.document > docs/git-operations.md -->

Here you look up what each git command does to your documents. For example, `git switch` moves them at once. [Hooks](hooks.md) explains how you install,
configure and remove these hooks:

| hook | what it does |
|---|---|
{hooks}

The column *moves* tells when documents and index are at the new pin: **at once** (before git returns), **later** (with the next command of vmrag) or never (-).
Unless the table names them, your uncommitted documents stay with the branch on which you wrote them. "Move along" means that they also get to the new pin. git's
exit code and output are the same as without hooks.

| operation | moves | result |
|---|---|---|
{operations}

If you run one of these operations, the former pin still applies: {unchanged}.

Next: [hooks](hooks.md), [branches and merges](merging.md).
"""


def page() -> str:
    """Return docs/git-operations.md."""
    hooks = [f"| `{name}` | {does} |" for name, does in HOOKS.items()]
    first: dict[str, str] = {}
    rows = [row for name, operations in TABLE.items() for row in (f"| **{name}** | | |", *_rows(operations, first))]
    unchanged = [
        _shown(operation.name)
        for operations in TABLE.values()
        for operation in operations
        if operation.says in UNCHANGED
    ]
    return PAGE.format(hooks="\n".join(hooks), operations="\n".join(rows), unchanged="; ".join(unchanged))


def _rows(operations: tuple[Operation, ...], first: dict[str, str]) -> list[str]:
    """Return the rows of a group. Operations with the same result share a row.

    `first` has the plain operation that each result was printed for. A repeated result names it.
    """
    names: dict[tuple[Follows, str], list[str]] = {}
    for operation in operations:
        if operation.says not in UNCHANGED:
            names.setdefault((operation.follows, operation.says), []).append(_shown(operation.name))
    return [
        f"| {'; '.join(shown)} | {FOLLOWS[follows]} | {_result(says, shown[0], first)} |"
        for (follows, says), shown in names.items()
    ]


def _result(says: str, operation: str, first: dict[str, str]) -> str:
    """Return a result, or the operation with the same result if that is shorter."""
    if "," not in operation:
        first.setdefault(says, operation)
    reference = f"As {first.get(says, operation)}."
    return reference if first.get(says, operation) != operation and len(reference) + SAVED < len(says) else says


def _shown(name: str) -> str:
    """Format the commands of a name as code; a remark follows a comma."""
    return re.sub(r"\b(git|vmrag) [^,]+", r"`\g<0>`", name)


if __name__ == "__main__":
    sys.stdout.write(page())
