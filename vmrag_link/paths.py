"""Paths of the files and folders that vmrag uses. `file_access` reads and writes them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

PIN_NAME = ".dolt-version"
PIN_READ_LIMIT = 8192
"""Bytes. It is twice the size of the largest valid pin, so that a pin that is cut off is
malformed.
"""

CONFIG_NAME = ".vmrag.yaml"
QUERIES_NAME = ".vmrag/queries.yaml"
TREE = "tree"
JJ_WORKSPACES = "vmrag/jj"
"""Folder in the common directory, with a git directory for each workspace of jj (`git.jj`)."""


class BorrowedParts(NamedTuple):
    """Parts of submodules that git uses in the repository around them.

    Git then reads no settings of a submodule.
    """

    objects: tuple[Path, ...]
    """Folders of objects that git also reads."""
    index_file: Path | None = None
    """The index to read in place of the repository's own."""
    commit: str | None = None
    """The commit to read in place of HEAD."""


class Places(NamedTuple):
    """The folders of one git work tree."""

    top: Path
    git_dir: Path
    """The git directory of the work tree."""
    common: Path
    """The git directory that all work trees of the repository share."""
    code_places: Places | None = None
    """For a repository of vmrag beside the code's (`git.sidecar_repo`): the places of the code."""
    hooks: Path | None = None
    """The folder in which git looked for hooks when the work tree was found, if it was found."""
    borrowed: BorrowedParts | None = None
    """Parts of submodules, to read them (`git.submodules`)."""

    @property
    def is_jj_workspace(self) -> bool:
        """True for a workspace of jj in which git finds no repository."""
        code = self.code_places or self
        return code.git_dir.parent == code.common / JJ_WORKSPACES

    @property
    def index_file(self) -> Path:
        return (self.borrowed and self.borrowed.index_file) or self.git_dir / "index"

    @property
    def pin(self) -> Path:
        return self.top / PIN_NAME

    @property
    def config(self) -> Path:
        return self.top / CONFIG_NAME

    @property
    def queries(self) -> Path:
        return self.top / QUERIES_NAME

    # -- shared by all worktrees

    @property
    def shared(self) -> Path:
        return self.common / "vmrag"

    @property
    def kb(self) -> Path:
        return self.shared / "kb"

    @property
    def views(self) -> Path:
        """The contents of the index of each revision. Derived data."""
        return self.shared / "views"

    @property
    def source_views(self) -> Path:
        """The contents of the indexes of files of the work tree, by their names and blobs. Derived
        data.
        """
        return self.shared / "sources"

    @property
    def segments(self) -> Path:
        """The pieces of which indexes consist. Derived data."""
        return self.shared / "segments"

    @property
    def chroma(self) -> Path:
        """Chroma's stores of views. Derived data."""
        return self.shared / "chroma"

    @property
    def builder(self) -> Path:
        """The state of the process that builds Chroma's stores."""
        return self.shared / "builder"

    @property
    def chroma_follows(self) -> Path:
        """A marker for the hooks: Chroma's stores follow the files of each commit."""
        return self.builder / "follows"

    @property
    def working_copies(self) -> Path:
        """The views of uncommitted documents. Derived data."""
        return self.shared / "uncommitted"

    @property
    def embeddings(self) -> Path:
        return self.shared / "embeddings.sqlite"

    @property
    def interpreter(self) -> Path:
        return self.shared / "interpreter"

    @property
    def shims(self) -> Path:
        """Hooks of vmrag that other tools start."""
        return self.shared / "shims"

    @property
    def configured_hooks(self) -> Path:
        """Hooks of vmrag that git runs from its configuration, and that part of the
        configuration.
        """
        return self.common / "vmrag-hooks"

    @property
    def lefthook(self) -> Path:
        """The part of lefthook's configuration that vmrag wrote."""
        return self.shared / "lefthook.yml"

    @property
    def locks(self) -> Path:
        return self.shared / "locks"

    @property
    def journal(self) -> Path:
        return self.shared / "journal"

    @property
    def link_queue(self) -> Path:
        return self.shared / "links.queue"

    @property
    def logs(self) -> Path:
        return self.shared / "logs"

    @property
    def remotes(self) -> Path:
        """Copies of the contents of remotes. Derived data."""
        return self.shared / "remotes"

    @property
    def remote_objects(self) -> Path:
        """The git repository for transfers from and to remotes. Derived data."""
        return self.shared / "remotes.git"

    @property
    def quarantine(self) -> Path:
        """Untrusted knowledge bases while vmrag validates them."""
        return self.shared / "quarantine"

    @property
    def migration(self) -> Path:
        """A knowledge base on its way to another engine, and the earlier one."""
        return self.shared / "migration"

    @property
    def local_kb(self) -> Path:
        """Rows that stay on this machine. They are not derived data: nothing else contains them."""
        return self.shared / "local" / "kb"

    @property
    def local_index(self) -> Path:
        """The index of the local rows. Derived data."""
        return self.shared / "local" / "index"

    @property
    def local_segments(self) -> Path:
        """The pieces of which the local index consists. Derived data."""
        return self.shared / "local" / "segments"

    @property
    def trust_id(self) -> Path:
        """The id that distinguishes this repository from another one at the same path."""
        return self.shared / "trust-id"

    @property
    def folders(self) -> tuple[Path, ...]:
        """All folders of vmrag, outer ones first. Some do not exist."""
        shared = (
            self.shared,
            self.kb,
            self.views,
            self.source_views,
            self.segments,
            self.chroma,
            self.builder,
            self.working_copies,
            self.shims,
        )
        upkeep = (self.locks, self.journal, self.logs, self.quarantine, self.migration, self.shared / "leases")
        local = (self.local_kb.parent, self.local_kb, self.local_index, self.local_segments)
        return (*shared, *upkeep, self.remotes, self.remote_objects, *local, self.work_tree_folder, self.source_state)

    # -- of this work tree

    @property
    def work_tree_folder(self) -> Path:
        return self.git_dir / "vmrag"

    @property
    def verified(self) -> Path:
        """The commit up to which `vmrag status` found no commit that drops documents."""
        return self.work_tree_folder / "verified"

    @property
    def applied(self) -> Path:
        return self.work_tree_folder / "applied"

    @property
    def view_folders(self) -> tuple[Path, ...]:
        """The folders of the views that reference the segments of the work trees."""
        return self.views, self.working_copies, self.source_views

    @property
    def source_state(self) -> Path:
        """The name of the index of files for this work tree, and the state of these files. Derived
        data.
        """
        return self.work_tree_folder / TREE

    @property
    def workspace(self) -> Path:
        return self.work_tree_folder / "workspace.json"

    @property
    def merge(self) -> Path:
        return self.work_tree_folder / "merge.json"

    @property
    def merge_in_git(self) -> Path:
        return self.work_tree_folder / "merge-git.json"

    @property
    def index_failures(self) -> Path:
        """Why the last requested sync could not embed the documents of a collection."""
        return self.work_tree_folder / "index-failures.json"

    @property
    def workspace_lock(self) -> Path:
        return self.work_tree_folder / "workspace.lock"

    @property
    def mapping_lock(self) -> Path:
        """The lock for changes of which KB branch a code branch uses."""
        return self.locks / "mapping.lock"

    @property
    def settings_record(self) -> Path:
        """The parsed settings file. Derived data."""
        return self.work_tree_folder / "settings"

    @property
    def drafts(self) -> Path:
        """Texts that the user writes in an editor. They are not derived data: a draft can be the
        only copy.
        """
        return self.work_tree_folder / "drafts"


def is_outside_projects(directory: Path) -> bool:
    """Return whether a directory is the root or the home. Programs there belong to no project."""
    return os.path.realpath(directory) in {os.path.realpath(folder) for folder in ("/", os.path.expanduser("~"))}  # noqa: PTH111
