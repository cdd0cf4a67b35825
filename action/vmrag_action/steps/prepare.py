"""Read the inputs and the event, and say what the next steps do and where the cache is."""

from __future__ import annotations

import os

from vmrag_action import findings, inputs, install, packages
from vmrag_action.runner import Runner, WorkflowJob
from vmrag_link import __version__, env
from vmrag_link.engines import migrated
from vmrag_link.errors import OK, PinMalformed
from vmrag_link.git import plumbing
from vmrag_link.index.directories import remove
from vmrag_link.workspace import Workspace

_UNTRUSTED = (
    "What this event brings may be a stranger's: the settings of the base count, no embedding service is asked, and no "
    "cache is written."
)


def run(runner: Runner, job: WorkflowJob) -> int:
    """Every input is looked at here, so that a mistake costs nothing."""
    modes = inputs.modes()
    inputs.fail_on()
    inputs.opens_pull_request()
    comments_alone = inputs.comments_alone(job.event)
    runner.add_path(install.home() / "bin")
    runner.match_problems()
    runner.output("vmrag-version", __version__)
    if comments_alone:  # nothing is checked out
        runner.output("comment", True)
        return OK
    with findings.opened(runner, job) as ws:
        about = findings.compared(ws)
        variables = findings.variables(about)
        runner.export(variables)
        env.add(variables)
        ws.reload_settings()
        for warning in ws.settings.loaded.warnings:
            runner.annotate("warning", warning)
        if not about.trusted:
            runner.annotate("notice", _UNTRUSTED)
        access = packages.access(os.environ, inputs.caching(), saves=inputs.saves_cache() and about.saves)
        runner.output("save-packages", access.write)
        _cache(runner, job, ws, access)
    for mode in inputs.MODES:  # at the end: what runs next does so even where this step fails
        runner.output(mode, mode in modes)
    return OK


def _cache(runner: Runner, job: WorkflowJob, ws: Workspace, access: packages.Access) -> None:
    """Without a pin there is nothing to cache; the step that needs the pin says what is wrong."""
    folder = packages.folder(job.temp)
    remove(folder)  # of an earlier use in this job
    revision = _pinned(ws)
    useful = revision is not None and "sync" in inputs.modes()
    runner.output("restore", useful and access.read)
    runner.output("save", useful and access.write)
    if revision and useful:
        found = packages.keys(os.environ, ws.config, revision)
        runner.output("cache-path", str(folder))
        runner.output("cache-key", found.key)
        runner.output("restore-keys", "\n".join(found.prefixes))


def _pinned(ws: Workspace) -> str | None:
    try:
        data = plumbing.pin_bytes(ws.places)
        return migrated.read_pin(ws.places.kb, data).dolt_commit if data is not None else None
    except PinMalformed:
        return None
