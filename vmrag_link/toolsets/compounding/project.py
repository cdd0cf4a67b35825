"""A project whose documents are files: their folder, their types and their collection.

The configuration file is part of the code, so it can be untrusted.
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
from vmrag_link.file_access import read_regular
from vmrag_link.models import COMPOUNDING, Record, parse_user_json
from vmrag_link.paths import Places
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
    """Settings for answers. Default of `min_relevance_score`: the embedding model's own."""

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
    """External documentation in the same work tree. Patterns are relative to `path`."""

    path: str
    include_patterns: Texts = ("**/*.md",)
    exclude_patterns: Texts = ("**/node_modules/**",)


class DocTypeConfig(Record, frozen=True):
    """A type.

    `schema_file` is a JSON Schema in YAML or JSON, relative to the configuration file.
    """

    name: Name
    folder: str
    description: str = ""
    schema_file: str = ""


class ProjectConfig(Record, frozen=True):
    """The configuration.

    `docs_path` is the folder of the documents, if its name is not the default.
    """

    project_name: Name
    retrieval: RetrievalConfig = RetrievalConfig()
    semantic_search: SearchConfig = SearchConfig()
    link_resolution: LinkConfig = LinkConfig()
    external_docs: ExternalConfig | None = None
    custom_doc_types: Annotated[tuple[DocTypeConfig, ...], Meta(max_length=100)] = ()
    docs_path: str = ""
    strict_front_matter: bool = False


class ReadConfig(Record, frozen=True):
    """A configuration that was read. `unknown` are unknown keys."""

    config: ProjectConfig
    unknown: tuple[str, ...]


def read_config(path: Path) -> ReadConfig:
    """Read a configuration file.

    Raises `FileFailed`, and `UsageInvalid` for an invalid configuration.
    """
    text = file_text(path, MAX_BYTES)
    try:
        values = parse_user_json(text)
        config = msgspec.convert(values, type=ProjectConfig)
    except msgspec.ValidationError as error:
        raise build_invalid(path, str(error)) from None
    except ValueError as error:
        raise build_invalid(path, f"it {error}") from None
    return ReadConfig(config, tuple(_list_unknown(values, ProjectConfig, "")))


def file_text(path: Path, max_bytes: int) -> str:
    """Return the text of a small regular file. Raises `FileFailed`."""
    try:
        data = read_regular(path, max_bytes + 1)
        if len(data) > max_bytes:
            raise _build_unreadable(path, f"it has more than {max_bytes:,} bytes")
        return data.decode("utf-8-sig")
    except OSError as error:
        raise _build_unreadable(path, error.strerror or str(error)) from error
    except UnicodeDecodeError as error:
        raise _build_unreadable(path, f"it is not UTF-8 (byte {error.start})") from None


def build_invalid(path: Path, why: str) -> UsageInvalid:
    name = terminal_text.escape_line(str(path))
    return UsageInvalid(
        f"{name} is not a valid project configuration: {terminal_text.escape_line(why)}.",
        hint='write at least \'{"project_name": "my-project"}\'',
        parameter="config_path",
        path=name,
    )


def _build_unreadable(path: Path, why: str) -> FileFailed:
    name = terminal_text.escape_line(str(path))
    return FileFailed(
        f"{name} cannot be read: {why}.", hint=f"run 'ls -la {quoted(path)}' to check its permissions", path=name
    )


def _list_unknown(values: Mapping[str, Any], record: type[Record], where: str) -> Iterator[str]:
    """Yield the keys of a valid configuration for which its records have no field."""
    fields = {field.name: field.type for field in msgspec.structs.fields(record)}
    for key, value in values.items():
        if key not in fields and not re.match(r"[$_]", key):  # `$schema`, and what people comment out
            yield f"{where}{key}"
        inner = next((part for part in (fields.get(key), *get_args(fields.get(key))) if _is_record(part)), None)
        if inner and isinstance(value, dict):
            yield from _list_unknown(value, inner, f"{where}{key}.")


def _is_record(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Record)


CONFIG = ".csharp-compounding-docs/config.json"
"""Path of the configuration below the root of a project, as clients expect it."""


class DocsProject(Record, frozen=True):
    """A project.

    `root` is absolute and without links. `docs` is the folder of the documents, and `external` is
    the folder of external documentation or empty; both are relative to `root`. `unknown` are
    unknown keys of the configuration.
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
        """Hash of the root's path on this machine."""
        return hashlib.sha256(os.fsencode(self.root)).hexdigest()[:16]

    @property
    def docs_folder(self) -> Path:
        return Path(self.root, self.docs)

    @property
    def external_folder(self) -> Path:
        return Path(self.root, self.external)

    def type_named(self, name: str) -> DocType | None:
        return next((doc_type for doc_type in self.types if doc_type.name == name), None)

    def type_of_folder(self, doc_id: str) -> DocType | None:
        """Return the type of a document's folder; of nested folders, the innermost."""
        within = [doc_type for doc_type in self.types if doc_id.startswith(f"{doc_type.folder}/")]
        return max(within, key=lambda doc_type: len(doc_type.folder), default=None)

    def require_types(self, names: Sequence[str] | None) -> list[str]:
        """Raise `DocTypeInvalid` for an unknown type."""
        for name in names or ():
            if self.type_named(name) is None:
                raise unknown_type(self.types, name)
        return [*(names or ())]


