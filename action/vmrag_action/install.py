"""Install the packages that the mode needs into their own environment: `python -I install.py STEP`.

It runs by its path and uses only the standard library, because nothing is installed yet. `choose`
selects the packages, and prints the keys of the workflow's cache. `install` creates the
environment. The packages are in a folder of their own, the *shelf*, which the workflow caches.
Without the input `version`, the environment runs this checkout in place, next to packages of exact
versions with verified hashes. So `uses: …@<sha>` names what runs, whatever a cache contains.
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

if __name__ == "__main__":  # isolated: modules next to this file are not found
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from vmrag_action import caches, packages

UV_BY_HASH = packages.ROOT / ".ci" / "uv.txt"
OLDEST_UV = (0, 5)

COMMANDS = ("vmrag", "vmrag-mcp")
MARKER = "installed"
PLATFORMS = ("linux", "darwin")

_PIP = (sys.executable, "-I", "-m", "pip")
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
    """An invalid input, or a failed installation, as a sentence."""


class InstallRequest(NamedTuple):
    """The packages to install: a version from the index, or packages for this checkout."""

    version: str
    extras: tuple[str, ...]

    @property
    def requirements(self) -> str:
        """The lines for `pip install -r`. For a version, pip chooses the dependencies."""
        extras = ",".join(("action", *self.extras))
        return f"vmrag-link[{extras}]=={self.version}\n" if self.version else packages.format_requirements(self.extras)

    @property
    def digest(self) -> str:
        """A hash of the packages and of everything that selects their files."""
        machine = (sys.version, sysconfig.get_platform(), platform.libc_ver(), platform.mac_ver()[0])
        return hashlib.sha256(repr((machine, self.requirements)).encode()).hexdigest()


def action_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of this Action on the runner, which is emptied after each job."""
    return Path(environ["RUNNER_TEMP"]) / "vmrag-action"


