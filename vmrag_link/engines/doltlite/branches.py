"""Making, moving and deleting branches. The contracts are those of `engines.base.Engine`."""

from __future__ import annotations

from vmrag_link.engines import branch_names
from vmrag_link.engines.doltlite import history
from vmrag_link.engines.doltlite.session import EngineSession
from vmrag_link.errors import BranchExists, NameInvalid, Uncommitted


def create(session: EngineSession, name: str, at: str) -> None:
    if not branch_names.legal(name):
        raise NameInvalid(f"The embedded engine cannot carry a branch named {name[:80]!r}.", name=name)
    with session.writing(f"create the branch {name}"):
        history.require(session.main, at)
        for taken in history.branches(session.main):
            if taken.name.lower() == name.lower():
                raise BranchExists(f"The knowledge base has a branch {taken.name!r} already.", branch=taken.name)
        session.main.execute("SELECT dolt_branch(?, ?)", (name, at))


def move(session: EngineSession, name: str, to: str, *, expected: str) -> None:
    with session.writing(f"move the branch {name}"):
        history.require(session.main, to)
        _require_clean(session, name, expected)
        if not history.is_ancestor(session.main, expected, to):
            session.keep(expected, f"the head of {name}", without=name)
        session.main.execute("SELECT dolt_branch('-f', ?, ?)", (name, to))


def delete(session: EngineSession, name: str, *, expected: str) -> None:
    with session.writing(f"delete the branch {name}"):
        _require_clean(session, name, expected)
        session.keep(expected, f"the head of {name}", without=name)
        session.main.execute("SELECT dolt_branch('-D', ?)", (name,))


def _require_clean(session: EngineSession, name: str, expected: str) -> None:
    # The raw commands discard uncommitted rows silently.
    if session.require_head(name, expected).dirty:
        raise Uncommitted(
            f"The branch {name!r} carries uncommitted documents.", hint="Commit them: vmrag commit", branch=name
        )
