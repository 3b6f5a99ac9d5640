"""The rules of a run find what they are for, each once, and nothing in a good story."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ledgermq.model.errors import MessageIllegalError, TimedOutError
from tests.random_faults.clients.place import (
    BATCHES,
    CREDITS,
    DEBITS,
    KEYS,
    LATER,
    ONCE,
    PORT,
    WORK,
)
from tests.random_faults.judgement import RULES, broken_rules, longest_pauses, tracebacks
from tests.random_faults.records import Recorder, Records
from tests.random_faults.rules.stored import Stored

LIFE, WINDOW = "life-topics0", "window-windows0-1"
RETRY = "%RETRY%workers"
NOW_MS = 1_700_000_000_000


class Story:
    """What clients have recorded, and what the log has in the end."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._recorders: dict[str, Recorder] = {}
        self._positions = itertools.count(0, 100)
        self._offsets: Counter[tuple[str, int]] = Counter()
        self.stored: list[Stored] = []

    def by(self, client: str) -> Recorder:
        """The records of a client."""
        if client not in self._recorders:
            self._recorders[client] = Recorder(self._folder / f"{client}.jsonl")
        return self._recorders[client]

    def store(
        self, topic: str, value: str, *, queue: int = 0, unique_id: str = "", at_ms: int = NOW_MS
    ) -> Stored:
        """Put a message at the end of the log."""
        offset = self._offsets[topic, queue]
        self._offsets[topic, queue] += 1
        found = Stored(
            topic, queue, offset, value, unique_id or value, next(self._positions), at_ms
        )
        self.stored.append(found)
        return found

    def begin(self, client: str, topic: str, value: str, **asked: Any) -> int:
        return self.by(client).begin("send", topic=topic, values=[value], **asked)

    def ok(self, client: str, number: int, at: Stored, *, is_duplicate: bool = False) -> None:
        """Acknowledge a send."""
        self.by(client).ok(
            number, queues=[at.queue], offsets=[at.offset], positions=[at.position],
            duplicates=[is_duplicate],
        )  # fmt: skip

    def send(self, client: str, topic: str, value: str, queue: int = 0, **asked: Any) -> Stored:
        """Send, store and acknowledge."""
        number = self.begin(client, topic, value, **asked)
        ids = asked.get("ids", [""])
        stored = self.store(topic, value, queue=queue, unique_id=ids[0])
        self.ok(client, number, stored)
        return stored

    def read(self, client: str, *found: Stored, verb: str = "read", times: int = 0) -> None:
        """A reader is given messages of one queue; it asked for their topic."""
        asked = {"topic": found[0].topic} if verb == "read" else {}
        number = self.by(client).begin(verb, **asked)
        self.by(client).ok(
            number, topic=found[0].topic, queue=found[0].queue,
            offsets=[one.offset for one in found], values=[one.value for one in found],
            times=[times] * len(found),
        )  # fmt: skip

    def note_ok(
        self, client: str, verb: str, told: dict[str, Any] | None = None, **asked: Any
    ) -> None:
        """Ask for something, and be told that it is done."""
        self.by(client).ok(self.by(client).begin(verb, **asked), **(told or {}))

    def later(self, value: str, kind: str, delay_ms: int = 1_000) -> None:
        """Send something for later, which waits in another topic."""
        number = self.by("later0").begin(
            "later", topic=LATER, kind=kind, values=[value], delay_ms=delay_ms, wall_ms=NOW_MS
        )
        self.ok("later0", number, self.store("WAITING", value))

    def transaction(self, name: str, decision: str, *values: str) -> None:
        """Decide on a transaction; what it makes visible is stored by another."""
        number = self.by("transactions0").begin("transaction", id=name, values=list(values))
        self.by("transactions0").note("decide", id=name, decision=decision)
        self.by("transactions0").ok(number)

    def without(self, wrong: Stored) -> None:
        """Lose a message."""
        self.stored.remove(wrong)

    def broken(self) -> dict[str, list[str]]:
        return broken_rules(Records(self._folder).refresh(), self.stored)


def tell_senders(story: Story) -> None:
    story.send("keys0", KEYS, "k1", key="a")
    story.send("keys0", KEYS, "k2", key="a")
    story.send("batches0", BATCHES, "b1", queue=0)
    refused = story.begin("batches1", BATCHES, "b2", queue=0)
    story.by("batches1").failed(refused, MessageIllegalError("no"), is_send=True)
    unknown = story.begin("batches1", BATCHES, "b3", queue=0)
    story.by("batches1").failed(unknown, TimedOutError("late"), is_send=True)
    story.store(BATCHES, "b3")
    number = story.begin("port0", PORT, "p1", queue=0)
    stored = story.store(PORT, "p1")
    story.by("port0").ok(number, queues=[0], offsets=[stored.offset])


