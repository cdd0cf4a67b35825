"""The operations of the table by libgit2, which gitui and other clients use: it runs no hook and no
merge driver.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pygit2
from pygit2.enums import ApplyLocation, CheckoutStrategy, FileStatus, ResetMode

from vmrag_link.paths import PIN_NAME

Does = Callable[[pygit2.Repository], object]

_FORCED = CheckoutStrategy.FORCE
_ME = pygit2.Signature("Someone", "someone@example.com")


def _commit(repo: pygit2.Repository, name: str) -> pygit2.Commit:
    return repo.revparse_single(name).peel(pygit2.Commit)


def _switch(name: str) -> Does:
    return lambda repo: repo.checkout(f"refs/heads/{name}")


def _detach(name: str) -> Does:
    def does(repo: pygit2.Repository) -> None:
        repo.checkout_tree(_commit(repo, name))
        repo.set_head(_commit(repo, name).id)

    return does


def _create(name: str, at: str = "HEAD") -> Does:
    def does(repo: pygit2.Repository) -> None:
        repo.branches.local.create(name, _commit(repo, at), force=True)
        repo.checkout(f"refs/heads/{name}")

    return does


def _pin_of(name: str) -> Does:
    return lambda repo: repo.checkout_tree(_commit(repo, name), paths=[PIN_NAME], strategy=_FORCED)


def _patch(repo: pygit2.Repository) -> None:
    patch = repo.diff(_commit(repo, "main"), _commit(repo, "feature"))
    only = "".join(passage.text for passage in patch if passage.delta.new_file.path == PIN_NAME)
    repo.apply(pygit2.Diff.parse_diff(only), ApplyLocation.BOTH)


def _read_tree(repo: pygit2.Repository) -> None:
    repo.index.read_tree(_commit(repo, "feature").tree)
    repo.index.write()


def _reset(mode: ResetMode) -> Does:
    return lambda repo: repo.reset(_commit(repo, "first").id, mode)


def _move_branch(repo: pygit2.Repository) -> None:
    repo.references["refs/heads/main"].set_target(_commit(repo, "first").id)


def _record(repo: pygit2.Repository) -> None:
    """Commit what is staged."""
    heads = [] if repo.head_is_unborn else [repo.head.target]
    heads += repo.listall_mergeheads()
    repo.create_commit("HEAD", _ME, _ME, "code", repo.index.write_tree(), heads)
    repo.state_cleanup()


def _record_all(repo: pygit2.Repository) -> None:
    for path, status in repo.status().items():
        if status & FileStatus.WT_MODIFIED:
            repo.index.add(path)
    repo.index.write()
    _record(repo)


def _amend(repo: pygit2.Repository) -> None:
    repo.amend_commit(_commit(repo, "HEAD"), "HEAD", tree=repo.index.write_tree(), message="code")


def _forward(repo: pygit2.Repository, to: str = "main") -> None:
    repo.checkout_tree(_commit(repo, to))
    repo.head.set_target(_commit(repo, to).id)


def _merge(name: str) -> Does:
    return lambda repo: repo.merge(_commit(repo, name).id)


def _origin(repo: pygit2.Repository) -> pygit2.Remote:
    repo.remotes.set_url("origin", str(Path(repo.workdir, "../origin.git").resolve()))  # libgit2 takes no relative one
    return repo.remotes["origin"]


def _fetch(repo: pygit2.Repository) -> None:
    _origin(repo).fetch()


def _pull(repo: pygit2.Repository) -> None:
    _fetch(repo)
    _forward(repo, "origin/main")


def _push(refspec: str) -> Does:
    return lambda repo: _origin(repo).push([refspec])


def _rebase(repo: pygit2.Repository) -> None:
    rebase = repo.rebase_init(upstream=_commit(repo, "main"))
    for _ in rebase:
        if repo.index.conflicts:
            _vmrag_resolve(repo)
            repo.index.read()
        rebase.commit(_ME)
    rebase.finish(_ME)


def _stopped_rebase(repo: pygit2.Repository) -> pygit2.rebase.Rebase:
    rebase = repo.rebase_init(upstream=_commit(repo, "main"))
    next(rebase)
    return rebase


def _stash(repo: pygit2.Repository) -> None:
    repo.stash(_ME)


def _worktree(repo: pygit2.Repository, branch: str = "feature") -> pygit2.Repository:
    made = repo.add_worktree("tree", f"{repo.workdir}../tree", repo.branches.local[branch])
    return pygit2.Repository(made.path)


def _update_submodule(repo: pygit2.Repository) -> None:
    outer = pygit2.Repository(f"{repo.workdir}../outer")
    outer.checkout_tree(_commit(outer, "HEAD~1"))
    outer.set_head(_commit(outer, "HEAD~1").id)
    outer.submodules.update()


def _clone(**given: object) -> Does:
    return lambda repo: pygit2.clone_repository(f"{repo.workdir}../origin.git", f"{repo.workdir}../clone", **given)


def _vmrag_resolve(repo: pygit2.Repository) -> None:
    """Run the command from the hint of the next command."""
    subprocess.run(["vmrag", "resolve"], cwd=repo.workdir, check=True, capture_output=True)


def _all(*steps: Does) -> Does:
    def does(repo: pygit2.Repository) -> None:
        for one in steps:
            one(repo)
            repo = pygit2.Repository(repo.workdir)  # another program may have written the index

    return does


BY_NAME: dict[str, Does] = {
    "git clone": _clone(),
    "git clone --bare": lambda repo: pygit2.clone_repository(
        f"{repo.workdir}../origin.git", f"{repo.workdir}../clone.git", bare=True
    ),
    "git checkout BRANCH": _switch("feature"),
    "git checkout COMMIT": _detach("first"),
    "git checkout -": _all(_switch("feature"), _switch("main")),
    "git checkout -f": lambda repo: repo.checkout("refs/heads/feature", strategy=_FORCED),
    "git checkout -B": _create("fresh", "feature"),
    "git checkout -b": _create("fresh"),
    "git checkout, of the branch that is checked out": _switch("main"),
    "git checkout, with an edited pin, to a branch with the same pin": _switch("same"),
    "git checkout, to a branch without a pin": _switch("plain"),
    "git checkout, from a branch without a pin": _switch("main"),
    "git checkout --orphan": lambda repo: repo.set_head("refs/heads/fresh"),
    "git switch --detach": _detach("feature"),
    "git branch -m": lambda repo: repo.branches.local["main"].rename("trunk"),
    "git branch -D": lambda repo: repo.branches.local.delete("topic"),
    "git checkout COMMIT -- .dolt-version": _pin_of("first"),
    "git restore .dolt-version": _pin_of("HEAD"),
    "git apply --index": _patch,
    "git read-tree": _read_tree,
    "git reset --soft": _reset(ResetMode.SOFT),
    "git reset --mixed": _reset(ResetMode.MIXED),
    "git reset --hard": _reset(ResetMode.HARD),
    "git update-ref": _move_branch,
    "git commit": _record,
    "git commit, after vmrag commit": _record,
    "git commit -a": _record_all,
    "git commit, on a detached HEAD": _record,
    "git commit, on an orphan branch": _record,
    "git commit --amend": _amend,
    "git commit --amend, after vmrag commit": _amend,
    "git cherry-pick -n": lambda repo: repo.cherrypick(_commit(repo, "feature~1").id),
    "git cherry-pick": _all(lambda repo: repo.cherrypick(_commit(repo, "feature~1").id), _vmrag_resolve, _record),
    "git revert": _all(lambda repo: repo.revert(_commit(repo, "HEAD~1")), _record),
    "git merge, fast-forward": _forward,
    "git merge, of a pin whose documents you have also changed": _forward,
    "git merge --no-commit": _merge("feature"),
    "git merge": _all(_merge("feature"), _vmrag_resolve, _record),
    "git merge, stopped by a conflict": _merge("rival"),
    "git merge --abort": _all(_merge("rival"), lambda repo: repo.reset(repo.head.target, ResetMode.HARD)),
    "git pull, fast-forward": _pull,
    "git fetch": _fetch,
    "git push, without a new pin": _push("refs/heads/same:refs/heads/fresh"),
    "git push, of new pins": _push("refs/heads/rival"),
    "git rebase": _rebase,
    "git rebase, of commits with knowledge": _rebase,
    "git rebase, stopped to edit": _stopped_rebase,
    "git rebase --abort": lambda repo: _stopped_rebase(repo).abort(),
    "git stash push": _stash,
    "git stash pop": lambda repo: repo.stash_pop(),
    "git worktree add": _worktree,
    "git switch, in a linked worktree": lambda repo: _worktree(repo).checkout("refs/heads/topic"),
    "git commit, in a linked worktree": lambda repo: _record(_worktree(repo)),
    "git submodule update": _update_submodule,
}
