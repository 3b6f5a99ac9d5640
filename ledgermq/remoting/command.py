"""Command codec: one request or reply of the protocol, with either of its two kinds of header.

A frame, big-endian (``NettyDecoder``, ``RemotingCommand``, ``RocketMQSerializable``):

    size  field
    4     bytes behind this field
    1     kind of header: 0 JSON, 1 binary
    3     size of the header
    n     header
    m     body: the rest

A binary header:

    size  field
    2     code
    1     language
    2     version
    4     opaque: number of the request, repeated in its reply
    4     flag: 1 a reply, 2 a request without reply
    4+n   remark, behind its size
    4+n   fields, behind the size of all: 2+n name, 4+n value
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from struct import Struct

from ledgermq.formats.kernels import kernel
from ledgermq.formats.kernels.kernel import scan_header, scan_send
from ledgermq.model.errors import ProtocolError
from ledgermq.remoting.codes import Language, RequestCode, ResponseCode
from ledgermq.remoting.fields import INT32_MAX
from ledgermq.remoting.whole_text import may_be_cut, whole

VERSION = 401
"""That of RocketMQ 4.9.4 (``MQVersion``): clients choose features by it."""

RETRIES_VERSION = 121
"""``MQVersion`` from which a client's own limit of retries counts (V3_4_9)."""

REPLY = 1
ONEWAY = 2

BINARY_CODE_MAX = 2**15 - 1
"""Larger codes, as those of POP, have no binary header."""

HEADER_SIZE_MAX = 1024 * 1024
"""The longest properties, each character escaped in JSON, are a fifth of this."""

_TOTAL = Struct(">I")
_FIXED = Struct(">hbhiii")
_NAME_SIZE = Struct(">h")
_VALUE_SIZE = Struct(">i")

_SEND_V2 = int(RequestCode.SEND_MESSAGE_V2)
_LANGUAGES = frozenset(map(int, Language))
_LANGUAGE_NUMBERS: dict[str | None, int] = {one.name: int(one) for one in Language}
_LANGUAGE_NAMES = {int(one): one.name for one in Language}
_NAME_SIZE_MAX = 2**15 - 1
_ONLY_TEXTS = {str}
_quoted = json.encoder.encode_basestring_ascii
_raw_decode = json.JSONDecoder().raw_decode

LENGTHS_SIZE = 8
"""Bytes in front of a header."""


class HeaderKind(IntEnum):
    """How a header is written; a reply has that of its request."""

    JSON = 0
    BINARY = 1


@dataclass(slots=True)
class Command:
    """A request or a reply.

    Attributes:
        code: what is asked for (``RequestCode``), or what came of it (``ResponseCode``).
        opaque: number of the request; each side of a connection counts its own.
        fields: the code's own header; as text, whatever the peer sent.
        body: a view of the frame, valid as long as that is; bytes in what is to be sent.
        remark: why, for people.
        language: ``Language``, or another number; -1 when the peer names one unknown here.
        version: ``MQVersion`` of the peer.
        kind: how its header is written.
    """

    code: int
    opaque: int = 0
    fields: Mapping[str, str] = field(default_factory=dict)
    body: bytes | memoryview = b""
    flag: int = 0
    remark: str | None = None
    language: int = Language.JAVA
    version: int = VERSION
    kind: HeaderKind = HeaderKind.JSON

    @property
    def is_reply(self) -> bool:
        """Whether it answers a request of the other direction."""
        return bool(self.flag & REPLY)

    @property
    def is_oneway(self) -> bool:
        """Whether nobody waits for a reply."""
        return bool(self.flag & ONEWAY)

    def reply(
        self,
        code: int = ResponseCode.SUCCESS,
        *,
        fields: Mapping[str, str] | None = None,
        body: bytes | memoryview = b"",
        remark: str | None = None,
    ) -> Command:
        """The reply to this request, in its own kind of header."""
        return Command(code, self.opaque, fields or {}, body, REPLY, remark, kind=self.kind)


SentHeader = tuple[int, int, int, str, str, int, int, int, int, int, bytes]
"""The header of a send, field by field, as ``kernel.scan_send`` gives it."""