def tell_services(story: Story) -> None:
    first = story.send("once0", ONCE, "o1", ids=["i1"])
    again = story.begin("once1", ONCE, "o2", ids=["i1"])
    story.ok("once1", again, first, is_duplicate=True)
    for value, kind in (("l1", "level"), ("l2", "timer"), ("l3", "cancelled"), ("l4", "far")):
        story.later(value, kind, 86_400_000 if kind == "far" else 1_000)
    story.note_ok("later0", "cancel", values=["l3"])
    for value in ("l1", "l2"):
        story.store(LATER, value, at_ms=NOW_MS + 1_000)
    story.transaction("t1", "COMMIT", "d1", "c1")
    story.transaction("t2", "ROLLBACK", "d2", "c2")
    debit, _ = story.store(DEBITS, "d1"), story.store(CREDITS, "c1")
    story.read("tail3", debit)
    for offset in (1, 2):
        story.note_ok("register0", "commit offset", queue=0, offset=offset)
    story.note_ok("lookup0", "look at offsets", {"offsets": {"0": 2}})


def tell_topics(story: Story) -> None:
    story.note_ok("topics0", "create", topic=LIFE)
    story.send("topics0", LIFE, "x1")
    story.note_ok("topics0", "close", topic=LIFE)
    refused = story.begin("topics0", LIFE, "x2")
    story.by("topics0").failed(refused, MessageIllegalError("closed"), is_send=True)
    story.note_ok("topics0", "open", topic=LIFE)
    story.send("topics0", LIFE, "x3")
    story.note_ok("topics0", "delete", topic=LIFE)


def tell_group(story: Story) -> None:
    work = [story.send("work0", WORK, f"w{number}", queue=0) for number in range(3)]
    story.by("member0").note("assigned", queues=[[WORK, 0]])
    story.read("member0", *work[:2], verb="poll")
    story.note_ok("member0", "give back", values=["w0"])
    story.note_ok("member0", "commit")
    story.by("member0").note("lost", queues=[[WORK, 0]])
    story.by("member1").note("assigned", queues=[[WORK, 0], [RETRY, 0]])
    story.read("member1", work[2], verb="poll")
    story.read("member1", story.store(RETRY, "w0"), verb="poll", times=1)
    story.note_ok("member1", "commit")


@pytest.fixture
def story(tmp_path: Path) -> Story:
    """A good one, in which every kind of client has its part."""
    made = Story(tmp_path)
    for tell in (tell_senders, tell_services, tell_topics, tell_group):
        tell(made)
    batches = [one for one in made.stored if one.topic == BATCHES]
    made.read("tail1", *batches)
    return made


def stored_as(story: Story, value: str) -> Stored:
    return next(one for one in reversed(story.stored) if one.value == value)


def lose(story: Story) -> None:
    story.without(stored_as(story, "k2"))


def misplace(story: Story) -> None:
    number = story.begin("batches0", BATCHES, "new", queue=0)
    there = story.store(BATCHES, "new")
    story.ok("batches0", number, there._replace(offset=there.offset + 1))


def double(story: Story) -> None:
    story.store(KEYS, "k2")


def invent(story: Story) -> None:
    story.store(PORT, "nobody's")


def store_refused(story: Story) -> None:
    story.store(BATCHES, "b2")


def leave_hole(story: Story) -> None:
    story._offsets[WORK, 1] += 1
    story.store(WORK, "behind a hole", queue=1)


def turn_keys_round(story: Story) -> None:
    first, second = (story.begin("keys0", KEYS, value, key="b") for value in ("n1", "n2"))
    story.ok("keys0", second, story.store(KEYS, "n2", queue=1))
    story.ok("keys0", first, story.store(KEYS, "n1", queue=1))


def turn_time_round(story: Story) -> None:
    sooner = story.begin("batches0", BATCHES, "s", queue=1)
    at = len(story.stored)
    there = story.store(BATCHES, "s", queue=1)
    story.ok("batches0", sooner, there)
    later = story.send("batches0", BATCHES, "t", queue=1)
    story.stored[at:] = [later, there]


def misread(story: Story) -> None:
    story.read("tail1", Stored(BATCHES, 0, 2, "other", "", 0, 0))


def pass_over(story: Story) -> None:
    one = story.send("batches0", BATCHES, "unread", queue=0)
    assert one.offset == 2


def skip_in_the_middle(story: Story) -> None:
    story.send("batches0", BATCHES, "skipped", queue=0)
    story.read("tail1", story.send("batches0", BATCHES, "read", queue=0))


