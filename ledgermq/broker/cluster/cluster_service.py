"""Cluster service: a group's leader asks the home for documents, and a member of the home answers.

What the leader is told it proposes to its own log, where each member checks it again. Questions of
other groups are held until there is something to say, for ``HOLD_MS`` at most. Of a group that
belongs to no cluster nothing is done.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from ledgermq.broker.callers import NODE_ITSELF, Client
from ledgermq.broker.calls import AnsweredVerb, Call, Result, Verbs
from ledgermq.broker.cluster.cluster_calls import CLUSTER_TOUCHES, ClusterAge, ClusterCalls
from ledgermq.broker.cluster.document_messages import (
    DOCUMENTS_VERB,
    AskedDocuments,
    read_asked,
    reply_fields,
)
from ledgermq.broker.cluster.home_keys import home_key, new_home_key
from ledgermq.broker.cluster.home_questions import Answered, HomeLine
from ledgermq.broker.cluster.topic_follower import TopicFollower
from ledgermq.broker.cluster.topic_row_calls import TopicRowCalls
from ledgermq.broker.reading.known_topics import KnownTopics
from ledgermq.broker.service import Mailbox, Service
from ledgermq.broker.state.broker_tables import BrokerTables
from ledgermq.broker.state.state_log import StateLog
from ledgermq.broker.state.state_requests import Reply, StateRequest
from ledgermq.ipc.counters import BrokerCounter, Counts
from ledgermq.model.config.settings import AccessSection, Settings
from ledgermq.model.errors import BusyError, ConfigError, LedgerError, NoPermissionError
from ledgermq.model.events import Event
from ledgermq.process.clock import Clock, epoch_ms
from ledgermq.rules.cluster.cluster_commands import ClusterCommand, HomeCertified, RightsAged
from ledgermq.rules.cluster.cluster_table import GROUP_KIND, ClusterTable
from ledgermq.rules.cluster.document_asker import PROBE_MS, DocumentAsker
from ledgermq.rules.cluster.document_desk import DocumentDesk, DocumentReply, DocumentRequest
from ledgermq.rules.cluster.numbered_rows import RowKey
from ledgermq.rules.cluster.rights_age import rights_age
from ledgermq.verbs.needs import USER, read

logger = logging.getLogger(__name__)

HELD_QUESTIONS_MAX = 2_048
"""Twice the groups that a cluster may have: a leader that is followed may have asked as well."""


class _Held(NamedTuple):
    call: Call
    asked: AskedDocuments

    @property
    def until_ms(self) -> int:
        return self.call.now_ms + self.asked.hold_ms


class ClusterService(Service):
    """Owned by the broker process.

    Invariant: at most one question is under way, and none while what came of the last one is on its
    way to the log.
    """

    name = "cluster"
    can_rest = True

    def __init__(
        self,
        known: KnownTopics,
        tables: BrokerTables,
        log: StateLog,
        line: HomeLine | None,
        access: AccessSection,
        *,
        mailbox: Mailbox,
        clock: Clock,
        counts: Counts,
    ) -> None:
        """Ask nobody where there is no ``line``."""
        self._max_age_ms = 1_000 * access.cluster_rights_max_age_s
        self._age_due_ms: int | None = None
        self._is_noting = False
        self._noting_rests_ms = 0
        self._follower = TopicFollower(known, tables, log)
        self._clock = clock
        self._counts = counts
        self._began_ms = 0
        self._tables = tables
        self._log = log
        self._mailbox = mailbox
        self._line = line
        self._asker: DocumentAsker | None = None
        self._asker_term = 0
        self._is_proposed = False
        self._failure = ""
        self._due_ms: int | None = None
        self._desk: tuple[bytes, DocumentDesk] | None = None
        self._held: dict[Client, _Held] = {}
        self._looked: tuple[int, int] | None = None
        self.verbs: Verbs = (
            *ClusterCalls(tables, log, self.age, self._waiting, clock).verbs,
            *TopicRowCalls(tables, log, self._follower).verbs,
            AnsweredVerb(DOCUMENTS_VERB, self._documents, read(USER)),
        )

    @property
    def _table(self) -> ClusterTable:
        return self._tables.cluster.table

    def age(self, now_ms: int) -> ClusterAge:
        """How old the group's rows are, as this node knows while it leads."""
        asker = self._asker
        if asker is None:
            return ClusterAge(None, False, "")
        age_ms = None if asker.current_ms is None else now_ms - asker.current_ms
        return ClusterAge(age_ms, asker.is_parted, self._failure)

    def next_deadline_ms(self) -> int | None:
        held = min((one.until_ms for one in self._held.values()), default=None)
        follows = self._follower.next_deadline_ms()
        due = [one for one in (held, self._due_ms, self._age_due_ms, follows) if one is not None]
        return min(due, default=None)

    def take_settings(self, settings: Settings) -> None:
        self._max_age_ms = 1_000 * settings.access.cluster_rights_max_age_s

    def turn(self, now_ms: int) -> None:
        """Answer who is due; take what the home has told, follow it, and ask on."""
        self._follower.turn(now_ms)
        line = self._line
        answered = line.take() if line is not None and not line.is_free else None
        if self._table.chain is None and not self._held:
            if self._asker is not None:
                self._asker = self._due_ms = self._age_due_ms = None
                self._count(now_ms)
            return
        self._answer_held(now_ms)
        if line is not None:
            self._keep_up(line, answered, now_ms)
            self._watch_age(now_ms)
        self._count(now_ms)

    def _count(self, now_ms: int) -> None:
        asker, table = self._asker, self._table
        at_ms = 0
        if asker is not None and table.home != table.group:
            current_ms = self._began_ms if asker.current_ms is None else asker.current_ms
            at_ms = epoch_ms(self._clock) - (now_ms - current_ms)
        self._counts[BrokerCounter.CLUSTER_CURRENT_AT] = at_ms
        self._counts[BrokerCounter.CLUSTER_RIGHTS_TOO_OLD] = int(table.rights_too_old)

    def begin_again(self) -> None:
        """The last turn has failed: the next one begins with another asker."""
        self._asker = None

    def end_all(self) -> None:
        """Let whoever waits ask another member."""
        held, self._held = self._held, {}
        for one in held.values():
            self._mailbox.append(Reply(one.call.caller, BusyError("node stops: ask another one")))

    def _waiting(self) -> Iterator[DocumentRequest]:
        """Questions that are held, of those that may ask them yet."""
        for one in self._held.values():
            with suppress(NoPermissionError):
                self._check_asker(one)
                yield one.asked.request

    def _own_key(self) -> bytes:
        """Public key of a home; empty in a group whose members have no key in common."""
        try:
            return new_home_key(self._tables.secrets).public
        except LedgerError:
            return b""

    # What other groups ask.

    def _documents(self, call: Call) -> Result | None:
        self._log.check()
        held = _Held(call, read_asked(call.arguments))
        self._check_asker(held)
        self._learn(held.asked.request.chain, call.now_ms)
        reply = self._reply(held)
        if held.asked.piece or call.now_ms >= held.until_ms or self._has_news(held, reply):
            return reply_fields(reply, held.asked.piece)
        client = call.caller.client
        if client not in self._held and len(self._held) >= HELD_QUESTIONS_MAX:
            raise BusyError("too many groups wait for documents", limit=HELD_QUESTIONS_MAX)
        older = self._held.pop(client, None)
        if older is not None:
            self._mailbox.append(Reply(older.call.caller, BusyError("client has asked again")))
        self._held[client] = held
        return None

    def _check_asker(self, held: _Held) -> None:
        """Documents have the rights of all users: a group's own user asks for it, or an admin."""
        call, group = held.call, held.asked.request.group
        row = self._table.rows.value(RowKey(GROUP_KIND, group)) or {}
        is_gone = call.user != "" and self._tables.users.get(call.user) is None
        if is_gone or not (call.is_admin or (call.user and row.get("user") == call.user)):
            raise NoPermissionError(
                "client may not ask for the cluster's documents: its user has to be named by"
                " `ledgermq cluster invite --user`",
                user=call.user,
                group=group,
            )

    def _answer_held(self, now_ms: int) -> None:
        """Those whose time is over; and all, when there is something new."""
        if not self._held:
            return
        seen = self._tables.cluster.revision, self._log.term
        is_new, self._looked = seen != self._looked, seen
        for client, one in [*self._held.items()]:
            if not is_new and now_ms < one.until_ms:
                continue
            try:
                # It may have lost the right while it was held.
                self._check_asker(one)
            except NoPermissionError as error:
                del self._held[client]
                self._mailbox.append(Reply(one.call.caller, error))
                continue
            reply = self._reply(one)
            if now_ms >= one.until_ms or self._has_news(one, reply):
                del self._held[client]
                self._mailbox.append(Reply(one.call.caller, reply_fields(reply, 0)))

    def _reply(self, held: _Held) -> DocumentReply:
        # Whoever leads has heard of a majority within the time of an election, or steps down.
        is_current = self._log.is_certain and not self._log.is_held_up
        return self._current_desk().answer(held.asked.request, is_current=is_current)

    @staticmethod
    def _has_news(held: _Held, reply: DocumentReply) -> bool:
        return (
            reply.document is not None
            or reply.is_parted
            or not reply.is_current
            or [*reply.chain] != [*held.asked.request.chain]
        )

    def _current_desk(self) -> DocumentDesk:
        """The desk with the key of the current certificate, once this node has it; else one without
        a key.
        """
        chain = self._table.chain
        home = chain.greatest if chain is not None else None
        public = home.key if home is not None and self._table.is_home else b""
        if self._desk is not None and self._desk[0] == public:
            return self._desk[1]
        key = home_key(self._tables.secrets, public) if public else None
        desk = DocumentDesk(self._table, key)
        self._desk = (public, desk) if key is not None else None
        return desk

    def _learn(self, chain: Sequence[bytes], now_ms: int) -> None:
        """Have the certificates of a later home, of whom whoever asks knows."""
        mine = self._table.chain
        if mine is None or self._is_proposed or not self._log.is_certain:
            return
        if not chain or chain[-1] in mine.signed():
            return
        try:
            is_greater = mine.with_chain(chain) is not mine
        except ConfigError:
            return
        if is_greater:
            self._propose([HomeCertified(chain)], now_ms)

    # What this group asks.

    def _keep_up(self, line: HomeLine, answered: Answered | None, now_ms: int) -> None:
        table, log = self._table, self._log
        if table.chain is None or not log.is_certain:
            self._asker = self._due_ms = self._age_due_ms = None
            return
        if self._asker is None or self._asker_term != log.term:
            self._asker, self._asker_term = DocumentAsker(table, self._own_key), log.term
            self._failure, self._began_ms, answered = "", now_ms, None
        asker = self._asker
        if answered is not None:
            self._take(asker, answered, now_ms)
        self._due_ms = None
        if self._is_proposed or not line.is_free:
            return
        question = asker.question(now_ms)
        if question is not None:
            line.ask(question)
        due_ms = asker.next_deadline_ms()
        # Nobody to be asked: a group that comes is in a row, and asked soon enough.
        self._due_ms = due_ms if due_ms > now_ms else now_ms + PROBE_MS

    def _watch_age(self, now_ms: int) -> None:
        """Note in the log that the rights are too old, or were confirmed."""
        asker, table = self._asker, self._table
        is_bound = self._max_age_ms or table.rights_too_old
        if asker is None or not is_bound or not table.rows_rank:
            # Whoever has no rows of a home yet has no rights that could be old.
            self._age_due_ms = None
            return
        if self._is_noting:
            self._age_due_ms = None
        if self._is_noting or now_ms < self._noting_rests_ms:
            return
        today_ms, current_ms = epoch_ms(self._clock), asker.current_ms
        if current_ms is not None:
            current_ms += today_ms - now_ms
        age = rights_age(table, current_ms=current_ms, now_ms=today_ms, max_ms=self._max_age_ms)
        self._age_due_ms = None if age.left_ms is None else now_ms + age.left_ms
        if age.note is not None:
            self._note_age(age.note, now_ms)

    def _note_age(self, note: RightsAged, now_ms: int) -> None:
        was_too_old = self._table.rights_too_old

        def done() -> None:
            self._is_noting = False
            too_old = self._table.rights_too_old
            if too_old and not was_too_old:
                logger.error(
                    "the home was not heard for too long: the cluster's users are refused",
                    extra={"event": Event.CLUSTER_RIGHTS_TOO_OLD},
                )
            elif was_too_old and not too_old:
                logger.info("the cluster's users have their rights again")

        def refused(error: LedgerError) -> None:
            self._is_noting = False
            self._noting_rests_ms = self._age_due_ms = now_ms + PROBE_MS
            logger.warning("age of the cluster's rights not in the log: %s", error)

        request = StateRequest(NODE_ITSELF, lambda: [note], CLUSTER_TOUCHES, done, refused=refused)
        try:
            self._log.submit(request, now_ms)
        except LedgerError as error:
            refused(error)
            return
        self._is_noting = True

    def _take(self, asker: DocumentAsker, answered: Answered, now_ms: int) -> None:
        if answered.failure and answered.failure != self._failure:
            logger.warning("a member of the home gives no document: %s", answered.failure)
        self._failure = answered.failure
        if answered.reply is None:
            asker.fail(answered.number, now_ms)
            return
        was_parted = asker.is_parted
        commands = asker.take(answered.number, answered.reply, now_ms)
        if asker.is_parted and not was_parted:
            logger.error(
                "the cluster's home has lost rows that this group has: certify it anew",
                extra={"event": Event.CLUSTER_HOME_PARTED},
            )
        if commands:
            self._propose(commands, now_ms)

    def _propose(self, commands: list[ClusterCommand], now_ms: int) -> None:
        def done() -> None:
            self._is_proposed = False
            if self._table.refused:
                logger.warning("cluster's document not taken: %s", self._table.refused)

        def refused(error: LedgerError) -> None:
            self._is_proposed = False
            logger.warning("cluster's document not in the log: %s", error)

        request = StateRequest(
            NODE_ITSELF, lambda: commands, CLUSTER_TOUCHES, done, refused=refused
        )
        try:
            self._log.submit(request, now_ms)
        except LedgerError as error:
            refused(error)
            return
        self._is_proposed = True
