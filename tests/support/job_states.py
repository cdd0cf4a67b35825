"""Events on GitHub before a job: each state prepares the hosted repository and returns the event
that starts the job.

They start from `build`'s world: `main`, and `topic` and `clash` of `dropping.split_history`, with
golden queries.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.support import dropping, events, people, poison
from tests.support.dropping import Landed
from tests.support.events import FORK, OWN, ZEROS
from tests.support.repos import ON
from tests.support.strangers import UNKNOWN, members
from tests.support.workflows import Event, GitHub

QUERIES = """\
queries:
  - query: who renews certificates
    k: 1
    first: handbook/deep/tls.txt
  - query: of which animals is something known
    expect: [handbook/rest.md]
"""
MISSED = "queries:\n  - query: who renews certificates\n    first: handbook/rest.md\n"
OTTERS = "# Otters\n\nOf the animals something is known: otters.\n"
HEAD, MERGE = "refs/pull/7/head", "refs/pull/7/merge"


def build(top: Path, shared: Path) -> None:
    world = people.copy_world(shared, top)
    world.ada.commit(
        **{".vmrag/queries.yaml": QUERIES, "main.py": "pass\n", "tests/test_main.py": "def test_main(): pass\n"}
    )
    world.ada.push("origin", "main")
    dropping.split_history(world)


# -- events


def push(g: GitHub, *, before: str = "", sha: str = "") -> Event:
    """Push to `main`: by default the last commit."""
    sha = sha or g.tip
    return Event("push", events.push(before or g.world.hub.git("rev-parse", f"{sha}~1"), sha), sha)


def pull_request(g: GitHub, head: str, *, source: Any = OWN) -> Event:
    """Into `main`, with the merge that GitHub makes: without any driver."""
    hub, head = g.world.hub, g.ada.git("rev-parse", head)
    g.ada.git("push", "-q", "--no-verify", "--force", "origin", f"{head}:{HEAD}")
    base = g.tip
    tree = hub.git("merge-tree", "--write-tree", base, head)
    merge = hub.git("commit-tree", tree, "-p", base, "-p", head, "-m", f"Merge {head} into {base}")
    hub.git("update-ref", MERGE, merge)
    g.api.open(7, head, source=source, base=OWN)
    return Event("pull_request", events.pull_request(base, head, source=source), merge, MERGE)


def closed(g: GitHub, before: str, head: str, landed: str) -> Event:
    """Close a pull request that a button has just merged.

    Its ref is unqualified, as in GitHub's events.
    """
    g.world.hub.git("update-ref", HEAD, head)
    g.world.hub.git("update-ref", "refs/heads/main", landed)
    fields = {"action": "closed", "merged": True, "merge_commit_sha": landed}
    return Event("pull_request", events.pull_request(before, head, source=OWN, **fields), landed, "main")


def merge_group(g: GitHub, group: str, base: str = "") -> Event:
    base = base or g.tip
    ref = f"refs/heads/gh-readonly-queue/main/pr-7-{base}"
    g.world.hub.git("update-ref", ref, group)
    return Event("merge_group", events.merge_group(base, group), group, ref)


def by_hand(g: GitHub, **inputs: str) -> Event:
    return Event("workflow_dispatch", {"inputs": inputs, "repository": OWN}, g.tip)


def schedule(g: GitHub) -> Event:
    return Event("schedule", {"schedule": "23 3 * * *", "repository": OWN}, g.tip)


# -- what people do


def write(g: GitHub, branch: str = "", start: str = "main", **documents: str) -> str:
    """Documents by the names of their files, without `.md`, committed on a branch of Ada's; its
    knowledge is pushed with it. Returns its head.
    """
    written = _write(g, branch, start, **documents)
    g.ada.push("--force", "origin", f"HEAD:{branch or 'main'}")
    return written


def _write(g: GitHub, branch: str = "", start: str = "main", **documents: str) -> str:
    if branch:
        g.ada.git("switch", "-q", "-C", branch, start)
    for name, text in documents.items():
        g.ada.write_document(f"{name}.md", text)
    return g.ada.git("rev-parse", "HEAD")


def code(g: GitHub, branch: str = "", start: str = "main", **files: str | bytes | None) -> str:
    """A commit of files alone, pushed without a hook; by default, of code. Returns it."""
    if branch:
        g.ada.git("switch", "-q", "-C", branch, start)
    made = g.ada.commit("code", **(files or {"main.py": "print()\n"}))
    g.ada.git("push", "-q", "--no-verify", "--force", "origin", f"HEAD:{branch or 'main'}")
    return made


def pushed_after(g: GitHub, landed: Landed) -> Event:
    return push(g, before=landed.before, sha=landed.after)


# -- pushes to main


def unpushed(g: GitHub) -> Event:
    """Push without hooks: the code arrives, and its knowledge is missing."""
    _write(g, otters=OTTERS)
    g.ada.git("push", "-q", "--no-verify", "origin", "main")
    return push(g)


def behind(g: GitHub) -> Event:
    g.ada.git("checkout", "-q", "main~1", "--", ".dolt-version", "docs")
    g.ada.git("commit", "-q", "--no-verify", "-m", "as it was")
    g.ada.git("push", "-q", "--no-verify", "origin", "main")
    return push(g)


def taken_back(g: GitHub) -> Event:
    """Push by force without the last commit and its knowledge."""
    old = g.tip
    code(g, "rewritten", "main~1", **{"other.py": "pass\n"})
    g.world.hub.git("update-ref", "refs/heads/main", "rewritten")
    return Event("push", events.push(old, g.tip, forced=True), g.tip)


def squashed(g: GitHub) -> Event:
    return pushed_after(g, dropping.squash(g.ada))


def moved_on(g: GitHub) -> Event:
    """Push another commit before the job begins."""
    event = push(g)
    write(g, otters=OTTERS)
    return event


def never_pinned(g: GitHub) -> Event:
    g.ada.git("switch", "-q", "--orphan", "elsewhere")
    code(g)
    g.world.hub.git("update-ref", "refs/heads/main", g.ada.git("rev-parse", "HEAD"))
    return Event("push", events.push(ZEROS, g.tip), g.tip)


def unpinned(g: GitHub) -> Event:
    code(g, pin=None)
    return push(g)


def synced_fork(g: GitHub) -> Event:
    event = push(g)
    return replace(event, payload=event.payload | {"repository": FORK})


def cached(g: GitHub) -> Event:
    """A job before has saved its vectors."""
    assert g.job("knowledge", push(g)).passed
    assert len(g.saved) == 1
    return push(g)


def cached_before(g: GitHub) -> Event:
    cached(g)
    write(g, otters=OTTERS)
    return push(g)


def damaged_cache(g: GitHub) -> Event:
    event = cached(g)
    if g.programs:
        archive = g.caches.blob(0)
        archive.write_bytes(archive.read_bytes()[:100])
    else:
        poison.truncated(g.cache.root / g.saved[0])
    return event


def refusing_cache(g: GitHub) -> Event:
    g.caches.broken = g.cache.broken = True
    return push(g)


def tagged(g: GitHub) -> Event:
    g.world.hub.git("tag", "v1", "main")
    return Event(
        "release", {"action": "published", "release": {"tag_name": "v1"}, "repository": OWN}, g.tip, "refs/tags/v1"
    )


def question_missed(g: GitHub) -> Event:
    code(g, **{".vmrag/queries.yaml": MISSED})
    return push(g)


# -- pull requests


def proposed(g: GitHub) -> Event:
    return pull_request(g, write(g, "otters", otters=OTTERS))


def code_proposed(g: GitHub) -> Event:
    """`main` has other knowledge by now."""
    return pull_request(g, code(g, "fix", "main~1"))


def proposed_without_knowledge(g: GitHub) -> Event:
    return pull_request(g, _write(g, "otters", otters=OTTERS))


def overtaken(g: GitHub) -> Event:
    """`main` moves its knowledge after GitHub has made the merge."""
    event = proposed(g)
    g.ada.git("switch", "-q", "main")
    write(g, badgers="Badgers dig.\n")
    return event


def rebased(g: GitHub) -> Event:
    """On top of what `main` has: git and our driver make both of them one."""
    g.ada.vmrag("install", "-q")
    g.ada.git("switch", "-q", "topic")
    g.ada.git("rebase", "-q", "main", env=ON)
    g.ada.push("--force", "origin", "topic")
    return pull_request(g, "topic")


def web_edited(g: GitHub) -> Event:
    """`main` merged into the branch, the conflict in the pin decided for the branch's."""
    g.ada.git("switch", "-q", "--detach", "topic")
    g.ada.git("checkout", "-q", "main", "--", "docs/rest.md")
    tree = g.ada.git("write-tree")
    return pull_request(g, g.ada.git("commit-tree", tree, "-p", "topic", "-p", "main", "-m", "Merge branch 'main'"))


