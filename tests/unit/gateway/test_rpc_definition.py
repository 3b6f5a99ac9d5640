"""The table of the gRPC protocol, beside what RocketMQ's Python client brings."""

from __future__ import annotations

import json
import os
import subprocess

import pytest

pytest.importorskip("grpc", reason="no grpcio: packaging/bootstrap.sh")

from ledgermq.gateway.rpc.definition import ENUMS, MESSAGES, RPCS, make, message_class
from tests.compat.other_clients import NotToBeHadError, python_grpc_client

DUMP = """
import json
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from rocketmq.grpc_protocol import definition_pb2, service_pb2

told = {"enums": {}, "messages": {}, "rpcs": {}}
for module in (definition_pb2, service_pb2):
    file = FileDescriptorProto()
    module.DESCRIPTOR.CopyToProto(file)
    for enum in file.enum_type:
        told["enums"][enum.name] = {one.name: one.number for one in enum.value}
    for message in file.message_type:
        choices = [one.name for one in message.oneof_decl]
        told["messages"][message.name] = {
            one.name: [
                one.number, one.type, one.label, one.type_name, one.proto3_optional,
                choices[one.oneof_index] if one.HasField("oneof_index") else "",
            ]
            for one in message.field
        }
    for service in file.service:
        for one in service.method:
            told["rpcs"][one.name] = [
                one.input_type.rpartition(".")[2], one.output_type.rpartition(".")[2],
                one.client_streaming, one.server_streaming,
            ]
print(json.dumps(told))
"""


def own_fields(name: str) -> dict[str, list[object]]:
    from google.protobuf.descriptor_pb2 import DescriptorProto

    message = DescriptorProto()
    message_class(name).DESCRIPTOR.CopyToProto(message)
    choices = [one.name for one in message.oneof_decl]
    return {
        one.name: [
            one.number, one.type, one.label, one.type_name, one.proto3_optional,
            choices[one.oneof_index] if one.HasField("oneof_index") else "",
        ]
        for one in message.field
    }  # fmt: skip


@pytest.mark.slow
def test_what_is_spoken_here_is_what_rocketmqs_client_speaks() -> None:
    try:
        (python, *_), needed = python_grpc_client()
    except NotToBeHadError as error:
        pytest.skip(str(error))
    done = subprocess.run(
        [python, "-c", DUMP], env={**os.environ, **needed, "HOME": "/nonexistent"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    theirs = json.loads(done.stdout)

    for name in MESSAGES:
        for field, what in own_fields(name).items():
            assert theirs["messages"][name][field] == what, (name, field)
    for name, kind in ENUMS.items():
        numbers = {one.name: int(one) for one in kind}
        assert numbers.items() <= theirs["enums"][name].items(), name
    for name, rpc in RPCS.items():
        assert theirs["rpcs"][name] == list(rpc), name


def test_a_message_comes_back_as_it_was() -> None:
    message = make("Message", topic={"name": "orders"}, user_properties={"a": "b"}, body=b"x")
    message.system_properties.tag = "t"

    again = message_class("Message").FromString(message.SerializeToString())
    assert again == message
    assert again.system_properties.HasField("tag")
    assert not again.system_properties.HasField("message_group")
