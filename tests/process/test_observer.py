"""The observer: health over HTTP, who may look, and clients that mean no good."""

from __future__ import annotations

import os
import signal
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.certificates import make_certificate
from tests.process.client_node import start_client_node
from tests.process.conftest import Node, nodes_made, wait_until
from tests.process.group_nodes import Group, Member, free_port, make_group
from tests.process.http_client import HttpAnswer, connect, get, parse, read_all
from tests.suite.patience import PATIENCE_S

pytestmark = pytest.mark.slow

TOKEN = "0123456789abcdef0123456789abcdef"
CONNECTIONS_MAX = 32
BY_ADDRESS = b" HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"


@pytest.fixture(scope="module")
def address() -> tuple[str, int]:
    return "127.0.0.1", free_port()


@pytest.fixture(scope="module")
def node(address: tuple[str, int]) -> Iterator[Node]:
    with nodes_made() as make:
        made = make()
        start_client_node(
            made,
            listen={"http": f"127.0.0.1:{address[1]}"},
            http={"connections_max": CONNECTIONS_MAX},
        )
        wait_until(lambda: answers(address), "the observer to answer")
        yield made


def answers(where: tuple[str, int] | Path) -> bool:
    try:
        return get(where, "/health/live").status == 200
    except OSError:
        return False


def counted(node: Node, counter: str) -> int:
    found: int = node.status()["counters"]["observer"][counter]
    return found


def test_a_node_that_serves_says_so(node: Node, address: tuple[str, int]) -> None:
    wait_until(lambda: get(address, "/health/leader").status == 200, "the node to lead")
    found = {path: get(address, f"/health/{path}") for path in ("live", "ready", "leader")}
    told = get(address, "/health/ready", accept="application/json")

    assert {path: (one.status, one.text) for path, one in found.items()} == dict.fromkeys(
        found, (200, "ready\n")
    )
    assert told.headers["content-type"] == "application/json"
    assert '"state":"ready"' in told.text and '"leads":true' in told.text
    assert found["live"].headers["cache-control"] == "no-store"


