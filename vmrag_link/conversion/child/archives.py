"""Archives that documents are, before a library opens them."""

from __future__ import annotations

import io
import zipfile

from vmrag_link.conversion.limits import ConversionLimits
from vmrag_link.conversion.unreadable import ContentUnreadable

_MOST_MEMBERS = 10_000
_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"


def check(data: bytes, member: str, what: str, limits: ConversionLimits) -> None:
    """Raises `ContentUnreadable` for what is no archive with such a member, or one that is a bomb.

    A member gives no more than the size that the directory of the archive states, so these are
    summed up; nothing is unpacked.
    """
    if data.startswith(_OLE):
        raise ContentUnreadable(f"is no {what} that can be read (it has a password, or is of an older format)")
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = archive.infolist()
    except (zipfile.BadZipFile, ValueError, EOFError, NotImplementedError) as error:
        raise ContentUnreadable(f"is no {what} ({error})") from None
    if len(members) > _MOST_MEMBERS:
        raise ContentUnreadable(
            f"is an archive of {len(members):,} files, more than the {_MOST_MEMBERS:,} that are opened"
        )
    expanded = sum(each.file_size for each in members)
    if expanded > limits.max_expanded:
        raise ContentUnreadable(
            f"unpacks to {expanded >> 20:,} MiB, more than the {limits.max_expanded >> 20} MiB that are taken"
        )
    if member not in {each.filename for each in members}:
        raise ContentUnreadable(f"is no {what} (it has no {member})")