class SendCommand(Command):
    """A message in short form, as nearly all come: its fields are read once somebody asks for them.

    Attributes:
        sent: what the header says of the message.
    """

    __slots__ = ("_fields", "_header", "sent")

    def __init__(self, header: memoryview, body: memoryview, sent: SentHeader) -> None:
        self.code = _SEND_V2
        self.opaque, self.flag, self.version = sent[:3]
        self.body = body
        self.remark = None
        self.language = _LANGUAGE_NUMBERS.get(sent[3], -1)
        self.kind = HeaderKind.JSON
        self.sent = sent
        self._header = header
        self._fields: Mapping[str, str] | None = None

    @property
    def fields(self) -> Mapping[str, str]:
        if self._fields is None:
            self._fields = _decode_json(self._header, memoryview(b"")).fields
        return self._fields

    @fields.setter
    def fields(self, fields: Mapping[str, str]) -> None:
        self._fields = fields


def decode_command(frame: memoryview) -> Command:
    """The command in ``frame``, which begins behind the size of the whole.

    The result's body is a view of ``frame``.

    Raises:
        ProtocolError: it is not one; the connection cannot be trusted any more.
    """
    if len(frame) < LENGTHS_SIZE - 4:
        raise ProtocolError("frame without a header", size=len(frame), minimum=LENGTHS_SIZE - 4)
    size = int.from_bytes(frame[1:4], "big")
    if size > len(frame) - 4 or size > HEADER_SIZE_MAX:
        limit = min(len(frame) - 4, HEADER_SIZE_MAX)
        raise ProtocolError("header is larger than its frame or the limit", size=size, limit=limit)
    body = frame[4 + size :]
    if frame[0] == HeaderKind.JSON:
        # Uncompiled they would take longer than the decoder that reads everything.
        if not kernel.compiled:
            return _decode_json(frame[4 : 4 + size], body)
        sent = scan_send(frame, 4, 4 + size, _SEND_V2)
        if sent is not None:
            return SendCommand(frame[4 : 4 + size], body, sent)
        found = scan_header(frame, 4, 4 + size)
        if found is None:
            return _decode_json(frame[4 : 4 + size], body)
        code, opaque, fields, flag, remark, language, version = found
        number = _LANGUAGE_NUMBERS.get(language, -1)
        return Command(code, opaque, fields, body, flag, remark, number, version)
    header = frame[4 : 4 + size]
    if frame[0] == HeaderKind.BINARY:
        return _decode_binary(header, body)
    raise ProtocolError("unknown kind of header", kind=frame[0], allowed=[0, 1])


def encode_command(command: Command) -> list[bytes | memoryview]:
    """The frame of ``command`` as one part, and as a second one its body if it has any.

    Raises:
        ProtocolError: the header cannot be written in its kind.
    """
    is_binary = command.kind is HeaderKind.BINARY
    header = _encode_binary(command) if is_binary else _encode_json(command)
    total = LENGTHS_SIZE - 4 + len(header) + len(command.body)
    lengths = _TOTAL.pack(total) + _TOTAL.pack(command.kind << 24 | len(header))
    head = lengths + header
    return [head, command.body] if len(command.body) else [head]


def encode_handed_on(command: Command) -> list[bytes | memoryview]:
    """The frame of a request that goes on to who decodes it, as ``encode_command``.

    Raises:
        ProtocolError: the header cannot be written in its kind, or is larger than one may be:
            written anew, as JSON escapes it and what was no UTF-8 is replaced, it has grown.
    """
    parts = encode_command(command)
    size = len(parts[0]) - LENGTHS_SIZE
    if size > HEADER_SIZE_MAX:
        raise ProtocolError("header is too large to be handed on", size=size, limit=HEADER_SIZE_MAX)
    return parts


def _decode_json(header: memoryview, body: memoryview) -> Command:
    try:
        found = _read_json(str(header, "utf-8"))
    # ValueError is all that is not JSON or not UTF-8; the decoder goes as deep as the text does.
    except (ValueError, RecursionError) as error:
        raise ProtocolError("header is not JSON", reason=str(error)[:100]) from error
    if not isinstance(found, dict):
        raise ProtocolError("header is not a JSON object", found=type(found).__name__)
    remark = found.get("remark")
    return Command(
        _int32(found, "code"),
        _int32(found, "opaque"),
        _texts(found.get("extFields")),
        body,
        _int32(found, "flag"),
        None if remark is None else str(remark),
        _language(found.get("language")),
        _int32(found, "version"),
        HeaderKind.JSON,
    )


def _read_json(text: str) -> object:
    """What ``text`` says: ``json.loads`` without its preparations, which cost more than it does."""
    if text.startswith("{"):
        found, end = _raw_decode(text)
        if end == len(text):
            return whole(found) if may_be_cut(text) else found
    # Blanks around it, or no object at all.
    return whole(json.loads(text))


