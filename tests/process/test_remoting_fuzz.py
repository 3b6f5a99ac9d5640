"""A real node's port gets what no client would send: it goes on, and others notice nothing."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from ledgermq.remoting.codes import RequestCode
from ledgermq.remoting.command import Command, HeaderKind, encode_command
from tests.process.fuzzed_port import (
    FUZZ_S,
    GROWTH_MAX,
    SEED,
    FuzzedPort,
    TimeOverError,
    fuzzed_port,
)
from tests.process.remoting_requests import kinds_of
from tests.readable import is_readable
from tests.suite.patience import PATIENCE_S

pytestmark = pytest.mark.slow

WARM_UP = 40
"""Connections before its memory is looked at first."""

STAY_S = 0.02
FIELDS = (
    "topic", "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m",
    "consumerGroup", "producerGroup", "group", "groupName", "queueId", "queueOffset", "maxMsgNums",
    "sysFlag", "commitOffset", "suspendTimeoutMillis", "subscription", "subVersion",
    "expressionType", "offset", "delayLevel", "originMsgId", "originTopic", "clientID", "clientId",
    "timestamp", "key", "maxNum", "beginTimestamp", "endTimestamp", "bornTimestamp", "flag",
    "properties", "reconsumeTimes", "unitMode", "batch", "maxReconsumeTimes", "defaultTopic",
    "defaultTopicQueueNums", "perm", "readQueueNums", "writeQueueNums", "topicFilterType",
    "tranStateTableOffset", "commitLogOffset", "commitOrRollback", "msgId", "transactionId",
    "namespace", "value", "isForce", "srcGroup", "destGroup", "index", "count", "brokerName",
    "AccessKey", "Signature", "bname", "statsName", "statsKey", "removeOffset",
)  # fmt: skip
# Nothing here may take away what the test looks at afterwards.
HARMLESS = sorted(
    set(map(int, RequestCode))
    - {RequestCode.DELETE_TOPIC_IN_BROKER, RequestCode.UPDATE_AND_CREATE_TOPIC}
    - {RequestCode.WIPE_WRITE_PERM_OF_BROKER, RequestCode.DELETE_EXPIRED_COMMITLOG}
)
VALUES = st.one_of(
    st.integers(-(2**65), 2**65).map(str),
    st.integers(-2, 20).map(str),
    st.sampled_from(
        ["", "orders", "other", "%RETRY%g", "g", "TBW102", "true", "TAG", "SQL92", "*"]
    ),
    st.text(max_size=40),
    st.text("a", min_size=200, max_size=300),
)
BODIES = st.one_of(
    st.just(b""),
    st.binary(max_size=200),
    st.sampled_from(
        [
            b"{}", b"[]", b"null", b'{"clientID":', b"[" * 5_000, b'{"a":' * 5_000,
            b'{"clientID":"c","consumerDataSet":[{}],"producerDataSet":7}',
            b'{"clientID":"c","consumerDataSet":[{"groupName":"g","subscriptionDataSet":[{"topic":'
            b'"orders","subVersion":"x"}]}]}',
            b'{"consumerGroup":"g","clientId":"c","mqSet":[{"topic":1}]}',
            b'{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"t"}:7}}',
            struct.pack(">iiiii", 2**31 - 1, 0, 0, 0, -1), struct.pack(">i", 22) * 8,
        ]
    ),
)  # fmt: skip
COMMANDS = st.builds(
    Command,
    code=st.one_of(st.sampled_from(HARMLESS), st.integers(-(2**15), 2**15 - 1)),
    opaque=st.integers(-(2**31), 2**31 - 1),
    fields=st.dictionaries(st.one_of(st.sampled_from(FIELDS), st.text(max_size=8)), VALUES),
    body=BODIES,
    flag=st.integers(0, 3),
    kind=st.sampled_from(list(HeaderKind)),
).filter(lambda command: command.kind in kinds_of(command.code))


@st.composite
def garbled(draw: st.DrawFn) -> bytes:
    """A frame that something has happened to: bytes turned over, cut off, put in, sizes changed."""
    frame = bytearray(b"".join(map(bytes, encode_command(draw(COMMANDS)))))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(frame) - 1)) if frame else 0
        what = draw(st.integers(0, 4))
        if what == 0 and frame:
            frame[at] ^= draw(st.integers(1, 255))
        elif what == 1:
            del frame[at:]
        elif what == 2:
            frame[at:at] = draw(st.binary(max_size=12))
        elif what == 3:
            frame[:4] = struct.pack(">I", draw(st.integers(0, 2**32 - 1)))
        elif len(frame) >= 8:
            frame[4:8] = struct.pack(">I", draw(st.integers(0, 2**32 - 1)))
    return bytes(frame)


SENT = st.lists(
    st.one_of(
        COMMANDS.map(lambda one: b"".join(map(bytes, encode_command(one)))),
        garbled(),
        st.binary(max_size=64),
    ),
    min_size=1,
    max_size=12,
)


class Fuzzed:
    """Connections that send what hypothesis has made."""

    def __init__(self, port: FuzzedPort) -> None:
        host, _, number = port.address.rpartition(":")
        self.port = port
        self.place = (host, int(number))
        self.connections = 0

    def send(self, parts: list[bytes], *, stays: bool) -> None:
        """Send it on a connection of its own, read what there is to read, and go.

        Args:
            stays: whether it waits a moment for replies before it says that it sends no more.
        """
        self.connections += 1
        with socket.create_connection(self.place, timeout=PATIENCE_S) as sock:
            try:
                for part in parts:
                    sock.sendall(part)
                if stays:
                    is_readable(sock, STAY_S)
                sock.shutdown(socket.SHUT_WR)
                while sock.recv(65_536):
                    pass
            except OSError as error:
                # Closed on us, as it may be for what was sent; it may not be left hanging.
                assert not isinstance(error, TimeoutError), parts


@pytest.fixture(scope="module")
def fuzzed() -> Iterator[Fuzzed]:
    with fuzzed_port() as port:
        yield Fuzzed(port)


@pytest.mark.long
def test_what_no_client_would_send_harms_nobody_and_is_forgotten(fuzzed: Fuzzed) -> None:
    print(f"LEDGERMQ_FUZZ_SEED={SEED}")
    until = time.monotonic() + FUZZ_S
    memory: list[int] = []

    # It goes on until the time is over, and not for so many examples.
    @settings(
        max_examples=1_000_000,
        deadline=None,
        database=None,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    @seed(SEED)
    @given(SENT, st.booleans())
    def send(parts: list[bytes], stays: bool) -> None:
        # A busy machine takes longer for what has to be looked at.
        if time.monotonic() > until and len(memory) > 1:
            raise TimeOverError
        fuzzed.send(parts, stays=stays)
        if fuzzed.connections % WARM_UP == 0:
            fuzzed.port.check()
            memory.append(fuzzed.port.memory)

    with pytest.raises(TimeOverError):
        send()
    print(f"{fuzzed.connections} connections, memory {memory[0]} to {memory[-1]}")

    assert max(memory) - memory[0] < GROWTH_MAX, memory
