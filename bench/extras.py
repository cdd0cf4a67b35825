"""`python -m bench.extras [EXTRA …]`: what installing costs, written into bench/README.md.

Each extra of a wheel that is built first, in an environment of its own: with pip, as a person does,
and with uv. No step uses a cache unless its row mentions the cache. Before each extra, numpy alone
is installed in the same way, so that the ratio does not depend on the network and the machine's
load. Then an MCP client starts the server by `uvx`, with an empty cache and once more. If you pass
EXTRA, only the rows of these extras change. Needs `uv` beside this Python, and the package index.

`python -m bench.extras --modes`: what the Action's steps `choose` and `install` take for each mode,
written into bench/README.md: on a runner without uv whose caches are empty, and on one that gets
the packages out of the workflow's cache, packed as actions/cache packs them (needs zstd). The
download of the cache is not measured.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Sequence
from pathlib import Path

from vmrag_action import install, packages

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "bench" / "README.md"
MARK = "what installing costs"
MARK_OF_MODES = "what the Action installs"
TOOLS = Path(sys.executable).parent
BROUGHT = {"pip", "setuptools"}
"""Packages that `python -m venv` installs into each environment."""
ROUNDS = 3
TOGETHER = ("link,verify", "repair,update", "sync,check", "report")
"""Modes that need the same."""
SHOWN = (
    *("", "index", "web", "report", "pdf", "code", "mcp", "chroma", "dolt"),
    *("minilm", "convert", "langchain", "llama-index", "action", "all"),
)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("extras", nargs="*", default=SHOWN)
    parser.add_argument("--modes", action="store_true")
    given = parser.parse_args(argv)
    if given.modes:
        _measure_modes()
        return
    extras = given.extras
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(SHOWN) == {"", *declared} - {"dev"}
    with tempfile.TemporaryDirectory(prefix="vmrag-extras-") as made:
        home = Path(made)
        _run([sys.executable, "-m", "build", "--no-isolation", "--wheel", str(ROOT), "--outdir", str(home / "dist")])
        [wheel] = (home / "dist").glob("*.whl")
        rows = [_row(extra, wheel, home) for extra in extras]
        seconds = _initialized(wheel, home) if tuple(extras) == SHOWN else None
    heads = ["extra", "packages", "MB", "seconds, pip", "of numpy's", "seconds, uv"]
    table = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|", *rows]
    print("\n".join(table))
    if seconds:
        text = (
            '"Of numpy\'s": times what `pip install numpy` took just before it, in the same run.\n\n'
            f"The server's first answer to a client (`uvx --from 'vmrag-link[mcp]' vmrag-mcp`) takes {seconds[0]:.1f} s where uv's\n"
            f"cache is empty, {seconds[1]:.1f} s afterwards."
        )
        print(text)
        _write(PAGE, "\n".join([*table, "", text]))
    else:
        new = {_first_cell(row): row for row in rows}
        old = PAGE.read_text().partition(f"<!-- {MARK} -->\n")[2].partition(f"<!-- end of {MARK} -->")[0].strip()
        _write(PAGE, "\n".join(new.get(_first_cell(line), line) for line in old.splitlines()))


def _first_cell(row: str) -> str:
    return row.partition("| ")[2].partition(" |")[0]


def _write(page: Path, text: str, mark: str = MARK) -> None:
    """Replace the text between the two comments with this mark."""
    begin, end = f"<!-- {mark} -->\n", f"<!-- end of {mark} -->"
    before, _, rest = page.read_text().partition(begin)
    page.write_text(f"{before}{begin}\n{text}\n\n{end}{rest.partition(end)[2]}")


def _measure_modes() -> None:
    head = [
        "| mode | packages | MB | first job, s | of which pip brings uv | against `pip install numpy` | later jobs, s |"
    ]
    with tempfile.TemporaryDirectory(prefix="vmrag-modes-") as made:
        rows = [_mode_row(modes, Path(made)) for modes in TOGETHER]
    table = "\n".join([*head, "|---" * 7 + "|", *rows])
    print(table)
    _write(PAGE, table, MARK_OF_MODES)


def _mode_row(modes: str, home: Path) -> str:
    """Medians. Later jobs unpack what the first one packed."""
    seen: dict[str, list[float]] = {"numpy": [], "uv": [], "cold": [], "later": []}
    environ = _without_uv(home) | {"INPUT_MODE": modes}
    shelf, archive = install.packages_folder(environ), home / "cache.tzst"
    for _ in range(ROUNDS):
        shutil.rmtree(home / "temp", ignore_errors=True)
        (home / "temp").mkdir()
        seen["numpy"].append(_timed([*PIP, "--no-cache-dir", "--target", str(home / "temp" / "numpy"), "numpy"]))
        uv = ["--no-deps", "--require-hashes", "--target", str(home / "temp" / "uv"), "-r", str(install.UV_BY_HASH)]
        seen["uv"].append(_timed([*PIP, "--no-cache-dir", *uv]))
        seen["cold"].append(sum(_timed(step, environ) for step in STEPS))
        size = sum(path.lstat().st_size for path in shelf.rglob("*") if path.is_file())
        _run(["tar", "--use-compress-program", "zstd -T0", "-C", str(shelf.parent), "-cf", str(archive), shelf.name])
        shutil.rmtree(shelf)
        shutil.rmtree(install.action_folder(environ))
        unpack = ["tar", "--use-compress-program", "zstd -d", "-C", str(shelf.parent), "-xf", str(archive)]
        seen["later"].append(_timed(STEPS[0], environ) + _timed(unpack) + _timed(STEPS[1], environ))
    took = {name: statistics.median(seconds) for name, seconds in seen.items()}
    title = ", ".join(f"`{mode}`" for mode in modes.split(","))
    count = len(packages.list_package_names(packages.list_mode_extras(modes.split(","))))
    return (
        f"| {title} | {count} | {size / 1e6:.0f}, packed {archive.stat().st_size / 1e6:.0f} | {took['cold']:.1f} | {took['uv']:.1f} | "
        f"{took['cold'] / took['numpy']:.2f} ({took['numpy']:.1f} s) | {took['later']:.1f} |"
    )


PIP = [sys.executable, "-I", "-m", "pip", "install", "-q", "--no-compile"]
STEPS = [[sys.executable, "-I", install.__file__, step] for step in ("choose", "install")]


def _without_uv(home: Path) -> dict[str, str]:
    """Return the environment of a hosted runner on which neither pip nor uv has a cache."""
    path = [folder for folder in os.environ["PATH"].split(os.pathsep) if not (Path(folder) / "uv").exists()]
    variables = {"RUNNER_TEMP": str(home / "temp"), "GITHUB_OUTPUT": str(home / "output"), "PIP_NO_CACHE_DIR": "1"}
    return os.environ | variables | {"PATH": os.pathsep.join(path), "HOME": str(home)}


def _row(extra: str, wheel: Path, home: Path) -> str:
    """Numbers with `python -m venv`'s own pip, which counts in MB and not as a package."""
    requirement = f"{wheel}[{extra}]" if extra else str(wheel)
    environment = home / f"env-{extra}"
    numpy = _by_pip(home / "env-numpy", "numpy")
    _run(["rm", "-rf", str(home / "env-numpy")])
    pip = _by_pip(environment, requirement)
    names = {path.name.partition("-")[0] for path in environment.rglob("*.dist-info")} - BROUGHT
    size = sum(path.lstat().st_size for path in environment.rglob("*") if path.is_file())
    _run(["rm", "-rf", str(environment)])
    _run([str(TOOLS / "uv"), "venv", "-q", str(environment)])
    cache = home / f"cache-{extra}"
    options = ["--cache-dir", str(cache), "--python", str(environment)]
    uv = [str(TOOLS / "uv"), "pip", "install", "-q", *options, requirement]
    took = _timed(uv)
    _run(["rm", "-rf", str(environment), str(cache)])
    title = f"`[{extra}]`" if extra else "none"
    return f"| {title} | {len(names)} | {size / 1e6:.0f} | {pip:.0f} | {pip / numpy:.1f} | {took:.0f} |"


