"""Sources that others bring, found by their entry points."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from typing import TypeVar

from keyrange.errors import KeyrangeError, invalid_options
from keyrange.options.allowlist import NotAllowed, check_module, not_allowed
from keyrange.options.volume_checks import VolumeOptions

_Source = TypeVar("_Source")


def open_source(
    name: str,
    options: VolumeOptions,
    built_in: Mapping[str, Callable[[VolumeOptions], _Source]],
    group: str,
    option: str,
) -> _Source:
    """The source of this name, built in or of the entry point group; `option` is where it is from.

    Raises INVALID_OPTIONS that lists the names there are, or says why theirs cannot be opened.
    """
    if name in built_in:
        return built_in[name](options)
    found = {each.name: each for each in entry_points(group=group)}
    if name not in found:
        names = ", ".join(sorted({*built_in, *found}))
        raise invalid_options(f"option '{option}' must be one of {names}")
    try:
        check_module(found[name].module)
        made: _Source = found[name].load()(options)
    except KeyrangeError:
        raise
    except NotAllowed as failure:
        raise not_allowed(option, failure) from None
    except Exception as failure:
        # It is the code of others: what it raises would be a traceback for who typed a name.
        text = f"{name} cannot be opened: {type(failure).__name__}: {failure}"
        raise invalid_options(f"option '{option}': {text}") from failure
    return made
