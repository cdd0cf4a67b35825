"""Functions that detect, open, create, join and clone a knowledge base.

The modules of an engine are imported when a knowledge base of it is opened, so a command on the
embedded engine does not load Dolt's.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from vmrag_link.engines.base import Engine
from vmrag_link.engines.creation import not_initialized_error
from vmrag_link.engines.folder import (
    CREATING_NAME,
    LOCK_NAME,
    EngineName,
    Stamp,
    detect_engine,
    read_dolt_stamp,
    read_doltlite_stamp,
)
from vmrag_link.engines.limits import USUAL_LIMITS, Limits

if TYPE_CHECKING:
    from vmrag_link.engines.dolt.access import DoltAccess


def engine_exists(folder: Path) -> bool:
    """Return whether the folder holds a knowledge base that `open_engine` would find."""
    return detect_engine(folder) is not None


def is_lost(folder: Path) -> bool:
    """Return whether the engine's file or repository is missing from its folder.

    Other files show that it existed. A killed creation leaves only locks and unfinished files.
    """
    if engine_exists(folder) or not folder.is_dir():
        return False
    names = (path.name for path in folder.iterdir())
    return any(not name.startswith((LOCK_NAME, CREATING_NAME)) and not name.endswith(".tmp") for name in names)


def read_stamp(folder: Path) -> Stamp:
    """Return a value that differs from earlier ones if any program wrote in this folder in between.

    This opens nothing, so writes of other clients to a server do not show.
    """
    try:
        match detect_engine(folder):
            case "doltlite":
                return read_doltlite_stamp(folder)
            case "dolt":
                return read_dolt_stamp(folder)
    except FileNotFoundError:
        pass
    return ()


def open_engine(
    folder: Path, *, lock_timeout: float = 30.0, limits: Limits = USUAL_LIMITS, access: DoltAccess | None = None
) -> Engine:
    """Open an existing knowledge base. This never creates one.

    `lock_timeout` is in seconds, to wait for another writer. Raises `NotInitialized`,
    `SchemaTooNew`, `EngineFailed` if the files are not a knowledge base, `DoltMissing`, and
    `ConfigInvalid` if it is on a server and no trusted setting gives its address.
    """
    name = detect_engine(folder)
    if name is None:
        raise not_initialized_error(folder)
    if name == "doltlite":
        from vmrag_link.engines.doltlite.engine import DoltliteEngine

        return DoltliteEngine.open(folder, lock_timeout=lock_timeout, limits=limits)
    from vmrag_link.engines.dolt.access import DoltAccess
    from vmrag_link.engines.dolt.engine import DoltEngine

    return DoltEngine.open(folder, lock_timeout=lock_timeout, limits=limits, access=access or DoltAccess())


def create_engine(
    name: EngineName, folder: Path, *, author: str, date: str, access: DoltAccess | None = None, origin: str = ""
) -> Engine:
    """Create a knowledge base whose first revision holds the empty tables.

    `author` is `Name <email>`, `date` is ISO UTC. `origin` is the first revision of another
    engine's knowledge base that this one continues; then equal arguments give equal revisions.
    Raises `AlreadyInitialized` and the errors of `require_runnable`.
    """
    require_runnable(name, access)
    if name == "doltlite":
        from vmrag_link.engines.doltlite.engine import DoltliteEngine

        return DoltliteEngine.create(folder, author=author, date=date, origin=origin)
    from vmrag_link.engines.dolt.access import DoltAccess
    from vmrag_link.engines.dolt.engine import DoltEngine

    return DoltEngine.create(folder, author=author, date=date, access=access or DoltAccess(), origin=origin)


def join_server_database(folder: Path, access: DoltAccess) -> Engine:
    """Use the existing knowledge base in the Dolt server's database that `access` describes.

    Raises `AlreadyInitialized`, `KnowledgeMissing` and the errors of `require_runnable`.
    """
    require_runnable("dolt", access)
    from vmrag_link.engines.dolt import server_database

    server_database.join_database(folder, access)
    return open_engine(folder, access=access)


def clone_engine(
    name: EngineName, folder: Path, remote: str, url: str, *, limits: Limits, access: DoltAccess | None = None
) -> Engine:
    """Create a knowledge base from the contents at `url`; `remote` becomes its short name.

    Raises the errors of `create_engine` and `Engine.fetch`.
    """
    require_runnable(name, access)
    if name == "doltlite":
        from vmrag_link.engines.doltlite.engine import DoltliteEngine

        return DoltliteEngine.clone(folder, remote, url, limits=limits)
    from vmrag_link.engines.dolt.access import DoltAccess
    from vmrag_link.engines.dolt.engine import DoltEngine

    return DoltEngine.clone(folder, remote, url, limits=limits, access=access or DoltAccess())


def require_runnable(name: EngineName, access: DoltAccess | None) -> None:
    """Raise an error if this machine cannot run an engine. Call this before you change anything.

    The errors are `DoltMissing`, `ConfigInvalid`, and `EngineFailed` for the embedded engine.
    """
    if name == "doltlite":
        from vmrag_link.engines.doltlite import library

        library.locate_library()
    elif access and access.server:
        from vmrag_link.engines.dolt import server_session
        from vmrag_link.engines.dolt.access import require_private

        require_private(access)
        server_session.import_pymysql()
    else:
        from vmrag_link.engines.dolt import program

        program.find_program(access.binary if access else "")
