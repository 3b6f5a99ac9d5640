"""The guard of CURVE keys: whom it lets in, turns away, and has try again."""

from __future__ import annotations

from pathlib import Path

import pytest
import zmq
from zmq.utils.monitor import recv_monitor_message

from ledgermq.model.config.settings import AccessSection
from ledgermq.model.errors import NotLeaderError
from ledgermq.rules.access.access import UserTable
from ledgermq.sessions.client_rights import AccessGate
from ledgermq.sessions.client_socket import bind_client_socket
from ledgermq.sessions.keys.key_guard import KeyGuard
from tests.process.group_nodes import free_port
from tests.suite.patience import PATIENCE_S

REFUSED = int(zmq.EVENT_HANDSHAKE_FAILED_AUTH)
CUT_OFF = int(zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL)


@pytest.mark.parametrize("are_users_known", [True, False])
def test_a_key_is_refused_only_when_all_users_are_known(
    tmp_path: Path, are_users_known: bool
) -> None:
    def check_users() -> None:
        if not are_users_known:
            raise NotLeaderError("node is starting")

    gate = AccessGate(AccessSection(enabled=True), UserTable(), check_users=check_users)
    public, secret = zmq.curve_keypair()
    endpoint = f"tcp://127.0.0.1:{free_port()}"
    with zmq.Context() as context:
        guard = KeyGuard(context, gate.lets_key_in)
        router = bind_client_socket(
            context, tmp_path / "socket", endpoint, mode=0o600, message_size_max=1_000,
            secret=secret,
        )  # fmt: skip
        client = context.socket(zmq.DEALER)
        client.setsockopt(zmq.LINGER, 0)
        client.curve_serverkey = public
        client.curve_publickey, client.curve_secretkey = zmq.curve_keypair()
        if not are_users_known:
            # Who is not answered gives up by itself, after half a minute else.
            client.setsockopt(zmq.HANDSHAKE_IVL, 1_000)
        heard = client.get_monitor_socket(REFUSED | CUT_OFF)
        client.connect(endpoint)
        assert guard.socket.poll(PATIENCE_S * 1_000)
        refused = guard.serve()
        assert heard.poll(PATIENCE_S * 1_000)
        event = int(recv_monitor_message(heard)["event"])
        client.disable_monitor()
        for socket in (heard, client, router, guard):
            socket.close()

    # Who is cut off tries again, as it would where the connection had broken.
    assert event == (REFUSED if are_users_known else CUT_OFF)
    assert len(refused) == are_users_known
