"""The time that hooks cost git: idle, against `exit 0` and other tools; and when the pin moves.

The latter is compared with the sync alone.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from bench import knowledge, timing
from bench.switch import remove_views
from bench.timing import Figure, Run, Sample

ADDED = 4.0
MOVED = 1.1
COMMITS = 10
CHECKOUTS = 20
IDLE = {
    "switch": ("a switch between branches with equal pins", 1.1),
    "commit": ("a commit of code alone", 1.35),
    "rebase": ("a ten-commit rebase", 1.1),
    "push": ("a push without a new pin", 1.2),
}
"""Operations in which our hooks have nothing to do, with the limit against `exit 0`."""


def run(folder: Path, rounds: int, env: dict[str, str]) -> list[Figure]:
    repo = knowledge.make(folder, 1_000, env)
    hooks = {name: _hooks(folder, repo, name, env) for name in ("none", "exit 0", "ours", *_others())}
    if "pin/a" not in knowledge.git(repo, "branch", "--list", "pin/*", env=env):
        _branches(repo, env)
    checkout = {name: _checkouts(repo, path, env) for name, path in hooks.items()}
    idle = {
        (what, name): _measure_idle(repo, path, COMMANDS[what], env)
        for what in IDLE
        for name, path in hooks.items()
        if name in ("none", "exit 0", "ours") or what == "rebase"
    }
    return [
        *_added(timing.in_turn(checkout, rounds)),
        *_compared(timing.in_turn(idle, rounds)),
        *_moved(timing.in_turn(_moving(repo, hooks, env), rounds)),
    ]


def _added(timed: dict[str, Sample]) -> list[Figure]:
    """Other tools' hooks are reported beside ours; no limit binds them."""
    seconds = {name: sample.cpu / CHECKOUTS for name, sample in timed.items()}
    plain = seconds["exit 0"] - seconds["none"]
    return [
        Figure(
            f"CPU that {name} adds to git checkout, against `exit 0`",
            (seconds[name] - seconds["none"]) / plain,
            ADDED if name == "ours" else None,
            {case: seconds[case] for case in ("none", "exit 0", name)},
        )
        for name in ("ours", *_others())
    ]


def _compared(timed: dict[tuple[str, str], Sample]) -> list[Figure]:
    """Other tools' hooks are reported next to ours, without a limit."""
    return [
        Figure(
            f"CPU of {IDLE[what][0]} with {name}, against `exit 0`",
            sample.cpu / timed[what, "exit 0"].cpu,
            IDLE[what][1] if name == "ours" else None,
            {other: timed[what, other].cpu for other in ("none", "exit 0", name)},
        )
        for (what, name), sample in timed.items()
        if name not in ("none", "exit 0")
    ]


def _moved(timed: dict[str, Sample]) -> list[Figure]:
    seconds = {name: sample.wall for name, sample in timed.items()}
    ratio = seconds["git checkout with hooks"] / seconds["vmrag sync"]
    return [Figure("a checkout that moves the pin, 100 documents differ, against `vmrag sync`", ratio, MOVED, seconds)]


def _moving(repo: Path, hooks: dict[str, Path], env: dict[str, str]) -> dict[str, Callable[[], Run]]:
    """Switch to `feature`, whose view is missing: with the hook, or by git alone and then
    `vmrag sync`.
    """

    def prepare(path: Path) -> None:
        knowledge.git(repo, "config", "core.hooksPath", str(path), env=env)
        knowledge.git(repo, "switch", "-q", "main", env=env | {"VMRAG": "0"})
        timing.once([*knowledge.VMRAG, "sync", "-q"], cwd=repo, env=env)
        remove_views(repo, knowledge.pinned(repo, "feature", env))

    def hooked() -> Run:
        prepare(hooks["ours"])
        foreground = env | {"VMRAG_HOOKS_SYNC": "foreground", "VMRAG_HOOKS_QUIET": "1"}
        return timing.once(["git", "switch", "-q", "feature"], cwd=repo, env=foreground)

    def synced() -> Run:
        prepare(hooks["none"])
        knowledge.git(repo, "switch", "-q", "feature", env=env)
        return timing.once([*knowledge.VMRAG, "sync", "-q"], cwd=repo, env=env)

    return {"git checkout with hooks": hooked, "vmrag sync": synced}


def _others() -> list[str]:
    return [name for name in ("git-lfs", "pre-commit") if _program(name)]


def _program(name: str) -> str | None:
    return shutil.which(name) or shutil.which(Path(sys.executable).with_name(name))


