"""Messages that are sent from a page: one at a time, to topics that are there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ledgermq.broker.call_rights import Act, audit
from ledgermq.client.aio.producer import AsyncProducer
from ledgermq.client.core.questions import ask, asking
from ledgermq.client.sending.send_pipeline import ProducerOptions
from ledgermq.model.errors import LedgerError, NoPermissionError
from ledgermq.observer.inquiries.broker_sessions import QUESTION_S
from ledgermq.observer.inquiries.inquirer import Inquirer
from ledgermq.observer.inquiries.row_pages import Json
from ledgermq.verbs.topics import ShowTopic


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
