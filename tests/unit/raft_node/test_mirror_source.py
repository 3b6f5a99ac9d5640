"""Members of a mirror's source: who is asked, who may ask, and what is taken of an answer."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from ledgermq.model.errors import ProtocolError, StorageError
from ledgermq.model.ids import Index, Position, Term
from ledgermq.raft.messages import Append, EntryId, TermRun
from ledgermq.raft_node.mirroring import source_link
from ledgermq.raft_node.mirroring.source_feed import _check_terms
from ledgermq.raft_node.mirroring.source_link import SourceMember
from ledgermq.wire.mirror_frames import CONTENT_TYPE
from tests.process.conftest import wait_until
from tests.unit.raft_node.mirror_pair import (
    TOKEN,
    Copy,
    asked,
    asked_url,
    copy_of,
    source_of,
)

pytestmark = pytest.mark.slow

HEAD = b"HTTP/1.1 200 OK\r\n"


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as made:
        yield made


def url_of(listener: socket.socket) -> str:
    return f"http://127.0.0.1:{listener.getsockname()[1]}"


def test_who_does_not_lead_is_asked_and_another_one_when_it_is_gone(
    tmp_path: Path, stack: ExitStack
) -> None:
    leader = source_of(stack, tmp_path, "n0", leads=True)
    follower = source_of(stack, tmp_path, "n1")
    for member in (leader, follower):
        member.put(200, term=1)
        member.commit()
    mirror = copy_of(stack, tmp_path, leader, follower)

    mirror.run_until(lambda: mirror.has_all(leader), "all of the log")
    asked = mirror.peers._feed.look(Index(0), Position(0), 0.0)[0].url
    follower.stop()
    leader.put(200, term=1)
    leader.commit()
    mirror.run_until(lambda: mirror.has_all(leader), "what the other one has")

    assert asked == follower.url
    assert mirror.content() == leader.content()


def test_who_hears_no_leader_is_left_for_one_that_does(tmp_path: Path, stack: ExitStack) -> None:
    deaf = source_of(stack, tmp_path, "n1", hears=False)
    leader = source_of(stack, tmp_path, "n0", leads=True)
    for member in (deaf, leader):
        member.put(200, term=1)
        member.commit()
    leader.put(100, term=1)
    leader.commit()
    mirror = copy_of(stack, tmp_path, deaf, leader)

    mirror.run_until(lambda: mirror.has_all(leader), "what the leader has")

    assert asked_url(mirror) == leader.url


def test_a_member_that_is_far_behind_the_others_is_found_out(
    tmp_path: Path, stack: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_link, "BEHIND_SIZE", 100_000)
    monkeypatch.setattr(source_link, "COMPARE_S", 0.5)
    leader = source_of(stack, tmp_path, "n0", leads=True)
    follower = source_of(stack, tmp_path, "n1")
    for member in (leader, follower):
        member.put(200, term=1)
        member.commit()
    mirror = copy_of(stack, tmp_path, leader, follower)
    mirror.run_until(lambda: mirror.has_all(follower), "what both have")
    before = asked_url(mirror)
    leader.put(300, term=1)
    leader.commit()

    mirror.run_until(lambda: mirror.has_all(leader), "what the leader has")

    assert before == follower.url


def test_a_member_whose_log_is_damaged_is_left_for_the_leader(
    tmp_path: Path, stack: ExitStack
) -> None:
    leader = source_of(stack, tmp_path, "n0", leads=True)
    follower = source_of(stack, tmp_path, "n1")
    for member in (leader, follower):
        member.put(200, term=1)
        member.commit()
    path = min(follower.paths.data.iterdir())
    with path.open("r+b") as file:
        file.seek(20_000)
        file.write(b"damaged, and longer than a header" * 4)
    mirror = copy_of(stack, tmp_path, leader, follower)

    mirror.run_until(lambda: mirror.has_all(leader), "what the leader has")

    assert mirror.content() == leader.content()


def test_a_member_that_does_not_answer_is_not_waited_for_again_and_again(
    tmp_path: Path, stack: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_link, "PROBE_S", 0.3)
    monkeypatch.setattr(source_link, "COMPARE_S", 0.1)
    silent = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
    silent.setblocking(False)
    source = source_of(stack, tmp_path)
    source.put(100, term=1)
    source.commit()
    mirror = Copy(tmp_path, url_of(silent), source.url)
    stack.callback(mirror.close)
    mirror.run_until(lambda: mirror.has_all(source), "all of the log")
    link = mirror.peers._feed._link
    compared = {link._compared_at}
    mirror.run_until(lambda: compared.add(link._compared_at) or len(compared) > 5, "comparisons")

    taken = 0
    with pytest.raises(BlockingIOError):
        while True:
            stack.enter_context(silent.accept()[0])
            taken += 1
    assert taken == 1


@pytest.mark.parametrize("slow", [HEAD, HEAD + b"content-length: 9999\r\n\r\n"])
def test_an_answer_that_trickles_is_given_up(monkeypatch: pytest.MonkeyPatch, slow: bytes) -> None:
    monkeypatch.setattr(source_link, "ANSWER_S", 0.8)
    is_over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def trickle() -> None:
            client, _ = listener.accept()
            with client, suppress(OSError):
                client.sendall(slow)
                while not is_over.wait(0.05):
                    client.sendall(b"x")

        thread = threading.Thread(target=trickle)
        thread.start()
        member = SourceMember(url_of(listener), TOKEN, None)
        try:
            with pytest.raises(StorageError, match="does not answer"):
                member.ask("GET", "/mirror/v1/entries", silence_s=30.0)
        finally:
            is_over.set()
            thread.join()
            member.close()


def test_a_connection_that_the_source_has_closed_is_opened_again_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer_and_close() -> None:
            for _ in range(3):
                with listener.accept()[0] as client:
                    client.recv(4_096)
                    kind = f"content-type: {CONTENT_TYPE}\r\n".encode()
                    client.sendall(HEAD + kind + b"content-length: 2\r\n\r\nok")

        thread = threading.Thread(target=answer_and_close)
        thread.start()
        member = SourceMember(url_of(listener), TOKEN, None)
        found = [member.ask("GET", "/mirror/v1/entries", silence_s=30.0) for _ in range(3)]
        member.close()
        thread.join()

    assert found == [b"ok"] * 3 and not member.is_lame


@pytest.mark.parametrize("length", [b"", b"-1", b"99999999", b"9" * 5_000, b"1e3"])
def test_an_answer_that_is_too_long_or_says_no_length_is_not_read(length: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            with listener.accept()[0] as client:
                client.recv(4_096)
                said = b"content-length: %s\r\n" % length if length else b""
                client.sendall(HEAD + said + b"\r\n")
                client.recv(4_096)

        thread = threading.Thread(target=answer)
        thread.start()
        member = SourceMember(url_of(listener), TOKEN, None)
        with pytest.raises(ProtocolError, match="too long"):
            member.ask("GET", "/mirror/v1/entries", silence_s=30.0)
        member.close()
        thread.join()


@pytest.mark.parametrize(
    ("previous", "runs", "commit", "latest"),
    [
        (EntryId(Term(2), Index(5)), (TermRun(Term(1), 1),), 9, 2),
        (EntryId(Term(2), Index(5)), (TermRun(Term(3), 1), TermRun(Term(2), 1)), 9, 3),
        (EntryId(Term(2), Index(5)), (TermRun(Term(3), 1),), 9, 2),
        (EntryId(Term(2), Index(5)), (TermRun(Term(2), 5),), 9, 2),
        (EntryId(Term(2), Index(9)), (), 8, 2),
        (EntryId(Term(2), Index(-2)), (), 8, 2),
    ],
)
def test_entries_that_no_source_has_committed_are_refused(
    previous: EntryId, runs: tuple[TermRun, ...], commit: int, latest: int
) -> None:
    append = Append(Term(latest), previous, runs, Index(commit), 0)

    with pytest.raises(ProtocolError):
        _check_terms(append, Term(latest))


def test_an_answer_that_is_not_read_is_the_only_one_of_its_mirror(
    tmp_path: Path, stack: ExitStack
) -> None:
    source = source_of(stack, tmp_path)
    source.put(5_000, term=1)
    source.commit()
    host, _, port = source.url.removeprefix("http://").partition(":")
    slow = socket.socket()
    slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    path = "/mirror/v1/entries?after=-1&term=0&size=4194304"
    with slow:
        slow.connect((host, int(port)))
        head = f"GET {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {TOKEN}\r\n\r\n"
        slow.sendall(head.encode())
        assert slow.recv(12).endswith(b"200")
        refused = asked(source, "GET", path, TOKEN)

    def is_free() -> bool:
        return asked(source, "GET", path, TOKEN)[0] == 200

    assert refused[0] == 503 and b"being answered" in refused[1]
    wait_until(is_free, "the answer that nobody reads to be given up")


@pytest.mark.parametrize(
    ("token", "status"), [(TOKEN, 200), (TOKEN[::-1], 403), ("", 401), (TOKEN[:-1], 401)]
)
def test_the_log_is_copied_with_a_mirrors_token_alone(
    tmp_path: Path, stack: ExitStack, token: str, status: int
) -> None:
    source = source_of(stack, tmp_path)
    source.put(10, term=1)
    source.commit()

    found = [
        asked(source, method, f"/mirror/v1/{path}", token)
        for method, path in (("GET", "entries?after=-1&term=0&size=1000"), ("GET", "offer?term=1"))
    ]

    assert [answer[0] for answer in found] == [status, status]
    assert status == 200 or not any(b"orders" in content for _, content in found)


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "entries?after=-2&term=0&size=1", b""),
        ("GET", "entries?after=0&term=0&size=0", b""),
        ("GET", "entries?after=1e3&term=0&size=1", b""),
        ("GET", "entries?after=99999999999999999999&term=0&size=1", b""),
        ("GET", "entries", b""),
        ("GET", "offer?term=-1", b""),
        ("POST", "files", b""),
        ("POST", "files", b"\xff\xff\xff\xff"),
        ("POST", "files", b"\x01\x00\x00\x00\x21"),
        ("POST", "files", b"\x00" * 5_000),
        ("POST", "mark?position=-1", b""),
    ],
)
def test_what_no_mirror_asks_is_refused_as_its_fault(
    tmp_path: Path, stack: ExitStack, method: str, path: str, body: bytes
) -> None:
    source = source_of(stack, tmp_path)
    source.put(10, term=1)
    source.commit()

    assert asked(source, method, f"/mirror/v1/{path}", TOKEN, body)[0] == 400
