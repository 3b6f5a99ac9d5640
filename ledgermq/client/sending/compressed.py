"""Compression of message bodies by a producer: large ones, where that makes them smaller."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ledgermq.client.sending.outgoing import Body, OutgoingMessage
from ledgermq.formats.records.body_compression import Compression, check_compression, compress_body
from ledgermq.model.errors import ConfigError
from ledgermq.model.limits import ENTRY_SIZE_MAX


@dataclass(frozen=True, slots=True)
class Compressor:
    """What is compressed how; ``above`` is the size from which on, ``None`` for never."""

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
        """
        above = self.above
        if above is None or all(_size(one) < above for one in messages):
            return messages
        return [
            self.message(one if isinstance(one, OutgoingMessage) else replace(shared, body=one))
            for one in messages
        ]


_LEVELS = {Compression.ZLIB: 5, Compression.LZ4: 0, Compression.ZSTD: 3}
"""RocketMQ's defaults."""


def _size(message: Body | OutgoingMessage) -> int:
    return len(message.body) if isinstance(message, OutgoingMessage) else len(message)
