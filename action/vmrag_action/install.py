"""Install what the mode needs into an environment of its own: `python -I install.py STEP`.

Run by path and with the standard library alone, because nothing is installed yet. `choose` says
which packages these are, and where the workflow finds them in its cache; `install` makes the
environment. Without a version that runs the checkout in which this file lies, from where it lies,
beside packages of exact versions that are verified by their hashes: what `uses: …@<sha>` names is
what runs, whatever a cache holds.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import secrets
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

if __name__ == "__main__":  # isolated: nothing is looked for beside this file
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from vmrag_action import packages

UV_BY_HASH = packages.ROOT / ".ci" / "uv.txt"
OLDEST_UV = (0, 5)

COMMANDS = ("vmrag", "vmrag-mcp")
MARKER = "installed"
PLATFORMS = ("linux", "darwin")

_VERSION = re.compile(r"\d+(\.\d+){0,3}((a|b|rc)\d+)?(\.post\d+)?", re.ASCII)

# As pip writes them, because a `#!` may neither be long nor hold a blank.
_COMMAND = """\
#!/bin/sh
'''exec' "{python}" "$0" "$@"
' '''
import sys
from {module} import {function}
sys.exit({function}())
"""


class InstallRefused(Exception):
    """A sentence about an input that cannot be used, or an installation that failed."""


class InstallRequest(NamedTuple):
    """What shall be installed: a version from the index, or else packages for this checkout."""

    version: str
    extras: tuple[str, ...]

    @property
    def listed(self) -> str:
        """The packages as `-r` takes them: a version's own are not known before."""
        extras = ",".join(("action", *self.extras))
        return f"vmrag-link[{extras}]=={self.version}\n" if self.version else packages.format_requirements(self.extras)

    @property
    def digest(self) -> str:
        """Of the packages and all that decides which of their files fit."""
        machine = (sys.version, sysconfig.get_platform(), platform.libc_ver(), platform.mac_ver()[0])
        return hashlib.sha256(repr((machine, self.listed)).encode()).hexdigest()


def action_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """The folder of this Action on the runner, which is emptied after each job."""
    return Path(environ["RUNNER_TEMP"]) / "vmrag-action"


def packages_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Where the packages lie, and nothing else: what the workflow's cache holds."""
    return Path(environ["RUNNER_TEMP"]) / "vmrag-packages"


# -- what is wanted --------------------------------------------------------------------------------


def read_request(environ: Mapping[str, str]) -> InstallRequest:
    """For this use of the Action; what an earlier one in the job installed stays."""
    version = parse_version(environ.get("INPUT_VERSION", "").strip())
    modes = [each.strip() for each in (environ.get("INPUT_MODE", "").strip() or "sync").split(",")]
    comments = environ.get("INPUT_COMMENT") == "true" and environ.get("GITHUB_EVENT_NAME") == "workflow_run"
    needed = {"web"} if comments else packages.list_mode_extras(modes)  # what was reported in another job
    extras = needed.union(parse_extras(environ.get("INPUT_EXTRAS", "")))
    if environ.get("INPUT_CHROMA") == "true":
        extras.add("chroma")
    earlier = _marked(action_folder(environ)).rpartition(" ")[2].split(",")
    return InstallRequest(version, tuple(sorted(extras.union(filter(None, earlier)))))


def parse_version(text: str) -> str:
    if text and not _VERSION.fullmatch(text):
        raise InstallRefused(
            f"version must be an exact version such as 0.2.0, or empty for the Action's own; found {text!r}."
        )
    return text


def parse_extras(text: str) -> list[str]:
    found, offered = text.replace(",", " ").split(), packages.list_offered_extras()
    if unknown := [each for each in found if each not in offered]:
        raise InstallRefused(f"extras may be {', '.join(offered)}; found {', '.join(map(repr, unknown))}.")
    return found


def mark_packages(shelf: Path, chosen: InstallRequest) -> None:
    """Say, when all packages are there, which ones these are."""
    (shelf / MARKER).write_text(chosen.digest)


def mark_environment(folder: Path, chosen: InstallRequest) -> None:
    (folder / MARKER).write_text(_of_environment(chosen))


def _of_environment(chosen: InstallRequest) -> str:
    """The packages, the checkout that runs beside them, and the extras."""
    return f"{chosen.digest} {packages.ROOT} {','.join(chosen.extras)}"


def _marked(folder: Path) -> str:
    marker = folder / MARKER
    return marker.read_text() if marker.is_file() else ""


# -- the steps -------------------------------------------------------------------------------------


def choose_packages(environ: Mapping[str, str]) -> None:
    """Make room for packages that are not there yet, and say by which keys the cache has them."""
    chosen, folder = read_request(environ), packages_folder(environ)
    there = _marked(folder) == chosen.digest
    if not there:
        shutil.rmtree(folder, ignore_errors=True)
    readable = packages.decide_access(
        environ, environ.get("INPUT_ENABLE_CACHE", "").strip() or "auto", saves=False
    ).read
    _output(environ, "restore", readable and not there and not chosen.version)
    if not chosen.version:
        keys = packages.compute_package_keys(environ, chosen.digest)
        _output(environ, "path", str(folder))
        _output(environ, "key", keys.key)
        _output(environ, "restore-keys", "\n".join(keys.prefixes))


