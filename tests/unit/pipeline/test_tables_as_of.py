"""The broker's tables as of any entry and any instant are what a replay of the whole log says."""

from __future__ import annotations

import json
import random
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ledgermq.cli.main import main
from ledgermq.cli.spark.cold_tables import tables_at
from ledgermq.formats.records.message import Message
from ledgermq.formats.records.properties import decode_properties, encode_properties
from ledgermq.model.errors import ConfigError, MessageUnknownError
from ledgermq.model.limits import SYSTEM_TOPIC
from ledgermq.pipeline.columns.message_schema import COLUMNS
from ledgermq.pipeline.columns.row_filter import RowFilter
from ledgermq.pipeline.pieces.cold_queues import ColdQueues
from ledgermq.pipeline.pieces.log_sealing import SealSizes, seal_log
from ledgermq.pipeline.pieces.moments import end_at, moment_as_told, moment_of
from ledgermq.pipeline.pieces.piece_places import SealedFolder
from ledgermq.pipeline.source.row_source import chosen_ranges, open_source
from ledgermq.pipeline.source_options import parse_options
from ledgermq.rules.messages.topic_plans import READ_WRITE
from ledgermq.rules.state import state_commands
from ledgermq.rules.state.broker_state import BrokerState
from ledgermq.rules.state.state_commands import Snapshot, StateCommand, encode_command
from ledgermq.rules.tables.table_changes import OffsetsSet, TopicSet, UserSet
from ledgermq.rules.tables.topics import Topic
from ledgermq.store.log_reader import LogReader
from ledgermq.store.store_directory import open_directory
from tests.row_batches import batches_of
from tests.unit.pipeline.made_logs import MadeLog, Written, made_log
from tests.whole_snapshots import encode_snapshot

pytestmark = pytest.mark.slow

ENTRIES = 400
SIZES = SealSizes(piece_bytes=30_000, group_bytes=8_000)


class Grown(NamedTuple):
    """A log, and which entry a snapshot that is whole ends at first."""

    log: MadeLog
    first_whole: int


def command(chance: random.Random, number: int) -> Written:
    """One that changes a table, or that no node can apply."""
    changes: list[Any] = [
        OffsetsSet(f"group{chance.randrange(3)}", "orders", {chance.randrange(4): number}),
        OffsetsSet("group0", "stock", None),
        TopicSet(f"topic{chance.randrange(9)}", Topic("", 4, 4, READ_WRITE).to_fields()),
        TopicSet(f"topic{chance.randrange(9)}", None),
        UserSet(f"user{chance.randrange(5)}", {"secretKey": f"secret of {number}"}),
        UserSet(f"user{chance.randrange(5)}", None),
    ]
    one = chance.choice(changes)
    if isinstance(one, TopicSet) and one.fields is not None:
        one = TopicSet(one.name, {**one.fields, "topicName": one.name})
    body = encode_command(StateCommand(f"id{number}", 1_000 + number, (one,)))
    if chance.random() < 0.05:
        body = b"no command"
    return Written(SYSTEM_TOPIC, 1, body, encode_properties({"TAGS": "state"}))


READABLE = Topic("", 4, 4, READ_WRITE).to_fields()


def written_as(change: Any, number: int) -> Written:
    """The command of one change."""
    body = encode_command(StateCommand(f"id{number}", 1_000 + number, (change,)))
    return Written(SYSTEM_TOPIC, 1, body, encode_properties({"TAGS": "state"}))


def apply(state: BrokerState, offset: int, one: Written | Message) -> None:
    """As every node does."""
    properties = decode_properties(one.properties)
    try:
        tag, label = properties["TAGS"], properties.get("PART", "")
        state.apply(offset, tag, label, bytes(one.body))
    except Exception as error:
        assert type(error).__name__ in ("CorruptLogError", "ConfigError"), error
        state.pass_over(offset)


