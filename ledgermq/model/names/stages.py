"""Vocabulary of staged rows, shared by clients and brokers: labels of stages, names of sinks."""

from __future__ import annotations

from typing import NamedTuple, Self

from ledgermq.model.errors import ProtocolError

SINK_SIZE_MAX = 127
STAGE_SIZE_MAX = 64

_SEPARATOR = "/"


class Stage(NamedTuple):
    """What a pack of rows says of whom it is for: one attempt of one writer at a part of a batch.

    Attributes:
        sink: who writes batches; each has its numbers.
        name: drawn anew for each attempt.
    """

    sink: str
    batch: int
    name: str

    @property
    def label(self) -> str:
        """Value of a pack's property ``STAGE``."""
        return _SEPARATOR.join((self.sink, str(self.batch), self.name))

    @classmethod
    def read(cls, label: str) -> Self | None:
        """The stage of a label; None when it is none."""
        sink, first, rest = label.partition(_SEPARATOR)
        batch, second, name = rest.partition(_SEPARATOR)
        if not (sink and first and second and name and batch.isascii() and batch.isdecimal()):
            return None
        return cls(sink, int(batch), name)


def check_sink_name(name: str) -> str:
    """The name of a sink.

    Raises:
        ProtocolError: it is empty, too long, or has a character that is not allowed.
    """
    allowed = name.isascii() and name.isprintable() and not {" ", _SEPARATOR} & set(name)
    if not 0 < len(name) <= SINK_SIZE_MAX or not allowed:
        raise ProtocolError(
            "name of a sink is empty, too long, or has a character that is not allowed",
            sink=name[:SINK_SIZE_MAX],
            limit=SINK_SIZE_MAX,
            allowed="printable ASCII without blank and /",
        )
    return name
