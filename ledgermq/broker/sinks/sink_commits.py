"""Commits of batches at the leader: all packs are checked, one command is proposed.

What is committed is in the log, and known to each node's ``SinkTable``; nothing here outlives a
leader.
"""

from __future__ import annotations

import logging
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ledgermq.broker.callers import Caller
from ledgermq.broker.deliveries.moves import Moves
from ledgermq.broker.service import Mailbox
from ledgermq.broker.sinks.staged_packs import StagedPacks
from ledgermq.broker.state.broker_tables import BrokerTables
from ledgermq.broker.state.state_log import StateLog
from ledgermq.broker.state.state_requests import Reply, StateRequest
from ledgermq.ipc.counters import BrokerCounter, Counts
from ledgermq.model.config.settings import Settings
from ledgermq.model.errors import (
    BusyError,
    LedgerError,
    NoPermissionError,
    StagedUnknownError,
    TopicUnknownError,
)
from ledgermq.model.names.stages import Stage
from ledgermq.process.clock import Clock, epoch_ms
from ledgermq.rules.tables.sinks import QUEUE, Sink, SinkSet
from ledgermq.rules.tables.table_changes import Change

logger = logging.getLogger(__name__)

LOOKED_AT_PER_TURN = 128
"""Packs of commits that one turn looks at, so that a large batch does not keep others waiting."""

COMMITS_WAITING_MAX = 10_000
COMMIT_MS = 30_000
ABORTED_MAX = 65_536
MOVE_TOUCHES = f"move {QUEUE.topic}/{QUEUE.queue_id}"


ActsFor = Callable[[str], bool]
"""Whether a client may do with what belongs to a user as that does."""


def _for_everybody(_name: str) -> bool:
    return True


class Aborter(NamedTuple):
    """Who drops rows: only those of topics that it may send to.

    Attributes:
        user, acts_for: see ``Call``.
        may_send: to a topic.
    """

    user: str = ""
    acts_for: ActsFor = _for_everybody
    may_send: Callable[[str], bool] = _for_everybody


NO_USER = Aborter()
"""Where nobody keeps track of rights."""


class AlsoChanged(NamedTuple):
    """What the command of a commit changes besides, if it is proposed at all.

    Attributes:
        plan, touches: as of ``StateRequest``.
    """

    plan: Callable[[], Sequence[Change]]
    touches: frozenset[str]


@dataclass(slots=True)
class SinkCommit:
    """Somebody commits a batch.

    Attributes:
        packs: name of the stage and offset of each, in the order in which they become messages.
        check_topic: refuses a topic that the client may not send to.
        user, acts_for: see ``Call``; the sink is that user's from its first batch on.
        also: how far a group has consumed with the batch.
        looked: so many of the packs were looked at.
        is_submitted: all were, and the command is on its way.
    """

    caller: Caller
    sink: str
    batch: int
    is_once: bool
    packs: tuple[tuple[str, int], ...]
    check_topic: Callable[[str], None]
    until_ms: int
    user: str = ""
    acts_for: ActsFor = _for_everybody
    also: AlsoChanged | None = None
    looked: int = 0
    rows: int = 0
    topics: set[str] = field(default_factory=set)
    is_submitted: bool = False


