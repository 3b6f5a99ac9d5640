"""A stream over two groups, of one real node each, as Spark's driver and tasks call it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from ledgermq.model.errors import ConfigError, NotLeaderError
from ledgermq.pipeline.batch_reader import BatchReader
from ledgermq.pipeline.chosen_columns import ChosenColumns
from ledgermq.pipeline.clusters.cluster_stream import ClusterStreamReader
from ledgermq.pipeline.clusters.group_offsets import groups_in
from ledgermq.pipeline.source.data_loss import DataLossError
from ledgermq.pipeline.source_options import parse_options
from tests.process.conftest import wait_until
from tests.process.two_groups import HOME, OTHER, TOPIC, TwoGroups, fill, two_groups

pytestmark = pytest.mark.slow

COLUMNS = ChosenColumns(("brokerGroup", "body"))
EVERYTHING = ReadAllAvailable()
Document = dict[str, object]


@pytest.fixture
def groups(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Iterator[TwoGroups]:
    with two_groups(capsys, tmp_path) as made:
        yield made


class Query:
    """A query that notes what it has read, by group, as a checkpoint and a sink would."""

    def __init__(self, groups: TwoGroups, begin: Document | None = None, /, **options: str) -> None:
        """It begins where one has ended, or where the options say."""
        given = {"nodes": groups.home.address, "brokerGroups": "all", "subscribe": TOPIC}
        given |= {"startingOffsets": "earliest", **options}
        self._reader = ClusterStreamReader(parse_options(given, streaming=True), COLUMNS)
        try:
            self.at: Document = self._reader.initialOffset() if begin is None else begin
        except BaseException:
            self._reader.stop()
            raise
        self.read: dict[str, list[int]] = {HOME: [], OTHER: []}

    def run(self) -> bool:
        """One batch; whether there was one."""
        end = self._reader.latestOffset(self.at, EVERYTHING)
        if end == self.at:
            return False
        self.run_from(self.at, end)
        return True

    def run_from(self, start: Document, end: Document) -> None:
        """The batch between two offsets."""
        for part in self._reader.partitions(start, end):
            for batch in self._reader.read(part):
                for row in batch.to_pylist():
                    self.read[row["brokerGroup"]].append(int(row["body"]))
        self.at = end

    def wait(self, home: int, other: int) -> None:
        """Until it has read so many of each group."""

        def have_come() -> bool:
            self.run()
            return [len(self.read[name]) for name in (HOME, OTHER)] == [home, other]

        wait_until(have_come, "the rows of both groups")

    def has_finished(self) -> bool:
        """Whether the other group is, at the latest with one batch more."""
        self.run()
        return groups_in(self.at)[OTHER].is_finished

    def prepare(self) -> None:
        """Read what is there now, and nothing that comes later."""
        self._reader.prepareForTriggerAvailableNow()

    def end(self) -> Document:
        """Where it is, for the next one."""
        self._reader.stop()
        return self.at


def test_a_group_is_read_from_its_first_message_and_to_its_end_also_when_it_has_left(
    groups: TwoGroups,
) -> None:
    fill(groups.home, range(10))
    query = Query(groups, startingOffsets="latest")
    fill(groups.home, range(10, 20))
    query.wait(10, 0)
    groups.spread()
    fill(groups.other, range(5))
    query.wait(10, 5)
    fill(groups.other, range(5, 9))
    begin = query.end()
    groups.drain()

    again = Query(groups, begin)
    fill(groups.home, range(20, 22))
    again.wait(2, 4)
    wait_until(again.has_finished, "the group to be finished")
    groups.other.node.end()
    fill(groups.home, range(22, 24))
    again.wait(4, 4)
    last = Query(groups, again.end())
    fill(groups.home, range(24, 26))
    # What ends by itself waits for each group that it asks.
    last.prepare()
    assert last.run() and not last.run()
    last.end()

    assert sorted(query.read[HOME]) == [*range(10, 20)]
    assert sorted(query.read[OTHER]) == [*range(5)]
    assert sorted(again.read[HOME]) == [*range(20, 24)]
    assert sorted(again.read[OTHER]) == [*range(5, 9)]
    assert sorted(last.read[HOME]) == [*range(24, 26)] and not last.read[OTHER]
    assert "keys" not in str(begin) and groups.other.address in str(begin)


@pytest.mark.long
def test_a_dead_group_holds_nobody_up_and_is_named_when_it_is_dead_for_too_long(
    groups: TwoGroups,
) -> None:
    groups.spread()
    fill(groups.home, range(10))
    fill(groups.other, range(10))
    query = Query(groups, failOnDeadGroup="false", timeoutMs="2000")
    query.wait(10, 10)
    groups.other.node.end()
    fill(groups.home, range(10, 20))
    query.wait(20, 10)
    strict = Query(groups, query.at, timeoutMs="5000")

    def run_on() -> None:
        wait_until(strict.run, "the error")

    with pytest.raises(NotLeaderError, match=f"broker_group='{OTHER}'.*failOnDeadGroup=false"):
        run_on()
    strict.end()
    groups.other.start_again()
    fill(groups.other, range(10, 15))
    query.wait(20, 15)
    query.end()

    assert sorted(query.read[OTHER]) == [*range(15)]


def test_a_batch_that_has_begun_needs_its_groups_until_one_is_given_up(groups: TwoGroups) -> None:
    groups.spread()
    fill(groups.home, range(4))
    fill(groups.other, range(6))
    query = Query(groups)
    begin = query.at
    query.wait(4, 6)
    end = query.end()
    groups.other.node.end()

    waits = Query(groups, begin, failOnDeadGroup="false", timeoutMs="3000")
    with pytest.raises(NotLeaderError, match=f"broker_group='{OTHER}'"):
        waits.run_from(begin, end)
    waits.end()
    named = Query(groups, begin, brokerGroups=HOME)
    with pytest.raises(DataLossError, match=f"broker_group='{OTHER}', missing=6"):
        named.run_from(begin, end)
    named.end()
    gives_up = Query(groups, begin, brokerGroups=HOME, failOnDataLoss="false")
    gives_up.run_from(begin, end)
    fill(groups.home, range(4, 6))
    gives_up.wait(6, 0)
    gives_up.end()

    assert sorted(gives_up.read[HOME]) == [*range(6)]


def test_a_bound_of_rows_is_shared_by_all_groups_and_what_ends_by_itself_takes_no_more(
    groups: TwoGroups,
) -> None:
    groups.spread()
    fill(groups.home, range(30))
    fill(groups.other, range(10))
    given = {"nodes": groups.other.address, "brokerGroups": f"{OTHER},{HOME}", "subscribe": TOPIC}
    options = parse_options({**given, "startingOffsets": "earliest"}, streaming=True)
    reader = ClusterStreamReader(options, COLUMNS)
    begin = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    fill(groups.home, range(30, 40))
    first = reader.latestOffset(begin, ReadMaxRows(24))
    rest = reader.latestOffset(first, EVERYTHING)
    last = reader.latestOffset(rest, EVERYTHING)
    ends = {name: sum(one.offsets.values()) for name, one in groups_in(first).items()}
    reader.stop()
    batch = BatchReader(parse_options(given, streaming=False), COLUMNS)
    rows = [
        row["brokerGroup"]
        for part in batch.partitions()
        for made in batch.read(part)
        for row in made.to_pylist()
    ]

    assert ends == {HOME: 18, OTHER: 6}
    assert {name: sum(one.offsets.values()) for name, one in groups_in(rest).items()} == {
        HOME: 30,
        OTHER: 10,
    }
    assert last == rest
    assert (rows.count(HOME), rows.count(OTHER)) == (40, 10)


def test_what_was_named_and_is_not_there_is_refused(groups: TwoGroups) -> None:
    with pytest.raises(ConfigError, match=r"no such group is known.*\['orders-x'\]"):
        Query(groups, brokerGroups="orders-a,orders-x")
    with pytest.raises(ConfigError, match=r"no such topic.*\['nowhere'\]"):
        Query(groups, subscribe="nowhere")
    with pytest.raises(ConfigError, match="not those of several groups"):
        Query(groups, {TOPIC: {"0": 1}}).run()
