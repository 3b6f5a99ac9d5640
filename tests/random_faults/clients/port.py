"""A client of RocketMQ's port: one connection at a time, one message after the other."""

from __future__ import annotations

import time

from ledgermq.model.errors import (
    LedgerError,
    MessageIllegalError,
    OutcomeUnknownError,
    ProtocolError,
)
from ledgermq.remoting.codes import RequestCode, ResponseCode
from tests.process.remoting_client import RemotingClient
from tests.random_faults.clients.place import PORT, QUEUES, Client, Place

REFUSED = (
    ResponseCode.MESSAGE_ILLEGAL,
    ResponseCode.TOPIC_NOT_EXIST,
    ResponseCode.NO_PERMISSION,
)
"""Codes that say that nothing was stored; another one may hide an answer that was lost."""


class PortClient(Client):
    """Sends to any node: a follower hands on what it is given."""

    pause_s = 0.2

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._client: RemotingClient | None = None

    def turn(self) -> None:
        """One message."""
        queue, value = self.chance.randrange(QUEUES), self.value()
        number = self.records.begin("send", topic=PORT, queue=queue, values=[value])
        try:
            fields = self._ask(queue, self.body(value))
        except LedgerError as error:
            self.records.failed(number, error, is_send=True)
            self.finish()
        else:
            self.records.ok(number, queues=[queue], offsets=[int(str(fields["queueOffset"]))])

    def finish(self) -> None:
        """End the connection; the next message goes to a drawn node."""
        if self._client is not None:
            self._client.close()
        self._client = None

    def _ask(self, queue: int, body: bytes) -> dict[str, str]:
        try:
            if self._client is None:
                self._client = RemotingClient(self.chance.choice(self.place.ports))
            fields = dict(
                zip(
                    "abcdefghijk",
                    ("port", PORT, "TBW102", QUEUES, queue, 0, int(time.time() * 1_000), 0, "", 0),
                    strict=False,
                )
            )
            reply = self._client.ask(RequestCode.SEND_MESSAGE_V2, {**fields, "k": "false"}, body)
        except (OSError, ProtocolError) as error:
            raise OutcomeUnknownError("no answer", error=str(error)) from error
        if reply.code == ResponseCode.SUCCESS:
            return dict(reply.fields)
        if reply.code in REFUSED:
            raise MessageIllegalError("refused", code=reply.code, remark=reply.remark)
        raise OutcomeUnknownError("not acknowledged", code=reply.code, remark=reply.remark)
