"""Where an executor finds its name, and what it does to keep it while it runs.

The sources are asked in this order, and the first one that knows a name gives it: the option, a
variable of the environment, the ordinal of a StatefulSet's pod, a file on a volume that is kept,
and the lowest slot of this host that nobody holds. Who finds none is a dynamic member.

Spark's executor ids are no source: they count up with every executor, and in a StatefulSet all
pods have the same one in their environment.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from keyrange.errors import KeyrangeError, error
from keyrange.members.model.slot_name_syntax import (
    check_name,
    is_short_lived,
    ordinal_of,
    slot_name,
    spark_ordinal,
)
from keyrange.ranges.sharing.locks import take_lock
from keyrange.ranges.sharing.shared_directory import private_name, take_private

if TYPE_CHECKING:
    from keyrange.options.members import MemberOptions

METADATA_NAME: Final = "METADATA_NAME"
_POD_NAME: Final = "SPARK_EXECUTOR_POD_NAME"
# What a process in a container of Kubernetes always has in its environment.
_IN_A_POD: Final = "KUBERNETES_SERVICE_HOST"
_SLOTS_MAX: Final = 1_000
_NAME_BYTES_MAX: Final = 1_024
_RANDOM_BYTES: Final = 4


@dataclass(frozen=True, slots=True)
class NameSettings:
    """What the options say of a member's name.

    `policy` is auto, static or dynamic. `name` is the name itself; `variable` names the variable of
    the environment that holds it ("": METADATA_NAME, where it is set); `file` is where it is kept;
    `slot_directory` is where the slots of this host are held ("": in the user's state directory).
    """

    group: str
    policy: str = "auto"
    name: str = ""
    variable: str = ""
    file: str = ""
    slot_directory: str = ""


def name_settings(members: MemberOptions, policy: str = "") -> NameSettings:
    """What the options of a query or a consumer say; `policy` in the place of theirs."""
    return NameSettings(
        group=members.group,
        policy=policy or members.names,
        name=members.name,
        variable=members.name_env,
        file=members.name_file,
        slot_directory=members.slot_directory,
    )


@dataclass(frozen=True, slots=True)
class Name:
    """A member's name, and where it is from. `lock` is a descriptor that holds a host's slot for as
    long as it is open, None where nothing is held."""

    name: str
    is_static: bool
    source: str
    lock: int | None = field(default=None, compare=False)

    @property
    def instance_id(self) -> str | None:
        """The name in a Kafka group; a dynamic member has none there."""
        return self.name if self.is_static else None


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a name may depend on beside the options; tests give their own."""

    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)
    host: str = field(default_factory=socket.gethostname)
    random: Callable[[], str] = lambda: secrets.token_hex(_RANDOM_BYTES)


def find_name(settings: NameSettings, around: Surroundings) -> Name:
    """The member's name.

    Raises NO_STATIC_MEMBER_INFO_SET where a static name was asked for and there is none,
    INVALID_MEMBER_NAME where what was found is none that Kafka takes.
    """
    missed: list[str] = []
    if settings.policy != "dynamic":
        for source in (_from_option, _from_variable, _from_ordinal, _from_file, _from_host):
            found = source(settings, around)
            if isinstance(found, Name):
                return found
            missed.append(found)
        if settings.policy == "static":
            raise error(
                "NO_STATIC_MEMBER_INFO_SET",
                f"memberNames=static, and no name that survives was found: {'; '.join(missed)}",
            )
    return Name(slot_name(settings.group, "dynamic", around.random()), False, "dynamic")


# Each source answers with a name, or with why it has none.
def _from_option(settings: NameSettings, _: Surroundings) -> Name | str:
    if settings.name:
        return Name(check_name(settings.name, "option"), True, "option")
    return "no option gives one"


