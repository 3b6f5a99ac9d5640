"""Administration of archives, for which retention waits."""

from __future__ import annotations

from typing import NamedTuple

from ledgermq.client.blocking.broker import Broker
from ledgermq.client.core.asked import asked
from ledgermq.client.core.questions import ask
from ledgermq.client.core.requests import Result, Steps
from ledgermq.verbs.answers import Fields, integer, rows


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


class ArchiveVerbs:
    """What an admin asks for, and orders."""

    @asked
    def archives(self) -> Steps[list[ArchiveRow]]:
        """All archives that retention waits for, by name.

        Raises:
            NotLeaderError: no broker answers.
        """
        answer = yield from ask("archive_list")
        end = integer(answer, "queued")
        return rows(answer, "archives", lambda row: _row(row, end))

    @asked
    def commit(self, archive: str, position: int) -> Steps[None]:
        """Let retention wait for ``archive``, which has all of the log below ``position``.

        Raises:
            ConfigError: the name is none, the log does not reach as far, or the archive was
                further already.
            NoPermissionError: this client is no admin there.
        """
        yield from ask("archive_commit", archive=archive, position=position)

    @asked
    def remove(self, archive: str) -> Steps[None]:
        """Let nobody wait for ``archive`` any more.

        Raises:
            ConfigError: nobody waits for it.
            NoPermissionError: this client is no admin there.
        """
        yield from ask("archive_remove", archive=archive)


class ArchiveAdmin(ArchiveVerbs):
    """The verbs over a broker's connection; one thread at a time may use it."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def run(self, steps: Steps[Result]) -> Result:
        """See ``Broker.run``."""
        return self._broker.run(steps)


def _row(row: Fields, end: int) -> ArchiveRow:
    position = integer(row, "position")
    return ArchiveRow(str(row.get("archive")), position, integer(row, "at"), max(0, end - position))
