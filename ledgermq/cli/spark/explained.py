"""Explanation of a group at a moment, out of pieces and the log behind them: what it had consumed
of a topic, and not.
"""

from __future__ import annotations

import argparse
from typing import NamedTuple

from ledgermq.cli.output import print_table, tell, time_text
from ledgermq.cli.spark.cold_tables import queues_then, tables_at
from ledgermq.formats.records.message import decode_message
from ledgermq.model.errors import ConfigError, MessageUnknownError
from ledgermq.pipeline.pieces.cold_queues import ColdQueues
from ledgermq.pipeline.pieces.moments import Moment, end_at


class ExplainedQueue(NamedTuple):
    """One queue of a group at a moment.

    Attributes:
        committed: queue offset of the message that it was to get next; None: it had got none.
        end: behind the last message that was there.
        lag: messages that it had not consumed; of a share group those that were not settled.
        taken: of a share group, those that were handed out and not settled; of others 0.
        next_stored: when the message at ``committed`` was stored, epoch ms; None where there was
            none, or it is in no piece.
    """

    queue: int
    committed: int | None
    end: int
    lag: int
    taken: int
    next_stored: int | None


def explain_group(arguments: argparse.Namespace) -> int:
    """Tell what a group had consumed of a topic, and what it had not."""
    with queues_then(arguments) as (queues, moment):
        return _explain(queues, moment, arguments)


def _explain(queues: ColdQueues, moment: Moment, arguments: argparse.Namespace) -> int:
    group, topic = arguments.group, arguments.topic
    state = tables_at(queues, moment).state
    row = state.topics.get(topic)
    if row is None:
        raise ConfigError("there was no such topic then", topic=topic, as_of=arguments.as_of)
    committed, shared = state.offsets.offsets(group, topic), state.shares.queues(group, topic)
    found = []
    for queue_id in range(row.write_queues):
        end, share = end_at(queues, topic, queue_id, moment), shared.get(queue_id)
        offset = committed.get(queue_id)
        taken = 0 if share is None else sum(run.length for run in share.runs)
        # What was settled behind the first message that was not is no lag.
        lag = end - (offset or 0) if share is None else end - share.next + taken
        stored = _stored(queues, topic, queue_id, offset, moment)
        found.append(ExplainedQueue(queue_id, offset, end, max(0, lag), taken, stored))
    document = {
        "group": group,
        "topic": topic,
        "asOf": arguments.as_of,
        "groupWasThere": state.groups.get(group) is not None,
        "queues": [one._asdict() for one in found],
    }

    def print_queues() -> None:
        print_table(
            ["queue", "committed", "end", "lag", "taken", "next was stored"],
            [
                [
                    f"{one.queue}",
                    "-" if one.committed is None else f"{one.committed:,}",
                    f"{one.end:,}",
                    f"{one.lag:,}",
                    f"{one.taken:,}",
                    "-" if one.next_stored is None else time_text(one.next_stored),
                ]
                for one in found
            ],
        )
        if not document["groupWasThere"]:
            print(f"there was no group {group} then")

    return tell(arguments, document, print_queues)


def _stored(
    queues: ColdQueues, topic: str, queue_id: int, offset: int | None, moment: Moment
) -> int | None:
    """When the message was stored that the group was to get next, if it was there."""
    try:
        record = next(queues.read(topic, queue_id, offset or 0), None)
    except MessageUnknownError:
        return None
    if record is None or not moment.has(record):
        return None
    return decode_message(memoryview(record.record)).store_timestamp
