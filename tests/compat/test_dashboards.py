"""RocketMQ's own web consoles at three nodes, page by page, beside the same walk at RocketMQ's.

Each walk is made with all nodes up, with a follower down, and, of ours, while leaders die. What
comes of a call on either side is right, or it is in ``DIFFERENCES`` with the reason.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.compat.dashboard_changes import Changes
from tests.compat.dashboard_reads import Reads
from tests.compat.dashboard_walk import RIGHT, Life, Row, walked
from tests.compat.dashboards import NEW, OLD, VERSIONS, Dashboard, dashboard, dashboard_jar
from tests.compat.other_clients import NotToBeHadError
from tests.compat.remoting_group import java_program, make_remoting_group
from tests.compat.rocket_group import RocketGroup
from tests.compat.rocketmq import oracle_program
from tests.compat.test_failover import kill_listener
from tests.process.conftest import Node, wait_until
from tests.process.group_nodes import TOPIC

ASKED_FOR = "LEDGERMQ_DASHBOARDS"

pytestmark = [
    pytest.mark.oracle,
    pytest.mark.slow,
    pytest.mark.skipif(ASKED_FOR not in os.environ, reason=f"takes minutes: {ASKED_FOR}=1"),
]

BESIDE = Path(__file__).parent
MESSAGES = 9
MEMBERS = 3
START_S = 180.0
OURS, THEIRS = "ours", "theirs"
UP, DOWN, CHANGE = "all up", "one down", "leader dies"
SITUATIONS = (UP, DOWN, CHANGE)
PATIENCE_S = {UP: 30.0, DOWN: 60.0, CHANGE: 120.0}
"""How long a call may be answered otherwise than it should: until routes are known to a client of
Java, which asks for them every 30 s, twice."""


FIRST_CHANGE = "topic/createOrUpdate.do that makes"


class Difference(NamedTuple):
    """What comes of a call where it is not right on both sides; both are patterns."""

    call: str
    ours: str
    theirs: str
    why: str
    versions: Sequence[str] = VERSIONS
    situations: Sequence[str] = SITUATIONS


NOT_CONNECTED = "refused: .*connect to "
NOT_KNOWN = "refused: .*CODE: 3  DESC:  request type 351 not supported"
WITHOUT_CONFIG = (
    "RocketMQ 4.9 does not know the code of RocketMQ 5 for one topic, which is asked first"
)

DIFFERENCES = (
    Difference(
        "message/viewMessage.query by place", "refused: Failed", "refused: Failed",
        "it looks for unique ids alone, whatever the broker can do", [NEW],
    ),
    Difference(
        "message/viewMessage.query by place", "refused: Failed", "refused: Failed",
        "the id names the host that stored the message, which is dead", [OLD], [CHANGE],
    ),
    *(
        Difference(call, said, said, "ACL 2.0 is RocketMQ 5's", [NEW])
        for call, said in (
            ("acl/users.query", "refused: Failed to list users"),
            ("acl/acls.query", "refused: Failed to list ACLs"),
            ("acl/createUser.do", "refused: Failed to create user .*CODE: 3 "),
        )
    ),
    *(
        Difference(
            f"topic/deleteTopic.do{which}", NOT_CONNECTED, RIGHT,
            "it is deleted, and then from each name server in turn, of which one of ours is down",
            situations=(DOWN, CHANGE),
        )
        for which in ("", " of the other")
    ),
    Difference(
        "consumer/deleteSubGroup.do", NOT_CONNECTED, RIGHT, "as with topics: it has two", [NEW],
        (DOWN, CHANGE),
    ),
    Difference(
        "consumer/resetOffset.do", RIGHT, "wrong: .*not exist",
        "RocketMQ wants a group that has consumed once",
    ),
    *(
        Difference(call, RIGHT, NOT_KNOWN, WITHOUT_CONFIG, [NEW])
        for call in (
            "topic/stats.query",
            "topic/examineTopicConfig.query",
            "topic/examineTopicConfig.query of what it makes",
            "topic/examineTopicConfig.query of what it alters",
            "topic/sendTopicMessage.do",
        )
    ),
    *(
        Difference(call, RIGHT, f"wrong: .*{said}", f"{WITHOUT_CONFIG}: no lag is shown", [NEW])
        for call, said in (
            ("topic/queryConsumerByTopic.query", r"'queueStatInfoList': \[\]"),
            ("consumer/group.query", "'diffTotal': -1"),
            ("consumer/group.refresh.all", "'diffTotal': -1"),
            ("consumer/group.refresh", "'diffTotal': -1"),
            ("message/viewMessage.query", "'trackType': 'UNKNOWN'"),
        )
    ),
    *(
        Difference(call, RIGHT, "(wrong|refused): ", "nothing was sent", [NEW])
        for call in (
            "message/queryMessageByTopicAndKey.query of what was sent",
            "messageTrace/viewMessageTraceGraph.query of what was sent",
        )
    ),
    *(
        Difference(
            call, RIGHT, "wrong: ",
            "of an offset by time RocketMQ 4.9 knows no sides, and the newest message is left out",
            [NEW],
        )
        for call in (
            "message/queryMessagePageByTopic.query",
            "message/queryMessagePageByTopic.query of page 2",
            "dlqMessage/queryDlqMessageByConsumerGroup.query",
        )
    ),
)  # fmt: skip


def expected(side: str, version: str, situation: str) -> dict[str, str]:
    """What is to come of calls that are not right on both sides, by their names, as patterns."""
    return {
        row.call: row.ours if side == OURS else row.theirs
        for row in DIFFERENCES
        if version in row.versions and situation in row.situations
    }


@contextmanager
def lived(name_servers: str, folder: Path) -> Iterator[Life]:
    """Java's clients, which have sent and consumed, and stay."""
    words = (BESIDE / "Walked.java", TOPIC, str(MESSAGES))
    with java_program(name_servers, *words, folder=folder) as java:
        wait_until(lambda: java.has_said("consumed"), "messages to be consumed", START_S)
        sent = [tuple(one.split()) for one in java.said("sent ")]
        (producer,), (consumer,) = java.said("producer "), java.said("consumer ")
        yield Life(name_servers, [(one, other) for one, other in sent], producer, consumer)


