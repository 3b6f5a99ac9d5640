"""Calls about sinks: commits and aborts of batches, and lists."""

from __future__ import annotations

from functools import partial

from ledgermq.broker.call_arguments import (
    OFFSET_MAX,
    WAIT_MS_MAX,
    Arguments,
    flag,
    integer,
    offsets_by_queue,
    text,
)
from ledgermq.broker.calls import AnsweredVerb, Call, Result, Verbs
from ledgermq.broker.consumers.consumed_offsets import (
    check_begins,
    plan_consumed,
    touched_offsets,
)
from ledgermq.broker.reading.known_topics import KnownTopics
from ledgermq.broker.sinks.sink_commits import COMMIT_MS, Aborter, AlsoChanged, SinkCommit
from ledgermq.broker.sinks.sink_service import SinkService
from ledgermq.model.config.settings import TopicsSection
from ledgermq.model.errors import ConfigError, ProtocolError
from ledgermq.model.names.stages import STAGE_SIZE_MAX, check_sink_name
from ledgermq.model.rights import Right
from ledgermq.rules.tables.sinks import packs_in
from ledgermq.rules.tables.table_changes import Change
from ledgermq.verbs.needs import ADMIN_ANYWHERE, GROUP, USER, read

STAGES_MAX = 100_000
CONSUMED_MAX = 10_000
"""Queues whose offsets are committed with a batch."""


class SinkCalls:
    """A commit goes through the log, and is answered from there; ``sinks`` any node answers."""

    def __init__(self, service: SinkService, known: KnownTopics, rules: TopicsSection) -> None:
        self._service = service
        self._known = known
        self._rules = rules
        self.verbs: Verbs = (
            AnsweredVerb("sink_commit", self._commit, USER),
            # A verb of its own: who does not know it must not commit the rows alone.
            AnsweredVerb("sink_commit_consumed", self._commit_consumed, GROUP),
            AnsweredVerb("sink_wait", self._wait, read(USER)),
            AnsweredVerb("sink_abort", self._abort, USER),
            AnsweredVerb("sinks", self._list, read(ADMIN_ANYWHERE)),
        )

    def _commit_consumed(self, call: Call) -> None:
        """Commit a batch, and with it how far a group has consumed what it was made of."""
        group = text(call.arguments, "group")
        begins, ends = _consumed_of(call.arguments)
        for topic in ends:
            call.check_topic(topic, Right.SUB)

        def plan() -> list[Change]:
            check_begins(self._known.tables.offsets, group, begins)
            return plan_consumed(self._known, self._rules, group, ends)

        self._commit(call, AlsoChanged(plan, touched_offsets(group, ends)))

    def _commit(self, call: Call, also: AlsoChanged | None = None) -> None:
        arguments = call.arguments
        sink, batch = _batch_of(arguments)
        check = partial(_check_topic, call)
        packs = _packs_of(arguments)
        until_ms = call.now_ms + COMMIT_MS
        is_once = flag(arguments, "once")
        self._service.commit(
            SinkCommit(
                call.caller,
                sink,
                batch,
                is_once,
                packs,
                check,
                until_ms,
                user=call.user,
                acts_for=call.acts_for,
                also=also,
            )
        )

    def _wait(self, call: Call) -> None:
        sink, batch = _batch_of(call.arguments)
        wait_ms = integer(call.arguments, "wait_ms", 0, WAIT_MS_MAX)
        self._service.wait(call.caller, sink, batch, call.now_ms + wait_ms)

    def _abort(self, call: Call) -> Result:
        sink, batch = _batch_of(call.arguments)
        stages = call.arguments.get("stages", [])
        if not isinstance(stages, list) or len(stages) > STAGES_MAX:
            raise ProtocolError("argument not a list, or too long", argument="stages")

        def may(topic: str) -> bool:
            return call.may(topic, Right.PUB)

        names = [_stage_name(one) for one in stages]
        self._service.abort(sink, batch, names, Aborter(call.user, call.acts_for, may))
        return {"sink": sink, "batch": batch}

    def _list(self, call: Call) -> Result:
        """The sinks that are remembered, and the part of the staged queue that is kept."""
        del call
        first, end = self._service.staged()
        rows = [
            {
                "sink": name,
                "batch": sink.batch,
                "committed": sink.at_ms,
                "rows": sink.rows,
                "packs_left": len(sink.left),
                "once": sink.is_once,
            }
            for name, sink in self._known.tables.state.sinks
        ]
        return {"sinks": rows, "staged_first": first, "staged_end": end}


def _check_topic(call: Call, topic: str) -> None:
    call.check_topic(topic, Right.PUB)


def _batch_of(arguments: Arguments) -> tuple[str, int]:
    return check_sink_name(text(arguments, "sink")), integer(arguments, "batch", 0, OFFSET_MAX)


def _stage_name(value: object) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= STAGE_SIZE_MAX:
        raise ProtocolError("not the name of a stage", found=str(value)[:80], limit=STAGE_SIZE_MAX)
    return value


def _consumed_of(
    arguments: Arguments,
) -> tuple[dict[str, dict[int, int | None]], dict[str, dict[int, int]]]:
    """Where a batch begins and ends in what it was made of, by topic and queue.

    Raises:
        ProtocolError: ``consumed`` is not {topic: {queue: [begin or null, end]}}, or has too many.
    """
    value = arguments.get("consumed")
    if not isinstance(value, dict) or not value:
        raise ProtocolError("argument missing, or not an object", argument="consumed")
    begins: dict[str, dict[int, int | None]] = {}
    ends: dict[str, dict[int, int]] = {}
    for topic, queues in value.items():
        if not isinstance(queues, dict) or not all(
            isinstance(pair, list) and len(pair) == 2 for pair in queues.values()
        ):
            raise ProtocolError("not a begin and an end of each queue", topic=topic[:128])
        read = {key: end for key, (_, end) in queues.items()}
        known = {key: begin for key, (begin, _) in queues.items() if begin is not None}
        ends[topic] = offsets_by_queue({"consumed": read}, "consumed")
        begun = offsets_by_queue({"consumed": known}, "consumed")
        begins[topic] = {queue_id: begun.get(queue_id) for queue_id in ends[topic]}
    count = sum(map(len, ends.values()))
    if count > CONSUMED_MAX:
        raise ProtocolError("too many queues", argument="consumed", found=count, limit=CONSUMED_MAX)
    return begins, ends


def _packs_of(arguments: Arguments) -> tuple[tuple[str, int], ...]:
    """The packs of ``stages``, which is a list of [name, [[first, count], ...]].

    Raises:
        ProtocolError: it is none, or names a pack twice.
    """
    stages = arguments.get("stages")
    if not isinstance(stages, list) or len(stages) > STAGES_MAX:
        raise ProtocolError("argument not a list, or too long", argument="stages", limit=STAGES_MAX)
    packs: list[tuple[str, int]] = []
    for stage in stages:
        match stage:
            case [name, ranges]:
                try:
                    packs += ((_stage_name(name), offset) for offset in packs_in(ranges))
                except ConfigError as error:
                    raise ProtocolError("not the packs of a stage", reason=str(error)) from error
            case _:
                raise ProtocolError("not a stage and its packs", found=str(stage)[:80])
    if len({offset for _, offset in packs}) < len(packs):
        raise ProtocolError("a pack is named twice", argument="stages", packs=len(packs))
    return tuple(packs)
