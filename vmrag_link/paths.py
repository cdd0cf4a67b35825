"""Where everything lies. Pure names: nothing here looks at the disk, except `write_atomically`."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

PIN_NAME = ".dolt-version"
CONFIG_NAME = ".vmrag.yaml"


@dataclass(frozen=True, slots=True)
class Places:
    """The folders of one git work tree: `top`, its own `git_dir`, and `common`, which all worktrees share."""

    top: Path
    git_dir: Path
    common: Path

    @property
    def pin(self) -> Path:
        return self.top / PIN_NAME

    @property
    def config(self) -> Path:
        return self.top / CONFIG_NAME

    # -- shared by all worktrees

    @property
    def shared(self) -> Path:
        return self.common / "vmrag"

    @property
    def kb(self) -> Path:
        return self.shared / "kb"

    @property
    def snapshots(self) -> Path:
        return self.shared / "snapshots"

    @property
    def embeddings(self) -> Path:
        return self.shared / "embeddings.sqlite"

    @property
    def interpreter(self) -> Path:
        return self.shared / "interpreter"

    @property
    def locks(self) -> Path:
        return self.shared / "locks"

    @property
    def journal(self) -> Path:
        return self.shared / "journal"

    @property
    def logs(self) -> Path:
        return self.shared / "logs"

    # -- of this work tree

    @property
    def own(self) -> Path:
        return self.git_dir / "vmrag"

    @property
    def applied(self) -> Path:
        return self.own / "applied"

    @property
    def workspace(self) -> Path:
        return self.own / "workspace.json"

    @property
    def workspace_lock(self) -> Path:
        return self.own / "workspace.lock"

    @property
    def working_copy(self) -> Path:
        return self.own / "working"


def write_atomically(path: Path, content: bytes, *, durable: bool = False) -> None:
    """Replace a file in one step; readers see the old or the new bytes. `durable`: survives a power cut on return."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as out:
            out.write(content)
            if durable:
                out.flush()
                os.fsync(out.fileno())
        Path(temporary).chmod(0o666 & ~_umask())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    if durable:
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current
