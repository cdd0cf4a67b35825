"""Every git operation: how it is typed, which hooks git runs for it, and what becomes of the
knowledge.

The suite runs each in the repository of `world.build`, and docs/hooks.md is written from the same
records.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Follows = Literal["hook", "query", "nothing"]
"""Who brings knowledge and index to where the branch and its pin are then.

`hook`: a hook, before git is done. `query`: no hook ran after the move, or git was in the middle of
something; the next command notices it. `nothing`: there is nothing to follow.
"""

Answers = Literal["pin", "no pin", "malformed", "no work tree"]
"""What `vmrag query` answers from afterwards: the pinned revision, or it says why not."""


@dataclass(frozen=True)
class Operation:
    """`commands` are typed one after the other on `start`, after `before`; the last one is the
    operation, the others lead there.

    They end with 0, or as `codes` says. `hooks`: those of ours that git runs for all of them, each
    once, in order. `pin`: whose knowledge
    is pinned afterwards in `where` (a key of `world.CONTENTS`). `said`: what our line says, among
    other things.
    `aside`: the branch of the knowledge base where the uncommitted documents of `start` are set
    aside then; all others stay uncommitted.
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
ALONG = "went along to revision"
NOT_COMMITTED = "Documents of 'main' are not committed"
CONFLICT = "has a conflict in handbook/limits.md"

CLONES = (
    Operation(
        "git clone",
        (f"{CLONE} ../origin.git ../clone",),
        CHECKOUT,
        "query",
        "Only a template directory gives a clone its hooks. They say that the code pins knowledge; the first query fetches it, and answers "
        "from the pin.",
        where="../clone",
        said="to fetch it: vmrag clone",
    ),
    Operation(
        "git clone --depth",
        (f"{CLONE} --no-local --depth 1 ../origin.git ../clone",),
        CHECKOUT,
        "query",
        "As `git clone`; no history is needed.",
        where="../clone",
    ),
    Operation(
        "git clone --sparse",
        (f"{CLONE} --sparse ../origin.git ../clone",),
        CHECKOUT,
        "query",
        "As `git clone`.",
        where="../clone",
    ),
    Operation(
        "git clone --no-checkout",
        (f"{CLONE} --no-checkout ../origin.git ../clone",),
        (),
        "query",
        "As `git clone`; the pin is read from the commit.",
        where="../clone",
    ),
    Operation(
        "git clone --no-checkout, then git checkout",
        (f"{CLONE} --no-checkout ../origin.git ../clone", "git -C ../clone checkout main"),
        CHECKOUT,
        "query",
        "As `git clone`.",
        where="../clone",
    ),
    Operation(
        "git clone --bare",
        (f"{CLONE} --bare ../origin.git ../clone.git",),
        (),
        "nothing",
        "There is no work tree that could stand anywhere.",
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
        "As in any clone with a knowledge base.",
        where="../clone",
        pin="feature",
        said="knowledge is at",
    ),
)

