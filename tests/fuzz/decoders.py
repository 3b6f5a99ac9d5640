"""Every decoder that is given bytes from a network or a disk, and what well-formed bytes are."""

from __future__ import annotations

import json
import tempfile
import zlib
from array import array
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

from ledgermq.broker.cluster.document_messages import (
    ask_fields,
    read_asked,
    read_reply,
    reply_fields,
)
from ledgermq.client.sending.record_encoder import Form, RecordEncoder, Target
from ledgermq.formats.config_json import decode_document as decode_config
from ledgermq.formats.epoch_file import decode_epochs
from ledgermq.formats.kernels.crc32 import crc32
from ledgermq.formats.kernels.kernel import read_plain
from ledgermq.formats.records.message import Message, decode_message, encode_message
from ledgermq.formats.records.message_id import UniqueIdMaker, decode_offset_id
from ledgermq.formats.records.properties import decode_properties, encode_properties
from ledgermq.members.roster import ToldGroup, decode_group, encode_group
from ledgermq.model.config.broker_conf import read_properties
from ledgermq.model.config.settings import AckMode, LogKind
from ledgermq.model.config.settings_file import read_settings
from ledgermq.model.ids import Index, NodeId, Position, Term
from ledgermq.model.names.schemas import Compatibility, SchemaType
from ledgermq.raft.message_codec import decode_message as decode_raft
from ledgermq.raft.message_codec import encode_message as encode_raft
from ledgermq.raft.messages import Attest, EntryId, HardState, ReadRequest
from ledgermq.raft.roles.witness import WitnessState
from ledgermq.raft.term_slots import decode_slots
from ledgermq.raft_node.witness.witness_process import decode_slots as decode_witness
from ledgermq.raft_node.witness.witness_process import encode_slot
from ledgermq.remoting import pop_messages, pull_request, send_request
from ledgermq.remoting.codes import RequestCode as Code
from ledgermq.remoting.command import Command, decode_command, encode_command
from ledgermq.remoting.fastjson import decode_body as decode_fastjson
from ledgermq.remoting.ha_frames import HEADER as PUSHED_HEADER
from ledgermq.remoting.ha_frames import REPORT, FrameReader, ReportReader
from ledgermq.remoting.heartbeat import decode_heartbeat
from ledgermq.remoting.registration import decode_registration
from ledgermq.rules.access.access import UserTable
from ledgermq.rules.access.sealed_secret import open_sealed, seal
from ledgermq.rules.cluster import certificates, cluster_document
from ledgermq.rules.cluster.certificates import Certificate, Chain, certify
from ledgermq.rules.cluster.cluster_commands import (
    ClusterCommand,
    ClusterJoined,
    DocumentTaken,
    HomeCertified,
    RowChanged,
)
from ledgermq.rules.cluster.cluster_document import open_document
from ledgermq.rules.cluster.cluster_table import ClusterTable
from ledgermq.rules.cluster.document_desk import DocumentDesk, DocumentReply, DocumentRequest
from ledgermq.rules.cluster.numbered_rows import NOWHERE, RowKey
from ledgermq.rules.cluster.signatures import SIGNATURE_SIZE, SigningKey
from ledgermq.rules.given_back import MessageGivenBack
from ledgermq.rules.schemas.schema_plans import conflicts
from ledgermq.rules.schemas.schema_table import SchemaVersion
from ledgermq.rules.sql.sql_filter import parse_sql
from ledgermq.rules.state import state_commands
from ledgermq.rules.state.state_commands import Snapshot, StateCommand
from ledgermq.rules.tables.table_changes import TopicSet
from ledgermq.store.files import checked_document, properties_file, store_checkpoint
from ledgermq.store.queues import queue_ends
from ledgermq.understudy.elected_frames import TRANSFER, ElectedFrameReader
from ledgermq.understudy.received_log import ReceivedLog
from ledgermq.wire import session
from ledgermq.wire.byte_stream import MessageReader, message_head
from ledgermq.wire.header import decode_header
from ledgermq.wire.mirror_frames import SourceState, join_parts, split_parts
from ledgermq.wire.peer_preamble import (
    AgreedSettings,
    Preamble,
    decode_addresses,
    decode_preamble,
    encode_preamble,
)
from ledgermq.wire.pull_frame import Pull, decode_pull, encode_pull
from ledgermq.wire.query_frame import KeyQuery, decode_query, encode_query
from ledgermq.wire.repair_frames import (
    RepairFrame,
    RepairKind,
    decode_repair_frame,
    encode_repair_frame,
)
from ledgermq.wire.run_frames import RunFrame, RunKind, decode_run_frame, encode_run_frame
from ledgermq.wire.send_frame import (
    SEND_TABLES_AT,
    SendRun,
    decode_send,
    encode_send,
    encode_tables,
)
from ledgermq.wire.session import encode_call, encode_hello
from ledgermq.wire.ship_frames import Ask, Gone, Slice, decode_ship_frame, encode_ship_frame
from ledgermq.wire.staged_pack import decode_pack, encode_pack
from tests.plain_codecs import as_version_2, decode_batch
from tests.process.remoting_requests import TEMPLATES, kinds_of
from tests.whole_snapshots import decode_snapshot, encode_snapshot

