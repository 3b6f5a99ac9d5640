"""Attacks on one node by somebody who reaches its ports, each in as many variants as are drawn.

| attack | finding of the review |
|---|---|
| ``digits`` ``poison`` | H1 numbers of thousands of digits; H3 slow expressions |
| ``old_protocols`` | H2 a connection that tells no address, by ZMTP 1.0 or 2.0 |
| ``names_of_the_node`` | H4 routing ids that are the node's own |
| ``names_of_the_next`` | routing ids that ZeroMQ will give to who connects next |
| ``short_sessions`` ``instances`` | H5 sessions that nobody ends; L6 instances without end |
| ``endless_parts`` | H6 messages without an end |
| ``odd_json`` ``filters`` ``views`` ``producer_groups`` | H7 requests that take long |
| ``unread_replies`` | M1 answers that nobody reads |
| ``groups`` | M2 groups without end |
| ``held_pulls`` | M3 all held pulls |
| ``held_pops`` | all places of those who wait for messages to take singly; empty acknowledgements |
| ``members`` | a group of thousands, each of whom is told of all |
| ``schemas`` | schemas whose comparison takes seconds, by who may register them |
| ``log_lines`` | L1 lines of the log |
| ``http_attacks`` | the HTTP port |
| ``share_attacks`` | share groups, by each door |
| ``half_open`` ``slow_writer`` ``mechanisms`` ``wrong_frames`` | what else a transport may do |
"""

from __future__ import annotations

import base64
import json
import random
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from multiprocessing.queues import Queue
from pathlib import Path

from ledgermq.client.admin.broker_admins import SchemaAdmin
from ledgermq.model.errors import ConfigError, ProtocolError
from ledgermq.remoting.codes import RequestCode as Code
from ledgermq.wire.byte_stream import message_head
from ledgermq.wire.session import encode_call, encode_hello
from tests.adversary import http_attacks, zmtp3
from tests.adversary.share_attacks import SHARE_ATTACKS
from tests.adversary.target import Target
from tests.process.raw_zmtp import LONG, MORE, FirstZmtpClient, ZmtpClient
from tests.process.remoting_client import RemotingClient
from tests.process.remoting_requests import TEMPLATES
from tests.process.remoting_steps import NOW_MS, heartbeat_body, pull_fields
from tests.process.test_state_log import broker_of

MIB = 1 << 20
C_RANDOM_FIRST = 0x6B8B4567
"""What C's rand gives first where no seed was set; ZeroMQ counts nameless connections from it."""
NAMES_HELD, NAMES_STEP = 60, 50


def _many(client: RemotingClient, code: Code, bodies: list[bytes]) -> None:
    """Send requests and read the answers, until the other side has had enough."""
    try:
        for opaque in [client.send(code, TEMPLATES[code].fields, body) for body in bodies]:
            client.reply_to(opaque)
    except (OSError, EOFError):
        # That only this connection ends is what is promised.
        pass
    finally:
        client.close()


def _filter_body(expression: str) -> bytes:
    wanted = {"topic": "orders", "subString": expression, "expressionType": "SQL92"}
    return json.dumps({"clientId": "x", "group": "g", "subscriptionData": wanted}).encode()


def digits(target: Target, chance: random.Random) -> None:
    count = chance.choice((4_299, 4_300, 4_301, 5_000, 8_000))
    shapes = (
        "a = {}",
        "a > -{}",
        "a BETWEEN 1 AND {}",
        "{} = {}",
        "a IN ('x') OR a < {}L",
        "a = {}.{}",
    )
    bodies = [_filter_body(shape.replace("{}", "1" * count)) for shape in shapes]
    _many(RemotingClient(target.port), Code.CHECK_CLIENT_CONFIG, bodies)


