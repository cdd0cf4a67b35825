"""Explain why a work tree cannot answer, or answers from another revision than the pinned one.

Each function returns an error to raise, or texts to print as warnings, with the command that fixes
the problem. Nothing is fetched or changed.
"""

from __future__ import annotations

from vmrag_link import hints
from vmrag_link import pin as pins
from vmrag_link.engines import migrated, opening
from vmrag_link.engines.folder import detect_engine
from vmrag_link.errors import (
    KnowledgeElsewhere,
    KnowledgeLost,
    KnowledgeMoved,
    KnowledgeRefused,
    NotInitialized,
    PinMalformed,
    PinMissing,
    PinRevisionMissing,
    RemoteEmpty,
    RemoteNotTrusted,
    VmragError,
)
from vmrag_link.git import plumbing
from vmrag_link.pin_values import engine_of_revision
from vmrag_link.sync import background, binding
from vmrag_link.sync.target import Target, describe_left_behind
from vmrag_link.workspace.worktree import WorkTree


def explain_uninitialized(ws: WorkTree, why: VmragError | None = None) -> NotInitialized:
    """Return the error for a missing knowledge base.

    `why`: why it could not be fetched. The hint depends on the pin: without a pin, it creates a
    knowledge base, otherwise it fetches the pinned one.
    """
    if opening.is_lost(ws.places.kb):
        return _explain_lost_store(ws)
    if plumbing.read_pin_bytes(ws.places) is None:
        return _explain_absent_store(ws)
    statement = f"this repository pins a knowledge base, but it is not on this machine ({ws.places.kb} is missing)."
    why = why or _explain_untrusted(ws)
    if why is None:
        return KnowledgeElsewhere(
            statement, hint="run 'vmrag clone' to fetch the knowledge base", path=str(ws.places.kb)
        )
    hint = hints.join_steps(why.hint, hints.suggest_command("vmrag clone"))
    if isinstance(why, RemoteEmpty):
        on_server = "run 'git config vmrag.dolt.server HOST:PORT && vmrag clone' if a Dolt server has it"
        hint = hints.join_alternatives(on_server if _may_be_on_server(ws) else why.hint, _form_start_over(ws))
    return KnowledgeElsewhere(_add_reason(statement, why), hint=hint, path=str(ws.places.kb), cause=why.cause)


def _explain_absent_store(ws: WorkTree) -> NotInitialized:
    """Return the error for a repository that never had a knowledge base."""
    from vmrag_link.git import listing  # a checkout does not need it

    create = "run 'vmrag init --knowledge-base' to create a knowledge base"
    if listing.tracks_files(ws.places):
        return NotInitialized("this repository has no knowledge base.", hint=create)
    return NotInitialized(
        "git tracks no files here, and this repository has no knowledge base.",
        hint=hints.join_alternatives("run 'git add FILES' to make files searchable", create),
    )


def _explain_lost_store(ws: WorkTree) -> KnowledgeLost:
    """Return the error for a knowledge base whose file was deleted."""
    from vmrag_link.git import remotes  # a checkout does not need it

    kb = ws.places.kb
    pushed = remotes.list_remotes(ws.places) or _may_be_on_server(ws)
    return KnowledgeLost(
        f"the file of the knowledge base in {kb} is missing. Only that file had the uncommitted documents and "
        "the revisions that were not pushed.",
        hint=hints.join_alternatives(
            "restore the file from a backup",
            hints.suggest_command("vmrag clone", "continue without these documents")
            if pushed
            else _form_start_over(ws),
        ),
        path=str(kb),
    )


def _form_start_over(ws: WorkTree) -> str:
    """Return the hint to remove the pin and create a new knowledge base."""
    pin = ws.places.pin.name
    command = (
        f'rm -f {pin} && git add -A -- {pin} && git commit --allow-empty -m "Start a new knowledge base" '
        "&& vmrag init --new"
    )
    return hints.suggest_command(command, "start a new one")


def _may_be_on_server(ws: WorkTree) -> bool:
    """Return whether Dolt made the pinned revision, and no Dolt server is configured."""
    data = plumbing.read_pin_bytes(ws.places)
    try:
        return (
            data is not None
            and engine_of_revision(pins.parse_pin(data).dolt_commit) == "dolt"
            and not ws.settings.config.dolt.server
        )
    except PinMalformed:
        return False


