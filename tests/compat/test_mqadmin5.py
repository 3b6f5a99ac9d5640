"""RocketMQ 5's admin tool against three nodes: what an operator needs every day."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from ledgermq.remoting.codes import RequestCode
from tests.compat.other_clients import NotToBeHadError, java5_tools, run_client
from tests.compat.remoting_group import BROKER_NAME, make_remoting_group
from tests.process.conftest import Node, wait_until
from tests.process.remoting_client import RemotingClient
from tests.process.remoting_steps import GROUP, beat, offset_fields, send

COMMANDS = (
    ("clusterList", rf"{BROKER_NAME} +0 +LEADER +V4_9_4"),
    ("updateTopicList -b LEADER -f TOPICS", "submit batch of topic config to LEADER success"),
    ("topicStatus -t orders", rf"{BROKER_NAME} +3 +0 +"),
    ("topicStatus -t listed-1", rf"{BROKER_NAME} +1 +0 +0"),
    (
        "updateSubGroupList -b LEADER -f GROUPS",
        "submit batch of group config to LEADER success",
    ),
    ("getConsumerConfig -g listed", "retryMaxTimes += +7"),
    (f"cloneGroupOffset -s {GROUP} -d listed -t orders -o true", "clone group offset success"),
    (f"consumerProgress -g {GROUP}", rf"orders +{BROKER_NAME} +1 +[0-9]+ +1 +"),
    ("consumerProgress", rf"{GROUP} +1 +V4_9_4 +PUSH +CLUSTERING +0 +[0-9]+"),
)
"""Sub-commands with their words, and what of their output shows that they have worked."""

TOPICS = [
    {"topicName": f"listed-{number}", "readQueueNums": 2, "writeQueueNums": 2, "perm": 6}
    for number in range(2)
]
GROUPS = [{"groupName": "listed", "retryMaxTimes": 7}]


@pytest.mark.oracle
@pytest.mark.slow
def test_the_tools_of_rocketmq_5_show_and_change_what_there_is(
    make_node: Callable[[], Node], tmp_path: Path
) -> None:
    try:
        tool = java5_tools()
    except NotToBeHadError as error:
        pytest.skip(str(error))
    group, name_servers = make_remoting_group(
        make_node,
        tables={
            "access": {"admin_over_clients": True},
            "node": {"broker_cluster_name": "DefaultCluster"},
        },
    )
    leader = dict(zip(group.members, name_servers.split(";"), strict=True))[group.leader()]
    client = RemotingClient(leader)
    wait_until(lambda: _is_stored(client), "messages to be stored")
    (tmp_path / "topics").write_text(json.dumps(TOPICS))
    (tmp_path / "groups").write_text(json.dumps(GROUPS))
    named = {"LEADER": leader, "TOPICS": f"{tmp_path}/topics", "GROUPS": f"{tmp_path}/groups"}

    def put(text: str) -> str:
        return re.sub("LEADER|TOPICS|GROUPS", lambda found: named[found[0]], text)

    lines = ["\t".join((*put(words).split(), "-n", name_servers)) for words, _ in COMMANDS]
    said = "\n".join(run_client(tool, told="\n".join(lines) + "\n"))
    client.close()
    group.stop()

    parts = re.split(r"mqadmin ended \d+\n?", said)
    assert len(parts) == len(COMMANDS) + 1
    failed = [
        f"{words}\n{part[:1_500]}"
        for (words, wanted), part in zip(COMMANDS, parts, strict=False)
        if re.search(put(wanted), part) is None
    ]
    assert not failed, "\n\n".join(failed)


def _is_stored(client: RemotingClient) -> bool:
    """Four messages in a queue, of which a group has had three."""
    try:
        send(client, "orders", 1, b"one", b"two", b"three", b"four")
    except AssertionError:
        return False
    # Where a consumer tells of itself its group gets the topic that tools look for.
    if beat(client, "10.0.0.1@1", "orders").code != 0:
        return False
    fields = offset_fields("orders", 1, commitOffset=1)
    return client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, fields).code == 0
