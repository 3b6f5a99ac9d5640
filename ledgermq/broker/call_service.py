"""Dispatch of CALL: verbs, each with the service that answers it.

A call that changes something is answered when the change has come back through the log
(``state_log``); that of a topic when the writer has read the table besides (``writer_notice``). All
others are answered at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ledgermq.broker.administration.group_calls import GroupCalls
from ledgermq.broker.administration.topic_calls import TopicCalls
from ledgermq.broker.call_arguments import optional_text
from ledgermq.broker.callers import Caller, Client
from ledgermq.broker.calls import (
    NEWEST,
    AnsweredVerb,
    Arguments,
    Call,
    CheckTopic,
    Result,
    Verbs,
    anybody,
)
from ledgermq.broker.consumers.other_members import OtherMembers
from ledgermq.broker.reading.known_topics import KnownTopics
from ledgermq.broker.sliced_answers import SlicedAnswers
from ledgermq.broker.state.state_log import StateLog
from ledgermq.model.errors import ProtocolError
from ledgermq.process.clock import NS_PER_MS
from ledgermq.verbs.shares import FOR_OWNER


class CallService:
    """Finds who answers a call.

    Attributes:
        known: the topics that there are.
        log: by which all is changed.
        topics, groups: answer calls about them.
        slices: answers that take several turns.
        others: members of groups that are not our own clients.
        on_gone: called with each client whose session is over: nothing waits for it any more.
        on_untold: called with a result that came later, and whose client has gone.
    """

    def __init__(
        self,
        known: KnownTopics,
        log: StateLog,
        *,
        topics: TopicCalls,
        groups: GroupCalls,
        slices: SlicedAnswers,
        others: OtherMembers,
    ) -> None:
        """Nothing is answered yet."""
        self.known = known
        self.topics = topics
        self.groups = groups
        self.slices = slices
        self.others = others
        self.log = log
        self.on_gone: list[Callable[[Client], object]] = []
        self.on_untold: list[Callable[[Result], object]] = []
        self._verbs: dict[str, AnsweredVerb] = {}

    def register(self, verbs: Verbs) -> None:
        """Answer these verbs, which nobody answers yet."""
        for verb in verbs:
            assert verb.name not in self._verbs, verb
            self._verbs[verb.name] = verb

    @property
    def verbs(self) -> Mapping[str, AnsweredVerb]:
        """All that is answered, by name."""
        return self._verbs

    def call(
        self,
        caller: Caller,
        name: str,
        arguments: Arguments,
        now_ms: int,
        *,
        check_topic: CheckTopic = anybody,
        user: str = "",
        is_admin: bool = True,
        owner: str = "",
    ) -> Result | None:
        """The result of a call, ``None`` when it comes later.

        Where this node does not surely lead ``as_of`` in it says what it is: see ``ReadableStore``.

        Args:
            check_topic: refuses topics that the client may not use.
            user, is_admin, owner: see ``Call``.

        Raises:
            LedgerError: why there is none.
        """
        verb = self._verbs.get(name)
        if verb is None:
            raise ProtocolError("unknown verb", verb=name[:64])
        if not verb.whatever_tables:
            self.log.check_started()
        store, as_of = self.known.store, NEWEST
        if not (self.log.leads and store.leads_alone(now_ms * NS_PER_MS)):
            as_of = NEWEST if verb.whatever_tables else store.as_of()
        # Who is bounded himself says nothing by it.
        owner = owner or optional_text(arguments, FOR_OWNER) or ""
        call = Call(caller, arguments, now_ms, check_topic, user, is_admin, owner, as_of)
        with self.log.asked_by(owner):
            result = verb.answer(call)
        return {**result, **as_of} if result is not None and as_of else result
