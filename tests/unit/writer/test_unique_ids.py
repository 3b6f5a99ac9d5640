"""Unique ids of a store that the Java broker wrote: found in memory, and in its own index."""

from __future__ import annotations

from array import array
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ledgermq.formats.config_json import encode_document
from ledgermq.formats.dledger_entry import HEADER_SIZE
from ledgermq.formats.records.message import Message, encode_message
from ledgermq.ipc.orders import WritableTopic
from ledgermq.model.config.settings import NodeSection, Settings, StoreSection
from ledgermq.model.errors import DamagedLogError
from ledgermq.model.ids import Position
from ledgermq.model.limits import DELAY_TOPIC
from ledgermq.rules.tables.topics import Topic, TopicTable
from ledgermq.store.index.index_reader import layout_of
from ledgermq.store.log.log_writer import Span
from ledgermq.store.log_reader import LogReader
from ledgermq.store.log_view import LogView
from ledgermq.store.queues.derived_files import mark_incomplete
from ledgermq.store.store_directory import open_directory
from ledgermq.wire.send_frame import Duplicate, SendFrame, SendRun
from ledgermq.writer.admission.writable_topics import WritableTopics
from ledgermq.writer.duplicates.missing_records import FramePlan, MissingRecords
from ledgermq.writer.duplicates.recent_messages import RecentMessages
from ledgermq.writer.duplicates.stored_ids import IdsUnknownError
from ledgermq.writer.duplicates.unique_ids import Deduplication, LogReach, Looked
from ledgermq.writer.log.log_ids import Candidates, LogIds
from ledgermq.writer.log.put_batch import Put
from tests.conftest import Golden

DAY_MS = 86_400_000
BODY_AT = 88
"""Of a message with the addresses of IPv4."""


class Store:
    """Messages of a Java broker's log, and unique ids of it; all its topics have a window."""

    def __init__(self, root: Path, folder: Path) -> None:
        directory = open_directory(root)
        reader = LogReader(directory)
        self.root = root
        self.end = int(reader.end)
        named = [record.message for record in reader.iterate() if record.message.unique_id]
        # The last of each id, of topics to which a client may send.
        last = {(real(one), one.unique_id): one for one in named if "RMQ_SYS" not in one.topic}
        self.messages = sorted(last.values(), key=lambda one: one.physical_offset)
        self.now_ms = max(one.store_timestamp for one in self.messages) + 1_000
        layout = layout_of((root / "index").iterdir())
        assert layout is not None
        self.settings = Settings(
            node=NodeSection(self_id="n0"),
            store=StoreSection(
                path_root_dir=root, max_hash_slot_num=layout.slots, max_index_num=layout.items
            ),
        )
        table = TopicTable()
        for name in {real(one) for one in self.messages}:
            table.put(Topic(name, deduplication_window_ms=DAY_MS), 1)
        path = folder / "topics.json"
        path.write_bytes(encode_document(table.to_document()))
        self.topics = WritableTopics(path)
        self.unique = Deduplication(self.topics, self.settings, lambda: None)

    def look_up(
        self, messages: list[Message], *, indexed: int, now_ms: int = 0, is_retry: bool = False
    ) -> Looked:
        """Look for messages as a client sends them: other bodies with these ids."""
        frame, payload = frame_of(messages, is_retry=is_retry)
        search = self.unique.search(
            frame,
            memoryview(payload),
            header_size=HEADER_SIZE,
            now_ms=now_ms or self.now_ms,
            log=LogReach(self.end, indexed),
        )
        return self.unique.compare(frame, memoryview(payload), search, self.end)

    def plan(self, messages: list[Message], *, is_retry: bool = False) -> FramePlan:
        """What is missing of messages as a client sends them."""
        frame, payload = frame_of(messages, is_retry=is_retry)
        missing = MissingRecords(self.unique, header_size=HEADER_SIZE)
        log = LogReach(self.end, self.end)
        search = missing.search(frame, payload, now_ms=self.now_ms, log=log)
        recent = RecentMessages(
            self.root / "data", file_size=1, header_size=HEADER_SIZE, first=0, window=0,
            end=Position(self.end), entry_before=lambda position: position,
        )  # fmt: skip
        return missing.plan(frame, payload, search, recent=recent, log=log, now_ms=self.now_ms)


def real(message: Message) -> str:
    """The topic that a message is for."""
    if message.topic != DELAY_TOPIC:
        return message.topic
    return message.parsed_properties()["REAL_TOPIC"]


def frame_of(messages: list[Message], *, is_retry: bool = False) -> tuple[SendFrame, bytes]:
    """A frame, a run a message."""
    records = [bytes(HEADER_SIZE) + encode_message(one) for one in messages]
    sizes = memoryview(array("I", map(len, records)))
    runs = [SendRun(1, one.queue_id, one.topic.encode()) for one in messages]
    payload = b"".join(records)
    nothing = memoryview(b"")
    return SendFrame(
        1, is_retry, False, sizes, runs, len(payload), 0, HEADER_SIZE, 8, nothing
    ), payload


