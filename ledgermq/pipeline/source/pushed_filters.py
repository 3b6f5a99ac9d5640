"""Pushed filters: those of a query that the source applies itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from ledgermq.pipeline.columns.row_filter import LIMITED, Limits, RowFilter, at_least, at_most

NEVER_NULL = LIMITED | {"topic", "sysFlag", "flag", "body", "bornTimestamp", "bodyCrc", "crcOk"}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


def pushed(wanted: RowFilter, filter_: Filter) -> RowFilter | None:
    """``wanted`` and ``filter_``; None when Spark must apply that one itself."""
    path: tuple[str, ...] = getattr(filter_, "attribute", ())
    name = ".".join(path)
    if isinstance(filter_, IsNotNull):
        return wanted if name in NEVER_NULL else None
    if isinstance(filter_, In):
        return _among(wanted, name, filter_.value)
    if isinstance(filter_, EqualTo | EqualNullSafe) and name == "topic":
        return _among(wanted, name, (filter_.value,))
    for kind, limits in _COMPARED.items():
        if isinstance(filter_, kind) and name in LIMITED:
            found = limits(name, getattr(filter_, "value", None))
            return None if found is None else wanted.narrowed(found)
    return None


def _among(wanted: RowFilter, name: str, values: tuple[object, ...]) -> RowFilter | None:
    if name == "topic" and all(isinstance(value, str) for value in values):
        topics = frozenset(str(value) for value in values)
        kept = topics if wanted.topics is None else wanted.topics & topics
        return replace(wanted, topics=kept)
    if name == "queueId" and all(isinstance(value, int) for value in values):
        ids = frozenset(value for value in values if isinstance(value, int))
        kept_ids = ids if wanted.queue_ids is None else wanted.queue_ids & ids
        return replace(wanted, queue_ids=kept_ids)
    return None


def _bound(name: str, value: object) -> tuple[int, bool] | None:
    """The largest whole number at or below ``value``, and whether it is ``value``."""
    if name == "storeTimestamp":
        if not isinstance(value, datetime):
            return None
        aware = value if value.tzinfo is not None else value.astimezone()
        whole, rest = divmod(aware - _EPOCH, _MILLISECOND)
        return whole, not rest
    return (value, True) if isinstance(value, int) else None


def _equal(name: str, value: object) -> Limits | None:
    bound = _bound(name, value)
    if bound is None:
        return None
    return {name: (bound[0], bound[0] if bound[1] else bound[0] - 1)}


def _from(name: str, value: object) -> Limits | None:
    bound = _bound(name, value)
    return None if bound is None else at_least(name, bound[0] if bound[1] else bound[0] + 1)


def _behind(name: str, value: object) -> Limits | None:
    bound = _bound(name, value)
    return None if bound is None else at_least(name, bound[0] + 1)


def _upto(name: str, value: object) -> Limits | None:
    bound = _bound(name, value)
    return None if bound is None else at_most(name, bound[0])


def _before(name: str, value: object) -> Limits | None:
    bound = _bound(name, value)
    return None if bound is None else at_most(name, bound[0] - 1 if bound[1] else bound[0])


_COMPARED: dict[type[Filter], Callable[[str, object], Limits | None]] = {
    EqualTo: _equal,
    EqualNullSafe: _equal,
    GreaterThanOrEqual: _from,
    GreaterThan: _behind,
    LessThanOrEqual: _upto,
    LessThan: _before,
}