CORPUS = Path(__file__).with_name("corpus")
KEY = bytes(range(32))
SIGNER = SigningKey(KEY)


def _stream() -> bytes:
    messages = (encode_hello(1, client="c", library="l"), [b"one part"], [b"", b""])
    return b"".join(b"".join((message_head(parts)[0], *parts)) for parts in messages)


def _read_stream(data: bytes) -> list[list[bytes]]:
    """In pieces, as a socket has them: what is held is never more than what has come."""
    reader = MessageReader(1 << 20)
    for at in range(0, len(data), 7):
        reader.feed(data[at : at + 7])
        assert 0 <= len(reader.begun) <= len(data)
        assert reader.missing > 0
    return list(reader.messages)


class Decoder(NamedTuple):
    """What decodes, and some bytes that it takes."""

    decode: Callable[[bytes], object]
    seeds: tuple[bytes, ...] = ()


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _frame(command: Command) -> bytes:
    return b"".join(map(bytes, encode_command(command)))[4:]


def _frames() -> tuple[bytes, ...]:
    return tuple(frame for code in TEMPLATES for frame in _frames_of(code))


def _frames_of(code: Code) -> tuple[bytes, ...]:
    one = TEMPLATES[code]
    fields = {name: str(value) for name, value in one.fields.items()}
    kinds = kinds_of(code)
    return tuple(_frame(Command(code, 1, fields, one.body, kind=kind)) for kind in kinds)


def _request(data: bytes, code: Code) -> object:
    """A request whose fields are as JSON says."""
    command = decode_command(memoryview(data))
    command.code = code
    decode = pull_request.decode_pull if code == Code.PULL_MESSAGE else send_request.decode_send
    return decode(command)


def _snapshot(data: bytes) -> object:
    return decode_snapshot([state_commands.decode_part("1/1", data)])


def _message() -> bytes:
    properties = encode_properties({"KEYS": "k", "TAGS": "t", "UNIQ_KEY": "u"})
    return encode_message(Message(topic="orders", queue_id=0, body=b"body", properties=properties))


def _version_2() -> bytes:
    return as_version_2(_message(), topic=b"%RETRY%group_" + b"t" * 127)


def _pushed() -> bytes:
    record = _message()
    return PUSHED_HEADER.pack(0, len(record)) + record + PUSHED_HEADER.pack(len(record), 0)


def _take_log(data: bytes) -> int:
    """What is taken of a log is there at the next start, and nothing of what is refused."""
    with tempfile.TemporaryDirectory() as folder:
        log = ReceivedLog(Path(folder), file_size=4_096)
        log.begin_at(0)
        try:
            log.take(memoryview(data))
        finally:
            log.close()
            again = ReceivedLog(Path(folder), file_size=4_096)
            again.close()
            # A start may find a record torn that its own checks take for whole.
            assert again.end <= log.end <= len(data)
        return log.end


