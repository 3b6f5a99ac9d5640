"""Outgoing messages: an application's arguments, checked, as properties on disk, and compressed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from ledgermq.formats.records.body_compression import Compression, check_compression, compress_body
from ledgermq.formats.records.properties import KEYS, TAGS, UNIQ_KEY, encode_properties
from ledgermq.model.errors import ConfigError, MessageIllegalError
from ledgermq.model.limits import (
    ENTRY_SIZE_MAX,
    PROPERTIES_SIZE_MAX,
    TOPIC_SIZE_MAX,
    UNIQUE_ID_SIZE_MAX,
)

Body = bytes | bytearray | memoryview

UNIQUE_ID_DIGITS = 12
"""Digits of a unique id that differ from message to message."""

_OWN_ARGUMENTS = {TAGS: "tag", KEYS: "keys", UNIQ_KEY: "unique_id"}
_TOPIC_ALLOWED = frozenset(b"%|_-0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """One message of a batch.

    Attributes:
        body: the application's bytes.
        tag: what consumers filter by; at most one.
        keys: what the index finds the message by; without spaces.
        properties: the application's own.
        flag: the application's, a signed 32-bit number.
        unique_id: a topic with a window of de-duplication stores one message of it; the producer
            draws one when it is left out.
        sys_flag: the bits that say how ``body`` is compressed already (``Compression.sys_flag``);
            0 when it is not, and the producer may compress it.
    """

    body: Body
    tag: str | None = None
    keys: Sequence[str] = ()
    properties: Mapping[str, str] | None = None
    flag: int = 0
    sys_flag: int = 0
    unique_id: str | None = None


def check_bodies(kinds: Iterable[type]) -> None:
    """Refuse bodies that are no bytes.

    Raises:
        MessageIllegalError: one of these types is another one.
    """
    for kind in kinds:
        if not issubclass(kind, Body):
            raise MessageIllegalError(
                "body is no bytes: encode it, as text.encode() does", kind=kind.__name__
            )


def checked_bodies(messages: Sequence[Body] | Sequence[OutgoingMessage]) -> list[Body]:
    """The bodies of the messages of a batch.

    Raises:
        MessageIllegalError: one is no bytes, or it is one body in place of several.
    """
    if isinstance(messages, str | Body) or not isinstance(messages, Collection):
        way = "list(…) makes one of it" if isinstance(messages, Iterator) else "one is sent by send"
        raise MessageIllegalError(
            f"a batch is a list of bodies: {way}", kind=type(messages).__name__
        )
    bodies = [one.body if isinstance(one, OutgoingMessage) else one for one in messages]
    check_bodies(set(map(type, bodies)))
    return bodies


def check_unique_id(unique_id: str) -> str:
    """An id that an application gives to a message.

    Raises:
        MessageIllegalError: it is empty, too long, or has a character that is not allowed.
    """
    if not isinstance(unique_id, str):
        raise MessageIllegalError("unique id is not a text", unique_id=unique_id)
    if not 0 < len(unique_id) <= UNIQUE_ID_SIZE_MAX:
        raise MessageIllegalError(
            "unique id is empty or too long", unique_id=unique_id, limit=UNIQUE_ID_SIZE_MAX
        )
    if not unique_id.isascii() or not unique_id.isprintable() or " " in unique_id:
        raise MessageIllegalError(
            "unique id has a character that is not allowed",
            unique_id=unique_id,
            limit="printable ASCII without spaces",
        )
    return unique_id


@lru_cache(maxsize=1_024)
def topic_bytes(topic: str) -> bytes:
    """``topic`` as on disk.

    Raises:
        MessageIllegalError: RocketMQ would not take the name.
    """
    try:
        data = topic.encode(errors="replace")
    except AttributeError:
        raise MessageIllegalError("topic is not a text", topic=topic) from None
    if not 0 < len(data) <= TOPIC_SIZE_MAX:
        raise MessageIllegalError(
            "topic is empty or too long", topic=topic, size=len(data), limit=TOPIC_SIZE_MAX
        )
    if not _TOPIC_ALLOWED.issuperset(data):
        raise MessageIllegalError(
            "topic has a character that is not allowed", topic=topic, limit="a-z A-Z 0-9 _ - | %"
        )
    return data


def properties_bytes(
    tag: str | None, keys: Sequence[str], properties: Mapping[str, str] | None
) -> bytes:
    """Everything that stands before the unique id of a message: other properties, its name.

    Raises:
        MessageIllegalError: a name or a value is empty, too long, or has a character that divides
            properties on disk.
    """
    if isinstance(keys, str):
        keys = (keys,)
    if not isinstance(keys, Iterable):
        raise MessageIllegalError("keys are not texts", keys=keys)
    try:
        items = tuple((properties or {}).items())
    except AttributeError:
        raise MessageIllegalError(
            "properties are not texts by name", properties=properties
        ) from None
    return _properties_bytes(tag, tuple(keys), items)


@lru_cache(maxsize=1_024)
def _properties_bytes(
    tag: str | None, keys: tuple[str, ...], items: tuple[tuple[str, str], ...]
) -> bytes:
    values: dict[str, str] = {}
    for name, value in items:
        if not isinstance(name, str):
            raise MessageIllegalError("property name is not a text", name=name)
        if name in _OWN_ARGUMENTS:
            raise MessageIllegalError(
                "property has an argument of its own", name=name, use=_OWN_ARGUMENTS[name]
            )
        values[name] = value
    if tag is not None:
        values[TAGS] = tag
    if keys:
        for key in keys:
            if not isinstance(key, str):
                raise MessageIllegalError("key is not a text", key=key)
            if not key or " " in key:
                raise MessageIllegalError("key is empty or has a space", key=key)
        values[KEYS] = " ".join(keys)
    for name, value in values.items():
        if not isinstance(value, str):
            raise MessageIllegalError("property value is not a text", name=name, value=value)
        if "\x01" in value:
            raise MessageIllegalError("property value has a separator", name=name, value=value)
    # A placeholder of one character: the unique id goes there, message by message.
    data = encode_properties(values | {UNIQ_KEY: "0"})[:-1]
    return data


def check_properties_size(size: int) -> None:
    """Refuse properties that the format cannot hold.

    Raises:
        MessageIllegalError: they are too long.
    """
    if size > PROPERTIES_SIZE_MAX:
        raise MessageIllegalError("properties are too large", size=size, limit=PROPERTIES_SIZE_MAX)


@dataclass(frozen=True, slots=True)
class Compressor:
    """What is compressed how: bodies of ``above`` bytes and more (``None``: none), if it helps."""

    above: int | None
    kind: Compression
    level: int

    @classmethod
    def of(cls, above: int | None, kind: str, level: int | None) -> Compressor:
        """The compressor that options ask for.

        Raises:
            ConfigError: no such kind or level, or a package is missing.
        """
        if above is not None and above < 1:
            raise ConfigError("compress_above out of range", value=above, minimum=1)
        try:
            known = Compression(kind)
        except ValueError as error:
            kinds = [one.value for one in Compression]
            raise ConfigError("compression is none", value=kind, allowed=kinds) from error
        if above is None and (level is not None or known is not Compression.ZLIB):
            raise ConfigError(
                "compress_above=None compresses nothing: compression and its level say nothing",
                compression=kind, compression_level=level,
            )  # fmt: skip
        if level is None:
            level = _LEVELS[known]
        levels = known.levels
        if level not in levels:
            raise ConfigError(
                "compression_level out of range",
                value=level,
                minimum=levels.start,
                limit=levels.stop - 1,
            )
        if above is not None:
            check_compression(known)
        return cls(above, known, level)

    def message(self, message: OutgoingMessage) -> OutgoingMessage:
        """``message``, with its body compressed if that is large, and gets smaller by it.

        What no log takes is left as it is, and refused as such.
        """
        size = len(message.body)
        if self.above is None or not self.above <= size <= ENTRY_SIZE_MAX or message.sys_flag:
            return message
        packed = compress_body(message.body, self.kind, self.level)
        if len(packed) >= size:
            return message
        return replace(message, body=packed, sys_flag=self.kind.sys_flag)

    def batch(
        self, messages: Sequence[Body] | Sequence[OutgoingMessage], shared: OutgoingMessage
    ) -> Sequence[Body] | Sequence[OutgoingMessage]:
        """``messages``, or others in their place when some are large.

        Args:
            shared: what those that are bare bodies have in common.

        Raises:
            MessageIllegalError: a body is no bytes.
        """
        above = self.above
        bodies = checked_bodies(messages)
        if above is None or max(map(len, bodies), default=0) < above:
            return messages
        return [
            self.message(one if isinstance(one, OutgoingMessage) else replace(shared, body=one))
            for one in messages
        ]


_LEVELS = {Compression.ZLIB: 5, Compression.LZ4: 0, Compression.ZSTD: 3}
"""RocketMQ's defaults."""
