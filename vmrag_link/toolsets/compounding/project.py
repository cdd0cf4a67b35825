"""A project whose documents are files: where they lie, of which types, in which collection."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from vmrag_link import terminal_text
from vmrag_link.documents.export_paths import is_git_folder
from vmrag_link.engines.logical import collection_name
from vmrag_link.errors import AccessDenied, DocTypeInvalid, UsageInvalid
from vmrag_link.models import COMPOUNDING, Record
from vmrag_link.paths import Places
from vmrag_link.toolsets.compounding import config as configs
from vmrag_link.toolsets.compounding import doc_types
from vmrag_link.toolsets.compounding.config import ProjectConfig
from vmrag_link.toolsets.compounding.doc_types import BUILT_IN, DocType, SchemaUnusable

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
    shown = terminal_text.one_line(repr(name[:80]))
    return DocTypeInvalid(
        f"The project has no documents of the type {shown}.",
        hint=f"There are: {', '.join(known)}. Others come from custom_doc_types in the project's configuration.",
        doc_type=name[:80],
        doc_types=known,
    )


def load(places: Places, config_path: str) -> DocsProject:
    """The project of a configuration file in the work tree.

    Raises `AccessDenied` for one outside of it, `FileFailed`, `UsageInvalid`.
    """
    path = _config(places, config_path)
    found = configs.read(path)
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
            f"{terminal_text.one_line(str(path))} was not read: a project's configuration lies in a folder of the work tree.",
            hint=f"For example: {places.top / CONFIG}",
            path=terminal_text.one_line(str(path)),
        )
    return real


def _external(root: Path, config: ProjectConfig, path: Path) -> str:
    """The folder of other documentation, relative to the root. Raises `UsageInvalid`."""
    stated = config.external_docs
    if stated is None:
        return ""
    for pattern in (*stated.include_patterns, *stated.exclude_patterns):
        if pattern.startswith("/") or ".." in pattern.split("/") or "\\" in pattern:
            raise configs.invalid(path, f"the pattern {pattern!r} leads out of external_docs.path")
    return _inside(root, stated.path, path, "external_docs.path")


def _inside(root: Path, given: str, config: Path, what: str) -> str:
    """A folder or file below the root, as a relative path. Raises `UsageInvalid`."""
    path = PurePosixPath(given)
    parts = [each for each in path.parts if each != "."]
    flawed = (
        not parts
        or path.is_absolute()
        or ".." in parts
        or any(map(is_git_folder, parts))
        or "\\" in given
        or "\0" in given
    )
    if flawed or not given.isprintable():
        raise configs.invalid(config, f"{what} is a path below the project's root, not {given[:80]!r}")
    if os.path.realpath(root.joinpath(*parts)) != str(root.joinpath(*parts)):
        raise configs.invalid(config, f"{what} leads through a symbolic link")
    return "/".join(parts)


def _custom(path: Path, root: Path, config: ProjectConfig) -> list[DocType]:
    found: dict[str, DocType] = {}
    for each in config.custom_doc_types:
        if each.name in found or any(each.name == known.name for known in BUILT_IN):
            raise configs.invalid(path, f"there are two types named {each.name!r}")
        folder = _inside(root, each.folder, path, f"the folder of {each.name}")
        schema = _schema(path, root, each.schema_file) if each.schema_file else ""
        shown = each.schema_file or "none"
        found[each.name] = DocType(each.name, each.description, folder, schema, shown, custom=True)
    return [*found.values()]


def _schema(path: Path, root: Path, given: str) -> str:
    """The schema in a file, whose path is relative to the configuration's folder."""
    within = path.parent.relative_to(root).as_posix()
    file = root / _inside(root, f"{within}/{given}", path, "schema_file")
    text = configs.file_text(file, doc_types.MAX_SCHEMA_BYTES)
    try:
        return doc_types.read_schema(text, is_json=file.suffix.lower() == ".json")
    except SchemaUnusable as error:
        raise configs.invalid(path, f"{given} {error}") from None