def reset(story: Story) -> None:
    story.by("tail1").note("reset", told="elsewhere")


def store_id_twice(story: Story) -> None:
    story.store(ONCE, "o2", unique_id="i1")


def forget_window(story: Story) -> None:
    for value in ("v1", "v2"):
        story.send("windows0", WINDOW, value, ids=["w"])


def come_early(story: Story) -> None:
    story.later("l5", "timer", 5_000)
    story.store(LATER, "l5", at_ms=NOW_MS + 4_999)


def never_come(story: Story) -> None:
    story.later("l6", "level")


def come_though_cancelled(story: Story) -> None:
    story.store(LATER, "l3", at_ms=NOW_MS + 2_000)


def see_rolled_back(story: Story) -> None:
    story.store(DEBITS, "d2")


def see_a_half(story: Story) -> None:
    story.transaction("t3", "COMMIT", "d3", "c3")
    story.store(DEBITS, "d3")


def see_too_early(story: Story) -> None:
    number = story.by("transactions0").begin("transaction", id="t4", values=["d4"])
    story.read("tail3", story.store(DEBITS, "d4"))
    time.sleep(1e-6)
    story.by("transactions0").note("decide", id="t4", decision="COMMIT")
    story.by("transactions0").ok(number)


def fall_back(story: Story) -> None:
    story.note_ok("lookup0", "look at offsets", {"offsets": {"0": 1}})


def run_ahead(story: Story) -> None:
    story.note_ok("lookup0", "look at offsets", {"offsets": {"0": 3}})


def take_when_deleted(story: Story) -> None:
    story.send("topics0", LIFE, "x4")


def take_when_closed(story: Story) -> None:
    story.note_ok("topics0", "create", topic=LIFE)
    story.note_ok("topics0", "close", topic=LIFE)
    story.send("topics0", LIFE, "x5")


def leave_unread(story: Story) -> None:
    story.send("work0", WORK, "w9", queue=0)


def forget_given_back(story: Story) -> None:
    story.note_ok("member0", "give back", values=["w1"])


def begin_behind(story: Story) -> None:
    story.by("member1").note("lost", queues=[[WORK, 0]])
    story.by("member0").note("assigned", queues=[[WORK, 0]])
    story.read("member0", stored_as(story, "w2"), verb="poll")


WRONG: dict[str, tuple[Callable[[Story], None], ...]] = {
    "lost": (lose,),
    "misplaced": (misplace,),
    "doubled": (double,),
    "invented": (invent, store_refused),
    "uncounted": (leave_hole,),
    "out_of_key_order": (turn_keys_round,),
    "out_of_time_order": (turn_time_round,),
    "misread": (misread,),
    "passed_over": (pass_over, skip_in_the_middle, reset),
    "not_once": (store_id_twice, forget_window),
    "too_early": (come_early,),
    "never_came": (never_come,),
    "came_though_cancelled": (come_though_cancelled,),
    "not_whole": (see_rolled_back, see_a_half),
    "seen_too_early": (see_too_early,),
    "offset_fell_back": (fall_back, run_ahead),
    "taken_though_closed": (take_when_deleted, take_when_closed),
    "unread_by_group": (leave_unread, forget_given_back),
    "begun_behind_commit": (begin_behind,),
}


CASES = [(rule, wrong) for rule, some in WRONG.items() for wrong in some]


def test_a_good_story_breaks_no_rule(story: Story) -> None:
    assert story.broken() == {}


def test_each_rule_is_broken_below() -> None:
    assert WRONG.keys() == {rule.__name__ for rule in RULES}


@pytest.mark.parametrize(("rule", "wrong"), CASES)
def test_what_breaks_a_rule_is_found(
    story: Story, rule: str, wrong: Callable[[Story], None]
) -> None:
    wrong(story)

    assert rule in story.broken()


def test_the_longest_pause_of_a_kind_is_that_of_all_its_clients(tmp_path: Path) -> None:
    story = Story(tmp_path)
    begin_ns = time.monotonic_ns()
    story.send("keys0", KEYS, "a", key="k")
    story.send("keys1", KEYS, "b", key="k")
    ends = [one.end_ns for one in Records(tmp_path).refresh().all()]
    end_ns = max(ends) + 7_000_000_000

    assert longest_pauses(Records(tmp_path).refresh(), begin_ns, end_ns) == {"keys": 7.0}


def test_a_traceback_in_a_log_is_told_with_its_line(tmp_path: Path) -> None:
    log = tmp_path / "node.log"
    log.write_text("fine\nTraceback (most recent call last):\n  …\n")

    assert list(tracebacks([log])) == ["node.log:2: Traceback (most recent call last):"]
