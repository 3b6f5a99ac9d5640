"""Rights and quotas of messages that wait are those of the topics where they belong."""

from __future__ import annotations

import json
from array import array
from dataclasses import replace
from pathlib import Path

import pytest

from ledgermq.formats.records.delayed_message import RealQueue, level_properties, timer_properties
from ledgermq.formats.records.message import Message, encode_message
from ledgermq.formats.records.properties import encode_properties
from ledgermq.model.config.settings import Settings
from ledgermq.model.errors import NoPermissionError, QuotaError
from ledgermq.model.limits import DELAY_TOPIC, TIMER_TOPIC
from ledgermq.rules.access.access import FILE as ACCESS_FILE
from ledgermq.rules.tables.quotas import FILE as QUOTAS_FILE
from ledgermq.sessions.client_rights import Peer
from ledgermq.wire.send_frame import SendFrame, SendRun
from ledgermq.writer.admission.frame_admission import FrameAdmission

HOLE = 48
PEER = Peer(address="10.0.0.5")


class Desk:
    """An admission with these users and quotas; its clock stands still."""

    def __init__(
        self, folder: Path, *, quotas: dict[str, object], users: dict[str, object]
    ) -> None:
        (folder / QUOTAS_FILE).write_text(json.dumps({"quotas": quotas}))
        (folder / ACCESS_FILE).write_text(json.dumps({"users": users}))
        settings = Settings()
        if users:
            settings = replace(settings, access=replace(settings.access, enabled=True))
        self.now_ns = 0
        self.admission = FrameAdmission(settings, folder, lambda: self.now_ns)
        self.rights = self.admission.rights_of(PEER)

    def send(self, run_topic: str, *real: str) -> None:
        """Have a frame admitted, with a message for each of these topics."""
        frame, payload = frame_of(run_topic, real)
        admission = self.admission
        admission.check(frame, b"c", "client", self.rights)
        admission.check_real_topics(frame, payload, self.rights, header_size=HOLE)
        admission.admitted(frame, b"c", "client", self.rights)


def frame_of(run_topic: str, real: tuple[str, ...]) -> tuple[SendFrame, memoryview]:
    records = []
    for topic in real:
        where = RealQueue(topic, 0)
        waits = {
            DELAY_TOPIC: level_properties(1, where),
            TIMER_TOPIC: timer_properties(9**13, where),
        }
        message = Message(
            topic=run_topic,
            queue_id=0,
            body=b"body",
            properties=encode_properties(waits.get(run_topic, {})),
        )
        records.append(bytes(HOLE) + encode_message(message))
    payload = memoryview(b"".join(records))
    return (
        SendFrame(
            request_id=1,
            is_retry=False,
            is_resumed=False,
            sizes=memoryview(array("I", map(len, records))),
            runs=[SendRun(len(records), 0, run_topic.encode())],
            payload_size=len(payload),
            checksum=0,
            entry_header_size=HOLE,
            store_host_size=8,
            tables=memoryview(b""),
        ),
        payload,
    )


@pytest.mark.parametrize("waits_in", [DELAY_TOPIC, TIMER_TOPIC])
def test_messages_that_wait_use_the_quota_of_the_topic_where_they_belong(
    tmp_path: Path, waits_in: str
) -> None:
    desk = Desk(tmp_path, quotas={"topic:orders": {"produceMessages": 2}}, users={})
    desk.send(waits_in, "orders", "orders", "orders", "orders", "orders")

    with pytest.raises(QuotaError, match="topic:orders"):
        desk.send(waits_in, "orders")
    with pytest.raises(QuotaError, match="topic:orders"):
        desk.send(waits_in, "other", "orders")
    with pytest.raises(QuotaError, match="topic:orders"):
        # Those that do not wait share it.
        desk.send("orders", "orders")
    desk.send(waits_in, "other")


def test_the_topic_where_messages_wait_has_no_quota_of_its_own(tmp_path: Path) -> None:
    desk = Desk(tmp_path, quotas={f"topic:{DELAY_TOPIC}": {"produceMessages": 1}}, users={})
    for _ in range(5):
        desk.send(DELAY_TOPIC, "orders", "orders", "orders")


def test_messages_that_wait_need_the_right_to_the_topic_where_they_belong(tmp_path: Path) -> None:
    user = {"whiteRemoteAddress": PEER.address, "topicPerms": ["orders=PUB"]}
    desk = Desk(tmp_path, quotas={}, users={"orders": user})
    desk.send(DELAY_TOPIC, "orders")

    with pytest.raises(NoPermissionError, match="secret"):
        desk.send(DELAY_TOPIC, "orders", "secret")
