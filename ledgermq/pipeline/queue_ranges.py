"""Queue ranges: queue offsets of queues, and how options and JSON name them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Literal, NamedTuple

from ledgermq.model.errors import ConfigError
from ledgermq.pipeline.source.data_loss import report_loss

Queue = tuple[str, int]
"""Topic and queue id."""

EARLIEST = -2
LATEST = -1
"""Marks in the place of a queue offset, as in Kafka's JSON."""

CONSUMER = "@group"
"""Key beside the topics of a stream's offsets, none of which has such a name: for whom they are
consumed, and where the batch begins that ends there. ``{"group": NAME, "from": {topic: {…}}}``"""

Offsets = dict[Queue, int]
_FORM = '{"topic": {"queue id": queue offset}}'
_OR_WORDS = ", nor earliest or latest"

Place = Literal["earliest", "latest"] | Mapping[Queue, int]
"""Where to begin or to end: everywhere the same, or an offset a queue."""


class MessageRange(NamedTuple):
    """Messages of one queue, by queue offset; half-open."""

    topic: str
    queue_id: int
    first: int
    end: int

    @property
    def queue(self) -> Queue:
        """Topic and queue id."""
        return self.topic, self.queue_id


class Queued(NamedTuple):
    """Position up to which a node's queues have the log: all below ``position`` is in them.

    Attributes:
        node: whose queues; those of another one may be behind.
    """

    node: str
    position: int


def parse_queue_table(text: str, *, option: str) -> dict[Queue, int]:
    """``{"topic": {"0": 23, "1": -2}}`` by queue.

    Raises:
        ConfigError: it is something else; names the option.
    """
    return queue_table(_parsed(text, option, _FORM), option=option)


def parse_group_tables(text: str, *, option: str) -> dict[str, Place]:
    """``{"group": {"topic": {"0": 23, "1": -2}}}``: tables of queues by the group's name.

    Raises:
        ConfigError: it is something else; names the option.
    """
    form = f'{{"group": {_FORM}}}'
    document = _parsed(text, option, form)
    if not isinstance(document, dict):
        raise ConfigError("option has another form", option=option, value=document, form=form)
    return {group: queue_table(table, option=option) for group, table in document.items()}


def _parsed(text: str, option: str, form: str) -> object:
    try:
        document: object = json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError(
            f"option is not JSON{_OR_WORDS if option.endswith('Offsets') else ''}",
            option=option,
            value=text,
            form=form,
            reason=error.msg,
            at=error.pos,
        ) from error
    return document


def queue_table(document: object, *, option: str) -> dict[Queue, int]:
    """A document ``{"topic": {"0": 23}}`` by queue.

    Raises:
        ConfigError: it is something else; names the option.
    """
    if not isinstance(document, dict):
        raise ConfigError("option has another form", option=option, value=document, form=_FORM)
    table: dict[Queue, int] = {}
    for topic, queues in document.items():
        if not isinstance(queues, dict):
            raise ConfigError(
                "option has another form", option=option, topic=topic, value=queues, form=_FORM
            )
        for queue_id, offset in queues.items():
            is_number = isinstance(offset, int) and not isinstance(offset, bool)
            if not (queue_id.isascii() and queue_id.isdigit() and is_number):
                raise ConfigError(
                    "option has another form",
                    option=option,
                    topic=topic,
                    queueId=queue_id,
                    value=offset,
                    form=_FORM,
                )
            if offset < EARLIEST:
                raise ConfigError(
                    "queue offset is negative: -2 is the earliest, -1 the latest",
                    option=option,
                    topic=topic,
                    queueId=queue_id,
                    value=offset,
                )
            table[topic, int(queue_id)] = offset
    return table


def queue_document(offsets: Mapping[Queue, int]) -> dict[str, dict[str, int]]:
    """``offsets`` as JSON has them, as Spark keeps them in its checkpoint."""
    document: dict[str, dict[str, int]] = {}
    for (topic, queue_id), offset in sorted(offsets.items()):
        document.setdefault(topic, {})[str(queue_id)] = offset
    return document


def checkpoint_table(document: Mapping[str, object], *, option: str = "checkpoint") -> Offsets:
    """The offsets of a stream's document, without for whom they are consumed.

    Raises:
        ConfigError: it is something else; names the option.
    """
    offsets = {topic: queues for topic, queues in document.items() if topic != CONSUMER}
    return queue_table(offsets, option=option)


def placed(place: Place, bounds: Mapping[Queue, MessageRange], *, option: str) -> Offsets:
    """The queue offset of each queue in ``bounds`` that ``place`` says; of others the nearest.

    A queue that a table leaves out is read from its beginning and to its end.

    Raises:
        ConfigError: the table names a queue that is not among them.
    """
    if place == "earliest":
        return {queue: range_.first for queue, range_ in bounds.items()}
    if place == "latest":
        return {queue: range_.end for queue, range_ in bounds.items()}
    strange = sorted(set(place) - set(bounds))
    if strange:
        raise ConfigError(
            "option names a queue that is not read: no such queue, or not subscribed to",
            option=option,
            topic=strange[0][0],
            queueId=strange[0][1],
        )
    is_start = option.lower().startswith("starting")
    offsets: Offsets = {}
    for queue, range_ in bounds.items():
        offset = place.get(queue, EARLIEST if is_start else LATEST)
        named = {EARLIEST: range_.first, LATEST: range_.end}
        offsets[queue] = named.get(offset, offset)
    return offsets


def ranges_between(
    starts: Mapping[Queue, int],
    ends: Mapping[Queue, int],
    bounds: Mapping[Queue, MessageRange],
    *,
    fail: bool,
) -> list[MessageRange]:
    """What is to be read from ``starts`` to ``ends`` of queues that hold ``bounds``.

    Raises:
        DataLossError: some of it is gone, and ``fail``.
        ConfigError: a queue does not reach to where it is to be read.
    """
    ranges: list[MessageRange] = []
    for queue, end in sorted(ends.items()):
        held = bounds.get(queue, MessageRange(*queue, 0, 0))
        start = starts.get(queue, held.first)
        if start == end:
            continue
        if held.first == held.end and end > start and queue in starts:
            # All that the queue had is gone, and its files with it.
            report_loss(fail=fail, **_named(queue), wanted=start, missing=end - start)
            continue
        if max(start, end) > held.end:
            raise ConfigError(
                "queue ends before the offset that was asked for",
                **_named(queue),
                offset=max(start, end),
                end=held.end,
            )
        if start > end:
            raise ConfigError(
                "what is to be read ends before it begins", **_named(queue), start=start, end=end
            )
        if start < held.first:
            missing = min(held.first, end) - start
            report_loss(
                fail=fail, **_named(queue), wanted=start, oldest=held.first, missing=missing
            )
            start = held.first
        if start < end:
            ranges.append(MessageRange(*queue, start, end))
    return ranges


def _named(queue: Queue) -> dict[str, object]:
    return {"topic": queue[0], "queueId": queue[1]}
