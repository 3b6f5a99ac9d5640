"""Followed tables: topics, groups, consumed offsets and delays of a master, as files of ours.

RocketMQ keeps them outside of its log, and a slave asks for them again and again. So they are as
old here as the last round: what was consumed since is delivered again after a promotion.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from ledgermq.formats.config_json import decode_document, encode_document
from ledgermq.formats.digest import content_digest
from ledgermq.model.errors import ConfigError, CorruptLogError, LedgerError, ProtocolError
from ledgermq.model.ids import Position
from ledgermq.process.clock import NS_PER_MS, Clock, epoch_ms
from ledgermq.remoting.codes import RequestCode
from ledgermq.store.files.config_file import ConfigFile
from ledgermq.store.files.disk_sync import make_folder
from ledgermq.store.files.small_file import replace_file
from ledgermq.understudy.master_access import MasterAccess
from ledgermq.understudy.master_questions import MasterQuestions, MasterReach

TOPICS_FILE, TOPIC_TABLE = "topics.json", "topicConfigTable"
_STATIC = "topicQueueMappingDetailMap"

_TIMER_CHECK_SIZE = 4_096
_TIMER_CHECK_MIN = 32


class _Followed(NamedTuple):
    """One table: the request for it, its file below ``config/``, and the key of its rows."""

    code: int
    file: str
    rows: str
    is_needed: bool


_TABLES = (
    _Followed(RequestCode.GET_ALL_TOPIC_CONFIG, TOPICS_FILE, TOPIC_TABLE, True),
    _Followed(
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
        "subscriptionGroup.json",
        "subscriptionGroupTable",
        True,
    ),
    _Followed(RequestCode.GET_ALL_CONSUMER_OFFSET, "consumerOffset.json", "offsetTable", True),
    _Followed(RequestCode.GET_ALL_DELAY_OFFSET, "delayOffset.json", "offsetTable", False),
)


class TableRound(NamedTuple):
    """One round of questions.

    Attributes:
        reach: which bytes of its log the master had.
        at_ms: when it was begun, epoch ms.
        position: topics of messages before it are in the table, unless they were deleted.
        missing: files that the master did not tell, with its reason.
        took_ms: the master's work, and the way there; not the time until somebody looked.
    """

    reach: MasterReach
    at_ms: int
    took_ms: int
    position: Position
    missing: tuple[str, ...]


class FollowedTables:
    """Owned by the process that follows; a round may run in any thread, one at a time."""

    def __init__(self, root: Path, access: MasterAccess, clock: Clock, *, has_wheel: bool) -> None:
        """Nothing is asked yet.

        Args:
            access: how a master lets in who asks at its remoting port.
            has_wheel: the master is a RocketMQ 5 with timers, and tells how far they are.
        """
        self._config = root / "config"
        self._access = access
        self._has_wheel = has_wheel
        self._clock = clock
        self._questions: MasterQuestions | None = None
        self._written: dict[str, bytes] = {}

    def follow(self, remoting: str, position: Position) -> TableRound:
        """Ask for everything, and write what has changed; durable on return.

        Args:
            remoting: host and port of the master's clients.
            position: end of the log that is here already.

        Raises:
            UnreachableError: the master does not answer.
            ProtocolError: it answers with something else.
            ConfigError: it has begun to use what cannot be followed.
            StorageError: the operating system refused.
        """
        at_ms, begun_ns = epoch_ms(self._clock), self._clock.monotonic_ns()
        if self._questions is not None and self._questions.address != remoting:
            self.close()
        if self._questions is None:
            self._questions = MasterQuestions(remoting, self._access)
        try:
            reach = self._questions.reach()
            missing = [*filter(None, (self._table(self._questions, one) for one in _TABLES))]
            if self._has_wheel:
                missing += filter(None, [self._timer_check(self._questions)])
        except LedgerError:
            self.close()
            raise
        took_ms = (self._clock.monotonic_ns() - begun_ns) // NS_PER_MS
        return TableRound(reach, at_ms, took_ms, position, tuple(missing))

    def close(self) -> None:
        """End the connection; the next round makes another one."""
        if self._questions is not None:
            self._questions.close()
            self._questions = None

    def _table(self, questions: MasterQuestions, table: _Followed) -> str:
        try:
            body = questions.ask(table.code)
        except ProtocolError as error:
            if table.is_needed or "remark" not in error.details:
                raise
            return f"{table.file}: {error.details['remark']}"
        seen = content_digest(body)
        if self._written.get(table.file) == seen:
            return ""
        document = rows_document(body, table.file, table.rows)
        if table.file == TOPICS_FILE:
            if document.get(_STATIC):
                raise ConfigError(
                    "the master has static topics, whose offsets are not those of its files",
                    remoting=questions.address,
                )
            document = {
                key: document[key] for key in ("dataVersion", TOPIC_TABLE) if key in document
            }
        ConfigFile(self._config / table.file).save_content(encode_document(document))
        self._written[table.file] = seen
        return ""

    def _timer_check(self, questions: MasterQuestions) -> str:
        """How far the wheel's timers are, in the form of RocketMQ's own file."""
        try:
            body = questions.ask(RequestCode.GET_TIMER_CHECK_POINT)
        except ProtocolError as error:
            if "remark" not in error.details:
                raise
            return f"timercheck: {error.details['remark']}"
        if not _TIMER_CHECK_MIN <= len(body) <= _TIMER_CHECK_SIZE:
            raise ProtocolError("no checkpoint of timers", size=len(body), limit=_TIMER_CHECK_SIZE)
        if self._written.get("timercheck") != body:
            make_folder(self._config)
            replace_file(self._config / "timercheck", body.ljust(_TIMER_CHECK_SIZE, b"\0"))
            self._written["timercheck"] = body
        return ""


def rows_document(body: bytes, name: str, key: str) -> Mapping[str, object]:
    """The table in an answer, whose rows stand under ``key``.

    Raises:
        ProtocolError: it is none.
    """
    try:
        document = decode_document(body, file=name)
    except CorruptLogError as error:
        raise ProtocolError("the master's table is not understood", reason=str(error)) from error
    if not isinstance(document.get(key), dict):
        raise ProtocolError("the master's table has no rows", table=name, key=key)
    return document
