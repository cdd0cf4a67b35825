"""`python -m bench.extras [EXTRA …]`: what installing costs, written into docs/installing.md.

Each extra of a wheel that is built first, in an environment of its own: with pip, as a person does,
and with uv. Nothing comes from a cache unless it says so. Then an MCP client starts the server by
`uvx`, with an empty cache and once more. Needs `uv` beside this Python, and the package index.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "installing.md"
BEGIN, END = "<!-- what installing costs -->\n", "<!-- end of what installing costs -->"
TOOLS = Path(sys.executable).parent
BROUGHT = {"pip", "setuptools"}
"""What `python -m venv` puts into an environment by itself."""
SHOWN = ("", "index", "web", "report", "pdf", "code", "mcp", "chroma", "dolt", "minilm", "convert", "action", "all")


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("extras", nargs="*", default=SHOWN)
    extras = parser.parse_args(argv).extras
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(SHOWN) == {"", *declared} - {"dev"}
    with tempfile.TemporaryDirectory(prefix="vmrag-extras-") as made:
        home = Path(made)
        _run([sys.executable, "-m", "build", "--no-isolation", "--wheel", str(ROOT), "--outdir", str(home / "dist")])
        [wheel] = (home / "dist").glob("*.whl")
        rows = [_row(extra, wheel, home) for extra in extras]
        seconds = _initialized(wheel, home) if tuple(extras) == SHOWN else None
    table = ["| extra | packages | MB | seconds, pip | seconds, uv |", "|---|---|---|---|---|", *rows]
    print("\n".join(table))
    if seconds:
        text = (
            f"The server's first answer to a client (`uvx --from 'vmrag-link[mcp]' vmrag-mcp`) takes {seconds[0]:.1f} s where uv's\n"
            f"cache is empty, {seconds[1]:.1f} s afterwards."
        )
        print(text)
        whole = PAGE.read_text()
        before, _, rest = whole.partition(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}\n{chr(10).join(table)}\n\n{text}\n\n{END}{rest.partition(END)[2]}")


def _row(extra: str, wheel: Path, home: Path) -> str:
    """Numbers with `python -m venv`'s own pip, which counts in MB and not as a package."""
    wanted = f"{wheel}[{extra}]" if extra else str(wheel)
    environment = home / f"env-{extra}"
    _run([sys.executable, "-m", "venv", str(environment)])
    pip = _timed([str(environment / "bin" / "pip"), "install", "-q", "--no-cache-dir", wanted])
    names = {path.name.partition("-")[0] for path in environment.rglob("*.dist-info")} - BROUGHT
    size = sum(path.lstat().st_size for path in environment.rglob("*") if path.is_file())
    _run(["rm", "-rf", str(environment)])
    _run([str(TOOLS / "uv"), "venv", "-q", str(environment)])
    cache = home / f"cache-{extra}"
    uv = [str(TOOLS / "uv"), "pip", "install", "-q", "--cache-dir", str(cache), "--python", str(environment), wanted]
    took = _timed(uv)
    _run(["rm", "-rf", str(environment), str(cache)])
    title = f"`[{extra}]`" if extra else "none"
    return f"| {title} | {len(names)} | {size / 1e6:.0f} | {pip:.0f} | {took:.0f} |"


def _initialized(wheel: Path, home: Path) -> list[float]:
    """Seconds from the start of `uvx` to the answer of `initialize`: first and second time."""
    project = home / "project"
    _run(["git", "init", "-q", str(project)])
    environ = os.environ | {"UV_CACHE_DIR": str(home / "uvx"), "HOME": str(home)}
    return [_first_answer(f"{wheel}[mcp]", project, environ) for _ in range(2)]


def _first_answer(wanted: str, project: Path, environ: dict[str, str]) -> float:
    params = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}
    asked = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    argv = [str(TOOLS / "uvx"), "-q", "--from", wanted, "vmrag-mcp"]
    begun = time.monotonic()
    with subprocess.Popen(argv, cwd=project, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdin
        assert server.stdout
        server.stdin.write(json.dumps(asked).encode() + b"\n")
        server.stdin.flush()
        answer = json.loads(server.stdout.readline())
        took = time.monotonic() - begun
        assert answer["result"]["serverInfo"]["name"], answer
        server.stdin.close()
    return took


def _timed(argv: list[str]) -> float:
    begun = time.monotonic()
    _run(argv)
    return time.monotonic() - begun


def _run(argv: list[str]) -> None:
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
