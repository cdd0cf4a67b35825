"""docs/hooks.md: `python -m tests.operations.document > docs/hooks.md`."""

from __future__ import annotations

import re
import sys

from tests.operations.table import TABLE, Follows, Operation
from vmrag_link.settings_keys import KEYS

HOOKS = {
    "post-checkout": "brings knowledge and index to the pin",
    "post-merge": "the same; queues the commit for the table of links",
    "post-commit": "the same",
    "post-rewrite": "the same at the end of a rebase, and after `--amend`; queues which commit replaces which",
    "post-applypatch": "the same as `post-commit`, for `git am`",
    "pre-commit": "checks the pin that goes into the commit, and reminds of uncommitted documents, and of changed files whose documents are older",
    "pre-merge-commit": "checks the merged pin",
    "pre-push": "checks the pins among the commits that the remote does not have yet, and pushes the knowledge that they name; names files whose documents are older",
}

FOLLOWS: dict[Follows, str] = {
    "hook": "at once",
    "mark": "next command (marked)",
    "query": "next command",
    "nothing": "is there",
}

PAGE = """\
# What happens when you use git

<!-- Written by: python -m tests.operations.document > docs/hooks.md -->

`vmrag init` and `vmrag install` put these hooks into git's hooks directory (`git rev-parse --git-path hooks`). A hook of another tool that is
there already is kept: it runs first, and `vmrag uninstall` puts it back. Hooks that git tracks (`core.hooksPath` names `.githooks`, say) and those
outside of the repository are left alone: the refusal prints the command that makes hooks of this clone, which run those as well. `--hooks` installs
only some, and is remembered. husky, lefthook and pre-commit start them [by files of their own](hook-managers.md).

Hooks that git does not run, because another tool has written over them, `core.hooksPath` names another folder, or a clone never had any, are
said by `vmrag status`, `commit` and `query`, and to agents, with the command that helps. Code that was pushed without its knowledge is said by every
command. `VMRAG=0`, `vmrag init --no-hooks` and `vmrag uninstall` say that none are wanted.

| hook | what it does |
|---|---|
{hooks}

A hook is a shell script that compares the branch and the pin with what was applied last, and starts nothing if both are the same, nor
where the branch alone is another one, no documents are uncommitted and no commit was interrupted: the documents and the index are the same, and the
next command notes the branch. (So what another program wrote into a Dolt database, and a branch of the knowledge base that stands elsewhere than the
pin, are seen by the next command, not by such a checkout.) Otherwise:

* **After something moved**, knowledge and index go to where the pin is now. What takes more than a second happens in the background
  (`hooks.sync`); a query meanwhile waits for it a while (`hooks.wait_s`), then answers from before, and says so. In the middle of a
  rebase, a bisect or a series of picks nothing is moved: a mark stays, and the end of it, or the next command, moves once.
* **Before a commit or a push**, a pin that is malformed, that is not the one which answers here, whose revision is missing, or that would
  drop what one side of a merge knows, stops git; so does knowledge that cannot be pushed along ([details](travelling.md#what-a-push-does)).
  `git commit --no-verify` and `git push --no-verify` go past it.
* **Whatever fails in a hook**, git goes on, with one exception: a push that brings others a pin which no remote-tracking branch has stops if it could not be
  looked at (a mistake in `.vmrag.yaml`, a knowledge base that is gone or damaged, an interpreter that is gone). Nobody could get the knowledge.

Some operations run no hook at all, whatever is installed, and some programs none for any, such as jj. Nothing depends on hooks: every command that
reads or writes documents compares, too, and follows first ([without hooks](without-hooks.md)).

## Settings

| setting | values | default | what it does |
|---|---|---|---|
{settings}

In `.vmrag.yaml`, where they count after [`vmrag trust`](configuration.md#what-counts-from-a-clone), by `git config vmrag.hooks.sync off`, or by `VMRAG_HOOKS_SYNC=off` ([all ways](configuration.md)). `VMRAG=0` in the environment switches
the hooks off for one command: `VMRAG=0 git rebase main`. The merge driver is no hook, and goes on merging.

## What you see

Where something happened, one line on stderr that begins with `vmrag:`. No line: nothing was to be done, or `hooks.quiet` is set and only the index followed. What was
committed, pushed, refused or left out is always said.

```console
$ git switch release-2
Switched to branch 'release-2'
vmrag: knowledge is at fa2016c (+0 ~1 -0 documents); uncommitted documents stay with 'main'; they are there again after: git switch main
```

`vmrag status` says whether pin, knowledge and index agree, and what a sync in the background does; that one writes `.git/vmrag/sync.log`.
`vmrag doctor` looks whether the hooks are installed and can run.

## Taking it out again

`vmrag uninstall` removes the hooks and the merge driver, and puts back what was there before; the knowledge stays. `vmrag uninstall --all` also removes
the line in `.gitattributes`, `.vmrag.yaml`, vmrag's keys in the repository's git configuration, what you [agreed to](configuration.md#what-counts-from-a-clone), and
the knowledge base with its indexes. Before anything is removed it asks the remote whether it holds everything. Uncommitted documents, commits that no remote
has, an open merge and documents that never leave this machine are named, and nothing is removed; `--discard-knowledge` is the second time of asking. The pin
stays: with it, `vmrag clone` brings back what was pushed. One that no commit has, and whose knowledge is discarded, goes back to HEAD's. While git
has the pin in conflict, `--all` is refused.

## Every operation

*Index follows* says when knowledge and index are where the pin is: **at once**, before git returns; with the **next command** of `vmrag`, a query
say, which looks by itself (*marked*: hooks ran, and left it to that); or **is there**, because nothing moved. Exit code and output of git are
those without hooks. Uncommitted documents are where they were before, on the KB branch of their code branch, unless it says otherwise.

{operations}
The test suite runs each of these operations, in a repository with our hooks and in one without (`tests/operations`).
"""


def page() -> str:
    """docs/hooks.md."""
    settings = [
        f"| `{key.name}` | {_values(key.name)} | `{key.default_text}` | {key.doc} |"
        for key in KEYS.values()
        if key.name.startswith("hooks.")
    ]
    hooks = [f"| `{name}` | {does} |" for name, does in HOOKS.items()]
    groups = [_group(name, operations) for name, operations in TABLE.items()]
    return PAGE.format(hooks="\n".join(hooks), settings="\n".join(settings), operations="".join(groups))


def _values(name: str) -> str:
    key = KEYS[name]
    if key.kind is int:
        return f"{key.lowest} to {key.highest}"
    return ", ".join(f"`{each}`" for each in key.choices or ("true", "false"))


def _group(name: str, operations: tuple[Operation, ...]) -> str:
    rows = "\n".join(map(_row, operations))
    return f"### {name}\n\n| operation | hooks that run | index follows | what happens |\n|---|---|---|---|\n{rows}\n\n"


def _row(operation: Operation) -> str:
    hooks = ", ".join(f"`{each}`" for each in operation.hooks) or "none"
    return f"| {_shown(operation.name)} | {hooks} | {FOLLOWS[operation.follows]} | {operation.says} |"


def _shown(name: str) -> str:
    """The commands of a name as code; a remark stands behind a comma."""
    return re.sub(r"\b(git|vmrag) [^,]+", r"`\g<0>`", name)


if __name__ == "__main__":
    sys.stdout.write(page())
