"""RocketMQ's exporter for Prometheus, unchanged, at our ports and our name service."""

from __future__ import annotations

import os
import re
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ledgermq.client import Producer
from ledgermq.remoting.codes import RequestCode, ResponseCode
from tests.compat.remoting_group import BROKER_NAME, make_remoting_group
from tests.process.conftest import nodes_made, wait_until
from tests.process.group_nodes import TOPIC, free_port
from tests.process.remoting_client import RemotingClient
from tests.process.remoting_steps import GROUP, beat_when_leading, offset_fields

JAR = os.environ.get("LEDGERMQ_EXPORTER")

pytestmark = [
    pytest.mark.oracle,
    pytest.mark.slow,
    pytest.mark.skipif(JAR is None, reason="LEDGERMQ_EXPORTER is not its executable jar"),
]

COUNT = 40
CONSUMED = 6
TASKS = (
    *("TopicOffset", "Producer", "ConsumerOffset"),
    *("BrokerStatsTopic", "BrokerStats", "BrokerRuntimeStats"),
)
METRIC = re.compile(r"^(\w+)\{(.*)\} (\S+)$", re.MULTILINE)
LABEL = re.compile(r'(\w+)="([^"]*)"')


class Exporter:
    """What it serves now."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}/metrics"

    def values(self, metric: str, **labels: str) -> list[float]:
        """Of all samples of ``metric`` with these labels; none before it serves anything."""
        try:
            with urllib.request.urlopen(self._url, timeout=30) as answer:
                text = answer.read().decode()
        except (urllib.error.URLError, ConnectionError):
            return []
        return [
            float(value)
            for name, inside, value in METRIC.findall(text)
            if name == metric and labels.items() <= dict(LABEL.findall(inside)).items()
        ]


@contextmanager
def exporter(name_servers: str, folder: Path) -> Iterator[Exporter]:
    assert JAR is not None
    ports = free_port(), free_port()
    words = [
        f"--server.port={ports[0]}", f"--grpc.server.port={ports[1]}",
        f"--rocketmq.config.namesrvAddr={name_servers}",
        *(f"--task.collect{name}.cron=*/2 * * * * ?" for name in TASKS),
    ]  # fmt: skip
    with (folder / "exporter.log").open("w") as log:
        process = subprocess.Popen(
            ["java", "-Xmx256m", f"-Duser.home={folder}", "-jar", JAR, *words],
            stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
        )  # fmt: skip
    try:
        yield Exporter(ports[0])
    finally:
        process.kill()
        process.wait()


def consume_some(port: str) -> None:
    """Be a member of the group, commit an offset, and leave."""
    client = RemotingClient(port)
    beat_when_leading(client, "10.0.0.1@1", TOPIC)
    fields = {**offset_fields(TOPIC, 0, group=GROUP), "commitOffset": CONSUMED}

    assert client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, fields).code == ResponseCode.SUCCESS
    client.close()


def test_the_exporter_tells_what_the_group_holds_and_who_is_behind(tmp_path: Path) -> None:
    with nodes_made() as make:
        group, name_servers = make_remoting_group(make)
        leader = group.leader()
        addresses = [f"ipc://{member.node.runtime}" for member in group.members]
        with Producer(addresses) as producer:
            for future in [
                producer.send(TOPIC, b"x" * 100, tag="a", queue_id=0) for _ in range(COUNT)
            ]:
                future.result(60)
        consume_some(name_servers.split(";")[group.members.index(leader)])
        with exporter(name_servers, tmp_path) as served:
            wait_until(
                lambda: served.values("rocketmq_group_diff", group=GROUP, topic=TOPIC),
                "the lag of the group in the exporter's metrics",
                120,
            )
            behind = served.values("rocketmq_group_diff", group=GROUP, topic=TOPIC)
            stored = served.values("rocketmq_producer_offset", topic=TOPIC, broker=BROKER_NAME)
            put = served.values("rocketmq_brokeruntime_msg_put_total_today_now")
            followers = served.values("rocketmq_broker_commitlog_diff", broker=BROKER_NAME)

        assert group.stop() == [0, 0, 0]
        assert [one.name for one in group.members if one.node.logged("ERROR")] == []
    assert behind == [COUNT - CONSUMED]
    assert stored == [COUNT]
    assert put == [COUNT]
    assert followers == [0, 0]