SWITCHING = (
    Operation(
        "git checkout BRANCH",
        ("git checkout feature",),
        CHECKOUT,
        "hook",
        "Knowledge and index stand at what the branch pins; uncommitted documents stay with the branch that you left.",
        pin="feature",
        said=STAYS,
    ),
    Operation(
        "git checkout COMMIT",
        ("git checkout first",),
        CHECKOUT,
        "hook",
        "HEAD is detached: the pinned revision is read, and nothing can be written.",
        pin="first",
        said=STAYS,
    ),
    Operation(
        "git checkout -",
        ("git checkout feature", "git checkout -"),
        CHECKOUT,
        "hook",
        "Uncommitted documents are there again; the index was kept and costs nothing.",
        said="knowledge is at",
    ),
    Operation(
        "git checkout -f",
        ("git checkout -f feature",),
        CHECKOUT,
        "hook",
        "As `git checkout`. What git throws away are files, never documents.",
        before=("echo edited >b.txt",),
        pin="feature",
        said=STAYS,
    ),
    Operation(
        "git checkout -B",
        ("git checkout -B fresh feature",),
        CHECKOUT,
        "hook",
        "As `git checkout`.",
        pin="feature",
        said=STAYS,
    ),
    Operation(
        "git checkout -b",
        ("git checkout -b fresh",),
        CHECKOUT,
        "hook",
        "The new branch reads the same revision, and gets a KB branch of its own when a document is written.",
        said=STAYS,
    ),
    Operation(
        "git checkout, of the branch that is checked out",
        ("git checkout main",),
        CHECKOUT,
        "nothing",
        "The hook compares branch and pin, and starts nothing.",
    ),
    Operation(
        "git checkout, with an edited pin, to a branch that pins the same as this one",
        ("git checkout same",),
        CHECKOUT,
        "hook",
        "git carries the edit along; the edited pin counts.",
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
        "The merge driver merges the knowledge of both pins.",
        before=(BY_HAND,),
        pin="feature",
        said=STAYS,
    ),
    Operation(
        "git checkout, to a branch without a pin",
        ("git checkout plain",),
        CHECKOUT,
        "hook",
        "The knowledge stays where it is, and every answer says that this commit pins none.",
        pin="none",
        answers="no pin",
    ),
    Operation(
        "git checkout, from a branch without a pin",
        ("git checkout main",),
        CHECKOUT,
        "hook",
        "As `git checkout`.",
        start="plain",
    ),
    Operation(
        "git checkout --orphan",
        ("git checkout --orphan fresh",),
        CHECKOUT,
        "hook",
        "The pin stays staged, and goes into the first commit.",
        said=STAYS,
    ),
    Operation(
        "git switch BRANCH",
        ("git switch feature",),
        CHECKOUT,
        "hook",
        "As `git checkout`.",
        pin="feature",
        said=STAYS,
    ),
    Operation(
        "git switch -c",
        ("git switch -c fresh first",),
        CHECKOUT,
        "hook",
        "As `git checkout -b`.",
        pin="first",
        said=STAYS,
    ),
    Operation(
        "git switch --detach",
        ("git switch --detach feature",),
        CHECKOUT,
        "hook",
        "As `git checkout COMMIT`.",
        pin="feature",
        said=STAYS,
    ),
    Operation(
        "git switch --orphan",
        ("git switch --orphan fresh",),
        CHECKOUT,
        "hook",
        "The new branch pins nothing until `vmrag pin` or `vmrag commit`.",
        pin="none",
        answers="no pin",
    ),
    Operation(
        "git switch, in a sparse work tree without the pin's file",
        ("git switch feature",),
        CHECKOUT,
        "hook",
        "The pin is read from the index.",
        before=("git sparse-checkout set --no-cone /a.txt",),
        pin="feature",
        said=STAYS,
    ),
    Operation(
        "git branch -m",
        ("git branch -m trunk",),
        (),
        "query",
        "The KB branch belongs to the renamed branch, uncommitted documents included.",
    ),
    Operation(
        "git branch -D",
        ("git branch -D topic",),
        (),
        "nothing",
        "The KB branch stays; `vmrag gc` prunes it only if it has no uncommitted documents.",
    ),
)

PIN_ALONE = (
    Operation(
        "git checkout COMMIT -- .dolt-version",
        ("git checkout first -- .dolt-version",),
        CHECKOUT,
        "hook",
        "The branch's knowledge moves to that pin, and uncommitted documents go along.",
        pin="first",
        said=ALONG,
    ),
    Operation(
        "git restore --source COMMIT .dolt-version",
        ("git restore --source first .dolt-version",),
        CHECKOUT,
        "hook",
        "As `git checkout COMMIT -- .dolt-version`.",
        pin="first",
        said=ALONG,
    ),
    Operation(
        "git restore .dolt-version",
        ("git restore .dolt-version",),
        CHECKOUT,
        "hook",
        "An edit of the pin is undone, and the knowledge moves back.",
        before=(BY_HAND,),
        said=ALONG,
    ),
    Operation(
        "git apply --index",
        ("git diff main feature -- .dolt-version | git apply --index",),
        (),
        "query",
        "A patch of the pin counts as any other change of it.",
        pin="feature",
    ),
    Operation("an edit by hand", (BY_HAND,), (), "query", "The file in the work tree is what counts.", pin="first"),
    Operation(
        "an edit by hand that is no pin",
        ("echo '{' >.dolt-version",),
        (),
        "query",
        "The knowledge stays where it is, and every answer says what is wrong with the pin.",
        pin="none",
        answers="malformed",
    ),
    Operation(
        "deleting the file by hand",
        ("rm .dolt-version",),
        (),
        "nothing",
        "The staged pin counts where there is no file.",
    ),
    Operation(
        "git read-tree",
        ("git read-tree feature",),
        (),
        "nothing",
        "The file in the work tree is what counts, not the index.",
    ),
    Operation(
        "git read-tree -m -u",
        ("git read-tree -m -u HEAD feature",),
        (),
        "query",
        "The pin's file moves, and the knowledge with it.",
        pin="feature",
    ),
    Operation(
        "git sparse-checkout",
        ("git sparse-checkout set --no-cone /a.txt",),
        (),
        "nothing",
        "Where the file is left out, the staged pin counts.",
    ),
)

