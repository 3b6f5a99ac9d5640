"""Attacks on share groups, by every door that leads to them: ours, POP, HTTP and gRPC.

| attack | what it tries |
|---|---|
| ``forged_handles`` ``forged_pops`` | to settle what others have, by handles that it makes up |
| ``others_handles`` ``old_handles`` | the same with handles of other groups, or of before a reset |
| ``held_receives`` | all places of those who wait for messages |
| ``hoards`` | to take all there is, again and again, and settle nothing |
| ``http_handles`` | requests of a megabyte of handles, whose answers nobody reads |
| ``unread_streams`` ``broken_streams`` | gRPC streams that nobody reads, and what is none |
"""

from __future__ import annotations

import json
import random
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from importlib.util import find_spec
from pathlib import Path

from ledgermq.client import Admin
from ledgermq.model.errors import LedgerError
from ledgermq.remoting.codes import RequestCode as Code
from ledgermq.verbs.shares import Action
from ledgermq.wire.session import encode_call, encode_hello
from tests.adversary import zmtp3
from tests.adversary.honest_clients import OWN_TOPIC, SHARE_GROUP
from tests.adversary.target import Target
from tests.process.remoting_client import RemotingClient
from tests.process.remoting_pops import pop_fields

ACTIONS: tuple[Action, ...] = ("accept", "reject", "release", "extend", "return")
HELD_S = 0.5
"""For so long what is held is held."""

HALF_A_DAY_MS = 12 * 60 * 60 * 1_000
REFUSED = {"over", "settled", "other_group", "unreadable"}
"""What may become of a handle that nobody was given; ``settled``: the message was, before."""

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

ROUNDS = 32
"""Takes of one group: honest producers go on meanwhile, and it would never be at the end."""


def _stranger(target: Target) -> Admin:
    """Who asks from outside, and reads the answers."""
    return Admin(f"tcp://127.0.0.1:{target.consume[1]}")


def _forged(chance: random.Random) -> str:
    """A handle of the honest group, or nearly one."""
    numbers = chance.randrange(4), chance.randrange(2_000), chance.randrange(1, 3)
    place = ":".join(map(str, numbers))
    return chance.choice(
        (
            f"1:{SHARE_GROUP}:{OWN_TOPIC}:{place}:{chance.getrandbits(32):x}",
            f"1:{SHARE_GROUP}:{OWN_TOPIC}:{place}:1",
            f"1:{SHARE_GROUP}:{OWN_TOPIC}:0:{'9' * chance.randrange(1, 400)}:1:ab",
            f"1:{SHARE_GROUP}:{'x' * 300}:{place}:ab",
            f"1:{SHARE_GROUP}:{OWN_TOPIC}:{place}:AB",
            ":" * chance.randrange(500),
            "1:\x00:\u0661:0:0:1:ab",
        )
    )


def forged_handles(target: Target, chance: random.Random) -> None:
    for _ in range(2 * target.scale):
        handles = [_forged(chance) for _ in range(1_000)]
        with suppress(LedgerError), _stranger(target) as admin:
            rows = admin.settle_shared(SHARE_GROUP, chance.choice(ACTIONS), handles)
            assert {row.outcome for row in rows} <= REFUSED, rows
    # Others do not wait for their answers.
    connection = zmtp3.connect(target.consume)
    hello = zmtp3.message(encode_hello(1, client="x", library="raw"))
    zmtp3.send_until_closed(connection, zmtp3.greeting() + zmtp3.ready() + hello)
    for number in range(40 * target.scale):
        fields = {
            "group": SHARE_GROUP,
            "action": chance.choice(ACTIONS),
            "handles": [_forged(chance) for _ in range(chance.choice((1, 1_024, 1_025)))],
        }
        call = encode_call(10 + number, "share_settle", **fields)
        zmtp3.send_until_closed(connection, zmtp3.message(call))
    connection.close()


def _taken(admin: Admin, group: str, count: int) -> list[str]:
    found = admin.receive_shared(group, OWN_TOPIC, count, invisible_ms=HALF_A_DAY_MS)
    return [one.handle for one in found]