def _pack() -> bytes:
    record = _message()
    sizes = array("I", [len(record)]).tobytes()
    return encode_pack(8, sizes, [SendRun(1, 0, b"orders")], record)


def _state() -> bytes:
    changes = (TopicSet("orders", {"perm": 6}), MessageGivenBack("token"))
    return state_commands.encode_command(StateCommand("id", 1, changes, (7,)))


def _certificate() -> bytes:
    wanted = Certificate("c", 1, True, "a", SIGNER.public, 0, b"")
    return certify(SIGNER, wanted).signed


def _cluster_commands() -> list[ClusterCommand]:
    return [
        ClusterJoined("c", SIGNER.public, "a", ["tcp://10.0.0.1:1"]),
        HomeCertified([_certificate()]),
        RowChanged(RowKey("group", "a"), 1, {"nodes": ["tcp://10.0.0.1:1"]}),
        RowChanged(RowKey("user", "u"), 2, {"admin": True}),
    ]


def _cluster() -> ClusterTable:
    table = ClusterTable()
    for command in _cluster_commands():
        table.apply(command)
    return table


_ASKED = DocumentRequest("b", [_certificate()], 0, NOWHERE)


def _cluster_document() -> bytes:
    found = DocumentDesk(_cluster(), SIGNER).answer(_ASKED, is_current=True).document
    assert found is not None
    return found


def _cluster_states() -> tuple[bytes, ...]:
    commands = [*_cluster_commands(), DocumentTaken(_cluster_document())]
    return tuple(
        state_commands.encode_command(StateCommand("id", 1, (command,))) for command in commands
    )


def _take_certificate(data: bytes) -> object:
    return Chain("c", SIGNER.public).with_chain([SIGNER.signed(certificates.PURPOSE, data)])


def _take_rows(data: bytes) -> object:
    """As if the home had signed it: what it signs was given to it by others."""
    signed = SIGNER.signed(cluster_document.PURPOSE, zlib.compress(data))
    return open_document(signed, SIGNER.public)


def _parts() -> bytes:
    (part,) = encode_snapshot(Snapshot("id", 1, {"topics.json": {}}))
    return part.content


def _users(data: bytes) -> object:
    return UserTable.read(decode_config(data, file="access.json"))


def _document(data: bytes) -> object:
    return checked_document.decode_document(data, file="x")


def _send() -> bytes:
    record = _message()
    runs = [SendRun(1, 0, b"orders")]
    tables = encode_tables(array("I", [len(record)]).tobytes(), runs)
    return encode_send(
        1, tables=tables, records=1, runs=1, topics_size=6, payload_size=len(record),
        checksum=0, entry_header_size=0, store_host_size=8,
    )  # fmt: skip


def _plain_frames() -> tuple[bytes, ...]:
    """Frames of one queue, and of two, behind the size of their part 1."""
    ids = UniqueIdMaker("10.0.0.1")
    encoder = RecordEncoder(Form(48, 8, 1 << 20), born_host=("10.0.0.1", 1), ids=ids)
    made = []
    for targets in (["a"], ["a", "a"], ["a", "b", "a"]):
        runs = [SendRun(2, 0, topic.encode()) for topic in targets]
        parts: list[bytes] = []
        sizes = array("I")
        for topic in targets:
            records = encoder.encode_bodies(Target(topic.encode(), 0), [b"1", b"body"], b"")
            parts += map(bytes, records.parts)
            sizes += records.sizes
        tables = encode_tables(sizes.tobytes(), runs)
        payload = b"".join(parts)
        head = encode_send(
            1, tables=tables, records=len(sizes), runs=len(runs), topics_size=len(targets),
            payload_size=len(payload), checksum=0, entry_header_size=48, store_host_size=8,
        )  # fmt: skip
        made.append(len(head).to_bytes(2, "little") + head + payload)
    return tuple(made)


