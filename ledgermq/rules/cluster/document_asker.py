"""Document asker: how a group's leader keeps its copy of the cluster's rows up with the home.

One question is under way at a time, which a member of the home holds until it has something to say.
The next member is asked when one fails, does not answer, or does not know what the home has
committed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ledgermq.model.errors import ConfigError
from ledgermq.rules.cluster.cluster_commands import ClusterCommand, DocumentTaken, HomeCertified
from ledgermq.rules.cluster.cluster_document import open_document
from ledgermq.rules.cluster.cluster_table import GROUP_KIND, ClusterTable
from ledgermq.rules.cluster.document_desk import DocumentReply, DocumentRequest
from ledgermq.rules.cluster.numbered_rows import Point

HOLD_MS = 20_000
"""A question is held so long at most."""

ANSWER_TIMEOUT_MS = 2_000
"""Beyond the time for which a question may be held."""

STEP_MS = 500
"""Milliseconds between two members of a round."""

ROUND_MS_MAX = 5_000
"""Most milliseconds between two rounds in which no member could say what the home has committed."""

PROBE_MS = 5_000
"""After so long a home asks another group whether it is still the home: when it was lost, and comes
back, nobody else has a reason to talk to it."""


class Question(NamedTuple):
    """A question to a member of the home.

    Attributes:
        number: what its answer has to say; answers to others come too late.
        hold_ms: how long the member may keep it; 0: it is to answer at once.
    """

    number: int
    address: str
    asked: DocumentRequest
    hold_ms: int


class DocumentAsker:
    """Owned by a group's leader; the home's asks others only whether there is a next home.

    Attributes:
        current_ms: when the group's rows were all that the home had committed, by the clock that
            ``now_ms`` is of; None: not since this leader began.
        is_parted: a member of the home has told that the group has rows which the home has lost.
    """

    def __init__(self, table: ClusterTable, own_key: Callable[[], bytes]) -> None:
        """``own_key`` is the public key by which the group would be certified; empty: none."""
        self._table = table
        self._own_key = own_key
        self._number = 0
        self._turn = 0
        self._asked_ms: int | None = None
        self._hold_ms = 0
        self._due_ms = 0
        self._failures = 0
        self._holds = False
        self._told_nodes: Sequence[str] = ()
        self._awaited: tuple[Point, int] | None = None
        self.current_ms: int | None = None
        self.is_parted = False

    def next_deadline_ms(self) -> int:
        """When ``question`` has to be called, whatever happens."""
        if self._asked_ms is not None:
            return self._asked_ms + self._hold_ms + ANSWER_TIMEOUT_MS
        return self._due_ms

    def question(self, now_ms: int) -> Question | None:
        """What is to be asked now; None: nothing, before ``next_deadline_ms``.

        Called once all that came of the last answer is applied, or has failed.
        """
        self._look_at_rows()
        if self._asked_ms is not None and now_ms >= self.next_deadline_ms():
            self.fail(self._number, now_ms)
        if self._asked_ms is not None or now_ms < self._due_ms:
            return None
        address = self._address()
        if not address:
            return None
        table = self._table
        chain = table.chain.signed() if table.chain else []
        self._number += 1
        self._asked_ms = now_ms
        asked = DocumentRequest(table.group, chain, table.rows_rank, table.at, self._own_key())
        # Until a member is known to lead the home it has to say so without waiting.
        self._hold_ms = HOLD_MS if self._holds else 0
        return Question(self._number, address, asked, self._hold_ms)

    def fail(self, number: int, now_ms: int) -> None:
        """The member did not answer, or refused."""
        if number == self._number and self._asked_ms is not None:
            self._asked_ms = None
            self._next_member(now_ms)

    def take(self, number: int, answered: DocumentReply, now_ms: int) -> list[ClusterCommand]:
        """What is to be proposed to the group's own log, in this order, after an answer."""
        if number != self._number or self._asked_ms is None:
            return []
        asked_ms, self._asked_ms = self._asked_ms, None
        try:
            commands = self._commands(answered, asked_ms)
        except ConfigError:
            # Of another cluster, or signed by nobody who may: the next member is asked.
            self._next_member(now_ms)
            return []
        if answered.is_parted or answered.is_current or answered.document is not None:
            self.is_parted = answered.is_parted
        self._holds = answered.is_current
        if self._is_home:
            self._turn += 1
            self._due_ms = now_ms + PROBE_MS
        elif answered.is_current:
            self._failures, self._due_ms = 0, now_ms
        else:
            self._next_member(now_ms, waits=not commands)
        return commands

    def _commands(self, answered: DocumentReply, asked_ms: int) -> list[ClusterCommand]:
        """Certificates first: the document may be signed by a home that is not known yet.

        Both are checked here as they will be where they are applied: nothing that a stranger says
        goes into the log.
        """
        known = self._table.chain
        assert known is not None, "a group of no cluster asks nobody"
        chain = known.with_chain(answered.chain)
        commands: list[ClusterCommand] = []
        if chain is not known:
            commands.append(HomeCertified([*answered.chain]))
            self._told_nodes = ()
        if chain.signed() == [*answered.chain] and answered.home_nodes:
            # Whoever knows of a lower home only tells where that one was.
            self._told_nodes = answered.home_nodes
        home = chain.greatest
        reached = self._table.at
        if answered.document is not None and home is not None:
            reached = open_document(answered.document, home.key).at
            commands.append(DocumentTaken(answered.document))
        # True when it was asked; what was committed since is for the next answer.
        self._awaited = (reached, asked_ms) if answered.is_current else None
        self._look_at_rows()
        return commands

    def _look_at_rows(self) -> None:
        if self._awaited is not None and self._awaited[0] == self._table.at:
            self.current_ms = self._awaited[1]
            self._awaited = None

    @property
    def _is_home(self) -> bool:
        return self._table.home == self._table.group

    def _home_nodes(self) -> list[str]:
        table = self._table
        if self._is_home:
            return []
        return table.nodes_of(table.home) or [*(self._told_nodes or table.first_nodes)]

    def _address(self) -> str:
        """Whom to ask: in each round the home's members, then somebody of another group.

        Any group's members know of the next home when this one was lost.
        """
        nodes = self._home_nodes()
        round_number, place = divmod(self._turn, len(nodes) + 1)
        if place < len(nodes):
            return nodes[place]
        table = self._table
        groups = [name for name, _ in table.rows.of_kind(GROUP_KIND) if name != table.group]
        others = [found for found in map(table.nodes_of, groups) if found]
        if table.first_nodes:
            others.append([*table.first_nodes])
        if not others:
            return nodes[0] if nodes else ""
        chosen = others[round_number % len(others)]
        return chosen[round_number // len(others) % len(chosen)]

    def _next_member(self, now_ms: int, *, waits: bool = True) -> None:
        self._turn += 1
        self._holds = False
        if not waits:
            self._due_ms = now_ms
            return
        if self._is_home:
            self._due_ms = now_ms + PROBE_MS
            return
        self._failures += 1
        rounds, place = divmod(self._failures, len(self._home_nodes()) + 1)
        is_round = place == 0
        wait_ms = min(ROUND_MS_MAX, STEP_MS * 2 ** min(rounds, 10)) if is_round else STEP_MS
        self._due_ms = now_ms + wait_ms