def others_handles(target: Target, chance: random.Random) -> None:
    group = f"thief-{chance.randrange(20)}"
    with suppress(LedgerError), _stranger(target) as admin:
        handles = _taken(admin, group, 64)
        theirs = [handle.replace(f":{group}:", f":{SHARE_GROUP}:") for handle in handles]
        for action in ACTIONS:
            given = admin.settle_shared(SHARE_GROUP, action, handles + theirs) if handles else []
            assert {row.outcome for row in given} <= REFUSED, given


def old_handles(target: Target, chance: random.Random) -> None:
    """Of a group that its operator has reset since, and of deliveries that were given back."""
    group = f"reset-{chance.randrange(20)}"
    with (
        suppress(LedgerError),
        _stranger(target) as admin,
        Admin(f"ipc://{Path(target.stream).parent}") as operator,
    ):
        handles = _taken(admin, group, 64)
        admin.settle_shared(group, "release", handles[:32])
        if handles:
            operator.reset_offsets(group, OWN_TOPIC, "last")
        rows = admin.settle_shared(group, "accept", handles) if handles else []
        assert {row.outcome for row in rows} <= REFUSED, rows


def held_receives(target: Target, chance: random.Random) -> None:
    hello = zmtp3.message(encode_hello(1, client="x", library="raw"))
    with ExitStack() as held:
        for _ in range(4 * target.scale):
            connection = held.enter_context(zmtp3.connect(target.consume))
            zmtp3.send_until_closed(connection, zmtp3.greeting() + zmtp3.ready() + hello)
            for number in range(600):
                fields = {
                    "group": f"waits-{chance.randrange(200)}",
                    "topic": OWN_TOPIC,
                    "wait_ms": 60_000,
                    "max_messages": 1,
                    "filter": chance.choice(("*", "no || such", "SQL92 a > 5 AND b = 'x'")),
                }
                call = encode_call(10 + number, "share_receive", **fields)
                zmtp3.send_until_closed(connection, zmtp3.message(call))
        time.sleep(HELD_S)


def hoards(target: Target, chance: random.Random) -> None:
    with suppress(LedgerError), _stranger(target) as admin:
        for _ in range(4 * target.scale):
            group = f"hoard-{chance.randrange(8)}"
            for _ in range(ROUNDS):
                # Every second one: what is left is a run each.
                if not (handles := _taken(admin, group, 256)):
                    break
                admin.settle_shared(group, "accept", handles[::2])


def forged_pops(target: Target, chance: random.Random) -> None:
    """The texts of POP name no secret but the revive queue, which is the mark."""
    client = RemotingClient(target.port)
    try:
        for number in range(300 * target.scale):
            offset, queue = chance.randrange(2_000), chance.randrange(4)
            mark = chance.randrange(-(2**31), 2**31)
            text = f"0 {1_700_000_000_000} 60000 {mark} 0 broker-a {queue} {offset}"
            fields = {
                "consumerGroup": SHARE_GROUP, "topic": OWN_TOPIC, "queueId": queue,
                "offset": offset, "extraInfo": chance.choice((text, text[:-2], "0 " * 200)),
                "invisibleTime": chance.choice((0, 1_000, HALF_A_DAY_MS, 2**62)),
            }  # fmt: skip
            kind = chance.choice((Code.ACK_MESSAGE, Code.CHANGE_MESSAGE_INVISIBLETIME))
            client.send(kind, fields)
            if number % 50 == 0:
                acks = [
                    {"c": SHARE_GROUP, "t": OWN_TOPIC, "r": "0", "so": offset, "q": queue,
                     "rq": mark, "pt": 1, "it": 1, "b": "//////////8="}
                ] * chance.choice((1, 500))  # fmt: skip
                body = json.dumps({"brokerName": "broker-a", "acks": acks}).encode()
                client.send(Code.BATCH_ACK_MESSAGE, body=body)
                client.send(Code.POP_MESSAGE, pop_fields(OWN_TOPIC, f"pops-{number}", order="true"))
    except OSError:
        # That only this connection ends is what is promised.
        pass
    finally:
        client.close()


