"""Pages of rows: how many are told at once, and where the next ones begin."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from ledgermq.client.core.questions import PAGE, asking
from ledgermq.client.core.requests import Steps
from ledgermq.model.errors import ConfigError
from ledgermq.verbs.verb import Verb

Json = dict[str, object]

ROWS_DEFAULT = 100
PAGE_ROWS_MAX = 1_000

Row = TypeVar("Row")


class _Named(Protocol):
    @property
    def system(self) -> bool: ...


Named = TypeVar("Named", bound=_Named)


def checked_limit(limit: int) -> int:
    """``limit``, which is 1 to ``PAGE_ROWS_MAX``.

    Raises:
        ConfigError: it is not.
    """
    if not 1 <= limit <= PAGE_ROWS_MAX:
        raise ConfigError("limit out of range", limit=limit, minimum=1, maximum=PAGE_ROWS_MAX)
    return limit


def page_of(rows: Sequence[Row], after: str, limit: int) -> tuple[list[Row], str | None]:
    """The next rows of all that there are, and the ``after`` of those behind them.

    Args:
        after: what a page before has told; empty: from the first one.
        limit: 1 to ``PAGE_ROWS_MAX``.

    Raises:
        ConfigError: nobody has told that, or the limit cannot be one.
    """
    if after and not (after.isascii() and after.isdecimal() and len(after) < 10):
        raise ConfigError("not what a page before has told as next", after=after[:64])
    begin = int(after or 0)
    end = begin + checked_limit(limit)
    return list(rows[begin:end]), str(end) if end < len(rows) else None


def named_page(
    asked: Callable[[int, str | None], Verb[tuple[list[Named], bool]]],
    name_of: Callable[[Named], str],
    limit: int,
    after: str,
    *,
    all_: bool,
) -> Steps[tuple[list[Named], str | None]]:
    """Rows of a list that the broker tells by name, and the ``after`` of those behind them.

    Args:
        asked: makes the question of how many rows, and behind which name.
        limit: as ``checked_limit`` has it.
        after: a name: rows behind it.
        all_: those of the system, too.
    """
    found: list[Named] = []
    while True:
        page, is_more = yield from asking(asked(PAGE, after or None))
        for row in page:
            if len(found) == limit:
                return found, after
            after = name_of(row)
            if all_ or not row.system:
                found.append(row)
        if not is_more:
            return found, None
