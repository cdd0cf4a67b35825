"""Every known MCP client. All facts about a client are in this table.

`source` of a client is where its makers, or its own code, document these facts.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Literal

from vmrag_link import env
from vmrag_link.models import Record

FileFormat = Literal["json", "jsonc", "toml", "yaml"]

Scope = Literal["project", "person"]
"""Which file of a client: the file below the project's folder, or the file of this user."""


class EntryShape(Record, frozen=True):
    """The form in which a client writes a server's command."""

    program: str = "command"
    arguments: str | None = "args"
    """The key of the arguments; None if they are in one list with the program."""
    fixed: tuple[tuple[str, str | int | bool], ...] = ()
    """Other members of an entry. `{name}` is replaced by the entry's name."""


class ProjectFile(Record, frozen=True):
    """A file below the project's folder, for everyone who works there."""

    names: tuple[str, ...]
    """The first existing file is used, or else the first of all."""
    folder_variable: str | None = None
    """The client's variable for the project's folder; None: it starts servers in that folder."""
    passes_folder: bool = False
    """The server gets the folder as an argument, because the client does not start it there."""


class PersonalFile(Record, frozen=True):
    """A file of this user, for all projects. `mac` has its names on macOS, if they differ.

    `{config}` is the folder of `XDG_CONFIG_HOME`, `{codex}` the folder of `CODEX_HOME`, and `~` the
    home.
    """

    names: tuple[str, ...]
    mac: tuple[str, ...] = ()
    finds: bool = False
    """The client tells the server which project is open, by the current folder or by roots.
    Otherwise the entry names one repository, and its name contains the repository's name.
    """

    def list_paths(self) -> tuple[Path, ...]:
        return tuple(map(_resolve_path, self.mac if self.mac and sys.platform == "darwin" else self.names))


class McpClient(Record, frozen=True):
    """A client."""

    title: str
    source: str
    section: str
    """The section of its files that contains the servers."""
    format: FileFormat = "json"
    shape: EntryShape = EntryShape()
    project: ProjectFile | None = None
    personal: PersonalFile | None = None
    programs: tuple[str, ...] = ()
    """Programs that start it. If one exists, the client is installed."""
    folders: tuple[str, ...] = ()
    """Folders that it creates when it first starts. If one exists, the client is installed."""
    next_step: str = "Restart the client"
    """The next step of a person after the installation."""
    rules: tuple[str, ...] = ()
    """Files of instructions that it reads instead of `AGENTS.md`."""

    def has_file(self, scope: Scope) -> bool:
        return (self.project if scope == "project" else self.personal) is not None

    @property
    def serves_all_projects(self) -> bool:
        """True if an entry in its personal file serves any open project."""
        return self.personal is not None and self.personal.finds

    def list_folders(self) -> tuple[Path, ...]:
        return tuple(map(_resolve_path, self.folders))


_TYPED = EntryShape(fixed=(("type", "stdio"),))