def http_handles(target: Target, chance: random.Random) -> None:
    handles = [_forged(chance) for _ in range(chance.choice((1, 1_024, 8_000)))]
    receive = {"topic": OWN_TOPIC, "max_messages": 256, "wait_ms": 0}
    asked = {
        f"/api/v1/shares/{SHARE_GROUP}/settle": {"action": "accept", "handles": handles},
        "/api/v1/shares/strangers/receive": receive,
    }
    with ExitStack() as held:
        for number in range(40 * target.scale):
            path = chance.choice(sorted(asked))
            body = json.dumps(asked[path]).encode()
            token = chance.choice((target.token, "", "x" * 40))
            head = (
                f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n"
                f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
            )
            connection = held.enter_context(socket.socket())
            connection.settimeout(1.0)
            with suppress(OSError):
                connection.bind((f"127.0.0.{3 + number % 6}", 0))
                connection.connect(target.http)
                connection.sendall(head.encode() + body)
        time.sleep(HELD_S)


def unread_streams(target: Target, chance: random.Random) -> None:
    """Polls and Telemetry that nobody reads, and handles of nobody's messages."""
    from ledgermq.gateway.rpc.definition import RpcCode, make
    from tests.process.grpc_clients import RawClient

    assert target.grpc is not None
    named = {"group": {"name": f"streams-{chance.randrange(20)}"}}
    queue = {"topic": {"name": OWN_TOPIC}, "id": -1}
    receive = make(
        "ReceiveMessageRequest", **named, message_queue=queue, batch_size=32,
        invisible_duration={"seconds": 20}, long_polling_timeout={"seconds": 20},
    )  # fmt: skip
    # One of a message that is settled is answered OK, whoever says it.
    never = [
        f"1:{SHARE_GROUP}:{OWN_TOPIC}:0:{10**6 + number}:1:{chance.randrange(1, 2**32):x}"
        for number in range(100)
    ]
    entries = [{"message_id": "m", "receipt_handle": one} for one in never]
    ack = make(
        "AckMessageRequest", group={"name": SHARE_GROUP}, topic={"name": OWN_TOPIC}, entries=entries
    )
    host, port = target.grpc
    clients = [
        RawClient(f"{host}:{port}", name=f"a{number}", own=True, probes=False)
        for number in range(4 * target.scale)
    ]
    for client in clients:
        # Before the places of those whose messages are read are full of its own.
        answer = client.call("AckMessage", ack)
        assert RpcCode.OK not in {entry.status.code for entry in answer.entries}, answer
    for client in clients:
        calls = [client.receiving(receive) for _ in range(60)]
        calls += [client.silent("Telemetry") for _ in range(60)]
        for call in calls[::2]:
            call.cancel()
    time.sleep(HELD_S)
    for client in clients:
        client.close()


def broken_streams(target: Target, chance: random.Random) -> None:
    assert target.grpc is not None
    settings = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
    ping = b"\x00\x00\x08\x06\x00\x00\x00\x00\x00" + bytes(8)
    headers = b"\x00\x00\x05\x01\x05\x00\x00\x00\x01" + b"\x82\x86\x84\x41\x8a"
    shapes = (
        PREFACE,
        PREFACE + settings * chance.randrange(1, 2_000),
        PREFACE + settings + ping * chance.randrange(1, 5_000),
        PREFACE + settings + headers * 100,
        PREFACE[: chance.randrange(len(PREFACE))],
        b"\x16\x03\x01\x02\x00" + chance.randbytes(chance.randrange(600)),
        chance.randbytes(chance.randrange(1, 5_000)),
    )
    with ExitStack() as held:
        for number in range(60 * target.scale):
            connection = held.enter_context(socket.socket())
            connection.settimeout(1.0)
            with suppress(OSError):
                connection.bind((f"127.0.0.{3 + number % 6}", 0))
                connection.connect(target.grpc)
                connection.sendall(chance.choice(shapes))
        time.sleep(HELD_S)


HAS_GRPC = find_spec("grpc") is not None

SHARE_ATTACKS: tuple[Callable[[Target, random.Random], None], ...] = (
    forged_handles,
    others_handles,
    old_handles,
    held_receives,
    hoards,
    forged_pops,
    http_handles,
    *((unread_streams, broken_streams) if HAS_GRPC else ()),
)
