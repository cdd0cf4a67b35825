"""How this machine gets at Dolt."""

from __future__ import annotations

from vmrag_link.models import Record


class DoltAccess(Record, frozen=True):
    """The program, and the running sql-server where the knowledge base is a database of one.

    `binary`: the program's absolute path; empty: the `dolt` on PATH. `server`: `host:port`; empty:
    no server. `database`: its name there. `password`: of `user`; it is in no message. `tls`:
    whether the server must prove by a certificate who it is; what is sent is encrypted then.
    `authorities`: a file with the certificates of those who may sign it; empty: the system's.
    """

    binary: str = ""
    server: str = ""
    database: str = ""
    user: str = "root"
    password: str = ""
    tls: bool = False
    authorities: str = ""

    def __repr__(self) -> str:
        """Without the password: logs of bugs show values."""
        return f"DoltAccess(binary={self.binary!r}, server={self.server!r}, database={self.database!r})"
