"""`git mergetool` on texts that are no files of the repository.

git knows dozens of tools and how each is called, so it is given what it expects: a repository with
one file in conflict.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from vmrag_link import env, proc
from vmrag_link.errors import GitFailed
from vmrag_link.git.run import demand
from vmrag_link.paths import Places


def merge(places: Places, name: str, versions: Sequence[str], *, tool: str = "") -> str | None:
    """Open base, ours and theirs in a merge tool, on this terminal; None if nothing was merged.

    The settings of the repository at `places` count (`merge.tool`, `mergetool.*`). Raises
    `GitFailed` where there is no such tool.
    """
    with tempfile.TemporaryDirectory() as folder:
        top = Path(folder) / "merge"
        top.mkdir()
        own = Places(top, top / ".git", top / ".git")
        demand(own, "init", "--quiet", "--template=", str(top))
        demand(own, "config", "include.path", str(places.common / "config"))
        demand(own, "config", "core.autocrlf", "false")
        demand(own, "config", "core.bare", "false")
        blobs = [demand(own, "hash-object", "-w", "--stdin", stdin=each.encode()).text.strip() for each in versions]
        entries = "".join(f"100644 {blob} {stage}\t{name}\0" for stage, blob in enumerate(blobs, 1))
        demand(own, "update-index", "-z", "--index-info", stdin=entries.encode())
        demand(own, "checkout", "--merge", "--", name)
        chosen = [f"--tool={tool}"] if tool else []
        code = proc.attended(
            ["git", "mergetool", "--no-prompt", *chosen, "--", name], cwd=top, env=env.without(env.GIT_SCRUBBED)
        )
        if demand(own, "ls-files", "--unmerged", "-z", "--", name).stdout:
            if code:
                raise GitFailed(
                    f"git mergetool ended with exit code {code}.",
                    hint="git mergetool --tool-help   (shows the tools)",
                    exit_code=code,
                )
            return None
        return (top / name).read_bytes().decode()
