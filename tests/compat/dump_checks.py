"""What the Java broker's answers, and its files, must show of a store that our node left.

Messages at or behind the end of our log are the Java broker's own of its opening: it delivers
delayed messages that fell due since, and checks transactions that nobody decided.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ledgermq.cli.store.store_reading import MAX_OFFSET, queued_message_as_json
from ledgermq.formats.index_file import IndexLayout, get_header
from ledgermq.formats.queue_unit import UNIT_SIZE
from ledgermq.model.limits import SYSTEM_TOPIC
from ledgermq.store.store_view import StoreView
from tests.compat.rocketmq import SELF_ID, dledger_folder

NEW_TOPIC = "fresh"
OLD_TOPIC = "plain0"

KEYS_ASKED_EVERY = 5
"""The dump asks for every fifth of all keys in their order."""

INDEX_SIZES = {"maxHashSlotNum": 500, "maxIndexNum": 400}
FILE_SIZES = {"mappedFileSizeCommitLog": 1_048_576, "mappedFileSizeConsumeQueue": 4_000}

# The client adds them when it pulls: the bounds of the queue at that moment.
BOUNDS = ("MIN_OFFSET", MAX_OFFSET)
# Ends of transactions and our own entries: no table of topics names them, so nobody can read them.
NOT_IN_TOPICS = {"RMQ_SYS_TRANS_OP_HALF_TOPIC", SYSTEM_TOPIC}

Json = dict[str, Any]
Place = tuple[str, int, int]
"""Topic and queue where a message was read, and its position in the log."""


@dataclass(frozen=True)
class Way:
    """What was said of one store on its way.

    Attributes:
        answers: the Java broker's, of the store as it left it first.
        late: messages of that store that came after the answers, as our consumer got them; what our
            node delivered is among them.
        sent: what our producers were told.
        ours: the store as our node left it.
        dump: the Java broker's answers, of what our node left.
        theirs: the store as the Java broker left it last.
        self_id: which member of its group our node was; the Java broker calls itself n0.
    """

    answers: Json
    late: list[Json]
    sent: list[Json]
    ours: Path
    dump: Json
    theirs: Path
    self_id: str = SELF_ID


def check_answers(way: Way, told: dict[Place, Json], ours: StoreView) -> None:
    """All that our node left is served as it is, and nothing besides; the files are continued.

    Args:
        told: all messages that the Java broker served, by their places.
        ours: ``way.ours``, opened.
    """
    check_new_messages(way, told)
    check_nothing_else(way, told, ours.log.end)
    check_fields_as_we_read_them(ours, told)
    check_queue_bounds(way, told, ours)
    check_key_queries(way, told, ours.log.end)
    check_time_queries(way, told, ours)
    check_files_are_continued(way, ours)


def check_new_messages(way: Way, told: dict[Place, Json]) -> None:
    """Every field of every new message is what its producer gave, or was told."""
    for sent in way.sent:
        found = without_bounds(told[place(sent)])
        known = sent.keys() - {"born", "storeTimestamp"}
        first, last = sent["born"]

        assert {key: found[key] for key in known} == {key: sent[key] for key in known}
        assert first <= found["bornTimestamp"] <= last
        # An answer has one time for its frame: of one that two leaders stored, each a part, the
        # second one's.
        assert 0 < found["storeTimestamp"] <= sent["storeTimestamp"]


def check_nothing_else(way: Way, told: dict[Place, Json], end: int) -> None:
    """Before the end of our log there is no other message, and none twice in a queue."""
    expected = [*way.answers["messages"], *way.late, *way.sent]
    own = [message for message in told.values() if message["physicalOffset"] >= end]

    assert {at for at in told if at[2] < end} == {place(message) for message in expected}
    assert len(told) == len(way.dump["messages"]) == len(expected) + len(own)


def check_fields_as_we_read_them(ours: StoreView, told: dict[Place, Json]) -> None:
    """Fields that nobody was told, too, as the time of birth: they are those in our files."""
    count = 0
    for queued in ours.messages():
        read: Json = queued_message_as_json(queued)
        found = told.get(place(read))
        if found is None:
            assert queued.queue.topic in NOT_IN_TOPICS
            continue
        count += 1

        assert without_bounds(read) == without_bounds(found)
        assert found["properties"]["MIN_OFFSET"] == str(queued.queue.first)
        assert int(found["properties"][MAX_OFFSET]) >= queued.queue.end

    assert count == sum(at[2] < ours.log.end for at in told)


def check_queue_bounds(way: Way, told: dict[Place, Json], ours: StoreView) -> None:
    """Queues begin and end where we left them, but for the Java broker's own messages."""
    bounds = {(queue.topic, queue.queue_id): queue for queue in ours.queues()}
    own = Counter(at[:2] for at in told if at[2] >= ours.log.end)
    for queue in way.dump["queues"]:
        key = (queue["topic"], queue["queue"])
        first, end = (bounds[key].first, bounds[key].end) if key in bounds else (0, 0)

        assert (queue["min"], queue["max"] - own[key]) == (first, end), key


