"""Take-over by a new leader: its stages from the election to serving, for those who ask.

RocketMQ's leader does the same in one step, which waits until all that is in its log is committed
and dispatched, and may wait for ever under load. Here each stage lets something begin:

    stage               what happens from then on
    elected             the others follow; nobody writes yet
    writer granted      its own entries go into the log
    no-op committed     so is all that earlier leaders left in the log
    dispatch caught up  consumers are served, and never find less than at the last leader;
                        producers, once the broker has told the writer of topics and users
    tables applied      topics, groups and offsets can be changed
    services granted    what the broker does by itself goes on: delays, transactions, retries

The broker tells the last three in its counters, as the term for which they are true.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import StrEnum

from ledgermq.ipc.counters import BrokerCounter
from ledgermq.ipc.cursor_page import Grant, PublishedRole
from ledgermq.model.config.settings import LogKind

BROKER_ID_UNKNOWN = -1
BROKER_ID_LEADER = 0

_NUMBER = re.compile(r"[0-9]+$")


class Takeover(StrEnum):
    """The stages in their order; a node that does not lead has none."""

    NONE = ""
    ELECTED = "elected"
    WRITER_GRANTED = "writer granted"
    COMMITTED = "no-op committed"
    CAUGHT_UP = "dispatch caught up"
    TABLES_APPLIED = "tables applied"
    SERVICES_GRANTED = "services granted"


_TOLD = (
    (BrokerCounter.SERVICES_TERM, Takeover.SERVICES_GRANTED),
    (BrokerCounter.TABLES_TERM, Takeover.TABLES_APPLIED),
    (BrokerCounter.SERVES_TERM, Takeover.CAUGHT_UP),
)


def takeover_of(
    grant: Grant, *, committed_term: int, broker: Sequence[int], log: LogKind
) -> Takeover:
    """The stage of a node.

    Args:
        committed_term: of the last entry that is committed.
        broker: counters of the broker.
        log: its kind; of a plain one the only node commits what it writes.
    """
    if grant.role is not PublishedRole.LEADER:
        return Takeover.NONE
    if not grant.granted:
        return Takeover.ELECTED
    term = int(grant.term)
    for counter, stage in _TOLD:
        if broker[counter] == term:
            return stage
    if committed_term == term or not log.has_terms:
        return Takeover.COMMITTED
    return Takeover.WRITER_GRANTED


def broker_id(self_id: str, grant: Grant, stage: Takeover) -> int:
    """RocketMQ's number of this broker among those of its name (``DLedgerRoleChangeHandler``).

    0 for a leader that has caught up, the number in its id + 1 for all others, -1 before there was
    a first term.
    """
    if not grant.term:
        return BROKER_ID_UNKNOWN
    if stage in (told for _, told in _TOLD):
        return BROKER_ID_LEADER
    number = _NUMBER.search(self_id)
    return int(number[0]) + 1 if number else BROKER_ID_UNKNOWN
