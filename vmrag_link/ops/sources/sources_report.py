"""`vmrag sources`: which files are documents, which are not, and why."""

from __future__ import annotations

import posixpath
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from vmrag_link import settings_docs
from vmrag_link.code import languages
from vmrag_link.code.languages import BY_LINES
from vmrag_link.errors import LimitExceeded
from vmrag_link.git import beside, listing, plumbing, raw_changes, submodules, versions
from vmrag_link.git.submodules import NestedPaths
from vmrag_link.index.reader import IndexReader, damage_errors
from vmrag_link.models import PIECES, Record
from vmrag_link.paths import CONFIG_NAME, PIN_NAME
from vmrag_link.settings import Config, SourceSettings
from vmrag_link.sources import notes, rules
from vmrag_link.sources.listings import LeftOutFile
from vmrag_link.sources.untracked import count_untracked_files, list_untracked_files
from vmrag_link.sync import source_views
from vmrag_link.workspace import Workspace, source_tree
from vmrag_link.workspace.documents.reading import files_at
from vmrag_link.workspace.worktree import OpenSources

_OURS = (CONFIG_NAME, PIN_NAME, ".vmrag/")


class SourceRow(Record, frozen=True):
    """A source as its settings state it. `documents`: how many it has; `uncommitted`: how files of
    the work tree differ from HEAD, by path. `unavailable`: why it is not read here, and what to
    type (`hint`). `unmatched`: those of `paths` that name no file. `unmatched_exclude`: those of
    `exclude` that leave no file out. `write`: notes are written, if it is `trusted`. `disputed`:
    ids in front matter that another note has, by path. `by_lines`: files of code that are too hard
    or too large to parse, so that they are cut by lines.
    """

    collection: str
    kind: Literal["document", "code"]
    paths: tuple[str, ...]
    exclude: tuple[str, ...]
    documents: int = 0
    uncommitted: Mapping[str, str] = {}
    unavailable: str = ""
    hint: str = ""
    unmatched: tuple[str, ...] = ()
    unmatched_exclude: tuple[str, ...] = ()
    write: bool = False
    trusted: bool = False
    disputed: Mapping[str, str] = {}
    by_lines: tuple[str, ...] = ()


class LeftOutRow(Record, frozen=True):
    """A file that a source names and that is no document: `PATH is left out: it REASON`."""

    collection: str
    path: str
    reason: str


class SubmoduleRow(Record, frozen=True):
    """A submodule.

    `commit`: the commit that the tree names. `files`: the number of its files; None if the commit
    is not in this clone. `is_read`: the sources read its files.
    """

    path: str
    commit: str
    files: int | None
    is_read: bool = False


class LinkedFolderRow(Record, frozen=True):
    """A symbolic link to a folder. No source follows it.

    `files`: the number of tracked files in the folder; None if it is outside the repository.
    """

    path: str
    target: str
    files: int | None


class SourcesReport(Record, frozen=True):
    """`commit`: whose tree it is; None before the first. `proposed`: nothing is set up, and these
    are the sources that `vmrag init` would write. `proposal`: what to write into `.vmrag.yaml`,
    where it states no sources; empty where no file could be a document.

    `removed`: files of HEAD that the work tree has no more. `missing`: files whose contents this
    clone does not have. `untracked`: files that would be documents if git tracked them.
    `uncovered`: how many tracked files no source names or excludes, by the endings of their names;
    without sources, of those that are not proposed.
    `unnamed`: those of them that could be documents; `addition`: what to write below `sources:` in
    `.vmrag.yaml`, so that they are. `needs_extra`: how to install what reads the code among them.
    `linked_folders`: folders of the tree whose files no source has.
    """

    commit: str | None
    sources: tuple[SourceRow, ...]
    left_out: tuple[LeftOutRow, ...] = ()
    removed: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    untracked: int = 0
    proposed: bool = False
    proposal: str = ""
    uncovered: Mapping[str, int] = {}
    unnamed: Mapping[str, int] = {}
    addition: str = ""
    needs_extra: str = ""
    submodules: tuple[SubmoduleRow, ...] = ()
    linked_folders: tuple[LinkedFolderRow, ...] = ()


