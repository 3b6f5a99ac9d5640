"""Commits of batches with what they were made of: a group's offsets and the rows, or neither."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ledgermq.broker.callers import Caller
from ledgermq.broker.calls import Call
from ledgermq.broker.sinks.sink_calls import CONSUMED_MAX, SinkCalls
from ledgermq.model.config.settings import TopicsSection
from ledgermq.model.errors import MessageIllegalError, ProtocolError
from ledgermq.model.limits import SYSTEM_TOPIC
from ledgermq.model.names.stages import Stage
from ledgermq.rules.state.state_commands import STATE_QUEUE_ID
from tests.unit.broker.answers import answers
from tests.unit.broker.memory_log import MemoryLog
from tests.unit.broker.test_sink_service import TOPIC, Node, begun, bodies, named, stage


def consumed(
    node: Node, batch: int, packs: list[tuple[str, int]], begin: int | None, end: int
) -> Any:
    """Commit a batch that was made of queue 0 of the topic, from ``begin`` to ``end``."""
    node.asked += 1
    stages = [[name, [[offset, 1]]] for name, offset in packs]
    arguments = {
        "sink": "q",
        "batch": batch,
        "stages": stages,
        "group": "g",
        "consumed": {TOPIC: {"0": [begin, end]}},
    }
    calls = SinkCalls(node.sinks, node.known, TopicsSection())
    answers(calls.verbs)["sink_commit_consumed"](
        Call(Caller(b"c", node.asked), arguments, node.now_ms)
    )
    node.run()
    return node.replies[node.asked].outcome


def test_a_group_is_where_a_committed_batch_ends_and_the_log_has_both_in_one_command(
    tmp_path: Path,
) -> None:
    log = MemoryLog()
    node = begun(tmp_path, log)
    node.commit(0, [("a", stage(log, Stage("q", 0, "a"), 5))])
    packs = [("b", stage(log, Stage("q", 1, "b"), 2))]
    answer = consumed(node, 1, packs, None, 5)
    messages = log.messages(SYSTEM_TOPIC, STATE_QUEUE_ID)
    commands = [bytes(one.body).decode(errors="replace") for one in messages]
    of_group = [command for command in commands if '"consumed"' in command]

    assert answer["already"] is False
    assert node.tables.offsets.offsets("g", TOPIC) == {0: 5}
    assert bodies(log) == [*named("a", 5), *named("b", 2)]
    assert ['"sink"' in command for command in of_group] == [True]


def test_a_batch_that_runs_again_leaves_the_group_where_it_is_by_then(tmp_path: Path) -> None:
    log = MemoryLog()
    node = begun(tmp_path, log)
    consumed(node, 0, [("a", stage(log, Stage("q", 0, "a"), 5))], None, 0)
    consumed(node, 1, [("b", stage(log, Stage("q", 1, "b"), 1))], 0, 4)
    again = consumed(node, 0, [("c", stage(log, Stage("q", 0, "c"), 5))], None, 0)

    assert again["already"] is True
    assert node.tables.offsets.offsets("g", TOPIC) == {0: 4}
    assert bodies(log) == [*named("a", 5), "b-0"]


@pytest.mark.parametrize(
    ("begin", "end", "what"),
    [
        (2, 4, "not where the batch begins"),
        (4, 5, "not where the batch begins"),
        (None, 5, "not where the batch begins"),
        (3, 2, "below the committed one"),
        (3, 7, "outside of the queue"),
    ],
)
def test_neither_rows_nor_offsets_are_there_of_a_batch_that_begins_or_ends_elsewhere(
    tmp_path: Path, begin: int | None, end: int, what: str
) -> None:
    log = MemoryLog()
    node = begun(tmp_path, log)
    node.commit(0, [("a", stage(log, Stage("q", 0, "a"), 6))])
    consumed(node, 1, [], None, 3)
    refusal = consumed(node, 2, [("b", stage(log, Stage("q", 2, "b"), 2))], begin, end)

    assert isinstance(refusal, MessageIllegalError)
    assert what in str(refusal)
    assert node.tables.offsets.offsets("g", TOPIC) == {0: 3}
    assert node.tables.state.sinks.get("q").batch == 1  # type: ignore[union-attr]
    assert bodies(log) == named("a", 6)


@pytest.mark.parametrize(
    "strange",
    [None, {}, [], {TOPIC: 1}, {TOPIC: {"0": 1}}, {TOPIC: {"0": [1]}}, {TOPIC: {"0": [0, -1]}},
     {TOPIC: {"0": [0, None]}}, {TOPIC: {"x": [0, 1]}}, {TOPIC: {"0": ["0", 1]}},
     {TOPIC: {str(number): [0, 1] for number in range(CONSUMED_MAX + 1)}}],
)  # fmt: skip
def test_what_is_no_place_of_a_group_is_refused(tmp_path: Path, strange: object) -> None:
    node = begun(tmp_path, MemoryLog())
    calls = SinkCalls(node.sinks, node.known, TopicsSection())
    arguments = {"sink": "q", "batch": 0, "stages": [], "group": "g", "consumed": strange}
    with pytest.raises(ProtocolError):
        answers(calls.verbs)["sink_commit_consumed"](Call(Caller(b"c", 1), arguments, 0))