def collection_of(project: str) -> str:
    return collection_name(COMPOUNDING, project)


def unknown_type(types: Sequence[DocType], name: str) -> DocTypeInvalid:
    names = [doc_type.name for doc_type in types]
    shown = terminal_text.escape_line(repr(name[:80]))
    return DocTypeInvalid(
        f"the project has no documents of the type {shown}.",
        hint=f"use one of {', '.join(names)}, or add it to custom_doc_types in the project's configuration",
        doc_type=name[:80],
        doc_types=names,
    )


def load_project(places: Places, config_path: str) -> DocsProject:
    """Return the project of a configuration file in the work tree.

    Raises `AccessDenied` for a file outside the work tree, `FileFailed` and `UsageInvalid`.
    """
    path = _locate_config(places, config_path)
    loaded = read_config(path)
    config = loaded.config
    root = path.parent.parent
    folder = path.parent.name
    docs = _require_inside(root, config.docs_path or folder.removeprefix("."), path, "docs_path")
    external = _locate_external(root, loaded.config, path)
    types = (*BUILT_IN, *_read_custom_types(path, root, config))
    return DocsProject(
        config_path=str(path),
        root=str(root),
        docs=docs,
        external=external,
        config=config,
        types=types,
        unknown=loaded.unknown,
    )


def _locate_config(places: Places, given: str) -> Path:
    top = os.path.realpath(places.top)
    path = Path(os.path.normpath(given)) if "\0" not in given else Path()
    if not path.is_absolute():
        raise UsageInvalid(
            "config_path must be the absolute path of a project's configuration.",
            hint=f"pass a path, such as {places.top / CONFIG}",
            parameter="config_path",
        )
    real = Path(os.path.realpath(path.parent), path.name)
    git = any(real.is_relative_to(os.path.realpath(folder)) for folder in (places.git_dir, places.common))
    if git or not real.parent.parent.is_relative_to(top) or real.parent == Path(top):
        raise AccessDenied(
            f"{terminal_text.escape_line(str(path))} was not read: a project's configuration must be in a folder of the working tree.",
            hint=f"pass a path, such as {places.top / CONFIG}",
            path=terminal_text.escape_line(str(path)),
        )
    return real


def _locate_external(root: Path, config: ProjectConfig, path: Path) -> str:
    """Return the folder of external documentation, relative to the root. Raises `UsageInvalid`."""
    settings = config.external_docs
    if settings is None:
        return ""
    for pattern in (*settings.include_patterns, *settings.exclude_patterns):
        if pattern.startswith("/") or ".." in pattern.split("/") or "\\" in pattern:
            raise build_invalid(path, f"the pattern {pattern!r} leads out of external_docs.path")
    return _require_inside(root, settings.path, path, "external_docs.path")


def _require_inside(root: Path, given: str, config: Path, what: str) -> str:
    """Return a folder or file below the root as a relative path. Raises `UsageInvalid`."""
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
        raise build_invalid(config, f"{what} must be a path below the project's root, not {given[:80]!r}")
    if os.path.realpath(root.joinpath(*parts)) != str(root.joinpath(*parts)):
        raise build_invalid(config, f"{what} leads through a symbolic link")
    return "/".join(parts)


def _read_custom_types(path: Path, root: Path, config: ProjectConfig) -> list[DocType]:
    custom_types: dict[str, DocType] = {}
    for custom in config.custom_doc_types:
        if custom.name in custom_types or any(custom.name == built_in.name for built_in in BUILT_IN):
            raise build_invalid(path, f"there are two types named {custom.name!r}")
        folder = _require_inside(root, custom.folder, path, f"the folder of {custom.name}")
        schema = _read_schema(path, root, custom.schema_file) if custom.schema_file else ""
        schema_name = custom.schema_file or "none"
        custom_types[custom.name] = DocType(custom.name, custom.description, folder, schema, schema_name, custom=True)
    return [*custom_types.values()]


def _read_schema(path: Path, root: Path, given: str) -> str:
    """Return the schema of a file whose path is relative to the configuration's folder."""
    within = path.parent.relative_to(root).as_posix()
    file = root / _require_inside(root, f"{within}/{given}", path, "schema_file")
    text = file_text(file, doc_types.MAX_SCHEMA_BYTES)
    try:
        return doc_types.read_schema(text, is_json=file.suffix.lower() == ".json")
    except SchemaUnusable as error:
        raise build_invalid(path, f"{given} {error}") from None
