"""Questions to another group's node: over a real socket, in pieces, and no longer than asked."""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import zmq

from ledgermq.broker.cluster import document_messages, home_questions
from ledgermq.broker.cluster.document_messages import read_asked, reply_fields
from ledgermq.broker.cluster.home_questions import Answered, HomeQuestions
from ledgermq.model.config.settings import Settings, StoreSection
from ledgermq.model.errors import BusyError
from ledgermq.rules.cluster.document_asker import Question
from ledgermq.rules.cluster.document_desk import DocumentReply, DocumentRequest
from ledgermq.rules.cluster.numbered_rows import NOWHERE
from ledgermq.wire.header import Kind, decode_header, encode_header
from ledgermq.wire.session import decode_call, encode_body, encode_refused, encode_result
from tests.suite.patience import PATIENCE_S

REQUEST = DocumentRequest("b", [b"link"], 3, NOWHERE)
REPLY = DocumentReply([b"link"], ["tcp://10.0.0.1:1"], None, True, False)
Fields = dict[str, object]


@contextmanager
def member(answer: Callable[[int, Fields], list[bytes] | None]) -> Iterator[str]:
    """A node whose calls are answered so; its address."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    router = context.socket(zmq.ROUTER)
    port = router.bind_to_random_port("tcp://127.0.0.1")
    is_over = threading.Event()

    def serve() -> None:
        while not is_over.is_set():
            if not router.poll(20):
                continue
            client, head, *rest = router.recv_multipart()
            header = decode_header(head)
            if header.kind is Kind.HELLO:
                welcome = [encode_header(Kind.WELCOME, header.request_id), encode_body({})]
                router.send_multipart([client, *welcome])
            elif header.kind is Kind.CALL:
                _, fields = decode_call(rest[0])
                parts = answer(header.request_id, fields)
                if parts is not None:
                    router.send_multipart([client, *parts])

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"tcp://127.0.0.1:{port}"
    finally:
        is_over.set()
        thread.join()
        router.close(0)
        context.term()


@pytest.fixture
def questions(tmp_path: Path) -> Iterator[HomeQuestions]:
    made = HomeQuestions(Settings(store=StoreSection(path_root_dir=tmp_path)))
    yield made
    made.close()


def answered(questions: HomeQuestions, address: str, *, hold_ms: int = 0) -> Answered:
    questions.ask(Question(7, address, REQUEST, hold_ms))
    assert not questions.is_free
    select.select([questions.descriptor], [], [], PATIENCE_S)
    found = questions.take()
    assert found is not None
    assert questions.is_free
    assert select.select([questions.descriptor], [], [], 0)[0] == []
    return found


def test_an_answer_comes_whole_whatever_its_pieces(
    questions: HomeQuestions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(document_messages, "PIECE_SIZE", 10)
    monkeypatch.setattr(document_messages, "PIECES_MAX", 10)
    reply = DocumentReply([b"link"], ["tcp://10.0.0.1:1"], b"signed" * 7, True, False)
    asked = []

    def answer(number: int, fields: Fields) -> list[bytes]:
        asked.append(read_asked(fields))
        return encode_result(number, reply_fields(reply, asked[-1].piece))

    with member(answer) as address:
        found = answered(questions, address, hold_ms=5)

    assert found == Answered(7, reply)
    assert [one.request for one in asked] == [REQUEST] * 5
    assert [one.piece for one in asked] == [*range(5)]


def test_pieces_of_two_documents_are_not_put_together(
    questions: HomeQuestions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(document_messages, "PIECE_SIZE", 10)
    monkeypatch.setattr(document_messages, "PIECES_MAX", 10)

    def answer(number: int, fields: Fields) -> list[bytes]:
        piece = read_asked(fields).piece
        return encode_result(number, reply_fields(DocumentReply([], [], b"%d" % piece * 20), piece))

    with member(answer) as address:
        found = answered(questions, address)

    assert (found.reply, "has changed while it was read" in found.failure) == (None, True)


def test_more_pieces_than_a_document_may_have_are_not_asked_for(questions: HomeQuestions) -> None:
    asked = []

    def answer(number: int, fields: Fields) -> list[bytes]:
        asked.append(fields)
        told = {**reply_fields(DocumentReply([], [], b"x"), 0), "pieces": 1_000_000}
        return encode_result(number, told)

    with member(answer) as address:
        found = answered(questions, address)

    assert (found.reply, "cluster document is too large" in found.failure) == (None, True)
    assert len(asked) == 1


def test_a_refusal_is_told_with_its_reason(questions: HomeQuestions) -> None:
    with member(lambda number, _: encode_refused(number, BusyError("too many ask"))) as address:
        found = answered(questions, address)

    assert (found.reply, "too many ask" in found.failure) == (None, True)


@pytest.mark.parametrize("parts", [[b"x"], [b""], [b"a", b"b", b"c", b"d"]])
def test_an_answer_of_another_shape_is_no_answer(
    questions: HomeQuestions, parts: list[bytes]
) -> None:
    with member(lambda _number, _: parts) as address:
        found = answered(questions, address)

    assert found.reply is None
    assert found.failure


def test_who_does_not_answer_is_waited_for_so_long(
    questions: HomeQuestions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(home_questions, "ANSWER_TIMEOUT_MS", 50)
    with member(lambda _number, _: None) as address:
        found = answered(questions, address, hold_ms=50)

    assert found.failure == f"node does not answer (address='{address}')"


def test_a_name_is_asked_at_each_of_its_addresses(
    questions: HomeQuestions, monkeypatch: pytest.MonkeyPatch
) -> None:
    with member(lambda number, _: encode_result(number, reply_fields(REPLY, 0))) as address:
        port = int(address.rpartition(":")[2])
        stream = (socket.AF_INET, socket.SOCK_STREAM, 0, "")
        found = [(*stream, (host, port)) for host in ("127.0.0.2", "127.0.0.1")]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)

        assert answered(questions, f"tcp://orders-a.example:{port}").reply == REPLY


def test_a_node_that_is_not_there_is_not_waited_for(questions: HomeQuestions) -> None:
    with member(lambda _number, _: None) as address:
        pass

    found = answered(questions, address, hold_ms=600_000)

    assert "no connection to the node" in found.failure


def test_a_node_that_goes_while_it_is_asked_is_not_waited_for(questions: HomeQuestions) -> None:
    is_asked = threading.Event()

    def answer(_number: int, _fields: Fields) -> None:
        is_asked.set()

    with member(answer) as address:
        questions.ask(Question(7, address, REQUEST, 600_000))
        assert is_asked.wait(PATIENCE_S)
    select.select([questions.descriptor], [], [], PATIENCE_S)
    found = questions.take()

    assert found is not None
    assert "no connection to the node" in found.failure


@pytest.mark.parametrize("address", ["10.0.0.1:1", "tcp://no.such.name.invalid:1", "tcp://::1"])
def test_an_address_that_is_none_is_told(questions: HomeQuestions, address: str) -> None:
    found = answered(questions, address)

    assert found.reply is None
    assert "address" in found.failure


def test_a_question_that_is_out_does_not_hold_up_the_end(tmp_path: Path) -> None:
    made = HomeQuestions(Settings(store=StoreSection(path_root_dir=tmp_path)))
    with member(lambda _number, _: None) as address:
        made.ask(Question(1, address, REQUEST, 600_000))
        made.close()

    assert not any(one.name == "ledgermq-cluster" for one in threading.enumerate())
