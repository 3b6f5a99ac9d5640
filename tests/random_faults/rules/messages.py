"""Rules of plain messages: nothing lost, doubled, invented, moved, out of order or misread."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from tests.random_faults.clients.place import (
    BATCHES,
    BULK,
    CREDITS,
    DEBITS,
    KEYS,
    LATER,
    ONCE,
    PORT,
    REGISTER,
    WORK,
)
from tests.random_faults.records import Operation, Outcome, Records
from tests.random_faults.rules.stored import Stored, of_topics, sends

PLAIN = (KEYS, BATCHES, WORK, PORT, BULK)
LIFE = "life-"


def lost(records: Records, stored: Sequence[Stored]) -> Iterator[str]:
    """What was acknowledged is where the acknowledgement said."""
    by_position = {one.position: one for one in stored}
    by_place = {
        (one.topic, one.queue, one.offset): one for one in stored if not one.topic.startswith(LIFE)
    }
    for one in records.all("send", "later"):
        if not one.is_ok:
            continue
        duplicates = one.told.get("duplicates", [False] * len(one.asked["values"]))
        for row, (value, is_duplicate) in enumerate(
            zip(one.asked["values"], duplicates, strict=True)
        ):
            if "positions" in one.told:
                position = one.told["positions"][row]
                there, place = by_position.get(position), f"position {position}"
            else:
                key = one.asked["topic"], one.told["queues"][row], one.told["offsets"][row]
                there, place = by_place.get(key), f"{key}"
            wanted = one.asked["ids"][row] if is_duplicate else value
            found = there and (there.unique_id if is_duplicate else there.value)
            if found != wanted:
                yield f"{wanted} was acknowledged at {place}, where {there or 'nothing'} is ({one})"


def misplaced(records: Records, stored: Sequence[Stored]) -> Iterator[str]:
    """Queue and queue offset of what was acknowledged are those that were told."""
    by_position = {one.position: one for one in stored}
    for one in sends(records):
        if not one.is_ok or "positions" not in one.told:
            continue
        for row, position in enumerate(one.told["positions"]):
            there = by_position.get(position)
            is_duplicate = one.told["duplicates"][row]
            if there is None or is_duplicate:
                continue
            told = one.asked["topic"], one.told["queues"][row], one.told["offsets"][row]
            if (there.topic, there.queue, there.offset) != told:
                yield f"{there} was acknowledged as {told} ({one})"


def doubled(records: Records, stored: Sequence[Stored]) -> Iterator[str]:
    """Nothing is in a topic twice, by its value or by its unique id."""
    del records
    seen: dict[tuple[str, str], Stored] = {}
    for one in stored:
        if one.topic not in (*PLAIN, LATER, DEBITS, CREDITS) and not one.topic.startswith(LIFE):
            continue
        for key in {one.value, one.unique_id or one.value}:
            other = seen.setdefault((one.topic, key), one)
            if other is not one:
                yield f"{key} is stored twice: {other}, {one}"


def invented(records: Records, stored: Sequence[Stored]) -> Iterator[str]:
    """Nothing is stored that was never sent there, or of which was said that it is not stored."""
    sent: dict[tuple[str, str], Operation] = {
        (one.asked["topic"], value): one
        for one in records.all("send", "later")
        for value in one.asked["values"]
    }
    for one in stored:
        if one.topic not in (*PLAIN, ONCE, LATER) and not one.topic.startswith(LIFE):
            continue
        send = sent.get((one.topic, one.value))
        if send is None or send.asked.get("queue", one.queue) != one.queue:
            yield f"{one} was never sent there"
        elif send.outcome is Outcome.FAIL:
            yield f"{one} is stored, and was refused ({send})"


def uncounted(records: Records, stored: Sequence[Stored]) -> Iterator[str]:
    """Queue offsets count the messages of a queue in the order of the log."""
    del records
    counts: defaultdict[tuple[str, int], int] = defaultdict(int)
    for one in stored:
        if one.topic == REGISTER or one.topic.startswith(LIFE):
            continue
        if one.offset != counts[one.topic, one.queue]:
            yield f"{one} is number {counts[one.topic, one.queue]} of its queue in the log"
        counts[one.topic, one.queue] = one.offset + 1


def out_of_key_order(records: Records, stored: Sequence[Stored]) -> Iterator[str]:
    """Messages of a key are in one queue, in the order in which they were sent."""
    sent = {value: one for one in sends(records, KEYS) for value in one.asked["values"]}
    last: dict[str, tuple[Operation, Stored]] = {}
    for one in of_topics(stored, KEYS):
        send = sent.get(one.value)
        if send is None:
            continue
        key = send.asked["key"]
        if key in last:
            before, there = last[key]
            if there.queue != one.queue:
                yield f"{there} and {one} have the key {key}, and are in two queues"
            if before.number > send.number:
                yield f"{one} stands behind {there}, which was sent later"
        last[key] = send, one


def out_of_time_order(records: Records, stored: Sequence[Stored]) -> Iterator[str]:
    """What was acknowledged before something was sent stands before it, queue by queue."""
    sent = {value: one for one in sends(records, *PLAIN) for value in one.asked["values"]}
    latest: dict[tuple[str, int], tuple[int, Stored]] = {}
    for one in of_topics(stored, *PLAIN):
        send = sent.get(one.value)
        if send is None:
            continue
        place = one.topic, one.queue
        begun_ns, there = latest.get(place, (0, one))
        if send.is_ok and send.end_ns < begun_ns:
            yield f"{one} was acknowledged before {there} was sent, and stands behind it"
        latest[place] = max((begun_ns, there), (send.start_ns, one), key=lambda pair: pair[0])


def misread(records: Records, stored: Sequence[Stored]) -> Iterator[str]:
    """Whatever a reader was given is in the log where it was given."""
    at = {(one.topic, one.queue, one.offset): one.value for one in stored}
    for read in records.all("read", "poll"):
        if not read.is_ok:
            continue
        topic, queue = read.told["topic"], read.told["queue"]
        for offset, value in zip(read.told["offsets"], read.told["values"], strict=True):
            if (there := at.get((topic, queue, offset), "nothing")) != value:
                yield f"{read.client} was given {value} at {topic}:{queue}:{offset}, not {there}"


def passed_over(records: Records, stored: Sequence[Stored]) -> Iterator[str]:
    """Who reads a whole topic is given each queue without a gap, from its beginning to its end."""
    reached: defaultdict[tuple[str, str, int], int] = defaultdict(int)
    topics: dict[str, str] = {}
    for read in records.all("read", "reset"):
        if read.verb == "reset":
            yield f"{read.client} went on elsewhere by itself: {read.asked}"
            continue
        topics[read.client] = read.asked["topic"]
        if not read.is_ok:
            continue
        for offset in read.told["offsets"]:
            place = read.client, read.told["topic"], read.told["queue"]
            if offset != reached[place]:
                yield f"{place} was given {offset} behind {reached[place] - 1}"
            reached[place] = offset + 1
    for client, topic in topics.items():
        for one in of_topics(stored, topic):
            if one.offset >= reached[client, topic, one.queue]:
                yield f"{client} was never given {one}"
