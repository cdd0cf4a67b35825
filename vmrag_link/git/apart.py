"""A repository beside ours for what strangers made: it sees our objects and our configuration, and nothing of it gets into ours."""

from __future__ import annotations

from pathlib import Path

from vmrag_link.git.run import demand, failure, git_in
from vmrag_link.paths import Places

_SETTINGS = "[core]\n\tbare = true\n\thooksPath = /dev/null\n[transfer]\n\tfsckObjects = true\n"


def make(places: Places, folder: Path) -> Places:
    """A bare repository in an empty directory. git runs in our work tree all the same: remotes may have paths relative to it."""
    kind = demand(places, "rev-parse", "--show-object-format").text.strip()
    apart = Places(places.top, folder, folder)
    arguments = ("init", "--quiet", "--bare", "--template=", f"--object-format={kind}", str(folder))
    done = git_in(folder, *arguments)
    if done.returncode != 0:
        raise failure(arguments, done)
    own = folder / "config.own"
    own.write_text(_SETTINGS)
    # What is set for our repository alone, credentials and proxies among it, counts here, too; what is read later counts more.
    for each in (places.common / "config", own):
        demand(apart, "config", "--local", "--add", "include.path", str(each))
    if not (places.common / "shallow").exists():  # git takes what such a clone has for whole histories
        alternates = folder / "objects" / "info" / "alternates"
        alternates.parent.mkdir(exist_ok=True)
        alternates.write_text(f"{places.common / 'objects'}\n")
    return apart
