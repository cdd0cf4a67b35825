"""Report which files are documents of sources, which are not, and why: `vmrag sources`.

A *source* is an entry below `sources:` in the settings: patterns of paths, whose files are the
documents of a collection. Without sources, the report has the entries that `vmrag init` would
write.
"""

from __future__ import annotations

import posixpath
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from vmrag_link import settings_edit
from vmrag_link.code import languages
from vmrag_link.code.languages import BY_LINES
from vmrag_link.errors import LimitExceeded
from vmrag_link.git import listing, plumbing, raw_changes, readonly, submodules, versions
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

_OWN_FILES = (CONFIG_NAME, PIN_NAME, ".vmrag/")

_MAX_COUNTED_SUBMODULES = 200
"""Maximum number of submodules whose files are counted, because each starts a process."""


class SourceRow(Record, frozen=True):
    """A source as in the settings, with its files."""

    collection: str
    kind: Literal["document", "code"]
    paths: tuple[str, ...]
    exclude: tuple[str, ...]
    documents: int = 0
    """Number of documents."""
    uncommitted: Mapping[str, str] = {}
    """How files of the work tree differ from HEAD, by path."""
    unavailable: str = ""
    """Why the source cannot be read here; empty if it can."""
    hint: str = ""
    """How to read it, if it cannot be read."""
    unmatched: tuple[str, ...] = ()
    """Patterns of `paths` that match no file."""
    unmatched_exclude: tuple[str, ...] = ()
    """Patterns of `exclude` that leave no file out."""
    write: bool = False
    """True if the source has notes, which are written if it is `trusted`."""
    trusted: bool = False
    disputed: Mapping[str, str] = {}
    """Ids in front matter that another note has, by path."""
    by_lines: tuple[str, ...] = ()
    """Files of code that are cut by lines, because they are too complex or too large to parse."""


class LeftOutRow(Record, frozen=True):
    """A file that a source names and that is not a document: `PATH is left out: it REASON`."""

    collection: str
    path: str
    reason: str


class SubmoduleRow(Record, frozen=True):
    """A submodule."""

    path: str
    commit: str
    """The commit that the tree names."""
    files: int | None
    """Number of its files; None if the commit is not in this clone."""
    is_read: bool = False
    """True if the sources read its files."""


class LinkedFolderRow(Record, frozen=True):
    """A symbolic link to a folder. No source follows it."""

    path: str
    target: str
    files: int | None
    """Number of tracked files in the folder; None if it is outside the repository."""


class SourcesReport(Record, frozen=True):
    """The sources of a tree, and the files that no source has."""

    commit: str | None
    """The commit of the tree; None before the first commit."""
    sources: tuple[SourceRow, ...]
    left_out: tuple[LeftOutRow, ...] = ()
    removed: tuple[str, ...] = ()
    """Files of HEAD that the work tree does not have."""
    missing: tuple[str, ...] = ()
    """Files whose contents this clone does not have."""
    untracked: int = 0
    """Number of files that would be documents if git tracked them."""
    proposed: bool = False
    """True if nothing is set up. The sources are those that `vmrag init` would write."""
    proposal: str = ""
    """Text for a `.vmrag.yaml` without sources; empty if no file can be a document."""
    uncovered: Mapping[str, int] = {}
    """Number of tracked files by the ending of their names, without the files that a source, an
    exclusion or the proposal names.
    """
    unnamed: Mapping[str, int] = {}
    """Number of those files that could be documents, by ending."""
    addition: str = ""
    """Text to add below `sources:` in `.vmrag.yaml`, so that the unnamed files become documents."""
    needs_extra: str = ""
    """Command that installs the parser of the code among them; empty if it is installed."""
    submodules: tuple[SubmoduleRow, ...] = ()
    linked_folders: tuple[LinkedFolderRow, ...] = ()
    """Folders of the tree whose files no source has."""


