"""gRPC clients of a node, as tests drive them: RocketMQ's own in Python, and raw calls."""

from __future__ import annotations

import json
import os
import queue
import select
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from ledgermq.gateway.rpc.definition import RPCS, SERVICE, make, message_class
from tests.compat.other_clients import Command, NotToBeHadError, python_grpc_client
from tests.process.client_node import own_topic, start_client_node
from tests.process.conftest import Node, wait_until
from tests.process.group_nodes import free_port
from tests.suite.patience import PATIENCE_S


def start_grpc_node(node: Node, /, **tables: dict[str, Any]) -> str:
    """Serve topics ``orders`` and ``other`` with four queues each; address of the port."""
    address = f"127.0.0.1:{free_port()}"
    listen = {**tables.pop("listen", {}), "grpc": address}
    start_client_node(node, listen=listen, **tables)
    return address


LONG_S = 600
"""What is taken for so long comes again in no test."""


class StepClient:
    """One of RocketMQ's clients, in a process of its own (``clients/python_grpc_client.py``)."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def do(self, step: str, **arguments: Any) -> dict[str, Any]:
        """The outcome of a step; ``error`` in it is the client's exception."""
        assert self.process.stdin is not None and self.process.stdout is not None
        print(json.dumps({"step": step, **arguments}), file=self.process.stdin, flush=True)
        # It says one line a step, so that none is left in a buffer here.
        is_told, _, _ = select.select([self.process.stdout], [], [], 2 * PATIENCE_S)
        assert is_told, f"the client says nothing to {step}"
        line = self.process.stdout.readline()
        assert line, f"the client has ended with {self.process.wait()}"
        outcome: dict[str, Any] = json.loads(line)
        return outcome

    def done(self, step: str, **arguments: Any) -> dict[str, Any]:
        """The outcome of a step that goes well."""
        outcome = self.do(step, **arguments)
        assert "error" not in outcome, outcome
        return outcome

    def receive(self, count: int, *, invisible_s: int = LONG_S) -> list[dict[str, Any]]:
        """So many messages at least, in as many calls as it takes."""
        found: list[dict[str, Any]] = []

        def is_enough() -> bool:
            found.extend(self.done("receive", count=16, invisible_s=invisible_s)["messages"])
            return len(found) >= count

        wait_until(is_enough, f"{count} messages")
        return found


@contextmanager
def step_client(
    made: Callable[[], Command],
    folder: Path,
    endpoints: str,
    *words: str,
    environment: Mapping[str, str] | None = None,
) -> Iterator[StepClient]:
    """A client whose logs are in ``folder``; it ends with the block."""
    try:
        program, needed = made()
    except NotToBeHadError as error:
        pytest.skip(str(error))
    with (folder / "client.err").open("a") as errors:
        process = subprocess.Popen(
            [*program, endpoints, *words],
            env={**os.environ, **needed, "HOME": str(folder), **(environment or {})},
            cwd=folder,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True,
        )  # fmt: skip
    try:
        yield StepClient(process)
    finally:
        process.kill()
        process.communicate()


def python_client(folder: Path, endpoints: str, *words: str) -> AbstractContextManager[StepClient]:
    """RocketMQ's Python client."""
    return step_client(python_grpc_client, folder, endpoints, *words)


