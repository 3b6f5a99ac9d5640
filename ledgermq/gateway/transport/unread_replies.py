"""Back-pressure on clients that do not read their replies."""

from __future__ import annotations

from ledgermq.gateway.transport.remoting_sockets import Connection
from ledgermq.ipc.counters import BrokerCounter, Counts
from ledgermq.model.errors import BusyError
from ledgermq.remoting.codes import RequestCode

SHORT_REPLIES = frozenset(
    {
        RequestCode.SEND_MESSAGE,
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE_V2,
        RequestCode.CONSUMER_SEND_MSG_BACK,
        RequestCode.END_TRANSACTION,
        RequestCode.HEART_BEAT,
        RequestCode.UNREGISTER_CLIENT,
        RequestCode.UPDATE_CONSUMER_OFFSET,
        RequestCode.QUERY_CONSUMER_OFFSET,
        RequestCode.UNLOCK_BATCH_MQ,
        RequestCode.ACK_MESSAGE,
        RequestCode.BATCH_ACK_MESSAGE,
        RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
    }
)
"""What is answered all the same: Java's producers and consumers share a connection, and one of them
need not pay for the other; an acknowledgement that is refused is not sent again."""


def check_reads(
    connection: Connection, code: int, limit: int, counts: Counts | None = None
) -> None:
    """Refuse what a client asks for that has left too much unread.

    Args:
        connection: the client's.
        code: of the request.
        limit: bytes of replies that it may leave unread (``limits.unread_replies_bytes``).
        counts: where it is counted.

    Raises:
        BusyError: names the bytes and the limit.
    """
    if connection.queued_bytes > limit and code not in SHORT_REPLIES:
        if counts is not None:
            counts[BrokerCounter.SLOW_REFUSED] += 1
        raise BusyError(
            "client has not read what it was given",
            unread=connection.queued_bytes,
            limit=limit,
            setting="limits.unread_replies_bytes",
        )