def _by_pip(environment: Path, requirement: str) -> float:
    """Seconds, in an environment that is made for it first."""
    _run([sys.executable, "-m", "venv", str(environment)])
    return _timed([str(environment / "bin" / "pip"), "install", "-q", "--no-cache-dir", requirement])


def _initialized(wheel: Path, home: Path) -> list[float]:
    """Seconds from the start of `uvx` to the answer of `initialize`: first and second time."""
    project = home / "project"
    _run(["git", "init", "-q", str(project)])
    environ = os.environ | {"UV_CACHE_DIR": str(home / "uvx"), "HOME": str(home)}
    return [_first_answer(f"{wheel}[mcp]", project, environ) for _ in range(2)]


def _first_answer(requirement: str, project: Path, environ: dict[str, str]) -> float:
    params = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}
    request = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    argv = [str(TOOLS / "uvx"), "-q", "--from", requirement, "vmrag-mcp"]
    begun = time.monotonic()
    with subprocess.Popen(argv, cwd=project, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdin
        assert server.stdout
        server.stdin.write(json.dumps(request).encode() + b"\n")
        server.stdin.flush()
        answer = json.loads(server.stdout.readline())
        took = time.monotonic() - begun
        assert answer["result"]["serverInfo"]["name"], answer
        server.stdin.close()
    return took


def _timed(argv: list[str], environ: dict[str, str] | None = None) -> float:
    begun = time.monotonic()
    _run(argv, environ)
    return time.monotonic() - begun


def _run(argv: list[str], environ: dict[str, str] | None = None) -> None:
    subprocess.run(argv, env=environ, check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
