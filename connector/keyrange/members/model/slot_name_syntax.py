"""Names of slots: which texts Kafka takes, and what a pod's name says of its place.

A slot's name is a member's `group.instance.id` in Kafka, and a directory's name on a disk.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final

from keyrange.errors import error

# Kafka takes for a group.instance.id what it takes for a topic.
NAME_CHARACTERS_MAX: Final = 249
_NAME: Final = re.compile(r"[A-Za-z0-9._-]+", re.ASCII)
_FOREIGN: Final = re.compile(r"[^A-Za-z0-9._-]+", re.ASCII)
_DIGEST_CHARACTERS: Final = 8

# An ordinal as Kubernetes writes it: decimal, without zeros in front.
_ORDINAL: Final = r"(?P<ordinal>0|[1-9][0-9]{0,5})"
# Pods of Spark's StatefulSets: the application's id differs at every submission.
_SPARK_SET: Final = re.compile(rf"spark-s-.+-[0-9]+-{_ORDINAL}", re.ASCII)
_PLAIN_SET: Final = re.compile(rf".*[^-]-{_ORDINAL}", re.ASCII)
# Pods that Spark makes one by one have a counter for a name, which only grows.
_SPARK_COUNTED: Final = re.compile(r".*-exec-[0-9]+", re.ASCII)
# Pods of a Deployment end in two random words of this alphabet, which may have digits only.
_RANDOM: Final = "[bcdfghjklmnpqrstvwxz2456789]"
_DEPLOYMENT: Final = re.compile(rf".+-{_RANDOM}{{6,10}}-{_RANDOM}{{5}}", re.ASCII)


def check_name(name: str, source: str) -> str:
    """A name that Kafka takes for a static member; raises INVALID_MEMBER_NAME.

    `source` says in the error where the name is from.
    """
    if name in (".", "..") or len(name) > NAME_CHARACTERS_MAX or not _NAME.fullmatch(name):
        raise error(
            "INVALID_MEMBER_NAME", f"{name[:80]!r} cannot be a member's name", source=source
        )
    return name


def slot_name(group: str, *parts: object) -> str:
    """`<group>-<part>` of any group's name.

    What Kafka does not take in a name is replaced; part of the group's hash then keeps two groups
    apart.
    """
    whole = "-".join([group, *map(str, parts)])
    fit = _FOREIGN.sub("_", whole)
    if fit == whole and len(whole) <= NAME_CHARACTERS_MAX:
        return whole
    digest = hashlib.sha256(group.encode(errors="replace")).hexdigest()[:_DIGEST_CHARACTERS]
    tail = "-".join([digest, *(_FOREIGN.sub("_", str(part)) for part in parts)])
    room = NAME_CHARACTERS_MAX - len(tail) - 1
    return f"{_FOREIGN.sub('_', group)[: max(room, 0)]}-{tail}"[-NAME_CHARACTERS_MAX:]


def is_short_lived(pod_name: str) -> bool:
    """Whether a pod of this name never comes back: a counted executor, or one of a Deployment."""
    return bool(_SPARK_COUNTED.fullmatch(pod_name) or _DEPLOYMENT.fullmatch(pod_name))


def spark_ordinal(pod_name: str) -> int | None:
    """The ordinal in a name `spark-s-<application>-<resource profile>-<n>`, else None.

    Of the whole name only the ordinal outlives the application.
    """
    found = _SPARK_SET.fullmatch(pod_name)
    return int(found["ordinal"]) if found else None


def ordinal_of(pod_name: str) -> int | None:
    """The ordinal of a StatefulSet's pod, Spark's or a plain `name-<n>`; None of any other pod.

    A counter (`-exec-<n>`) and the random end of a Deployment's pod are no ordinals.
    """
    if is_short_lived(pod_name):
        return None
    found = _SPARK_SET.fullmatch(pod_name) or _PLAIN_SET.fullmatch(pod_name)
    return int(found["ordinal"]) if found else None
