"""The broker's tables as of any instant, out of pieces, are those that a replay of the log makes.

All verbs that change tables are called on a real node, which is killed now and then. Its log is
replayed from its beginning, command by command and without the snapshots of later leaders; and rows
and offsets are kept beside by no code of ours. ``LEDGERMQ_AS_OF_INSTANTS`` says how many are
compared.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests import left_out

if reason := left_out.without_spark(needs_java=False):
    pytest.skip(reason, allow_module_level=True)

from ledgermq.cli.spark.cold_tables import tables_at
from ledgermq.formats.records.message import Message
from ledgermq.formats.records.properties import decode_properties
from ledgermq.model.errors import LedgerError
from ledgermq.model.features import LEVEL_OF_CHANGE
from ledgermq.model.limits import SYSTEM_TOPIC
from ledgermq.pipeline.pieces.cold_queues import ColdQueues
from ledgermq.pipeline.pieces.live_place import LivePlace
from ledgermq.pipeline.pieces.log_sealing import SealSizes, seal_log
from ledgermq.pipeline.pieces.moments import end_at, moment_as_told
from ledgermq.pipeline.pieces.piece_places import SealedFolder
from ledgermq.rules.state.broker_state import BrokerState
from ledgermq.store.log_reader import LogReader
from ledgermq.store.store_directory import open_directory
from tests.acknowledged.lives import Tally, live
from tests.acknowledged.rows import WORLD, WORLD_QUEUES
from tests.acknowledged.stores import OURS, Golden
from tests.process.conftest import Node, nodes_made

pytestmark = [pytest.mark.slow, pytest.mark.long]

DEATHS = 6
INSTANTS = int(os.environ.get("LEDGERMQ_AS_OF_INSTANTS", "200"))
"""A thousand take two minutes more."""

SIZES = SealSizes(piece_bytes=20_000, group_bytes=4_000)

NAMED = {
    "topic": ("topics.json", "topicConfigTable"),
    "group": ("subscriptionGroup.json", "subscriptionGroupTable"),
    "archive": ("archives.json", "archives"),
    "quota": ("quotas.json", "quotas"),
}
"""Kinds of rows, and where files have them."""


PREPARED_OR_ROLLED_BACK = 0xC
NEVER_QUEUED = (0x4, 0xC)
"""Flags of records that are in no queue."""


NOT_CALLED = {"cluster", "cluster_document"}
"""Kinds of changes of a home of several groups, which this node is not."""


class Stored(NamedTuple):
    """A message, and the index of its entry."""

    index: int
    message: Message


class Plain:
    """Rows and offsets after commands, as their JSON says it."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str], Mapping[str, Any] | None] = {}
        self.offsets: dict[tuple[str, str, int], int] = {}
        self.kinds: set[str] = set()

    def apply(self, command: Mapping[str, Any]) -> None:
        for change in command["changes"]:
            self.kinds |= change.keys() & LEVEL_OF_CHANGE.keys()
            for kind in NAMED:
                if kind in change:
                    self.rows[kind, change[kind]] = change["fields"]
            if change.get("topic") and change["fields"] is None:
                self._drop(lambda owner, gone=change["topic"]: owner[1] == gone)
            if change.get("group") and change["fields"] is None:
                self._drop(lambda owner, gone=change["group"]: owner[0] == gone)
            if consumed := change.get("consumed"):
                topic, _, group = consumed.partition("@")
                if change["offsets"] is None:
                    self._drop(lambda owner, of=(group, topic): owner[:2] == of)
                for queue, at in (change["offsets"] or {}).items():
                    self.offsets[group, topic, int(queue)] = at
            if shared := change.get("shared"):
                topic, _, group = shared.partition("@")
                for queue, at in change["low"].items():
                    self.offsets[group, topic, int(queue)] = at

    def _drop(self, is_gone: Callable[[tuple[str, str, int]], bool]) -> None:
        self.offsets = {owner: at for owner, at in self.offsets.items() if not is_gone(owner)}

    def check(self, state: BrokerState) -> None:
        """Compare what commands have said with tables."""
        documents = state.documents()
        for (kind, name), fields in self.rows.items():
            file, table = NAMED[kind]
            row = documents[file].get(table, {}).get(name)
            if fields is None:
                assert row is None, (kind, name)
                continue
            assert row is not None, (kind, name)
            assert {key: row[key] for key in fields if key in row} == {
                key: value for key, value in fields.items() if key in row
            }
        found = {
            (owner.group, owner.topic, queue): at
            for owner, queues in state.offsets
            for queue, at in queues.items()
        }
        assert found == self.offsets


