"""The decisions of the user to trust settings and services.

The decisions are stored per repository, in a folder outside all work trees. A random id in
`.git/vmrag`, which clones do not copy, distinguishes a repository from another one at the same
path. Without an id, nothing is trusted, and nothing outside the repository is read.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from vmrag_link import clock, env
from vmrag_link.errors import ConfigInvalid, FileFailed, quoted, system_failure
from vmrag_link.file_access import read_regular, write_atomically
from vmrag_link.formats import require_known_format
from vmrag_link.models import Record
from vmrag_link.paths import Places

FORMAT = 1
"""The format of a file. Files of newer programs have a higher one."""

_MAX_BYTES = 4_000_000
_ID = rb"[0-9a-f]{32}"


class Agreement(Record, frozen=True):
    """The settings of `.vmrag.yaml` that need trust, by name, when the user trusted them."""

    settings: dict[str, str | int | bool]
    date: str


class Agreements(Record, frozen=True):
    """The decisions for one repository (its common git directory), and the embedding services that
    it can contact.
    """

    repository: str
    agreed: tuple[Agreement, ...] = ()
    """Only the last decision applies.

    Files of older programs also contain earlier ones. If they applied, a branch with an older file
    would bring back what the user has revoked.
    """
    services: tuple[str, ...] = ()
    format: int = FORMAT

    @property
    def settings(self) -> dict[str, str | int | bool] | None:
        """The trusted settings, or None if nothing was trusted."""
        return self.agreed[-1].settings if self.agreed else None


def read_agreements(places: Places) -> Agreements:
    """Return the decisions for this repository.

    Raises `ConfigInvalid` for a damaged file, which can have contained restrictions, and
    `FormatTooNew`.
    """
    path = _find_file(places)
    return (_read_file(path) if path else None) or Agreements(_name_repository(places))


def list_files(places: Places) -> tuple[Path, ...]:
    """Return the files on which `read_agreements` depends, existing or not."""
    path = _find_file(places)
    return (places.trust_id, path) if path else (places.trust_id,)


def read_all_agreements() -> list[Agreements]:
    """Return the decisions for every repository on this machine, by path."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        decisions = [_read_file(path) for path in _agreements_folder().iterdir() if path.suffix == ".json"]
        return sorted((decision for decision in decisions if decision), key=lambda decision: decision.repository)
    return []


def add_agreement(places: Places, settings: Mapping[str, Any]) -> None:
    """Record that the user trusts these settings, in place of the earlier decision.

    Raises `FileFailed`.
    """
    _write_file(
        places, msgspec.structs.replace(read_agreements(places), agreed=(Agreement(dict(settings), clock.now()),))
    )


def add_service(places: Places, name: str) -> None:
    """Record that the collections of this repository can use an embedding service.

    Raises `FileFailed`.
    """
    before = read_agreements(places)
    _write_file(places, msgspec.structs.replace(before, services=tuple(sorted({*before.services, name}))))


def has_agreement(places: Places) -> bool:
    """Return True if the user trusted something in this repository."""
    path = _find_file(places)
    return path is not None and path.exists()


def revoke_agreements(places: Places) -> bool:
    """Delete the decisions for this repository, and return whether there were any."""
    path = _find_file(places)
    if path is None or not path.exists():
        return False
    path.unlink()
    return True


def _read_file(path: Path) -> Agreements | None:
    try:
        content = read_regular(path, _MAX_BYTES)
        require_known_format(content, FORMAT, what="The record of trusted settings", path=path)
        return msgspec.json.decode(content, type=Agreements)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return None  # this user did not write a file that is unreadable
    except (OSError, UnicodeDecodeError, msgspec.DecodeError) as error:
        raise ConfigInvalid(
            f"cannot read the trusted settings: {path} is damaged.",
            hint=f"run 'rm {quoted(path)}', then 'vmrag trust' to trust them again",
            file=str(path),
        ) from error


def _write_file(places: Places, agreements: Agreements) -> None:
    path = _find_file(places) or _make_id(places)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_atomically(path, msgspec.json.format(msgspec.json.encode(agreements)) + b"\n")
    except OSError as error:
        reason = system_failure(error)
        raise FileFailed(
            f"cannot record the trusted settings: {reason.message if reason else error}",
            hint=f"run 'export {env.DATA_HOME}=DIR' with a folder that you can write",
            path=str(path),
        ) from error


def _make_id(places: Places) -> Path:
    write_atomically(places.trust_id, os.urandom(16).hex().encode())
    path = _find_file(places)
    assert path is not None  # noqa: S101  it has an id now
    return path


def _find_file(places: Places) -> Path | None:
    """Return the file with the decisions for this repository; None if it has no id, and thus no
    decisions.
    """
    try:
        repository_id = read_regular(places.trust_id, 64)
    except OSError:
        return None
    if not re.fullmatch(_ID, repository_id):
        return None
    import hashlib  # without an id, no file is looked for

    name = hashlib.sha256(os.fsencode(_name_repository(places)) + b"\0" + repository_id).hexdigest()
    return _agreements_folder() / f"{name}.json"


def _name_repository(places: Places) -> str:
    return os.path.realpath(places.common)


def _agreements_folder() -> Path:
    return env.data_home() / "vmrag" / "trust"