def cached_for_proposal(g: GitHub) -> Event:
    cached(g)
    return pull_request(g, code(g, "fix"))


def question_missed_by_proposal(g: GitHub) -> Event:
    return pull_request(g, code(g, "fix", **{".vmrag/queries.yaml": MISSED}))


# -- of forks


def fork_of_code(g: GitHub) -> Event:
    return pull_request(g, code(g, "fix"), source=FORK)


def fork_with_knowledge(g: GitHub) -> Event:
    """The fork has the code and its knowledge; the base has neither."""
    fork = g.world.bare("fork.git")
    head = _write(g, "otters", otters=OTTERS)
    g.ada.git("remote", "add", "fork", str(fork.top))
    g.ada.git("push", "-q", "--no-verify", "fork", "otters", "main")
    g.ada.vmrag("push", "fork")
    return pull_request(g, head, source=FORK)


def private_fork(g: GitHub) -> Event:
    g.access.forks = False
    return fork_with_knowledge(g)


def adopted(g: GitHub) -> Event:
    event = fork_with_knowledge(g)
    g.ada.vmrag("adopt", "fork", "otters")
    return event


def hostile_settings(g: GitHub) -> Event:
    """Use settings of a user that contact or run anything."""
    elsewhere = f"{g.url}/mallory/project"
    text = f"remote: git+{elsewhere}.git\nembedding:\n  model: hash\n  model_path: {elsewhere}\n"
    return pull_request(g, code(g, "fix", **{".vmrag.yaml": text}), source=FORK)