def grown(seed: int, monkeypatch: pytest.MonkeyPatch) -> Grown:
    """Messages, commands, snapshots in parts, and some that a leader has not finished."""
    monkeypatch.setattr(state_commands, "PART_SIZE_MAX", 300)
    chance = random.Random(seed)
    truth, written, offset, first_whole = BrokerState({}), list[Written](), 0, -1
    truth.begin_at(0, 0)

    def put(one: Written) -> None:
        nonlocal offset
        written.append(one._replace(later_ms=chance.choice((0, 1, 5, 40, -3))))
        if one.topic == SYSTEM_TOPIC:
            apply(truth, offset, one)
            offset += 1

    for number in range(20):
        put(Written("orders", number % 4, b"before there is a snapshot"))
    while len(written) < ENTRIES:
        kind = chance.random()
        if kind < 0.06 or first_whole < 0:
            taken = Snapshot(f"snapshot{len(written)}", len(written), truth.tables())
            parts = encode_snapshot(taken)
            is_cut = chance.random() < 0.3 and first_whole >= 0
            for part in parts[: chance.randrange(len(parts))] if is_cut else parts:
                properties = {"TAGS": "state-snapshot", "PART": part.label}
                put(Written(SYSTEM_TOPIC, 1, part.content, encode_properties(properties)))
                last = len(written) - 1
                if chance.random() < 0.3:
                    put(Written("orders", 0, b"between the parts"))
            if first_whole < 0:
                first_whole = last
                put(written_as(TopicSet("orders", {**READABLE, "topicName": "orders"}), 0))
        elif kind < 0.5:
            put(command(chance, len(written)))
        else:
            put(Written(chance.choice(("orders", "stock")), chance.randrange(4), bytes(50)))
    return Grown(made_log(written), first_whole)


def sealed(log: MadeLog, folder: Path) -> ColdQueues:
    """Pieces of the log, as a store has it."""
    data = folder / "store" / "dledger-n0" / "data"
    data.mkdir(parents=True)
    size = len(log.content) + 4_096
    (data / f"{0:020d}").write_bytes(log.content + bytes(size - len(log.content)))
    (folder / "store" / "dledger-n0" / "index").mkdir()
    place = SealedFolder(folder / "place")
    with closing(LogReader(open_directory(folder / "store"))) as reader:
        seal_log(place, reader, len(log.content), sizes=SIZES)
    return ColdQueues(place)


def replay(messages: list[Message]) -> tuple[dict[str, Any], dict[tuple[str, str, int], int]]:
    """All tables after these messages, from the first one on; and offsets by no table of ours."""
    state, offset = BrokerState({}), 0
    state.begin_at(0, 0)
    plain: dict[tuple[str, str, int], int] = {}
    for message in messages:
        if (message.topic, message.queue_id) != (SYSTEM_TOPIC, 1):
            continue
        apply(state, offset, message)
        offset += 1
        if decode_properties(message.properties)["TAGS"] == "state" and message.body[:1] == b"{":
            for change in json.loads(bytes(message.body))["changes"]:
                if "consumed" not in change:
                    continue
                topic, _, group = change["consumed"].partition("@")
                if change["offsets"] is None:
                    plain = {key: at for key, at in plain.items() if key[:2] != (group, topic)}
                for queue, at in (change["offsets"] or {}).items():
                    plain[group, topic, int(queue)] = at
    return state.tables(), plain


def offsets_in(state: BrokerState) -> dict[tuple[str, str, int], int]:
    return {
        (owner.group, owner.topic, queue): at
        for owner, queues in state.offsets
        for queue, at in queues.items()
    }