CLIENTS: dict[str, McpClient] = {
    "claude-code": McpClient(
        "Claude Code",
        "https://code.claude.com/docs/en/mcp (project scope; the user scope is ~/.claude.json, which the program itself rewrites)",
        "mcpServers",
        shape=_TYPED,
        project=ProjectFile((".mcp.json",), folder_variable="${CLAUDE_PROJECT_DIR:-.}"),
        programs=("claude",),
        folders=("~/.claude",),
        next_step="Claude Code asks once whether the server may be started",
        rules=("CLAUDE.md", ".claude/CLAUDE.md"),
    ),
    "claude-desktop": McpClient(
        "Claude Desktop",
        "https://modelcontextprotocol.io/docs/develop/connect-local-servers; Linux: its community builds, by Electron's rule",
        "mcpServers",
        personal=PersonalFile(
            ("{config}/Claude/claude_desktop_config.json",),
            mac=("~/Library/Application Support/Claude/claude_desktop_config.json",),
        ),
        folders=("{config}/Claude", "~/Library/Application Support/Claude"),
        next_step="Quit Claude Desktop and start it again",
    ),
    "cursor": McpClient(
        "Cursor",
        "https://cursor.com/docs/context/mcp (locations, variables; roots are supported)",
        "mcpServers",
        format="jsonc",
        shape=_TYPED,
        project=ProjectFile((".cursor/mcp.json",), folder_variable="${workspaceFolder}", passes_folder=True),
        personal=PersonalFile(("~/.cursor/mcp.json",), finds=True),
        programs=("cursor", "cursor-agent"),
        folders=("~/.cursor",),
        next_step="Switch the server on in Cursor's settings",
    ),
    "vscode": McpClient(
        "VS Code",
        "https://code.visualstudio.com/docs/copilot/reference/mcp-configuration; it gives roots: github.com/microsoft/vscode/issues/250078",
        "servers",
        format="jsonc",
        shape=_TYPED,
        project=ProjectFile((".vscode/mcp.json",), folder_variable="${workspaceFolder}", passes_folder=True),
        personal=PersonalFile(
            ("{config}/Code/User/mcp.json",), mac=("~/Library/Application Support/Code/User/mcp.json",), finds=True
        ),
        programs=("code",),
        folders=("{config}/Code", "~/Library/Application Support/Code"),
        next_step="MCP: List Servers starts it",
    ),
    "windsurf": McpClient(
        "Windsurf",
        "https://docs.windsurf.com/windsurf/cascade/mcp (one file for all projects)",
        "mcpServers",
        personal=PersonalFile(("~/.codeium/windsurf/mcp_config.json",)),
        programs=("windsurf",),
        folders=("~/.codeium/windsurf",),
        next_step="Press Refresh in Windsurf's MCP panel",
    ),
    "zed": McpClient(
        "Zed",
        "https://zed.dev/docs/ai/mcp; servers start in the project: github.com/zed-industries/zed/pull/35271",
        "context_servers",
        format="jsonc",
        shape=EntryShape(fixed=(("source", "custom"),)),
        project=ProjectFile((".zed/settings.json",)),
        personal=PersonalFile(("{config}/zed/settings.json",), mac=("~/.config/zed/settings.json",), finds=True),
        programs=("zed", "zeditor"),
        folders=("{config}/zed", "~/.config/zed"),
        next_step="Zed starts it at once in a trusted project",
    ),
    "jetbrains": McpClient(
        "JetBrains (Junie)",
        "https://junie.jetbrains.com/docs/junie-cli-mcp-configuration.html; AI Assistant has its servers in no documented file",
        "mcpServers",
        personal=PersonalFile(("~/.junie/mcp/mcp.json",)),
        programs=("junie",),
        folders=("~/.junie",),
        next_step="Junie's settings list it under MCP Settings",
    ),
    "codex": McpClient(
        "Codex",
        "https://developers.openai.com/codex/mcp; .codex/config.toml counts in trusted projects",
        "mcp_servers",
        format="toml",
        project=ProjectFile((".codex/config.toml",)),
        personal=PersonalFile(("{codex}/config.toml",), finds=True),
        programs=("codex",),
        folders=("{codex}",),
        next_step="Restart Codex, which reads a project's file once the project is trusted",
    ),
    "gemini": McpClient(
        "Gemini CLI",
        "https://geminicli.com/docs/tools/mcp-server, docs/reference/configuration.md; comments: packages/cli/src/config/settings.ts",
        "mcpServers",
        format="jsonc",
        project=ProjectFile((".gemini/settings.json",)),
        personal=PersonalFile(("~/.gemini/settings.json",), finds=True),
        programs=("gemini",),
        folders=("~/.gemini",),
        rules=("GEMINI.md",),
    ),
    "opencode": McpClient(
        "OpenCode",
        "https://opencode.ai/docs/config, /docs/mcp-servers; servers start in the project: github.com/anomalyco/opencode/issues/30677",
        "mcp",
        format="jsonc",
        shape=EntryShape(arguments=None, fixed=(("type", "local"), ("enabled", True))),
        project=ProjectFile(("opencode.json", "opencode.jsonc")),
        personal=PersonalFile(("{config}/opencode/opencode.json", "{config}/opencode/opencode.jsonc"), finds=True),
        programs=("opencode",),
        folders=("{config}/opencode",),
    ),
    "goose": McpClient(
        "Goose",
        "https://goose-docs.ai/docs/guides/config-files; it starts servers in the session's folder: goose/src/agents/extension_manager.rs",
        "extensions",
        format="yaml",
        shape=EntryShape(
            program="cmd",
            fixed=(
                ("enabled", True),
                ("type", "stdio"),
                ("name", "{name}"),
                ("description", "Knowledge of the repository"),
                ("timeout", 300),
            ),
        ),
        personal=PersonalFile(("{config}/goose/config.yaml",), finds=True),
        programs=("goose",),
        folders=("{config}/goose",),
        next_step="The next session of Goose has it",
    ),
    "kiro": McpClient(
        "Kiro",
        "https://kiro.dev/docs/mcp/configuration; no variable names the project: github.com/kirodotdev/Kiro/issues/5659, 6525",
        "mcpServers",
        personal=PersonalFile(("~/.kiro/settings/mcp.json",)),
        programs=("kiro", "kiro-cli"),
        folders=("~/.kiro",),
        next_step="Kiro connects when the file is saved",
    ),
}


def _resolve_path(text: str) -> Path:
    folders = {"{config}": env.config_home(), "{codex}": env.codex_home(), "~": env.user_home()}
    for name, folder in folders.items():
        if text == name or text.startswith(f"{name}/"):
            return folder / text[len(name) + 1 :]
    return Path(text)
