"""Schemas over HTTP, by Confluent's own client and its serializers, and by what attackers send."""

from __future__ import annotations

import base64
import contextlib
import json
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.timestamp_pb2 import Timestamp

from ledgermq.client.admin.broker_admins import SchemaAdmin
from ledgermq.client.broker_connection import connect_broker
from ledgermq.client.schemas.typed_bodies import TypedBodies
from tests.process.client_node import start_client_node
from tests.process.conftest import Node, wait_until
from tests.process.http_client import HttpAnswer, connect, parse, read_all
from tests.suite.patience import PATIENCE_S

pytestmark = pytest.mark.slow

ADMIN, LOOKS = (
    "admin-token-of-forty-characters-or-so-123",
    "look-token-of-forty-characters-or-so-1234",
)
JSON = "application/json"


def record(kind: str) -> str:
    return json.dumps({"type": "record", "name": "r", "fields": [{"name": "a", "type": kind}]})


class Served:
    """A node whose registry is asked over tcp."""

    def __init__(self, node: Node) -> None:
        tokens = node.folder / "tokens"
        tokens.write_text(f"ops {ADMIN} admin\nboard {LOOKS} look\n")
        tokens.chmod(0o600)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.where: tuple[str, int] = free.getsockname()
        host, port = self.where
        start_client_node(
            node, listen={"http": f"{host}:{port}"}, http={"tokens_file": str(tokens)}
        )
        wait_until(self._listens, "the observer")
        self.address = f"ipc://{node.runtime}"
        self.url = f"http://{host}:{port}/registry"

    def _listens(self) -> bool:
        with contextlib.suppress(ConnectionRefusedError), connect(self.where):
            return True
        return False

    def client(self, token: str = ADMIN) -> SchemaRegistryClient:
        return SchemaRegistryClient({"url": self.url, "basic.auth.user.info": f"any:{token}"})

    def send(
        self, method: str, path: str, body: bytes = b"", *, kind: str = JSON, token: str = ADMIN
    ) -> HttpAnswer:
        lines = [
            f"{method} /registry{path} HTTP/1.1", "Host: 127.0.0.1", "Connection: close",
            f"Authorization: Bearer {token}", f"Content-Type: {kind}",
            f"Content-Length: {len(body)}",
        ]  # fmt: skip
        with connect(self.where) as connection:
            connection.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
            return parse(read_all(connection))


@pytest.fixture
def served(make_node: Callable[[], Node]) -> Served:
    return Served(make_node())


def test_confluents_client_registers_reads_checks_and_deletes(served: Served) -> None:
    client = served.client()
    first = client.register_schema("orders-value", Schema(record("int"), "AVRO"))
    assert client.register_schema("orders-value", Schema(record("int"), "AVRO")) == first
    assert client.test_compatibility("orders-value", Schema(record("long"), "AVRO"))
    assert not client.test_compatibility("orders-value", Schema(record("string"), "AVRO"))
    with pytest.raises(SchemaRegistryError) as refused:
        client.register_schema("orders-value", Schema(record("string"), "AVRO"))
    assert (refused.value.http_status_code, refused.value.error_code) == (409, 409)
    second = client.register_schema("orders-value", Schema(record("long"), "AVRO"))
    client.set_compatibility("orders-value", level="NONE")

    with connect_broker([served.address], name="test", timeout_s=30) as broker:
        row, latest = SchemaAdmin(broker).schema("orders-value")
    assert (row.compatibility, row.versions) == ("NONE", (1, 2))
    assert (first, second, latest.schema) == (1, 2, record("long"))
    assert client.get_subjects() == ["orders-value"]
    assert client.get_versions("orders-value") == [1, 2]
    assert client.get_latest_version("orders-value").schema_id == second
    assert client.delete_version("orders-value", 2) == 2
    assert client.delete_subject("orders-value") == [1]
    with pytest.raises(SchemaRegistryError) as gone:
        served.client().get_schema(first)
    assert (gone.value.http_status_code, gone.value.error_code) == (404, 40403)