def report_sources(ws: Workspace, *, ref: str | None = None) -> SourcesReport:
    """Of the work tree, or of the tree of a commit that git calls so, by its own settings.

    Files that were not cut before are, because some are left out for what is in them. Raises as
    `Sources.here` and `at`, and `GitReferenceMissing`.
    """
    commit = plumbing.read_head(ws.places).commit if ref is None else plumbing.resolve_commit(ws.places, ref)
    config = ws.sources.config if ref is None else ws.sources.read_config_at(commit or "")
    proposed = ref is None and ws.sources.is_proposed
    # What is written into the settings file counts for the work tree alone.
    offered = ws.sources.propose() if proposed or not (config.sources or ref) else ()
    proposal = settings_docs.format_sources(offered)
    of_work_tree = ref is None
    tracked = (
        listing.list_tracked_files(ws.places)
        if of_work_tree
        else list(versions.list_tree_files(ws.places, commit or ""))
    )
    outside = find_uncovered(config.sources or offered, tracked)
    nested = submodules.find_nested(ws.places, None if of_work_tree else commit)
    read = ws.sources.find_submodules(config, None if of_work_tree else commit)
    below = _list_submodules(ws, nested, {each.path for each in read if each.places})
    linked = _list_linked_folders(ws, nested, tracked, of_work_tree=of_work_tree)
    if not config.sources:
        return SourcesReport(
            commit,
            (),
            proposal=proposal,
            uncovered=count_endings(outside),
            needs_extra=find_extra(outside),
            submodules=below,
            linked_folders=linked,
        )
    stored = ws.list_stored_collections() if ref is None else ()
    with files_at(ws, ref) as opened:
        assert opened is not None  # noqa: S101  there are sources
        contents = source_views.read_contents(opened.folder)
        by_lines = _files_cut_by_lines(opened.folder)
        rows = tuple(
            msgspec.structs.replace(
                _row(ws, source, opened, contents, stored), by_lines=tuple(by_lines.get(source.collection, ()))
            )
            for source in config.sources
        )
        searched = config.searches_untracked and of_work_tree
        if read:
            from vmrag_link.sources import submodule_files

            tracked += submodule_files.list_paths(read, of_work_tree=of_work_tree)
        rows = tuple(
            row
            if row.write  # its folder may be empty
            else _with_unmatched(ws, row, tracked, untracked=searched, with_untracked=of_work_tree)
            for row in rows
        )
        beside = find_unnamed(ws, outside) if of_work_tree and not proposed else UnnamedFiles({}, ())
        available = [each for each in config.sources if each.collection in opened.collections]
        left_out = [*_by_listing(ws, available, config, commit=None if ref is None else commit)]
        left_out += [
            LeftOutRow(name, path, file.reason)
            for name, files in contents.left_out.items()
            for path, file in files.items()
        ]
        return SourcesReport(
            commit,
            rows,
            tuple(sorted(left_out, key=lambda each: each.path)),
            opened.removed,
            opened.missing,
            _untracked(ws, [source for source in available if not source.write])
            if ref is None and not config.searches_untracked
            else 0,
            proposed,
            proposal,
            count_endings(outside),
            beside.endings,
            beside.form_yaml(config.sources),
            find_extra(outside),
            below,
            linked,
        )


_MOST_COUNTED = 200
"""Maximum number of submodules whose files are counted, because each starts a process."""


@beside.share_deadline()
def _list_submodules(ws: Workspace, nested: NestedPaths, read: Collection[str]) -> tuple[SubmoduleRow, ...]:
    counted = sorted(nested.submodules.items())[:_MOST_COUNTED]
    numbers = {path: submodules.count_files(ws.places, path, commit) for path, commit in counted}
    return tuple(
        SubmoduleRow(path, name, numbers.get(path), path in read) for path, name in sorted(nested.submodules.items())
    )


