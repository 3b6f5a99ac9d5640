"""The broker of one node over a log in memory, as far as giving back and replaying go."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ledgermq.broker.callers import Caller
from ledgermq.broker.calls import Call, CheckTopic, anybody
from ledgermq.broker.consumers.dead_letter_calls import DeadLetterCalls
from ledgermq.broker.consumers.retry_topics import RetryCalls
from ledgermq.model.errors import LedgerError
from ledgermq.process.clock import MACHINE_CLOCK
from ledgermq.rules.tables.topics import Topic
from tests.unit.broker.answers import answers
from tests.unit.broker.applied import apply_all
from tests.unit.broker.memory_log import MemoryLog
from tests.unit.broker.state_node import StateNode


class RetryLog(MemoryLog):
    """A log in memory that has lost nothing of its begin."""

    first_position = 0
    pending_from = 2**62

    def is_pending(self, position: int) -> bool:
        """Whether it was written a moment ago."""
        return position >= self.pending_from

    def leads_alone(self, now_ns: int) -> bool:
        """A node of its own has nobody beside it."""
        del now_ns
        return True


class RetryNode(StateNode):
    """It leads ``term`` from the moment it is made; ``answers`` are the outcomes by request id."""

    def __init__(self, directory: Path, log: RetryLog, term: int, *topics: Topic) -> None:
        super().__init__(directory, log)
        for topic in topics:
            self.tables.topics.put(topic, 0)
        self.retries = RetryCalls(
            self.known,
            self.state,
            log.record_at,
            self.settings,
            mailbox=self.mailbox,
            clock=MACHINE_CLOCK,
            counts=self.counts,
        )
        self.letters = DeadLetterCalls(
            self.known,
            self.state,
            self.moves,
            self.settings,
            mailbox=self.mailbox,
            counts=self.counts,
        )
        self.answers: dict[int, Mapping[str, Any] | LedgerError] = {}
        self.check_topic: CheckTopic = anybody
        self.lead(term)

    def call(self, number: int, verb: str, **arguments: object) -> None:
        """Ask; the answer comes with ``turn`` when it is not there at once."""
        verbs = answers([*self.retries.verbs, *self.letters.verbs])
        call = Call(Caller(b"c", number), arguments, self.now_ms, self.check_topic)
        result = verbs[verb](call)
        if result is not None:
            self.answers[number] = result

    def turn(self) -> None:
        """One turn of the broker."""
        apply_all(self.state)
        for service in (self.letters, self.moves, self.state):
            service.turn(self.now_ms)
        for reply in self.mailbox.take():
            self.answers[reply.caller.request_id] = reply.outcome

    def run(self) -> None:
        """Have the writer take whatever comes, until nothing does."""
        idle = 0
        for _ in range(100):
            self.turn()
            idle = 0 if self.log.orders else idle + 1
            if idle == 3:
                return
            while self.log.orders:
                self.log.take()
        raise AssertionError("it goes on for ever")

    def propose(self) -> None:
        """Turn until something is proposed."""
        for _ in range(10):
            self.turn()
            if self.log.orders:
                return
        raise AssertionError("nothing was proposed")
