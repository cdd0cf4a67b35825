"""The settings file that vmrag writes for a repository."""

from __future__ import annotations

from collections.abc import Sequence

from vmrag_link import config, settings_docs, settings_edit
from vmrag_link.file_access import write_atomically
from vmrag_link.formats import SOURCES_VERSION
from vmrag_link.settings import SourceSettings
from vmrag_link.workspace import Workspace


def write_settings(ws: Workspace, *, remote: str = "", sources: Sequence[SourceSettings] = ()) -> None:
    """Write the settings file if it does not exist, and set `remote` and `sources` in it.

    The rest of an existing file stays, byte by byte. Raises `ConfigInvalid` for a file into which
    they cannot be written.
    """
    before = config.read_settings_file(ws.places.config)
    settings = _build_settings(before, remote, sources)
    if settings != before:
        write_atomically(ws.places.config, settings)
        ws.reload_settings()


def is_written_by_us(ws: Workspace, *, remote: str = "") -> bool:
    """Return whether vmrag wrote the whole settings file, so that it can stage the file."""
    sources = ws.config.sources
    text = config.read_settings_file(ws.places.config)
    return text in (_build_settings(None, "", sources), _build_settings(None, remote, sources))


def _build_settings(before: bytes | None, remote: str, sources: Sequence[SourceSettings]) -> bytes:
    text = settings_docs.format_template().encode() if before is None else before
    text = settings_edit.set_value(text, "remote", remote) if remote else text
    return settings_edit.add_sources(settings_edit.set_requirement(text, SOURCES_VERSION), sources) if sources else text
