"""Way back to RocketMQ: timers that are handed over, and counts of what it cannot keep."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ledgermq.formats.config_json import decode_document
from ledgermq.formats.records.delayed_message import CANCELS_AT, real_queue, timer_ms
from ledgermq.formats.timer_wheel import (
    SLOT_MS,
    TIMER_OUT,
    TIMER_RELATIVE,
    WHEEL_MS,
    WHEEL_QUEUE,
    WHEEL_TOPIC,
    WheelEntry,
)
from ledgermq.model.errors import ConfigError
from ledgermq.model.limits import STAGED_TOPIC, TIMER_TOPIC, TOPIC_SIZE_MAX
from ledgermq.model.names.queue_name import QueueName
from ledgermq.process.table_files import load_tables, table_files
from ledgermq.rules.messages.timer_index import NEVER, TimerIndex, Timers, Watermark
from ledgermq.rules.state.broker_state import BrokerState
from ledgermq.store.files.small_file import read_file
from ledgermq.store.origin_files import settings_in
from ledgermq.store.queues.batch_topics import batch_topics
from ledgermq.store.store_view import QueueBounds, StoreView
from ledgermq.store.wheel_files import WheelFiles

_TIMERS = QueueName(TIMER_TOPIC, 0)


class Version(StrEnum):
    """Which RocketMQ gets the store."""

    FOUR = "4.9"
    FIVE = "5"


class WayBack(NamedTuple):
    """What RocketMQ has got.

    Attributes:
        timers: messages of ours that it delivers at their time.
        timer_log_size: what its ``mappedFileSizeTimerLog`` has to be, bytes; None: nothing was
            written for it.
        stays: what it cannot keep or does not deliver, in words, each with its number.
    """

    timers: int
    timer_log_size: int | None
    stays: list[str]


def hand_back(root: Path, version: Version, *, self_id: str | None) -> WayBack:
    """Give a stopped store what ``version`` needs of timers, and count what it cannot go on with.

    Raises:
        ConfigError: the node was not stopped in order, or has not taken over what RocketMQ's wheel
            holds; what to do.
        CorruptLogError, StorageError: something cannot be read, or written.
    """
    with closing(StoreView(root, self_id=self_id)) as view:
        _, state = load_tables(table_files(root / "config"), keeps=False)
        bounds = {QueueName(one.topic, one.queue_id): one for one in view.queues()}
        entries: list[WheelEntry] = []
        others: list[WheelEntry] = []
        for entry, is_relative in _waiting(view, state, bounds.get(_TIMERS)):
            (others if is_relative else entries).append(entry)
        stays = list(_stays(root, state, bounds, version))
        size = None
        if version is Version.FIVE and not state.moves_of(WHEEL_TOPIC)[WHEEL_QUEUE].marks.get(
            "left"
        ):
            now_ms = int(time.time() * 1_000) // SLOT_MS * SLOT_MS
            others += [one for one in entries if one.due_ms >= now_ms + WHEEL_MS]
            entries = [one for one in entries if one.due_ms < now_ms + WHEEL_MS]
            _refuse_unfinished(view, state, bounds.get(WHEEL_QUEUE))
            ends = [
                found.end if (found := bounds.get(one)) else 0 for one in (WHEEL_QUEUE, _TIMERS)
            ]
            if entries:
                size = WheelFiles(root).hand(entries, now_ms=now_ms, ends=(ends[0], ends[1]))
        else:
            others, entries = others + entries, []
        if others:
            stays.insert(0, f"{TIMER_TOPIC}: {len(others)} messages, until a node comes")
        return WayBack(len(entries), size, stays)


def _waiting(
    view: StoreView, state: BrokerState, queue: QueueBounds | None
) -> Iterator[tuple[WheelEntry, bool]]:
    """The timers that wait, and whether RocketMQ would have them wait once more."""
    source = state.moves_of(TIMER_TOPIC)[_TIMERS]
    index = TimerIndex()
    rows: dict[int, tuple[WheelEntry, bool]] = {}
    if queue is None:
        return
    for one in view.messages(TIMER_TOPIC, 0):
        message, properties = one.message, one.message.parsed_properties()
        if (due_ms := timer_ms(message.properties)) is not None:
            real = real_queue(message.properties)
            is_relative = TIMER_OUT not in properties and bool(TIMER_RELATIVE & properties.keys())
            topic = "" if real is None else real.topic
            entry = WheelEntry(due_ms, message.physical_offset, message.size, topic)
            rows[one.queue_offset] = entry, is_relative
            index.add(_columns(entry, one.queue_offset))
        elif properties.get(CANCELS_AT, "").isdigit():
            index.cancel(int(properties[CANCELS_AT]))
    index.forget_delivered(Watermark.of(source.marks))
    index.forget_below(source.next_offset)
    for offset in index.due(int(NEVER), len(rows)).offset.tolist():
        yield rows[offset]


def _columns(entry: WheelEntry, offset: int) -> Timers:
    due, number, position = (
        np.array([value], np.int64) for value in (entry.due_ms, offset, entry.position)
    )
    return Timers(due, number, position, np.array([entry.size], np.int32))


def _refuse_unfinished(view: StoreView, state: BrokerState, wheel: QueueBounds | None) -> None:
    root = str(view.directory.root)
    if view.directory.aborted or next(iter(state.open_moves()), None) is not None:
        raise ConfigError(
            "timers are handed to RocketMQ after a stop in order: start the node, and stop it",
            directory=root,
        )
    if wheel is not None and state.moves_of(WHEEL_TOPIC)[WHEEL_QUEUE].next_offset < wheel.end:
        raise ConfigError(
            "RocketMQ's timer wheel has messages that no node has taken over yet: nothing is to be"
            " handed back",
            directory=root,
        )


def _stays(
    root: Path, state: BrokerState, bounds: dict[QueueName, QueueBounds], version: Version
) -> Iterator[str]:
    """What nobody delivers, or drops, until a node has the store again, but for timers."""
    staged = sum(
        queue.end - max(queue.first, min(state.moves_of(STAGED_TOPIC)[name].next_offset, queue.end))
        for name, queue in bounds.items()
        if name.topic == STAGED_TOPIC
    )
    if staged:
        yield f"{STAGED_TOPIC}: {staged} messages, until a node comes"
    if version is Version.FIVE:
        return
    long = sum(
        queue.end - queue.first
        for name, queue in bounds.items()
        if len(name.topic.encode()) > TOPIC_SIZE_MAX
    )
    if long:
        yield f"{long} messages of version 2, which RocketMQ 4.9 takes for the end of its log"
    of_batches = batch_topics(root)
    if of_batches:
        messages = sum(
            queue.end - queue.first for name, queue in bounds.items() if name.topic in of_batches
        )
        yield (
            f"{messages} messages of {len(of_batches)} topics with queues of batches, which"
            " RocketMQ 4.9 does not find"
        )
    topics, groups = (
        table if isinstance(table := document.get(key), dict) else {}
        for file, key in (
            ("topics.json", "topicConfigTable"),
            ("subscriptionGroup.json", "subscriptionGroupTable"),
        )
        for document in (decode_document(read_file(root / "config" / file) or b"{}", file=file),)
    )
    for what, names, _ in settings_in(topics, groups):
        yield f"{what} of {len(names)}, which RocketMQ 4.9 drops"