def test_the_observer_is_a_process_of_the_node_that_is_started_again(
    node: Node, address: tuple[str, int]
) -> None:
    before = node.child("observer")
    os.kill(before["pid"], signal.SIGKILL)
    wait_until(lambda: node.child("observer")["restarts"] > before["restarts"], "a restart")
    wait_until(lambda: answers(address), "the observer to answer again")

    assert node.status()["state"] == "ready"
    assert not node.logged("node does not serve")


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /health/../../etc/passwd" + BY_ADDRESS, 404),
        (b"GET /%2e%2e/%2e%2e/etc/passwd" + BY_ADDRESS, 404),
        (b"GET /no-such" + BY_ADDRESS, 404),
        (b"GET /no-such HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", 403),
        (b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", 403),
        (b"POST /health/live HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n", 405),
        (b"BREW /health/live HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", 405),
        (b"GET /health/live HTTP/1.1\r\n\r\n", 400),
        (b"GET /health/live HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        (b"GET /health/live HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 20_000 + b"\r\n\r\n", 431),
        (b"GET /" + b"x" * 20_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n", 431),
        (b"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 70000\r\n\r\n" + b"x" * 70_000, 413),
        (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", 501),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 64 + b"\r\n\r\n", 400),
        (b"nothing of the kind\r\n\r\n", 400),
    ],
)  # fmt: skip
def test_what_is_no_request_for_a_page_is_refused(
    node: Node, address: tuple[str, int], request_: bytes, status: int
) -> None:
    with connect(address) as client:
        client.sendall(request_)
        client.shutdown(socket.SHUT_WR)
        answer = parse(read_all(client))

    assert answer.status == status
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answers(address)


def test_head_has_no_body(node: Node, address: tuple[str, int]) -> None:
    answer = get(address, "/health/live", method="HEAD")

    assert (answer.status, answer.body) == (200, b"")


def test_a_connection_is_kept_for_the_next_request(node: Node, address: tuple[str, int]) -> None:
    with connect(address) as client:
        request = b"GET /health/live HTTP/1.1\r\nHost: a\r\n\r\n"
        # Both at once: the second waits for the first one's answer.
        client.sendall(request + request.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        content = read_all(client)

    assert content.count(b"HTTP/1.1 200") == 2


def test_a_thousand_connections_leave_room_for_nobody_else_only_while_they_are_there(
    node: Node, address: tuple[str, int]
) -> None:
    before = counted(node, "refused")
    with ExitStack() as clients:
        for _ in range(1_000):
            clients.enter_context(connect(address))
        wait_until(
            lambda: counted(node, "refused") >= before + 1_000 - CONNECTIONS_MAX // 2,
            "all but half of the connections to be refused",
        )
        kept = counted(node, "connections")
        pid = node.child("observer")["pid"]
    wait_until(lambda: counted(node, "connections") == 0, "the connections to go")

    assert kept <= CONNECTIONS_MAX // 2
    assert answers(address)
    assert node.child("observer")["pid"] == pid


@pytest.mark.long
def test_who_asks_slowly_is_given_up(node: Node, address: tuple[str, int]) -> None:
    before = counted(node, "refused")
    with connect(address) as client:
        client.sendall(b"GET /health/live HTTP/1.1\r\n")
        client.settimeout(0.5)

        def is_closed() -> bool:
            """A byte now and then does not help."""
            try:
                client.sendall(b"x")
                return client.recv(100) == b""
            except TimeoutError:
                return False
            except OSError:
                return True

        wait_until(is_closed, "the connection to be closed")

    assert counted(node, "refused") > before


def test_who_goes_while_it_is_answered_leaves_nothing_behind(
    node: Node, address: tuple[str, int]
) -> None:
    for _ in range(200):
        with connect(address) as client:
            client.sendall(b"GET /health/ready HTTP/1.1\r\nHost: a\r\n\r\n")
    wait_until(lambda: counted(node, "connections") == 0, "the connections to go")

    # More than may be under way at once: what had gone is counted out.
    assert all(answers(address) for _ in range(40))


def test_a_supervisor_that_hangs_is_not_live(make_node: Callable[[], Node]) -> None:
    node = make_node()
    start_client_node(node, listen={"http": "unix"})
    where = node.runtime / "http.sock"
    wait_until(where.exists, "the socket")
    wait_until(lambda: answers(where), "the observer to answer")
    node.signal(signal.SIGSTOP)
    try:
        hanging: HttpAnswer = wait_until(
            lambda: (one := get(where, "/health/live")).status == 503 and one, "the silence"
        )
    finally:
        node.signal(signal.SIGCONT)
    wait_until(lambda: answers(where), "the supervisor to answer again")
    mode = where.stat().st_mode & 0o777
    stopped = node.stop()

    assert hanging.text.startswith("the supervisor does not answer")
    assert mode == 0o660
    assert stopped == 0
    assert not where.exists()


def test_of_three_members_one_leads_and_one_alone_is_not_ready(
    make_node: Callable[[], Node],
) -> None:
    def with_http(member: Member) -> None:
        text = member.node.config.read_text()
        member.node.config.write_text(text.replace("[listen]", '[listen]\nhttp = "unix"'))

    group: Group = make_group(
        make_node, ack="majority-fsync", supervision={"ready_within_ms": 2_000}, prepare=with_http
    )
    for member in group.members:
        member.node.wait_ready()
    leader = group.leader()
    follower, other = group.others(leader)

    def ask(member: Member, page: str) -> HttpAnswer:
        return get(member.node.runtime / "http.sock", f"/health/{page}")

    for member in group.members:
        where = member.node.runtime / "http.sock"
        wait_until(lambda where=where: where.exists() and answers(where), "the observer")
        wait_until(lambda member=member: ask(member, "ready").status == 200, "all to serve")
    wait_until(lambda: ask(leader, "leader").status == 200, "the leader to have taken over")
    follows: HttpAnswer = wait_until(
        lambda: leader.name in (one := ask(follower, "leader")).text and one,
        "the follower to have heard who leads",
    )
    follower.kill()
    other.kill()
    alone: HttpAnswer = wait_until(
        lambda: (one := ask(leader, "ready")).status == 503 and one, "no majority"
    )
    leads = ask(leader, "leader")
    live = ask(leader, "live")

    assert (follows.status, follows.text) == (503, f"it follows {leader.name}\n")
    assert "no majority was heard of for 2000 ms" in alone.text
    assert leads.status == 503
    assert (live.status, live.text) == (200, "not ready\n")


def test_other_addresses_ask_for_tls_and_tokens(
    make_node: Callable[[], Node], tmp_path: Path
) -> None:
    port = free_port()
    certificate, key = make_certificate(tmp_path)
    tokens = tmp_path / "tokens"
    tokens.write_text(f"# who looks\nprometheus {TOKEN}\n")
    tokens.chmod(0o600)
    node = make_node()
    start_client_node(
        node,
        listen={"http": f"0.0.0.0:{port}", "trusted_network": False},
        http={
            "tls_certificate_file": str(certificate),
            "tls_key_file": str(key),
            "tokens_file": str(tokens),
        },
    )

    def ask(path: str, token: str = "") -> HttpAnswer:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        bearer = f"Authorization: Bearer {token}\r\n" if token else ""
        with (
            socket.create_connection(("127.0.0.1", port), PATIENCE_S) as plain,
            context.wrap_socket(plain) as client,
        ):
            client.sendall(
                f"GET {path} HTTP/1.1\r\nHost: a\r\n{bearer}Connection: close\r\n\r\n".encode()
            )
            shown.append(client.getpeercert(binary_form=True))
            return parse(read_all(client))

    def is_there() -> bool:
        try:
            return ask("/health/live").status == 200
        except OSError:
            return False

    shown: list[bytes | None] = []
    wait_until(is_there, "the observer to answer")
    without = ask("/nothing")
    wrong = ask("/nothing", "x" * 32)
    right = ask("/nothing", TOKEN)
    with connect(("127.0.0.1", port)) as clear:
        clear.sendall(b"GET /health/live HTTP/1.1\r\nHost: a\r\n\r\n")
        in_clear = read_all(clear)
    first = shown[-1]
    make_certificate(tmp_path)
    tokens.write_text(f"other {TOKEN[::-1]}\n")
    node.signal(signal.SIGHUP)
    wait_until(lambda: ask("/nothing", TOKEN).status == 401, "the token to be taken away")

    assert (without.status, wrong.status, right.status) == (401, 401, 404)
    assert without.headers["www-authenticate"] == "Bearer"
    assert b"HTTP" not in in_clear
    assert ask("/nothing", TOKEN[::-1]).status == 404
    assert shown[-1] != first
