"""Every git operation: how it is typed, which hooks git runs for it, and what becomes of the
knowledge.

The suite runs each in the repository of `world.build`, and docs/git-operations.md is written from
the same records.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Follows = Literal["hook", "query", "nothing"]
"""Trigger that moves knowledge and index to the branch and its pin.

`hook`: a hook, before git ends. `query`: no hook ran after the move, or git was in the middle of an
operation; the next command notices it. `nothing`: nothing has moved.
"""

Answers = Literal["pin", "no pin", "malformed", "no work tree"]
"""Source of the answer of `vmrag query` afterwards: the pinned revision, or the reason for none."""


@dataclass(frozen=True)
class Operation:
    """An operation and its expected results.

    `commands` are typed in order on `start`, after `before`; the last one is the operation, the
    others prepare it. They end with 0, or with `codes`. `hooks`: vmrag's hooks that git runs for
    all of them, each once, in order. `pin`: the knowledge that is pinned afterwards in `where` (a
    key of `world.CONTENTS`). `said`: parts of the line of vmrag. `aside`: the KB branch with the
    stashed uncommitted documents of `start`; all others stay uncommitted.
    """

    name: str
    commands: tuple[str, ...]
    hooks: tuple[str, ...]
    follows: Follows
    says: str
    start: str = "main"
    before: tuple[str, ...] = ()
    codes: tuple[int, ...] = ()
    pin: str = "main"
    answers: Answers = "pin"
    said: str = ""
    aside: str = ""
    where: str = "."


CHECKOUT = ("post-checkout",)
COMMIT = ("pre-commit", "post-commit")
REBASE = ("post-checkout", "post-commit", "post-rewrite")

BY_HAND = "git show first:.dolt-version >.dolt-version"
STAGED_FIRST = 'git update-index --cacheinfo "100644,$(git rev-parse first:.dolt-version),.dolt-version"'
CODE = "echo 3 >a.txt; git add a.txt"
CLONE = "git clone --template=../template"
STAYS = "uncommitted documents stay with 'main'"
ALONG = "moved to revision"
NOT_COMMITTED = "documents of 'main' are not committed"
CONFLICT = "have a conflict in handbook/limits.md"

CLONES = (
    Operation(
        "git clone",
        (f"{CLONE} ../origin.git ../clone",),
        CHECKOUT,
        "query",
        "A clone has no hooks, unless a template directory adds them. Run `vmrag sync`, or search: it fetches the knowledge base.",
        where="../clone",
        said="run 'vmrag clone' to fetch it",
    ),
    Operation(
        "git clone --depth",
        (f"{CLONE} --no-local --depth 1 ../origin.git ../clone",),
        CHECKOUT,
        "query",
        "A clone has no hooks, unless a template directory adds them. Run `vmrag sync`, or search: it fetches the knowledge base.",
        where="../clone",
    ),
    Operation(
        "git clone --sparse",
        (f"{CLONE} --sparse ../origin.git ../clone",),
        CHECKOUT,
        "query",
        "A clone has no hooks, unless a template directory adds them. Run `vmrag sync`, or search: it fetches the knowledge base.",
        where="../clone",
    ),
    Operation(
        "git clone --no-checkout",
        (f"{CLONE} --no-checkout ../origin.git ../clone",),
        (),
        "query",
        "As `git clone`. The pin is read from the commit.",
        where="../clone",
    ),
    Operation(
        "git clone --no-checkout, then git checkout",
        (f"{CLONE} --no-checkout ../origin.git ../clone", "git -C ../clone checkout main"),
        CHECKOUT,
        "query",
        "A clone has no hooks, unless a template directory adds them. Run `vmrag sync`, or search: it fetches the knowledge base.",
        where="../clone",
    ),
    Operation(
        "git clone --bare",
        (f"{CLONE} --bare ../origin.git ../clone.git",),
        (),
        "nothing",
        "A bare repository has no working tree.",
        where="../clone.git",
        answers="no work tree",
    ),
    Operation(
        "git checkout, in a shallow clone",
        (
            f"{CLONE} --no-local --depth 1 --no-single-branch ../origin.git ../clone",
            "cd ../clone && vmrag clone -q",
            "git -C ../clone checkout feature",
        ),
        CHECKOUT,
        "hook",
        "Documents and index move to the branch's pin.",
        where="../clone",
        pin="feature",
        said="the knowledge base is now at",
    ),
)

SWITCHING = (
    Operation(
        "git checkout BRANCH",
        ("git checkout feature",),
        CHECKOUT,
        "hook",
        "Documents and index move to the branch's pin.",
        pin="feature",
        said=STAYS,
    ),
    Operation(
        "git checkout COMMIT",
        ("git checkout first",),
        CHECKOUT,
        "hook",
        "HEAD is detached: you can read the pinned revision, but not write.",
        pin="first",
        said=STAYS,
    ),
    Operation(
        "git checkout -",
        ("git checkout feature", "git checkout -"),
        CHECKOUT,
        "hook",
        "The branch's uncommitted documents are back. Its index was kept.",
        said="the knowledge base is now at",
    ),
    Operation(
        "git checkout -f",
        ("git checkout -f feature",),
        CHECKOUT,
        "hook",
        "As `git checkout`. git discards changed files, but never documents.",
        before=("echo edited >b.txt",),
        pin="feature",
        said=STAYS,
    ),
    Operation(
        "git checkout -B",
        ("git checkout -B fresh feature",),
        CHECKOUT,
        "hook",
        "Documents and index move to the branch's pin.",
        pin="feature",
        said=STAYS,
    ),
    Operation(
        "git checkout -b",
        ("git checkout -b fresh",),
        CHECKOUT,
        "hook",
        "The new branch has the same revision. It gets its own KB branch when you write a document.",
        said=STAYS,
    ),
    Operation(
        "git checkout, of the branch that is checked out",
        ("git checkout main",),
        CHECKOUT,
        "nothing",
        "Nothing.",
    ),
    Operation(
        "git checkout, with an edited pin, to a branch with the same pin",
        ("git checkout same",),
        CHECKOUT,
        "hook",
        "git keeps the edit, and the edited pin applies.",
        before=(BY_HAND,),
        pin="first",
        said=STAYS,
    ),
    Operation(
        "git checkout, with an edited pin, to a branch with another pin",
        ("git checkout feature",),
        (),
        "nothing",
        "git refuses.",
        before=(BY_HAND,),
        pin="first",
        codes=(1,),
    ),
    Operation(
        "git checkout -m, with an edited pin",
        ("git checkout -m feature",),
        CHECKOUT,
        "hook",
        "The merge driver merges the documents of both pins.",
        before=(BY_HAND,),
        pin="feature",
        said=STAYS,
    ),
    Operation(
        "git checkout, to a branch without a pin",
        ("git checkout plain",),
        CHECKOUT,
        "hook",
        "Documents do not move, and each answer warns that this commit has no pin.",
        pin="none",
        answers="no pin",
    ),
    Operation(
        "git checkout, from a branch without a pin",
        ("git checkout main",),
        CHECKOUT,
        "hook",
        "Documents and index move to the branch's pin.",
        start="plain",
    ),
    Operation(
        "git checkout --orphan",
        ("git checkout --orphan fresh",),
        CHECKOUT,
        "hook",
        "The pin stays staged for the first commit.",
        said=STAYS,
    ),
    Operation(
        "git switch BRANCH",
        ("git switch feature",),
        CHECKOUT,
        "hook",
        "Documents and index move to the branch's pin.",
        pin="feature",
        said=STAYS,
    ),
    Operation(
        "git switch -c",
        ("git switch -c fresh first",),
        CHECKOUT,
        "hook",
        "The new branch has the same revision. It gets its own KB branch when you write a document.",
        pin="first",
        said=STAYS,
    ),
    Operation(
        "git switch --detach",
        ("git switch --detach feature",),
        CHECKOUT,
        "hook",
        "HEAD is detached: you can read the pinned revision, but not write.",
        pin="feature",
        said=STAYS,
    ),
    Operation(
        "git switch --orphan",
        ("git switch --orphan fresh",),
        CHECKOUT,
        "hook",
        "The new branch has no pin until `vmrag pin` or `vmrag commit`.",
        pin="none",
        answers="no pin",
    ),
    Operation(
        "git switch, in a sparse working tree without the pin's file",
        ("git switch feature",),
        CHECKOUT,
        "hook",
        "The pin is read from git's index.",
        before=("git sparse-checkout set --no-cone /a.txt",),
        pin="feature",
        said=STAYS,
    ),
    Operation(
        "git branch -m",
        ("git branch -m trunk",),
        (),
        "query",
        "The KB branch follows, with uncommitted documents.",
    ),
    Operation(
        "git branch -D",
        ("git branch -D topic",),
        (),
        "nothing",
        "The KB branch stays. `vmrag gc` prunes it if it has no uncommitted documents.",
    ),
)

PIN_ALONE = (
    Operation(
        "git checkout COMMIT -- .dolt-version",
        ("git checkout first -- .dolt-version",),
        CHECKOUT,
        "hook",
        "Documents and index move to that pin. Uncommitted documents move along.",
        pin="first",
        said=ALONG,
    ),
    Operation(
        "git restore --source COMMIT .dolt-version",
        ("git restore --source first .dolt-version",),
        CHECKOUT,
        "hook",
        "Documents and index move to that pin. Uncommitted documents move along.",
        pin="first",
        said=ALONG,
    ),
    Operation(
        "git restore .dolt-version",
        ("git restore .dolt-version",),
        CHECKOUT,
        "hook",
        "The edit of the pin is undone, and the documents move back.",
        before=(BY_HAND,),
        said=ALONG,
    ),
    Operation(
        "git apply --index",
        ("git diff main feature -- .dolt-version | git apply --index",),
        (),
        "query",
        "The patched pin applies.",
        pin="feature",
    ),
    Operation("an edit by hand", (BY_HAND,), (), "query", "The file in the working tree applies.", pin="first"),
    Operation(
        "an edit by hand that makes the pin invalid",
        ("echo '{' >.dolt-version",),
        (),
        "query",
        "Documents do not move, and each answer shows the error in the pin.",
        pin="none",
        answers="malformed",
    ),
    Operation(
        "deleting the file by hand",
        ("rm .dolt-version",),
        (),
        "nothing",
        "The staged pin applies.",
    ),
    Operation(
        "git read-tree",
        ("git read-tree feature",),
        (),
        "nothing",
        "The file in the working tree applies, not git's index.",
    ),
    Operation(
        "git read-tree -m -u",
        ("git read-tree -m -u HEAD feature",),
        (),
        "query",
        "The pin's file changes, and the documents move.",
        pin="feature",
    ),
    Operation(
        "git sparse-checkout",
        ("git sparse-checkout set --no-cone /a.txt",),
        (),
        "nothing",
        "If the pin's file is left out, the staged pin applies.",
    ),
)

RESETTING = (
    Operation(
        "git reset --soft",
        ("git reset --soft first",),
        (),
        "nothing",
        "The pin's file does not change.",
    ),
    Operation("git reset --mixed", ("git reset --mixed first",), (), "nothing", "The pin's file does not change."),
    Operation(
        "git reset --hard",
        ("git reset --hard first",),
        (),
        "query",
        "Documents and index move to the pin. Uncommitted documents move along, and the former revision is kept.",
        pin="first",
    ),
    Operation(
        "git reset --keep",
        ("git reset --keep first",),
        (),
        "query",
        "Documents and index move to the pin. Uncommitted documents move along, and the former revision is kept.",
        pin="first",
    ),
    Operation(
        "git reset --merge",
        ("git reset --merge first",),
        (),
        "query",
        "Documents and index move to the pin. Uncommitted documents move along, and the former revision is kept.",
        pin="first",
    ),
    Operation(
        "git update-ref",
        ("git update-ref refs/heads/main first",),
        (),
        "nothing",
        "The pin's file does not change.",
    ),
    Operation(
        "git filter-branch",
        (f"FILTER_BRANCH_SQUELCH_WARNING=1 git filter-branch --index-filter '{STAGED_FIRST}' first..HEAD >../log",),
        (),
        "query",
        "Documents and index move to the pin. Uncommitted documents move along, and the former revision is kept.",
        pin="first",
    ),
)

COMMITTING = (
    Operation(
        "git commit",
        ("git commit -m code",),
        COMMIT,
        "nothing",
        "The hook checks the pin, and warns about uncommitted documents (`hooks.on_dirty`).",
        before=(CODE,),
        said=NOT_COMMITTED,
    ),
    Operation(
        "git commit, after vmrag commit",
        ("git commit -m knowledge",),
        COMMIT,
        "nothing",
        "The commit has the new pin. `vmrag commit` has already moved the index.",
        before=("vmrag commit -m knowledge",),
        pin="main+draft",
    ),
    Operation(
        "git commit, with an edited pin that is not staged",
        ("git commit -m code",),
        COMMIT,
        "nothing",
        "A warning shows that the commit has another pin than the working tree.",
        before=(BY_HAND, CODE),
        pin="first",
        said="differs from the staged one",
    ),
    Operation(
        "git commit -a",
        ("git commit -a -m back",),
        COMMIT,
        "nothing",
        "The hook checks the pin, and warns about uncommitted documents (`hooks.on_dirty`).",
        before=(BY_HAND,),
        pin="first",
        said=NOT_COMMITTED,
    ),
    Operation(
        "git commit -- PATH",
        ("git commit -m code -- a.txt",),
        COMMIT,
        "nothing",
        "A staged pin stays staged.",
        before=("echo 3 >a.txt", "vmrag commit -m knowledge"),
        pin="main+draft",
    ),
    Operation(
        "git commit -i PATH",
        ("git commit -m code -i a.txt",),
        COMMIT,
        "nothing",
        "The commit includes a staged pin.",
        before=("echo 3 >a.txt", "vmrag commit -m knowledge"),
        pin="main+draft",
    ),
    Operation(
        "git commit --fixup",
        ("git commit --fixup HEAD",),
        COMMIT,
        "nothing",
        "The hook checks the pin, and warns about uncommitted documents (`hooks.on_dirty`).",
        before=(CODE,),
        said=NOT_COMMITTED,
    ),
    Operation(
        "git commit -n",
        ("git commit -n -m code",),
        ("post-commit",),
        "nothing",
        "The pin is not checked.",
        before=(CODE,),
    ),
    Operation(
        "git commit, on a detached HEAD",
        ("git commit -m code",),
        COMMIT,
        "nothing",
        "The hook checks the pin, and warns about uncommitted documents (`hooks.on_dirty`).",
        start="first",
        before=(CODE,),
        pin="first",
    ),
    Operation(
        "git commit, on an orphan branch",
        ("git commit -m begin",),
        COMMIT,
        "nothing",
        "The commit has the branch's first pin.",
        before=("git checkout -q --orphan fresh",),
    ),
    Operation(
        "git commit --amend",
        ("git commit --amend -m code",),
        (*COMMIT, "post-rewrite"),
        "nothing",
        "As `git commit`. The table of links records the replaced commit.",
        before=(CODE,),
        said=NOT_COMMITTED,
    ),
    Operation(
        "git commit --amend, after vmrag commit",
        ("git commit --amend -m code",),
        (*COMMIT, "post-rewrite"),
        "nothing",
        "As `git commit`. The table of links records the replaced commit.",
        before=("vmrag commit -m knowledge",),
        pin="main+draft",
    ),
)

PICKING = (
    Operation(
        "git cherry-pick",
        ("git cherry-pick feature~1",),
        ("post-commit",),
        "hook",
        "The merge driver merges the commit's changes and pins the result. Uncommitted documents move along.",
        pin="main+feature",
        said=ALONG,
    ),
    Operation(
        "git cherry-pick, of several commits",
        ("git cherry-pick feature~2..feature",),
        ("post-commit",),
        "query",
        "As `git cherry-pick`, but the index moves only once.",
        pin="main+feature",
    ),
    Operation(
        "git cherry-pick -n",
        ("git cherry-pick -n feature~1",),
        (),
        "query",
        "As `git cherry-pick`, and the merged pin is staged.",
        pin="main+feature",
    ),
    Operation(
        "git cherry-pick -n, then git commit",
        ("git cherry-pick -n feature~1", "git commit -m picked"),
        COMMIT,
        "hook",
        "The merge driver merges the commit's changes and pins the result. Uncommitted documents move along.",
        pin="main+feature",
        said=ALONG,
    ),
    Operation(
        "git cherry-pick, stopped by a conflict",
        ("git cherry-pick rival",),
        (),
        "nothing",
        "Your pin stays. A line lists the documents in conflict: run `vmrag resolve`.",
        codes=(1,),
        said=CONFLICT,
    ),
    Operation(
        "git cherry-pick --continue",
        ("git cherry-pick rival", "vmrag resolve --theirs", "git cherry-pick --continue"),
        COMMIT,
        "nothing",
        "`vmrag resolve` has already pinned and staged the result.",
        codes=(1, 0, 0),
        pin="main+rival",
    ),
    Operation(
        "git cherry-pick --abort",
        ("git cherry-pick rival", "git cherry-pick --abort"),
        (),
        "nothing",
        "The former pin applies.",
        codes=(1, 0),
    ),
    Operation(
        "git revert",
        ("git revert --no-edit HEAD~1",),
        ("post-commit",),
        "hook",
        "The merge driver undoes the commit's changes and pins the result.",
        pin="first",
        said=ALONG,
    ),
)

MERGING = (
    Operation(
        "git merge, fast-forward",
        ("git merge main",),
        ("post-merge",),
        "hook",
        "Documents and index move to the new pin.",
        start="behind",
        said="the knowledge base is now at",
    ),
    Operation(
        "git merge, of a pin whose documents you have also changed",
        ("git merge main",),
        ("post-merge",),
        "hook",
        "Your uncommitted documents are stashed, and a line names the place.",
        start="behind",
        before=("echo mine >../mine", "vmrag add ../mine --collection handbook --id limits.md"),
        said="vmrag merge vmrag/wip/behind",
        aside="vmrag/wip/behind",
    ),
    Operation(
        "git merge",
        ("git merge --no-edit feature",),
        ("pre-merge-commit", "post-merge"),
        "hook",
        "The merge driver merges the documents of both sides. A merge that would drop documents is stopped.",
        pin="main+feature",
        said=ALONG,
    ),
    Operation(
        "git merge --no-commit",
        ("git merge --no-commit feature",),
        (),
        "query",
        "The merged pin is staged and applies.",
        pin="main+feature",
    ),
    Operation(
        "git merge --no-commit, then git commit",
        ("git merge --no-commit feature", "git commit --no-edit"),
        COMMIT,
        "hook",
        "The merge driver merges the documents of both sides. A merge that would drop documents is stopped.",
        pin="main+feature",
        said=ALONG,
    ),
    Operation(
        "git merge --squash",
        ("git merge --squash feature",),
        ("post-merge",),
        "hook",
        "As `git merge`, and the merged pin is staged.",
        pin="main+feature",
        said=ALONG,
    ),
    Operation(
        "git merge, stopped by a conflict",
        ("git merge rival",),
        (),
        "nothing",
        "Your pin stays. A line lists the documents in conflict: run `vmrag resolve`.",
        codes=(1,),
        said=CONFLICT,
    ),
    Operation(
        "git merge, concluded by git commit",
        ("git merge rival", "vmrag resolve --theirs", "git commit --no-edit"),
        COMMIT,
        "nothing",
        "`vmrag resolve` has already pinned and staged the result.",
        codes=(1, 0, 0),
        pin="main+rival",
    ),
    Operation(
        "git merge --abort",
        ("git merge rival", "git merge --abort"),
        (),
        "nothing",
        "The former pin applies.",
        codes=(1, 0),
    ),
)

SHARING = (
    Operation(
        "git pull, fast-forward",
        ("git pull origin main",),
        ("post-merge",),
        "hook",
        "The merge driver merges the documents of both sides. A merge that would drop documents is stopped.",
        start="behind",
        said="the knowledge base is now at",
    ),
    Operation(
        "git pull, a true merge",
        ("git pull --no-rebase --no-edit origin feature",),
        ("pre-merge-commit", "post-merge"),
        "hook",
        "The merge driver merges the documents of both sides. A merge that would drop documents is stopped.",
        pin="main+feature",
        said=ALONG,
    ),
    Operation(
        "git pull --rebase, without commits of your own",
        ("git pull --rebase origin main",),
        ("post-merge",),
        "hook",
        "Documents and index move to the new pin.",
        start="behind",
        said="the knowledge base is now at",
    ),
    Operation(
        "git pull --rebase",
        ("git pull --rebase origin main",),
        REBASE,
        "hook",
        "At its end, documents and index move once. Uncommitted documents move along.",
        start="topic",
        said=ALONG,
    ),
    Operation(
        "git fetch",
        ("git fetch origin",),
        (),
        "nothing",
        "Nothing.",
        before=("git update-ref -d refs/remotes/origin/feature",),
    ),
    Operation(
        "git push, without a new pin",
        ("git push origin same:fresh",),
        ("pre-push",),
        "nothing",
        "Nothing.",
    ),
    Operation(
        "git push, of new pins",
        ("git push origin rival",),
        ("pre-push",),
        "nothing",
        "Each new pin is checked, and the knowledge base is pushed first. The push stops if the last pin of a branch is invalid, or if a new pin cannot be checked.",
    ),
)

REBASING = (
    Operation(
        "git rebase",
        ("git rebase main",),
        REBASE,
        "hook",
        "At its end, documents and index move once. Uncommitted documents move along.",
        start="topic",
        said=ALONG,
    ),
    Operation(
        "git rebase, of commits with knowledge",
        ("git rebase main",),
        REBASE,
        "hook",
        "The merge driver merges the changes of each commit. The old revisions are kept.",
        start="feature",
        pin="main+feature",
    ),
    Operation(
        "git rebase -i, in another order",
        ("GIT_SEQUENCE_EDITOR='sed -i \"1{h;d};2G\"' git rebase -i HEAD~2",),
        REBASE,
        "nothing",
        "The pin at the end is the former one.",
        start="topic",
        pin="first",
    ),
    Operation(
        "git rebase -i, without the commit of a pin",
        ("GIT_SEQUENCE_EDITOR='sed -i 1d' git rebase -i first",),
        REBASE,
        "hook",
        "At its end, documents and index move once. Uncommitted documents move along.",
        pin="first",
        said=ALONG,
    ),
    Operation(
        "git rebase -i, without the last commits",
        ("GIT_SEQUENCE_EDITOR='sed -i s/^pick/drop/' git rebase -i first",),
        CHECKOUT,
        "query",
        "git runs no hook at the end of this rebase.",
        pin="first",
    ),
    Operation(
        "git rebase --apply",
        ("git rebase --apply main",),
        ("post-checkout", "post-applypatch", "post-rewrite"),
        "query",
        "git runs the first hook before it marks the rebase. So a line reports documents as left behind, which are back at the end.",
        start="topic",
        said="uncommitted documents stay with 'topic'",
    ),
    Operation(
        "git rebase, of a branch that is strictly behind",
        ("git rebase main",),
        CHECKOUT,
        "query",
        "git runs no hook at the end of this rebase.",
        start="behind",
    ),
    Operation(
        "git rebase, with nothing to do",
        ("git rebase first",),
        (),
        "nothing",
        "The former pin applies.",
        start="topic",
        pin="first",
    ),
    Operation(
        "git rebase, stopped to edit",
        ("GIT_SEQUENCE_EDITOR='sed -i 1s/pick/edit/' git rebase -i main",),
        ("post-checkout", "post-commit"),
        "query",
        "Answers come from the pin of this commit. You cannot write.",
        start="topic",
    ),
    Operation(
        "git rebase --continue, after an edit",
        ("GIT_SEQUENCE_EDITOR='sed -i 1s/pick/edit/' git rebase -i main", "git rebase --continue"),
        REBASE,
        "hook",
        "At its end, documents and index move once. Uncommitted documents move along.",
        start="topic",
        said=ALONG,
    ),
    Operation(
        "git rebase, stopped by a conflict",
        ("git rebase main",),
        CHECKOUT,
        "query",
        "The pin of the new base applies. A line lists the documents in conflict: run `vmrag resolve`.",
        start="rival",
        codes=(1,),
        said=CONFLICT,
    ),
    Operation(
        "git rebase --continue, after a conflict",
        ("git rebase main", "vmrag resolve --theirs", "git rebase --continue"),
        REBASE,
        "hook",
        "At its end, documents and index move once. Uncommitted documents move along.",
        start="rival",
        codes=(1, 0, 0),
        pin="main+rival",
    ),
    Operation(
        "git rebase --abort",
        ("git rebase main", "git rebase --abort"),
        CHECKOUT,
        "nothing",
        "The former pin applies.",
        start="rival",
        codes=(1, 0),
        pin="rival",
    ),
    Operation(
        "git rebase --abort, after a query",
        ("git rebase main", "vmrag query winter", "git rebase --abort"),
        CHECKOUT,
        "query",
        "git runs no hook when it aborts.",
        start="rival",
        codes=(1, 0, 0),
        pin="rival",
    ),
    Operation(
        "git am",
        ("git format-patch -q --stdout first..feature | git am",),
        ("post-applypatch",),
        "query",
        "The patched pin applies.",
        start="topic",
        pin="feature",
    ),
)

STASHING = (
    Operation(
        "git stash push",
        ("git stash push",),
        (),
        "query",
        "Documents move to the committed pin. git stashes the pin, but not uncommitted documents.",
        before=(BY_HAND,),
    ),
    Operation(
        "git stash pop",
        ("git stash pop",),
        (),
        "query",
        "Documents move to the stashed pin.",
        before=(BY_HAND, "git stash push"),
        pin="first",
    ),
    Operation(
        "git stash push --keep-index",
        ("git stash push --keep-index",),
        CHECKOUT,
        "nothing",
        "A staged pin stays staged.",
        before=(BY_HAND, "git add .dolt-version; echo 3 >a.txt"),
        pin="first",
    ),
)

BISECTING = (
    Operation(
        "git bisect start",
        ("git bisect start main first",),
        CHECKOUT,
        "query",
        "An index is built only if you search at that step.",
    ),
    Operation(
        "git bisect good, bad",
        ("git bisect start same first", "git bisect bad"),
        CHECKOUT,
        "query",
        "An index is built only if you search at that step.",
    ),
    Operation(
        "git bisect reset",
        ("git bisect start main first", "git bisect good", "git bisect reset"),
        CHECKOUT,
        "nothing",
        "The former pin applies.",
    ),
    Operation(
        "git bisect reset, after a query",
        ("git bisect start feature first", "vmrag query winter", "git bisect reset"),
        CHECKOUT,
        "hook",
        "Documents and index move to the branch's pin.",
        said="the knowledge base is now at",
    ),
)

TREES = (
    Operation(
        "git worktree add",
        ("git worktree add ../tree feature",),
        CHECKOUT,
        "hook",
        "The new worktree has its own pin. It shares the knowledge base and indexes.",
        where="../tree",
        pin="feature",
        said="the knowledge base is now at",
    ),
    Operation(
        "git worktree add --no-checkout",
        ("git worktree add --no-checkout ../tree feature",),
        (),
        "query",
        "The pin is read from the commit.",
        where="../tree",
        pin="feature",
    ),
    Operation(
        "git switch, in a linked worktree",
        ("git worktree add -q ../tree feature", "git -C ../tree switch topic"),
        CHECKOUT,
        "hook",
        "As `git switch`. Other worktrees do not move.",
        where="../tree",
        pin="first",
        said="the knowledge base is now at",
    ),
    Operation(
        "git commit, in a linked worktree",
        ("git worktree add -q ../tree feature", "git -C ../tree commit --allow-empty -m code"),
        (*CHECKOUT, *COMMIT),
        "nothing",
        "As `git commit`, for the documents of this worktree's branch.",
        where="../tree",
        pin="feature",
    ),
    Operation(
        "git submodule update",
        ("git -C ../outer checkout -q HEAD~1", "git -C ../outer submodule update"),
        CHECKOUT,
        "hook",
        "The submodule's hooks move the submodule's documents.",
        where="../outer/inner",
        pin="first",
        said="the knowledge base is now at",
    ),
)

TABLE = {
    "Cloning": CLONES,
    "Switching": SWITCHING,
    "The pin alone": PIN_ALONE,
    "Resetting": RESETTING,
    "Committing": COMMITTING,
    "Picking and reverting": PICKING,
    "Merging": MERGING,
    "Pulling, fetching, pushing": SHARING,
    "Rebasing": REBASING,
    "Stashing": STASHING,
    "Bisecting": BISECTING,
    "Worktrees and submodules": TREES,
}
"""All operations by group, as docs/git-operations.md shows them."""

OPERATIONS = tuple(tool for group in TABLE.values() for tool in group)
