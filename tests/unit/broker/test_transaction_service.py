"""Ends of transactions and questions about them, over a log in memory that is cut anywhere."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ledgermq.broker.callers import Caller
from ledgermq.broker.calls import Call, CheckTopic, anybody
from ledgermq.broker.transactions.transaction_service import (
    END_MS,
    TransactionService,
)
from ledgermq.formats.records.message import Message, encode_message
from ledgermq.formats.records.properties import encode_properties
from ledgermq.model.config.settings import TransactionsSection
from ledgermq.model.errors import (
    LedgerError,
    NoPermissionError,
    NotLeaderError,
    OutcomeUnknownError,
    TransactionEndedError,
    TransactionUnknownError,
)
from ledgermq.model.names.transactions import HALF_TOPIC, OP_TOPIC, UNANSWERED_TOPIC
from ledgermq.model.rights import Right
from ledgermq.process.clock import MachineClock
from ledgermq.rules.messages import half_table
from ledgermq.rules.messages.transactions import GROUP
from ledgermq.wire.session import FOLLOWER, Standing
from tests.unit.broker.answers import answers
from tests.unit.broker.applied import apply_all
from tests.unit.broker.memory_log import MemoryLog, proposal_of
from tests.unit.broker.state_node import StateNode

INTERVAL_MS = 10_000
STORED_MS = time.time_ns() // 1_000_000 - 600_000
"""Long enough ago to be asked for, and not so long that nobody is asked any more."""


def half(transaction: str, part: int, topic: str = "orders") -> bytes:
    properties = {
        "TRAN_MSG": "true",
        "PGROUP": "g",
        "REAL_TOPIC": topic,
        "REAL_QID": "0",
        "UNIQ_KEY": f"U-{transaction}-{part}",
        "__transactionId__": transaction,
    }
    body = f"{transaction}{part}".encode()
    return encode_message(
        Message(
            topic=HALF_TOPIC,
            queue_id=0,
            body=body,
            properties=encode_properties(properties),
            born_timestamp=STORED_MS,
        )
    )


class JumpingClock(MachineClock):
    """The machine's, whose time of day a test sets ahead."""

    ahead_ms = 0

    def epoch_ns(self) -> int:
        return time.time_ns() + self.ahead_ms * 1_000_000


class Node(StateNode):
    """The broker of one node; it leads ``term`` from the moment it is made.

    ``answers`` are the outcomes of calls by their number.
    """

    def __init__(self, directory: Path, log: MemoryLog, term: int, **rules: int) -> None:
        checks = {"transaction_check_interval_ms": INTERVAL_MS, "transaction_check_max": 3}
        super().__init__(directory, log, transactions=TransactionsSection(**{**checks, **rules}))
        self.clock = JumpingClock()
        self.service = TransactionService(
            self.known,
            self.state,
            self.moves,
            self.settings,
            mailbox=self.mailbox,
            clock=self.clock,
            counts=self.counts,
            find=self._find,
        )
        self._verbs = answers(self.service.verbs)
        self.check_topic: CheckTopic = anybody
        self.answers: dict[int, Mapping[str, Any] | LedgerError] = {}
        self.lead(term)

    def _find(self, topic: str, key: str) -> list[memoryview]:
        """As the index does."""
        return [
            memoryview(encode_message(message))
            for message in self.log.messages(topic)
            if message.parsed_properties().get("UNIQ_KEY") == key
        ]

    def call(self, number: int, verb: str, **arguments: object) -> None:
        """Ask; the answer comes with a turn when it is not there at once."""
        result = self._verbs[verb](
            Call(Caller(b"c", number), arguments, self.now_ms, self.check_topic)
        )
        if result is not None:
            self.answers[number] = result

    def end(self, number: int, transaction: str, decision: str, messages: int) -> None:
        self.call(
            number,
            "transaction_end",
            group="g",
            transaction=transaction,
            decision=decision,
            messages=messages,
            offset=-1,
        )

    def turn(self) -> None:
        """One turn of the broker."""
        apply_all(self.state)
        for service in (self.moves, self.service, self.state):
            service.turn(self.now_ms)
        for reply in self.mailbox.take():
            self.answers[reply.caller.request_id] = reply.outcome

    def run(self, *, now_ms: int = 0, records_max: int | None = None) -> bool:
        """Have the writer take what comes, until nothing does; false when so many were not enough.

        Args:
            records_max: where a crash cuts: the log gets this many more records, and no others.
        """
        self.now_ms = max(self.now_ms, now_ms)
        idle = taken = 0
        for _ in range(100):
            self.turn()
            idle = 0 if self.log.orders else idle + 1
            if idle == 3:
                return True
            while self.log.orders:
                count = len(proposal_of(self.log.orders[0]).records)
                if records_max is not None and taken + count > records_max:
                    self.log.take(records_max - taken)
                    self.log.orders.clear()
                    return False
                taken += self.log.take()
        raise AssertionError("it goes on for ever")

    def waiting(self) -> list[str]:
        """Transactions that wait for their end."""
        self.call(999, "transactions", count=100)
        found = self.answers[999]
        assert not isinstance(found, LedgerError)
        return [row["transaction"] for row in found["transactions"]]