class RawClient:
    """Calls of the protocol without any client's help."""

    def __init__(
        self,
        address: str,
        *,
        name: str = "raw",
        credentials: grpc.ChannelCredentials | None = None,
        metadata: Sequence[tuple[str, str]] = (),
        server_name: str = "",
        own: bool = False,
        probes: bool = True,
    ) -> None:
        options: list[tuple[str, Any]] = []
        if server_name:
            options.append(("grpc.ssl_target_name_override", server_name))
        if own:
            # A connection of its own.
            options.append(("grpc.use_local_subchannel_pool", 1))
        if not probes:
            # It takes no more than 64 KiB of what it does not read.
            options.append(("grpc.http2.bdp_probe", 0))
        self.channel = (
            grpc.insecure_channel(address, options)
            if credentials is None
            else grpc.secure_channel(address, credentials, options)
        )
        named = (("x-mq-client-id", name),) if name else ()
        self.metadata = (*named, *metadata)

    def call(self, name: str, request: Any) -> Any:
        """The answer to a call."""
        method = self.channel.unary_unary(
            f"/{SERVICE}/{name}",
            request_serializer=lambda one: one.SerializeToString(),
            response_deserializer=message_class(RPCS[name].answer).FromString,
        )
        return method(request, metadata=self.metadata, timeout=PATIENCE_S)

    def send(self, topic: str, body: bytes = b"x", **system: Any) -> Any:
        """The answer to a message."""
        named = {"message_id": "0100000000000000000000000000000001", **system}
        properties = named.pop("properties", {})
        message = make(
            "Message",
            topic={"name": topic},
            body=body,
            system_properties=named,
            user_properties=properties,
        )
        return self.call("SendMessage", make("SendMessageRequest", messages=[message]))

    def silent(self, name: str) -> Any:
        """A call that is begun, and whose message never comes; its answers."""
        method = self.channel.stream_stream(
            f"/{SERVICE}/{name}",
            request_serializer=lambda one: one.SerializeToString(),
            response_deserializer=message_class(RPCS[name].answer).FromString,
        )
        never: queue.SimpleQueue[Any] = queue.SimpleQueue()
        return method(iter(never.get, None), metadata=self.metadata, timeout=PATIENCE_S)

    def receiving(self, request: Any, *, timeout_s: float = PATIENCE_S) -> Any:
        """A call for messages, under way."""
        method = self.channel.unary_stream(
            f"/{SERVICE}/ReceiveMessage",
            request_serializer=lambda one: one.SerializeToString(),
            response_deserializer=message_class("ReceiveMessageResponse").FromString,
        )
        return method(request, metadata=self.metadata, timeout=timeout_s)

    def receive(self, request: Any, *, timeout_s: float = PATIENCE_S) -> list[Any]:
        """All answers to a call for messages."""
        return list(self.receiving(request, timeout_s=timeout_s))

    def close(self) -> None:
        """Disconnect."""
        self.channel.close()


class TelemetryStream:
    """A stream of a raw client."""

    def __init__(self, client: RawClient) -> None:
        self._said: queue.SimpleQueue[Any] = queue.SimpleQueue()
        method = client.channel.stream_stream(
            f"/{SERVICE}/Telemetry",
            request_serializer=lambda one: one.SerializeToString(),
            response_deserializer=message_class("TelemetryCommand").FromString,
        )
        self._told = method(
            iter(self._said.get, None), metadata=client.metadata, timeout=PATIENCE_S
        )

    def tell(self, settings: Any) -> Any:
        """The answer to settings."""
        self.say(settings)
        return self.next()

    def say(self, settings: Any) -> None:
        """Tell settings, and wait for nothing."""
        self._said.put(make("TelemetryCommand", settings=settings))

    def next(self) -> Any:
        """The next command."""
        return next(self._told)

    def end(self) -> list[Any]:
        """Say no more; what comes until the stream ends."""
        self._said.put(None)
        return list(self._told)


@contextmanager
def telemetry(
    address: str, name: str, metadata: Sequence[tuple[str, str]] = ()
) -> Iterator[TelemetryStream]:
    """The stream of a client of that name; it ends with the block."""
    client = RawClient(address, name=name, metadata=metadata)
    stream = TelemetryStream(client)
    try:
        yield stream
        assert stream.end() == []
    finally:
        client.close()


# Fixtures of modules that have ``served``: a node, and the address of its port.
# A module takes them by their names: ``node, raw = grpc_clients.node, grpc_clients.raw``.


@pytest.fixture
def node(served: tuple[Node, str]) -> Node:
    return served[0]


@pytest.fixture
def address(served: tuple[Node, str]) -> str:
    return served[1]


@pytest.fixture
def topic(node: Node, request: pytest.FixtureRequest) -> str:
    return own_topic(node, request)


@pytest.fixture
def raw(node: Node, address: str) -> Iterator[RawClient]:
    client = RawClient(address)
    yield client
    client.close()


@pytest.fixture
def client(node: Node, address: str, tmp_path: Path) -> Iterator[StepClient]:
    with python_client(tmp_path, address) as made:
        yield made