def _list_linked_folders(
    ws: Workspace, nested: NestedPaths, tracked: Iterable[str], *, of_work_tree: bool
) -> tuple[LinkedFolderRow, ...]:
    """Return the links to folders. For a commit, links out of the repository are left out."""
    targets = submodules.read_targets(ws.places, nested.links)
    folders = {path: posixpath.normpath(posixpath.join(posixpath.dirname(path), to)) for path, to in targets.items()}
    linked = {*folders.values()}
    numbers = Counter(folder for file in tracked for folder in _list_parents(file) if folder in linked)
    rows = []
    for path, folder in sorted(folders.items()):
        is_outside = folder.startswith(("/", "../")) or folder == ".."
        if numbers[folder] or (is_outside and of_work_tree and (ws.places.top / path).is_dir()):
            rows.append(LinkedFolderRow(path, targets[path], None if is_outside else numbers[folder]))
    return tuple(rows)


def _list_parents(path: str) -> Iterator[str]:
    """Yield the folders that contain a file, with `.` for the top."""
    while path := posixpath.dirname(path):
        yield path
    yield "."


class UnnamedFiles(NamedTuple):
    """Tracked files in no source. `endings`: how many, by the ends of their names."""

    endings: Mapping[str, int]
    sources: tuple[SourceSettings, ...]

    def form_yaml(self, named: Sequence[SourceSettings]) -> str:
        """Lines to add below `sources:`; of a kind that is there a comment says where."""
        lines = []
        for source in self.sources:
            beside = next((other for other in named if other.kind == source.kind), None)
            section = settings_docs.format_sources([source]).splitlines()[1:]
            paths = section[-2 if source.exclude else -1].partition(": ")[2]
            lines += [f"  # to the paths of {beside.collection}: {paths}"] if beside else section
        return "".join(f"{line}\n" for line in lines)


def find_unnamed(ws: Workspace, uncovered: Sequence[str]) -> UnnamedFiles:
    """Return the source settings to propose for these files, which are in no source."""
    names = {*ws.list_stored_collections(), *(source.collection for source in ws.config.sources)}
    possible = ws.sources.propose_for(uncovered, names)
    endings = count_endings(path for path in uncovered if rules.find_source(possible, path))
    return UnnamedFiles(endings, possible)


def find_uncovered(sources: Sequence[SourceSettings], tracked: Iterable[str]) -> list[str]:
    """Return the files that are neither in a source nor excluded from one."""
    is_named = rules.path_matcher(tuple(pattern for source in sources for pattern in (*source.paths, *source.exclude)))
    return [path for path in tracked if not path.startswith(_OURS) and not is_named(path)]


def count_endings(paths: Iterable[str]) -> dict[str, int]:
    """Count files by ending, most frequent first. A file without an ending counts by its name."""
    names = (path.rpartition("/")[2] for path in paths)
    return dict(Counter(f".{name.rpartition('.')[2]}" if "." in name[1:] else name for name in names).most_common())


def find_extra(uncovered: Iterable[str]) -> str:
    """Return the command that installs the extra for these files of code; empty if nothing is
    missing.
    """
    missing = languages.find_language_problem() and any(
        languages.detect_language(path) in languages.GRAMMARS for path in uncovered
    )
    return languages.EXTRA_HINT if missing else ""


def propose_sources(ws: Workspace) -> tuple[SourceSettings, ...]:
    """Sources that could be named where none are, and the settings are there."""
    return () if ws.sources.configured else ws.sources.propose()


def count_untracked_offers(ws: Workspace) -> int:
    """How many files could be of a source if git tracked them; of too many to list, as many as
    can be.
    """
    try:
        files = raw_changes.list_untracked(ws.places, [])
    except LimitExceeded:
        return raw_changes.MOST_FILES
    possible = ws.sources.propose_for(files)
    return sum(rules.find_source(possible, path) is not None for path in files)


