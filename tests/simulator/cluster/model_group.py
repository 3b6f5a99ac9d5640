"""Model of a group: three members with one log, a leader, and the real cluster table and questions.

Consensus is not driven here: the model says who leads, and what is committed is in the log. Members
apply it a little later, fall, rise, and have the same clock, which is no other group's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ledgermq.model.errors import LedgerError
from ledgermq.rules.cluster.cluster_commands import ClusterCommand, HomeCertified
from ledgermq.rules.cluster.cluster_plans import rights_age
from ledgermq.rules.cluster.cluster_table import ClusterTable
from ledgermq.rules.cluster.document_asker import DocumentAsker, Question
from ledgermq.rules.cluster.document_desk import DocumentDesk, DocumentReply, DocumentRequest
from ledgermq.rules.cluster.signatures import SigningKey
from ledgermq.rules.cluster.topic_rows import TOPIC_KIND
from ledgermq.rules.messages.topic_plans import plan_followed
from ledgermq.rules.tables.table_changes import TopicSet
from ledgermq.rules.tables.topics import TopicTable
from tests.simulator.cluster.cluster_network import ClusterNetwork

Entry = ClusterCommand | TopicSet
"""What the log of a group has."""

MEMBERS = 3
MAJORITY = 2
TICK_MS = 100
DRIFT_PER_MILLE = 20
"""Clocks go that much faster or slower."""


class Judge(Protocol):
    """Who looks at what happens."""

    def committed(self, group: ModelGroup) -> None:
        """A command was committed; the leader has applied it."""

    def applied(self, member: ModelMember) -> None:
        """A member has applied a command."""


class ModelMember:
    """One node of a group: its copy of the table, as far as it has applied the log."""

    def __init__(self, group: ModelGroup, number: int) -> None:
        self.group = group
        self.number = number
        self.is_up = True
        self.begin()

    @property
    def address(self) -> str:
        """The member's address in the group's row."""
        return f"{self.group.name}/{self.number}"

    def begin(self) -> None:
        """Start with nothing, and read the log from its beginning."""
        self.table = ClusterTable()
        self.topics = TopicTable()
        self.desk = DocumentDesk(self.table, self.group.key)
        self.applied = 0
        self.held: list[HeldQuestion] = []
        # The product hands over to who waits; here also to who has its answer: more may go wrong.
        self.heard: dict[str, DocumentRequest] = {}

    def catch_up(self) -> None:
        """Apply what the log has, and answer whoever waits for that."""
        log = self.group.log
        while self.is_up and self.applied < len(log):
            self._apply(log[self.applied])
            self.applied += 1
            self.group.judge.applied(self)
        held, self.held = self.held, []
        for one in held:
            self.receive(one)

    def _apply(self, entry: Entry) -> None:
        if isinstance(entry, TopicSet):
            self.topics.apply(entry, 0, 0)
        else:
            self.table.apply(entry)

    def receive(self, held: HeldQuestion) -> None:
        """Answer a question at once, or when there is something to say."""
        if not self.is_up:
            return
        self.heard[held.asked.group] = held.asked
        answered = self.desk.answer(held.asked, is_current=self.group.leads(self))
        self.group.learn(held.asked)
        has_news = (
            answered.document is not None
            or answered.is_parted
            or not answered.is_current
            or [*answered.chain] != [*held.asked.chain]
        )
        if has_news or self.group.network.now_ms >= held.until_ms:
            held.answer(answered)
        else:
            self.held.append(held)


class HeldQuestion:
    """A question that waits for an answer."""

    def __init__(
        self, asked: DocumentRequest, until_ms: int, answer: Callable[[DocumentReply], None]
    ) -> None:
        self.asked = asked
        self.until_ms = until_ms
        self.answer = answer


class ModelGroup:
    """One group.

    Attributes:
        log: what is committed.
        leader: the member that leads; None between two of them.
        leads_since_ms: since when it does, by the simulator's time.
        is_gone: all of its hosts are lost, for good.
        rights_max_age_ms: older rights count no more; 0: they always do.
    """

    def __init__(
        self, name: str, key: SigningKey, network: ClusterNetwork[HeldQuestion], judge: Judge
    ) -> None:
        self.name = name
        self.key = key
        self.network = network
        self.judge = judge
        self.log: list[Entry] = []
        self.members = [ModelMember(self, number) for number in range(MEMBERS)]
        self.leader: ModelMember | None = self.members[0]
        self.leads_since_ms = network.now_ms
        self.rights_max_age_ms = 0
        self.is_gone = False
        self.asker: DocumentAsker | None = None
        self._clock_ms = network.chance.randrange(1 << 40)
        self._rate = 1 + network.chance.randint(-DRIFT_PER_MILLE, DRIFT_PER_MILLE) / 1_000
        self._proposed = 0
        self._elects_ms = 0
        self._learned: int | None = None
        self._followed: tuple[ModelMember, int] | None = None
        network.listeners |= {member.address: member.receive for member in self.members}
        network.after(network.chance.randrange(TICK_MS), self._tick)

    @property
    def nodes(self) -> list[str]:
        """Addresses of all members."""
        return [member.address for member in self.members]

    @property
    def table(self) -> ClusterTable:
        """That of the leader, or of whoever has applied most."""
        return (self.leader or max(self.members, key=lambda one: one.applied)).table

    @property
    def can_commit(self) -> bool:
        """Whether a leader has a majority."""
        return self.leader is not None and self._has_majority()

    def clock_ms(self) -> int:
        """The time on this group's clocks."""
        return self._clock_ms + int(self.network.now_ms * self._rate)

    def true_ms(self, clock_ms: int) -> float:
        """What the simulator's time was when this group's clock showed that."""
        return (clock_ms - self._clock_ms) / self._rate

    def leads(self, member: ModelMember) -> bool:
        """Whether ``member`` leads, and has just confirmed that."""
        return member is self.leader and self.can_commit

    def propose(self, command: Entry, done: Callable[[], None] | None = None) -> None:
        """Commit ``command`` if the leader stays until that is done; ``done`` in either case.

        Of a leader that does not stay some commands are committed by the next one.
        """
        leader = self.leader
        self._proposed += 1

        def commit() -> None:
            self._proposed -= 1
            if leader is not None and leader is self.leader and self.can_commit:
                self._append(command)
            elif self.network.chance.randrange(3) == 0:
                self.network.after(self.network.chance.randint(500, 3_000), survive)
            if done is not None:
                done()

        def survive() -> None:
            if self.can_commit:
                self._append(command)

        self.network.after(self.network.chance.randint(1, 25), commit)

    def _append(self, command: Entry) -> None:
        assert self.leader is not None
        self.log.append(command)
        self.network.events.trace(f"{self.name} {command!r:.160}")
        self.leader.catch_up()
        self.judge.committed(self)
        for member in self.members:
            self.network.after(self.network.chance.randint(1, 60), member.catch_up)

    def learn(self, asked: DocumentRequest) -> None:
        """A home that is told of a greater chain than its own commits that, and signs no more."""
        mine = self.table.chain
        if mine is None or not self.can_commit or self._learned == len(self.log):
            return
        if len(asked.chain) > 0 and asked.chain[-1] not in mine.signed():
            self._learned = len(self.log)
            self.propose(HomeCertified(asked.chain))

    def fall(self, member: ModelMember) -> None:
        """A member stops; what was held there is lost."""
        self.network.events.trace(f"{member.address} falls")
        member.is_up = False
        member.held.clear()
        if member is self.leader:
            self.leader = None

    def rise(self, member: ModelMember) -> None:
        """It runs again, with what its disk has."""
        if not self.is_gone:
            member.is_up = True
            member.catch_up()

    def lose(self, count: int) -> None:
        """The power of all members fails, and the last commands were on no disk."""
        self.network.events.trace(f"{self.name} loses {count} of {len(self.log)}")
        del self.log[max(1, len(self.log) - count) :]
        self.leader = None
        for member in self.members:
            member.begin()
            member.catch_up()

    def _has_majority(self) -> bool:
        return sum(member.is_up for member in self.members) >= MAJORITY

    def _tick(self) -> None:
        if self.is_gone:
            return
        self.network.after(TICK_MS, self._tick)
        if not self._has_majority():
            self.leader = None
        elif self.leader is None:
            self._elect()
        else:
            self._ask()
            self._note_age()
            self._follow(self.leader)
            for member in self.members:
                expired = [one for one in member.held if one.until_ms <= self.network.now_ms]
                if expired:
                    member.catch_up()

    def _elect(self) -> None:
        if not self._elects_ms:
            self._elects_ms = self.network.now_ms + self.network.chance.randint(200, 900)
        elif self.network.now_ms >= self._elects_ms:
            self._elects_ms = 0
            self.leader = self.network.chance.choice([one for one in self.members if one.is_up])
            self.leads_since_ms = self.network.now_ms
            self.leader.catch_up()
            self.asker = None

    def _follow(self, leader: ModelMember) -> None:
        """Propose what differs between the rows of topics and the group's own table."""
        seen = leader, leader.applied
        if self._proposed or seen == self._followed:
            return
        self._followed = seen
        rows = [name for name, _ in leader.table.rows.of_kind(TOPIC_KIND)]
        for name in dict.fromkeys([*rows, *(topic.name for topic in leader.topics)]):
            try:
                wanted = plan_followed(leader.topics, leader.table, name, first_offsets={})
            except LedgerError:
                continue
            if wanted is not None:
                self._followed = None
                self.propose(TopicSet(name, wanted.to_fields()))

    def _ask(self) -> None:
        leader = self.leader
        assert leader is not None
        if leader.table.chain is None or self._proposed:
            return
        self.asker = self.asker or DocumentAsker(leader.table, lambda: self.key.public)
        question = self.asker.question(self.clock_ms())
        if question is not None:
            self._send(self.asker, question)

    def _note_age(self) -> None:
        assert self.leader is not None
        if self.asker is None or self._proposed:
            return
        age = rights_age(
            self.leader.table,
            current_ms=self.asker.current_ms,
            now_ms=self.clock_ms(),
            max_ms=self.rights_max_age_ms,
        )
        if age.note is not None:
            self.propose(age.note)

    def _send(self, asker: DocumentAsker, question: Question) -> None:
        """Send a question to the member of its address, and the answer back; either may be lost."""
        name, _, _ = question.address.partition("/")

        def arrive(answered: DocumentReply) -> None:
            if asker is self.asker:
                for command in asker.take(question.number, answered, self.clock_ms()):
                    self.propose(command)

        def receive() -> None:
            until_ms = self.network.now_ms + question.hold_ms
            back = self.network.sender(name, self.name)
            listen = self.network.listeners[question.address]
            listen(
                HeldQuestion(
                    question.asked, until_ms, lambda answered: back(lambda: arrive(answered))
                )
            )

        self.network.sender(self.name, name)(receive)
