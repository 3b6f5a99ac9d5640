"""What a ROUTER calls its connections, seen from outside of the process that has it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import zmq

from ledgermq.sessions.client_socket import bind_client_socket, is_reserved
from ledgermq.sessions.connection_names import OWN_FIRST_BYTE
from ledgermq.sessions.keys.key_guard import KeyGuard
from tests.process.conftest import wait_until
from tests.process.group_nodes import free_port
from tests.suite.patience import PATIENCE_S

C_RANDOM_FIRST = "006b8b4567"
"""What ZeroMQ begins with in every process whose seed nobody has set."""
FIRST_NAME = """
import sys, zmq
from pathlib import Path
from ledgermq.sessions.client_socket import bind_client_socket
context = zmq.Context()
path = Path(sys.argv[1])
router = bind_client_socket(context, path, None, mode=0o600, message_size_max=1000)
client = context.socket(zmq.DEALER)
client.connect(f"ipc://{path}")
client.send(b"")
print(router.recv_multipart()[0].hex())
context.destroy(linger=0)
"""


@pytest.mark.slow
def test_no_two_processes_count_their_connections_from_the_same_number(tmp_path: Path) -> None:
    names = [
        subprocess.run(
            [sys.executable, "-c", FIRST_NAME, str(tmp_path / f"socket{row}")],
            capture_output=True, text=True, check=True, timeout=PATIENCE_S,
        ).stdout.strip()
        for row in range(2)
    ]  # fmt: skip

    assert len({*names, C_RANDOM_FIRST}) == 3


def zeromq_sleeps() -> bool:
    """Whether ZeroMQ's threads have done all that they were given."""
    for task in Path("/proc/self/task").iterdir():
        if (task / "comm").read_text().startswith("ZMQbg/IO"):
            state = (task / "stat").read_text().rpartition(")")[2].split()[0]
            if state != "S":
                return False
    return True


@pytest.mark.parametrize("chosen", [b"", b"chosen"])
def test_who_comes_with_a_key_is_called_as_the_node_says(tmp_path: Path, chosen: bytes) -> None:
    public, secret = zmq.curve_keypair()
    endpoint = f"tcp://127.0.0.1:{free_port()}"
    with zmq.Context() as context:
        guard = KeyGuard(context, lambda key: b"user")
        router = bind_client_socket(
            context, tmp_path / "socket", endpoint, mode=0o600, message_size_max=1_000,
            secret=secret,
        )  # fmt: skip
        client = context.socket(zmq.DEALER)
        client.setsockopt(zmq.LINGER, 0)
        if chosen:
            client.setsockopt(zmq.ROUTING_ID, chosen)
        client.curve_serverkey = public
        client.curve_publickey, client.curve_secretkey = zmq.curve_keypair()
        client.connect(endpoint)
        client.send(b"hello")
        assert guard.socket.poll(PATIENCE_S * 1_000)
        wait_until(zeromq_sleeps, "what the client tells of itself to be read")
        assert guard.serve() == []
        assert router.poll(PATIENCE_S * 1_000)
        name, said = router.recv_multipart()
        router.send_multipart([name, b"answer"])
        assert client.poll(PATIENCE_S * 1_000)
        answer = client.recv()
        for socket in (client, router, guard):
            socket.close()

    assert (said, answer) == (b"hello", b"answer")
    assert name.startswith(OWN_FIRST_BYTE)
    assert name != chosen
    assert not is_reserved(name)