def log_of(*halves: bytes) -> MemoryLog:
    log = MemoryLog()
    log.store_timestamp = STORED_MS
    for one in halves:
        log.put(one)
    return log


def bodies(log: MemoryLog, topic: str) -> list[str]:
    return sorted(bytes(one.body).decode() for one in log.messages(topic))


def decisions(node: Node) -> dict[int, object]:
    return {
        number: answer if isinstance(answer, LedgerError) else answer["decision"]
        for number, answer in node.answers.items()
        if isinstance(answer, LedgerError) or "decision" in answer
    }


CUTS = range(11)


@pytest.mark.parametrize("cut", CUTS)
def test_ends_that_a_crash_has_cut_are_finished_by_the_next_leader(
    tmp_path: Path, cut: int
) -> None:
    log = log_of(half("a", 0), half("b", 0), half("a", 1, "stock"), half("c", 0))
    dead = Node(tmp_path / "dead", log, 1)
    dead.end(1, "a", "commit", 2)
    dead.end(2, "b", "rollback", 0)
    has_ended = dead.run(records_max=cut)
    node = Node(tmp_path / "next", log, 2)
    # Who has no answer asks again.
    node.end(1, "a", "commit", 2)
    node.end(2, "b", "rollback", 0)
    node.run()
    found = decisions(node)
    node.end(3, "a", "rollback", 0)
    node.end(4, "b", "rollback", 0)
    node.end(5, "never", "commit", 1)
    node.run()

    assert found == {1: "commit", 2: "rollback"}
    assert bodies(log, "orders") == ["a0"]
    assert bodies(log, "stock") == ["a1"]
    assert bodies(log, OP_TOPIC) == ["0", "1", "2"]
    assert isinstance(node.answers[3], TransactionEndedError)
    assert decisions(node)[4] == "rollback"
    assert isinstance(node.answers[5], TransactionUnknownError)
    assert node.waiting() == ["c"]
    assert node.tables.offsets.offsets(GROUP, HALF_TOPIC) == {0: 3}
    assert has_ended is (cut >= 9)


@pytest.mark.parametrize("cut", range(10))
def test_a_question_that_a_crash_has_cut_leaves_one_half_message(tmp_path: Path, cut: int) -> None:
    log = log_of(half("a", 0), half("b", 0), half("a", 1))
    dead = Node(tmp_path / "dead", log, 1)
    dead.turn()
    dead.run(now_ms=INTERVAL_MS, records_max=cut)
    node = Node(tmp_path / "next", log, 2)
    node.run()
    before = node.waiting()
    node.end(1, "a", "commit", 2)
    node.run()

    assert sorted(before) == ["a", "b"]
    assert decisions(node)[1] == "commit"
    assert bodies(log, "orders") == ["a0", "a1"]
    assert node.waiting() == ["b"]