def _int32(header: Mapping[str, object], name: str) -> int:
    """A number of the header; what is missing is 0, as Java's fields begin."""
    value = header.get(name, 0)
    # Not isinstance: a truth value is no number.
    if type(value) is int and -INT32_MAX - 1 <= value <= INT32_MAX:
        return value
    raise ProtocolError("not a 32-bit number", field=name, value=str(value)[:64])


def _language(value: object) -> int:
    if isinstance(value, str):
        return Language.__members__.get(value, -1)
    return value if isinstance(value, int) and not isinstance(value, bool) else -1


def _texts(fields: object) -> dict[str, str]:
    """Fields as texts; some clients send numbers and truth values (fastjson takes both)."""
    if fields is None:
        return {}
    if not isinstance(fields, dict):
        raise ProtocolError("extFields is not a JSON object", found=type(fields).__name__)
    if set(map(type, fields.values())) == _ONLY_TEXTS:
        return fields
    return {name: _text(value) for name, value in fields.items() if value is not None}


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    try:
        return json.dumps(value, separators=(",", ":"))
    except RecursionError as error:
        raise ProtocolError("a field is nested too deep", reason=str(error)[:100]) from error


def _encode_json(command: Command) -> bytes:
    header = (
        f'{{"code":{int(command.code)},"flag":{int(command.flag)},'
        f'"language":"{_LANGUAGE_NAMES.get(command.language, Language.OTHER.name)}",'
        f'"opaque":{command.opaque},"serializeTypeCurrentRPC":"JSON","version":{command.version}'
    )
    # Lone surrogates are escaped: ASCII can always be encoded.
    if command.fields:
        fields = [f"{_quoted(name)}:{_quoted(text)}" for name, text in command.fields.items()]
        header += f',"extFields":{{{",".join(fields)}}}'
    if command.remark is not None:
        header += f',"remark":{_quoted(command.remark)}'
    return (header + "}").encode("ascii")


def _decode_binary(header: memoryview, body: memoryview) -> Command:
    try:
        code, language, version, opaque, flag, remark_size = _FIXED.unpack_from(header)
        remark, at = _sized_text(header, _FIXED.size, remark_size)
        (fields_size,) = _VALUE_SIZE.unpack_from(header, at)
        at += _VALUE_SIZE.size
        if not 0 <= fields_size <= len(header) - at:
            raise ProtocolError("fields are larger than the header", size=fields_size)
        fields, end = {}, at + fields_size
        while at < end:
            (size,) = _NAME_SIZE.unpack_from(header, at)
            name, at = _sized_text(header, at + _NAME_SIZE.size, size)
            (size,) = _VALUE_SIZE.unpack_from(header, at)
            value, at = _sized_text(header, at + _VALUE_SIZE.size, size)
            if name and value:
                fields[name] = value
        if at != end:
            raise ProtocolError("fields end beyond their size", at=at, end=end)
    except struct.error as error:
        raise ProtocolError("binary header is cut", size=len(header)) from error
    return Command(
        code, opaque, fields, body, flag, remark or None, language, version, HeaderKind.BINARY
    )


def _sized_text(header: memoryview, at: int, size: int) -> tuple[str, int]:
    """A text and where it ends; empty ones are null in Java."""
    if not 0 <= size <= len(header) - at:
        raise ProtocolError("a text is larger than the header", size=size, limit=len(header) - at)
    return bytes(header[at : at + size]).decode(errors="replace"), at + size


def _encode_binary(command: Command) -> bytes:
    parts = []
    for name, value in command.fields.items():
        key, text = name.encode(errors="replace"), value.encode(errors="replace")
        if len(key) > _NAME_SIZE_MAX:
            raise ProtocolError(
                "name of a field has no place in a binary header",
                size=len(key),
                limit=_NAME_SIZE_MAX,
            )
        parts += [_NAME_SIZE.pack(len(key)), key, _VALUE_SIZE.pack(len(text)), text]
    fields = b"".join(parts)
    remark = (command.remark or "").encode(errors="replace")
    language = command.language if command.language in _LANGUAGES else Language.OTHER
    try:
        fixed = _FIXED.pack(
            command.code, language, command.version, command.opaque, command.flag, len(remark)
        )
    except struct.error as error:
        raise ProtocolError(
            "code has no binary header: it has 16 bits there",
            code=command.code,
            limit=BINARY_CODE_MAX,
        ) from error
    return b"".join((fixed, remark, _VALUE_SIZE.pack(len(fields)), fields))