def _hooks(folder: Path, repo: Path, name: str, env: dict[str, str]) -> Path:
    from vmrag_hooks import shims
    from vmrag_link.git import hook_config

    path = folder / f"hooks-{name.replace(' ', '-')}"
    path.mkdir(exist_ok=True)
    if name in _others():
        _install(repo, name, path, env)
        return path
    (repo / ".git/vmrag/interpreter").write_text(f"{sys.executable}\n")
    for hook in hook_config.HOOKS if name != "none" else ():
        (path / hook).write_bytes(shims.format_shim(hook) if name == "ours" else b"#!/bin/sh\nexit 0\n")
        (path / hook).chmod(0o755)
    knowledge.git(repo, "config", "core.hooksPath", str(path), env=env)
    return path


def _install(repo: Path, name: str, path: Path, env: dict[str, str]) -> None:
    """Another tool's own hooks; pre-commit's configuration has one hook that does nothing."""
    env = env | {"PATH": f"{Path(sys.executable).parent}:{env['PATH']}"}
    plain = repo.with_name("hooks-elsewhere")
    shutil.rmtree(plain, ignore_errors=True)
    plain.mkdir()
    knowledge.git(plain, "init", "-q", env=env)
    if name == "git-lfs":
        timing.once([_program(name), "install", "--local"], cwd=plain, env=env)
    else:
        (repo / ".pre-commit-config.yaml").write_text(NOTHING)
        (repo / ".git/info/exclude").write_text("done\n.pre-commit-config.yaml\n")
        kinds = ("post-checkout", "post-merge", "post-rewrite", "post-commit", "pre-commit")
        timing.once([_program(name), "install", *(f"--hook-type={kind}" for kind in kinds)], cwd=plain, env=env)
    for hook in (plain / ".git/hooks").iterdir():
        if hook.suffix != ".sample":
            shutil.copy2(hook, path / hook.name)


NOTHING = """repos:
- repo: local
  hooks:
  - {id: nothing, name: nothing, language: system, entry: "true", always_run: true, pass_filenames: false,
     stages: [post-checkout, post-merge, post-rewrite, post-commit, pre-commit]}
"""


def _branches(repo: Path, env: dict[str, str]) -> None:
    """Branches with one pin: `pin/a` and `pin/b` to switch between, `pin/topic` of ten commits to
    rebase.
    """
    knowledge.git(repo, "switch", "-q", "main", env=env)
    for name in ("pin/a", "pin/b", "pin/topic"):
        knowledge.git(repo, "switch", "-q", "-c", name, "main", env=env)
        for number in range(COMMITS if name == "pin/topic" else 1):
            (repo / f"{name.removeprefix('pin/')}-{number}").write_text("code")
            knowledge.git(repo, "add", "-A", env=env)
            knowledge.git(repo, "commit", "-q", "-m", f"{name} {number}", env=env)
    knowledge.git(repo, "switch", "-q", "main", env=env)


def _checkouts(repo: Path, hooks: Path, env: dict[str, str]):
    """Detached heads with one pin: HEAD's name and the pin stay as applied."""

    def measure() -> Run:
        knowledge.git(repo, "-c", "core.hooksPath=/dev/null", "checkout", "-q", "--detach", "pin/a", env=env)
        _apply(repo)
        script = "git checkout -q --detach pin/b; git checkout -q --detach pin/a; " * (CHECKOUTS // 2)
        knowledge.git(repo, "config", "core.hooksPath", str(hooks), env=env)
        return timing.once(["sh", "-ec", script], cwd=repo, env=env)

    return measure


def _repeat_command(command: str) -> str:
    return "".join(f"{command}; ".replace("@", str(number)) for number in reversed(range(COMMITS)))


COMMANDS = {
    "switch": "git switch -q pin/a; git switch -q work; " * COMMITS,
    "commit": _repeat_command("echo @ >topic-0; git commit -q -a -m @"),
    "rebase": "git rebase -q pin/b",
    "push": _repeat_command("git push -q origin pin/topic~@:refs/heads/work"),
}


def _measure_idle(repo: Path, hooks: Path, command: str, env: dict[str, str]) -> Callable[[], Run]:
    remote = repo.with_name("remote.git")

    def measure() -> Run:
        silent = env | {"VMRAG": "0"}
        knowledge.git(repo, "config", "core.hooksPath", "/dev/null", env=env)
        knowledge.git(repo, "switch", "-q", "-C", "work", "pin/topic", env=silent)
        if not remote.exists():
            knowledge.git(repo, "init", "-q", "--bare", str(remote), env=silent)
            knowledge.git(repo, "config", "remote.origin.url", str(remote), env=silent)
        knowledge.git(repo, "push", "-q", "-f", "origin", "pin/topic~9:refs/heads/work", env=silent)
        _apply(repo)
        knowledge.git(repo, "config", "core.hooksPath", str(hooks), env=env)
        return timing.once(["sh", "-ec", command], cwd=repo, env=env)

    return measure


def _apply(repo: Path) -> None:
    """Note HEAD and pin as applied, as the last sync would have."""
    from vmrag_link.git import plumbing
    from vmrag_link.sync import binding, target

    places = plumbing.locate_work_tree(repo)
    binding.note_applied(places, target.read_trigger(places))
