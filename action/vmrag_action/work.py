"""The work tree of the job, as every step opens it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from vmrag_action import events, inputs, token
from vmrag_action.events import Comparison
from vmrag_action.runner import Runner, WorkflowJob
from vmrag_link import env
from vmrag_link.errors import FileFailed
from vmrag_link.git import plumbing
from vmrag_link.ops.checks.case_formats import FORMATS
from vmrag_link.ops.checks.cases import CaseList
from vmrag_link.ops.report.files import write_text
from vmrag_link.workspace import Workspace

CHROMA = env.setting_variable("index.chroma")
SHARE = env.setting_variable("chroma.share")
REMOTE = env.setting_variable("remote")

RESULTS = {"junit": "junit.xml", "sarif": "sarif"}
"""The formats that programs beside GitHub's runners read, and how their files' names end."""


@contextlib.contextmanager
def opened(runner: Runner, job: WorkflowJob) -> Iterator[Workspace]:
    """With git's way in, in the environment that `prepare` has set for all steps, and without the
    keys of services where none may be asked.

    Raises `UsageInvalid`, `GitRepositoryMissing`, `ConfigInvalid`.
    """
    secret = inputs.token()
    for form in token.forms(secret):
        runner.mask(form)
    folder = inputs.directory(job.workspace)
    env.add(token.safe_directory(folder))
    env.add(token.environment(plumbing.locate(folder), secret))
    if env.without_services():
        env.forget((*env.SERVICE_KEYS, env.CHROMA_KEY, env.CHROMA_CREDENTIALS))
    workspace = Workspace.open(folder, runner)
    try:
        yield workspace
    finally:
        workspace.close()


def compared(workspace: Workspace) -> Comparison:
    """What the event is about. Raises as `events.comparison`."""
    return events.comparison(os.environ, workspace.places)


def keep_results(job: WorkflowJob, found: CaseList) -> None:
    """Write what a step looked at for later steps, where the workflow wants that. Raises
    `FileFailed`.
    """
    if folder := inputs.results(job.workspace):
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise FileFailed(f"results-path: {error.strerror}.", hint="Name a folder.", path=str(folder)) from error
        for kind, ending in RESULTS.items():
            write_text(folder / f"{found.command}.{ending}", [FORMATS[kind](found)])


def variables(comparison: Comparison) -> dict[str, str]:
    """What the job's later steps have to see, too, ours and the workflow's: which settings count,
    whether services may be asked, that no process in the background builds a store for Chroma that
    nobody reads, and that nothing is put on a Chroma server, because it may be a stranger's. The
    keys of services stay: other programs may need them.
    """
    found = dict(comparison.environment)
    if inputs.chroma():
        found[CHROMA] = "wait"
    elif env.setting(CHROMA) is None:
        found[CHROMA] = "off"
    if env.setting(SHARE) is None:
        found[SHARE] = "off"
    if remote := inputs.remote():
        found[REMOTE] = remote
    return found
