"""What can be said through SQL about the soundness of a server's database.

Its files are the server's: whoever runs it checks them by `dolt fsck`, in its folder.
"""

from __future__ import annotations

from vmrag_link.engines.dolt import history
from vmrag_link.engines.dolt.literals import identifier, literals
from vmrag_link.engines.dolt.session import DoltSession
from vmrag_link.engines.tables import TABLES
from vmrag_link.errors import EngineFailed, KnowledgeMissing, LoginRefused, ServerUnreachable
from vmrag_link.models import KbBranch


def damage(session: DoltSession) -> str:
    """Have the server read all history and every row at every branch; why it cannot, or nothing."""
    connection = session.connection
    try:
        branches = history.branches(connection)
        heads = literals(each.head for each in branches)
        connection.rows(f"SELECT count(*) AS v, max(length(message)) FROM dolt_log({heads})")
        for each in branches:
            _read(session, each)
    except (ServerUnreachable, LoginRefused, KnowledgeMissing):
        raise  # that says nothing of its soundness
    except EngineFailed as error:
        return error.message
    return ""


def _read(session: DoltSession, branch: KbBranch) -> None:
    if not session.check(branch.name):
        return  # no tables: what is kept for garbage collection
    for table in TABLES:
        read = ", ".join(f"sum(length({identifier(column)}))" for column in table.columns)
        session.connection.rows(f"SELECT {read} FROM {identifier(table.name)}", at=branch.name)