RESETTING = (
    Operation(
        "git reset --soft",
        ("git reset --soft first",),
        (),
        "nothing",
        "The pin's file stays as it is, and the knowledge with it.",
    ),
    Operation("git reset --mixed", ("git reset --mixed first",), (), "nothing", "As `git reset --soft`."),
    Operation(
        "git reset --hard",
        ("git reset --hard first",),
        (),
        "query",
        "The branch's knowledge moves to the pin; uncommitted documents go along, and the revision that was left is kept.",
        pin="first",
    ),
    Operation("git reset --keep", ("git reset --keep first",), (), "query", "As `git reset --hard`.", pin="first"),
    Operation("git reset --merge", ("git reset --merge first",), (), "query", "As `git reset --hard`.", pin="first"),
    Operation(
        "git update-ref",
        ("git update-ref refs/heads/main first",),
        (),
        "nothing",
        "The pin's file stays as it is.",
    ),
    Operation(
        "git filter-branch",
        (f"FILTER_BRANCH_SQUELCH_WARNING=1 git filter-branch --index-filter '{STAGED_FIRST}' first..HEAD >../log",),
        (),
        "query",
        "As `git reset --hard` to the rewritten commit.",
        pin="first",
    ),
)

COMMITTING = (
    Operation(
        "git commit",
        ("git commit -m code",),
        COMMIT,
        "nothing",
        "The pin is checked before; one line reminds of uncommitted documents (`hooks.on_dirty`).",
        before=(CODE,),
        said=NOT_COMMITTED,
    ),
    Operation(
        "git commit, after vmrag commit",
        ("git commit -m knowledge",),
        COMMIT,
        "nothing",
        "The commit holds the new pin; `vmrag commit` has moved the index already.",
        before=("vmrag commit -m knowledge",),
        pin="main+draft",
    ),
    Operation(
        "git commit, with an edited pin that is not staged",
        ("git commit -m code",),
        COMMIT,
        "nothing",
        "One line says that the commit pins something else than what answers here.",
        before=(BY_HAND, CODE),
        pin="first",
        said="is not the one that goes into the commit",
    ),
    Operation(
        "git commit -a",
        ("git commit -a -m back",),
        COMMIT,
        "nothing",
        "As `git commit`.",
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
        "A staged pin goes into the commit.",
        before=("echo 3 >a.txt", "vmrag commit -m knowledge"),
        pin="main+draft",
    ),
    Operation(
        "git commit --fixup",
        ("git commit --fixup HEAD",),
        COMMIT,
        "nothing",
        "As `git commit`.",
        before=(CODE,),
        said=NOT_COMMITTED,
    ),
    Operation(
        "git commit -n", ("git commit -n -m code",), ("post-commit",), "nothing", "Nothing is checked.", before=(CODE,)
    ),
    Operation(
        "git commit, on a detached HEAD",
        ("git commit -m code",),
        COMMIT,
        "nothing",
        "The pin goes along.",
        start="first",
        before=(CODE,),
        pin="first",
    ),
    Operation(
        "git commit, on an orphan branch",
        ("git commit -m begin",),
        COMMIT,
        "nothing",
        "The staged pin is the first one of the branch.",
        before=("git checkout -q --orphan fresh",),
    ),
    Operation(
        "git commit --amend",
        ("git commit --amend -m code",),
        (*COMMIT, "post-rewrite"),
        "nothing",
        "As `git commit`; the table of links notes what replaces what.",
        before=(CODE,),
        said=NOT_COMMITTED,
    ),
    Operation(
        "git commit --amend, after vmrag commit",
        ("git commit --amend -m code",),
        (*COMMIT, "post-rewrite"),
        "nothing",
        "As `git commit` after `vmrag commit`.",
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
        "The merge driver merges what the commit changed in the knowledge; the merged revision is pinned, uncommitted documents go along.",
        pin="main+feature",
        said=ALONG,
    ),
    Operation(
        "git cherry-pick, of several commits",
        ("git cherry-pick feature~2..feature",),
        ("post-commit",),
        "query",
        "As `git cherry-pick`; the index is not moved for each commit.",
        pin="main+feature",
    ),
    Operation(
        "git cherry-pick -n",
        ("git cherry-pick -n feature~1",),
        (),
        "query",
        "As `git cherry-pick`; the merged pin is staged.",
        pin="main+feature",
    ),
    Operation(
        "git cherry-pick -n, then git commit",
        ("git cherry-pick -n feature~1", "git commit -m picked"),
        COMMIT,
        "hook",
        "As `git cherry-pick`.",
        pin="main+feature",
        said=ALONG,
    ),
    Operation(
        "git cherry-pick, stopped by a conflict",
        ("git cherry-pick rival",),
        (),
        "nothing",
        "Our pin stays in place and answers; one line names the documents in conflict.",
        codes=(1,),
        said=CONFLICT,
    ),
    Operation(
        "git cherry-pick --continue",
        ("git cherry-pick rival", "vmrag resolve --theirs", "git cherry-pick --continue"),
        COMMIT,
        "nothing",
        "`vmrag resolve` has pinned, staged and followed the result.",
        codes=(1, 0, 0),
        pin="main+rival",
    ),
    Operation(
        "git cherry-pick --abort",
        ("git cherry-pick rival", "git cherry-pick --abort"),
        (),
        "nothing",
        "All is as it was.",
        codes=(1, 0),
    ),
    Operation(
        "git revert",
        ("git revert --no-edit HEAD~1",),
        ("post-commit",),
        "hook",
        "As `git cherry-pick`, the other way round.",
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
        "The branch's knowledge moves to the new pin.",
        start="behind",
        said="knowledge is at",
    ),
    Operation(
        "git merge, of a pin whose documents you have changed, too",
        ("git merge main",),
        ("post-merge",),
        "hook",
        "Your uncommitted documents are set aside, and one line says where.",
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
        "The merge driver merges the documents of both sides; a merge that would drop knowledge is stopped.",
        pin="main+feature",
        said=ALONG,
    ),
    Operation(
        "git merge --no-commit",
        ("git merge --no-commit feature",),
        (),
        "query",
        "The merged pin is staged and answers.",
        pin="main+feature",
    ),
    Operation(
        "git merge --no-commit, then git commit",
        ("git merge --no-commit feature", "git commit --no-edit"),
        COMMIT,
        "hook",
        "As `git merge`.",
        pin="main+feature",
        said=ALONG,
    ),
    Operation(
        "git merge --squash",
        ("git merge --squash feature",),
        ("post-merge",),
        "hook",
        "As `git merge`; the merged pin is staged.",
        pin="main+feature",
        said=ALONG,
    ),
    Operation(
        "git merge, stopped by a conflict",
        ("git merge rival",),
        (),
        "nothing",
        "Our pin stays in place and answers; one line names the documents in conflict.",
        codes=(1,),
        said=CONFLICT,
    ),
    Operation(
        "git merge, concluded by git commit",
        ("git merge rival", "vmrag resolve --theirs", "git commit --no-edit"),
        COMMIT,
        "nothing",
        "`vmrag resolve` has pinned, staged and followed the result.",
        codes=(1, 0, 0),
        pin="main+rival",
    ),
    Operation(
        "git merge --abort",
        ("git merge rival", "git merge --abort"),
        (),
        "nothing",
        "All is as it was.",
        codes=(1, 0),
    ),
)

