"""The knowledge base that `vmrag init --knowledge-base` or the first stored document creates."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from vmrag_hooks import installer
from vmrag_link import env
from vmrag_link.cli.install import describe_hook_tools
from vmrag_link.errors import HooksRefused, IndexExtraMissing, NotInitialized, enumerated
from vmrag_link.git import hook_choice
from vmrag_link.git import hooks as git_hooks
from vmrag_link.ops import trust
from vmrag_link.ops.new_knowledge_base.knowledge_base import KnowledgeBaseReport, start_knowledge_base
from vmrag_link.ops.new_knowledge_base.rollback import all_or_nothing
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.pins import history_pins
from vmrag_link.workspace.pins.pinning import ATTRIBUTES


@contextlib.contextmanager
def create_for_documents(ws: Workspace) -> Iterator[None]:
    """Create the knowledge base for the documents that the block stores, and print what is new.

    If the block fails, the knowledge base is removed again. Raises `NotInitialized` if other
    commits pin a knowledge base, because a new one would be unrelated to it.
    """
    if any(True for _ in history_pins.read_pins(ws.places)):
        raise NotInitialized(
            "this commit has no pin, but other commits pin a knowledge base.",
            hint="run 'vmrag init --knowledge-base' to create a knowledge base",
        )
    trust.trust_own_settings(ws)
    with all_or_nothing(ws):
        base = start_knowledge_base(ws)
        yield
    _, hook_lines = set_up_hooks(ws, install=bool(hook_choice.list_chosen_hooks(ws.places)) and not env.are_hooks_off())
    staged = [name for name in base.written if name not in base.unstaged]
    remote = ws.settings.read_accepted_remote()
    for line in [
        f"Created a knowledge base in {base.kb} and staged {enumerated(staged)}.",
        *hook_lines,
        f"'git push' also pushes it to the remote ({remote}).",
        "hint: run 'vmrag uninstall --all' to undo all of this",
    ]:
        ws.progress.note(line)


def set_up_hooks(ws: Workspace, *, install: bool) -> tuple[bool, list[str]]:
    """Install the hooks and the merge driver, or record that the user does not want them.

    Returns whether something was installed, and lines that describe it.
    """
    places = ws.places
    if not install:
        if not installer.list_installed_hooks(places, git_hooks.find_hooks_folder(places)):
            hook_choice.record_chosen_hooks(places, ())
        return False, []
    try:
        hooks = installer.install_hooks(places, place=ws.config.hooks.place)
    except HooksRefused as refused:
        return False, [f"Did not install the git hooks: {refused.message}", f"hint: {refused.hint}"]
    installed = [f"the git hooks in {hooks.folder}"] if hooks.written else []
    installed += ["the merge driver"] if hooks.driver else []
    lines = [f"Installed {' and '.join(installed)}"] if installed else []
    lines += [f"The existing {name} hook runs first" for name in hooks.chained]
    lines += describe_hook_tools(hooks)
    if not hook_choice.is_active(places):
        lines.append(
            "The git hooks act only in other worktrees; run 'vmrag install --worktree' to use them in this one too"
        )
    return bool(installed), lines


def build_index(ws: Workspace) -> Iterator[str]:
    """Build the index. Without the extra `index`, yield a line that names it."""
    try:
        ws.bring_to_pin()
    except IndexExtraMissing as missing:
        yield f"Built no index: {missing.sentence}"


def describe_files(report: KnowledgeBaseReport) -> Iterator[str]:
    """Yield which files were written, and which of them the user has to stage."""
    staged = [name for name in report.written if name not in report.unstaged]
    if staged:
        yield f"Wrote and staged {', '.join(staged)}"
    mixed = ATTRIBUTES if report.edited and ATTRIBUTES in report.unstaged else ""
    if unstaged := [name for name in report.unstaged if name != mixed]:
        yield f"Wrote {', '.join(unstaged)}, but another git command holds the index."
        yield f"hint: run 'git add {' '.join(unstaged)}' to stage {'them' if unstaged[1:] else 'it'}"
    if mixed:
        yield f"Wrote {mixed}, which has your unstaged changes."
        yield f"hint: run 'git add {mixed}' to stage all of them"
