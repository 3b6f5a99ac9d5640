"""Cluster service: a group's leader asks the home for documents, and a member of the home answers.

What the leader is told it proposes to its own log, where each member checks it again. Questions of
other groups are held until there is something to say, for ``HOLD_MS`` at most. Of a group that
belongs to no cluster nothing is done.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from ledgermq.broker.call_arguments import optional_integer, text
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
from ledgermq.broker.reading.known_topics import KnownTopics
from ledgermq.broker.service import Mailbox, Service
from ledgermq.broker.state.broker_tables import BrokerTables
from ledgermq.broker.state.state_log import StateLog
from ledgermq.broker.state.state_requests import Reply, StateRequest
from ledgermq.broker.verb_arguments import answered
from ledgermq.ipc.counters import BrokerCounter, Counts
from ledgermq.model.config.settings import AccessSection, Settings
from ledgermq.model.errors import (
    BusyError,
    ConfigError,
    LedgerError,
    NoPermissionError,
    TopicUnknownError,
)
from ledgermq.model.events import Event
from ledgermq.model.features import LEVEL_OF_SPREAD
from ledgermq.process.clock import Clock, epoch_ms
from ledgermq.rules.cluster.cluster_commands import ClusterCommand, HomeCertified, RightsAged
from ledgermq.rules.cluster.cluster_plans import Plan, rights_age
from ledgermq.rules.cluster.cluster_table import GROUP_KIND, ClusterTable
from ledgermq.rules.cluster.document_asker import PROBE_MS, DocumentAsker
from ledgermq.rules.cluster.document_desk import DocumentDesk, DocumentReply, DocumentRequest
from ledgermq.rules.cluster.json_objects import NUMBER_MAX
from ledgermq.rules.cluster.numbered_rows import RowKey
from ledgermq.rules.cluster.topic_rows import (
    ClusterTopic,
    SharePhase,
    TopicPromises,
    plan_topic_over,
    plan_topic_phase,
    plan_topic_promises,
    plan_topic_release,
    plan_topic_spread,
    topic_row,
)
from ledgermq.rules.messages.topic_plans import QUEUES_DEFAULT
from ledgermq.rules.state.cluster_copy import FILE
from ledgermq.rules.tables.topics import check_topic_name
from ledgermq.verbs import clusters as verbs
from ledgermq.verbs.needs import ANY, USER, read, shown, topic_right


class TopicRowCalls:
    """Changes are in the home's log when they are answered; each group follows them by its own."""

    def __init__(self, tables: BrokerTables, log: StateLog, follower: TopicFollower) -> None:
        self._tables = tables
        self._log = log
        self._follower = follower
        self.verbs: Verbs = (
            answered(verbs.SetTopicGroups, self._set),
            answered(verbs.AlterTopicGroups, self._alter),
            answered(verbs.SetTopicPhase, self._set_phase),
            answered(verbs.ReleaseTopic, self._release),
            answered(verbs.ShowTopicGroups, self._show),
            AnsweredVerb("cluster_topic_groups", self._groups_of, shown(topic_right(ANY))),
        )

    @property
    def _table(self) -> ClusterTable:
        return self._tables.cluster.table

    def _show(self, _call: Call, asked: verbs.ShowTopicGroups) -> Result:
        self._log.check_newest()
        return self._shown(asked.topic)

    def _shown(self, name: str) -> Result:
        row = topic_row(self._table, name)
        if row is None:
            raise TopicUnknownError("topic is over no groups of a cluster", topic=name)
        own = self._tables.topics.get(name)
        return {
            "topic": name,
            "adopts": row.adopts,
            **_promised(row),
            "groups": _shares(row),
            "group": self._table.group,
            "follows": own is not None and own.cluster != "",
            "refused": self._why_not(name),
        }

    def _groups_of(self, call: Call) -> Result:
        """What clients go by: a topic's groups; ``number`` is that of the last change of any row.

        There are no groups where the topic is over none; None where whoever asks knows the rows of
        that number.
        """
        name = text(call.arguments, "topic")
        known = optional_integer(call.arguments, "known", 0, NUMBER_MAX)
        self._log.check_newest()
        told: Result = {"topic": name, "number": self._table.at.number, "groups": []}
        if known == self._table.at.number:
            return {**told, "groups": None}
        row = topic_row(self._table, name)
        return told if row is None else {**told, "groups": _shares(row), **_promised(row)}

    def _why_not(self, name: str) -> str:
        level = self._tables.features.level
        if level < LEVEL_OF_SPREAD:
            return f"feature level {LEVEL_OF_SPREAD} is not in force in the group, but {level}"
        return self._follower.refused.get(name, "")

    def _set(self, call: Call, asked: verbs.SetTopicGroups) -> None:
        name, over, queues = asked.topic, asked.groups, asked.queues
        adopts, phase = asked.adopt is True, SharePhase.CLOSED if asked.closed else SharePhase.OPEN

        def plan() -> Plan:
            self._check(name)
            if asked.spread:
                return plan_topic_spread(self._table, name, over, queues=queues, phase=phase)
            self._check_adopted(name, over, adopts=adopts)
            own = QUEUES_DEFAULT if queues is None else queues
            return plan_topic_over(
                self._table, name, over, queues=own, adopts=adopts, promises=_promises(asked)
            )

        def answer() -> Result:
            return self._shown(name)

        self._submit(call, name, plan, answer)

    def _alter(self, call: Call, asked: verbs.AlterTopicGroups) -> None:
        name = asked.topic

        def plan() -> Plan:
            return plan_topic_promises(self._table, name, _promises(asked))

        self._submit(call, name, plan, lambda: self._shown(name))

    def _set_phase(self, call: Call, asked: verbs.SetTopicPhase) -> None:
        name, phase = asked.topic, SharePhase.OPEN if asked.is_open else SharePhase.CLOSED

        def plan() -> Plan:
            return plan_topic_phase(self._table, name, phase)

        self._submit(call, name, plan, lambda: self._shown(name))

    def _release(self, call: Call, asked: verbs.ReleaseTopic) -> None:
        name = asked.topic

        def plan() -> Plan:
            return plan_topic_release(self._table, name)

        self._submit(call, name, plan, lambda: {"topic": name})

    def _submit(
        self, call: Call, name: str, plan: Callable[[], Plan], answer: Callable[[], Result]
    ) -> None:
        self._log.check_leads()
        plan()  # refuses at once what cannot be made
        touches = frozenset({FILE, f"topic {name}"})
        self._log.submit(StateRequest(call.caller, plan, touches, answer), call.now_ms)

    def _check(self, name: str) -> None:
        """Refuse what no group could follow."""
        self._table.check_home()
        level = self._tables.features.level
        if level < LEVEL_OF_SPREAD:
            raise ConfigError(
                f"topics over groups need feature level {LEVEL_OF_SPREAD}, which is not in force in"
                " the home: see `ledgermq cluster features`",
                in_force=level,
            )
        check_topic_name(name)
        if self._tables.topics.is_system(name):
            raise NoPermissionError("topic name is reserved for the broker", topic=name)

    def _check_adopted(self, name: str, over: Sequence[str], *, adopts: bool) -> None:
        """Refuse what this group itself would not follow."""
        own = self._tables.topics.get(name)
        is_over = not over or self._table.group in over
        if own is not None and not own.cluster and is_over and not adopts:
            raise ConfigError(
                "the home has a topic of that name of its own: --adopt takes it up", topic=name
            )


def _promises(asked: verbs.TopicPromised) -> TopicPromises:
    return TopicPromises(asked.fails_over, asked.order)


def _promised(row: ClusterTopic) -> dict[str, bool]:
    return {"fails_over": row.fails_over, "order": row.order}


def _shares(row: ClusterTopic) -> list[dict[str, object]]:
    return [
        {"group": group, "queues": share.queues, "phase": share.phase.value}
        for group, share in sorted(row.shares.items())
    ]


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