@pytest.fixture(scope="module")
def shared(golden: Golden, tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store(golden("gd0"), tmp_path_factory.mktemp("topics"))


@pytest.fixture
def store(shared: Store, tmp_path: Path) -> Store:
    """With a memory of its own."""
    return Store(shared.root, tmp_path)


def others(messages: list[Message]) -> list[Message]:
    return [replace(one, body=b"another body") for one in messages]


def renamed(message: Message) -> Message:
    """The same with a unique id that nobody has."""
    old = message.unique_id.encode()
    return replace(message, properties=message.properties.replace(old, b"0" * 32))


def places(looked: Looked) -> list[tuple[bytes, int, int, int, int]]:
    stored = looked.stored
    columns = zip(
        stored.topics, stored.queue_ids.tolist(), stored.queue_offsets.tolist(),
        stored.positions.tolist(), stored.store_times.tolist(), strict=True,
    )  # fmt: skip
    return list(columns)


def places_of(messages: list[Message]) -> list[tuple[bytes, int, int, int, int]]:
    found = []
    for one in messages:
        numbers = one.queue_id, one.queue_offset, one.physical_offset, one.store_timestamp
        found.append((one.topic.encode(), *numbers))
    return found


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_every_id_of_the_log_is_found_in_memory_and_in_the_index(
    store: Store, share: float
) -> None:
    middle = store.messages[int(share * (len(store.messages) - 1))]
    indexed = {0.0: 0, 0.5: middle.physical_offset - HEADER_SIZE, 1.0: store.end}[share]
    looked = store.look_up(others(store.messages), indexed=indexed)

    assert len(store.messages) > 100
    assert {one.topic == real(one) for one in store.messages} == {True, False}
    assert looked.stored.rows.tolist() == list(range(len(store.messages)))
    assert places(looked) == places_of(store.messages)
    assert set(looked.stored.sameness.tolist()) == {1}


def test_an_id_that_nobody_has_is_found_nowhere(store: Store) -> None:
    named = store.messages[0]
    strangers = [
        renamed(named),
        replace(named, topic="without-a-window"),
    ]
    for indexed in (0, store.end):
        store.unique.forget()
        looked = store.look_up(strangers, indexed=indexed)

        assert len(looked.stored.rows) == 0
        assert (looked.counting > 0).tolist() == [True, False]


def test_what_is_older_than_the_window_does_not_count(store: Store) -> None:
    oldest = min(one.store_timestamp for one in store.messages)
    newest = max(one.store_timestamp for one in store.messages)
    middle = (oldest + newest) // 2
    for indexed in (0, store.end):
        store.unique.forget()
        looked = store.look_up(others(store.messages), indexed=indexed, now_ms=middle + DAY_MS)
        young = [one for one in store.messages if one.store_timestamp >= middle]

        assert 0 < len(young) < len(store.messages)
        assert places(looked) == places_of(young)


def test_the_very_same_record_is_an_earlier_attempt_of_a_frame_sent_again(store: Store) -> None:
    one = store.messages[-1]
    late = one.store_timestamp + DAY_MS + 30_000
    again, other = replace(one), replace(one, body=b"another body")
    looked = store.look_up([again, other], indexed=store.end, now_ms=late, is_retry=True)
    first = store.look_up([again, other], indexed=store.end, now_ms=late)

    assert looked.stored.rows.tolist() == [0]
    assert looked.stored.sameness.tolist() == [2]
    assert len(first.stored.rows) == 0


def test_a_message_of_a_deleted_topic_does_not_count(store: Store) -> None:
    one = store.messages[-1]
    begins = {one.queue_id: one.queue_offset + 1}
    store.topics.take({one.topic: WritableTopic(4, DAY_MS, begins)})
    looked = store.look_up(others([one]), indexed=0)
    store.topics.take({one.topic: WritableTopic(4, DAY_MS, {one.queue_id: one.queue_offset})})
    again = store.look_up(others([one]), indexed=0)

    assert len(looked.stored.rows) == 0
    assert places(again) == places_of([one])


def test_the_second_of_two_in_one_frame_is_the_first_ones_twin(store: Store) -> None:
    named = store.messages[0]
    new = renamed(named)
    looked = store.look_up([new, named, replace(new, queue_id=0, body=b"x"), new], indexed=0)

    assert looked.twins == {2: 0, 3: 0}
    assert looked.stored.rows.tolist() == [1]


def test_what_was_noted_is_found(store: Store) -> None:
    one = store.messages[-1]
    new = renamed(one)
    first = store.look_up([new], indexed=store.end)
    # As if it had been written where another message stands: that one has another id.
    store.unique.note(first.counting, np.array([one.physical_offset]), store.now_ms)
    second = store.look_up([new], indexed=store.end)
    # And now where a message of that id stands.
    hashes = store.look_up([one], indexed=store.end).counting
    store.unique.note(hashes, np.array([one.physical_offset]), store.now_ms)
    third = store.look_up(others([one]), indexed=store.end)

    assert len(second.stored.rows) == 0
    assert places(third) == places_of([one])


def test_an_index_that_is_not_whole_is_not_asked(golden_copy: Golden, tmp_path: Path) -> None:
    store = Store(golden_copy("gd0"), tmp_path)
    in_memory = store.look_up(others(store.messages), indexed=0)
    store.unique.forget()
    (store.root / "ledgermq").mkdir(exist_ok=True)
    mark_incomplete(store.root)

    assert len(in_memory.stored.rows) == len(store.messages)
    with pytest.raises(IdsUnknownError, match="index"):
        store.look_up(others(store.messages), indexed=store.end)


def test_what_the_index_says_of_a_longer_log_is_passed(store: Store) -> None:
    one = store.messages[-1]
    looked = store.look_up([one], indexed=store.end)
    wrong = np.array([one.physical_offset + 1, store.end - 5, one.physical_offset])
    rows = np.zeros(3, np.int64)
    frame, payload = frame_of([one])
    log = LogIds(LogView.of(store.settings), lambda: None)
    passed = log.compare(
        memoryview(payload),
        looked.columns,
        Candidates(rows, wrong, np.zeros(3, np.bool_)),
        end=store.end,
    )

    assert frame.sizes.tolist() == [len(payload)]
    assert passed.positions.tolist() == [one.physical_offset]
    with pytest.raises(DamagedLogError, match="no message"):
        log.compare(
            memoryview(payload),
            looked.columns,
            Candidates(rows, wrong, np.ones(3, np.bool_)),
            end=store.end,
        )


def test_a_damaged_message_is_no_answer(golden_copy: Golden, tmp_path: Path) -> None:
    store = Store(golden_copy("gd0"), tmp_path)
    one = store.messages[0]
    view = LogView.of(store.settings)
    file = view.file_of(one.physical_offset)
    assert file is not None
    with file.path.open("r+b") as content:
        content.seek(one.physical_offset - file.start + BODY_AT)
        content.write(bytes([bytes(one.body)[0] ^ 1]))

    with pytest.raises(DamagedLogError):
        store.look_up(others([one]), indexed=store.end)


def test_an_index_that_went_back_is_not_asked(store: Store) -> None:
    store.look_up(others(store.messages[:1]), indexed=store.end)

    with pytest.raises(IdsUnknownError, match="behind"):
        store.look_up(others(store.messages), indexed=store.end - 1)


def test_frames_of_other_topics_are_not_concerned(store: Store) -> None:
    one = store.messages[0]
    with_window, _ = frame_of([one])
    without, _ = frame_of([replace(one, topic="other")])
    delayed, _ = frame_of([replace(one, topic="SCHEDULE_TOPIC_XXXX")])
    concerned = [store.unique.concerns(frame) for frame in (with_window, without, delayed)]
    store.topics.take({topic.decode(): None for topic in store.topics.windows})
    none = [store.unique.concerns(frame) for frame in (with_window, without, delayed)]

    assert concerned == [True, False, True]
    assert none == [False, False, False]


def test_a_frame_of_new_ids_is_stored_as_it_came(store: Store) -> None:
    new = renamed(store.messages[0])
    plan = store.plan([new])

    assert plan.is_new
    assert (plan.missing.records, plan.resent) == (1, 0)


def test_what_is_missing_of_a_frame_is_planned_and_then_answered_as_a_whole(store: Store) -> None:
    known = next(one for one in store.messages if one.topic != DELAY_TOPIC)
    new = renamed(known)
    plan = store.plan([*others([known]), new, new])
    missing = MissingRecords(store.unique, header_size=HEADER_SIZE)
    stored = Put(b"one", 1, 9, [Span(0, 1, store.end + 48, 70)], store.end + 99, 5)
    put = missing.finish(plan, b"one", stored, end=0)

    assert not plan.is_new
    assert (plan.missing.records, list(plan.rows), plan.resent) == (1, [1], 0)
    assert put.position == store.end + 99
    # The third is the second's twin.
    assert put.spans == [
        Span(0, 1, known.physical_offset, known.queue_offset),
        Span(1, 1, store.end + 48, 70),
        Span(2, 1, store.end + 48, 70),
    ]
    topic = known.topic.encode()
    assert put.duplicates == [
        Duplicate(0, known.queue_id, known.store_timestamp, topic),
        Duplicate(2, known.queue_id, 5, topic),
    ]


def test_a_frame_that_is_stored_already_is_answered_without_a_write(store: Store) -> None:
    known = next(one for one in store.messages if one.topic != DELAY_TOPIC)
    plan = store.plan(others([known]))
    missing = MissingRecords(store.unique, header_size=HEADER_SIZE)
    put = missing.finish(plan, b"one", None, end=store.end)

    assert plan.missing.records == 0
    assert (put.position, put.store_timestamp) == (store.end, known.store_timestamp)
    assert put.spans == [Span(0, 1, known.physical_offset, known.queue_offset)]
