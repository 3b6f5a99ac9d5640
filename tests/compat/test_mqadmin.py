"""RocketMQ's own admin tool against three nodes: each sub-command works, or says why not."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import reduce
from pathlib import Path

import pytest

from tests.compat.remoting_group import (
    BROKER_NAME,
    JavaProgram,
    java_program,
    make_remoting_group,
    run_java,
)
from tests.compat.rocketmq import oracle_program
from tests.process.conftest import Node, wait_until
from tests.process.remoting_client import RemotingClient
from tests.process.remoting_steps import members
from tests.suite.patience import PATIENCE_S

CLUSTER = ("-c", "DefaultCluster")
ATTEMPTS = 4
"""On a busy machine there is no leader now and then, which the tool does not wait for."""

BESIDE = Path(__file__).parent

NOT_HERE = "does not apply"


class Mqadmin:
    """One JVM that runs one sub-command after the other."""

    def __init__(self, program: JavaProgram, name_servers: str) -> None:
        self._program = program
        self._name_servers = name_servers
        self._count = 0
        self._seen = 0
        self.ran: set[str] = set()

    def __call__(self, *words: str) -> str:
        """All that a sub-command prints."""
        self.ran.add(words[0])
        return self._said("\t".join((*words, "-n", self._name_servers)), words[0])

    def sub_commands(self) -> set[str]:
        """All that there are, as the tool itself lists them."""
        return set(re.findall(r"^   (\w+) +\S", self._said("", "the list"), re.MULTILINE))

    def _said(self, line: str, what: str) -> str:
        self._program.tell(line)
        ended = f"mqadmin ended {self._count}"
        self._count += 1
        wait_until(lambda: self._program.has_said(ended), what, timeout_s=PATIENCE_S)
        lines = self._program.lines
        said, self._seen = lines[self._seen : lines.index(ended)], lines.index(ended) + 1
        return "\n".join(said)


def commands(leader: str, follower: str, folder: Path) -> list[tuple[str, str]]:
    """Sub-commands with their words, and what of their output shows that they have worked."""
    broker = f"-b {leader}"
    return [
        ("clusterList", rf"{BROKER_NAME} +0 +{leader} +V4_9_4"),
        ("clusterList -m", "#InTotalToday"),
        ("updateTopic -c DefaultCluster -t sales -r 4 -w 4", "create topic to .* success"),
        (f"updateTopic -b {follower} -t sales -r 4 -w 4", "create topic to .* success"),
        ("updateTopicPerm -c DefaultCluster -t sales -p 4", "update topic perm from 6 to 4"),
        (f"updateTopicPerm {broker} -t sales -p 6", "update topic perm from 4 to 6"),
        ("topicList -c", "sales"),
        ("topicRoute -t sales", '"readQueueNums":4'),
        ("topicClusterList -t sales", "DefaultCluster"),
        ("sendMessage -t sales -p hello -k key1 -c red", "SEND_OK"),
        ("checkMsgSendRT -t sales -a 3 -s 64", "Avg RT"),
        (f"sendMsgStatus -b {BROKER_NAME} -s 64 -c 3", "SEND_OK"),
        ("topicStatus -t sales", rf"{BROKER_NAME} +3 +0 "),
        ("updateSubGroup -c DefaultCluster -g audit", "create subscription group to .* success"),
        ("getConsumerConfig -g audit", "retryMaxTimes += +16"),
        (f"updateBrokerConfig {broker} -k flushDiskType -v SYNC_FLUSH", NOT_HERE),
        (f"getBrokerConfig {broker}", f"brokerName += +{BROKER_NAME}"),
        (f"brokerStatus -b {follower}", "brokerVersionDesc +: V4_9_4"),
        ("brokerStatus -c DefaultCluster", "commitLogMaxOffset"),
        (f"brokerConsumeStats {broker}", "Diff Total"),
        (f"cleanExpiredCQ {broker}", NOT_HERE),
        (f"cleanUnusedTopic {broker}", NOT_HERE),
        (f"deleteExpiredCommitLog {broker}", NOT_HERE),
        ("resetOffsetByTime -g audit -t sales -s 0", rf"{BROKER_NAME} +3 +0"),
        ("skipAccumulatedMessage -g audit -t sales", BROKER_NAME),
        ("consumerProgress", "#Diff Total"),
        ("producerConnection -g nobody -t sales", "not exist"),
        ("queryMsgByKey -t sales -k key1", "#Message ID"),
        (f"queryMsgByOffset -t sales -b {BROKER_NAME} -i 0 -o 0", "Message ID|OffsetID"),
        ("printMsg -t sales -d true", "MSGID: "),
        (f"printMsgByQueue -t sales -a {BROKER_NAME} -i 0 -p true", "MSGID: "),
        ("consumeMessage -t sales -c 2", "MSGID: |Consume ok"),
        (f"queryCq -t sales -q 0 -i 0 {broker}", "physicOffset"),
        ("statsAll -t sales", "sales"),
        ("allocateMQ -t sales -i 10.0.0.1,10.0.0.2", '"10.0.0.2"'),
        (f"wipeWritePerm -b {BROKER_NAME}", "wipe write perm of broker"),
        (f"addWritePerm -b {BROKER_NAME}", "add write perm of broker"),
        ("updateKvConfig -s spaces -k k -v v", "create or update kv config .*success"),
        ("deleteKvConfig -s spaces -k k", "delete kv config .*success"),
        (f"updateOrderConf -m put -t sales -v {BROKER_NAME}:4", "success"),
        ("updateOrderConf -m get -t sales", f"{BROKER_NAME}:4"),
        ("updateOrderConf -m delete -t sales", "success"),
        ("updateNamesrvConfig -k orderMessageEnable -v false", NOT_HERE),
        ("getNamesrvConfig", "orderMessageEnable += +true"),
        (
            "updateAclConfig -c DefaultCluster -a tool1234 -s secret12 -t sales=PUB",
            "create or update plain access config to .* success",
        ),
        ("getAclConfig -c DefaultCluster", "tool1234"),
        ("clusterAclConfigVersion -c DefaultCluster", "get cluster's plain access config"),
        ("updateGlobalWhiteAddr -c DefaultCluster -g 10.0.0.1", NOT_HERE),
        ("deleteAclConfig -c DefaultCluster -a tool1234", "success"),
        (f"exportMetadata -c DefaultCluster -f {folder}/metadata", "export .* success"),
        (f"exportConfigs -c DefaultCluster -f {folder}/configs", "export .* success"),
        (f"exportMetrics -c DefaultCluster -f {folder}/metrics", "export .* success"),
        ("deleteSubGroup -c DefaultCluster -g audit", "delete subscription group .* success"),
        ("deleteTopic -c DefaultCluster -t sales", "delete topic .* from NameServer success"),
    ]


ABOUT_CONSUMERS = [
    ("consumerProgress -g readers", f"sales +{BROKER_NAME} +[0-9]"),
    ("consumerConnection -g readers", "CLUSTERING"),
    ("consumerStatus -g readers", "V4_9_4"),
    ("producer -b LEADER", "CLIENT_INNER_PRODUCER"),
    ("resetOffsetByTime -g readers -t sales -s -1", f"{BROKER_NAME} +3 "),
    ("cloneGroupOffset -s readers -d copied -t sales -o true", "clone group offset success"),
]
"""What is asked of a group that consumes."""

ABOUT_A_MESSAGE = [
    (
        "queryMsgById -i OFFSET_ID",
        r"OffsetID: +OFFSET_ID(.|\n)*traced-consumer, trackType=CONSUMED",
    ),
    ("queryMsgById -i OFFSET_ID -g traced-consumer -d CLIENT_ID", "CR_SUCCESS"),
    ("queryMsgById -i OFFSET_ID -s true", "SEND_OK|originalMsg"),
    ("queryMsgTraceById -i UNIQUE_ID", r"Pub +traced-producer(.|\n)*Sub +traced-consumer"),
]
"""What is asked of a message whose way is traced."""

ABOUT_A_UNIQUE_ID = (
    "queryMsgByUniqueKey -t sales -i UNIQUE_ID",
    "queryMsgByUniqueKey -t sales -i UNIQUE_ID -a",
    "queryMsgByUniqueKey -t sales -i UNIQUE_ID -g traced-consumer -d CLIENT_ID",
)

MAIN = "org.apache.rocketmq.tools.command.MQAdminStartup"
MONITORS = "__MONITOR_CONSUMER"
"""Group that ``startMonitoring`` consumes for."""


def said_in_vain(ask: Callable[[], str], expected: str) -> str:
    """What the tool said last, when it has not said what is ``expected``; else nothing."""
    said = ""
    for _ in range(ATTEMPTS):
        said = ask()
        if re.search(expected, said) is not None:
            return ""
    return said or "nothing"


def look_at_a_message(mqadmin: Mqadmin, name_servers: str, leader: str, folder: Path) -> None:
    """Have a message sent and consumed whose way is traced, and look for it."""
    words = (BESIDE / "Traced.java", "sales", "3", f"{PATIENCE_S:.0f}")
    with java_program(name_servers, *words, folder=folder) as java:

        def consumed() -> bool:
            # It says itself what it waited for in vain.
            assert java.process.poll() is None, java.lines
            return java.has_said("consumed")

        wait_until(consumed, "traced messages", timeout_s=2 * PATIENCE_S)
        unique_id, offset_id = java.said("sent ")[0].split()
        client = RemotingClient(leader)
        (client_id,) = members(client, "traced-consumer")
        client.close()
        named = {"UNIQUE_ID": unique_id, "OFFSET_ID": offset_id, "CLIENT_ID": client_id}

        def put(text: str) -> str:
            return reduce(lambda so_far, one: so_far.replace(*one), named.items(), text)

        for line, expected in ABOUT_A_MESSAGE:
            # Its track, and traces, are written a moment later.
            words, wanted = put(line).split(), put(expected)
            wait_until(lambda words=words, wanted=wanted: re.search(wanted, mqadmin(*words)), line)
        # In one JVM this one works once: it goes on with a client that it has closed.
        for line in ABOUT_A_UNIQUE_ID:
            mqadmin.ran.add(line.split()[0])
            words = (*put(line).split(), "-n", name_servers)
            in_vain = said_in_vain(
                lambda words=words: "\n".join(run_java(name_servers, MAIN, *words, folder=folder)),
                put("UNIQ_KEY=UNIQUE_ID|CR_SUCCESS"),
            )

            assert not in_vain, f"{line}\n{in_vain}"
        java.tell("")
        java.wait()


def look_at_what_never_ends(mqadmin: Mqadmin, name_servers: str, leader: str, folder: Path) -> None:
    """Wait for the first row of one, and for the other one's consumer."""
    words = ("-a", "3", "-s", "64", "-i", "1", "-n", name_servers)
    with java_program(name_servers, MAIN, "clusterRT", *words, folder=folder) as java:
        row = rf"DefaultCluster +{BROKER_NAME} +[0-9.]+ +3 +0"
        wait_until(
            lambda: any(re.match(row, one) for one in java.lines), "a round", timeout_s=PATIENCE_S
        )
    words = ("startMonitoring", "-n", name_servers)
    client = RemotingClient(leader)
    with java_program(name_servers, MAIN, *words, folder=folder) as java:
        wait_until(lambda: members(client, MONITORS), "the monitor", timeout_s=PATIENCE_S)
        assert java.process.poll() is None
    client.close()
    mqadmin.ran |= {"clusterRT", "startMonitoring"}


