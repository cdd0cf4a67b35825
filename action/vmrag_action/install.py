"""Install vmrag into an environment of its own: `python -I install.py`.

Run by path and with the standard library alone, because nothing is installed yet. Without a version
it installs the checkout that this file lies in, with the exact versions and hashes beside it: what
`uses: …@<sha>` names is what runs.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
import subprocess
import sys
import venv
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
REQUIREMENTS = ROOT / "action" / "requirements.txt"
ALL_REQUIREMENTS = ROOT / "constraints.txt"
"""For the extras that somebody asks for."""

COMMANDS = ("vmrag", "vmrag-mcp")
MARKER = "installed"
EXTRAS = ("all", "chroma", "mcp", "minilm")
PLATFORMS = ("linux", "darwin")

_VERSION = re.compile(r"\d+(\.\d+){0,3}((a|b|rc)\d+)?(\.post\d+)?", re.ASCII)


class Refused(Exception):
    """A sentence about an input that cannot be used, or an installation that failed."""


def home(environ: Mapping[str, str] = os.environ) -> Path:
    """The folder of this Action on the runner, which is emptied after each job."""
    return Path(environ["RUNNER_TEMP"]) / "vmrag-action"


def arguments(version: str, extras: tuple[str, ...]) -> list[list[str]]:
    """What pip is called with, one after the other."""
    if version:
        return [[f"vmrag-link[{','.join(sorted({'action', 'index', *extras}))}]=={version}"]]
    files = [REQUIREMENTS, ALL_REQUIREMENTS] if extras else [REQUIREMENTS]
    exact = [word for file in files for word in ("-r", str(file))]
    return [["--require-hashes", *exact], ["--no-deps", "--no-build-isolation", str(ROOT)]]


def parse_version(text: str) -> str:
    if text and not _VERSION.fullmatch(text):
        raise Refused(f"version must be an exact version such as 0.1.0, or empty for the Action's own; found {text!r}.")
    return text


def parse_extras(text: str) -> tuple[str, ...]:
    found = tuple(dict.fromkeys(text.replace(",", " ").split()))
    if unknown := [each for each in found if each not in EXTRAS]:
        raise Refused(f"extras may be {', '.join(EXTRAS)}; found {', '.join(map(repr, unknown))}.")
    return found


def wanted_extras(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Those that are named, and the one without which the input `chroma` cannot be obeyed."""
    found = parse_extras(environ.get("INPUT_EXTRAS", ""))
    if environ.get("INPUT_CHROMA") == "true" and "chroma" not in found:
        return (*found, "chroma")
    return found


def state(wanted: list[list[str]]) -> str:
    """What an environment was made of."""
    return hashlib.sha256(repr((sys.version, wanted)).encode() + REQUIREMENTS.read_bytes()).hexdigest()


def install(folder: Path, version: str, extras: tuple[str, ...]) -> None:
    """Make the environment, unless an earlier use of the Action in this job made the same one."""
    wanted, marker = arguments(version, extras), folder / MARKER
    if marker.is_file() and marker.read_text() == state(wanted):
        return
    shutil.rmtree(folder, ignore_errors=True)
    environment = folder / "venv"
    venv.create(environment, symlinks=True)
    for each in wanted:
        _pip(environment / "bin" / "python", *each)
    # Not the environment's own folder, which would put its `python` before the job's.
    commands = folder / "bin"
    commands.mkdir()
    for name in COMMANDS:
        (commands / name).symlink_to(environment / "bin" / name)
    marker.write_text(state(wanted))


def _pip(python: Path, *words: str) -> None:
    """What packages print is no command to the runner."""
    argv = [sys.executable, "-I", "-m", "pip", "--python", str(python), "install", "-q", "--no-compile"]
    token = secrets.token_hex(16)
    _say(f"::stop-commands::{token}")
    done = subprocess.run([*argv, *words], check=False)
    _say(f"::{token}::")
    if done.returncode:
        raise Refused(f"pip could not install {words[-1]}; its own words stand above.")


def _require_platform() -> None:
    if sys.platform not in PLATFORMS:
        raise Refused("vmrag runs on Linux and macOS: runs-on must be one of those.")


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()  # before what pip prints


def main(environ: Mapping[str, str] = os.environ) -> int:
    try:
        _require_platform()
        version = parse_version(environ.get("INPUT_VERSION", "").strip())
        install(home(environ), version, wanted_extras(environ))
    except Refused as error:
        message = str(error).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
        _say(f"::error title=vmrag::{message}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
