"""What a store, delta-rs or Arrow says of a failure, as a message may quote it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_TEXT_MAX = 400
_SECRET = re.compile(
    r"secret|key|token|password|sas|signature|credential|connection.?string", re.IGNORECASE
)
_OF_STORES = ("AWS_", "AZURE_", "GOOGLE_")
# Who somebody is, and where credentials are: this is looked at where they are not taken.
_NO_SECRETS = ("_ID", "_FILE", "_URI", "_CREDENTIALS")
# Behind it obstore shows its own view of a failure: what the system said is there alone.
_SOURCE = "\n\nDebug source:"
_OF_SYSTEM = re.compile(r'kind: \w+,\s*message: "([^"]+)"')


def text_of(failure: BaseException, settings: Mapping[str, str]) -> str:
    """The first lines of a failure in one line, without colours, backtrace, obstore's own
    view of it, and secrets."""
    lines: list[str] = []
    told, _, source = str(failure).partition(_SOURCE)
    of_system = _OF_SYSTEM.search(source)
    if of_system and of_system[1] not in told:
        told += f": {of_system[1]}"
    for line in _COLOURS.sub("", told).splitlines():
        if re.match(r"\s+\d+: ", line):
            break
        lines.append(line.strip())
    text = " ".join(filter(None, lines))
    for secret in (*_secrets(settings), *_secrets(_environment())):
        text = text.replace(secret, "***")
    # Not before: what is left of a secret that is cut through would not be found.
    return text[:_TEXT_MAX]


def _secrets(settings: Mapping[str, str]) -> list[str]:
    return [value for name, value in settings.items() if value and _SECRET.search(name)]


def _environment() -> dict[str, str]:
    """Where delta-rs and Arrow find credentials. A store tells a token that it does not take."""
    # Names alone: that an object is not there, which is told here as well, is asked all the time.
    names = (name for name in os.environ if name.startswith(_OF_STORES))
    return {name: os.environ[name] for name in names if not name.endswith(_NO_SECRETS)}