class Visit:
    """Walks of one dashboard on one side, and what was not as expected."""

    def __init__(self, side: str, board: Dashboard, life: Life) -> None:
        self.wrong: list[str] = []
        self._side = side
        self._board = board
        self._life = life

    def walk(
        self, situation: str, members: int, *, with_charts: bool = False,
        at: dict[str, Callable[[], None]] | None = None,
    ) -> None:  # fmt: skip
        """Make all calls.

        Args:
            at: what happens before a call of that name.
        """
        version = self._board.version
        about = (self._board, self._life, situation.replace(" ", "-"), members)
        reads = Reads(*about)
        charts = reads.charts() if with_charts else []
        calls = [*reads.reads(), *Changes(*about).changes(), *charts]
        table = expected(self._side, version, situation)
        left = dict(at or {})

        def wanted(name: str) -> str:
            left.pop(name, lambda: None)()
            return table.get(name, RIGHT)

        for row in walked(calls, wanted, PATIENCE_S[situation]):
            self._told(situation, row, table.get(row.call.name, RIGHT))

        assert {*left, *table} <= {call.name for call in calls}
        assert not left

    def _told(self, situation: str, row: Row, wanted: str) -> None:
        said = f"{self._side} {self._board.version}, {situation}: {row.call.name}: {row.outcome}"
        print(f"{row.tries} tries, {row.seconds:.1f} s: {said[:400]}", flush=True)
        if re.match(wanted, row.outcome) is None:
            self.wrong.append(f"{said}\n  wanted: {wanted}")


def had(version: str) -> Path:
    try:
        return dashboard_jar(version)
    except NotToBeHadError as reason:
        pytest.skip(str(reason))


@pytest.mark.parametrize("version", VERSIONS)
def test_each_page_answers_at_ours_whoever_is_down(
    version: str, make_node: Callable[[], Node], tmp_path: Path
) -> None:
    jar = had(version)
    oracle_program()
    group, name_servers = make_remoting_group(
        make_node, ack="majority-fsync", tables={"access": {"admin_over_clients": True}}
    )
    leader = group.leader()
    with (
        lived(name_servers, tmp_path) as life,
        dashboard(jar, version, name_servers, tmp_path / "dashboard") as board,
    ):
        visit = Visit(OURS, board, life)
        visit.walk(UP, MEMBERS, with_charts=True)
        follower = group.others(leader)[0]
        follower.kill()
        visit.walk(DOWN, MEMBERS - 1)
        follower.start()
        follower.node.wait_ready()
        dead = group.leader()

        def kill_the_next() -> None:
            dead.start()
            dead.node.wait_ready()
            group.leader().kill()

        visit.walk(
            CHANGE, MEMBERS - 1, at={"cluster/list.query": dead.kill, FIRST_CHANGE: kill_the_next}
        )

    assert group.stop() == [0, 0]
    assert not visit.wrong, "\n".join(visit.wrong)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_same_walk_at_rocketmq_says_what_the_table_says(version: str, tmp_path: Path) -> None:
    jar = had(version)
    oracle_program()
    group = RocketGroup(tmp_path)
    group.start()
    try:
        leader = wait_until(group.leader, "RocketMQ's leader", START_S)
        name_server = group.places["namesrv"]
        with (
            lived(name_server, tmp_path) as life,
            dashboard(jar, version, name_server, tmp_path / "dashboard") as board,
        ):
            visit = Visit(THEIRS, board, life)
            visit.walk(UP, MEMBERS, with_charts=True)
            follower = next(name for name in group.names if name != leader)
            kill_listener(group.places[follower])
            visit.walk(DOWN, MEMBERS - 1)
    finally:
        group.end()

    assert not visit.wrong, "\n".join(visit.wrong)
