"""Archives that retention waits for: what an admin asks of a broker."""

from __future__ import annotations

from typing import NamedTuple

from ledgermq.client.broker import Broker, integer
from ledgermq.model.errors import ProtocolError


class ArchiveRow(NamedTuple):
    """How far an archive is.

    Attributes:
        position: of the log: it has all below it.
        at_ms: when it said so, epoch ms.
        behind: bytes of the log that it lacks.
    """

    archive: str
    position: int
    at_ms: int
    behind: int


class ArchiveAdmin:
    """Orders that wait until they are carried out; one thread at a time may give them."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def archives(self) -> list[ArchiveRow]:
        """All archives that retention waits for, by name.

        Raises:
            NotLeaderError: no broker answers.
        """
        answer = self._broker.call("archive_list")
        end = integer(answer, "queued")
        rows = answer.get("archives")
        if not isinstance(rows, list):
            raise ProtocolError("answer without archives", found=type(rows).__name__)
        return [_row(row, end) for row in rows]

    def commit(self, archive: str, position: int) -> None:
        """Let retention wait for ``archive``, which has all of the log below ``position``.

        Raises:
            ConfigError: the name is none, the log does not reach as far, or the archive was
                further already.
            NoPermissionError: this client is no admin there.
        """
        self._broker.call("archive_commit", archive=archive, position=position)

    def remove(self, archive: str) -> None:
        """Let nobody wait for ``archive`` any more.

        Raises:
            ConfigError: nobody waits for it.
            NoPermissionError: this client is no admin there.
        """
        self._broker.call("archive_remove", archive=archive)


def _row(row: object, end: int) -> ArchiveRow:
    if not isinstance(row, dict):
        raise ProtocolError("row of an archive is not an object", row=row)
    position = integer(row, "position")
    return ArchiveRow(str(row.get("archive")), position, integer(row, "at"), max(0, end - position))