@pytest.mark.oracle
@pytest.mark.slow
def test_each_sub_command_works_or_says_why_not(
    make_node: Callable[[], Node], tmp_path: Path
) -> None:
    oracle_program()
    group, name_servers = make_remoting_group(
        make_node,
        tables={
            "access": {"admin_over_clients": True},
            "node": {"broker_cluster_name": "DefaultCluster"},
        },
    )
    leader = group.leader()
    ports = dict(zip(group.members, name_servers.split(";"), strict=True))
    follower = group.others(leader)[0]
    failed: list[str] = []

    def found(line: str, expected: str) -> Callable[[], object]:
        return lambda: re.search(expected, mqadmin(*line.split()))

    def run(line: str, expected: str) -> bool:
        in_vain = said_in_vain(lambda: mqadmin(*line.split()), expected)
        if in_vain:
            failed.append(f"{line}\n{in_vain[:1_500]}")
        return not in_vain

    with java_program(name_servers, BESIDE / "Mqadmin.java", folder=tmp_path) as tool:
        mqadmin = Mqadmin(tool, name_servers)
        # A change is known to followers a moment later, and the tool asks any node.
        late = ("updateOrderConf -m get", "getAclConfig", "getConsumerConfig")
        every = commands(ports[leader], ports[follower], tmp_path)
        for line, expected in every[:-1]:
            if line.startswith(late):
                wait_until(found(line, expected), line)
            else:
                run(line, expected)
        # What follows needs it: a topic that stays closed takes no messages.
        assert not failed, "\n\n".join(failed)
        words = (BESIDE / "ReadOn.java", name_servers, "readers", "sales", "1000000")
        with java_program(name_servers, *words, folder=tmp_path) as reader:
            wait_until(lambda: reader.has_said("read "), "the consumer to be given a message")
            # It commits by itself, a few seconds later.
            wait_until(found(*ABOUT_CONSUMERS[0]), "its offsets")
            for line, expected in ABOUT_CONSUMERS:
                run(line.replace("LEADER", ports[leader]), expected)
        look_at_a_message(mqadmin, name_servers, ports[leader], tmp_path)
        look_at_what_never_ends(mqadmin, name_servers, ports[leader], tmp_path)
        run(*every[-1])
        # The tool asks any node, and followers know of it a moment later.
        wait_until(lambda: "sales" not in mqadmin("topicList").split(), "the topic to be gone")
        left = mqadmin.sub_commands() - mqadmin.ran
    group.stop()

    assert not failed, "\n\n".join(failed)
    assert left == set()