def test_producers_are_asked_and_the_unanswered_is_put_aside(tmp_path: Path) -> None:
    log = log_of(half("a", 0), half("b", 0), half("a", 1))
    node = Node(tmp_path, log, 1)
    node.run()
    node.call(1, "transaction_checks", group="others", wait_ms=30_000)
    node.call(2, "transaction_checks", group="g", wait_ms=30_000)
    node.call(3, "transaction_checks", group="g", wait_ms=30_000)
    node.run(now_ms=INTERVAL_MS)
    node.run(now_ms=2 * INTERVAL_MS)
    node.call(4, "transaction_checks", group="g", wait_ms=0)
    node.run(now_ms=3 * INTERVAL_MS)
    node.call(5, "transaction_checks", group="g", wait_ms=0)
    node.run(now_ms=4 * INTERVAL_MS)

    def told(number: int) -> list[tuple[str, int, int]]:
        answer = node.answers[number]
        assert not isinstance(answer, LedgerError)
        rows = answer["checks"]
        return sorted((row["transaction"], row["checks"], len(row["positions"])) for row in rows)

    # Those who wait are asked in turns; those of other groups, and whom nothing is left for, are
    # told nothing; what nobody has fetched waits for who comes.
    assert (told(2), told(3)) == ([("a", 0, 2), ("b", 0, 1)], [("a", 1, 2), ("b", 1, 1)])
    assert (told(1), told(4), told(5)) == ([], [], [("a", 2, 2), ("b", 2, 1)])
    assert bodies(log, UNANSWERED_TOPIC) == ["a0", "a1", "b0"]
    assert node.waiting() == []
    assert [
        one.parsed_properties().get("TRANSACTION_CHECK_TIMES")
        for one in log.messages(UNANSWERED_TOPIC)
    ] == ["3"] * 3
    assert node.tables.topics.get(UNANSWERED_TOPIC) is not None


def test_a_clock_that_jumps_gives_no_half_message_up(tmp_path: Path) -> None:
    log = log_of(half("a", 0))
    node = Node(tmp_path, log, 1)
    node.run()
    node.clock.ahead_ms = 60 * 86_400_000
    node.call(1, "transaction_checks", group="g", wait_ms=30_000)
    node.run(now_ms=INTERVAL_MS)

    # It is asked for, as one of minutes ago is.
    answer = node.answers[1]
    assert not isinstance(answer, LedgerError)
    assert [row["transaction"] for row in answer["checks"]] == ["a"]
    assert bodies(log, UNANSWERED_TOPIC) == []


def refuse_all(topic: str, right: Right) -> None:
    raise NoPermissionError("not yours", topic=topic, right=right.text)


def test_who_may_not_send_to_a_topic_gets_no_question_and_takes_none_from_others(
    tmp_path: Path,
) -> None:
    node = Node(tmp_path, log_of(half("a", 0)), 1)
    node.run()
    node.check_topic = refuse_all
    node.call(1, "transaction_checks", group="g", wait_ms=30_000)
    node.check_topic = anybody
    node.call(2, "transaction_checks", group="g", wait_ms=30_000)
    node.run(now_ms=INTERVAL_MS)
    node.run(now_ms=2 * INTERVAL_MS)
    node.check_topic = refuse_all
    node.call(3, "transaction_checks", group="g", wait_ms=0)
    node.run(now_ms=3 * INTERVAL_MS)
    node.check_topic = anybody
    node.call(4, "transaction_checks", group="g", wait_ms=0)
    node.run()
    asked = {
        number: [] if isinstance(answer, LedgerError) else answer["checks"]
        for number, answer in node.answers.items()
    }

    assert [len(asked[number]) for number in (1, 2, 3, 4)] == [0, 1, 0, 1]


@pytest.mark.parametrize("decision", ["commit", "rollback"])
def test_who_may_not_send_to_a_topic_ends_no_transaction_of_it(
    tmp_path: Path, decision: str
) -> None:
    log = log_of(half("a", 0))
    node = Node(tmp_path, log, 1)
    node.run()
    node.check_topic = refuse_all
    node.end(1, "a", decision, 1)
    node.run()
    node.check_topic = anybody

    assert isinstance(node.answers[1], NoPermissionError)
    assert node.waiting() == ["a"]