def _from_variable(settings: NameSettings, around: Surroundings) -> Name | str:
    """A variable that an option names has to be there; METADATA_NAME may be."""
    variable = settings.variable or METADATA_NAME
    value = around.environment.get(variable, "").strip()
    source = f"env:{variable}"
    if not value and settings.variable:
        raise error(
            "NO_STATIC_MEMBER_INFO_SET",
            f"member.name.env names the variable {variable}, which is not set here",
        )
    if not value:
        return f"{variable} is not set"
    ordinal = spark_ordinal(value)
    if ordinal is not None:
        return Name(slot_name(settings.group, ordinal), True, source)
    if not settings.variable and is_short_lived(value):
        return f"{variable} is the name of a pod that does not come back: {value[:80]}"
    return Name(check_name(value, source), True, source)


def _from_ordinal(settings: NameSettings, around: Surroundings) -> Name | str:
    pod = around.environment.get(_POD_NAME, "")
    ordinal = ordinal_of(pod)
    if ordinal is not None:
        return Name(slot_name(settings.group, ordinal), True, f"pod:{_POD_NAME}")
    return f"{_POD_NAME} has no ordinal" if pod else f"{_POD_NAME} is not set"


def _from_file(settings: NameSettings, around: Surroundings) -> Name | str:
    """The name in a file; the first one to look makes it up and writes it there."""
    if not settings.file:
        return "member.name.file is not set"
    path, source = Path(settings.file), f"file:{settings.file}"
    try:
        name = _read_name(path) or _write_name(path, slot_name(settings.group, around.random()))
    except OSError as failure:
        raise error(
            "NO_STATIC_MEMBER_INFO_SET",
            f"member.name.file cannot be used: {failure.strerror}",
            file=settings.file,
        ) from None
    return Name(check_name(name, source), True, source)


def _read_name(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_NAME_BYTES_MAX).decode(errors="replace").strip()
    except FileNotFoundError:
        return ""


def _write_name(path: Path, name: str) -> str:
    """Write a name where there is none; of several that do so at once, one is kept."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(name + "\n")
    try:
        if path.exists():
            draft.replace(path)  # An empty file, as of a disk that was full.
        else:
            with contextlib.suppress(FileExistsError):
                os.link(draft, path)
    finally:
        draft.unlink(missing_ok=True)
    return _read_name(path) or name


def _from_host(settings: NameSettings, around: Surroundings) -> Name | str:
    """The lowest slot of this host that nobody holds.

    The directory stands for the host. A pod's own directories end with it, so there one that is
    kept has to be named.
    """
    try:
        directory = _slot_directory(settings, around)
        if directory is None:
            return "slot.directory is not set, and what a pod keeps by itself ends with it"
        host = _host_of(directory, around)
        of_group = directory / slot_name(settings.group, "slots")
        take_private(of_group)
        for number in range(_SLOTS_MAX):
            lock = take_lock(of_group / str(number))
            if lock is not None:
                name = slot_name(settings.group, host, number)
                return Name(name, True, f"host:{directory}", lock)
    except (OSError, KeyrangeError) as failure:
        return f"no slot of this host can be held: {failure}"
    return f"all {_SLOTS_MAX} slots of this host are held"


def _slot_directory(settings: NameSettings, around: Surroundings) -> Path | None:
    """Made, private and kept; None where nothing is known to be kept."""
    if settings.slot_directory:
        directory = private_name(Path(settings.slot_directory))
    elif around.environment.get(_IN_A_POD) or around.environment.get(_POD_NAME):
        return None
    else:
        # Homes may be shared by hosts, and a lock may not reach over a network.
        directory = user_state(around.environment) / "hosts" / slot_name(around.host)
    take_private(directory)
    return directory


def _host_of(directory: Path, around: Surroundings) -> str:
    """The host's name as it was when its directory was made: addresses change, disks stay."""
    path = directory / "host"
    return _read_name(path) or _write_name(path, slot_name(around.host))


def user_state(environment: Mapping[str, str]) -> Path:
    """Where the user's state is that outlives processes (XDG Base Directory Specification).

    Raises OSError where the user has no home: a container may run as one that it does not know.
    """
    state = environment.get("XDG_STATE_HOME", "")
    if state.startswith("/"):
        return Path(state) / "keyrange"
    try:
        return Path.home() / ".local" / "state" / "keyrange"
    except RuntimeError as unknown:
        raise FileNotFoundError("this user has no home, and XDG_STATE_HOME is not set") from unknown