def poison(target: Target, chance: random.Random) -> None:
    size = chance.choice((5_000, 16_000, 32_000))
    value = chance.choice(
        ("1" * size, "1" * size + "x", "." * size, "1." * (size // 2), "-" + "9" * size)
    )
    values = ("p", "poisoned", "TBW102", 4, 0, 0, NOW_MS, 0, f"a\x01{value}\x02", 0, "false")
    fields = dict(zip("abcdefghijk", values, strict=True))
    client = RemotingClient(target.port)
    try:
        client.ask(Code.SEND_MESSAGE_V2, fields, b"poison")
        for expression in ("a > 5", "a > 1.5", "a BETWEEN 1 AND 2", "a = '1'"):
            for queue in range(4):
                wanted = pull_fields("poisoned", queue, 0, group="poisoned")
                more = {"subscription": expression, "expressionType": "SQL92", "sysFlag": 4}
                client.ask(Code.PULL_MESSAGE, {**wanted, **more})
    except OSError:
        return
    finally:
        client.close()


def old_protocols(target: Target, chance: random.Random) -> None:
    for _ in range(4 * target.scale):
        where = chance.choice((target.consume, target.produce))
        try:
            protocol = chance.choice((ZmtpClient, FirstZmtpClient))
            client = protocol(where, identity=chance.choice((b"", bytes(9), b"x" * 255)))
            client.send(encode_hello(1, client="stranger", library="raw"))
            client.send(encode_call(2, "acl_set", user="evil", mode="add", fields={"admin": True}))
            client.close()
        except (OSError, EOFError):
            continue


def names_of_the_node(target: Target, chance: random.Random) -> None:
    for size in (1, 5, 9, 17, 255):
        name = b"\0" + chance.randbytes(size - 1)
        for identity in (name, bytes(size)):
            connection = zmtp3.connect(target.consume)
            call = encode_call(chance.randrange(2**32), "route", topic="forged", create=True)
            zmtp3.send_until_closed(
                connection,
                zmtp3.greeting()
                + zmtp3.ready(Identity=identity)
                + zmtp3.message(encode_hello(1, client="x", library="raw"))
                + zmtp3.message(call),
            )
            connection.close()


def names_of_the_next(target: Target, chance: random.Random) -> None:
    first = chance.randrange(NAMES_STEP)
    for where in (target.produce, target.consume):
        held = [zmtp3.connect(where) for _ in range(NAMES_HELD)]
        for row, connection in enumerate(held):
            number = C_RANDOM_FIRST + first + row * NAMES_STEP
            name = b"\0" + number.to_bytes(4, "big")
            zmtp3.send_until_closed(connection, zmtp3.greeting() + zmtp3.ready(Identity=name))
        for _ in range(2 * NAMES_STEP):
            nameless = zmtp3.connect(where)
            zmtp3.send_until_closed(nameless, zmtp3.greeting() + zmtp3.ready())
            nameless.close()
        for connection in held:
            connection.close()


def short_sessions(target: Target, chance: random.Random) -> None:
    for _ in range(200 * target.scale):
        connection = zmtp3.connect(chance.choice((target.produce, target.consume)))
        hello = zmtp3.message(encode_hello(1, client="x", library="raw"))
        zmtp3.send_until_closed(connection, zmtp3.greeting() + zmtp3.ready() + hello)
        connection.close()


def instances(target: Target, chance: random.Random) -> None:
    connection = zmtp3.connect(target.produce)
    zmtp3.send_until_closed(connection, zmtp3.greeting() + zmtp3.ready())
    for _ in range(500 * target.scale):
        name = f"{chance.getrandbits(64):x}"
        hello = encode_hello(1, client="x", library="raw", instance=name)
        zmtp3.send_until_closed(connection, zmtp3.message(hello))
    connection.close()


def endless_parts(target: Target, chance: random.Random) -> None:
    size = chance.choice((0, 40, 4_096, 1_000_000))
    part = bytes([MORE | LONG]) + size.to_bytes(8, "big") + bytes(size)
    connection = zmtp3.connect(chance.choice((target.produce, target.consume)))
    zmtp3.send_until_closed(connection, zmtp3.greeting() + zmtp3.ready())
    for _ in range(16 * target.scale):
        zmtp3.send_until_closed(connection, part * max(1, MIB // len(part)))
    connection.close()


def odd_json(target: Target, chance: random.Random) -> None:
    size = MIB * chance.choice((1, 2, 4)) - 64
    shapes = (
        b"{1:1,",
        b"{",
        b"[",
        b'{"a":',
        b'"\\u0041',
        b"{1:{2:",
        b"1",
        b" ",
        b'{"producerDataSet":[{',
    )
    bodies = [(shape * (size // len(shape) + 1))[:size] for shape in chance.sample(shapes, 2)]
    _many(RemotingClient(target.port), Code.HEART_BEAT, bodies * target.scale)


def filters(target: Target, chance: random.Random) -> None:
    for _ in range(2 * target.scale):
        texts = [
            f"a = {chance.getrandbits(60)} OR " + "b > 1 AND (c = 'x') OR " * 300 + "d = 1"
            for _ in range(10)
        ]
        bodies = [_filter_body(text[:8_000] + " OR e = 1") for text in texts]
        _many(RemotingClient(target.port), Code.CHECK_CLIENT_CONFIG, bodies)


def _stored(target: Target, size: int) -> int:
    """The position of a message that an attacker has stored."""
    client = RemotingClient(target.port)
    values = ("p", "large", "TBW102", 4, 0, 0, NOW_MS, 0, "", 0, "false")
    reply = client.ask(
        Code.SEND_MESSAGE_V2, dict(zip("abcdefghijk", values, strict=True)), bytes(size)
    )
    client.close()
    return int(reply.fields["msgId"][16:], 16) if reply.code == 0 else 0


def views(target: Target, chance: random.Random) -> None:
    position = _stored(target, 3 * MIB)
    clients = [RemotingClient(target.port) for _ in range(4 * target.scale)]
    for client in clients:
        try:
            for _ in range(8):
                client.send(Code.VIEW_MESSAGE_BY_ID, {"offset": position})
        except OSError:
            continue
    for client in clients:
        client.close()
    del chance


def unread_replies(target: Target, chance: random.Random) -> None:
    position = _stored(target, MIB)
    clients = [RemotingClient(target.port) for _ in range(8 * target.scale)]
    code = chance.choice(
        (Code.VIEW_MESSAGE_BY_ID, Code.GET_ALL_TOPIC_CONFIG, Code.GET_BROKER_CONFIG)
    )
    for client in clients:
        try:
            for _ in range(20):
                client.send(code, {"offset": position})
        except OSError:
            continue
    # They go on holding the connection while the others begin.
    for client in clients:
        client.close()


def producer_groups(target: Target, chance: random.Random) -> None:
    count = chance.choice((100, 1_000, 8_000))
    groups = [{"groupName": f"p{number}"} for number in range(count)]
    body = json.dumps({"clientID": "x", "consumerDataSet": [], "producerDataSet": groups}).encode()
    clients = [RemotingClient(target.port) for _ in range(2)]
    for client in clients:
        _many(client, Code.HEART_BEAT, [body])


def groups(target: Target, chance: random.Random) -> None:
    names = [f"group-{chance.getrandbits(40):x}" for _ in range(50 * target.scale)]
    bodies = [heartbeat_body("x", "orders", group=name) for name in names]
    _many(RemotingClient(target.port), Code.HEART_BEAT, bodies)


def held_pulls(target: Target, chance: random.Random) -> None:
    client = RemotingClient(target.port)
    try:
        for _ in range(500 * target.scale):
            fields = pull_fields(
                "orders",
                chance.randrange(4),
                2**40,
                suspend_ms=600_000,
                subscription="*",
                group="x",
            )
            client.send(Code.LITE_PULL_MESSAGE, fields)
    except OSError:
        pass
    client.close()


def held_pops(target: Target, chance: random.Random) -> None:
    client = RemotingClient(target.port)
    empty = base64.b64encode(bytes(MIB // 2)).decode()
    acks = [{"c": "x", "t": "orders", "r": "0", "so": 0, "q": 0, "rq": 7, "b": empty}]
    try:
        for number in range(500 * target.scale):
            fields = {
                **TEMPLATES[Code.POP_MESSAGE].fields,
                "consumerGroup": f"pops-{chance.randrange(100)}",
                "queueId": chance.randrange(-1, 4),
                "pollTime": 600_000,
                "exp": chance.choice(("*", "no || such || tag")),
            }
            client.send(chance.choice((Code.POP_MESSAGE, Code.NOTIFICATION)), fields)
            if number % 100 == 0:
                client.send(Code.BATCH_ACK_MESSAGE, body=json.dumps({"acks": acks}).encode())
    except OSError:
        pass
    client.close()


def members(target: Target, chance: random.Random) -> None:
    connection = zmtp3.connect(target.consume)
    hello = zmtp3.message(encode_hello(1, client="x", library="raw"))
    zmtp3.send_until_closed(connection, zmtp3.greeting() + zmtp3.ready() + hello)
    name, size = f"crowd-{chance.getrandbits(30):x}", chance.choice((1, 20, 100))
    for number in range(500 * target.scale):
        fields = {
            "group": name,
            "client": f"c{number}" + "x" * size,
            "instance": "i",
            "host": "h",
            "model": "clustering",
            "start": "first",
            "ordered": False,
            "strategy": "s",
            "subscription": {f"t{one}": "*" for one in range(size)}
            | ({"no topic!": "*"} if number % 9 == 8 else {}),
        }
        call = encode_call(10 + number, "group_heartbeat", **fields)
        zmtp3.send_until_closed(connection, zmtp3.message(call))
    connection.close()


def _long_reference(chance: random.Random) -> Callable[[int], str]:
    """JSON Schemas in which hundreds of references lead to one of thousands of parts."""
    part = chance.choice(("a", "~1", "%25", "x" * 900))
    place = "#/" + "/".join([part] * (50_000 // (len(part) + 1)))
    references = [{"$ref": "#/d", "t": number} for number in range(chance.choice((9, 300)))]
    kind = chance.choice(("anyOf", "oneOf", "allOf"))
    return lambda number: json.dumps({kind: references, "d": {"$ref": place}, "title": str(number)})


def _left_out(chance: random.Random) -> Callable[[int], str]:
    """Avro defaults of thousands of records that leave all of their fields out."""
    count = chance.choice((9, 400))
    fields = [{"name": f"f{n}", "type": "int", "default": 0} for n in range(count)]
    record = {"type": "record", "name": "r", "fields": fields}
    many = {"name": "a", "type": {"type": "array", "items": record}, "default": [{}] * 9_000}
    return lambda number: json.dumps(
        {"type": "record", "name": "o", "doc": str(number), "fields": [many]}
    )


def schemas(target: Target, chance: random.Random) -> None:
    """By an operator, who may do so: it is refused, or compared, between two pulls of others."""
    kind, make = chance.choice((("JSON", _long_reference), ("AVRO", _left_out)))
    text, subject = make(chance), f"s-{chance.getrandbits(30):x}"
    with broker_of(f"ipc://{Path(target.stream).parent}") as broker:
        admin = SchemaAdmin(broker)
        for number in range(5 * target.scale):
            with suppress(ConfigError, ProtocolError):
                admin.register(subject, kind, text(number), compatibility="NONE")
        for rule in ("FULL_TRANSITIVE", "FULL"):
            with suppress(ConfigError, ProtocolError):
                admin.check_schema(subject, kind, text(-1), compatibility=rule)
        with suppress(ConfigError, ProtocolError):
            admin.delete_schema(subject)


def log_lines(target: Target, chance: random.Random) -> None:
    line = "x\n1999-01-01T00:00:00.000Z INFO broker: admin act who=root act=FORGED\x1b[31m"
    client = RemotingClient(target.port)
    _many(client, Code.HEART_BEAT, [heartbeat_body(line, "orders", group="g\nFORGED")])
    connection = zmtp3.connect(target.consume)
    call = encode_call(2, "group_heartbeat", group="g", client=line, instance=line, host=line)
    hello = encode_hello(1, client=line, library=line)
    zmtp3.send_until_closed(
        connection,
        zmtp3.greeting() + zmtp3.ready() + zmtp3.message(hello) + zmtp3.message(call),
    )
    connection.close()
    del chance


def half_open(target: Target, chance: random.Random) -> None:
    whole = (
        zmtp3.greeting() + zmtp3.ready() + zmtp3.message(encode_hello(1, client="x", library="r"))
    )
    held: list[socket.socket] = []
    for _ in range(40 * target.scale):
        where = chance.choice((target.consume, target.produce, target.remoting))
        connection = zmtp3.connect(where)
        begun = bytes([0, 0, 1, 0, 0]) if where == target.remoting else whole
        zmtp3.send_until_closed(connection, begun[: chance.randrange(len(begun))])
        held.append(connection)
    for connection in held:
        connection.close()


def slow_writer(target: Target, chance: random.Random) -> None:
    whole = (
        zmtp3.greeting() + zmtp3.ready() + zmtp3.message(encode_hello(1, client="x", library="r"))
    )
    connections = [
        zmtp3.connect(chance.choice((target.consume, target.produce)))
        for _ in range(4 * target.scale)
    ]
    for at in range(len(whole)):
        for connection in connections:
            zmtp3.send_until_closed(connection, whole[at : at + 1])
    for connection in connections:
        connection.close()


def mechanisms(target: Target, chance: random.Random) -> None:
    commands = (
        zmtp3.ready(),
        zmtp3.command(b"HELLO", b"\x05admin\x05admin"),
        zmtp3.command(b"HELLO", b"\x01\x00" + bytes(192)),
        zmtp3.command(b"INITIATE", bytes(300)),
        zmtp3.command(b"ERROR", b"\xffno"),
        zmtp3.command(b"READY", b"\xff" * 300),
        zmtp3.command(b"PING", b"\0\0" + bytes(64)),
        zmtp3.command(b"SUBSCRIBE", b"x"),
        zmtp3.ready(**{f"Name{n}": bytes(1_000) for n in range(60)}),
    )
    for mechanism in zmtp3.MECHANISMS:
        for version in zmtp3.VERSIONS:
            connection = zmtp3.connect(chance.choice((target.consume, target.produce)))
            said = b"".join(chance.sample(commands, 3))
            hello = zmtp3.message(encode_hello(1, client="x", library="raw"))
            zmtp3.send_until_closed(connection, zmtp3.greeting(version, mechanism) + said + hello)
            connection.close()


def wrong_frames(target: Target, chance: random.Random) -> None:
    for _ in range(20 * target.scale):
        where = chance.choice((target.consume, target.produce))
        connection = zmtp3.connect(where)
        hello = bytearray(b"".join(encode_hello(1, client="x", library="raw")))
        for _ in range(chance.randrange(1, 6)):
            hello[chance.randrange(len(hello))] = chance.randrange(256)
        shapes = (
            zmtp3.message([chance.randbytes(chance.randrange(200)) for _ in range(3)]),
            zmtp3.message([bytes(hello[:16]), bytes(hello[16:])]),
            bytes([chance.randrange(256)]) + chance.randbytes(40),
            bytes([LONG]) + (2**63 - 1).to_bytes(8, "big"),
            bytes([LONG | MORE]) + b"\xff" * 8,
        )
        said = b"".join(chance.sample(shapes, 3))
        zmtp3.send_until_closed(connection, zmtp3.greeting() + zmtp3.ready() + said)
        connection.close()


def _stream_to(target: Target) -> socket.socket:
    stream = socket.socket(socket.AF_UNIX)
    stream.settimeout(1.0)
    stream.connect(target.stream)
    return stream


def wrong_streams(target: Target, chance: random.Random) -> None:
    for _ in range(20 * target.scale):
        hello = list(encode_hello(1, client="x", library="raw"))
        body = bytearray(hello[1])
        body[chance.randrange(len(body))] = chance.randrange(256)
        shapes = (
            b"".join((message_head(hello)[0], *hello)),
            message_head(hello)[0] + hello[0] + bytes(body),
            message_head([b""])[0] * chance.randrange(1, 5_000),
            chance.randbytes(chance.randrange(1, 200)),
            b"\xff" * 8,
            message_head([bytes(16), bytes(1 << 20)])[0] + bytes(100),
        )
        with _stream_to(target) as stream, suppress(OSError):
            stream.sendall(b"".join(chance.sample(shapes, 3)))


def begun_messages(target: Target, chance: random.Random) -> None:
    """Messages without an end, over many connections, in large pieces and in small ones."""
    streams = [_stream_to(target) for _ in range(16 * target.scale)]
    size = chance.choice((1, 60_000, 1 << 20))
    for stream in streams:
        with suppress(OSError):
            stream.sendall(message_head([bytes(16), bytes(8 << 20)])[0])
    for _ in range(200 if size == 1 else 6):
        for stream in streams:
            with suppress(OSError):
                stream.sendall(bytes(size))
    for stream in streams:
        stream.close()


def many_messages(target: Target, chance: random.Random) -> None:
    """Messages of a few bytes over many connections, without end, and no answer is read."""
    streams = [_stream_to(target) for _ in range(48 * target.scale)]
    one = message_head([b"xx"])[0] + b"xx"
    flood = one * (65_536 // len(one))
    for stream in streams:
        stream.setblocking(False)
    for _ in range(chance.randrange(1, 20)):
        for stream in streams:
            # It takes no more now, or has ended the connection.
            with suppress(OSError):
                stream.send(flood)
    for stream in streams:
        stream.close()


ATTACKS: Mapping[str, Callable[[Target, random.Random], None]] = {
    one.__name__: one
    for one in (
        digits,
        poison,
        old_protocols,
        names_of_the_node,
        names_of_the_next,
        short_sessions,
        instances,
        endless_parts,
        odd_json,
        filters,
        views,
        unread_replies,
        producer_groups,
        groups,
        held_pulls,
        held_pops,
        members,
        schemas,
        log_lines,
        half_open,
        slow_writer,
        mechanisms,
        wrong_frames,
        wrong_streams,
        begun_messages,
        many_messages,
        http_attacks.inflated_looks,
        http_attacks.silent_http,
        http_attacks.unread_http,
        *SHARE_ATTACKS,
    )
}


def attack_for(target: Target, seed: str, seconds: float, made: Queue[str]) -> None:
    """One attack after the other, as drawn; tells of each. For a process of its own."""
    chance = random.Random(seed)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        name = chance.choice(sorted(ATTACKS))
        ATTACKS[name](target, chance)
        made.put(name)
