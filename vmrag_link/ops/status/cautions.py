"""Warnings before the next push: hooks that git does not run, and pushed pins without their
revisions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from vmrag_link import env, hints
from vmrag_link.errors import DOLTLITE_PATH_BYTES, FileFailed, VmragError, first_of, is_too_long, path_too_long, plural
from vmrag_link.git import plumbing
from vmrag_link.models import Record
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.remotes.unpushed import UnpushedPin, list_unpushed

if TYPE_CHECKING:
    from vmrag_link.git.hooks import MissingHooks

_EFFECT = {
    "pre-push": "'git push' does not push the knowledge base",
    "post-checkout": "'git checkout' does not move it",
}
_MAX_REFS = 3
_EXAMPLE_COPY = "git-0123456789abcdef/remote.doltlite"
"""The longest path of a remote's copy in the folder of copies."""


class Caution(Record, frozen=True):
    """A warning."""

    code: Literal["HOOKS_MISSING", "KNOWLEDGE_NOT_PUSHED"]
    message: str
    hint: str

    @property
    def sentence(self) -> str:
        return hints.append_to(self.message, self.hint)


def list_cautions(ws: Workspace) -> tuple[Caution, ...]:
    """Return the warnings, none if the code has no pin. Does not use the network."""
    unpushed = list_unpushed(ws) if _has_pin(ws) else ()
    return tuple(filter(None, (find_missing_hooks(ws), build_not_pushed(ws, unpushed))))


def list_unpushed_quietly(ws: Workspace) -> tuple[UnpushedPin, ...]:
    """Return pushed pins whose revisions no remote has, for the end of every command and call.

    If nothing is missing, this starts no process. Errors are left to `vmrag status`.
    """
    try:
        return list_unpushed(ws) if _has_pin(ws) else ()
    except VmragError:
        return ()


def _has_pin(ws: Workspace) -> bool:
    return ws.is_initialized and plumbing.read_pin_bytes(ws.places) is not None


def check_path_length(ws: Workspace) -> FileFailed | None:
    """Return an error if the path of the repository is too long for the copies of remotes."""
    copy = ws.places.remotes / _EXAMPLE_COPY
    if not is_too_long(copy, max_bytes=DOLTLITE_PATH_BYTES):
        return None
    error = path_too_long(copy, max_bytes=DOLTLITE_PATH_BYTES)
    return FileFailed(f"documents cannot be pushed or fetched here: {error.message}.", hint=error.hint)


def find_missing_hooks(ws: Workspace) -> Caution | None:
    """Return a warning about missing hooks, by reading files only.

    None if the code has no pin, if `VMRAG=0` disables the hooks, or in a job of GitHub Actions,
    whose checkout has no hooks and where the Action verifies.
    """
    if env.are_hooks_off() or env.in_github_actions() or not _has_pin(ws):
        return None
    from vmrag_link.git import hooks

    missing = hooks.find_missing_hooks(ws.places)
    if missing is None:
        return None
    return Caution(
        "HOOKS_MISSING", f"{_describe_missing_hooks(missing)}{_describe_effect(missing)}", _form_hint(ws, missing)
    )


def needs_hooks_for_files(ws: Workspace) -> bool:
    """Return True if only Chroma's store needs hooks, because no documents are stored."""
    if not ws.stores_nothing:
        return False
    chroma = ws.chroma.local  # this reads the settings, which may be invalid
    return chroma.is_set and bool(chroma.rules)


def misses_hooks_for_files(ws: Workspace) -> bool:
    """Return True if a hook is not installed that only Chroma's store needs.

    A hook that the user refused is not counted.
    """
    if env.are_hooks_off() or env.in_github_actions() or not needs_hooks_for_files(ws):
        return False
    from vmrag_link.git import hook_choice, hook_config, hooks

    folder = hooks.find_hooks_folder(ws.places)
    return any(
        hook in hook_config.SYNCING and not hooks.runs_hook(ws.places, folder, hook)
        for hook in hook_choice.list_chosen_hooks(ws.places)
    )


def _describe_missing_hooks(missing: MissingHooks) -> str:
    names = ", ".join(missing.hooks)
    if missing.why == "elsewhere":
        return "vmrag's git hooks only run in other worktrees"
    if missing.why == "bypassed":
        return f"git now uses the hooks in {missing.folder}, without vmrag's hooks"
    if missing.why == "replaced":
        return f"{missing.tool} has overwritten these vmrag hooks: {names}"
    if missing.why == "older":
        return f"vmrag's git hooks are in git's configuration, which {missing.git} ignores"
    if missing.why in ("some", "disabled"):
        return f"git does not run these vmrag hooks: {names}"
    return "vmrag's git hooks are not installed in this clone"


def _describe_effect(missing: MissingHooks) -> str:
    effects = [effect for hook, effect in _EFFECT.items() if hook in missing.hooks]
    return f": {', and '.join(effects)}." if effects else "."


def _form_hint(ws: Workspace, missing: MissingHooks) -> str:
    from vmrag_link.git import hook_choice

    if missing.why == "elsewhere":
        return hints.suggest_command("vmrag install --worktree", "install them here")
    is_ours = missing.why == "older" or missing.folder == str(ws.places.common / "hooks")
    can_install = is_ours or missing.tool in ("husky", "lefthook", "pre-commit")
    # An installation may refuse another folder in core.hooksPath. The doctor explains what to do.
    if not can_install:
        return hints.suggest_command("vmrag doctor", "find out why")
    return hints.suggest_command(hook_choice.format_install_command(ws.places), "install them")


def build_not_pushed(ws: Workspace, unpushed: tuple[UnpushedPin, ...]) -> Caution | None:
    """Return a warning about pushed pins whose revisions no remote has."""
    if not unpushed:
        return None
    names = first_of([pin.ref for pin in unpushed], _MAX_REFS)
    revisions = {pin.revision: pin.remote for pin in unpushed}
    label = f"revision {unpushed[0].revision[:7]}" if len(revisions) == 1 else plural(len(revisions), "revision")
    branch = ws.read_trigger().branch or ""
    only_branch = all(pin.ref.partition("/")[2] == branch for pin in unpushed)
    return Caution(
        "KNOWLEDGE_NOT_PUSHED",
        f"{names}: the pushed code pins {label} of the knowledge base, which was not pushed to "
        f"{' and '.join(dict.fromkeys(revisions.values()))}.",
        "run 'vmrag push' to push the revision" if only_branch else "run 'vmrag push --all' to push all revisions",
    )
