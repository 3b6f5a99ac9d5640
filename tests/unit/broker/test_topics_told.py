"""The writer is told what became of topics; it reads their file only when it knows too little."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ledgermq.broker.service import Mailbox
from ledgermq.broker.state import broker_tables
from ledgermq.broker.state.broker_tables import BrokerTables
from ledgermq.broker.state.writer_notice import WriterNotice
from ledgermq.formats.config_json import decode_document
from ledgermq.ipc.orders import TopicsChanged, TopicsLoaded, WritableTopic, parse
from ledgermq.model.config.settings import Settings
from ledgermq.model.errors import NoPermissionError, TopicUnknownError
from ledgermq.rules.tables.groups import SubscriptionGroup
from ledgermq.rules.tables.topics import Permission, Topic, TopicTable
from ledgermq.writer.admission.writable_topics import WritableTopics


def table_of(*topics: Topic) -> TopicTable:
    table = TopicTable()
    for topic in topics:
        table.put(topic, 1)
    return table


def put(tables: BrokerTables, *topics: Topic) -> None:
    for topic in topics:
        tables.topics.put(topic, 1)
    tables.save_changed()


def told(order: bytes | None) -> dict[str, WritableTopic | None] | None:
    """What an order says of topics, ``None`` when it says to read the file."""
    assert order is not None
    parsed = parse(order)
    assert isinstance(parsed, TopicsChanged)
    return None if parsed.topics is None else dict(parsed.topics)


def order_of(tables: BrokerTables, known: int) -> bytes | None:
    return tables.order_for_writer(known, term=7, writer_start=2)


def test_a_writer_that_knows_a_revision_is_told_what_changed_since(tmp_path: Path) -> None:
    tables = BrokerTables(tmp_path / "config", Settings())
    put(tables, Topic("a", 4, 4), Topic("b", 4, 4))
    known = tables.topics_revision
    first = order_of(tables, -1)
    put(tables, Topic("a", 8, 8), Topic("c", 4, 4, Permission.READ))
    tables.topics.delete("b", 2)
    tables.save_changed()
    order = order_of(tables, known)
    tables.close()

    assert order is not None
    assert told(first) is None
    assert told(order) == {"a": (8, 0, {}), "b": None, "c": (0, 0, {})}
    parsed = parse(order)
    assert isinstance(parsed, TopicsChanged)
    assert (parsed.since, parsed.version) == (known, tables.topics_revision)
    assert (parsed.term, parsed.writer_start) == (7, 2)


def test_a_snapshot_that_says_the_same_changes_nothing(tmp_path: Path) -> None:
    tables = BrokerTables(tmp_path / "config", Settings())
    put(tables, Topic("a", 4, 4), Topic("b", 4, 4))
    before = tables.topics_revision
    tables.topics.replace_with(table_of(Topic("a", 4, 4), Topic("b", 4, 4)))
    tables.save_changed()
    same = tables.topics_revision
    tables.topics.replace_with(table_of(Topic("a", 4, 4), Topic("b", 5, 5)))
    tables.save_changed()
    order = order_of(tables, before)
    tables.close()

    assert same == before
    assert told(order) == {"b": (5, 0, {})}


def test_a_large_table_is_told_at_once_and_written_later(tmp_path: Path) -> None:
    tables = BrokerTables(tmp_path, Settings(), rows_at_once_max=1)
    known = tables.topics_revision
    put(tables, Topic("a", 4, 4), Topic("b", 4, 4))
    at_once = (tmp_path / "topics.json").exists()
    order = order_of(tables, known)
    unknown = order_of(tables, -1)
    tables.tick(1)
    tables.close()
    rows = decode_document((tmp_path / "topics.json").read_bytes())["topicConfigTable"]

    assert not at_once
    assert told(order) == {"a": (4, 0, {}), "b": (4, 0, {})}
    # A writer that knows nothing can only be told to read a file that has everything.
    assert unknown is None
    assert isinstance(rows, dict)
    assert set(rows) == {"a", "b"}


class Kept(Executor):
    """Does nothing before it is told to."""

    def __init__(self) -> None:
        self.tasks: list[tuple[Future[Any], Callable[[], Any]]] = []

    def submit(self, task: Callable[..., Any], /, *words: Any, **named: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.tasks.append((future, partial(task, *words, **named)))
        return future

    def work(self) -> None:
        tasks, self.tasks = self.tasks, []
        for future, task in tasks:
            future.set_result(task())


def test_the_rows_of_large_tables_are_made_by_who_writes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []

    def counted(real: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def to_fields(row: Any) -> Any:
            made.append(row.name)
            return real(row)

        return to_fields

    background = Kept()
    tables = BrokerTables(
        tmp_path / "config", Settings(), background=background, rows_at_once_max=1
    )
    for number in range(50):
        tables.topics.put(Topic(f"t{number}", 4, 4), 1)
        tables.groups.put(SubscriptionGroup(f"g{number}"), 1)
        tables.offsets.set(f"g{number}", f"t{number}", {1: number})
    for kind in (Topic, SubscriptionGroup):
        monkeypatch.setattr(kind, "to_fields", counted(kind.to_fields))
    tables.save_changed()
    tables.tick(0)
    tables.tick(broker_tables.OFFSETS_DELAY_NS)
    made_before = len(made)
    # What is changed while the file is being written is in the next one.
    tables.topics.delete("t7", 2)
    tables.offsets.set("g1", "t1", {1: 99})
    background.work()
    written: dict[str, Any] = {
        file: decode_document((tmp_path / "config" / file).read_bytes())
        for file in ("topics.json", "subscriptionGroup.json", "consumerOffset.json")
    }

    assert made_before == 0
    assert len(made) == 100
    assert written["topics.json"]["topicConfigTable"].keys() >= {f"t{one}" for one in range(50)}
    assert len(written["subscriptionGroup.json"]["subscriptionGroupTable"]) == 50
    assert written["consumerOffset.json"]["offsetTable"]["t1@g1"] == {"1": 1}


def test_what_was_told_counts_for_producers(tmp_path: Path) -> None:
    tables = BrokerTables(tmp_path, Settings())
    put(tables, Topic("a", 4, 4), Topic("b", 4, 4))
    tables.close()
    topics = WritableTopics(tmp_path / "topics.json")
    topics.take({"a": WritableTopic(8), "b": None, "c": WritableTopic(0)})

    assert topics.check(b"a", 7) is None
    with pytest.raises(TopicUnknownError):
        topics.check(b"b", 0)
    with pytest.raises(NoPermissionError):
        topics.check(b"c", 0)
    topics.read_as_told()
    assert topics.check(b"b", 3) is None
    with pytest.raises(TopicUnknownError):
        topics.check(b"a", 7)


def test_windows_of_deduplication_are_told_and_read(tmp_path: Path) -> None:
    tables = BrokerTables(tmp_path, Settings())
    known = tables.topics_revision
    put(
        tables,
        Topic("a", 4, 4, first_offsets={2: 9}, deduplication_window_ms=60_000),
        Topic("b", 4, 4),
    )
    order = order_of(tables, known)
    tables.close()
    topics = WritableTopics(tmp_path / "topics.json")
    read = dict(topics.windows)
    topics.take({"a": WritableTopic(4), "b": WritableTopic(4, 5_000)})

    assert told(order) == {"a": (4, 60_000, {2: 9}), "b": (4, 0, {})}
    assert read == {b"a": (4, 60_000, {2: 9})}
    assert topics.windows == {b"b": (4, 5_000, {})}


class Leads:
    """In a term, by tables that have all that was committed before."""

    is_held_up = False

    def __init__(self, term: int) -> None:
        self.term = term


def test_a_writer_that_says_it_knows_nothing_is_told_to_read(tmp_path: Path) -> None:
    tables = BrokerTables(tmp_path, Settings())
    notice = WriterNotice(tables, Mailbox(), Leads(0))
    put(tables, Topic("a", 4, 4))
    notice.confirmed(TopicsLoaded(tables.topics_revision, 0, 0))
    was_confirmed = notice.is_confirmed
    notice.confirmed(TopicsLoaded(0, 0, 0))
    order = notice.order()
    tables.close()

    assert was_confirmed
    assert not notice.is_confirmed
    assert told(order) is None


def test_a_writer_is_told_when_the_tables_become_those_of_all(tmp_path: Path) -> None:
    """It takes nothing before: nothing else may have changed since it was told of topics."""
    tables = BrokerTables(tmp_path, Settings())
    log = Leads(0)
    notice = WriterNotice(tables, Mailbox(), log)
    notice.look_at_writer(3)
    put(tables, Topic("a", 4, 4))
    notice.confirmed(TopicsLoaded(tables.topics_revision, 0, 3))
    follows = notice.is_confirmed
    log.term = 7
    leads = notice.is_confirmed
    order = parse(notice.order() or b"")
    notice.confirmed(TopicsLoaded(tables.topics_revision, 7, 3))
    is_told = notice.is_confirmed
    log.term = 9
    leads_again = notice.is_confirmed
    log.is_held_up = True
    held_up = notice.complete_term
    tables.close()

    assert (follows, leads, is_told, leads_again) == (True, False, True, False)
    assert held_up == 0
    newest = tables.topics_revision
    assert order == TopicsChanged(newest, newest, 7, 3, {})


def test_what_an_earlier_writer_has_known_counts_for_nothing(tmp_path: Path) -> None:
    tables = BrokerTables(tmp_path, Settings())
    notice = WriterNotice(tables, Mailbox(), Leads(7))
    notice.look_at_writer(3)
    notice.confirmed(TopicsLoaded(tables.topics_revision, 7, 3))
    before = notice.is_confirmed
    notice.look_at_writer(4)
    notice.confirmed(TopicsLoaded(tables.topics_revision, 7, 3))
    tables.close()

    assert before
    assert not notice.is_confirmed
    assert notice.known == -1


def test_a_file_that_was_read_is_not_read_for_each_repetition(tmp_path: Path) -> None:
    tables = BrokerTables(tmp_path, Settings())
    put(tables, Topic("a", 4, 4))
    tables.close()
    path = tmp_path / "topics.json"
    topics = WritableTopics(path)
    before = path.stat()
    content = path.read_bytes()
    path.write_text("whoever reads this says that it is no JSON")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    topics.read_as_told()
    unread = topics.check(b"a", 0)
    path.write_bytes(content.replace(b'"a"', b'"b"'))
    topics.read_as_told()

    assert unread is None
    assert topics.check(b"b", 0) is None
    with pytest.raises(TopicUnknownError):
        topics.check(b"a", 0)
