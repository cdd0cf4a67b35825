"""Which engine a knowledge base's folder holds, and the way to it.

An engine's modules are imported when a knowledge base of it is opened: a command on the embedded
engine does not load the other one.
"""

from __future__ import annotations

from pathlib import Path

from vmrag_link.engines.base import LOCK_NAME, Engine, EngineName, detect_engine
from vmrag_link.engines.base_session import Stamp, read_dolt_stamp, read_doltlite_stamp
from vmrag_link.engines.dolt.access import DoltAccess
from vmrag_link.engines.limits import CREATING_NAME, USUAL_LIMITS, Limits
from vmrag_link.errors import NotInitialized

NO_ACCESS = DoltAccess()


def engine_exists(folder: Path) -> bool:
    """Whether `open_engine` would find something."""
    return detect_engine(folder) is not None


def is_lost(folder: Path) -> bool:
    """Return whether the engine's file or repository is missing, and other files show that it was
    in the folder. A creation that was killed leaves only locks and what was unfinished.
    """
    if engine_exists(folder) or not folder.is_dir():
        return False
    names = (path.name for path in folder.iterdir())
    return any(not name.startswith((LOCK_NAME, CREATING_NAME)) and not name.endswith(".tmp") for name in names)


def read_stamp(folder: Path) -> Stamp:
    """Equal to an earlier one only if nothing was written here in between, by anybody.

    Nothing is opened for it, so what others write to a server does not show.
    """
    name = detect_engine(folder)
    try:
        return () if name is None else read_doltlite_stamp(folder) if name == "doltlite" else read_dolt_stamp(folder)
    except FileNotFoundError:
        return ()


def open_engine(
    folder: Path, *, lock_timeout: float = 30.0, limits: Limits = USUAL_LIMITS, access: DoltAccess = NO_ACCESS
) -> Engine:
    """Open an existing knowledge base; nothing is ever created.

    `lock_timeout`: seconds to wait for another writer. Raises `NotInitialized`, `SchemaTooNew`,
    `EngineFailed` for what is no knowledge base, `DoltMissing`, and `ConfigInvalid` where it is on
    a server and no settings that count name one.
    """
    name = detect_engine(folder)
    if name is None:
        raise NotInitialized(f"There is no knowledge base in {folder}.", hint="vmrag init --knowledge-base")
    if name == "doltlite":
        from vmrag_link.engines.doltlite.engine import DoltliteEngine

        return DoltliteEngine.open(folder, lock_timeout=lock_timeout, limits=limits)
    from vmrag_link.engines.dolt.engine import DoltEngine

    return DoltEngine.open(folder, lock_timeout=lock_timeout, limits=limits, access=access)


def create_engine(
    name: EngineName, folder: Path, *, author: str, date: str, access: DoltAccess = NO_ACCESS, origin: str = ""
) -> Engine:
    """Make a knowledge base whose first revision holds the empty tables.

    `author` is `Name <email>`, `date` ISO UTC. `origin`: the first revision of another engine's
    knowledge base that this one continues; then equal arguments give equal revisions. Raises
    `AlreadyInitialized`, and as `require`.
    """
    require_runnable(name, access)
    if name == "doltlite":
        from vmrag_link.engines.doltlite.engine import DoltliteEngine

        return DoltliteEngine.create(folder, author=author, date=date, origin=origin)
    from vmrag_link.engines.dolt.engine import DoltEngine

    return DoltEngine.create(folder, author=author, date=date, access=access, origin=origin)


def join_server_database(folder: Path, access: DoltAccess) -> Engine:
    """Use the knowledge base that the Dolt server of `access` has already.

    Raises `AlreadyInitialized`, `KnowledgeMissing`, and as `require`.
    """
    require_runnable("dolt", access)
    from vmrag_link.engines.dolt import server_database

    server_database.join_database(folder, access)
    return open_engine(folder, access=access)


def clone_engine(
    name: EngineName, folder: Path, remote: str, url: str, *, limits: Limits, access: DoltAccess = NO_ACCESS
) -> Engine:
    """Make a knowledge base of what `url` holds, for which `remote` is the short name.

    Raises as `create` and `Engine.fetch`.
    """
    require_runnable(name, access)
    if name == "doltlite":
        from vmrag_link.engines.doltlite.engine import DoltliteEngine

        return DoltliteEngine.clone(folder, remote, url, limits=limits)
    from vmrag_link.engines.dolt.engine import DoltEngine

    return DoltEngine.clone(folder, remote, url, limits=limits, access=access)


def require_runnable(name: EngineName, access: DoltAccess) -> None:
    """Raise `DoltMissing`, `ConfigInvalid`, or `EngineFailed` for the embedded one, where this
    machine cannot run an engine.

    To be asked before anything is changed.
    """
    if name == "doltlite":
        from vmrag_link.engines.doltlite import library

        library.locate_library()
    elif access.server:
        from vmrag_link.engines.dolt import server_session
        from vmrag_link.engines.dolt.access import require_private

        require_private(access)
        server_session.import_pymysql()
    else:
        from vmrag_link.engines.dolt import program

        program.find_program(access.binary)