SHARING = (
    Operation(
        "git pull, fast-forward",
        ("git pull origin main",),
        ("post-merge",),
        "hook",
        "As `git merge`.",
        start="behind",
        said="knowledge is at",
    ),
    Operation(
        "git pull, a true merge",
        ("git pull --no-rebase --no-edit origin feature",),
        ("pre-merge-commit", "post-merge"),
        "hook",
        "As `git merge`.",
        pin="main+feature",
        said=ALONG,
    ),
    Operation(
        "git pull --rebase, without commits of your own",
        ("git pull --rebase origin main",),
        ("post-merge",),
        "hook",
        "As `git merge`, fast-forward.",
        start="behind",
        said="knowledge is at",
    ),
    Operation(
        "git pull --rebase",
        ("git pull --rebase origin main",),
        REBASE,
        "hook",
        "As `git rebase`.",
        start="topic",
        said=ALONG,
    ),
    Operation(
        "git fetch",
        ("git fetch origin",),
        (),
        "nothing",
        "Nothing that is checked out moves.",
        before=("git update-ref -d refs/remotes/origin/feature",),
    ),
    Operation(
        "git push, without a new pin",
        ("git push origin same:fresh",),
        ("pre-push",),
        "nothing",
        "The hook asks git for new pins, and starts nothing.",
    ),
    Operation(
        "git push, of new pins",
        ("git push origin rival",),
        ("pre-push",),
        "nothing",
        "Every new pin is checked, and the knowledge goes first; a branch that ends with a pin that names nothing is not pushed, nor new pins that could not be looked at.",
    ),
)