def check_key_queries(way: Way, told: dict[Place, Json], end: int) -> None:
    """A key finds the messages that have it, no other and none less."""
    having: dict[tuple[str, str], set[int]] = defaultdict(set)
    for message in told.values():
        for key in message["properties"].get("KEYS", "").split():
            having[message["topic"], key].add(message["physicalOffset"])
    before = {(query["topic"], query["key"]): query for query in way.answers["keyQueries"]}
    asked = sorted("\t".join(key) for key in having)[::KEYS_ASKED_EVERY]

    # A key that the index does not find at all is left out of the dump.
    assert ["\t".join((q["topic"], q["key"])) for q in way.dump["keyQueries"]] == asked
    for query in way.dump["keyQueries"]:
        key = (query["topic"], query["key"])
        found = set(query["physicalOffsets"])

        assert {at for at in found if at < end} == {at for at in having[key] if at < end}, key
        if key in before:
            assert found >= set(before[key]["physicalOffsets"])


def check_time_queries(way: Way, told: dict[Place, Json], ours: StoreView) -> None:
    """A time finds the offset that our node finds for it, or one that is no nearer to it in time.

    RocketMQ looks in one file, which it takes by its time of change: the system sets that of a file
    that is written through a map some time later, and the file is then the wrong one.
    """
    times = {
        (message["readTopic"], message["readQueue"], message["queueOffset"]): message
        for message in told.values()
    }
    bounds = {(queue.topic, queue.queue_id): queue.end for queue in ours.queues()}
    grown = {
        (queue["topic"], queue["queue"])
        for queue in way.dump["queues"]
        if queue["max"] > bounds.get((queue["topic"], queue["queue"]), 0)
    }
    asked = [
        query for query in way.dump["timeQueries"] if (query["topic"], query["queue"]) not in grown
    ]
    for query in asked:
        key, asked_ms = (query["topic"], query["queue"]), query["timestamp"]
        offset = ours.query_time(*key, asked_ms)
        if offset == query["offset"]:
            continue
        found, theirs = (
            abs(times[*key, at]["storeTimestamp"] - asked_ms) for at in (offset, query["offset"])
        )

        assert found <= theirs, (query, offset)

    assert {(OLD_TOPIC, 0), (NEW_TOPIC, 0)} <= {(q["topic"], q["queue"]) for q in asked}


def check_files_are_continued(way: Way, ours: StoreView) -> None:
    """The Java broker found nothing to rebuild or to cut: it only wrote behind what we wrote."""
    queues = [
        (Path("consumequeue", queue.topic, str(queue.queue_id)), queue.end * UNIT_SIZE)
        for queue in ours.queues()
    ]
    is_plain = ours.directory.commit_log is not None
    log = Path("commitlog") if is_plain else dledger_folder(way.self_id) / "data"
    renamed = {log: log if is_plain else dledger_folder(SELF_ID) / "data"}
    for folder, end in [(log, int(ours.log.end)), *queues]:
        for file in sorted((way.ours / folder).iterdir()):
            size = min(end - int(file.name), file.stat().st_size)
            if size <= 0:
                continue
            mine = file.read_bytes()[:size]
            java = (way.theirs / renamed.get(folder, folder) / file.name).read_bytes()

            assert java[:size] == mine, file
            assert len(java) == file.stat().st_size

    index_files = sorted((way.ours / "index").iterdir())
    # All but the last are full.
    for file in index_files[:-1]:
        assert (way.theirs / "index" / file.name).read_bytes() == file.read_bytes(), file
    theirs = sorted(file.name for file in (way.theirs / "index").iterdir())

    assert theirs[: len(index_files)] == [file.name for file in index_files]
    check_index_file_is_continued(
        index_files[-1].read_bytes(), (way.theirs / "index" / index_files[-1].name).read_bytes()
    )


def check_index_file_is_continued(mine: bytes, java: bytes) -> None:
    """The Java broker added keys behind ours; slots change with every key, items never do."""
    layout = IndexLayout(slots=INDEX_SIZES["maxHashSlotNum"], items=INDEX_SIZES["maxIndexNum"])
    header = get_header(memoryview(mine), layout)
    theirs = get_header(memoryview(java), layout)
    items = slice(layout.item_at(0), layout.item_at(header.index_count))

    assert java[items] == mine[items]
    assert (theirs.begin_timestamp, theirs.begin_physical_offset) == (
        header.begin_timestamp,
        header.begin_physical_offset,
    )
    assert theirs.index_count >= header.index_count > 1


def place(message: Json) -> Place:
    return message["readTopic"], message["readQueue"], message["physicalOffset"]


def by_place(messages: list[Json]) -> dict[Place, Json]:
    return {place(message): message for message in messages}


def without_bounds(message: Json) -> Json:
    properties = {k: v for k, v in message["properties"].items() if k not in BOUNDS}
    return {**message, "properties": properties}
