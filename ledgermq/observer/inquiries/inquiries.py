"""Inquiries: everything that a caller may ask of the node and change, subject by subject.

The API and the console ask here, and nowhere else. All answers are of dicts, lists, texts, numbers,
booleans and None, with the keys of the commands' ``--json``. All refusals are ``LedgerError``:
``NoPermissionError`` where the caller has not the right; ``NotLeaderError`` where another node is
to be asked (``details["leader"]``, and ``details["url"]`` where ``http.members`` names it);
``TopicUnknownError``, ``GroupUnknownError`` and ``MessageUnknownError``; ``ConfigError`` of what
cannot be asked so.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import TypeVar, cast

from ledgermq.broker.call_rights import Act, audit
from ledgermq.client.aio.producer import AsyncProducer
from ledgermq.client.core.questions import ask, asking
from ledgermq.client.core.requests import Steps
from ledgermq.client.sending.send_pipeline import ProducerOptions
from ledgermq.members.mirrors.mirror_figures import HeldMirror, OwnMirror
from ledgermq.model.errors import LedgerError, NoPermissionError, TimedOutError
from ledgermq.model.features import LEVELS
from ledgermq.observer.callers import HttpCaller
from ledgermq.observer.inquiries.broker_sessions import QUESTION_S
from ledgermq.observer.inquiries.inquirer import Inquirer, Sources
from ledgermq.observer.inquiries.message_inquiries import DeadLetterInquiries, MessageInquiries
from ledgermq.observer.inquiries.row_pages import (
    ROWS_DEFAULT,
    Json,
    checked_limit,
    named_page,
    page_of,
)
from ledgermq.observer.metrics.mirror_looks import MirrorLooks
from ledgermq.verbs.groups import ListGroups
from ledgermq.verbs.schemas import SubjectRow
from ledgermq.verbs.topics import ListTopics, ShowTopic
from ledgermq.verbs.upkeep import ShowFeatures
from ledgermq.verbs.verb import RowsVerb, Verb, as_json


class SendInquiries:
    """The leader stores them. The observer sends as the node's account, for the writer is not told
    for whom; so the broker is asked first whether the caller may.
    """

    def __init__(self, inquirer: Inquirer) -> None:
        self._inquirer = inquirer

    async def send(
        self,
        topic: str,
        body: bytes,
        *,
        tag: str | None = None,
        keys: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
    ) -> Json:
        """Where it is stored: ``queue``, ``offset``, and its ``msgId``.

        Raises:
            NoPermissionError: the caller may not send to the topic, or it is the broker's own.
            TopicUnknownError: there is no such topic; none is made for a message.
            TimedOutError: nobody knows whether it is stored.
            LedgerError: this node does not lead, or the message was refused.
        """
        act = Act(f"{self._inquirer.caller.name} (http)", "send", topic)
        try:
            self._inquirer.check_sees_messages()
            found = await self._inquirer.leader(
                lambda session: session.run(asking(ShowTopic(topic)))
            )
            if found.system:
                raise NoPermissionError("nobody sends to the broker's own topics", topic=topic)
            # As a client asks before it sends; that to a topic which is there makes none.
            await self._inquirer.leader(
                lambda session: session.run(ask("route", topic=topic, create=True))
            )
            address = f"ipc://{self._inquirer.sources.paths.directory}"
            options = ProducerOptions(timeout_s=QUESTION_S)
            async with AsyncProducer(
                address, name=act.who[:255], options=options, one_group=True
            ) as producer:
                stored = await producer.send(topic, body, tag=tag, keys=keys, properties=properties)
        except LedgerError as error:
            audit(act, error)
            raise
        audit(act, None)
        return {"queue": stored.queue_id, "offset": stored.queue_offset, "msgId": stored.unique_id}


LOOK_AGAIN_S = 0.05
TRANSFER_S = 10.0


class NodeInquiries:
    """Any node answers about itself; who shall lead, only the leader says."""

    def __init__(self, inquirer: Inquirer) -> None:
        self._inquirer = inquirer

    async def status(self) -> Json:
        """What ``ledgermq status`` tells.

        Raises:
            LedgerError: the supervisor does not answer.
        """
        return await self._inquirer.supervisor("status")

    async def raft(self) -> Json:
        """What ``ledgermq raft status`` tells.

        Raises:
            LedgerError: raft does not answer, or the node has no group.
        """
        return await self._inquirer.raft("status")

    async def why_no_leader(self) -> Json:
        """What ``ledgermq raft why-no-leader`` tells."""
        return await self._inquirer.raft("why-no-leader")

    async def features(self) -> Json:
        """What ``ledgermq cluster features`` tells, of this node."""
        levels = await self._inquirer.node(lambda session: session.run(asking(ShowFeatures())))
        return {**levels._asdict(), "levels": [level._asdict() for level in LEVELS]}

    async def transfer(self, target: str) -> Json:
        """What ``ledgermq raft transfer`` tells: when ``target`` leads, or not in time.

        Raises:
            NoPermissionError: the caller is no operator.
            NotLeaderError: this node does not lead.
            TimedOutError: the old leader leads on, or another one does.
        """
        try:
            self._inquirer.check_operator()
        except NoPermissionError as error:
            # What gets as far as raft is noted there.
            audit(Act(f"{self._inquirer.caller.name} (http)", "transfer", target), error)
            raise
        begin = time.monotonic()
        await self._inquirer.raft("transfer", target=target)
        while True:
            status = await self._inquirer.raft("status")
            if status["leader"] == target:
                break
            if time.monotonic() - begin >= TRANSFER_S:
                raise TimedOutError(
                    "the leadership was not handed over", target=target, leader=status["leader"]
                )
            await asyncio.sleep(LOOK_AGAIN_S)
        took_ms = round((time.monotonic() - begin) * 1_000)
        return {"leader": target, "term": cast("int", status["term"]), "took_ms": took_ms}


class MirrorInquiries:
    """Any node answers; they are names and numbers, as metrics tell them, for all who may look."""

    def __init__(self, inquirer: Inquirer) -> None:
        self._inquirer = inquirer

    @property
    def is_mirror(self) -> bool:
        """Whether this node is one."""
        return self._looks.is_mirror

    async def list(self) -> Json:
        """Both: ``own`` and ``mirrors``.

        Raises:
            LedgerError: files of the node cannot be read just now.
        """
        return {
            "is_mirror": self.is_mirror,
            "own": await self.own(),
            "mirrors": await self.held(),
        }

    async def own(self) -> OwnMirror | None:
        """What ``ledgermq mirror status`` tells; None of a node that is no mirror, or told nothing
        yet.

        Raises:
            LedgerError: the report cannot be read.
        """
        return await self._looks.own()

    async def held(self) -> Sequence[HeldMirror]:
        """What ``ledgermq mirror list`` tells, with how many messages each lacks, and for how long.

        Raises:
            LedgerError: files of the node cannot be read just now.
        """
        return await self._looks.held()

    @property
    def _looks(self) -> MirrorLooks:
        looks = self._inquirer.sources.mirrors
        assert looks is not None, "asked of an observer"
        return looks


Row = TypeVar("Row")
Told = TypeVar("Told")


class Inquiries:
    """Those of one caller; made anew for each request. Verbs of the table are asked as they are.

        found = await Inquiries(sources, caller).topics(50, after)
        await Inquiries(sources, caller).ask(DeleteTopic("orders"))

    Attributes:
        node: status, raft, feature levels, hand-over; any node answers about itself.
        mirrors: of this log, and of which one this node's is a copy; any node answers.
        messages, dead_letters, sent: the leader answers, as it does whatever is asked below.
    """

    def __init__(self, sources: Sources, caller: HttpCaller) -> None:
        """Inquiries with the rights of ``caller``."""
        inquirer = self._inquirer = Inquirer(sources, caller)
        self.caller = caller
        self.node = NodeInquiries(inquirer)
        self.mirrors = MirrorInquiries(inquirer)
        self.messages = MessageInquiries(inquirer)
        self.dead_letters = DeadLetterInquiries(inquirer)
        self.sent = SendInquiries(inquirer)

    async def ask(self, verb: Verb[Told]) -> Json:
        """What the leader tells when it is asked ``verb``, with the keys of ``--json``."""
        return verb.document(await self.told(verb))

    async def told(self, verb: Verb[Told]) -> Told:
        """The same with its types."""
        return await self._inquirer.leader(lambda session: session.run(asking(verb)))

    async def page(self, verb: RowsVerb[Row], limit: int = ROWS_DEFAULT, after: str = "") -> Json:
        """The same as ``ask``, with a page of the rows; ``next`` is the ``after`` of the next page,
        or None.
        """
        found = await self.told(verb)
        shown, next_ = page_of(found, after, limit)
        return {**verb.document(found), verb.ROWS[0]: as_json(shown), "next": next_}

    async def topics(
        self, limit: int = ROWS_DEFAULT, after: str = "", *, all_: bool = False
    ) -> Json:
        """What ``ledgermq topic list`` tells, by name; ``next`` is the ``after`` of the next page,
        or None.

        Args:
            after: a name: those behind it.
            all_: those of the system, too.
        """
        steps = named_page(
            ListTopics, lambda row: row.topic, checked_limit(limit), after, all_=all_
        )
        return await self._named("topics", steps)

    async def groups(
        self, limit: int = ROWS_DEFAULT, after: str = "", *, all_: bool = False
    ) -> Json:
        """What ``ledgermq group list`` tells, as ``topics`` does of topics."""
        steps = named_page(
            ListGroups, lambda row: row.group, checked_limit(limit), after, all_=all_
        )
        return await self._named("groups", steps)

    async def _named(self, name: str, steps: Steps[tuple[list[Row], str | None]]) -> Json:
        found, next_ = await self._inquirer.leader(lambda session: session.run(steps))
        return {name: as_json(found), "next": next_}

    async def members(self, group: str) -> Json:
        """What ``ledgermq group members`` tells."""
        return (await self._inquirer.leader(lambda session: session.members(group))).to_fields()

    async def subjects(self) -> list[SubjectRow]:
        """What ``ledgermq schema list`` tells."""
        return await self._inquirer.leader(lambda session: session.subjects())