def hostile_remote(g: GitHub) -> Event:
    pin = members(dolt_remote=f"git+{g.url}/mallory/project.git", dolt_commit=UNKNOWN)
    return pull_request(g, code(g, "fix", pin=pin), source=FORK)


def hostile_pin(g: GitHub) -> Event:
    pin = members(dolt_remote="ext::sh -c touch% owned", dolt_commit="::error::$(touch owned)")
    return pull_request(g, code(g, "fix", pin=pin), source=FORK)


def linked_pin(g: GitHub) -> Event:
    """A symbolic link to what the runner has."""
    g.ada.git("switch", "-q", "-C", "fix", "main")
    (g.ada.top / ".dolt-version").unlink()
    (g.ada.top / ".dolt-version").symlink_to("/proc/self/environ")
    g.ada.git("commit", "-q", "--no-verify", "-am", "a link")
    return pull_request(g, "HEAD", source=FORK)


# -- merge queues, and merged


def queued(g: GitHub) -> Event:
    head = write(g, "otters", otters=OTTERS)
    return merge_group(
        g, g.world.hub.git("commit-tree", f"{head}^{{tree}}", "-p", "main", "-p", head, "-m", "Merge #7")
    )


def queued_and_dropping(g: GitHub) -> Event:
    return merge_group(g, g.world.hub.git("commit-tree", "topic^{tree}", "-p", "main", "-m", "Topic (#7)"))


def queued_behind_another(g: GitHub) -> Event:
    hub, head = g.world.hub, write(g, "otters", otters=OTTERS)
    first = hub.git("commit-tree", "main^{tree}", "-p", "main", "-m", "Merge #6")
    return merge_group(g, hub.git("commit-tree", f"{head}^{{tree}}", "-p", first, "-p", head, "-m", "Merge #8"), first)