def _read_plain(data: bytes) -> bool:
    """Whether the short way takes a frame: the general one must take it, too, for what it is."""
    middle = 2 + int.from_bytes(data[:2], "little")
    head, payload = bytearray(data[2:middle]), data[middle:]
    if len(head) >= SEND_TABLES_AT:
        # Else nothing would be found behind it.
        head[28:32] = crc32(payload, crc32(head[SEND_TABLES_AT:], 0)).to_bytes(4, "little")
    found = read_plain(bytes(head), payload, 48, 8, 1 << 20, 1 << 18, 64, crc32)
    if found is None:
        return False
    request_id, sizes, runs = found
    frame = decode_send(bytes(head))
    assert (frame.request_id, list(frame.sizes), frame.runs) == (request_id, list(sizes), runs)
    assert sum(sizes) == frame.payload_size == len(payload)
    assert not (frame.is_retry or frame.is_resumed)
    return True


def _preamble() -> bytes:
    agreed = AgreedSettings(LogKind.DLEDGER, AckMode.MAJORITY_FSYNC, 1 << 30, 1 << 22)
    return encode_preamble(
        Preamble(NodeId("n0"), NodeId("n1"), bytes(16), bytes(range(16)), agreed, 1)
    )


def _append() -> bytes:
    return encode_raft(ReadRequest(Term(3), 7))


def _witness_slots() -> bytes:
    state = WitnessState(HardState(Term(3), NodeId("n0")), EntryId(Term(3), Index(7)))
    return b"".join(encode_slot(number, state)[1] for number in (2, 3))


def _source_state() -> bytes:
    place = (65_536, Index(3), Position(9), Index(4), Term(7))
    state = SourceState("c", "g", "n1", True, True, *place)
    return state.encode()


_SHIP_FRAMES = (
    Ask(Term(1), Position(0), 4_096),
    Slice(Term(1), Position(0), bytes(32)),
    Gone(Term(1), Position(7)),
)
_FILES: dict[str, object] = {"version": 1, "files": []}
_USERS = {"users": {"orders": {"secretKey": "12345678", "topicPerms": ["orders=PUB"]}}}

_SCHEMAS = {
    SchemaType.AVRO: (
        b'{"type":"record","name":"r","fields":[{"name":"a","type":["null","r"],"default":null},'
        b'{"name":"b","type":{"type":"enum","name":"e","symbols":["A"],"default":"A"}},'
        b'{"name":"c","type":{"type":"fixed","name":"f","size":2,"aliases":["g"]}}]}',
    ),
    SchemaType.JSON: (
        b'{"type":"object","properties":{"a":{"$ref":"#/$defs/d"}},"required":["a"],"$defs":{"d":'
        b'{"anyOf":[{"type":"integer","minimum":1},{"enum":[1.5,null]},{"items":{"$ref":"#"}}]}}}',
    ),
    SchemaType.PROTOBUF: (b"CgFmEgFwIhoKAW0SDwoBYRgBIAEoCzIELnAubRIECgFiGAI=",),
}


def _compared(kind: SchemaType, data: bytes) -> object:
    """As the leader does: a text that somebody sends, with one that was taken."""
    sample = _SCHEMAS[kind][0].decode()
    before = SchemaVersion(1, 1, kind, sample)
    return conflicts(Compatibility.FULL, kind, _text(data), [before])


