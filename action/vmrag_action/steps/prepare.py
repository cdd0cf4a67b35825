"""Read the inputs and the event, and set what the next steps do and where the cache is."""

from __future__ import annotations

import os

from vmrag_action import caches, inputs, install, work_tree
from vmrag_action.runner import Runner, WorkflowJob
from vmrag_link import __version__, env
from vmrag_link.engines import migrated
from vmrag_link.errors import OK, PinMalformed
from vmrag_link.git import plumbing
from vmrag_link.index.directories import remove_path
from vmrag_link.workspace import Workspace

_UNTRUSTED = (
    "This event can bring untrusted files. So the settings of the base apply, no embedding service is contacted, and no "
    "cache is written."
)


def run(runner: Runner, job: WorkflowJob) -> int:
    """Prepare the job.

    All inputs that need no files are validated here, so that a mistake is found at once.
    """
    modes = inputs.read_modes()
    inputs.read_fail_on()
    inputs.wants_pull_request()
    comments_alone = inputs.is_comment_job(job.event)
    runner.add_path(install.action_folder() / "bin")
    runner.match_problems()
    runner.set_output("vmrag-version", __version__)
    if comments_alone:  # nothing is checked out
        runner.set_output("comment", True)
        return OK
    with work_tree.open_workspace(runner, job) as ws:
        comparison = work_tree.compare_event(ws)
        variables = work_tree.list_job_variables(comparison)
        runner.export_variables(variables)
        env.add_variables(variables)
        ws.reload_settings()
        for warning in ws.settings.loaded.warnings:
            runner.annotate("warning", warning)
        if not comparison.trusted:
            runner.annotate("notice", _UNTRUSTED)
        access = caches.decide_access(
            os.environ, inputs.read_caching(), saves=inputs.wants_cache_saved() and comparison.saves
        )
        runner.set_output("save-packages", access.write)
        _set_cache_keys(runner, job, ws, access)
    for mode in inputs.MODES:  # at the end: if this step fails, no later step runs
        runner.set_output(mode, mode in modes)
    return OK


def _set_cache_keys(runner: Runner, job: WorkflowJob, ws: Workspace, access: caches.CacheAccess) -> None:
    """Set the keys of the cache.

    Without a pin there is nothing to cache, and the step that needs the pin reports the problem.
    """
    folder = caches.vectors_folder(job.temp)
    remove_path(folder)  # of an earlier use in this job
    revision = _find_pinned_revision(ws)
    is_useful = revision is not None and "sync" in inputs.read_modes()
    runner.set_output("restore", is_useful and access.read)
    runner.set_output("save", is_useful and access.write)
    if revision and is_useful:
        keys = caches.compute_vector_keys(os.environ, ws.config, revision)
        runner.set_output("cache-path", str(folder))
        runner.set_output("cache-key", keys.key)
        runner.set_output("restore-keys", "\n".join(keys.prefixes))


def _find_pinned_revision(ws: Workspace) -> str | None:
    try:
        data = plumbing.read_pin_bytes(ws.places)
        return migrated.read_pin(ws.places.kb, data).dolt_commit if data is not None else None
    except PinMalformed:
        return None
