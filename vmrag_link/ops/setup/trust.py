"""`vmrag trust`: what this machine's person agrees to of what cloned settings and knowledge ask for."""

from __future__ import annotations

from typing import Any

from vmrag_link import config
from vmrag_link.embedding.services import SERVICES
from vmrag_link.errors import UsageInvalid
from vmrag_link.git import remotes
from vmrag_link.models import Record
from vmrag_link.paths import CONFIG_NAME
from vmrag_link.settings_keys import KEYS
from vmrag_link.trust import agreements
from vmrag_link.trust.agreements import Agreements
from vmrag_link.workspace import Workspace

Value = str | int | bool


class StatedSetting(Record, frozen=True):
    """What the file says of a setting that needs agreement; `counts` is the value that counts now, `about` what it does."""

    name: str
    value: Value
    line: int
    counts: Value
    about: str


class DroppedSetting(Record, frozen=True):
    """A setting that was agreed to and that the file does not state any more; `counts` is the value that counts now."""

    name: str
    counts: Value
    default: Value


class TrustReport(Record, frozen=True):
    """`stated` and `dropped`: what agreeing is about. `agreed`: whether all of it counts already, as far as this file goes."""

    repository: str
    file: str
    agreed: bool
    stated: tuple[StatedSetting, ...]
    dropped: tuple[DroppedSetting, ...]
    services: tuple[str, ...]


def examine(ws: Workspace) -> TrustReport:
    """What `agree` would agree to. Contacts nobody, changes nothing. Raises `ConfigInvalid`."""
    found = config.stated(config.own_text(ws.places.config), CONFIG_NAME)
    remembered = agreements.read(ws.places)
    own = {each.name: each.value for each in found}
    last = remembered.settings[-1] if remembered.settings else {}
    stated = tuple(
        StatedSetting(each.name, each.value, each.line, _counting(ws, each.name), KEYS[each.name].doc) for each in found
    )
    dropped = tuple(
        DroppedSetting(name, _counting(ws, name), KEYS[name].default)
        for name in last
        if name not in own and name in KEYS
    )
    agreed = own in remembered.settings or not (own or last)
    return TrustReport(
        remembered.repository, CONFIG_NAME, agreed, stated, () if agreed else dropped, remembered.services
    )


def agree(ws: Workspace, report: TrustReport) -> None:
    """Let exactly what the report shows count in this repository; what the file says by now is another matter."""
    agreements.add(ws.places, {each.name: each.value for each in report.stated})
    ws.reload_settings()


def agree_to_own(ws: Workspace) -> bool:
    """Agree to the settings of whoever starts a knowledge base here; whether there was something to agree to.

    A file that is in a commit may be a stranger's, however that commit came here: only one that never was is theirs.
    """
    report = examine(ws)
    if report.agreed or remotes.is_in_any_commit(ws.places, CONFIG_NAME):
        return False
    agree(ws, report)
    return True


def agree_to_service(ws: Workspace, name: str) -> None:
    """Let collections of this repository's knowledge base ask an embedding service. Raises `UsageInvalid`."""
    if name not in SERVICES:
        raise UsageInvalid(
            f"There is no embedding service {name[:80]!r}.", hint=f"vmrag trust --service {next(iter(SERVICES))}"
        )
    agreements.add_service(ws.places, name)
    ws.reload_settings()


def revoke(ws: Workspace) -> bool:
    """Forget what was agreed to in this repository; whether there was anything."""
    done = agreements.revoke(ws.places)
    ws.reload_settings()
    return done


def every() -> list[Agreements]:
    """What was agreed to on this machine, by repository."""
    return agreements.every()


def _counting(ws: Workspace, name: str) -> Value:
    found: Any = ws.config
    for part in name.split("."):
        found = getattr(found, part)
    value: Value = found
    return value
