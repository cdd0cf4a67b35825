"""A project whose documents are files: where they lie, of which types, in which collection.

Its configuration file comes with the code: it is a stranger's.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, get_args

import msgspec
from msgspec import Meta

from vmrag_link import terminal_text
from vmrag_link.documents.export_paths import is_git_folder
from vmrag_link.engines.logical import collection_name
from vmrag_link.errors import AccessDenied, DocTypeInvalid, FileFailed, UsageInvalid, quoted
from vmrag_link.models import COMPOUNDING, Record, parse_user_json
from vmrag_link.paths import Places, read_regular
from vmrag_link.toolsets.compounding import doc_types
from vmrag_link.toolsets.compounding.doc_types import BUILT_IN, DocType, SchemaUnusable

MAX_BYTES = 1 << 18
USUAL_RESULTS, USUAL_LIMIT = 3, 10

Score = Annotated[float, Meta(ge=0, le=1)]
Number = Annotated[int, Meta(ge=0, le=100)]
Count = Annotated[int, Meta(ge=1, le=100)]
Texts = Annotated[tuple[Annotated[str, Meta(min_length=1, max_length=300)], ...], Meta(max_length=100)]
Name = Annotated[str, Meta(pattern=r"\A[a-z][a-z0-9-]{0,99}\Z")]


class RetrievalConfig(Record, frozen=True):
    """For answers. Without `min_relevance_score` the embedding model's own counts."""

    min_relevance_score: Score | None = None
    max_results: Count = USUAL_RESULTS
    max_linked_docs: Number = 5
    max_critical_docs: Number = 5


class SearchConfig(Record, frozen=True):
    min_relevance_score: Score | None = None
    default_limit: Count = USUAL_LIMIT


class LinkConfig(Record, frozen=True):
    max_depth: Annotated[int, Meta(ge=0, le=10)] = 2


class ExternalConfig(Record, frozen=True):
    """Other documentation in the same work tree; patterns are relative to `path`."""

    path: str
    include_patterns: Texts = ("**/*.md",)
    exclude_patterns: Texts = ("**/node_modules/**",)


class DocTypeConfig(Record, frozen=True):
    """`schema_file`: JSON Schema, in YAML or JSON; relative to the configuration file."""

    name: Name
    folder: str
    description: str = ""
    schema_file: str = ""


class ProjectConfig(Record, frozen=True):
    """`docs_path`: where the documents lie, if not where the folder's own name says."""

    project_name: Name
    retrieval: RetrievalConfig = RetrievalConfig()
    semantic_search: SearchConfig = SearchConfig()
    link_resolution: LinkConfig = LinkConfig()
    external_docs: ExternalConfig | None = None
    custom_doc_types: Annotated[tuple[DocTypeConfig, ...], Meta(max_length=100)] = ()
    docs_path: str = ""
    strict_front_matter: bool = False


class ReadConfig(Record, frozen=True):
    """`unknown`: keys that mean nothing here."""

    config: ProjectConfig
    unknown: tuple[str, ...]


def read_config(path: Path) -> ReadConfig:
    """Raises `FileFailed`, and `UsageInvalid` for what is no configuration."""
    text = file_text(path, MAX_BYTES)
    try:
        found = parse_user_json(text)
        config = msgspec.convert(found, type=ProjectConfig)
    except msgspec.ValidationError as error:
        raise build_invalid(path, str(error)) from None
    except ValueError as error:
        raise build_invalid(path, f"it {error}") from None
    return ReadConfig(config, tuple(_unknown(found, ProjectConfig, "")))


def file_text(path: Path, most: int) -> str:
    """The text of a small regular file. Raises `FileFailed`."""
    try:
        data = read_regular(path, most + 1)
        if len(data) > most:
            raise _unreadable(path, f"it has more than {most:,} bytes")
        return data.decode("utf-8-sig")
    except OSError as error:
        raise _unreadable(path, error.strerror or str(error)) from error
    except UnicodeDecodeError as error:
        raise _unreadable(path, f"it is not UTF-8 (byte {error.start})") from None


def build_invalid(path: Path, why: str) -> UsageInvalid:
    name = terminal_text.escape_line(str(path))
    return UsageInvalid(
        f"{name} is no configuration of a project: {terminal_text.escape_line(why)}.",
        hint='It needs at least: {"project_name": "my-project"}',
        parameter="config_path",
        path=name,
    )


def _unreadable(path: Path, why: str) -> FileFailed:
    name = terminal_text.escape_line(str(path))
    return FileFailed(f"{name} cannot be read: {why}.", hint=f"ls -la {quoted(path)}", path=name)


def _unknown(found: Mapping[str, Any], record: type[Record], where: str) -> Iterator[str]:
    """The keys of a valid configuration that its records have no field for."""
    fields = {field.name: field.type for field in msgspec.structs.fields(record)}
    for key, value in found.items():
        if key not in fields and not re.match(r"[$_]", key):  # `$schema`, and what people comment out
            yield f"{where}{key}"
        inner = next((each for each in (fields.get(key), *get_args(fields.get(key))) if _is_record(each)), None)
        if inner and isinstance(value, dict):
            yield from _unknown(value, inner, f"{where}{key}.")


def _is_record(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Record)


CONFIG = ".csharp-compounding-docs/config.json"
"""Where clients keep a project's configuration, below its root."""


