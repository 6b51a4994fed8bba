"""What the numbers of a state rest on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

# Of what the hash places a record: of its key, or of its offset.
KEY_HASH: Final = "murmur3_x64_128"
OFFSET_HASH: Final = "offset_murmur3_x64_128"


@dataclass(frozen=True, slots=True)
class CommitSettings:
    """What the numbers of a state rest on; another value means other numbers."""

    hash: str = KEY_HASH
    null_keys: str = "spread"
    isolation: str = "immediate"
