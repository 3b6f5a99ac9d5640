"""``ledgermq topic spread --strict``: groups of one node each, and commands that are killed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ledgermq.cli.main import main
from ledgermq.client import Producer
from ledgermq.client.broker_connection import connect_broker
from ledgermq.model.errors import LedgerError, NoPermissionError
from tests.process.cluster_change import KEYED, Cluster, native_client
from tests.process.cluster_history import PLAIN, History
from tests.process.cluster_nodes import STEP_S
from tests.process.conftest import SOURCES, Node, wait_until
from tests.process.test_cluster_groups import ClusterNode, Told, as_json
from tests.suite.patience import PATIENCE_S

pytestmark = pytest.mark.slow

SHORT = ("--closed-for", "0.5")
"""There are no producers of a cluster that would go by an older row."""

Phases = dict[str, str]


class StrictTopic:
    """The topic ``sales``, over the home of a cluster of two groups, with a message to consume."""

    def __init__(
        self,
        make_node: Callable[[], Node],
        folder: Path,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        access = {"admin_over_clients": True}
        self.home, self.other = (
            ClusterNode(make_node(), name, capsys, access=access)
            for name in ("orders-a", "orders-b")
        )
        self._capsys = capsys
        self.home.begin(folder / "root.json")
        at_home = f"ipc://{self.home.node.runtime}"
        self.other.tell("join", "--home", at_home, "--nodes", self.other.address)
        as_json(self.run("create", "sales", "--queues", "2", "--over", "orders-a", "--json"))
        wait_until(lambda: self.run("show", "sales")[0] == 0, "the home to follow its row")
        assert self.sent()
        with connect_broker(at_home, name="test", timeout_s=PATIENCE_S) as broker:
            broker.group_commit("readers", "sales", {0: 0, 1: 0})

    def run(self, *words: str) -> Told:
        """``ledgermq topic`` as a shell runs it, but in this process, asked of the home."""
        self._capsys.readouterr()
        status = main(["topic", *words, "--address", f"ipc://{self.home.node.runtime}"])
        told = self._capsys.readouterr()
        return status, told.out, told.err

    def spread(self, *words: str) -> Told:
        """Strictly, over all groups."""
        return self.run("spread", "sales", "--over", "all", "--strict", *SHORT, *words)

    @contextmanager
    def killed_at(self, line: str) -> Iterator[None]:
        """A command that is killed when it says this, if it comes so far by what is done."""
        words = ["topic", "spread", "sales", "--over", "all", "--strict", *SHORT]
        words += ["--address", f"ipc://{self.home.node.runtime}"]
        process = subprocess.Popen(
            [sys.executable, "-m", "ledgermq.cli.main", *words],
            env={**os.environ, "PYTHONPATH": str(SOURCES)},
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stderr is not None
        try:
            yield
            said = []
            for told in process.stderr:
                said.append(told)
                if line in told:
                    break
            assert said and line in said[-1], said
        finally:
            process.kill()
            process.wait()
            process.stderr.close()

    def phases(self) -> Phases:
        """Of each group's share, as the home's row has it."""
        shown = as_json(self.run("spread", "sales", "--json"))
        return {one["group"]: one["phase"] for one in shown["groups"]}

    def sent(self) -> bool:
        """Whether the home has taken another message."""
        try:
            with Producer(f"ipc://{self.home.node.runtime}", one_group=True) as producer:
                producer.send("sales", b"one").result()
        except LedgerError:
            return False
        return True

    def consume(self) -> None:
        """Have the consumer group pass all that there is."""
        at_home = f"ipc://{self.home.node.runtime}"
        with connect_broker(at_home, name="test", timeout_s=PATIENCE_S) as broker:
            ends = {number: broker.queue("sales", number).end for number in range(2)}
            broker.group_commit("readers", "sales", ends)


@pytest.fixture
def sales(
    make_node: Callable[[], Node], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> StrictTopic:
    return StrictTopic(make_node, tmp_path, capsys)


BOTH_OPEN = {"orders-a": "open", "orders-b": "open"}


@pytest.mark.long
def test_a_consumer_group_that_is_behind_delays_it_and_too_late_all_is_as_it_was(
    sales: StrictTopic,
) -> None:
    late = sales.spread("--wait", "3")
    as_it_was = sales.phases()
    wait_until(sales.sent, "the topic to be open again")
    sales.consume()
    done = sales.spread()
    again = sales.spread()
    wrong = sales.spread("--wait", "0.1")
    stranger = sales.run("spread", "sales", "--over", "orders-x", "--strict")
    both = sales.run("spread", "sales", "--reopen", "--strict", "--over", "all")

    assert late[0] == 1 and "1 messages for readers" in late[2], late
    assert "open again as it was" in late[2]
    assert as_it_was == {"orders-a": "open"}
    assert done[0] == again[0] == 0, (done, again)
    assert "is drained" in done[2] and "is drained" not in again[2]
    assert sales.phases() == BOTH_OPEN
    assert [one[0] for one in (wrong, stranger, both)] == [1, 1, 1]
    assert "wait=0.1" in wrong[2] and "group='orders-x'" in stranger[2]
    assert "--reopen opens a topic as it is" in both[2]


def test_a_command_that_is_killed_while_it_waits_is_undone_or_goes_on(sales: StrictTopic) -> None:
    with sales.killed_at("1 messages for readers"):
        pass
    closed = sales.phases()
    refused = sales.sent()
    opened = sales.run("spread", "sales", "--reopen")
    wait_until(sales.sent, "the topic to be open again")
    with sales.killed_at("takes no messages"):
        pass
    sales.consume()
    done = sales.spread()

    assert closed == {"orders-a": "closed"} and not refused
    assert opened[0] == 0, opened
    assert done[0] == 0 and "is closed already: going on" in done[2], done
    assert sales.phases() == BOTH_OPEN


@pytest.mark.long
def test_a_command_that_is_killed_once_the_topic_is_spread_only_opens_it(
    sales: StrictTopic,
) -> None:
    sales.consume()
    sales.other.node.end()
    with sales.killed_at("orders-b:"):
        pass
    closed = sales.phases()
    sales.other.node.serve()
    with sales.killed_at("has its queues in all groups"):
        pass
    shut = sales.phases()
    done = sales.spread()

    assert closed == {"orders-a": "closed"}
    assert shut.keys() == BOTH_OPEN.keys()
    assert done[0] == 0, done
    assert sales.phases() == BOTH_OPEN
    with Producer(f"ipc://{sales.other.node.runtime}", one_group=True) as producer:
        producer.send("sales", b"two").result()


def test_a_group_that_is_drained_keeps_its_topics_from_being_spread_strictly(
    sales: StrictTopic,
) -> None:
    sales.consume()
    assert sales.spread()[0] == 0
    words = ("drain", "orders-b", "--home", f"ipc://{sales.home.node.runtime}", "--yes")
    with (
        connect_broker(
            f"ipc://{sales.other.node.runtime}", name="test", timeout_s=PATIENCE_S
        ) as broker,
        Producer(f"ipc://{sales.other.node.runtime}", one_group=True) as producer,
    ):
        producer.send("sales", b"kept").result()
        broker.group_commit("readers", "sales", {0: 0, 1: 0})
        sales.other.run(*words, "--wait", "0")
        wait_until(lambda: sales.phases()["orders-b"] == "closed", "the share to be closed")
        with pytest.raises(NoPermissionError):
            producer.send("sales", b"late").result()
    refused = sales.spread("--queues", "4")

    assert refused[0] == 1 and "closed='orders-b'" in refused[2], refused


def turned(history: History) -> list[str]:
    """Where a consumer was given a key's message for the first time behind a later one."""
    last: dict[tuple[str, str], int] = defaultdict(lambda: -1)
    known, found = set(), []
    for read in history.reads:
        writer, key, number = read.message
        if key == PLAIN or read.message in known:
            continue
        known.add(read.message)
        if number < last[writer, key]:
            found.append(f"{read.message} after {last[writer, key]} in {read.queue}")
        last[writer, key] = max(number, last[writer, key])
    return found


@pytest.mark.long
def test_each_key_is_in_order_over_all_queues_under_producers_that_try_again(
    make_node: Callable[[], Node], tmp_path: Path
) -> None:
    cluster = Cluster(make_node, members=1)
    first, later = cluster.groups[0], cluster.groups[3]
    # By this name two of its keys go to the new group.
    with native_client("strict", cluster.groups[:2], tmp_path) as client:
        wait_until(lambda: client.look().is_busy, "the client to be busy", STEP_S)
        later.start(make_node, cluster.name_servers, is_patient=False)
        later.wait_ready()
        cluster.join(later, home=first)
        first.tell("topic", "spread", KEYED, "--over", later.name, "--strict")
        wait_until(
            lambda: any(one.queue[:2] == (KEYED, later.name) for one in client.look().reads),
            "the client to use the new group",
            STEP_S,
        )
        cluster.end([client])

    assert sum(client.history.refused.values())
    assert len(client.history.acked) == client.history.sent
    assert not turned(client.history)
    assert {len(queues) for queues in client.history.places().values()} == {2}
