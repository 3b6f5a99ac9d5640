"""Wrong calls, told by the names of who has made them: those of public classes and verbs."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable, Mapping
from difflib import get_close_matches
from inspect import Parameter, Signature, signature
from typing import Any

from ledgermq.model.errors import ConfigError

_PLACED = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


def own_signature(function: Any) -> Signature:
    """What a method takes beside the client."""
    declared = signature(function)
    return declared.replace(parameters=list(declared.parameters.values())[1:])


def check_call(
    name: str, declared: Signature, args: tuple[object, ...], kwargs: Mapping[str, object]
) -> None:
    """Refuse a call of ``name`` that Python would refuse, or that has one argument too many.

    Raises:
        TypeError: it does not fit what is ``declared``.
    """
    known = declared.parameters
    if all(one.kind is not Parameter.VAR_KEYWORD for one in known.values()):
        check_keywords(name, kwargs, known)
    try:
        declared.bind(*args, **kwargs)
    except TypeError as error:
        places = [one for one in known.values() if one.kind in _PLACED]
        named = [one.name for one in known.values() if one.kind is Parameter.KEYWORD_ONLY]
        if named and len(args) > len(places):
            text = f"takes {len(places)} without a name; the others have one: {', '.join(named)}"
            raise TypeError(f"{name}() {text}") from None
        raise TypeError(f"{name}(): {error}") from None


def check_numbers(options: object, limits: Mapping[str, tuple[float, float]]) -> None:
    """Refuse attributes that are no numbers, or below the least or above the most of theirs.

    Raises:
        ConfigError: there is one.
    """
    for name, (low, high) in limits.items():
        value = getattr(options, name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ConfigError(f"{name} is no number", value=value, minimum=low, limit=high)
        if not low <= value <= high:
            raise ConfigError(f"{name} out of range", value=value, minimum=low, limit=high)


def check_timeout(timeout: object) -> None:
    """Refuse a time to wait that is no number of seconds, nor None: no end.

    Raises:
        ConfigError: it is something else.
    """
    if isinstance(timeout, bool) or not isinstance(timeout, int | float | None):
        raise ConfigError("timeout is no number of seconds", timeout=timeout)


def warn_of(old: str, new: str, *, stacklevel: int) -> None:
    """Warn who has given an argument by its old name."""
    warnings.warn(
        f"{old} is {new} now: the old name goes with the next release",
        DeprecationWarning,
        stacklevel=stacklevel,
    )


def check_keywords(name: str, given: Iterable[str], known: Collection[str]) -> None:
    """Refuse a keyword that ``name`` does not know, and tell the one that may be meant.

    Raises:
        TypeError: there is one.
    """
    for one in given:
        if one not in known:
            text = f"{name}() got an unexpected keyword argument {one!r}"
            close = get_close_matches(one, known, n=1)
            raise TypeError(f"{text}; did you mean {close[0]!r}?" if close else text)
