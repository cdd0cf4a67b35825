"""Whole jobs of the workflows in ci/github/ and docs/ci.md: their checkout from a host that knows
the permissions of the job's token, the Action, and the steps around it.

The expected results are written from docs/action.md and docs/pull-requests.md.

The ids name two variants. `stand-ins`: git does the checkout, and no foreign programs run.
`programs`: actions/checkout, actions/cache and actions/setup-python themselves, if
VMRAG_TEST_ACTIONS names a folder with them (`tests/support/actions_programs.py`); otherwise
skipped. In both GitHub is simulated: its events, its API, its host and its cache. `proven`: the
test that shows the same in more detail; such a job runs in a long run only, and so do further jobs
of the same event and result.

The recipes for other hosts are in `test_ci_recipes.py`, knowledge on a branch is in
`test_knowledge_on_a_branch.py`, and two jobs at once and kills are in the tests of each mode.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support import actions_programs, job_states, people, repos
from tests.support import job_states as on
from tests.support.templates import build_once
from tests.support.terminal import Project
from tests.support.workflows import Event, GitHub, Ran, hosting

pytestmark = pytest.mark.hooks("off")

shared = people.shared

MAIN, TOPIC, DATA = "refs/heads/main", "refs/heads/topic", people.DATA
CHECK, REPORT, AFTER, NIGHT = "knowledge", "knowledge report", "knowledge after each merge", "knowledge, every night"


@dataclass(frozen=True, kw_only=True)
class CiJob:
    """One job and its expected results.

    `passes` None: the job does not run. `errors`: titles among the annotations, which are all at
    the file `at`. `says`: a text anywhere in annotations, summary, logs and comments. `moves`: the
    refs of the host that change. `saves`: entries of the cache. `comments`: comments on the pull
    request afterwards. `asks`: whether the job contacts the fork or another untrusted host.
    `again`: run the same job twice; the second run may push and save nothing, and has equal
    results. `as_ada`: whether it retrieves the same results as Ada.
    """

    recipe: str
    state: Callable[[GitHub], Event]
    passes: bool | None
    errors: tuple[str, ...] = ()
    at: str = ".dolt-version"
    says: tuple[str, ...] = ()
    unsaid: tuple[str, ...] = ()
    outputs: Mapping[str, str] = field(default_factory=dict)
    moves: tuple[str, ...] = ()
    saves: int = 0
    comments: int = 0
    asks: bool = False
    again: bool = False
    as_ada: bool = False
    given: Mapping[str, str] = field(default_factory=dict)
    besides: str = ""
    proven: str = ""


HERE = {"in-sync": "true", "findings": "0"}
WHOLE = {**HERE, "cache-hit": "false"}
LOST = {"findings": "1", "in-sync": "true"}
COMMENT = {"comment": "true"}

JOBS = {
    # -- the check, on pushes
    "push": CiJob(
        recipe=CHECK, state=on.push, passes=True, outputs=WHOLE, saves=1, unsaid=("::error", "::warning"), as_ada=True
    ),
    "push, run again": CiJob(
        recipe=CHECK,
        state=on.cached,
        passes=True,
        outputs=HERE | {"cache-hit": "true"},
        again=True,
        proven="test_action.py::test_sync_prepares_the_pinned_index_and_next_job_embeds_nothing",
    ),
    "push of new knowledge, after a cache of the old": CiJob(
        recipe=CHECK,
        state=on.cached_before,
        passes=True,
        outputs=WHOLE,
        saves=1,
        proven="test_action.py::test_cache_of_another_revision_is_a_warm_start",
    ),
    "push, the archive of the cache is damaged": CiJob(
        recipe=CHECK, state=on.damaged_cache, passes=True, outputs=WHOLE, saves=1, as_ada=True
    ),
    "push, the service of caches refuses": CiJob(recipe=CHECK, state=on.refusing_cache, passes=True, outputs=WHOLE),
    "push without its knowledge": CiJob(
        recipe=CHECK,
        state=on.unpushed,
        passes=False,
        errors=("PIN_MISSING_REVISION",),
        says=("run 'vmrag push' in the clone that ",),
        outputs={"in-sync": "false", "revision": ""},
    ),
    "push of an older pin": CiJob(
        recipe=CHECK, state=on.behind, passes=True, outputs=LOST, says=("MOVED_BACK",), saves=1, as_ada=True
    ),
    "push by force takes commits back": CiJob(recipe=CHECK, state=on.taken_back, passes=True, outputs=WHOLE, saves=1),
    "push of a squash that dropped": CiJob(
        recipe=CHECK,
        state=on.squashed,
        passes=False,
        errors=("KNOWLEDGE_DROPPED",),
        says=("run 'vmrag merge --repair' to merge it",),
        outputs=LOST,
        proven="test_action.py::test_push_is_compared_with_the_previous_head",
    ),
    "push, and another before the job begins": CiJob(
        recipe=CHECK, state=on.moved_on, passes=True, outputs=WHOLE, saves=1
    ),
    "push where nothing was ever pinned": CiJob(
        recipe=CHECK,
        state=on.never_pinned,
        passes=False,
        errors=("NOT_INITIALIZED",),
        says=("run 'vmrag init' to set up this repository",),
        proven="test_action.py::test_invalid_pin_is_annotated_at_the_pin_with_a_hint",
    ),
    "push that removes the pin": CiJob(recipe=CHECK, state=on.unpinned, passes=False, errors=("PIN_REMOVED",)),
    "push in a fork that was synced": CiJob(recipe=CHECK, state=on.synced_fork, passes=None),
    "push that misses a question": CiJob(
        recipe=CHECK,
        state=on.question_missed,
        passes=False,
        errors=("QUERY_MISSED",),
        at=".vmrag/queries.yaml",
        outputs=LOST,
        proven="test_action.py::test_golden_queries_are_run_and_misses_are_annotated_at_their_line",
    ),
    "release": CiJob(
        recipe=CHECK,
        state=on.tagged,
        passes=True,
        outputs=WHOLE,
        besides="release",
        as_ada=True,
        unsaid=("VMRAG_SETT",),
    ),
    "push, with tests that ask": CiJob(recipe="tests", state=on.push, passes=True, says=("3 passed",), saves=1),
    "pull request, with tests that ask and miss": CiJob(
        recipe="tests",
        state=on.question_missed_by_proposal,
        passes=False,
        says=("1 failed",),
        outputs=WHOLE,
        proven="../integration/test_pytest_plugin.py::test_golden_queries_are_tests_if_configured",
    ),
    # -- the check, on pull requests
    "pull request with knowledge": CiJob(
        recipe=CHECK,
        state=on.proposed,
        passes=True,
        outputs=WHOLE,
        says=("the settings of the base apply",),
        as_ada=True,
        again=True,
    ),
    "pull request of code, main has other knowledge": CiJob(
        recipe=CHECK, state=on.code_proposed, passes=True, outputs=WHOLE
    ),
    "pull request without its knowledge": CiJob(
        recipe=CHECK,
        state=on.proposed_without_knowledge,
        passes=False,
        errors=("PIN_MISSING_REVISION",),
        says=("run 'vmrag push' in the clone that ",),
    ),
    "pull request, main moves on before the job begins": CiJob(
        recipe=CHECK, state=on.overtaken, passes=True, outputs=WHOLE
    ),
    "pull request that was rebased": CiJob(recipe=CHECK, state=on.rebased, passes=True, outputs=WHOLE, as_ada=True),
    "pull request that kept one pin in the web editor": CiJob(
        recipe=CHECK, state=on.web_edited, passes=False, errors=("KNOWLEDGE_DROPPED",), outputs={"in-sync": "true"}
    ),
    "pull request, with the cache of main": CiJob(
        recipe=CHECK,
        state=on.cached_for_proposal,
        passes=True,
        outputs=HERE | {"cache-hit": "true"},
        proven="test_action.py::test_pull_request_reads_the_cache_and_writes_nothing",
    ),
    # -- the check, on pull requests of forks
    "fork that pins what the base has": CiJob(
        recipe=CHECK,
        state=on.fork_of_code,
        passes=True,
        outputs=WHOLE,
        proven="test_action.py::test_fork_that_pins_a_known_revision_needs_no_secret",
    ),
    "fork that pins what the base lacks": CiJob(
        recipe=CHECK,
        state=on.fork_with_knowledge,
        passes=False,
        errors=("NOT_ON_REMOTE",),
        says=("vmrag adopt", "/me/project"),
        proven="test_action.py::test_verify_of_fork_suggests_adopt_for_missing_revision",
    ),
    "fork whose knowledge was adopted": CiJob(recipe=CHECK, state=on.adopted, passes=True, outputs=WHOLE, as_ada=True),
    "fork with hostile settings": CiJob(
        recipe=CHECK, state=on.hostile_settings, passes=True, outputs=WHOLE, says=("ignoring settings",)
    ),
    "fork with a remote of its own in the pin": CiJob(
        recipe=CHECK, state=on.hostile_remote, passes=False, errors=("REMOTE_NOT_TRUSTED",)
    ),
    "fork with commands in the pin": CiJob(
        recipe=CHECK,
        state=on.hostile_pin,
        passes=False,
        errors=("PIN_MALFORMED",),
        proven="test_action.py::test_invalid_pin_is_annotated_at_the_pin_with_a_hint",
    ),
    "fork with a link for a pin": CiJob(recipe=CHECK, state=on.linked_pin, passes=False, errors=("PIN_MALFORMED",)),
    # -- the check, in the queue and at the button
    "merge group": CiJob(
        recipe=CHECK,
        state=on.queued,
        passes=True,
        outputs=WHOLE,
        as_ada=True,
        proven="test_merge_queue.py::test_complete_group_passes_without_pushes",
    ),
    "merge group that drops": CiJob(
        recipe=CHECK,
        state=on.queued_and_dropping,
        passes=False,
        errors=("KNOWLEDGE_DROPPED",),
        proven="test_merge_queue.py::test_squashed_group_that_drops_knowledge_fails",
    ),
    "merge group behind another": CiJob(
        recipe=CHECK,
        state=on.queued_behind_another,
        passes=True,
        outputs=WHOLE,
        proven="test_merge_queue.py::test_group_behind_another_is_compared_with_that_one",
    ),
    "closed by a merge": CiJob(
        recipe=CHECK,
        state=on.merged,
        passes=True,
        outputs=WHOLE,
        proven="../integration/test_action_events.py::test_merged_pull_request_compares_the_landed_commit",
    ),
    "closed by a squash": CiJob(recipe=CHECK, state=on.merged_by_squash, passes=True, outputs=WHOLE),
    "closed by a rebase": CiJob(recipe=CHECK, state=on.merged_by_rebase, passes=True, outputs=WHOLE),
    "closed by a squash with the pin of main": CiJob(
        recipe=CHECK,
        state=on.squashed_with_the_pin_of_main,
        passes=False,
        errors=("KNOWLEDGE_DROPPED",),
        says=("the pull request pinned", "vmrag merge"),
        proven="test_action_repair.py::test_closed_pull_request_reveals_squash_that_kept_the_base_pin",
    ),
    # -- reports and comments
    "report": CiJob(
        recipe=REPORT,
        state=on.proposed,
        passes=True,
        outputs={"documents-changed": "1", "queries-changed": "1"},
        proven="test_action_report.py::test_pull_request_shows_its_documents_and_answers",
    ),
    "report of code": CiJob(
        recipe=REPORT, state=on.code_proposed, passes=True, outputs={"documents-changed": "0", "queries-changed": "0"}
    ),
    "report without the knowledge": CiJob(
        recipe=REPORT, state=on.proposed_without_knowledge, passes=False, errors=("PIN_MISSING_REVISION",)
    ),
    "report of a fork": CiJob(
        recipe=REPORT,
        state=on.fork_with_knowledge,
        passes=True,
        says=("check in quarantine",),
        outputs={"documents-changed": "1"},
        asks=True,
        proven="test_action_report.py::test_knowledge_of_a_fork_is_vetted_in_quarantine_without_secrets",
    ),
    "report of a private fork": CiJob(
        recipe=REPORT,
        state=on.private_fork,
        passes=True,
        says=("in a fork that this job cannot read", "vmrag adopt"),
        asks=True,
        proven="test_action_report.py::test_private_fork_is_left_out_and_fails_nothing",
    ),
    "comment": CiJob(
        recipe=REPORT,
        state=on.proposed,
        passes=True,
        given=COMMENT,
        says=("This pull request changes answers for agents",),
        comments=1,
        again=True,
        proven="test_action_comment.py::test_pull_request_gets_one_comment_which_follows_it_and_is_resolved",
    ),
    "comment on code": CiJob(
        recipe=REPORT,
        state=on.code_proposed,
        passes=True,
        given=COMMENT,
        proven="test_action_comment.py::test_comment_is_not_written_for_code_changes",
    ),
    "comment after a fork's report": CiJob(
        recipe="knowledge comment",
        state=on.fork_reported,
        passes=True,
        says=("it is not verified",),
        comments=1,
        proven="test_action_comment.py::test_later_job_comments_on_pull_request_of_a_fork",
    ),
    "comment after a fork's hostile artifact": CiJob(
        recipe="knowledge comment",
        state=on.hostile_artifact,
        passes=True,
        unsaid=("@everyone", "<img"),
        proven="../integration/test_action_comment.py::test_invalid_artifact_is_ignored_without_failing_the_job",
    ),
    "comment after a fork without one": CiJob(recipe="knowledge comment", state=on.no_artifact, passes=True),
    # -- after merges
    "after a merge": CiJob(
        recipe=AFTER,
        state=on.push,
        passes=True,
        outputs={"repaired": "false", "updated": "0", "linked": "1"},
        moves=(DATA,),
        again=True,
    ),
    "after a squash that dropped": CiJob(
        recipe=AFTER,
        state=on.squashed,
        passes=True,
        outputs={"repaired": "true", "linked": "2"},
        moves=(MAIN, DATA),
        proven="test_action_repair.py::test_repair_restores_dropped_squash_once_and_accepts_its_own_commit",
    ),
    "after a merge, another pull request conflicts": CiJob(
        recipe=AFTER,
        state=on.conflicting,
        passes=True,
        outputs={"updated": "1"},
        moves=(TOPIC, DATA),
        proven="test_action_update.py::test_second_request_can_be_merged_after_the_first",
    ),
    "after a merge, by hand": CiJob(
        recipe=AFTER,
        state=on.by_hand,
        passes=True,
        says=("mode: repair has nothing to do on workflow_dispatch",),
        outputs={"updated": "0"},
        moves=(DATA,),
        proven="test_action_link.py::test_by_hand_the_history_of_the_checkout_is_linked",
    ),
    "after a squash that dropped, without contents: write": CiJob(
        recipe=AFTER,
        state=on.only_reading,
        passes=False,
        errors=("The job's environment: AUTHENTICATION_FAILED",),
        at="",
        outputs={"repaired": "false"},
    ),
    "update by hand": CiJob(
        recipe="update",
        state=on.conflicting_by_hand,
        passes=True,
        outputs={"updated": "1"},
        moves=(TOPIC, DATA),
        proven="test_action_update.py::test_pull_request_is_updated_on_its_own_and_by_hand",
    ),
    "repair on a protected branch": CiJob(
        recipe="repair knowledge",
        state=on.squashed_on_protected,
        passes=True,
        outputs={"repaired": "false"},
        moves=("refs/heads/vmrag/repair-", DATA),
        proven="test_action_repair.py::test_repair_opens_pull_request_if_input_and_repository_allow",
    ),
    "repair in conflict": CiJob(
        recipe="repair knowledge",
        state=on.squashed_in_conflict,
        passes=False,
        errors=("MERGE_CONFLICT",),
        proven="test_action_repair.py::test_repair_reports_conflict_and_pushes_nothing_before_a_person_decides",
    ),
    # -- by label, and by night
    "adopt": CiJob(
        recipe="adopt",
        state=on.labelled,
        passes=True,
        moves=(DATA,),
        asks=True,
        proven="test_forks.py::test_workflow_started_by_a_label_adopts_the_labelled_commit",
    ),
    "adopt, another label": CiJob(recipe="adopt", state=on.labelled_otherwise, passes=None),
    "night": CiJob(recipe=NIGHT, state=on.schedule, passes=True, says=("nothing is lost",), outputs=WHOLE, saves=1),
    "night after a drop": CiJob(
        recipe=NIGHT,
        state=on.dropped_long_ago,
        passes=False,
        says=("drops documents",),
        saves=1,
        proven="test_ci_recipes.py::test_nightly_job_checks_the_whole_history",
    ),
}
"""By what happened."""


@pytest.fixture(scope="session")
def template(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_once(tmp_path_factory, "jobs", lambda top: job_states.build(top, shared), by=job_states.build)


@pytest.fixture(params=["stand-ins", pytest.param("programs", marks=pytest.mark.long)])
def github(
    request: pytest.FixtureRequest, template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[GitHub]:
    programs = actions_programs.require() if request.param == "programs" else None
    repos.isolate(monkeypatch, tmp_path / "home")
    with hosting(people.copy_world(template, tmp_path / "world"), tmp_path, programs) as github_server:
        yield github_server


def rows() -> list[object]:
    """Return all jobs. Each result of a recipe and each kind of event is in every run."""
    results, rows = set(), []
    for name, job in JOBS.items():
        result, event = (job.recipe, job.passes, job.errors), name.split()[0]
        always = not job.proven and not {result, event} <= results
        rows.append(pytest.param(job, id=name, marks=[] if always else [pytest.mark.long]))
        if always:
            results |= {result, event}
    return rows


@pytest.mark.parametrize("job", rows())
def test_job_has_the_documented_results(github: GitHub, job: CiJob) -> None:
    event = job.state(github)
    before, saved = refs(github), len(github.saved)
    github.access.requests.clear()
    run = github.job(job.recipe, event, given=job.given, besides=job.besides)
    assert run.ours is not None or not job.passes
    assert (run.ours is None, run.passed) == (job.passes is None, job.passes is not False)
    judge(github, job, run)
    assert same_names(moved(before, refs(github)), job.moves)
    assert len(github.saved) - saved == job.saves
    if run.ours:
        assert job.outputs.items() <= run.ours.outputs.items()
        assert run.ours.outputs["revision"] in ("", pinned(github))
        if job.as_ada:
            github.ada.git("fetch", "-q", "origin", event.sha)
            github.ada.git("checkout", "-q", "--detach", event.sha)
            github.ada.vmrag("sync", "-q")
            assert run.ours.outputs["fingerprint"] == github.ada.fingerprint()
            assert answers(github, run) == github.ada.answers()
    if job.again:
        before = refs(github)
        twice = github.job(job.recipe, event, given=job.given, besides=job.besides)
        judge(github, job, twice)
        assert (moved(before, refs(github)), len(github.saved) - saved) == (set(), job.saves)
        assert twice.ours
        assert run.ours
        assert told(twice) == told(run)


def judge(github: GitHub, job: CiJob, run: Ran) -> None:
    comments = github.api.ours(7)
    said = "\n".join(script.stdout for script in run.scripts) + "\n".join(comments)
    if run.ours:
        annotations = [annotation for annotation in run.ours.annotations if annotation.level == "error"]
        assert {*job.errors} <= {document.title for document in annotations}
        assert {annotation.file for annotation in annotations} == ({job.at} if job.errors else set())
        said += (
            run.ours.log
            + html.unescape(run.ours.summary)
            + "\n".join(str(annotation) for annotation in run.ours.annotations)
        )
    for say in job.says:
        assert say in said
    for document in job.unsaid:
        assert document not in said
    assert len(comments) == job.comments
    strangers = [path for path, _ in github.access.requests if not path.startswith("/them/project/")]
    assert bool(strangers) is job.asks
    assert not list(github.workspace.rglob("owned*"))


def told(run: Ran) -> tuple[object, ...]:
    """Return the output of a job without the parts that differ between two equal jobs."""
    assert run.ours
    varies = {"index-path": "", "report-path": "", "cache-hit": "", "linked": ""}
    return (
        run.passed,
        run.ours.outputs | varies,
        [(annotation.level, annotation.title, annotation.message) for annotation in run.ours.annotations],
    )


def refs(github: GitHub) -> dict[str, str]:
    lines = github.world.hub.git("for-each-ref", "--format=%(refname) %(objectname)").splitlines()
    return dict(line.split(" ") for line in lines)


def moved(before: dict[str, str], after: dict[str, str]) -> set[str]:
    return {name for name, _ in before.items() ^ after.items()}


def same_names(names: set[str], expected: tuple[str, ...]) -> bool:
    """`expected` may end where a hash begins."""
    return {next((prefix for prefix in expected if name.startswith(prefix)), name) for name in names} == set(expected)


def pinned(github: GitHub) -> str:
    pin = github.workspace / ".dolt-version"
    match = re.search(r'"dolt_commit": "([0-9a-z]+)"', pin.read_text()) if pin.is_file() else None
    return match[1] if match else ""


def answers(github: GitHub, run: Ran) -> list[list[object]]:
    assert run.ours
    with pytest.MonkeyPatch.context() as patch:
        for name, value in run.ours.variables.items():
            patch.setenv(name, value)
        return Project(github.workspace).answers()


def test_proven_jobs_name_existing_tests() -> None:
    folder = Path(__file__).parent
    for job in JOBS.values():
        file, _, name = job.proven.partition("::")
        assert not file or f"def {name}(" in (folder / file).read_text(), job.proven