REBASING = (
    Operation(
        "git rebase",
        ("git rebase main",),
        REBASE,
        "hook",
        "Nothing happens before its end; then the branch's knowledge moves once, and uncommitted documents go along.",
        start="topic",
        said=ALONG,
    ),
    Operation(
        "git rebase, of commits with knowledge",
        ("git rebase main",),
        REBASE,
        "hook",
        "The merge driver merges what each commit changed; the old revisions are kept.",
        start="feature",
        pin="main+feature",
    ),
    Operation(
        "git rebase -i, in another order",
        ("GIT_SEQUENCE_EDITOR='sed -i \"1{h;d};2G\"' git rebase -i HEAD~2",),
        REBASE,
        "nothing",
        "The pin at the end is the one from before.",
        start="topic",
        pin="first",
    ),
    Operation(
        "git rebase -i, without the commit of a pin",
        ("GIT_SEQUENCE_EDITOR='sed -i 1d' git rebase -i first",),
        REBASE,
        "hook",
        "As `git rebase`.",
        pin="first",
        said=ALONG,
    ),
    Operation(
        "git rebase -i, without the last commits",
        ("GIT_SEQUENCE_EDITOR='sed -i s/^pick/drop/' git rebase -i first",),
        CHECKOUT,
        "query",
        "git tells no hook of the end of such a rebase.",
        pin="first",
    ),
    Operation(
        "git rebase --apply",
        ("git rebase --apply main",),
        ("post-checkout", "post-applypatch", "post-rewrite"),
        "query",
        "git runs the first hook before it says that it rebases, and the last one before HEAD is back on its branch: "
        "the first line calls documents left behind which are there again at the end.",
        start="topic",
        said="uncommitted documents stay with 'topic'",
    ),
    Operation(
        "git rebase, of a branch that is strictly behind",
        ("git rebase main",),
        CHECKOUT,
        "query",
        "git tells no hook of the end of such a rebase.",
        start="behind",
    ),
    Operation(
        "git rebase, with nothing to do",
        ("git rebase first",),
        (),
        "nothing",
        "All is as it was.",
        start="topic",
        pin="first",
    ),
    Operation(
        "git rebase, stopped to edit",
        ("GIT_SEQUENCE_EDITOR='sed -i 1s/pick/edit/' git rebase -i main",),
        ("post-checkout", "post-commit"),
        "query",
        "Answers come from the pin of the commit where it stopped; nothing can be written.",
        start="topic",
    ),
    Operation(
        "git rebase --continue, after an edit",
        ("GIT_SEQUENCE_EDITOR='sed -i 1s/pick/edit/' git rebase -i main", "git rebase --continue"),
        REBASE,
        "hook",
        "As `git rebase`.",
        start="topic",
        said=ALONG,
    ),
    Operation(
        "git rebase, stopped by a conflict",
        ("git rebase main",),
        CHECKOUT,
        "query",
        "The pin of the new base stays in place and answers; one line names the documents in conflict.",
        start="rival",
        codes=(1,),
        said=CONFLICT,
    ),
    Operation(
        "git rebase --continue, after a conflict",
        ("git rebase main", "vmrag resolve --theirs", "git rebase --continue"),
        REBASE,
        "hook",
        "As `git rebase`.",
        start="rival",
        codes=(1, 0, 0),
        pin="main+rival",
    ),
    Operation(
        "git rebase --abort",
        ("git rebase main", "git rebase --abort"),
        CHECKOUT,
        "nothing",
        "All is as it was.",
        start="rival",
        codes=(1, 0),
        pin="rival",
    ),
    Operation(
        "git rebase --abort, after a query",
        ("git rebase main", "vmrag query winter", "git rebase --abort"),
        CHECKOUT,
        "query",
        "git tells no hook of it.",
        start="rival",
        codes=(1, 0, 0),
        pin="rival",
    ),
    Operation(
        "git am",
        ("git format-patch -q --stdout first..feature | git am",),
        ("post-applypatch",),
        "query",
        "A patch of the pin counts as any other change of it.",
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
        "The knowledge moves to the committed pin. Documents are not stashed: they go along.",
        before=(BY_HAND,),
    ),
    Operation(
        "git stash pop",
        ("git stash pop",),
        (),
        "query",
        "The knowledge moves to the pin that was stashed.",
        before=(BY_HAND, "git stash push"),
        pin="first",
    ),
    Operation(
        "git stash push --keep-index",
        ("git stash push --keep-index",),
        CHECKOUT,
        "nothing",
        "A staged pin stays where it is.",
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
        "Indexes are built only for the steps at which somebody asks.",
    ),
    Operation(
        "git bisect good, bad",
        ("git bisect start same first", "git bisect bad"),
        CHECKOUT,
        "query",
        "As `git bisect start`.",
    ),
    Operation(
        "git bisect reset",
        ("git bisect start main first", "git bisect good", "git bisect reset"),
        CHECKOUT,
        "nothing",
        "All is as it was; if somebody asked meanwhile, the hook brings the knowledge back.",
    ),
    Operation(
        "git bisect reset, after a query",
        ("git bisect start feature first", "vmrag query winter", "git bisect reset"),
        CHECKOUT,
        "hook",
        "As `git checkout`.",
        said="knowledge is at",
    ),
)