class DocsProject(Record, frozen=True):
    """`root`: absolute, through no link; `docs`: the documents' folder, relative to it.

    `external`: that of other documentation, likewise; empty without. `unknown`: keys of the
    configuration that mean nothing here.
    """

    config_path: str
    root: str
    docs: str
    external: str
    config: ProjectConfig
    types: tuple[DocType, ...]
    unknown: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.config.project_name

    @property
    def collection(self) -> str:
        """The collection that mirrors the documents."""
        return collection_of(self.name)

    @property
    def path_hash(self) -> str:
        """Of the root on this machine."""
        return hashlib.sha256(os.fsencode(self.root)).hexdigest()[:16]

    @property
    def docs_folder(self) -> Path:
        return Path(self.root, self.docs)

    @property
    def external_folder(self) -> Path:
        return Path(self.root, self.external)

    def type_named(self, name: str) -> DocType | None:
        return next((each for each in self.types if each.name == name), None)

    def type_of_folder(self, doc_id: str) -> DocType | None:
        """The type whose folder a document lies in; of several the innermost."""
        within = [each for each in self.types if doc_id.startswith(f"{each.folder}/")]
        return max(within, key=lambda each: len(each.folder), default=None)

    def require_types(self, names: Sequence[str] | None) -> list[str]:
        """Raises `DocTypeInvalid`."""
        for name in names or ():
            if self.type_named(name) is None:
                raise unknown_type(self.types, name)
        return [*(names or ())]


def collection_of(project: str) -> str:
    return collection_name(COMPOUNDING, project)


def unknown_type(types: Sequence[DocType], name: str) -> DocTypeInvalid:
    known = [each.name for each in types]
    shown = terminal_text.escape_line(repr(name[:80]))
    return DocTypeInvalid(
        f"The project has no documents of the type {shown}.",
        hint=f"There are: {', '.join(known)}. Others come from custom_doc_types in the project's configuration.",
        doc_type=name[:80],
        doc_types=known,
    )


def load_project(places: Places, config_path: str) -> DocsProject:
    """The project of a configuration file in the work tree.

    Raises `AccessDenied` for one outside of it, `FileFailed`, `UsageInvalid`.
    """
    path = _config(places, config_path)
    found = read_config(path)
    config, root, folder = found.config, path.parent.parent, path.parent.name
    docs = _inside(root, config.docs_path or folder.removeprefix("."), path, "docs_path")
    external = _external(root, found.config, path)
    types = (*BUILT_IN, *_custom(path, root, config))
    return DocsProject(str(path), str(root), docs, external, config, types, found.unknown)


def _config(places: Places, given: str) -> Path:
    top = os.path.realpath(places.top)
    path = Path(os.path.normpath(given)) if "\0" not in given else Path()
    if not path.is_absolute():
        raise UsageInvalid(
            "config_path is the absolute path of a project's configuration.",
            hint=f"For example: {places.top / CONFIG}",
            parameter="config_path",
        )
    real = Path(os.path.realpath(path.parent), path.name)
    git = any(real.is_relative_to(os.path.realpath(each)) for each in (places.git_dir, places.common))
    if git or not real.parent.parent.is_relative_to(top) or real.parent == Path(top):
        raise AccessDenied(
            f"{terminal_text.escape_line(str(path))} was not read: a project's configuration lies in a folder of the work tree.",
            hint=f"For example: {places.top / CONFIG}",
            path=terminal_text.escape_line(str(path)),
        )
    return real


def _external(root: Path, config: ProjectConfig, path: Path) -> str:
    """The folder of other documentation, relative to the root. Raises `UsageInvalid`."""
    stated = config.external_docs
    if stated is None:
        return ""
    for pattern in (*stated.include_patterns, *stated.exclude_patterns):
        if pattern.startswith("/") or ".." in pattern.split("/") or "\\" in pattern:
            raise build_invalid(path, f"the pattern {pattern!r} leads out of external_docs.path")
    return _inside(root, stated.path, path, "external_docs.path")


def _inside(root: Path, given: str, config: Path, what: str) -> str:
    """A folder or file below the root, as a relative path. Raises `UsageInvalid`."""
    path = PurePosixPath(given)
    parts = [part for part in path.parts if part != "."]
    flawed = (
        not parts
        or path.is_absolute()
        or ".." in parts
        or any(map(is_git_folder, parts))
        or "\\" in given
        or "\0" in given
    )
    if flawed or not given.isprintable():
        raise build_invalid(config, f"{what} is a path below the project's root, not {given[:80]!r}")
    if os.path.realpath(root.joinpath(*parts)) != str(root.joinpath(*parts)):
        raise build_invalid(config, f"{what} leads through a symbolic link")
    return "/".join(parts)


def _custom(path: Path, root: Path, config: ProjectConfig) -> list[DocType]:
    found: dict[str, DocType] = {}
    for each in config.custom_doc_types:
        if each.name in found or any(each.name == known.name for known in BUILT_IN):
            raise build_invalid(path, f"there are two types named {each.name!r}")
        folder = _inside(root, each.folder, path, f"the folder of {each.name}")
        schema = _schema(path, root, each.schema_file) if each.schema_file else ""
        shown = each.schema_file or "none"
        found[each.name] = DocType(each.name, each.description, folder, schema, shown, custom=True)
    return [*found.values()]


def _schema(path: Path, root: Path, given: str) -> str:
    """The schema in a file, whose path is relative to the configuration's folder."""
    within = path.parent.relative_to(root).as_posix()
    file = root / _inside(root, f"{within}/{given}", path, "schema_file")
    text = file_text(file, doc_types.MAX_SCHEMA_BYTES)
    try:
        return doc_types.read_schema(text, is_json=file.suffix.lower() == ".json")
    except SchemaUnusable as error:
        raise build_invalid(path, f"{given} {error}") from None