def test_confluents_serializers_write_what_their_deserializers_read(served: Served) -> None:
    orders = SerializationContext("orders", MessageField.VALUE)
    schema = json.dumps(
        {"title": "Order", "type": "object", "properties": {"a": {"type": "integer"}}}
    )

    avro = AvroSerializer(served.client(), record("int"))({"a": 7}, orders)
    other = SerializationContext("other", MessageField.VALUE)
    as_json = JSONSerializer(schema, served.client())({"a": 7}, other)
    stamps = SerializationContext("stamps", MessageField.VALUE)
    how: Any = {"use.deprecated.format": False}
    proto = ProtobufSerializer(Timestamp, served.client(), how)(Timestamp(seconds=7), stamps)

    with connect_broker([served.address], name="test", timeout_s=PATIENCE_S) as broker:
        bodies = TypedBodies(broker)
        assert [bodies.read(body, {}) for body in (avro, as_json)] == [{"a": 7}, {"a": 7}]
        assert getattr(bodies.read(proto, {}), "seconds", None) == 7
    assert AvroDeserializer(served.client())(avro, orders) == {"a": 7}
    assert JSONDeserializer(schema, schema_registry_client=served.client())(as_json, other) == {
        "a": 7
    }
    assert ProtobufDeserializer(Timestamp, how)(proto, stamps) == Timestamp(seconds=7)
    assert served.client().get_subjects() == ["orders-value", "other-value", "stamps-value"]


def test_who_only_looks_registers_nothing_and_a_stranger_learns_nothing(served: Served) -> None:
    with pytest.raises(SchemaRegistryError) as looks:
        served.client(LOOKS).register_schema("orders-value", Schema(record("int"), "AVRO"))
    with pytest.raises(SchemaRegistryError) as stranger:
        served.client("nobody").get_subjects()

    assert looks.value.http_status_code == 403
    assert stranger.value.http_status_code == 401
    assert served.client().get_subjects() == []


REFUSED = [
    ("GET", "/schemas/ids/0", b"", 422),
    ("GET", "/schemas/ids/99999999999", b"", 422),
    ("GET", "/schemas/ids/7", b"", 404),
    ("GET", "/subjects/none/versions", b"", 404),
    ("GET", "/subjects/a%20b/versions/1", b"", 404),
    ("GET", "/subjects/%ff/versions/1", b"", 404),
    ("GET", "/contexts", b"", 404),
    ("PATCH", "/subjects", b"", 405),
    ("POST", "/subjects/s/versions", b"[" * 10_000, 400),
    ("POST", "/subjects/s/versions", b"7", 400),
    ("POST", "/subjects/s/versions", b'{"schema": 7}', 422),
    ("POST", "/subjects/s/versions", b'{"schema": "\\ud800", "schemaType": "JSON"}', 422),
    ("POST", "/subjects/s/versions", b'{"schema": "\\"int\\"", "references": [{}]}', 422),
    ("POST", "/subjects/s/versions", b'{"schema": "{", "schemaType": "JSON"}', 422),
    ("POST", "/subjects/s/versions", b'{"schema": "<a/>", "schemaType": "XML"}', 422),
    ("POST", "/subjects/s/versions", b'{"schema": "' + b"7" * 65_536 + b'"}', 413),
    ("POST", "/subjects/a%20b/versions", b'{"schema": "\\"int\\""}', 422),
    ("PUT", "/config/s", b'{"compatibility": "SOME"}', 422),
    ("PUT", "/config/s", b'{"compatibility": ["NONE"]}', 422),
]


def test_what_cannot_be_is_refused_by_a_number(served: Served) -> None:
    answers = [served.send(method, path, body) for method, path, body, _ in REFUSED]

    assert [one.status for one in answers] == [status for *_, status in REFUSED]
    assert all("error_code" in json.loads(one.text) for one in answers if one.status != 413)
    assert served.client().get_subjects() == []


def test_two_registrations_at_once_get_one_id(served: Served) -> None:
    body = json.dumps({"schema": record("int")}).encode()
    with ThreadPoolExecutor(8) as threads:
        answers = [
            threads.submit(served.send, "POST", f"/subjects/{subject}/versions", body)
            for subject in ("orders", "orders", "other", "other", "orders", "other")
        ]
        told = [json.loads(one.result().text) for one in answers]

    assert {(one["id"], one["version"]) for one in told} == {(1, 1)}


def test_a_form_of_a_page_from_elsewhere_changes_nothing(served: Served) -> None:
    body = json.dumps({"schema": '"int"'}).encode()
    answer = served.send("POST", "/subjects/s/versions", body, kind="text/plain")

    assert answer.status == 415
    assert served.client().get_subjects() == []


def test_a_descriptor_is_a_schema_of_protobuf(served: Served) -> None:
    text = base64.b64encode(Timestamp.DESCRIPTOR.file.serialized_pb).decode()
    body = json.dumps({"schema": text, "schemaType": "PROTOBUF"}).encode()

    assert served.send("POST", "/subjects/s/versions", body).status == 200
    assert served.client().get_latest_version("s").schema.schema_type == "PROTOBUF"
