"""The work tree of the job: opened with the credentials and variables that its steps need, and the
commits of its event.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from vmrag_action import events, git_access, inputs
from vmrag_action.events import Comparison
from vmrag_action.runner import Runner, WorkflowJob
from vmrag_link import env
from vmrag_link.git import plumbing
from vmrag_link.workspace import Workspace

CHROMA = env.setting_variable("index.chroma")
SHARE = env.setting_variable("chroma.share")
REMOTE = env.setting_variable("remote")


@contextlib.contextmanager
def open_workspace(runner: Runner, job: WorkflowJob) -> Iterator[Workspace]:
    """Open the work tree of the job.

    git gets its credentials, and the environment that `prepare` has set for all steps. Keys are
    removed if no service may be contacted. Raises `UsageInvalid`, `GitRepositoryMissing` and
    `ConfigInvalid`.
    """
    secret = inputs.take_token()
    for form in git_access.list_secret_forms(secret):
        runner.mask_secret(form)
    folder = inputs.read_directory(job.workspace)
    env.add_variables(git_access.allow_directory(folder))
    env.add_variables(git_access.build_git_environment(plumbing.locate_work_tree(folder), secret))
    if env.forbids_services():
        env.remove_variables((*env.SERVICE_KEYS, env.CHROMA_KEY, env.CHROMA_CREDENTIALS))
    with contextlib.closing(Workspace.open(folder, runner)) as workspace:
        yield workspace


def compare_event(workspace: Workspace) -> Comparison:
    """Return what the event of this job is about.

    Raises `UsageInvalid` if the environment or the payload is not GitHub's, `HistoryMissing`, and
    `RemoteError`.
    """
    return events.read_comparison(os.environ, workspace.places)


def list_job_variables(comparison: Comparison) -> dict[str, str]:
    """Return the variables that later steps of the job also need.

    They decide which settings are trusted, and whether services can be contacted. They also keep
    background processes from building stores for Chroma that are never read, and keep data off a
    Chroma server, which can be untrusted. The keys of services stay, because other programs can
    need them.
    """
    names = dict(comparison.environment)
    if inputs.wants_chroma():
        names[CHROMA] = "wait"
    elif env.read_variable(CHROMA) is None:
        names[CHROMA] = "off"
    if env.read_variable(SHARE) is None:
        names[SHARE] = "off"
    if remote := inputs.read_remote():
        names[REMOTE] = remote
    return names
