"""Wrong calls, told by the names of who has made them: those of public classes and verbs."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterable, Mapping
from difflib import get_close_matches
from functools import cache, wraps
from inspect import Parameter, Signature, signature
from typing import Any, TypeVar

from ledgermq.model.errors import ConfigError, LedgerError
from ledgermq.model.limits import CLIENT_NAME_SIZE_MAX
from ledgermq.verbs.verb import PLAIN_KINDS, check_kind

Made = TypeVar("Made")

TIMEOUT_S_BOUNDS = (0.001, 86_400)
"""Least and most seconds that a client waits for an answer."""

_KINDS = {kind.__name__: kind for kind in PLAIN_KINDS}
_ELSEWHERE = {
    "bootstrap_servers": "address", "group_id": "group", "headers": "properties",
    "partition": "queue_id", "partitions": "queues", "servers": "address", "value": "body",
}  # fmt: skip
"""What other brokers' clients call an argument."""

_VARIABLE = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
_PLACED = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


@cache
def own_signature(function: Any) -> Signature:
    """What a method takes beside the client."""
    declared = signature(function)
    return declared.replace(parameters=list(declared.parameters.values())[1:])


def told_by_name(kind: type[Made]) -> type[Made]:
    """Have a dataclass tell its wrong arguments by its own name, with those that may be meant."""
    make = kind.__init__
    declared = own_signature(make)

    @wraps(make)
    def checked(self: Made, *args: Any, **kwargs: Any) -> None:
        check_call(kind.__name__, declared, args, kwargs)
        for name, value in kwargs.items():
            if declared.parameters[name].annotation == "bool" and not isinstance(value, bool):
                raise ConfigError(f"{name} is neither True nor False", value=value)
        make(self, *args, **kwargs)

    setattr(kind, "__init__", checked)  # noqa: B010 - mypy forbids the plain form
    return kind


def check_call(
    name: str,
    declared: Signature,
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
    *,
    options: Callable[[], Mapping[str, type]] = dict,
) -> None:
    """Refuse a call of ``name`` that Python would refuse, or that has one argument too many.

    Args:
        options: classes of the arguments that have more arguments, by these arguments' names.

    Raises:
        TypeError: it does not fit what is ``declared``.
    """
    known = declared.parameters
    if all(one.kind is not Parameter.VAR_KEYWORD for one in known.values()):
        check_keywords(name, kwargs, known, options=options)
    try:
        declared.bind(*args, **kwargs)
    except TypeError as error:
        places = [one for one in known.values() if one.kind in _PLACED]
        named = [one.name for one in known.values() if one.kind is Parameter.KEYWORD_ONLY]
        if named and len(args) > len(places):
            text = f"takes {len(places)} without a name; the others have one: {', '.join(named)}"
            raise TypeError(f"{name}() {text}") from None
        raise TypeError(f"{name}(): {error}") from None


def check_name(name: object) -> None:
    """Refuse what no client is called, before a node is asked.

    Raises:
        ConfigError: it is no text, or too long.
    """
    if not isinstance(name, str | None) or len(name or "") > CLIENT_NAME_SIZE_MAX:
        raise ConfigError("name is no text, or too long", name=name, limit=CLIENT_NAME_SIZE_MAX)


def is_in_seconds(time: object) -> bool:
    """Whether a time in epoch milliseconds is one of our days in seconds, and not one of the first
    three years of the epoch.
    """
    return type(time) is int and 10**8 <= time < 10**11


def check_options(given: Mapping[str, object], classes: Callable[[], Mapping[str, type]]) -> None:
    """Refuse options that are of another class than theirs.

    Args:
        given: arguments of a client.
        classes: as ``options`` of ``check_call``.

    Raises:
        ConfigError: there are.
    """
    for name, value in given.items():
        if not name.endswith("options") or value is None:
            continue
        kind = classes()[name]
        if not isinstance(value, kind):
            names = [other for other, one in classes().items() if isinstance(value, one)]
            way = f"give them as {names[0]}=" if names else f"{name}={kind.__name__}(…)"
            raise ConfigError(f"{name} are of another class: {way}", value=value)