def explain_unusable(ws: WorkTree, target: Target) -> VmragError:
    """Return the error for a target that the work tree cannot reach, or has not reached yet."""
    if target.problem:
        return target.problem
    if target.state == "missing":
        missing = f"the pin names revision {target.revision}, which is not in this knowledge base."
        why = ws.fetch_error or explain_other_engine(ws, target.revision) or _explain_untrusted(ws)
        if why is None and background.is_running(background.get_sync_job(ws.places)):
            return PinRevisionMissing(
                f"{missing} A sync in the background fetches it.",
                hint="run 'vmrag sync' to wait for it",
                revision=target.revision,
            )
        if isinstance(why, RemoteNotTrusted):
            return RemoteNotTrusted(_add_reason(missing, why), hint=why.hint, revision=target.revision, **why.details)
        error = explain_missing_revision(missing, target.revision, why)
        from vmrag_link.git import versions  # a checkout does not need it

        staged = versions.read_staged_file(ws.places, ws.places.pin.name)
        if staged not in (None, plumbing.read_pin_bytes(ws.places)):
            discard = f"git checkout -- {ws.places.pin.name}"
            error.hint = hints.join_alternatives(
                hints.suggest_command(discard, "discard your change of the pin"), error.hint
            )
        return error
    if target.state == "pinned":  # the pin was not followed yet, as in a fresh clone
        return KnowledgeMoved(
            "this working tree is not at the pinned revision yet.", hint="run 'vmrag sync' to sync to the pin"
        )
    # `vmrag pin` pins the current revision. Without one, a knowledge base must be created.
    return PinMissing(
        "this commit has no pin.",
        hint="run 'vmrag pin' to write the pin"
        if ws.current_revision
        else "run 'vmrag init --knowledge-base' to create a knowledge base",
    )


def explain_other_engine(ws: WorkTree, revision: str) -> PinRevisionMissing | None:
    """Return the error for a pinned revision that another engine made, or None.

    None if the revision belongs to this clone's engine, or if the knowledge base was migrated to
    this clone's engine. In that case a fetch may bring the migrated revision.
    """
    engine, made_by = detect_engine(ws.places.kb), engine_of_revision(revision)
    if engine in (None, made_by) or migrated.map_path(ws.places.kb, engine).exists():
        return None
    return PinRevisionMissing(
        f"it was made with the engine {made_by}, but the knowledge base in this clone still uses {engine}.",
        hint=f"run 'vmrag migrate --to {made_by}' to migrate it",
        engine=made_by,
    )


def explain_missing_revision(missing: str, revision: str, why: VmragError | None) -> PinRevisionMissing:
    """Return the error for a missing pinned revision, with the reason why it could not be
    fetched.
    """
    if why is None:
        return PinRevisionMissing(missing, hint="run 'vmrag fetch' to fetch the revision", revision=revision)
    hint = why.hint if "vmrag " in why.hint else hints.join_steps(why.hint, hints.suggest_command("vmrag fetch"))
    return PinRevisionMissing(_add_reason(missing, why), hint=hint, revision=revision, cause=why.cause)


def explain_difference(ws: WorkTree, target: Target, revision: str) -> tuple[str, ...]:
    """Return warnings if an answer from `revision` is not what the pin requests.

    At the pinned revision, a warning only reports that the server cannot be reached, or that the KB
    branch has content that the pin does not include.
    """
    if binding.is_pinned(target, revision):
        if error := ws.server_error:
            return (f"{error.message} The index answers at the pinned revision, without uncommitted documents.",)
        return describe_left_behind(target)
    why = {
        "no_pin": "this commit has no pin",
        "malformed": "the pin cannot be read",
        "missing": "the pinned revision is not in this knowledge base"
        + (f" ({ws.fetch_error.message.rstrip('.')})" if ws.fetch_error else ""),
    }.get(target.state, "the pin has moved")
    if isinstance(target.problem, KnowledgeRefused):
        why = f"the pinned revision was refused: {target.problem.message.rstrip('.')}"
    if target.state == "pinned" and ws.follow_error:
        why += f", and syncing to it failed ({ws.follow_error.message.rstrip('.')})"
    if target.state in ("pinned", "missing") and background.is_running(background.get_sync_job(ws.places)):
        why += ", and the index follows in the background"
    hint = "run 'vmrag fetch' to fetch it" if target.state == "missing" else "run 'vmrag status' to see the state"
    return (f"{why}, so this answer comes from revision {revision[:7]}; {hint}",)


def explain_missing_documents(why: VmragError) -> tuple[str, ...]:
    """Return the warning that only files answer, because the pinned revision is missing.

    `why`: the reason. Empty if the commit has no pin.
    """
    if not isinstance(why, KnowledgeElsewhere | KnowledgeLost | PinRevisionMissing):
        return ()
    command = "vmrag fetch" if isinstance(why, PinRevisionMissing) else "vmrag clone"
    return (f"{why.message.rstrip('.')}; only files answer; run '{command}' to fetch the stored documents",)


def _explain_untrusted(ws: WorkTree) -> RemoteNotTrusted | None:
    """Return the error if the remote in the pin is not trusted, because then `vmrag fetch` and
    `vmrag clone` do not help. No remote is contacted.
    """
    from vmrag_link.transport import address

    try:
        data = plumbing.read_pin_bytes(ws.places)
        if data is not None:
            address.require_trusted(
                ws.places, pins.parse_pin(data).dolt_remote, accepted=ws.settings.read_accepted_remote
            )
    except RemoteNotTrusted as why:
        return why
    except PinMalformed:
        pass
    return None


def _add_reason(statement: str, reason: VmragError) -> str:
    """Return a statement that ends with the sentence of an error."""
    return f"{statement.removesuffix('.')}: {reason.message}"
