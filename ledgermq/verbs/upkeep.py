"""Verbs about what the log is kept for, and which feature levels are in force."""

from __future__ import annotations

from typing import Annotated, ClassVar, NamedTuple, cast

from ledgermq.model.features import LEVEL_MAX, MemberLevel
from ledgermq.verbs.answers import Fields, integer
from ledgermq.verbs.needs import CHANGE, USER, read, shown
from ledgermq.verbs.told_rows import Wire
from ledgermq.verbs.verb import Bounds, DoneVerb, Json, RowsVerb, Verb

POSITION_MAX = 2**62

ArchiveName = Annotated[str, "Name of an archive"]


class ArchiveRow(NamedTuple):
    """How far an archive is.

    Attributes:
        position: of the log: it has all below it.
        at_ms: when it said so, epoch ms.
        behind: bytes of the log that it lacks.
    """

    archive: str
    position: int
    at_ms: Annotated[int, Wire("at")]
    behind: int = 0


class FeatureLevels(NamedTuple):
    """Feature levels, as one node knows them.

    Attributes:
        known: the highest that the node knows.
        members_know: the highest that all members have said that they know.
        needed: what the next command of the log needs where the node does not know it; else 0.
        members: what each member has told the node, by name; empty where nobody knows yet.
    """

    node: str
    version: str
    known: int
    members_know: int
    in_force: int
    needed: int
    members: list[MemberLevel]


class ListArchives(RowsVerb[ArchiveRow]):
    """All archives that retention waits for, by name.

    Raises:
        NotLeaderError: no broker answers.
    """

    NAME: ClassVar = "archive_list"
    NEEDS: ClassVar = read(USER)
    ROWS: ClassVar = "archives", ArchiveRow

    def told(self, answer: Fields) -> list[ArchiveRow]:
        """The archives; how far behind they are goes by the end that the answer tells."""
        end = integer(answer, "queued")
        return [row._replace(behind=max(0, end - row.position)) for row in super().told(answer)]


class CommitArchive(DoneVerb):
    """Let retention wait for ``archive``, which has all of the log below ``position``.

    Raises:
        ConfigError: the name is none, the log does not reach as far, or the archive was further
            already.
        NoPermissionError: this client is no admin there.
    """

    NAME: ClassVar = "archive_commit"
    NEEDS: ClassVar = CHANGE
    DONE: ClassVar = "committed", "archive"

    archive: ArchiveName
    position: Annotated[int, Bounds(0, POSITION_MAX), "A position of the log"]


class RemoveArchive(DoneVerb):
    """Let nobody wait for ``archive`` any more.

    Raises:
        ConfigError: nobody waits for it.
        NoPermissionError: this client is no admin there.
    """

    NAME: ClassVar = "archive_remove"
    NEEDS: ClassVar = CHANGE
    DONE: ClassVar = "removed", "archive"

    archive: ArchiveName


class ShowFeatures(Verb[FeatureLevels]):
    """The levels, as the node that is asked knows them.

    Raises:
        NotLeaderError: no broker answers.
        ProtocolError: its version is from before there were levels.
    """

    NAME: ClassVar = "features"
    NEEDS: ClassVar = shown(USER)

    def told(self, answer: Fields) -> FeatureLevels:
        return FeatureLevels(
            str(answer.get("node")),
            str(answer.get("version")),
            integer(answer, "known"),
            integer(answer, "members_know"),
            integer(answer, "in_force"),
            integer(answer, "needed"),
            cast("list[MemberLevel]", answer.get("members", [])),
        )


class EnableFeatures(Verb[int]):
    """Put ``level`` in force, the highest one without; gives the level that is in force then.

    Raises:
        ConfigError: not all members know it, or a higher one is in force.
        NoPermissionError: this client is no admin there.
    """

    NAME: ClassVar = "feature_enable"
    NEEDS: ClassVar = CHANGE

    level: Annotated[int | None, Bounds(0, LEVEL_MAX), "A feature level"] = None

    def told(self, answer: Fields) -> int:
        return integer(answer, "in_force")

    def document(self, told: int) -> Json:
        return {"in_force": told}