def _with_unmatched(
    ws: Workspace, row: SourceRow, tracked: Sequence[str], *, untracked: bool, with_untracked: bool
) -> SourceRow:
    """`untracked`: untracked files are documents. `with_untracked`: the place may have some."""
    each = {path: SourceSettings(row.collection, (path,), (), row.kind) for path in row.paths}
    gone = [path for path, source in each.items() if not any(rules.is_named(source, file) for file in tracked)]
    if untracked:
        gone = [path for path in gone if not _untracked(ws, [each[path]])]
    idle = _idle_excludes(ws, row, tracked, with_untracked=with_untracked)
    return msgspec.structs.replace(row, unmatched=tuple(gone), unmatched_exclude=tuple(idle))


def _idle_excludes(ws: Workspace, row: SourceRow, tracked: Sequence[str], *, with_untracked: bool) -> list[str]:
    """Return the patterns that leave out no file of the paths, tracked or untracked."""
    whole = SourceSettings(row.collection, row.paths, (), row.kind)
    files = [path for path in tracked if rules.is_named(whole, path)] if row.exclude else []
    patterns = [SourceSettings(row.collection, (pattern,), (), row.kind) for pattern in row.exclude]
    idle = [pattern for pattern in patterns if not any(rules.is_named(pattern, path) for path in files)]
    if idle and with_untracked:
        try:
            (others,) = list_untracked_files(ws.places, [whole])
        except LimitExceeded:  # more than can be compared: nothing is known of them
            return []
        idle = [pattern for pattern in idle if not any(rules.is_named(pattern, path) for path in others)]
    return [pattern.paths[0] for pattern in idle]


def _row(
    ws: Workspace,
    source: SourceSettings,
    opened: OpenSources,
    contents: source_views.SourceContents,
    stored: Collection[str],
) -> SourceRow:
    name = source.collection
    why = opened.unavailable.get(name, "")
    files = contents.tags.get(name, {}).keys() - contents.left_out.get(name, {}).keys()
    return SourceRow(
        name,
        source.kind,
        source.paths,
        source.exclude,
        documents=len(files),
        uncommitted=opened.uncommitted.get(name, {}),
        unavailable=why,
        hint=("vmrag sources dedupe" if name in stored else languages.EXTRA_HINT) if why else "",
        write=source.write,
        trusted=source.write and ws.settings.loaded.may_write(source),
        disputed=_find_disputed(ws, source) if source.write and not why else {},
    )


def _files_cut_by_lines(folder: Path) -> dict[str, list[str]]:
    """Return the files of code that no parser could read, by collection."""
    mark = f'"{PIECES}":[[0,1,"","{BY_LINES}"'
    with damage_errors(folder), IndexReader.open(folder) as index:
        return {
            name: sorted(
                path
                for columns in index.read_columns(name, header=True)
                for path, metadata in zip(columns.doc_id, columns.metadata, strict=True)
                if mark in metadata
            )
            for name, row in index.collections.items()
            if row.collection.is_code
        }


def _find_disputed(ws: Workspace, source: SourceSettings) -> dict[str, str]:
    """Return the ids that notes claim and that another note has, by path."""
    tree = source_tree.read_work_tree(ws)
    files = tree.listing.files.get(source.collection, ()) if tree else ()
    claims = {file.path: tree.listing.claims.get(file.blob, "") for file in files} if tree else {}
    return notes.disputed_ids({file.path: file.doc_id for file in files}, claims)


def _by_listing(
    ws: Workspace, sources: Sequence[SourceSettings], config: Config, *, commit: str | None
) -> Iterator[LeftOutRow]:
    """What is left out because of its path, its attributes, its size."""
    at = ws.sources.list_commit
    listing = ws.sources.list_work_tree(sources) if commit is None else at(commit, sources, config)
    yield from (LeftOutRow(_collection_of(sources, each), each.path, each.reason) for each in listing.left_out)


def _collection_of(sources: Sequence[SourceSettings], file: LeftOutFile) -> str:
    return next((source.collection for source in sources if rules.is_named(source, file.path)), "")


def _untracked(ws: Workspace, sources: Sequence[SourceSettings]) -> int:
    try:
        found = zip(sources, list_untracked_files(ws.places, sources), strict=True)
    except LimitExceeded:
        return count_untracked_files(ws.places, sources)
    return len({path for source, files in found for path in files if rules.find_source([source], path)})
