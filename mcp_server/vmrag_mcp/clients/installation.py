"""Which entry belongs into which file of which client."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from vmrag_link import env
from vmrag_link.errors import FileFailed, UsageInvalid
from vmrag_link.models import Record
from vmrag_link.paths import Places
from vmrag_mcp.clients import entries, server_command
from vmrag_mcp.clients.server_command import ServerEntry
from vmrag_mcp.clients.settings_file import SettingsFile
from vmrag_mcp.clients.table import CLIENTS, McpClient
from vmrag_mcp.options import Flags

Scope = Literal["project", "person"]


class ClientRefusal(Record, frozen=True):
    """A client whose file could not be edited, while others' were."""

    client: str
    code: str
    message: str
    hint: str


class Installation(NamedTuple):
    """One entry in one file."""

    key: str
    client: McpClient
    file: SettingsFile
    wanted: ServerEntry

    def refuse(self, why: str) -> UsageInvalid:
        written = {self.client.section: {self.wanted.name: self.wanted.value}}
        text = json.dumps(written, ensure_ascii=False)
        if self.client.format in ("toml", "yaml"):
            text = entries.rendered(self.client.format, self.client.section, self.wanted.name, self.wanted.value)
        return UsageInvalid(
            f"{self.file.label} is left as it is: {why}.",
            hint=f"Write this into it: {text.strip()}",
            file=self.file.label,
            wanted=self.wanted.value,
        )


def locate(places: Places, name: str, scope: Scope | None, flags: Flags) -> Installation:
    """`scope` None: the project's file, if the client has one. Raises `UsageInvalid` for a client
    that has no such file.
    """
    client = CLIENTS[name]
    if client.project and scope != "person":
        there = [each for each in client.project.names if (places.top / each).exists()]
        label = (there or client.project.names)[0]
        file = SettingsFile(places.top / label, label, places.top)
        return Installation(name, client, file, server_command.for_project(client, client.project, places, flags))
    if client.personal is None or scope == "project":
        whose = "project has" if scope == "project" else "person has"
        raise UsageInvalid(
            f"A {whose} no file for {client.title} that other programs may write.",
            hint="claude mcp add --scope user vmrag -- vmrag-mcp"
            if name == "claude-code"
            else f"vmrag mcp install --client {name}",
            client=name,
        )
    paths = client.personal.paths()
    path = next((each for each in paths if each.exists()), paths[0])
    return Installation(
        name, client, SettingsFile(path, str(path), None), server_command.for_person(client, places, flags)
    )


def has_file(client: McpClient, scope: Scope) -> bool:
    return (client.project if scope == "project" else client.personal) is not None


def is_installed(client: McpClient) -> bool:
    """Whether its program is found, or it was started once."""
    path = os.pathsep.join(env.program_folders())
    return any(shutil.which(each, path=path) for each in client.programs) or any(map(Path.is_dir, client.signs()))


def for_each(names: Sequence[str], do: Callable[[str], Any]) -> tuple[list[Any], tuple[ClientRefusal, ...]]:
    """One client's broken file keeps no other from its server."""
    done, refused = [], []
    for name in names:
        try:
            done.append(do(name))
        except (UsageInvalid, FileFailed) as error:
            refused.append(ClientRefusal(name, error.code, error.message, error.hint))
    return done, tuple(refused)