@pytest.mark.parametrize("seed", range(3))
def test_tables_as_of_an_index_are_those_of_a_replay(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, first_whole = grown(seed, monkeypatch)
    queues = sealed(log, tmp_path)
    assert len(queues.manifest.rows) > 2
    chance = random.Random(seed)
    for index in [first_whole, ENTRIES - 1, *chance.sample(range(first_whole, ENTRIES), 60)]:
        found = tables_at(queues, moment_of(queues, index=index, time_ms=None))
        tables, plain = replay(list(log.messages[: index + 1]))
        assert found.state.tables() == tables, index
        assert offsets_in(found.state) == plain, index
    for index in (first_whole - 1, 0):
        with pytest.raises(MessageUnknownError):
            tables_at(queues, moment_of(queues, index=index, time_ms=None))
    with pytest.raises(ConfigError, match="so far"):
        moment_of(queues, index=len(log.messages), time_ms=None)


def test_tables_as_of_an_instant_are_before_the_first_message_that_came_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, first_whole = grown(3, monkeypatch)
    queues = sealed(log, tmp_path)
    times = [message.store_timestamp for message in log.messages]
    for time_ms in random.Random(3).sample(range(times[0], max(times) + 2), 60):
        end = next((n for n, at in enumerate(times) if at > time_ms), len(times))
        if end <= first_whole:
            continue
        found = tables_at(queues, moment_of(queues, index=None, time_ms=time_ms))
        assert found.state.tables() == replay(list(log.messages[:end]))[0], time_ms


def test_the_command_tells_what_a_group_had_consumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log, first_whole = grown(4, monkeypatch)
    queues = sealed(log, tmp_path)
    place = str(tmp_path / "place")
    index = (first_whole + ENTRIES) // 2
    for words, when in (([], index), (["orders"], ENTRIES - 1)):
        arguments = ["offset", "show", "group1", *words, "--as-of", f"index={when}"]
        assert main([*arguments, "--from", place, "--json"]) == 0
        told = json.loads(capsys.readouterr().out)
        _, plain = replay(list(log.messages[: when + 1]))
        assert {(row["topic"], row["queue"]): row["committed"] for row in told["queues"]} == {
            (topic, queue): at for (group, topic, queue), at in plain.items() if group == "group1"
        }
    moment_as_told(queues, "2026-11-29T14:05", option="--as-of")
    for words in (["--as-of", "index=x", "--from", place], ["--as-of", "index=3"]):
        assert main(["offset", "show", "group1", *words]) == 1
    assert main(["offset", "show", "group1", "--from", place]) == 1


def queue_ends(messages: list[Message]) -> dict[tuple[str, int], int]:
    """Behind the last message of each queue."""
    return {(one.topic, one.queue_id): one.queue_offset + 1 for one in messages}


@pytest.mark.long
def test_queues_end_where_they_ended_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, _ = grown(5, monkeypatch)
    queues = sealed(log, tmp_path)
    every = queue_ends(list(log.messages))
    for index in range(0, ENTRIES, 7):
        moment = moment_of(queues, index=index, time_ms=None)
        ends = queue_ends(list(log.messages[: index + 1]))
        for topic, queue_id in every:
            assert end_at(queues, topic, queue_id, moment) == ends.get((topic, queue_id), 0)
    assert end_at(queues, "of nobody", 0, moment) == 0
    last = moment_of(queues, index=None, time_ms=None)
    assert {queue: end_at(queues, *queue, last) for queue in every} == every


def test_spark_reads_the_messages_of_an_instant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, _ = grown(6, monkeypatch)
    sealed(log, tmp_path)
    place = str(tmp_path / "place")
    times = [message.store_timestamp for message in log.messages]
    for index in (0, 19, 150, ENTRIES - 1):
        for as_of, end in (
            (f"index={index}", index + 1),
            (str(times[index]), next((n for n, at in enumerate(times) if at > times[index]), None)),
        ):
            options = parse_options({"pieces": place, "asOf": as_of}, streaming=False)
            source = open_source(options)
            read = source.read(chosen_ranges(source, options), fail_on_data_loss=True)
            found = [
                int(row["physicalOffset"])
                for batch in batches_of(read, COLUMNS, RowFilter(), inflate=False)
                for row in batch.to_pylist()
            ]
            expected = [
                one.physical_offset for one in log.messages[:end] if one.topic != SYSTEM_TOPIC
            ]
            assert sorted(found) == expected, as_of


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"path": "/srv/store", "asOf": "1"}, "by pieces alone"),
        ({"pieces": "PLACE", "asOf": "yesterday"}, "asOf is no time"),
        ({"pieces": "PLACE", "asOf": "index=x"}, "asOf names no entry"),
        ({"pieces": "PLACE", "asOf": "index=99999"}, "do not go so far"),
    ],
)
def test_an_instant_that_is_none_is_refused(
    options: dict[str, str], match: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, _ = grown(7, monkeypatch)
    sealed(log, tmp_path)
    given = {key: value.replace("PLACE", str(tmp_path / "place")) for key, value in options.items()}
    with pytest.raises(ConfigError, match=match):
        chosen_ranges(open_source(parsed := parse_options(given, streaming=False)), parsed)
    with pytest.raises(ConfigError, match="asOf"):
        parse_options(given, streaming=True)


def test_explain_tells_what_a_group_had_and_had_not_consumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log, first_whole = grown(8, monkeypatch)
    queues = sealed(log, tmp_path)
    place = str(tmp_path / "place")
    seen = 0
    for index in range(first_whole, ENTRIES, 23):
        state = tables_at(queues, moment_of(queues, index=index, time_ms=None)).state
        _, plain = replay(list(log.messages[: index + 1]))
        ends = queue_ends(list(log.messages[: index + 1]))
        for topic in ("orders", "stock", "topic3", "topic5"):
            words = ["explain", "group1", topic, "--as-of", f"index={index}", "--from", place]
            is_there = state.topics.get(topic) is not None
            assert main([*words, "--json"]) == (0 if is_there else 1)
            told = capsys.readouterr().out
            if not is_there:
                continue
            for row in json.loads(told)["queues"]:
                end = ends.get((topic, row["queue"]), 0)
                committed = plain.get(("group1", topic, row["queue"]))
                assert (row["committed"], row["end"]) == (committed, end)
                assert row["lag"] == max(0, end - (committed or 0))
                seen += 1
            assert main(words) == 0
            assert "next was stored" in capsys.readouterr().out
    assert seen > 20
