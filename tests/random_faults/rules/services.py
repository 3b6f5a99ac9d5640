"""Rules of what a broker does beside storing: windows, delays, transactions, offsets, topics."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

from tests.random_faults.clients.place import CREDITS, DEBITS, LATER, ONCE, WORK
from tests.random_faults.records import Operation, Records
from tests.random_faults.rules.stored import Stored, counted, of_topics, sends

WINDOW = "window-"
TO_COME = ("level", "timer")


def not_once(records: Records, stored: Sequence[Stored]) -> Iterator[str]:
    """A topic with a window has each id once; all that it was acknowledged for name one place."""
    seen: dict[tuple[str, str], Stored] = {}
    for one in stored:
        if _has_window(one.topic):
            other = seen.setdefault((one.topic, one.unique_id), one)
            if other is not one:
                yield f"{one.unique_id} is stored twice: {other}, {one}"
    places: dict[tuple[str, str], tuple[int, Operation]] = {}
    fresh: dict[tuple[str, str], Operation] = {}
    for send in sends(records):
        topic = send.asked["topic"]
        if not send.is_ok or not _has_window(topic):
            continue
        for row, unique_id in enumerate(send.asked["ids"]):
            key, position = (topic, unique_id), send.told["positions"][row]
            known, other_send = places.setdefault(key, (position, send))
            if known != position:
                yield f"{key} was acknowledged at two positions: {other_send}, {send}"
            if not send.told["duplicates"][row] and (first := fresh.setdefault(key, send)) != send:
                yield f"{key} was told to be new twice: {first}, {send}"


def too_early(records: Records, stored: Sequence[Stored]) -> Iterator[str]:
    """Nothing that was sent for later comes before its time, nor what is far ahead."""
    come = counted(of_topics(stored, LATER))
    for one in records.all("later"):
        for there in come.get((LATER, one.asked["values"][0]), []):
            due_ms = one.asked["wall_ms"] + one.asked["delay_ms"]
            if there.store_ms < due_ms:
                yield f"{there} has come {due_ms - there.store_ms} ms early ({one})"


def never_came(records: Records, stored: Sequence[Stored]) -> Iterator[str]:
    """All that was acknowledged, and not taken back, has come."""
    come = counted(of_topics(stored, LATER))
    for one in records.all("later"):
        is_due = one.is_ok and one.asked["kind"] in TO_COME
        if is_due and (LATER, one.asked["values"][0]) not in come:
            yield f"it has not come: {one}"


def came_though_cancelled(records: Records, stored: Sequence[Stored]) -> Iterator[str]:
    """Nothing comes of which was acknowledged that it is taken back."""
    come = counted(of_topics(stored, LATER))
    for one in records.all("cancel"):
        if one.is_ok and (there := come.get((LATER, one.asked["values"][0]))):
            yield f"{there[0]} has come, and was taken back ({one})"


def not_whole(records: Records, stored: Sequence[Stored]) -> Iterator[str]:
    """Of a transaction all is visible, each message once, or nothing: as was decided."""
    decided = {one.asked["id"]: one.asked["decision"] for one in records.all("decide")}
    seen = counted(of_topics(stored, DEBITS, CREDITS))
    wanted = set()
    for one in records.all("transaction"):
        decision = decided.get(one.asked["id"])
        for part, value in enumerate(one.asked["values"]):
            key = (DEBITS, CREDITS)[part % 2], value
            wanted.add(key)
            times = len(seen.get(key, []))
            if times != int(decision == "COMMIT"):
                yield f"{key} is there {times} times, decided was {decision} ({one})"
    for key in seen.keys() - wanted:
        yield f"{key} is of no transaction"


def seen_too_early(records: Records, stored: Sequence[Stored]) -> Iterator[str]:
    """Nobody is given a message before it is decided that its transaction is committed."""
    del stored
    decided = {
        one.asked["id"]: one.start_ns
        for one in records.all("decide")
        if one.asked["decision"] == "COMMIT"
    }
    since = {
        value: decided.get(one.asked["id"])
        for one in records.all("transaction")
        for value in one.asked["values"]
    }
    for read in records.all("read"):
        if not read.is_ok or read.told["topic"] not in (DEBITS, CREDITS):
            continue
        for value in read.told["values"]:
            at = since.get(value)
            if at is None or read.end_ns < at:
                yield f"{read.client} was given {value} before it was committed"


class _Highest:
    """The highest offset before any time: an hour has tens of thousands of each."""

    def __init__(self, offsets: Iterable[tuple[int, int]]) -> None:
        """Times and offsets in any order."""
        found = sorted(offsets)
        self._times = [at for at, _ in found]
        self._highest = [0, *accumulate((offset for _, offset in found), max)]

    def before(self, time_ns: int) -> int:
        """0 where there is none."""
        return self._highest[bisect_left(self._times, time_ns)]


def offset_fell_back(records: Records, stored: Sequence[Stored]) -> Iterator[str]:
    """Who looks at committed offsets is told none behind an acknowledged one, none never wanted."""
    del stored
    commits: defaultdict[str, list[Operation]] = defaultdict(list)
    for one in records.all("commit offset"):
        commits[str(one.asked["queue"])].append(one)
    asked = {
        queue: (
            _Highest((one.end_ns, one.asked["offset"]) for one in of_queue if one.is_ok),
            _Highest((one.start_ns, one.asked["offset"]) for one in of_queue),
        )
        for queue, of_queue in commits.items()
    }
    for look in records.all("look at offsets"):
        if not look.is_ok:
            continue
        for queue, (acknowledged, begun) in asked.items():
            told = look.told["offsets"].get(queue, 0)
            known, wanted = acknowledged.before(look.start_ns), begun.before(look.end_ns)
            if not known <= told <= wanted:
                yield (
                    f"{look.client} was told {told} of queue {queue}, where {known} was"
                    f" acknowledged and {wanted} asked for ({look})"
                )


def taken_though_closed(records: Records, stored: Sequence[Stored]) -> Iterator[str]:
    """A topic that is closed or deleted takes no message that is sent from then on."""
    del stored
    changes: defaultdict[str, list[Operation]] = defaultdict(list)
    for one in records.all("create", "open", "close", "delete"):
        changes[one.asked["topic"]].append(one)
    shut: defaultdict[str, list[tuple[Operation, int]]] = defaultdict(list)
    for topic, of_topic in changes.items():
        for number, change in enumerate(of_topic):
            if change.is_ok and change.verb in ("close", "delete"):
                again = (o.start_ns for o in of_topic[number + 1 :] if o.verb in ("create", "open"))
                shut[topic].append((change, next(again, 1 << 62)))
    for send in sends(records):
        for change, until_ns in shut.get(send.asked["topic"], ()):
            if send.is_ok and change.end_ns < send.start_ns and send.end_ns < until_ns:
                yield f"{change.verb} was acknowledged, and then {send}"


def unread_by_group(records: Records, stored: Sequence[Stored]) -> Iterator[str]:
    """The group has read every message of its topic, and again what it gave back."""
    seen: set[str] = set()
    again: set[str] = set()
    for poll in records.all("poll"):
        if poll.is_ok:
            for value, times in zip(poll.told["values"], poll.told["times"], strict=True):
                (again if times else seen).add(value)
    for message in of_topics(stored, WORK):
        if message.value not in seen:
            yield f"the group has not read {message}"
    for one in records.all("give back"):
        if one.is_ok and one.asked["values"][0] not in again:
            yield f"the group has not read again what it gave back: {one}"


def begun_behind_commit(records: Records, stored: Sequence[Stored]) -> Iterator[str]:
    """Who begins with a queue begins where its group has committed, or behind."""
    del stored
    committed: defaultdict[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)
    begun: dict[tuple[str, str, int], int] = {}
    position: dict[tuple[str, str, int], int] = {}
    for one in sorted(records.all("poll", "commit", "assigned", "revoked", "lost"), key=_when):
        if not one.is_ok:
            continue
        if one.verb == "poll":
            if not one.told["offsets"]:
                continue
            place = one.told["topic"], one.told["queue"]
            mine = one.client, *place
            first = one.told["offsets"][0]
            if mine not in position and mine in begun:
                known = max((o for ns, o in committed[place] if ns < begun[mine]), default=0)
                if first < known:
                    yield f"{mine} began at {first}, where {known} was committed ({one})"
            position[mine] = one.told["offsets"][-1] + 1
        elif one.verb == "commit":
            for (client, topic, queue), reached in position.items():
                if client == one.client:
                    committed[topic, queue].append((one.end_ns, reached))
        else:
            for topic, queue in one.asked["queues"]:
                mine = one.client, topic, queue
                position.pop(mine, None)
                begun[mine] = one.start_ns


def _when(one: Operation) -> int:
    return one.end_ns


def _has_window(topic: str) -> bool:
    return topic == ONCE or topic.startswith(WINDOW)
