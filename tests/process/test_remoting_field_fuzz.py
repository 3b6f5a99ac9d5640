"""Well-formed requests of each code with fields and bodies that no client sends: each is answered,
with a reason where it is refused, and nobody else notices.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from ledgermq.remoting.codes import RequestCode as Code
from ledgermq.remoting.command import Command, encode_command
from ledgermq.remoting.pull_request import SUSPEND
from tests.process.fuzzed_port import (
    FUZZ_S,
    GROWTH_MAX,
    SEED,
    FuzzedPort,
    TimeOverError,
    fuzzed_port,
)
from tests.process.remoting_client import RemotingClient
from tests.process.remoting_requests import TEMPLATES, TO_CLIENTS, kinds_of
from tests.process.remoting_steps import beat_when_leading, send

pytestmark = pytest.mark.slow

CHECKED_EVERY = 25
REQUESTS_MAX = 6
"""Requests that are under way at a time on one connection."""

PULLS = (Code.PULL_MESSAGE, Code.LITE_PULL_MESSAGE)
LOOKED_AT = ("orders", "other")
CHANGES_TOPIC = (Code.UPDATE_AND_CREATE_TOPIC, Code.DELETE_TOPIC_IN_BROKER)
"""Nothing may take away what the test looks at."""

HALF = "\ud800"
"""Half of a character: JSON may name it, and nothing else can hold it."""

NAMES = (
    "", ".", "..", "/", "../../etc", "/proc", "a/b", "nul\0nul", HALF, "%RETRY%", "%DLQ%x",
    "%RETRY%billing", "TBW102", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "a b", "ä",
    "orders", "other", "billing", "fuzz", "producers", "x" * 127, "x" * 128, "x" * 300,
    "y" * 40_000, "CLIENT_INNER_PRODUCER", "a@b", "*", "true", "null", "[]", "{}",
)  # fmt: skip
NUMBERS = (
    "-1", "-2", "0", "1", "7", "2147483647", "2147483648", "-2147483648", "-2147483649",
    "9223372036854775807", "9223372036854775808", "-9223372036854775808", "1e9", "0x10", " 1",
    "1_0", "٣", "NaN", "-0", "+5", "9" * 5_000,
)  # fmt: skip
PROPERTIES = (
    "\x01", "\x02", "a\x01b", "DELAY\x0118\x02", "DELAY\x01-1\x02", "DELAY\x01x\x02",
    "TRAN_MSG\x01true\x02", "TRAN_MSG\x01true\x02PGROUP\x01p\x02UNIQ_KEY\x01u\x02",
    "TIMER_DELIVER_MS\x01" + "9" * 18, "TIMER_DELAY_SEC\x011\x02", "__STARTDELIVERTIME\x01x",
    "KEYS\x01" + "k " * 9_000, "TAGS\x01" + HALF, "UNIQ_KEY\x01\x02", "INNER_NUM\x012\x02",
    "REPLY_TO_CLIENT\x01fuzz\x02", "WAIT\x01false\x02", "REAL_TOPIC\x01/etc\x02REAL_QID\x01-1\x02",
    "RETRY_TOPIC\x01orders\x02", "p\x01" + "v" * 33_000,
)  # fmt: skip
FILTERS = (
    "a || b", "||", "a > 5 AND", "NOT " * 1_500 + "a", "a IN ('x'" + ",'y'" * 900 + ")",
    "-" * 50, "- " * 2_000 + "a > 0", "(" * 3_000, "x" * 9_000, "a BETWEEN 1 AND 2" * 300,
)  # fmt: skip
VALUES = st.one_of(
    st.sampled_from(NAMES),
    st.sampled_from(NUMBERS),
    st.integers(-(2**64), 2**64).map(str),
    st.sampled_from(PROPERTIES),
    st.sampled_from(FILTERS),
    st.text(st.characters(exclude_categories=()), max_size=6).map(lambda text: f"{text}\u20ac"),
)
ODD = st.sampled_from(
    (None, True, -1, 0, 2**31, 2**63, 2**70, 1e308, "", HALF, "x", "y" * 5_000, [], {}, [[]], [{}],
     [None, 1, "x", HALF, 2**70])
)  # fmt: skip


ANSWERS = (
    b"", b"garbage", b"{}", b'{"messageQueueTable":{"x":1}}', b'{"messageQueueTable":{"[]":1}}',
    b'{"messageQueueTable":{{"brokerName":"b","topic":"t","queueId":1e400}:1}}',
    b'{"messageQueueTable":{{"brokerName":"b","topic":"\\ud800","queueId":1}:[]}}',
    b'{"messageQueueTable":{{"brokerName":"b","topic":"t","queueId":1}:7}}',
)  # fmt: skip
"""What a consumer says when it is asked how far it is."""


@st.composite
def twisted(draw: st.DrawFn, content: object) -> object:
    """JSON of a body in which something is another thing."""
    if draw(st.integers(0, 5)) == 0:
        return draw(ODD)
    if isinstance(content, dict) and content:
        at = draw(st.sampled_from(sorted(content)))
        if draw(st.integers(0, 6)) == 0:
            return {name: value for name, value in content.items() if name != at}
        return {**content, at: draw(twisted(content[at]))}
    if isinstance(content, list) and content:
        at = draw(st.integers(0, len(content) - 1))
        return [*content[:at], draw(twisted(content[at])), *content[at + 1 :]]
    return draw(ODD)


@st.composite
def bodies(draw: st.DrawFn, body: bytes) -> bytes:
    """Another body of a request."""
    if body[:1] == b"{" and draw(st.booleans()):
        return json.dumps(draw(twisted(json.loads(body)))).encode()
    kind = draw(st.integers(0, 4))
    if kind == 0:
        return draw(st.binary(max_size=64))
    if kind == 1 and body:
        at = draw(st.integers(0, len(body) - 1))
        return body[:at] + bytes([draw(st.integers(0, 255))]) + body[at + 1 :]
    if kind == 2:
        return body[: draw(st.integers(0, len(body)))]
    return b"" if kind == 3 else body * draw(st.integers(1, 40))


@st.composite
def requests(draw: st.DrawFn) -> Command:
    """A request whose frame is in order, and whose content is not."""
    code = draw(st.sampled_from(sorted(TEMPLATES)))
    template = TEMPLATES[code]
    fields = {name: str(value) for name, value in template.fields.items()}
    for _ in range(draw(st.integers(0 if template.body else 1, 3))):
        if fields:
            name = draw(st.sampled_from(sorted(fields)))
            if draw(st.integers(0, 7)) == 0:
                del fields[name]
            else:
                fields[name] = draw(VALUES)
    if code in CHANGES_TOPIC and fields.get("topic") in LOOKED_AT:
        fields["topic"] = "made"
    body = template.body
    if draw(st.booleans()):
        body = draw(bodies(body))
    kind = draw(st.sampled_from(kinds_of(code)))
    return Command(code, fields=fields, body=body, kind=kind)


class FuzzClient(RemotingClient):
    """One that consumes and produces, and answers whatever the broker asks of it."""

    def ask_all(self, commands: list[Command]) -> list[Command]:
        """Send requests at once, and wait for the replies to those that are to have one."""
        waiting = []
        for command in commands:
            command.opaque = next(self._ids)
            self._socket.sendall(b"".join(map(bytes, encode_command(command))))
            if is_answered(command):
                waiting.append(command.opaque)
        return [self.reply_to(opaque) for opaque in waiting]

    def _take(self) -> None:
        super()._take()
        while self.came:
            request = self.came.pop()
            if not request.is_oneway:
                body = ANSWERS[request.opaque % len(ANSWERS)]
                code = (0, 0, 1, 70_000)[request.opaque % 4]
                self.answer(request, code, body, remark="because")


def is_answered(command: Command) -> bool:
    """Whether a reply comes in any case: long polls wait, and ends that say nothing get none."""
    fields = command.fields
    if command.code in PULLS:
        flags = fields.get("sysFlag", "0")
        return not (flags.lstrip("+-").isascii() and flags.lstrip("+-").isdecimal()) or not (
            int(flags[:20]) & SUSPEND
        )
    if command.code == Code.END_TRANSACTION:
        return fields.get("commitOrRollback") in ("8", "12")
    return True


@pytest.fixture(scope="module")
def port() -> Iterator[FuzzedPort]:
    with fuzzed_port() as made:
        beat_when_leading(made.client, "steady", "orders")
        send(made.client, "orders", 0, b"one", b"two", properties="KEYS\x01k\x02TAGS\x01t\x02")
        yield made


def test_each_code_that_is_served_has_a_template() -> None:
    assert set(Code) == set(TEMPLATES) | TO_CLIENTS


@pytest.mark.long
def test_what_is_well_formed_and_senseless_is_answered_and_harms_nobody(port: FuzzedPort) -> None:
    print(f"LEDGERMQ_FUZZ_SEED={SEED}")
    until = time.monotonic() + FUZZ_S
    memory: list[int] = []
    counts: dict[int, int] = {}
    runs = 0

    # It goes on until the time is over, and not for so many examples.
    @settings(
        max_examples=1_000_000_000,
        deadline=None,
        database=None,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    @seed(SEED)
    @given(st.lists(requests(), min_size=1, max_size=REQUESTS_MAX))
    def ask(commands: list[Command]) -> None:
        nonlocal runs
        # A busy machine takes longer for what has to be looked at.
        if time.monotonic() > until and len(memory) > 1:
            raise TimeOverError
        runs += 1
        client = FuzzClient(port.address)
        client.send(Code.HEART_BEAT, body=TEMPLATES[Code.HEART_BEAT].body)
        try:
            replies = client.ask_all(commands)
        except OSError as error:
            raise AssertionError(f"no answer to {commands}: {error!r}") from error
        finally:
            client.close()
        for reply in replies:
            counts[reply.code] = counts.get(reply.code, 0) + 1

            assert reply.code == 0 or reply.remark, (reply, commands)
        if runs % CHECKED_EVERY == 0:
            port.check()
            memory.append(port.memory)

    with pytest.raises(TimeOverError):
        ask()
    print(f"{runs} connections, answers by code {counts}, memory {memory[0]} to {memory[-1]}")

    assert max(memory) - memory[0] < GROWTH_MAX, memory
    # Others are still served as before.
    assert [one.code for one in send(port.client, "other", 0, b"after")] == [0]