class Truth(NamedTuple):
    """What a replay has come to; ``ends`` by queue."""

    state: BrokerState
    plain: Plain
    ends: Mapping[tuple[str, int], int]


def replayed(messages: list[Stored]) -> Iterator[Truth]:
    """The tables after each message, from the first one on."""
    state, plain, offset = BrokerState({}), Plain(), 0
    state.begin_at(0, 0)
    ends: dict[tuple[str, int], int] = {}
    for _, message in messages:
        if message.sys_flag & PREPARED_OR_ROLLED_BACK not in NEVER_QUEUED:
            ends[message.topic, message.queue_id] = message.queue_offset + 1
        if (message.topic, message.queue_id) == (SYSTEM_TOPIC, 1):
            properties = decode_properties(message.properties)
            tag, label = properties["TAGS"], properties.get("PART", "")
            if tag == "state" or not state.snapshots:
                try:
                    state.apply(offset, tag, label, bytes(message.body))
                except LedgerError:
                    state.pass_over(offset)
                else:
                    if tag == "state":
                        plain.apply(json.loads(bytes(message.body)))
            else:
                # What a later leader began with is what the commands say.
                state.pass_over(offset)
            offset += 1
        yield Truth(state, plain, ends)


def lived(golden: Golden, chance: random.Random) -> Iterator[Path]:
    """The store of a node that has called all verbs, and died."""
    made: list[Node] = []
    with nodes_made() as make_node:

        def make() -> Node:
            made.append(make_node())
            return made[-1]

        kind = next(kind for kind in OURS if kind.log == "dledger" and not kind.change)
        # What was forgotten is the matter of others.
        live(kind, make, golden, deaths=DEATHS, is_group=False, chance=chance, tally=Tally())
        yield made[0].root


def test_tables_as_of_many_instants_are_those_of_a_replay(golden: Golden, tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    print(f"seed {seed}")
    for root in lived(golden, chance):
        place = SealedFolder(tmp_path / "place")
        with closing(LogReader(open_directory(root))) as log:
            messages = [
                Stored(one.header.index, replace(one.message, body=bytes(one.message.body)))
                for one in log.iterate()
                if one.header is not None
            ]
            # What is not sealed yet is read of the log.
            seam = messages[chance.randrange(len(messages) // 2, len(messages))].message
            seal_log(place, log, seam.physical_offset + seam.size, sizes=SIZES)
            live = LivePlace(place, log, lambda reader: int(reader.end), sizes=SIZES)
            compare(ColdQueues(place), live, messages, chance)
            seal_log(place, log, log.end, sizes=SIZES)
        compare(ColdQueues(place), None, messages, chance)


def compare(
    pieces: ColdQueues, live: LivePlace | None, messages: list[Stored], chance: random.Random
) -> None:
    assert len(pieces.manifest.rows) > 3
    times = [message.store_timestamp for _, message in messages]
    cuts: dict[int, list[tuple[int | None, int | None]]] = {}
    for _ in range(INSTANTS):
        if chance.random() < 0.5:
            number = chance.randrange(len(messages))
            cuts.setdefault(number + 1, []).append((messages[number].index, None))
        else:
            time_ms = chance.randrange(min(times), max(times) + 1)
            end = next((at for at, stored in enumerate(times) if stored > time_ms), len(times))
            cuts.setdefault(end, []).append((None, time_ms))
    compared, behind = 0, 0
    for end, truth in enumerate(replayed(messages), 1):
        for index, time_ms in cuts.get(end, ()):
            if not truth.state.snapshots:
                continue
            text = str(time_ms) if index is None else f"index={index}"
            queues, moment = moment_as_told(pieces, text, option="--as-of", live=live)
            found = tables_at(queues, moment).state
            assert found.tables() == truth.state.tables(), (index, time_ms)
            truth.plain.check(found)
            for queue_id in range(WORLD_QUEUES):
                there = truth.ends.get((WORLD, queue_id), 0)
                assert end_at(queues, WORLD, queue_id, moment) == there, (index, time_ms)
            compared += 1
            behind += queues is not pieces
    assert (behind > 0) is (live is not None)
    assert compared > INSTANTS // 2
    assert set(LEVEL_OF_CHANGE) - truth.plain.kinds == NOT_CALLED
