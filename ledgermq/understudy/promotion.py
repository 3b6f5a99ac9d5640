"""Promotion of an understudy: its folder becomes a node's store, which goes on where the log ends.

The master is stopped, and so is the process that followed it. Killed at any moment, the promotion
is run again; until its last step the folder is an understudy's.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from ledgermq.conversion.stream.log_facts import records_in
from ledgermq.conversion.understudy_note import UnderstudyNote, write_note
from ledgermq.dispatcher.log_spans import LogSpans
from ledgermq.formats.batch_unit import QUEUE_TYPE
from ledgermq.formats.records.inner_batch import batch_in
from ledgermq.model.config.host_texts import split_address
from ledgermq.model.errors import ConfigError
from ledgermq.model.ids import Position
from ledgermq.model.names.stored_name import is_file_name
from ledgermq.model.names.system_topics import is_system_topic
from ledgermq.process.clock import Clock, epoch_ms
from ledgermq.process.table_files import unreadable_tables
from ledgermq.store.files.config_file import ConfigFile
from ledgermq.store.store_view import StoreView
from ledgermq.understudy.followed_queues import FollowedQueues
from ledgermq.understudy.followed_settings import section_of
from ledgermq.understudy.followed_tables import TOPIC_TABLE, TOPICS_FILE
from ledgermq.understudy.received_log import ReceivedLog
from ledgermq.understudy.understudy_status import UnderstudyStatus

LOOK_TIMEOUT_S = 3.0

_READ_WRITE = 6


class PromotedFolder(NamedTuple):
    """What was promoted.

    Attributes:
        begin, end: positions of the log.
        messages: in all queues.
        topics_made: topics of the log that the master had made after the last look at its tables.
    """

    begin: int
    end: int
    messages: int
    topics_made: tuple[str, ...]


def answering(note: UnderstudyNote, status: UnderstudyStatus | None) -> str | None:
    """Address where somebody answers as the master did, or the last one of several; None without.

    That of the clients is tried first: only a master that is asked there no more is asked where it
    waits for slaves.
    """
    last = status.remoting if status is not None else ""
    for address in filter(None, (note.remoting, last, note.master)):
        try:
            with socket.create_connection(split_address(address), timeout=LOOK_TIMEOUT_S):
                return address
        except OSError:
            continue
    return None


def refuse_living_master(note: UnderstudyNote, status: UnderstudyStatus | None) -> None:
    """Make sure that nobody answers where the master was, or the last one of several.

    Raises:
        ConfigError: somebody does; names the address.
    """
    address = answering(note, status)
    if address is not None:
        raise ConfigError(
            "the master still answers: stop it first, or say --fenced where no client can reach it",
            address=address,
        )


def finish_store(
    root: Path, note: UnderstudyNote, status: UnderstudyStatus | None
) -> PromotedFolder:
    """Bring the store to where a node can begin; durable on return. The caller has its locks.

    Args:
        status: what its process has told last; None: it has never run.

    Raises:
        ConfigError: nothing was ever received, or a table cannot be read.
        CorruptLogError: the log is damaged before what was durable.
        StorageError: the operating system refused.
    """
    with closing(ReceivedLog(root, file_size=note.log_file_size)) as log:
        if log.is_empty or log.first is None or status is None or not status.tables_at_ms:
            raise ConfigError(
                "the folder has no log, or no tables, of the master yet", directory=str(root)
            )
        log.sync()
        log.note_durable()
        section = section_of(note, root)
        found = [f"{one.path.name}: {one.reason}" for one in unreadable_tables(root / "config")]
        if found:
            raise ConfigError("tables of the master cannot be read", tables=found)
        made = _make_batch_topics(root, log, status.tables_position)
        with closing(
            FollowedQueues(
                section,
                log,
                with_tags=note.product >= 5,
                tables_position=status.tables_position,
            )
        ) as queues:
            queues.build(log.durable)
            queues.flush()
        begin, end = log.first, log.durable
    with closing(StoreView(root)) as view:
        made += _make_topics(root, view, status.tables_position)
        messages = sum(queue.end - queue.first for queue in view.queues())
    return PromotedFolder(begin, end, messages, made)


def mark_promoted(root: Path, note: UnderstudyNote, clock: Clock) -> None:
    """Let the folder be a node's; durable on return.

    Raises:
        StorageError: the operating system refused.
    """
    write_note(root, replace(note, promoted_at_ms=epoch_ms(clock)))


def _make_batch_topics(root: Path, log: ReceivedLog, position: int) -> tuple[str, ...]:
    """Make topics that have records of several messages from ``position`` on and are in no table:
    before queues are built, for such records are in queues of their own.
    """
    spans, end = LogSpans(log.family), log.durable
    found: dict[str, int] = {}
    at = max(position, int(log.first or 0))
    while at < end:
        span = spans.span(Position(at))
        assert span is not None, (at, end)
        upto = min(end, span.end)
        lots = records_in(
            span.view, at - span.start, upto - span.start,
            header_size=span.header_size, base=span.start,
        )  # fmt: skip
        for starts, sizes in lots:
            for start, size in zip(starts.tolist(), sizes.tolist(), strict=True):
                batch = batch_in(span.view[start : start + size])
                if batch is not None and is_file_name(batch.topic):
                    name = batch.topic.decode()
                    found[name] = max(found.get(name, 0), batch.queue_id + 1)
        at = upto
    spans.close()
    return _add_topics(root, found, {"attributes": {QUEUE_TYPE: "BatchCQ"}})


def _make_topics(root: Path, view: StoreView, position: int) -> tuple[str, ...]:
    """Make topics of queues that have messages from ``position`` on and are in no table.

    When the tables were asked for, the master had all before ``position``: what has none of it was
    made since; what has nothing behind it was deleted.
    """
    made: dict[str, int] = {}
    for queue in view.queues():
        if is_system_topic(queue.topic) or queue.end == queue.first:
            continue
        (last,) = view.units(queue.topic, queue.queue_id, queue.end - 1, 1)["position"].tolist()
        if last >= position:
            made[queue.topic] = max(made.get(queue.topic, 0), queue.queue_id + 1)
    return _add_topics(root, made, {})


def _add_topics(
    root: Path, found: Mapping[str, int], more: Mapping[str, object]
) -> tuple[str, ...]:
    """Have those topics in the table that are not there, with so many queues; which ones.

    Args:
        more: fields of their rows, beside the usual ones.
    """
    file = ConfigFile(root / "config" / TOPICS_FILE)
    document = file.load()
    table = document.get(TOPIC_TABLE)
    rows: dict[str, object] = dict(table) if isinstance(table, dict) else {}
    made = {name: queues for name, queues in found.items() if name not in rows}
    for name, queues in made.items():
        rows[name] = {
            "topicName": name,
            "readQueueNums": queues,
            "writeQueueNums": queues,
            "perm": _READ_WRITE,
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": 0,
            "order": False,
            **more,
        }
    if made:
        file.save({**document, TOPIC_TABLE: rows})
    return tuple(sorted(made))
