"""Write a log to attach to a bug report."""

from __future__ import annotations

import datetime as dt
import platform
import tempfile
import traceback
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from vmrag_link import __version__, permissions
from vmrag_link.errors import WRITABLE_TMPDIR, VmragError
from vmrag_link.git import plumbing
from vmrag_link.git.remotes import redact_text


def write_log(error: BaseException, argv: Sequence[str]) -> Path | None:
    """Write the log and return its path; None if it cannot be written.

    It is in the repository that `-C` names, or else in the temporary directory.
    """
    now = dt.datetime.now(dt.UTC)
    name = f"vmrag-bug-{now:%Y%m%dT%H%M%S%f}.log"
    lines = [
        f"vmrag {__version__}, Python {platform.python_version()}, {platform.platform()}",
        f"{now:%Y-%m-%dT%H:%M:%SZ}  vmrag {' '.join(argv)}",
        "",
        *traceback.format_exception(error),
    ]
    # Arguments and messages may contain invalid UTF-8, and URLs with a password.
    text = redact_text("\n".join(lines)).encode(errors="backslashreplace")
    try:
        start = Path.cwd().joinpath(*(folder for option, folder in pairwise(argv) if option == "-C"))
        path = plumbing.locate_work_tree(start).logs / name
        permissions.make_file(path)
        path.write_bytes(text)
    except (VmragError, OSError):
        # Every user may write there, so the file needs a random name, at which no other user can
        # have placed a link, and must be readable only by this user.
        try:
            descriptor, name_of_file = tempfile.mkstemp(prefix=f"{Path(name).stem}-", suffix=".log")
            with open(descriptor, "wb") as file:  # noqa: PTH123  a descriptor has no path
                file.write(text)
        except OSError:
            return None
        path = Path(name_of_file)
    return path


def suggest_report(path: Path | None) -> str:
    """Return what the user can do about a bug with this log."""
    if path is None:
        return WRITABLE_TMPDIR
    return f"report it with this file: {path}"
