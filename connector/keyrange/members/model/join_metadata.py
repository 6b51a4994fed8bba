"""What a member tells its group of itself: the metadata of its JoinGroup."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from typing import Final

VERSION: Final = 1
_BYTES_MAX: Final = 4_096
# Four texts of this length, all of characters beyond 16 bits, leave room for the rest.
_TEXT_CHARACTERS_MAX: Final = 100


@dataclass(frozen=True, slots=True)
class MemberMetadata:
    """Who a member is: the slot that it holds, where it runs, how much it can do, and where its
    name is from. `pid` is that of the executor, or of the plain consumer; `rack` "" where nobody
    said in which one it is."""

    slot: str
    host: str = ""
    executor: str = ""
    cores: float = 1.0
    source: str = ""
    pid: int = 0
    rack: str = ""

    def to_bytes(self) -> bytes:
        """JSON of ASCII, 4 KiB at the most: long texts are cut."""
        document = {"v": VERSION} | asdict(self)
        for name in ("host", "executor", "source", "rack"):
            document[name] = document[name][:_TEXT_CHARACTERS_MAX]
        return json.dumps(document).encode()


def read_metadata(data: bytes) -> MemberMetadata | None:
    """What a member told; None of one that is not keyrange's, or damaged.

    A newer version may say more, which is passed over.
    """
    if not data or len(data) > _BYTES_MAX:
        return None
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, dict) or not isinstance(document.get("v"), int):
        return None
    values = {}
    for each in fields(MemberMetadata):
        value = document.get(each.name, "" if each.name == "slot" else each.default)
        if each.name == "cores" and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        if type(value).__name__ != each.type:
            return None
        values[each.name] = value
    return MemberMetadata(**values) if values["slot"] else None