class SinkCommits:
    """Those that wait for packs or for the log, and what was dropped before it was committed.

    Attributes:
        now_ms: of the present turn.
        is_behind: there is more to look at at once.
    """

    def __init__(
        self,
        packs: StagedPacks,
        tables: BrokerTables,
        log: StateLog,
        moves: Moves,
        settings: Settings,
        *,
        mailbox: Mailbox,
        clock: Clock,
        counts: Counts,
    ) -> None:
        self.now_ms = 0
        self.is_behind = False
        self._mailbox = mailbox
        self._packs = packs
        self._tables = tables
        self._log = log
        self._clock = clock
        self._counts = counts
        self._moves = moves
        self._settings = settings
        self._commits: deque[SinkCommit] = deque()
        # By label of the stage, then by user: who asked for it.
        self._aborted: OrderedDict[str, dict[str, Aborter]] = OrderedDict()

    def __len__(self) -> int:
        """Commits that are not answered yet."""
        return len(self._commits)

    def deadlines_ms(self) -> list[int]:
        """When each is refused, if its packs have not come."""
        return [one.until_ms for one in self._commits]

    def take_settings(self, settings: Settings) -> None:
        """The settings were read again."""
        self._settings = settings

    def abort(self, sink: str, batch: int, stages: Iterable[str], by: Aborter) -> None:
        """Drop what was staged, unless it is committed; without ``stages`` all of the batch.

        Raises:
            NoPermissionError: the sink belongs to another user.
        """
        self._check_owner(sink, by.acts_for)
        for label in [Stage(sink, batch, stage).label for stage in stages or ("",)]:
            self._aborted.setdefault(label, {})[by.user] = by
        while len(self._aborted) > ABORTED_MAX:
            self._aborted.popitem(last=False)

    def _check_owner(self, name: str, acts_for: ActsFor) -> None:
        sink = self._tables.state.sinks.get(name)
        if sink is not None and not acts_for(sink.owner):
            raise NoPermissionError("sink belongs to another user", sink=name)

    def stop(self, error: LedgerError) -> None:
        """Refuse all with ``error``, and forget what was dropped: this node leads no more."""
        # Those that were submitted are told by the log.
        callers = [one.caller for one in self._commits if not one.is_submitted]
        self._mailbox += [Reply(caller, error) for caller in callers]
        self._commits.clear()
        self._aborted.clear()

    def commit(self, commit: SinkCommit) -> None:
        """Take a commit; ``turn`` answers it.

        Raises:
            NotLeaderError: another node leads, or none is known to.
            NoPermissionError: the sink belongs to another user.
            BusyError: too many wait.
        """
        self._log.check_leads()
        self._check_owner(commit.sink, commit.acts_for)
        if self.is_known(commit.sink, commit.batch):
            self._mailbox.append(Reply(commit.caller, self._committed(commit, is_already=True)))
            return
        if len(self._commits) >= COMMITS_WAITING_MAX:
            raise BusyError("too many commits of batches wait", limit=COMMITS_WAITING_MAX)
        self._commits.append(commit)

    def is_known(self, name: str, batch: int) -> bool:
        """Whether that batch of a sink, or a later one, is committed."""
        sink = self._tables.state.sinks.get(name)
        return sink is not None and sink.batch >= batch

    def _committed(self, commit: SinkCommit, *, is_already: bool) -> dict[str, object]:
        return {
            "sink": commit.sink,
            "batch": commit.batch,
            "rows": commit.rows,
            "already": is_already,
        }

    def refuse_late(self) -> None:
        """Refuse those whose packs have not come in time."""
        for commit in [one for one in self._commits if one.until_ms <= self.now_ms]:
            # One that was submitted is answered by the log.
            self._commits.remove(commit)
            if not commit.is_submitted:
                error = BusyError("packs are not in the queue yet", sink=commit.sink)
                self._mailbox.append(Reply(commit.caller, error))

    def look(self) -> None:
        """Look at more packs, and submit the commits whose packs are all there."""
        budget = LOOKED_AT_PER_TURN
        for commit in list(self._commits):
            if commit.is_submitted:
                continue
            before = commit.looked
            try:
                self._look_at(commit, budget)
                if commit.looked == len(commit.packs):
                    self._submit(commit)
            except LedgerError as error:
                self._commits.remove(commit)
                self._mailbox.append(Reply(commit.caller, error))
            budget -= commit.looked - before
            if budget <= 0:
                self.is_behind = True
                return

    def _look_at(self, commit: SinkCommit, budget: int) -> None:
        """Look at more packs of a commit, as far as they are dispatched."""
        end = self._packs.end
        for name, offset in commit.packs[commit.looked : commit.looked + budget]:
            if offset >= end:
                return
            pack = self._packs.pack_at(offset)
            if pack is None or pack.stage != Stage(commit.sink, commit.batch, name):
                raise StagedUnknownError(
                    "no such rows are staged", sink=commit.sink, stage=name, offset=offset
                )
            for topic in pack.topics - commit.topics:
                commit.check_topic(topic)
            commit.topics |= pack.topics
            commit.rows += pack.rows
            commit.looked += 1

    def _submit(self, commit: SinkCommit) -> None:
        is_already = False

        def plan() -> Sequence[Change]:
            nonlocal is_already
            is_already = self.is_known(commit.sink, commit.batch)
            if is_already:
                return ()
            return [self._change_of(commit), *(commit.also.plan() if commit.also else ())]

        def answer() -> dict[str, object]:
            self._forget(commit)
            if not is_already:
                self._counts[BrokerCounter.SINK_BATCHES] += 1
                logger.info(
                    "batch committed: sink=%s batch=%d rows=%d packs=%d",
                    commit.sink,
                    commit.batch,
                    commit.rows,
                    len(commit.packs),
                )
            return self._committed(commit, is_already=is_already)

        def refused(error: LedgerError) -> None:
            self._forget(commit)
            self._mailbox.append(Reply(commit.caller, error))

        # Nothing may be dropped in the same command: both look at where the queue's source is.
        touches = frozenset({f"sink {commit.sink}", MOVE_TOUCHES})
        if commit.also is not None:
            touches |= commit.also.touches
        self._log.submit(
            StateRequest(commit.caller, plan, touches, answer, tuple, refused), self.now_ms
        )
        commit.is_submitted = True

    def _forget(self, commit: SinkCommit) -> None:
        if commit in self._commits:
            self._commits.remove(commit)

    def _change_of(self, commit: SinkCommit) -> SinkSet:
        known = self._tables.state.sinks.get(commit.sink)
        self._check_owner(commit.sink, commit.acts_for)
        if known is not None and known.left:
            raise BusyError(
                "rows of the batch before are not all messages yet",
                sink=commit.sink,
                batch=known.batch,
                packs=len(known.left),
            )
        lowest = min((offset for _, offset in commit.packs), default=None)
        if lowest is not None and lowest < self._moves.source(QUEUE).next_offset:
            raise StagedUnknownError(
                "rows were dropped, which nobody had committed in time",
                sink=commit.sink,
                batch=commit.batch,
                limit=self._settings.sinks.staged_reserved_ms,
                setting="sinks.staged_reserved_ms",
            )
        for name, _ in commit.packs:
            if self.is_aborted(Stage(commit.sink, commit.batch, name), commit.topics):
                raise StagedUnknownError("batch was aborted", sink=commit.sink, stage=name)
        for topic in sorted(commit.topics):
            if self._tables.topics.get(topic) is None:
                raise TopicUnknownError("topic does not exist any more", topic=topic)
        packs = tuple(offset for _, offset in commit.packs)
        owner = (known.owner if known is not None else "") or commit.user
        made = Sink(
            commit.batch, epoch_ms(self._clock), commit.rows, packs, 0, commit.is_once, owner
        )
        return SinkSet(commit.sink, made.to_fields())

    def is_aborted(self, stage: Stage, topics: Collection[str]) -> bool:
        """Whether what an attempt has staged for ``topics`` was dropped by who may send there."""
        labels = (stage.label, Stage(stage.sink, stage.batch, "").label)
        return any(
            all(map(by.may_send, topics))
            for label in labels
            for by in self._aborted.get(label, {}).values()
        )
