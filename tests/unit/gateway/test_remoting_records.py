"""Records of RocketMQ's clients, against the codec of the format."""

from __future__ import annotations

from typing import Any

import pytest

from ledgermq.client.sending.record_encoder import Form
from ledgermq.formats.kernels.crc32 import crc32
from ledgermq.formats.kernels.kernel import check_run
from ledgermq.formats.records.host_address import encode_host
from ledgermq.formats.records.message import Message, decode_message, encode_message
from ledgermq.gateway.producing.port_producer import ToStore
from ledgermq.gateway.producing.remoting_records import RemotingRecords, born_host_of
from ledgermq.model.errors import MessageIllegalError
from ledgermq.remoting.send_request import SendRequest
from tests.plain_codecs import BatchItem, encode_batch

FORMS = [Form(48, 8, 1_000), Form(0, 20, 1_000)]
HOSTS = [("10.1.2.3", 4_711), ("2001:db8::1", 80)]
REQUEST = SendRequest(
    producer_group="g",
    topic="orders",
    default_topic="TBW102",
    default_queues=4,
    queue_id=2,
    sys_flag=0x301,
    born_timestamp=1_700_000_000_123,
    flag=-7,
    properties="",
    reconsume_times=3,
    unit_mode=False,
    max_reconsume_times=None,
    is_batch=False,
)


def stored(form: Form, made: ToStore) -> list[Message]:
    """The messages, checked as the writer checks them."""
    payload = memoryview(b"".join(made.parts))
    table = memoryview(b"".join(size.to_bytes(4, "little") for size in made.sizes)).cast("I")
    fault, record, end = check_run(
        payload, 0, table, 0, len(made.sizes), form.entry_header_size, form.store_host_size,
        4 * 1024 * 1024, form.body_size_max, made.queue_id, made.topic, crc32,
    )  # fmt: skip
    assert (fault, record, end) == (0, -1, made.size)
    found, at = [], 0
    for size in made.sizes:
        found.append(decode_message(payload, at + form.entry_header_size))
        at += size
    return found


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("host", HOSTS)
def test_a_record_is_what_the_codec_makes(form: Form, host: tuple[str, int]) -> None:
    made = RemotingRecords(form).one(
        REQUEST,
        memoryview(b"body"),
        topic=b"orders",
        queue_id=2,
        properties=b"A\x01b",
        born_host=encode_host(host),
    )

    expected = Message(
        topic="orders",
        queue_id=2,
        body=b"body",
        properties=b"A\x01b",
        flag=-7,
        sys_flag=0x301,
        born_timestamp=1_700_000_000_123,
        born_host=host,
        store_host=("::", 0) if form.store_host_size == 20 else ("0.0.0.0", 0),
        reconsume_times=3,
    )
    assert b"".join(made.parts) == bytes(form.entry_header_size) + encode_message(expected)
    assert len(stored(form, made)) == 1


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("host", HOSTS)
def test_a_batch_is_records_of_one_queue(form: Form, host: tuple[str, int]) -> None:
    items = [BatchItem(number, b"%d" % number, b"A\x01b") for number in range(30)]
    made = RemotingRecords(form).batch(
        REQUEST._replace(is_batch=True),
        memoryview(encode_batch(items)),
        topic=b"orders",
        queue_id=2,
        added=b"CLUSTER\x01c",
        born_host=encode_host(host),
    )

    found = stored(form, made)
    assert [(one.flag, bytes(one.body)) for one in found] == [(one.flag, one.body) for one in items]
    assert {one.properties for one in found} == {b"A\x01b\x02CLUSTER\x01c"}
    assert {(one.born_host, one.sys_flag & 0x301, one.reconsume_times) for one in found} == {
        (host, 0x301, 3)
    }


@pytest.mark.parametrize(
    ("units", "text"),
    [
        (b"", "empty"),
        (b"12345", "does not fit"),
        (encode_batch([BatchItem(0, b"1", b"DELAY\x013")]), "delayed"),
        (bytes(1_001), "too large"),
    ],
)
def test_a_batch_that_cannot_be_stored_is_refused(units: bytes, text: str) -> None:
    arguments: dict[str, Any] = {
        "topic": b"orders", "queue_id": 2, "added": b"CLUSTER\x01c",
        "born_host": encode_host(HOSTS[0]),
    }  # fmt: skip

    with pytest.raises(MessageIllegalError, match=text):
        RemotingRecords(FORMS[0]).batch(REQUEST, memoryview(units), **arguments)


@pytest.mark.parametrize(
    ("request_", "size"),
    [(REQUEST, 1_001), (REQUEST._replace(sys_flag=0x80), 1)],
)
def test_a_message_that_cannot_be_stored_is_refused(request_: SendRequest, size: int) -> None:
    with pytest.raises(MessageIllegalError):
        RemotingRecords(FORMS[0]).one(
            request_,
            bytes(size),
            topic=b"orders",
            queue_id=2,
            properties=b"",
            born_host=encode_host(HOSTS[0]),
        )


def test_a_client_of_ipv4_is_one_whatever_it_came_by() -> None:
    assert born_host_of(("::ffff:10.1.2.3", 9)) == encode_host(("10.1.2.3", 9))
    assert born_host_of(("fe80::1%eth0", 9)) == encode_host(("fe80::1", 9))