TREES = (
    Operation(
        "git worktree add",
        ("git worktree add ../tree feature",),
        CHECKOUT,
        "hook",
        "The new work tree stands at its own pin; knowledge base and indexes are shared.",
        where="../tree",
        pin="feature",
        said="knowledge is at",
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
        "git switch, in a linked work tree",
        ("git worktree add -q ../tree feature", "git -C ../tree switch topic"),
        CHECKOUT,
        "hook",
        "As `git switch`; other work trees stay where they are.",
        where="../tree",
        pin="first",
        said="knowledge is at",
    ),
    Operation(
        "git commit, in a linked work tree",
        ("git worktree add -q ../tree feature", "git -C ../tree commit --allow-empty -m code"),
        (*CHECKOUT, *COMMIT),
        "nothing",
        "As `git commit`; only the documents of this work tree's branch are looked at.",
        where="../tree",
        pin="feature",
    ),
    Operation(
        "git submodule update",
        ("git -C ../outer checkout -q HEAD~1", "git -C ../outer submodule update"),
        CHECKOUT,
        "hook",
        "The submodule's hooks move the submodule's knowledge.",
        where="../outer/inner",
        pin="first",
        said="knowledge is at",
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
    "Work trees and submodules": TREES,
}
"""All operations by group, as docs/hooks.md shows them."""

OPERATIONS = tuple(each for group in TABLE.values() for each in group)
