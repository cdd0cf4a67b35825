"""The operations of the table by jj (Jujutsu), as typed in a folder that it shares with git."""

from __future__ import annotations

_CONFLICT = "roots(conflicts())"
_RESOLVED = (f"jj new '{_CONFLICT}'", "vmrag resolve", "jj squash")

BY_NAME: dict[str, tuple[str, ...]] = {
    "git clone": ("jj git clone ../origin.git ../clone",),
    "git checkout BRANCH": ("jj new feature",),
    "git checkout COMMIT": ("jj new first",),
    "git checkout -": ("jj new feature", "jj new main"),
    "git checkout -b": ("jj bookmark create fresh -r @-",),
    "git checkout, to a branch without a pin": ("jj new plain",),
    "git checkout, from a branch without a pin": ("jj new main",),
    "git switch --detach": ("jj edit feature",),
    "git branch -m": ("jj bookmark rename main trunk",),
    "git branch -D": ("jj bookmark delete topic",),
    "git checkout COMMIT -- .dolt-version": ("jj restore --from first .dolt-version",),
    "git restore .dolt-version": ("jj restore .dolt-version",),
    "an edit by hand": ("git show first:.dolt-version >.dolt-version", "jj status"),
    "git reset --hard": ("jj bookmark set main -r first --allow-backwards", "jj new main"),
    "git commit": ("jj commit -m code",),
    "git commit, after vmrag commit": ("jj commit -m knowledge",),
    "git commit -a": ("jj commit -m back",),
    "git commit, on a detached HEAD": ("jj commit -m code",),
    "git commit --amend": ("jj squash",),
    "git commit --amend, after vmrag commit": ("jj squash",),
    "git cherry-pick": ("jj duplicate feature- -d main", *_RESOLVED),
    "git revert": ("jj revert -r main- -A main", "jj new main+"),
    "git merge, fast-forward": ("jj new main",),
    "git merge --no-commit": ("jj new main feature",),
    "git merge": ("jj new main feature", "vmrag resolve", "jj commit -m merged"),
    "git merge, stopped by a conflict": ("jj new main rival",),
    "git merge --abort": ("jj new main rival", "jj undo"),
    "git pull, fast-forward": ("jj git fetch", "jj new main@origin"),
    "git fetch": ("jj git fetch",),
    "git push, of new pins": ("jj bookmark track rival@origin", "jj git push -b rival"),
    "git rebase": ("jj rebase -b topic -d main",),
    "git rebase, of commits with knowledge": ("jj rebase -b feature -d main", *_RESOLVED, "jj new feature"),
    "git rebase --abort": ("jj rebase -b rival -d main", "jj undo"),
    "git stash push": ("jj new main",),
    "git worktree add": ("jj workspace add ../tree -r feature",),
    "git switch, in a linked worktree": ("jj workspace add ../tree -r feature", "cd ../tree && jj new topic"),
    "git commit, in a linked worktree": ("jj workspace add ../tree -r feature", "cd ../tree && jj commit -m code"),
}
