"""docs/hooks.md: `python -m tests.operations.document > docs/hooks.md`."""

from __future__ import annotations

import re
import sys

from tests.operations.table import TABLE, Follows, Operation
from vmrag_link import __version__
from vmrag_link.settings.keys import KEYS

HOOKS = {
    "post-checkout": "brings knowledge and index to the pin",
    "post-merge": "the same; queues the commit for the table of links",
    "post-commit": "the same",
    "post-rewrite": "the same at the end of a rebase, and after `--amend`; queues which commit replaces which",
    "post-applypatch": "the same as `post-commit`, for `git am`",
    "pre-commit": "checks the pin that goes into the commit, and reminds of uncommitted documents",
    "pre-merge-commit": "checks the merged pin",
    "pre-push": "checks the pins among the commits that the remote does not have yet, and pushes the knowledge that they name",
}

FOLLOWS: dict[Follows, str] = {
    "hook": "at once",
    "query": "next command",
    "nothing": "is there",
}

PAGE = """\
# What happens when you use git

<!-- Written by: python -m tests.operations.document > docs/hooks.md -->

The first stored document, `vmrag init --knowledge-base` and `vmrag install` install these hooks, in [its configuration or from files](#where-they-are), beside those of
[any other tool](#beside-another-hook-manager). `--hooks` installs only some, and is remembered.

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
  rebase, a bisect or a series of picks the hooks move nothing. The end of it, or the next command, moves once.
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

In `.vmrag.yaml`, where they count after [`vmrag trust`](configuration.md#what-counts-from-a-clone), by `git config vmrag.hooks.on-dirty block` (with `-` for `_`), or by `VMRAG_HOOKS_ON_DIRTY=block` ([all ways](configuration.md)). `VMRAG=0` in the environment switches
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
`vmrag doctor` looks whether the hooks are installed and can run, and proves it: git itself (2.36 or later) runs each event, on which vmrag's hook says that
it got there, and no other tool's runs. Not so where another tool's hook starts vmrag's: that would run, too, so its files are looked at.

## Where they are

git 2.54 and later run hooks [from their configuration](https://git-scm.com/docs/git-hook), several for one event, and then the one in the hooks
directory. There no other tool can write over vmrag's, so `vmrag install` puts them there: `.git/vmrag-hooks` holds a script for each, and a part of
git's configuration that `.git/config` includes. No file of a hooks directory or of a hook manager is touched, nor `core.hooksPath`; hooks
that were files before are taken away, and what they had moved aside is back. All work trees have them, and a repository may be moved.

```console
$ git hook list --show-scope pre-push
local	vmrag-pre-push
hook from hookdir
```

* **With an older git beside it**, anywhere on `PATH` or brought along by a program that is known (GitHub Desktop, Sourcetree, Fork, Xcode), they are files: such a git
  ignores hooks in its configuration. `vmrag install` says which one it is, and moves the hooks when it is gone; `vmrag status` tells where an older one has
  come instead. For programs that run the files by themselves (GitKraken, gitui): `git config --global vmrag.hooks.place files`; if the
  older one is never used: `config`.
* **Never both**: what is in one place is taken from the other first. A shim that is reached all the same, in a folder that several repositories
  use, asks git, and does nothing if the hook has run.
* **vmrag's run first** there, after those of the system's and your own configuration. git runs all hooks of an event, also after one has refused; so knowledge may be pushed
  by a push that another gate then stops. It is there when the code comes.
* `git config hook.vmrag-pre-push.enabled false` switches one off.

As files they lie in the hooks directory (`git rev-parse --git-path hooks`). A hook of another tool that is there already is kept: it runs first, and
`vmrag uninstall` puts it back. Hooks that git tracks (`core.hooksPath` names `.githooks`, say) and those outside of the repository are left alone: the
refusal prints the command that makes hooks of this clone, which run those as well.

## Beside another hook manager

In git's configuration there is nothing to do for any of them. Where the hooks are files, `vmrag install`, once in each clone, before or after the
manager's own installation, does this:

* **[pre-commit](https://pre-commit.com), [prek](https://prek.j178.dev)**: both stay, whichever came first, and each runs once.
* **[husky](https://typicode.github.io/husky)** writes its folder again with every `npm install`, so its own scripts, which are committed, start vmrag's: whoever
  brings vmrag into the repository runs `vmrag install` on a branch and commits the lines that it added. They do nothing in a clone without vmrag, nor
  where git's configuration has the hooks; `vmrag uninstall --all` takes them out. husky 5 to 8 have git look into `.husky` itself: there the lines are all
  there is, and a checkout of an old tag, without them, runs none.
* **[lefthook](https://lefthook.dev)** starts vmrag's for the hooks that its configuration has, by `lefthook-local.yml`, which is not committed: its list
  `extends` gets `.git/vmrag/lefthook.yml`. A linked work tree has none of its own until `vmrag install` is run there.

What a manager has written over is said by `vmrag status`; `vmrag install` puts it back. `VMRAG=0 git …` switches vmrag's hooks off for one command, the manager's own
switch (`SKIP=…`, `HUSKY=0`, `LEFTHOOK=0`) what the manager starts.

pre-commit and prek can also run vmrag's checks from the team's own `.pre-commit-config.yaml`, for everybody who runs
`pre-commit install --allow-missing-config` (without that option a checkout of a commit that has no such file fails):

```yaml
default_install_hook_types: [pre-commit, pre-merge-commit, pre-push, post-checkout, post-merge, post-rewrite]
repos:
- repo: https://github.com/vmrag/vmrag-link
  rev: v{version}  # newer: pre-commit autoupdate, or prek auto-update; --freeze writes the commit that you have read
  hooks:
  - id: vmrag-check
  - id: vmrag-push
  - id: vmrag-sync
```

| hook | git hooks | what it does |
|---|---|---|
| `vmrag-check` | pre-commit, pre-merge-commit | refuses a pin that is malformed, names a revision that is not here, or drops knowledge in a merge; warns about uncommitted documents (`hooks.on_dirty`) |
| `vmrag-push` | pre-push | refuses to push a branch whose pin names a revision that is not here, and new pins that cannot be looked at |
| `vmrag-sync` | post-checkout, post-merge, post-rewrite | brings the knowledge base and its index to the pin; never fails |

The framework's environment for them (Python 3.11 to 3.14) can look at pins but has no index, so `vmrag-sync` runs the Python that `vmrag install`
recorded. If none is recorded, the next command moves the knowledge. `vmrag install --hooks post-commit` records it, registers the merge
driver and links commits. A full `vmrag install` does more, and these then do nothing: the framework stashes unstaged changes, an edited pin included, before its hooks run (with
`hooks.on_dirty: commit` it then stops with a failed patch), names one ref of a push only, runs after each checkout, moved or not, and never after
`git commit` and `git am`. By hand and in CI `pre-commit run vmrag-check` looks at the staged pin, and `pre-commit run --hook-stage pre-push vmrag-push` at
those that origin lacks; where there is no knowledge base, they pass.

## Taking it out again

`vmrag uninstall` removes the hooks and the merge driver, and restores the hooks that were there before. The knowledge stays.

`vmrag uninstall --all` also removes `.dolt-version`, `.vmrag.yaml`, the line in `.gitattributes`, vmrag's keys in the repository's git configuration, what
you [agreed to](configuration.md#what-counts-from-a-clone), the server in the files of MCP clients, and the knowledge base with its indexes. It prints each of
these. Files that you wrote, such as `.vmrag/queries.yaml`, stay.

* Before it removes anything, it asks the remote whether it has everything. It refuses, and names uncommitted documents, commits that no remote has, an open
  merge and documents that never leave this machine. `--discard-knowledge` removes these, too.
* To come back, run `git checkout HEAD -- .dolt-version .gitattributes .vmrag.yaml && vmrag clone`. If no commit has the pin and its knowledge is discarded,
  git's index names what HEAD pins again.
* `--remote NAME` also deletes the knowledge on that git remote, for everybody, such as `vmrag uninstall --all --remote origin`.
* While git has the pin in conflict, `--all` is refused.

## Every operation

*Index follows* says when knowledge and index are where the pin is: **at once**, before git returns; with the **next command** of `vmrag`, a query
say, which looks by itself; or **is there**, because nothing moved. Exit code and output of git are
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
    return PAGE.format(
        hooks="\n".join(hooks), settings="\n".join(settings), operations="".join(groups), version=__version__
    )


def _values(name: str) -> str:
    key = KEYS[name]
    if key.kind is int:
        return f"{key.lowest} to {key.highest}"
    return ", ".join(f"`{choice}`" for choice in key.choices or ("true", "false"))


def _group(name: str, operations: tuple[Operation, ...]) -> str:
    rows = "\n".join(map(_row, operations))
    return f"### {name}\n\n| operation | hooks that run | index follows | what happens |\n|---|---|---|---|\n{rows}\n\n"


def _row(operation: Operation) -> str:
    hooks = ", ".join(f"`{hook}`" for hook in operation.hooks) or "none"
    return f"| {_shown(operation.name)} | {hooks} | {FOLLOWS[operation.follows]} | {operation.says} |"


def _shown(name: str) -> str:
    """The commands of a name as code; a remark stands behind a comma."""
    return re.sub(r"\b(git|vmrag) [^,]+", r"`\g<0>`", name)


if __name__ == "__main__":
    sys.stdout.write(page())