DECODERS: Mapping[str, Decoder] = {
    "header": Decoder(decode_header, (encode_hello(1, client="c", library="l")[0],)),
    "byte stream": Decoder(_read_stream, (_stream(),)),
    "hello": Decoder(session.decode_hello, (encode_hello(1, client="c", library="l")[1],)),
    "call": Decoder(session.decode_call, (encode_call(1, "route", topic="orders")[1],)),
    "welcome": Decoder(session.decode_welcome, (b'{"cluster":"c","broker":"b"}',)),
    "role": Decoder(session.decode_role, (b'{"role":"leader","term":1,"leader":"n0"}',)),
    "refused": Decoder(session.decode_refused, (b'{"status":"BUSY","number":1,"reason":"r"}',)),
    "pull": Decoder(decode_pull, (encode_pull(Pull(1, "orders", 0, 0, 32, 1 << 20, 0)),)),
    "query": Decoder(decode_query, (encode_query(1, KeyQuery("orders", "k"))[1],)),
    "send": Decoder(decode_send, (_send(),)),
    "plain frame": Decoder(_read_plain, _plain_frames()),
    "staged pack": Decoder(decode_pack, (_pack(),)),
    "addresses": Decoder(decode_addresses, (_preamble(),)),
    "preamble": Decoder(decode_preamble, (_preamble(),)),
    "ship frame": Decoder(decode_ship_frame, tuple(encode_ship_frame(one) for one in _SHIP_FRAMES)),
    "repair frame": Decoder(
        decode_repair_frame,
        (encode_repair_frame(RepairFrame(RepairKind.ASK_ENTRIES, 1, Index(0), Index(2), Term(1))),),
    ),
    "run frame": Decoder(
        decode_run_frame, (encode_run_frame(RunFrame(RunKind.BEGINS, Term(3), 7)),)
    ),
    "mirror parts": Decoder(split_parts, (join_parts([b"", b"x" * 9, _append()]),)),
    "source state": Decoder(SourceState.decode, (_source_state(),)),
    "raft message": Decoder(decode_raft, (_append(), encode_raft(Attest(Term(3), Index(7), 1)))),
    "term slots": Decoder(decode_slots, (bytes(1_024),)),
    "told group": Decoder(decode_group, (encode_group(ToldGroup(4, {NodeId("n0"): "h:1"})),)),
    "witness slots": Decoder(decode_witness, (bytes(1_024), _witness_slots())),
    "remoting command": Decoder(lambda data: decode_command(memoryview(data)), _frames()),
    "remoting pull": Decoder(lambda data: _request(data, Code.PULL_MESSAGE), _frames()[:12]),
    "remoting send": Decoder(lambda data: _request(data, Code.SEND_MESSAGE), _frames()[:12]),
    "remoting pop": Decoder(
        lambda data: pop_messages.decode_pop(decode_command(memoryview(data)).fields),
        _frames_of(Code.POP_MESSAGE),
    ),
    "remoting popped": Decoder(
        lambda data: pop_messages.decode_popped(decode_command(memoryview(data)).fields),
        _frames_of(Code.ACK_MESSAGE),
    ),
    "remoting acks": Decoder(
        lambda data: pop_messages.decode_acks(data, count_max=64),
        (TEMPLATES[Code.BATCH_ACK_MESSAGE].body,),
    ),
    "remoting batch": Decoder(
        lambda data: decode_batch(memoryview(data)), (TEMPLATES[Code.SEND_BATCH_MESSAGE].body,)
    ),
    "fastjson": Decoder(
        decode_fastjson,
        (
            b'{"offsetTable":{{"brokerName":"b","queueId":1,"topic":"t"}:7}}',
            *(one.body for one in TEMPLATES.values() if one.body[:1] == b"{"),
        ),
    ),
    "heartbeat": Decoder(decode_heartbeat, (TEMPLATES[Code.HEART_BEAT].body,)),
    "registration": Decoder(
        lambda data: decode_registration({}, data), (TEMPLATES[Code.REGISTER_BROKER].body,)
    ),
    "compressed registration": Decoder(
        lambda data: decode_registration({"compressed": "true"}, zlib.compress(data)),
        (b'\0\0\0\x0d{"counter":1}\0\0\0\1\0\0\0\x10orders 4 4 6 TAG\0\0\0\2[]',),
    ),
    "pushed frames": Decoder(lambda data: FrameReader(0).feed(data), (_pushed(),)),
    "reports of slaves": Decoder(
        lambda data: ReportReader().feed(data, sent=2**40), (REPORT.pack(0) + REPORT.pack(7),)
    ),
    "elected frames": Decoder(
        lambda data: ElectedFrameReader(0).feed(data),
        (TRANSFER.pack(2, 3, 0, 1, 0, 0) + b"abc" + TRANSFER.pack(2, 0, -1, 1, 0, 3),),
    ),
    "epochs": Decoder(decode_epochs, (b"2\n0\n1-0\n4-690614\n",)),
    "received log": Decoder(_take_log, (_message(), _message() * 2)),
    "message": Decoder(lambda data: decode_message(memoryview(data)), (_message(), _version_2())),
    "properties": Decoder(decode_properties, (b"KEYS\x01k\x02TAGS\x01t\x02",)),
    "offset id": Decoder(
        lambda data: decode_offset_id(_text(data)), (b"7F00000100002A9F0000000000000030",)
    ),
    "state command": Decoder(state_commands.decode_command, (_state(),)),
    "cluster change": Decoder(state_commands.decode_command, _cluster_states()),
    "cluster certificate": Decoder(_take_certificate, (_certificate()[SIGNATURE_SIZE:],)),
    "cluster document": Decoder(
        lambda data: open_document(data, SIGNER.public), (_cluster_document(),)
    ),
    "cluster rows": Decoder(_take_rows, (zlib.decompress(_cluster_document()[SIGNATURE_SIZE:]),)),
    "cluster table": Decoder(
        lambda data: ClusterTable.read(decode_config(data, file="cluster.json")),
        (json.dumps(_cluster().to_document()).encode(),),
    ),
    "cluster question": Decoder(
        lambda data: read_asked(session.decode_body(data)),
        (json.dumps(ask_fields(_ASKED, hold_ms=20_000, piece=0)).encode(),),
    ),
    "cluster answer": Decoder(
        lambda data: read_reply(session.decode_body(data)),
        (json.dumps(reply_fields(DocumentReply([b"c"], ["n"], b"d", True), 0)).encode(),),
    ),
    **{
        f"schema {kind}": Decoder(partial(_compared, kind), samples)
        for kind, samples in _SCHEMAS.items()
    },
    "snapshot": Decoder(_snapshot, (_parts(),)),
    "users": Decoder(_users, (json.dumps(_USERS).encode(),)),
    "sealed secret": Decoder(
        lambda data: open_sealed([KEY], "orders", _text(data)),
        (seal(KEY, "orders", "12345678").encode(),),
    ),
    "filter": Decoder(
        lambda data: parse_sql(_text(data)),
        (b"a > 5 AND b BETWEEN 1 AND 2", b"a IN ('x','y') OR NOT c IS NULL", b"a = 1.5e3"),
    ),
    "settings": Decoder(
        lambda data: read_settings(_text(data), name="x"), (b'[node]\nself_id = "n0"\n',)
    ),
    "broker.conf": Decoder(
        lambda data: read_properties(_text(data)), (b"brokerName=a\nlistenPort : 1\\\n 2\n",)
    ),
    "config": Decoder(lambda data: decode_config(data, file="x"), (b'{"a":{"b":[1,"x"]}}',)),
    "checkpoint": Decoder(store_checkpoint.decode_checkpoint, (bytes(4_096),)),
    "current term": Decoder(properties_file.decode_current_term, (b"voteLeader=n0\nterm=1\n",)),
    "dledger checkpoint": Decoder(
        properties_file.decode_dledger_checkpoint, (b"committedIndex=5\nendIndex=7\n",)
    ),
    "queue ends": Decoder(
        lambda data: queue_ends.decode_queue_ends(data, file="x"),
        (queue_ends.encode_queue_ends(queue_ends.QueueEnds(7, {(b"orders", 1): 3})),),
    ),
    "checked document": Decoder(
        _document, (checked_document.encode_document({"version": 1, "files": []}),)
    ),
}
