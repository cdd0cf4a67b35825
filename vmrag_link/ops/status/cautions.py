"""What a person should know before the next push: hooks that git does not run here, and knowledge
that is not where its code is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from vmrag_link import env
from vmrag_link.errors import DOLTLITE_PATH_BYTES, FileFailed, VmragError, first_of, is_too_long, path_too_long, plural
from vmrag_link.git import plumbing
from vmrag_link.models import Record
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.remotes.unpushed import UnpushedPin, list_unpushed

if TYPE_CHECKING:
    from vmrag_link.git.hooks import MissingHooks

_EFFECT = {"pre-push": "a push takes no knowledge along", "post-checkout": "a checkout does not move it"}
_NAMED = 3
_SOME_REMOTE = "git-0123456789abcdef/remote.doltlite"


class Caution(Record, frozen=True):
    """`hint` is a command."""

    code: Literal["HOOKS_MISSING", "KNOWLEDGE_NOT_PUSHED"]
    message: str
    hint: str

    @property
    def sentence(self) -> str:
        return f"{self.message} Next: {self.hint}"


def list_cautions(ws: Workspace) -> tuple[Caution, ...]:
    """Nothing where the code pins no knowledge. Asks no network."""
    found = (find_missing_hooks(ws), build_not_pushed(ws, list_unpushed(ws) if _pins_knowledge(ws) else ()))
    return tuple(each for each in found if each)


def list_unsent(ws: Workspace) -> tuple[UnpushedPin, ...]:
    """As `unpushed`, for the end of every command and call, whatever it was about: where nothing
    is missing, no process says so. What cannot be looked at, `vmrag status` says.
    """
    try:
        return list_unpushed(ws) if _pins_knowledge(ws) else ()
    except VmragError:
        return ()


def _pins_knowledge(ws: Workspace) -> bool:
    return ws.is_initialized and plumbing.read_pin_bytes(ws.places) is not None


def check_path_length(ws: Workspace) -> FileFailed | None:
    """Return an error if the path of the repository is too long for the copies of remotes."""
    copy = ws.places.remotes / _SOME_REMOTE
    if not is_too_long(copy, most=DOLTLITE_PATH_BYTES):
        return None
    error = path_too_long(copy, most=DOLTLITE_PATH_BYTES)
    return FileFailed(f"Documents cannot be pushed or fetched here: {error.message}.", hint=error.hint)


def find_missing_hooks(ws: Workspace) -> Caution | None:
    """Looks at files only. Nothing where the code pins no knowledge; nothing with `VMRAG=0`: then
    they would do nothing anyway. Nothing in a job of GitHub Actions: its checkout has none, and the
    Action verifies.
    """
    if env.are_hooks_off() or env.in_github_actions() or not _pins_knowledge(ws):
        return None
    from vmrag_link.git import hooks

    gone = hooks.find_missing_hooks(ws.places)
    if gone is None:
        return None
    return Caution("HOOKS_MISSING", f"{_sentence(gone)}{_effect(gone)}", _command(ws, gone))


def needs_hooks_for_files(ws: Workspace) -> bool:
    """Return True if only Chroma's store needs hooks, because no documents are stored."""
    if not ws.stores_nothing:
        return False
    chroma = ws.chroma.local  # it reads the settings, which may be what is broken
    return chroma.is_set and bool(chroma.rules)


def misses_hooks_for_files(ws: Workspace) -> bool:
    """Return True if a hook is not installed that only Chroma's store needs, although the user did
    not refuse it.
    """
    if env.are_hooks_off() or env.in_github_actions() or not needs_hooks_for_files(ws):
        return False
    from vmrag_link.git import hook_config, hooks

    folder = hooks.find_hooks_folder(ws.places)
    return any(
        hook in hook_config.SYNCING and not hooks.runs_hook(ws.places, folder, hook)
        for hook in hook_config.list_chosen_hooks(ws.places)
    )


def _sentence(gone: MissingHooks) -> str:
    names = ", ".join(gone.hooks)
    if gone.why == "elsewhere":
        return "vmrag's git hooks act in other work trees only"
    if gone.why == "bypassed":
        return f"git looks for hooks in {gone.folder} by now, where vmrag's are not"
    if gone.why == "replaced":
        return f"{gone.tool[0].upper()}{gone.tool[1:]} has written over these git hooks of vmrag's: {names}"
    if gone.why == "older":
        return f"vmrag's git hooks are in git's configuration, from which {gone.git} runs none"
    if gone.why in ("some", "disabled"):
        return f"git does not run these hooks of vmrag's: {names}"
    return "vmrag's git hooks are not installed in this clone"


def _effect(gone: MissingHooks) -> str:
    effects = [effect for hook, effect in _EFFECT.items() if hook in gone.hooks]
    return f": {', and '.join(effects)}." if effects else "."


def _command(ws: Workspace, gone: MissingHooks) -> str:
    from vmrag_link.git import hook_config

    if gone.why == "elsewhere":
        return "vmrag install --worktree"
    ours = gone.why == "older" or gone.folder == str(ws.places.common / "hooks")
    usual = ours or gone.tool in ("husky", "lefthook", "pre-commit")
    # What else core.hooksPath may name, installing may refuse: that says what to do instead.
    return hook_config.format_install_command(ws.places) if usual else "vmrag doctor"


def build_not_pushed(ws: Workspace, found: tuple[UnpushedPin, ...]) -> Caution | None:
    if not found:
        return None
    names = first_of([each.ref for each in found], _NAMED)
    revisions = {each.revision: each.remote for each in found}
    which = f"revision {found[0].revision[:7]}" if len(revisions) == 1 else plural(len(revisions), "revision")
    here = ws.read_trigger().branch or ""
    alone = all(each.ref.partition("/")[2] == here for each in found)
    return Caution(
        "KNOWLEDGE_NOT_PUSHED",
        f"{names}: the code that was pushed there pins {which} of the knowledge, which was not pushed to "
        f"{' and '.join(dict.fromkeys(revisions.values()))}.",
        "vmrag push" if alone else "vmrag push --all",
    )