def merged(g: GitHub) -> Event:
    head, before = write(g, "otters", otters=OTTERS), g.tip
    made = g.world.hub.git("commit-tree", f"{head}^{{tree}}", "-p", before, "-p", head, "-m", "Merge #7")
    return closed(g, before, head, made)


def merged_by_squash(g: GitHub) -> Event:
    head, before = write(g, "otters", otters=OTTERS, more="More.\n"), g.tip
    return closed(
        g, before, head, g.world.hub.git("commit-tree", f"{head}^{{tree}}", "-p", before, "-m", "Otters (#7)")
    )


def merged_by_rebase(g: GitHub) -> Event:
    """Recreate each commit on top of `main`, which has more code by now."""
    head = write(g, "otters", otters=OTTERS, more="More.\n")
    g.ada.git("switch", "-q", "main")
    before = code(g)
    g.ada.git("cherry-pick", "main..otters")
    landed = g.ada.git("rev-parse", "HEAD")
    g.ada.git("push", "-q", "--no-verify", "origin", "main")
    return closed(g, before, head, landed)


def squashed_with_the_pin_of_main(g: GitHub) -> Event:
    head, before = g.world.hub.git("rev-parse", "topic"), g.tip
    g.ada.git("checkout", "-q", "topic", "--", "docs/topic.md")
    g.ada.git("commit", "-q", "--no-verify", "-m", "Topic (#7)")
    landed = dropping.land(g.ada, before)
    return closed(g, before, head, landed.after)


# -- comments


def fork_reported(g: GitHub) -> Event:
    """Leave the data of a comment: the fork's own job could not comment."""
    event = fork_with_knowledge(g)
    assert g.job("knowledge report", event, given={"comment": "true"}).passed
    [(name, uploaded)] = g.uploads.items()
    g.api.keep(1, {uploaded.name: uploaded.read_bytes()}, name=name)
    return after_run(g, event.payload["pull_request"]["head"]["sha"])


def hostile_artifact(g: GitHub) -> Event:
    event = fork_of_code(g)
    g.api.keep(1, {"vmrag-comment.json": b'{"number": 7, "text": "@everyone ::error:: <img src=x>"}'})
    return after_run(g, event.payload["pull_request"]["head"]["sha"])


def no_artifact(g: GitHub) -> Event:
    return after_run(g, fork_of_code(g).payload["pull_request"]["head"]["sha"])


def after_run(g: GitHub, head: str) -> Event:
    fields = {"id": 1, "event": "pull_request", "head_sha": head, "head_repository": FORK}
    return Event("workflow_run", {"action": "completed", "workflow_run": fields, "repository": OWN}, g.tip)


# -- after merges


def only_reading(g: GitHub) -> Event:
    """The workflow's author has left out what it may write."""
    g.read_only = True
    return squashed(g)


def conflicting(g: GitHub) -> Event:
    """The pull request of `topic` conflicts with `main` in the pin alone."""
    pull_request = events.pull_request(g.tip, g.world.hub.git("rev-parse", "topic"), source=OWN)["pull_request"]
    g.api.listed = [pull_request | {"head": pull_request["head"] | {"ref": "topic", "label": "them:topic"}}]
    return push(g)


def conflicting_by_hand(g: GitHub) -> Event:
    conflicting(g)
    return by_hand(g, branch="topic")


def squashed_on_protected(g: GitHub) -> Event:
    event = squashed(g)
    dropping.protect(g.world.hub)
    return event


def squashed_in_conflict(g: GitHub) -> Event:
    return pushed_after(g, dropping.squash(g.ada, "clash"))


def dropped_long_ago(g: GitHub) -> Event:
    squashed(g)
    g.ada.git("pull", "-q")
    code(g)
    return schedule(g)


# -- labels


def labelled(g: GitHub, label: str = "adopt-knowledge") -> Event:
    payload = fork_with_knowledge(g).payload
    payload["pull_request"]["head"]["repo"] = FORK | {"html_url": f"{g.url}/me/project"}
    return Event("pull_request_target", payload | {"action": "labeled", "label": {"name": label}}, g.tip)


def labelled_otherwise(g: GitHub) -> Event:
    return labelled(g, "question")