def install_packages(environ: Mapping[str, str]) -> None:
    """Make the environment, unless an earlier use of the Action in this job made the same one."""
    chosen, folder, shelf = read_request(environ), action_folder(environ), packages_folder(environ)
    fresh = False
    if _marked(folder) != _of_environment(chosen):
        shutil.rmtree(folder, ignore_errors=True)
        venv.create(folder / "venv", symlinks=True)
        if chosen.version:
            _bring(folder, chosen)
        else:
            fresh = _marked(shelf) != chosen.digest
            if fresh:
                _bring(folder, chosen, shelf)
                mark_packages(shelf, chosen)
            _run_from_here(folder / "venv", shelf)
        # Not the environment's own folder, which would put its `python` before the job's.
        commands = folder / "bin"
        commands.mkdir()
        for name in COMMANDS:
            (commands / name).symlink_to(folder / "venv" / "bin" / name)
        mark_environment(folder, chosen)
    _output(environ, "fresh", fresh)


def _run_from_here(environment: Path, shelf: Path) -> None:
    """Let the environment import packages from `shelf`, and ours from this checkout."""
    found = sysconfig.get_path("purelib", "venv", {"base": str(environment), "platbase": str(environment)})
    (Path(found) / "vmrag.pth").write_text(
        "".join(f"{folder}\n" for folder in (shelf, *packages.list_package_folders()))
    )
    for name in COMMANDS:
        module, function = packages.find_entry_point(name)
        script = environment / "bin" / name
        script.write_text(_COMMAND.format(python=environment / "bin" / "python", module=module, function=function))
        script.chmod(0o755)


# -- uv, or else pip -------------------------------------------------------------------------------


def _bring(folder: Path, chosen: InstallRequest, shelf: Path | None = None) -> None:
    """Install what is wanted on a shelf, or else into the environment in `folder`."""
    asked = folder / "requirements.txt"
    asked.write_text(chosen.listed)
    words = ["-r", str(asked)]
    if shelf:
        words += ["--require-hashes", "--no-deps", "--target", str(shelf)]
    python, uv, cache = str(folder / "venv" / "bin" / "python"), _uv(folder), str(folder / "uv-cache")
    # A cache of this job alone: uv does not verify again what it finds in one.
    if uv and _run(folder, uv, "pip", "install", "-q", "--python", python, "--cache-dir", cache, *words):
        shutil.rmtree(cache, ignore_errors=True)
        return
    _say("::warning title=vmrag::uv could not install the packages, so pip does, which takes longer.")
    if shelf:
        shutil.rmtree(shelf, ignore_errors=True)
    if not _run(folder, *_PIP, "--python", python, "install", "-q", "--no-compile", *words):
        raise InstallRefused("Neither uv nor pip could install the packages; their own words stand above.")


_PIP = (sys.executable, "-I", "-m", "pip")


def _uv(folder: Path) -> str | None:
    """The runner's own, if it is new enough, or else one that pip brings; None: there is none."""
    own = shutil.which("uv")
    if own and _uv_version(own) >= OLDEST_UV:
        return own
    tools = folder / "uv"
    words = ("install", "-q", "--no-compile", "--require-hashes", "--no-deps", "--target", str(tools))
    return str(tools / "bin" / "uv") if _run(folder, *_PIP, *words, "-r", str(UV_BY_HASH)) else None


def _uv_version(uv: str) -> tuple[int, ...]:
    done = subprocess.run([uv, "--version"], capture_output=True, text=True, check=False)
    found = re.match(r"uv (\d+)\.(\d+)", done.stdout)
    return tuple(map(int, found.groups())) if found and not done.returncode else ()


def _run(folder: Path, *argv: str) -> bool:
    """Whether it succeeded. Outside of the work tree, whose settings uv would read; what it prints
    is no command to the runner; Python stays the one that the workflow asks for.
    """
    token = secrets.token_hex(16)
    _say(f"::stop-commands::{token}")
    environ = os.environ | {"UV_PYTHON_DOWNLOADS": "never"}
    try:
        return subprocess.run(argv, cwd=folder, env=environ, check=False).returncode == 0
    except OSError as error:
        _say(f"{argv[0]}: {error}")
        return False
    finally:
        _say(f"::{token}::")


# -- what the runner reads -------------------------------------------------------------------------


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()  # before what pip prints


def _output(environ: Mapping[str, str], name: str, value: str | bool) -> None:
    text, end = str(value).lower() if isinstance(value, bool) else value, secrets.token_hex(16)
    with Path(environ["GITHUB_OUTPUT"]).open("a", encoding="utf-8") as file:
        file.write(f"{name}<<{end}\n{text}\n{end}\n")


def _require_platform() -> None:
    if sys.platform not in PLATFORMS:
        raise InstallRefused("vmrag runs on Linux and macOS: runs-on must be one of those.")


def main(argv: Sequence[str], environ: Mapping[str, str] = os.environ) -> int:
    step = {"choose": choose_packages, "install": install_packages}[argv[0]]
    try:
        _require_platform()
        step(environ)
    except InstallRefused as error:
        message = str(error).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
        _say(f"::error title=vmrag::{message}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