def report_sources(ws: Workspace, *, ref: str | None = None) -> SourcesReport:
    """Report the sources of the work tree, or those of a commit with the settings of that commit.

    Files that were not cut yet are cut, because some are left out due to their contents. Raises the
    errors of `SourceIndex.open_work_tree` and `SourceIndex.open_commit`, and `GitReferenceMissing`.
    """
    of_work_tree = ref is None
    if ref is None:
        commit = plumbing.read_head(ws.places).commit
        config = ws.sources.config
        tracked = list(listing.list_tracked_files(ws.places))
    else:
        commit = plumbing.resolve_commit(ws.places, ref)
        config = ws.sources.read_config_at(commit)
        tracked = list(versions.list_tree_files(ws.places, commit))
    proposed = of_work_tree and ws.sources.is_proposed
    # A proposal for the settings file is for the work tree only.
    offered = ws.sources.propose() if proposed or not (config.sources or ref) else ()
    uncovered = find_uncovered(config.sources or offered, tracked)
    nested = submodules.find_nested(ws.places, None if of_work_tree else commit)
    read_submodules = ws.sources.find_submodules(config, None if of_work_tree else commit)
    report = SourcesReport(
        commit,
        (),
        proposal=settings_edit.format_sources(offered),
        uncovered=count_endings(uncovered),
        needs_extra=find_extra(uncovered),
        submodules=_list_submodules(ws, nested, {submodule.path for submodule in read_submodules if submodule.places}),
        linked_folders=_list_linked_folders(ws, nested, tracked, of_work_tree=of_work_tree),
    )
    if not config.sources:
        return report
    stored = ws.list_stored_collections() if of_work_tree else ()
    with files_at(ws, ref) as open_sources:
        assert open_sources is not None  # noqa: S101  there are sources
        if read_submodules:
            from vmrag_link.sources import submodule_files

            tracked += submodule_files.list_paths(read_submodules, of_work_tree=of_work_tree)
        contents = source_views.read_contents(open_sources.folder)
        rows = [_form_row(ws, source, open_sources, contents, stored) for source in config.sources]
        rows = _add_files_cut_by_lines(open_sources.folder, rows)
        untracked = config.searches_untracked and of_work_tree
        rows = [_add_unmatched(ws, row, tracked, untracked=untracked, with_untracked=of_work_tree) for row in rows]
        unnamed = find_unnamed(ws, uncovered) if of_work_tree and not proposed else UnnamedFiles({}, ())
        available = [source for source in config.sources if source.collection in open_sources.collections]
        left_out = [*_list_left_out(ws, available, config, contents, commit=None if of_work_tree else commit)]
        unsearched = [source for source in available if not source.write]
        return msgspec.structs.replace(
            report,
            sources=tuple(rows),
            left_out=tuple(sorted(left_out, key=lambda row: row.path)),
            removed=open_sources.removed,
            missing=open_sources.missing,
            untracked=_count_untracked(ws, unsearched) if of_work_tree and not config.searches_untracked else 0,
            proposed=proposed,
            unnamed=unnamed.endings,
            addition=unnamed.form_yaml(config.sources),
        )


@readonly.share_deadline()
def _list_submodules(ws: Workspace, nested: NestedPaths, read_paths: Collection[str]) -> tuple[SubmoduleRow, ...]:
    commits = sorted(nested.submodules.items())
    numbers = {
        path: submodules.count_files(ws.places, path, commit) for path, commit in commits[:_MAX_COUNTED_SUBMODULES]
    }
    return tuple(SubmoduleRow(path, commit, numbers.get(path), path in read_paths) for path, commit in commits)


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
    """Tracked files in no source, and the sources that could have them."""

    endings: Mapping[str, int]
    """Number of these files by the ending of their names."""
    sources: tuple[SourceSettings, ...]
    """Proposed entries for the settings."""

    def form_yaml(self, present: Sequence[SourceSettings]) -> str:
        """Return lines to add below `sources:`.

        If a source of that kind is present, a comment names it, and the paths to add to it.
        """
        lines: list[str] = []
        for source in self.sources:
            same_kind = next((other for other in present if other.kind == source.kind), None)
            section = settings_edit.format_sources([source]).splitlines()[1:]
            paths = section[-2 if source.exclude else -1].partition(": ")[2]
            lines += [f"  # to the paths of {same_kind.collection}: {paths}"] if same_kind else section
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
    return [path for path in tracked if not path.startswith(_OWN_FILES) and not is_named(path)]


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
    return languages.INSTALL_COMMAND if missing else ""


def propose_sources(ws: Workspace) -> tuple[SourceSettings, ...]:
    """Return the proposed sources for settings without sources."""
    return () if ws.sources.configured else ws.sources.propose()


def count_untracked_offers(ws: Workspace) -> int:
    """Return how many untracked files a proposed source would have.

    If there are too many files to list, return the maximum number.
    """
    try:
        files = raw_changes.list_untracked(ws.places, [])
    except LimitExceeded:
        return raw_changes.MOST_FILES
    possible = ws.sources.propose_for(files)
    return sum(rules.find_source(possible, path) is not None for path in files)


def _add_unmatched(
    ws: Workspace, row: SourceRow, tracked: Sequence[str], *, untracked: bool, with_untracked: bool
) -> SourceRow:
    """Return the row with the patterns that match nothing. The folder of notes may be empty.

    `untracked`: untracked files are documents. `with_untracked`: the place may have untracked
    files.
    """
    if row.write:
        return row
    source_by_pattern = {path: SourceSettings(row.collection, (path,), (), row.kind) for path in row.paths}
    unmatched = [
        path for path, source in source_by_pattern.items() if not any(rules.is_named(source, file) for file in tracked)
    ]
    if untracked:
        unmatched = [path for path in unmatched if not _count_untracked(ws, [source_by_pattern[path]])]
    idle = _list_idle_excludes(ws, row, tracked, with_untracked=with_untracked)
    return msgspec.structs.replace(row, unmatched=tuple(unmatched), unmatched_exclude=tuple(idle))


