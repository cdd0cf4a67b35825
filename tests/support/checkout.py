"""Stands for actions/checkout: what its `src/git-auth-helper.ts` and `src/git-source-provider.ts`
do to a repository.

Read at v4 (11d5960), v5 (fbc6f39), v6 (d23441a) and v7 (3d3c42e). v4 and v5 write the token into
`.git/config`; v6 and v7 into a file below RUNNER_TEMP, which `includeIf.gitdir` includes for
exactly the git directory, for those of its linked work trees, and for the same places as a
container sees them. `ssh-key` is the same in all four.
"""

from __future__ import annotations

import base64
import shutil
import uuid
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.repos import Repo

TOKEN = "ghs_0123456789abcdefghijklmnopqrstuvwxyz"
INLINE, INCLUDED = ("v4", "v5"), ("v6", "v7")
BRANCHES = "refs/remotes/origin/"


def basic(token: str) -> str:
    """Return the header's encoding of the token."""
    return base64.b64encode(f"x-access-token:{token}".encode()).decode()


@dataclass(frozen=True)
class Checkout:
    """One run of the action in a `workspace`. `server`: GITHUB_SERVER_URL."""

    workspace: Path
    temp: Path
    server: str
    token: str
    version: str = "v7"
    persist_credentials: bool = True
    fetch_depth: int = 1
    path: str = ""
    credentials: list[Path] = field(default_factory=list)

    def run(self, repository: str, ref: str = "refs/heads/main", commit: str = "") -> Repo:
        """The work tree, at a branch, or, detached, at a tag or `refs/pull/N/merge`.

        `commit`: where the event saw the ref; by default, where it is. Without a ref, the commit
        alone.
        """
        top = self.workspace / self.path
        top.mkdir(parents=True, exist_ok=True)
        self.temp.mkdir(exist_ok=True)
        repo = Repo(top)
        repo.git("init", "-q")
        repo.git("remote", "add", "origin", f"{self.server}/{repository}")
        repo.git("config", "--local", "gc.auto", "0")
        undo = self.configure_token(repo)
        tracking_ref = ref.replace("refs/heads/", "refs/remotes/origin/").replace("refs/pull/", "refs/remotes/pull/")
        expected = f"+{ref if ref.startswith('refs/tags/') else commit or ref}:{tracking_ref}" if ref else commit
        fetch = ["-c", "protocol.version=2", "fetch", "-q", "--no-tags"]
        if self.fetch_depth:
            repo.git(*fetch, f"--depth={self.fetch_depth}", "origin", expected)
        else:
            more = [] if tracking_ref.startswith(BRANCHES) else [expected]
            repo.git(*fetch, "origin", "+refs/heads/*:refs/remotes/origin/*", "+refs/tags/*:refs/tags/*", *more)
        if (
            commit and tracking_ref.startswith(BRANCHES) and repo.git("rev-parse", tracking_ref) != commit
        ):  # it has moved since
            repo.git(*fetch, "origin", expected)
        start = (
            ["-B", ref.removeprefix("refs/heads/"), tracking_ref]
            if tracking_ref.startswith(BRANCHES)
            else [tracking_ref or commit]
        )
        repo.git("checkout", "-q", "--force", *start)
        if not self.persist_credentials:
            for command in undo:
                repo.git("config", "--local", "--unset-all", command)
            for file in self.credentials:
                file.unlink()
        return repo

    def configure_token(self, repo: Repo, git_dir: Path | None = None) -> list[str]:
        """Return the keys of the repository's configuration with the path of the token.

        `git_dir`: a submodule's, below `.git/modules`.
        """
        key, value = f"http.{self.server}/.extraheader", f"AUTHORIZATION: basic {basic(self.token)}"
        if self.version in INLINE:
            repo.git("config", "--local", key, value)
            return [key]
        file = self.temp / f"git-credentials-{uuid.uuid4()}.config"
        repo.git("config", "--file", str(file), key, value)
        self.credentials.append(file)
        git_folder, inside = git_dir or repo.top / ".git", f"/github/workspace/{self.path}/.git"
        container = f"/github/runner_temp/{file.name}"
        result = {f"includeIf.gitdir:{git_folder}.path": file, f"includeIf.gitdir:{inside}.path": container}
        if git_dir is None:
            result |= {f"includeIf.gitdir:{git_folder}/worktrees/*.path": file}
            result |= {f"includeIf.gitdir:{inside}/worktrees/*.path": container}
        for name, target in result.items():
            repo.git("config", "--local", name, str(target))
        return list(result)


def ssh_command(folder: Path, temp: Path) -> str:
    """`core.sshCommand` of the input `ssh-key`, whose files it puts into `temp`, RUNNER_TEMP.

    The path of the program is in quotes. `folder` has the keys of `travel.ssh_server`. Only
    `-F /dev/null` is not checkout's: the machine's own configuration is not to be read.
    """
    name = str(uuid.uuid4())
    temp.mkdir(exist_ok=True)
    for source, target in ((folder / "user", temp / name), (folder / "known", temp / f"{name}_known_hosts")):
        target.touch(mode=0o600)
        target.write_bytes(source.read_bytes())
    return (
        f'"{shutil.which("ssh")}" -i "$RUNNER_TEMP/{name}" -o StrictHostKeyChecking=yes -o CheckHostIP=no '
        f'-o "UserKnownHostsFile=$RUNNER_TEMP/{name}_known_hosts" -F /dev/null'
    )