def check_types(
    declared: Signature, args: tuple[object, ...], kwargs: Mapping[str, object]
) -> None:
    """Refuse texts, whole numbers and bools that are something else.

    Raises:
        MessageIllegalError: an argument is of another type than is declared.
        TypeError: the call does not fit what is declared.
    """
    for name, value in declared.bind(*args, **kwargs).arguments.items():
        one = declared.parameters[name]
        kind, _, others = str(one.annotation).partition(" | ")
        is_plain = kind in _KINDS and others in ("", "None") and one.kind not in _VARIABLE
        if is_plain and not (others and value is None):
            check_kind(name, value, _KINDS[kind])


def check_numbers(options: object, limits: Mapping[str, tuple[float, float]]) -> None:
    """Refuse attributes that are no numbers, or below the least or above the most of theirs.

    Raises:
        ConfigError: there is one.
    """
    for name, (low, high) in limits.items():
        value = getattr(options, name)
        if type(options).__annotations__[name] == "int":
            check_whole(name, value, low, high)
        else:
            check_number(name, value, low, high)


def check_number(name: str, value: object, low: float, high: float) -> None:
    """Refuse what is no number, or below the least or above the most.

    Raises:
        ConfigError: it is.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(f"{name} is no number", value=value, minimum=low, limit=high)
    if not low <= value <= high:
        raise ConfigError(f"{name} out of range", value=value, minimum=low, limit=high)


def check_whole(name: str, value: object, least: float, most: float) -> None:
    """Refuse what is no whole number from the least to the most.

    Raises:
        ConfigError: it is none.
    """
    if type(value) is not int:
        raise ConfigError(f"{name} is no whole number", value=value, minimum=least, limit=most)
    if not least <= value <= most:
        raise ConfigError(f"{name} out of range", value=value, minimum=least, limit=most)


def check_one_of(kind: type[LedgerError], **given: object) -> None:
    """Refuse arguments of which one at most may be given.

    Args:
        kind: the error.
        given: these arguments; ``None`` is as left out.

    Raises:
        LedgerError: there are two and more; it is of ``kind``, and names them.
    """
    told = {name: value for name, value in given.items() if value is not None}
    if len(told) > 1:
        *names, last = told
        count = "both" if len(told) == 2 else "all"
        raise kind(f"{', '.join(names)} and {last} were {count} given: give one of them", **told)


def check_of_groups(*, one_group: bool, keys: object, fail_over_s: float | None = None) -> None:
    """Refuse what is for the groups of a cluster where one group alone is to be used.

    Args:
        keys: files of keys by group.
        fail_over_s: when to go to another group; ``None``: as it is by default.

    Raises:
        ConfigError: it was given with ``one_group=True``.
    """
    if not one_group:
        return
    for name, value in {"keys": keys, "fail_over_s": fail_over_s}.items():
        if value is not None:
            raise ConfigError(
                f"{name} and one_group were both given: {name} is of a cluster's groups",
                **{name: value, "one_group": True},
            )


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


def check_keywords(
    name: str,
    given: Iterable[str],
    known: Collection[str],
    *,
    options: Callable[[], Mapping[str, type]] = dict,
) -> None:
    """Refuse a keyword that ``name`` does not know, and tell the one that may be meant, or all.

    Args:
        options: as of ``check_call``.

    Raises:
        TypeError: there is one.
    """
    for one in given:
        if one not in known:
            text = f"{name}() got an unexpected keyword argument {one!r}"
            for argument, kind in options().items():
                if one in signature(kind).parameters:
                    raise TypeError(f"{text}; did you mean {argument}={kind.__name__}({one}=…)?")
            close = [_ELSEWHERE[one]] if _ELSEWHERE.get(one) in known else []
            close = close or get_close_matches(one, known, n=1)
            way = f"did you mean {close[0]!r}?" if close else f"it takes {', '.join(known)}"
            raise TypeError(f"{text}; {way}")