def _list_idle_excludes(ws: Workspace, row: SourceRow, tracked: Sequence[str], *, with_untracked: bool) -> list[str]:
    """Return the patterns that leave out no file of the paths, tracked or untracked."""
    whole = SourceSettings(row.collection, row.paths, (), row.kind)
    files = [path for path in tracked if rules.is_named(whole, path)] if row.exclude else []
    patterns = [SourceSettings(row.collection, (pattern,), (), row.kind) for pattern in row.exclude]
    idle = [pattern for pattern in patterns if not any(rules.is_named(pattern, path) for path in files)]
    if idle and with_untracked:
        try:
            (untracked,) = list_untracked_files(ws.places, [whole])
        except LimitExceeded:  # too many files to compare
            return []
        idle = [pattern for pattern in idle if not any(rules.is_named(pattern, path) for path in untracked)]
    return [pattern.paths[0] for pattern in idle]


def _form_row(
    ws: Workspace,
    source: SourceSettings,
    opened: OpenSources,
    contents: source_views.SourceContents,
    stored: Collection[str],
) -> SourceRow:
    name = source.collection
    reason = opened.unavailable.get(name, "")
    files = contents.tags.get(name, {}).keys() - contents.left_out.get(name, {}).keys()
    hint = ""
    if reason:
        hint = "run 'vmrag sources dedupe' to remove the stored copies" if name in stored else languages.EXTRA_HINT
    return SourceRow(
        name,
        source.kind,
        source.paths,
        source.exclude,
        documents=len(files),
        uncommitted=opened.uncommitted.get(name, {}),
        unavailable=reason,
        hint=hint,
        write=source.write,
        trusted=source.write and ws.settings.loaded.may_write(source),
        disputed=_find_disputed(ws, source) if source.write and not reason else {},
    )


def _add_files_cut_by_lines(folder: Path, rows: Iterable[SourceRow]) -> list[SourceRow]:
    """Return the rows with their files of code that no parser could read."""
    mark = f'"{PIECES}":[[0,1,"","{BY_LINES}"'  # in the metadata of such a file, which is not decoded here
    by_lines: dict[str, list[str]] = {}
    with damage_errors(folder), IndexReader.open(folder) as index:
        for name, row in index.collections.items():
            if row.collection.is_code:
                for columns in index.read_columns(name, header=True):
                    pairs = zip(columns.doc_id, columns.metadata, strict=True)
                    by_lines.setdefault(name, []).extend(path for path, metadata in pairs if mark in metadata)
    return [msgspec.structs.replace(row, by_lines=tuple(sorted(by_lines.get(row.collection, ())))) for row in rows]


def _find_disputed(ws: Workspace, source: SourceSettings) -> dict[str, str]:
    """Return the ids that notes claim and that another note has, by path."""
    tree = source_tree.read_work_tree(ws)
    if tree is None:
        return {}
    files = tree.listing.files.get(source.collection, ())
    claims = {file.path: tree.listing.claims.get(file.blob, "") for file in files}
    return notes.disputed_ids({file.path: file.doc_id for file in files}, claims)


def _list_left_out(
    ws: Workspace,
    sources: Sequence[SourceSettings],
    config: Config,
    contents: source_views.SourceContents,
    *,
    commit: str | None,
) -> Iterator[LeftOutRow]:
    """Yield the files that are left out because of their path, attributes, size or contents."""
    at = ws.sources.list_commit
    source_listing = ws.sources.list_work_tree(sources) if commit is None else at(commit, sources, config)
    for file in source_listing.left_out:
        yield LeftOutRow(_find_collection(sources, file), file.path, file.reason)
    for name, files in contents.left_out.items():
        for path, left_out in files.items():
            yield LeftOutRow(name, path, left_out.reason)


def _find_collection(sources: Sequence[SourceSettings], file: LeftOutFile) -> str:
    return next((source.collection for source in sources if rules.is_named(source, file.path)), "")


def _count_untracked(ws: Workspace, sources: Sequence[SourceSettings]) -> int:
    try:
        files_by_source = list_untracked_files(ws.places, sources)
    except LimitExceeded:
        return count_untracked_files(ws.places, sources)
    documents = set[str]()
    for source, files in zip(sources, files_by_source, strict=True):
        documents |= {path for path in files if rules.find_source([source], path)}
    return len(documents)
