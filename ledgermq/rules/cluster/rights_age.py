"""Age of a group's rights: how long ago the home has confirmed them, and what is noted about that.

It is noted in the group's log, so that a member that begins to lead does not begin to count anew,
and all members refuse alike. Of a home nothing is noted: what it knows is what holds.
"""

from __future__ import annotations

from typing import NamedTuple

from ledgermq.rules.cluster.cluster_commands import RightsAged
from ledgermq.rules.cluster.cluster_table import ClusterTable

NOTES_PER_AGE = 4
"""A confirmation is noted when it is so much of the bound younger than the one of before: the next
leader knows of it within that time."""


class RightsAge(NamedTuple):
    """What has to be done about the age of the rights.

    Attributes:
        note: is to be proposed; None: what is noted holds.
        left_ms: after so long they are too old, if nobody confirms them; None: they are, or are
            never.
    """

    note: RightsAged | None
    left_ms: int | None


def rights_age(
    table: ClusterTable, *, current_ms: int | None, now_ms: int, max_ms: int
) -> RightsAge:
    """The age as a leader knows it that has all of the log.

    Args:
        current_ms: when the rows were all that the home had committed, as this leader was told,
            by the clock of ``now_ms`` (epoch ms); None: it was not told yet.
        max_ms: what is older is refused; 0: nothing is.
    """
    if table.chain is None or table.is_home:
        return RightsAge(None, None)
    if not max_ms:
        note = RightsAged(table.confirmed_ms, False) if table.rights_too_old else None
        return RightsAge(note, None)
    confirmed_ms = table.confirmed_ms if current_ms is None else current_ms
    # Another leader's clock may have been ahead of this one's.
    age_ms = abs(now_ms - confirmed_ms)
    is_over = age_ms > max_ms
    is_news = abs(confirmed_ms - table.confirmed_ms) >= max_ms // NOTES_PER_AGE
    note = RightsAged(confirmed_ms, is_over)
    holds = is_over == table.rights_too_old and not is_news
    return RightsAge(None if holds else note, None if is_over else max_ms + 1 - age_ms)