def test_an_end_waits_for_its_messages_and_not_for_ever(tmp_path: Path) -> None:
    log = log_of(half("a", 0))
    node = Node(tmp_path, log, 1)
    node.run()
    late = {"group": "g", "decision": "commit", "messages": 2, "offset": 1}
    node.call(1, "transaction_end", transaction="a", **late)
    node.run()
    is_early = 1 not in node.answers
    log.put(half("a", 1))
    node.run()
    node.call(2, "transaction_end", transaction="b", **{**late, "offset": 99})
    node.run()
    assert 2 not in node.answers
    node.run(now_ms=END_MS)

    assert (is_early, decisions(node)[1]) == (True, "commit")
    assert isinstance(node.answers[2], OutcomeUnknownError)
    assert bodies(log, "orders") == ["a0", "a1"]


def test_who_leads_no_more_says_so_to_all_that_wait(tmp_path: Path) -> None:
    log = log_of(half("a", 0))
    node = Node(tmp_path, log, 1)
    node.run()
    node.call(1, "transaction_checks", group="g", wait_ms=30_000)
    node.end(2, "a", "commit", 1)
    node.turn()
    node.state.lead(Standing(FOLLOWER, 2, "n1"))
    node.turn()

    assert isinstance(node.answers[1], NotLeaderError)
    assert isinstance(node.answers[2], NotLeaderError)
    with pytest.raises(NotLeaderError):
        node.end(3, "a", "commit", 1)
    with pytest.raises(NotLeaderError):
        node.call(4, "transactions", count=1)


def test_a_refused_group_is_made_again(tmp_path: Path) -> None:
    log = log_of(half("a", 0), half("b", 0))
    node = Node(tmp_path, log, 1)
    node.run()
    node.end(1, "a", "commit", 1)
    node.turn()
    order = proposal_of(log.orders.pop())
    node.state.take_refusal(order.sequence)
    node.turn()
    is_early = 1 not in node.answers
    node.run(now_ms=2_500)

    assert is_early
    assert decisions(node) == {1: "commit"}
    assert bodies(log, "orders") == ["a0"]


def test_what_rocketmq_has_left_is_gone_on_with(tmp_path: Path) -> None:
    log = log_of(half("a", 0), half("b", 0), half("c", 0), half("d", 0))
    by_rocketmq = Message(topic=OP_TOPIC, queue_id=0, body=b"1", properties=b"TAGS\x01d")
    log.put(encode_message(by_rocketmq))
    node = Node(tmp_path, log, 1)
    # As ``consumerOffset.json`` says: it was done with the first.
    node.tables.offsets.set(GROUP, HALF_TOPIC, {0: 1})
    node.run()
    before = node.waiting()
    node.end(1, "b", "commit", 1)
    node.end(2, "d", "commit", 1)
    node.run()

    assert before == ["c", "d"]
    assert isinstance(node.answers[1], TransactionEndedError)
    assert decisions(node)[2] == "commit"
    assert bodies(log, "orders") == ["d0"]
    assert node.tables.offsets.offsets(GROUP, HALF_TOPIC) == {0: 2}


def test_an_end_that_nobody_remembers_any_more_is_found_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(half_table, "ENDED_MAX", 1)
    log = log_of(half("a", 0), half("b", 0), half("c", 0))
    node = Node(tmp_path / "one", log, 1)
    for number, (name, decision) in enumerate(
        (("a", "commit"), ("b", "rollback"), ("c", "commit"))
    ):
        node.end(number, name, decision, 1)
        node.run()
    node.end(11, "a", "commit", 1)
    node.end(12, "b", "rollback", 1)
    node.end(13, "a", "rollback", 1)
    node.end(14, "never", "commit", 1)
    node.run()
    told = decisions(node)

    assert (told[11], told[12]) == ("commit", "rollback")
    assert isinstance(told[13], TransactionEndedError)
    assert isinstance(told[14], TransactionUnknownError)
    assert bodies(log, "orders") == ["a0", "c0"]
