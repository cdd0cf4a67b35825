"""Effect of `core.sharedRepository` on vmrag's folders."""

from __future__ import annotations

import stat
import sys

import pytest

from vmrag_link.git.folder_modes import folder_mode

SETGID = stat.S_ISGID if sys.platform == "linux" else 0


@pytest.mark.parametrize(
    ("setting", "mode"),
    [
        (None, 0o700),
        ("group", SETGID | 0o770),
        ("true", SETGID | 0o770),
        ("1", SETGID | 0o770),
        ("0660", SETGID | 0o770),
        ("660", SETGID | 0o770),
        ("0640", SETGID | 0o750),
        ("0600", 0o700),
        ("all", SETGID | 0o775),
        ("world", SETGID | 0o775),
        ("everybody", SETGID | 0o775),
        ("0664", SETGID | 0o775),
        ("umask", None),
        ("false", None),
        ("0", None),
    ],
)
def test_each_shared_repository_setting_gives_the_folder_mode_of_git(setting: str | None, mode: int | None) -> None:
    assert folder_mode(setting) == mode
