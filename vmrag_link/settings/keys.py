"""The settings by their dotted names, with what their declarations say."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, get_args, get_origin

import msgspec

from vmrag_link import env
from vmrag_link.models import Record
from vmrag_link.settings import Config, Narrower


class SettingKey(Record, frozen=True):
    """One setting's declaration. `kind` is str, int, float, bool, or tuple for a list of sections,
    which other places than the file write in JSON; `flaw` says why a text, or such a list, is no
    value, None if it is one.

    `variable`: the environment variable, which has a name of its own where the annotation's `extra`
    gives one. `list_of`: names with commas between them, such as this one; the file may write them
    as a list. `needs_agreement`, but for the `free` values: it counts from a `.vmrag.yaml` only
    after this machine's person agreed to it. `narrower`, of (the file's value, the one that counts
    without it), gives what counts before that; None: the latter. `adds_up`: it restricts, and
    counts from every source that states it.
    """

    name: str
    variable: str
    kind: type
    default: Any
    doc: str
    choices: tuple[str, ...] = ()
    lowest: int = 0
    highest: int = 0
    needs_trust: bool = False
    free: tuple[str, ...] = ()
    narrower: Narrower | None = None
    adds_up: bool = False
    in_git: bool = True
    flaw: Callable[[Any], str | None] | None = None
    list_of: str = ""

    def requires_trust(self, value: object) -> bool:
        """Whether this value needs the person's agreement."""
        return self.needs_trust and value not in self.free

    def narrow_value(self, own: Any, agreed: Any) -> Any:
        """What counts where the file says `own`, and `agreed` counts without it."""
        return self.narrower(own, agreed) if self.narrower else agreed

    @property
    def git_name(self) -> str:
        """`embedding.model_path` → `vmrag.embedding.model-path`."""
        return "vmrag." + self.name.replace("_", "-")

    @property
    def expected(self) -> str:
        if self.choices:
            return self.choices[0] if len(self.choices) == 1 else f"one of {', '.join(self.choices)}"
        if self.kind is int:
            return f"a whole number from {self.lowest} to {self.highest}"
        if self.kind is float:
            return f"a number from {self.lowest} to {self.highest} with at most three decimals"
        if self.kind is tuple:
            return "a list of sections"
        return "true or false" if self.kind is bool else "text"

    @property
    def default_text(self) -> str:
        """The default as it is written in YAML, where a text that is empty or ends in a colon needs
        quotes.
        """
        if self.kind is bool:
            return str(self.default).lower()
        if self.kind is tuple:
            return "[]"
        text = str(self.default)
        return f'"{text}"' if not text or text.endswith(":") else text


class Schema(Record, frozen=True):
    """Settings that are read together: `struct` holds their values, `keys` has each by its dotted
    name.
    """

    struct: type[Record]
    keys: Mapping[str, SettingKey]

    @property
    def sections(self) -> dict[str, tuple[str, ...]]:
        """The keys of every section."""
        return {
            field: tuple(name for name in self.keys if name.startswith(f"{field}."))
            for field in self.struct.__struct_encode_fields__
            if field not in self.keys
        }


def build_schema(sections: Mapping[str, type[Record]]) -> Schema:
    """The schema of sections that toolsets bring, by their names."""
    fields = [(name, kind, kind()) for name, kind in sections.items()]
    struct: Any = msgspec.defstruct("ToolsetSettings", fields, bases=(Record,), frozen=True)
    return Schema(struct, _declared(struct))


def _declared(struct: type[Record], prefix: str = "") -> dict[str, SettingKey]:
    keys: dict[str, SettingKey] = {}
    for field in msgspec.structs.fields(struct):
        if get_origin(field.type) is not Annotated:
            keys |= _declared(field.type, f"{field.encode_name}.")
            continue
        base, meta = get_args(field.type)
        name = prefix + field.encode_name
        extra = {"variable": env.setting_variable(name)} | (meta.extra or {})
        keys[name] = SettingKey(
            name=name,
            kind=str if get_origin(base) is Literal else get_origin(base) or base,
            default=field.default,
            doc=meta.description,
            choices=get_args(base) if get_origin(base) is Literal else (),
            lowest=meta.ge or 0,
            highest=meta.le or 0,
            **extra,
        )
    return keys


REMOVED = {
    "import.on_stale": "Stored copies do not follow their files. Remove copies of tracked files: vmrag sources dedupe",
}
"""Settings of earlier versions, each with what replaces it."""


def is_new_setting(name: str, text: str) -> bool:
    """Return whether version 0.1 does not know a setting of the file, or its value.

    `text` is the value as the file states it, `sources` as JSON.
    """
    return (
        name in ("chroma.sources", "sources_submodules")
        or (name == "sources_untracked" and text == "ask")
        or (name == "sources" and '"write":' in text)
    )


CORE = Schema(Config, _declared(Config))
KEYS = CORE.keys
"""Every setting of the core by its dotted name."""

SECTIONS = CORE.sections