def packages_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the shelf: the folder of the packages, which the workflow caches."""
    return Path(environ["RUNNER_TEMP"]) / "vmrag-packages"


# -- the request ----------------------------------------------------------------------------------


def read_request(environ: Mapping[str, str]) -> InstallRequest:
    """Return what this use of the Action needs.

    Packages of an earlier use in the job stay.
    """
    version = parse_version(environ.get("INPUT_VERSION", "").strip())
    modes = [mode.strip() for mode in (environ.get("INPUT_MODE", "").strip() or "sync").split(",")]
    comments = environ.get("INPUT_COMMENT") == "true" and environ.get("GITHUB_EVENT_NAME") == "workflow_run"
    # A job that only writes the comment of another job's report needs no extras of the modes.
    mode_extras = {"web"} if comments else packages.list_mode_extras(modes)
    extras = mode_extras.union(parse_extras(environ.get("INPUT_EXTRAS", "")))
    if environ.get("INPUT_CHROMA") == "true":
        extras.add("chroma")
    earlier = _read_mark(action_folder(environ)).rpartition(" ")[2].split(",")
    return InstallRequest(version, tuple(sorted(extras.union(filter(None, earlier)))))


def parse_version(text: str) -> str:
    """Return the input `version`. Raises `InstallRefused` unless it is exact or empty."""
    if text and not _VERSION.fullmatch(text):
        raise InstallRefused(
            f"version must be an exact version such as 0.2.0, or empty for the Action's own; found {text!r}."
        )
    return text


def parse_extras(text: str) -> list[str]:
    """Return the names in the input `extras`. Raises `InstallRefused` for an unknown name."""
    names = text.replace(",", " ").split()
    offered = packages.list_offered_extras()
    if unknown := [name for name in names if name not in offered]:
        raise InstallRefused(f"extras may be {', '.join(offered)}; found {', '.join(map(repr, unknown))}.")
    return names


def mark_packages(shelf: Path, request: InstallRequest) -> None:
    """Record which packages are installed, after the installation of all."""
    (shelf / MARKER).write_text(request.digest)


def mark_environment(folder: Path, request: InstallRequest) -> None:
    (folder / MARKER).write_text(_mark_of_environment(request))


def _mark_of_environment(request: InstallRequest) -> str:
    """Return a text that identifies the packages, the checkout that runs next to them, and the
    extras.
    """
    return f"{request.digest} {packages.ROOT} {','.join(request.extras)}"


def _read_mark(folder: Path) -> str:
    marker = folder / MARKER
    return marker.read_text() if marker.is_file() else ""


# -- the steps -------------------------------------------------------------------------------------


def choose_packages(environ: Mapping[str, str]) -> None:
    """Remove outdated packages, and write outputs: the folder of the packages, and their keys in
    the cache.
    """
    request = read_request(environ)
    shelf = packages_folder(environ)
    is_installed = _read_mark(shelf) == request.digest
    if not is_installed:
        shutil.rmtree(shelf, ignore_errors=True)
    enable_cache = environ.get("INPUT_ENABLE_CACHE", "").strip() or "auto"
    reads_cache = caches.decide_access(environ, enable_cache, saves=False).read
    _write_output(environ, "restore", reads_cache and not is_installed and not request.version)
    if not request.version:
        keys = caches.compute_package_keys(environ, request.digest)
        _write_output(environ, "path", str(shelf))
        _write_output(environ, "key", keys.key)
        _write_output(environ, "restore-keys", "\n".join(keys.prefixes))


def install_packages(environ: Mapping[str, str]) -> None:
    """Create the environment, unless an earlier use of the Action in this job created the
    same one.
    """
    request = read_request(environ)
    folder = action_folder(environ)
    shelf = packages_folder(environ)
    fresh = False
    if _read_mark(folder) != _mark_of_environment(request):
        shutil.rmtree(folder, ignore_errors=True)
        venv.create(folder / "venv", symlinks=True)
        if request.version:
            _install_with(folder, request)
        else:
            fresh = _read_mark(shelf) != request.digest
            if fresh:
                _install_with(folder, request, shelf)
                mark_packages(shelf, request)
            _run_from_here(folder / "venv", shelf)
        # Not the environment's own folder, which would put its `python` before the job's.
        commands = folder / "bin"
        commands.mkdir()
        for name in COMMANDS:
            (commands / name).symlink_to(folder / "venv" / "bin" / name)
        mark_environment(folder, request)
    _write_output(environ, "fresh", fresh)


def _run_from_here(environment: Path, shelf: Path) -> None:
    """Let the environment import packages from `shelf`, and vmrag from this checkout."""
    site_packages = sysconfig.get_path("purelib", "venv", {"base": str(environment), "platbase": str(environment)})
    (Path(site_packages) / "vmrag.pth").write_text(
        "".join(f"{folder}\n" for folder in (shelf, *packages.list_package_folders()))
    )
    for name in COMMANDS:
        module, function = packages.find_entry_point(name)
        script = environment / "bin" / name
        script.write_text(_COMMAND.format(python=environment / "bin" / "python", module=module, function=function))
        script.chmod(0o755)


# -- uv, or else pip -------------------------------------------------------------------------------


def _install_with(folder: Path, request: InstallRequest, shelf: Path | None = None) -> None:
    """Install the packages on a shelf, or else into the environment in `folder`."""
    requirements = folder / "requirements.txt"
    requirements.write_text(request.requirements)
    options = ["-r", str(requirements)]
    if shelf:
        options += ["--require-hashes", "--no-deps", "--target", str(shelf)]
    python = str(folder / "venv" / "bin" / "python")
    uv = _find_uv(folder)
    cache = str(folder / "uv-cache")
    # A cache only of this job, because uv does not verify the content of a cache again.
    if uv and _run_program(folder, uv, "pip", "install", "-q", "--python", python, "--cache-dir", cache, *options):
        shutil.rmtree(cache, ignore_errors=True)
        return
    _print_line("::warning title=vmrag::uv could not install the packages, so pip installs them, which takes longer.")
    if shelf:
        shutil.rmtree(shelf, ignore_errors=True)
    if not _run_program(folder, *_PIP, "--python", python, "install", "-q", "--no-compile", *options):
        raise InstallRefused("Neither uv nor pip could install the packages. Their output is above.")


def _find_uv(folder: Path) -> str | None:
    """Return the runner's own uv if it is new enough, or else one that pip installs; None if pip
    fails.
    """
    runner_uv = shutil.which("uv")
    if runner_uv and _uv_version(runner_uv) >= OLDEST_UV:
        return runner_uv
    tools = folder / "uv"
    command = ("install", "-q", "--no-compile", "--require-hashes", "--no-deps", "--target", str(tools))
    return str(tools / "bin" / "uv") if _run_program(folder, *_PIP, *command, "-r", str(UV_BY_HASH)) else None


def _uv_version(uv: str) -> tuple[int, ...]:
    result = subprocess.run([uv, "--version"], capture_output=True, text=True, check=False)
    match = re.match(r"uv (\d+)\.(\d+)", result.stdout)
    return tuple(map(int, match.groups())) if match and not result.returncode else ()


def _run_program(folder: Path, *argv: str) -> bool:
    """Run a program, and return whether it succeeded.

    It runs outside the work tree, whose settings uv would read. Its output cannot contain commands
    to the runner. It uses the Python of the workflow.
    """
    token = secrets.token_hex(16)
    _print_line(f"::stop-commands::{token}")
    environ = os.environ | {"UV_PYTHON_DOWNLOADS": "never"}
    try:
        return subprocess.run(argv, cwd=folder, env=environ, check=False).returncode == 0
    except OSError as error:
        _print_line(f"{argv[0]}: {error}")
        return False
    finally:
        _print_line(f"::{token}::")


# -- output for the runner ------------------------------------------------------------------------


def _print_line(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()  # before the output of pip


def _write_output(environ: Mapping[str, str], name: str, value: str | bool) -> None:
    text = str(value).lower() if isinstance(value, bool) else value
    end = secrets.token_hex(16)
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
        _print_line(f"::error title=vmrag::{message}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
