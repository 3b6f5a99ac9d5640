"""Messages of RocketMQ's clients as they will stand in the log.

The layout is that of ``formats/message.py``, with a hole for the entry header before it. What only
the leader knows is left empty: the writer stamps it.
"""

from __future__ import annotations

import struct
from struct import Struct

from ledgermq.client.outgoing import Body
from ledgermq.client.record_encoder import Form
from ledgermq.formats.crc32 import crc32
from ledgermq.formats.host_address import HOST_V6_SIZE
from ledgermq.formats.message import (
    BORN_HOST_V6,
    COMPRESSED,
    COMPRESSION_MASK,
    INNER_BATCH,
    MAGIC,
    MULTI_TAGS,
    NEED_UNWRAP,
    STORE_HOST_V6,
)
from ledgermq.gateway.writer_link import ToStore
from ledgermq.model.errors import MessageIllegalError
from ledgermq.model.limits import ENTRY_SIZE_MAX
from ledgermq.remoting.send_request import SendRequest

_CRC_MASK = 0x7FFF_FFFF
_KEPT = COMPRESSED | COMPRESSION_MASK | MULTI_TAGS
_REFUSED = NEED_UNWRAP | INNER_BATCH
_PROPERTIES_SIZE = Struct(">H")


class RemotingRecords:
    """Encodes for one form of log.

    Attributes:
        form: that of the writer's WELCOME.
    """

    def __init__(self, form: Form) -> None:
        self.form = form
        hole, host = form.entry_header_size, form.store_host_size
        self._no_host = bytes(host)
        self._store_flag = STORE_HOST_V6 if host == HOST_V6_SIZE else 0
        self._heads = {
            born: Struct(f">{hole}xiIIiiqqiq{born}sq{host}siqi") for born in (8, HOST_V6_SIZE)
        }
        self._record_max = ENTRY_SIZE_MAX if hole else 2**31 - 1

    def one(
        self,
        request: SendRequest,
        body: Body,
        *,
        topic: bytes,
        queue_id: int,
        properties: bytes,
        born_host: bytes,
        sys_flag: int = 0,
    ) -> ToStore:
        """The record of a message that goes to ``queue_id`` of ``topic``.

        Args:
            born_host: encoded (``formats.host_address``).
            sys_flag: bits beside those of the request.

        Raises:
            MessageIllegalError: the message is too large, or of a kind that is not stored.
        """
        length = len(body)
        if length > self.form.body_size_max:
            raise MessageIllegalError(
                "body is too large",
                size=length,
                limit=self.form.body_size_max,
                setting="store.max_message_size",
            )
        head = self._heads[len(born_host)]
        size = head.size + length + 1 + len(topic) + 2 + len(properties)
        if size > self._record_max:
            raise MessageIllegalError(
                "message and its entry header are too large for one entry",
                size=size,
                limit=self._record_max,
            )
        packed = head.pack(
            size - self.form.entry_header_size,
            MAGIC,
            crc32(body, 0) & _CRC_MASK,
            queue_id,
            request.flag,
            0,
            0,
            self.flags(request, born_host) | sys_flag,
            request.born_timestamp,
            born_host,
            0,
            self._no_host,
            request.reconsume_times,
            0,
            length,
        )
        tail = b"%c%b%b%b" % (len(topic), topic, _PROPERTIES_SIZE.pack(len(properties)), properties)
        return ToStore(topic, queue_id, (packed, body, tail), (size,), size)

    def flags(self, request: SendRequest, born_host: bytes) -> int:
        """The flags of a request's messages as they are stored.

        Raises:
            MessageIllegalError: it has one of RocketMQ 5 that says what only its broker can read.
        """
        flags = request.sys_flag
        if flags & _REFUSED:
            raise MessageIllegalError(
                "message is of a kind that is not stored here", sys_flag=flags, refused=_REFUSED
            )
        born = BORN_HOST_V6 if len(born_host) == HOST_V6_SIZE else 0
        return flags & _KEPT | born | self._store_flag


assert struct.calcsize(">I") == 4
