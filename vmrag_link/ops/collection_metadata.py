"""Show and check the settings of a collection's index as keys of its metadata, like Chroma.

These keys begin with `hnsw:`. The knowledge base stores the distance in its own column, and the
others with the user's metadata.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, get_args

from vmrag_link.errors import ContentRefused, shortened
from vmrag_link.index.metadata import HNSW_PREFIX, HNSW_SETTINGS
from vmrag_link.models import Collection, Distance, encode_canonical_json, parse_metadata, parse_user_json

SPACE = "hnsw:space"
"""Metadata key of a collection's distance. The distance is stored in its own column."""


def shown_metadata(collection: Collection) -> dict[str, Any]:
    """Return a collection's metadata for clients, with its distance."""
    return {**parse_metadata(collection), SPACE: collection.distance}


def flatten_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return metadata with the keys of its `settings` moved to the top level.

    Raises `ContentRefused`.
    """
    try:
        flat = parse_user_json(json.dumps(metadata))
    except ValueError as error:
        raise ContentRefused(f"the metadata {error}.", hint="use texts, numbers, true, false or null") from None
    settings = flat.pop("settings", {})
    if not isinstance(settings, dict):
        raise _invalid_metadata("settings", "an object", settings)
    for key, value in settings.items():
        if key in flat and flat[key] != value:
            raise ContentRefused(
                f"{key!r} has two values: {flat[key]!r} in the metadata, and {value!r} in its 'settings'.",
                hint="pass it once",
                key=key,
            )
        flat[key] = value
    for key, value in flat.items():
        _check_value(key, value)
    return {key: value for key, value in flat.items() if value is not None or not key.startswith(HNSW_PREFIX)}


def replace_metadata(before: Collection, flat: Mapping[str, Any]) -> str:
    """Return the new metadata as canonical JSON.

    Settings of the index that are not given stay, because they are not the user's metadata.
    """
    recorded = parse_metadata(before)
    kept = {key: value for key, value in recorded.items() if key.startswith(HNSW_PREFIX)}
    return encode_canonical_json(kept | {key: value for key, value in flat.items() if key != SPACE})


def list_unapplied(before: Collection, after: Collection, flat: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the given settings that the index does not use.

    A renamed collection gets a new index with every setting except another distance.
    """
    present = {key: setting.default for key, setting in HNSW_SETTINGS.items()} | shown_metadata(before)
    keeps_index = after.name == before.name
    fixed_keys = [key for key in flat if key.startswith(HNSW_PREFIX) and (keeps_index or key not in HNSW_SETTINGS)]
    return tuple(key for key in fixed_keys if flat[key] != present.get(key))


def _check_value(key: str, value: Any) -> None:
    if isinstance(value, dict | list):
        raise _invalid_metadata(key, "a text, a number, true, false or null", value)
    if value is None:
        return
    if key == "description" and not isinstance(value, str):
        raise _invalid_metadata(key, "a text", value)
    if key == SPACE and value not in get_args(Distance):
        raise _invalid_metadata(key, f"one of {', '.join(get_args(Distance))}", value)
    setting = HNSW_SETTINGS.get(key)
    if setting and not setting.allows(value):
        raise _invalid_metadata(key, f"a whole number from {setting.low} to {setting.high}", value)


def _invalid_metadata(key: str, expected: str, value: Any) -> ContentRefused:
    given = shortened(encode_canonical_json(value))
    return ContentRefused(f"{key!r} in the metadata must be {expected}, not {given}.", key=key)
