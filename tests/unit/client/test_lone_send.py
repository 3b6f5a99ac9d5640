"""A lone frame of the kernel is, octet for octet, the one that encoder and frame make."""

from __future__ import annotations

from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgermq.client.core.results import BatchResult, SendResult
from ledgermq.client.sending.frames import WholeFrame, batch_frame, lone_frame
from ledgermq.client.sending.outgoing import OutgoingMessage, properties_bytes
from ledgermq.client.sending.record_encoder import Form, RecordEncoder, Target, unique_id
from ledgermq.client.sending.send_future import SendFuture
from ledgermq.formats.kernels import kernel
from ledgermq.formats.kernels.crc32 import crc32
from ledgermq.formats.records.message_id import UniqueIdMaker
from ledgermq.wire.byte_stream import message_head
from ledgermq.wire.send_frame import SendRun

KERNELS = [kernel, kernel.load_plain("ledgermq.formats.kernels._lone")]
NOW_MS = 1_760_000_000_123
FORMS = st.builds(
    Form, st.sampled_from([0, 48]), st.sampled_from([8, 20]), st.sampled_from([5_000])
)


class Nobody:
    """Nobody waits for these."""

    def wait_for(self, future: SendFuture[object], timeout: float | None) -> None:
        raise AssertionError("waited for a result")


@pytest.mark.parametrize("module", KERNELS)
@given(
    form=FORMS,
    host=st.sampled_from(["10.1.2.3", "fd00::1"]),
    topic=st.binary(min_size=1, max_size=127),
    queue_id=st.integers(0, 2**31 - 1),
    body=st.binary(max_size=300),
    request_ids=st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1)),
    is_stored=st.booleans(),
    is_resumed=st.booleans(),
)
def test_the_kernel_writes_what_the_encoder_writes(
    module: ModuleType,
    *,
    form: Form,
    host: str,
    topic: bytes,
    queue_id: int,
    body: bytes,
    request_ids: tuple[int, int],
    is_stored: bool,
    is_resumed: bool,
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("time.time_ns", lambda: NOW_MS * 1_000_000)
        ids = UniqueIdMaker("10.0.0.1")
        encoder = RecordEncoder(form, born_host=(host, 4_711), ids=ids)
        properties = properties_bytes(None, (), None)
        run = SendRun(1, queue_id, topic)
        record = encoder.encode_one(topic, queue_id, OutgoingMessage(body), properties)
        expected, _ = lone_frame(form, run, record, Nobody(), None)
        prefix, number = ids.reserve(1)
    forms = encoder.lone_forms(topic, queue_id, properties, prefix)
    assert record[2] == unique_id(prefix, number - 1)

    whole, sizes = module.write_batch(
        forms.frame,
        forms.begin,
        forms.tail,
        [body],
        request_ids[0],
        number - 1,
        NOW_MS,
        form.entry_header_size,
        crc32,
    )
    future: SendFuture[SendResult] = SendFuture(Nobody(), lambda answer: answer.one(0, ""), "")
    frame = WholeFrame(form, run, whole, sizes, future)

    head, payload = parts = expected.encode(request_ids[0], is_resumed=False)
    assert whole == message_head(parts)[0] + head + payload
    assert (frame.size, frame.sizes, frame.runs) == (expected.size, expected.sizes, expected.runs)
    frame.may_be_stored = expected.may_be_stored = is_stored
    again = expected.encode(request_ids[1], is_resumed=is_resumed)
    assert frame.encode(request_ids[1], is_resumed=is_resumed) == again
    assert module.read_plain(
        head, payload, form.entry_header_size, form.store_host_size, 5_000, 5_000, 1, crc32
    ) == (request_ids[0], frame.sizes, [(1, queue_id, topic)])


@pytest.mark.parametrize("module", KERNELS)
@given(
    form=FORMS,
    topic=st.binary(min_size=1, max_size=127),
    queue_id=st.integers(0, 2**31 - 1),
    bodies=st.lists(st.binary(max_size=300), min_size=1, max_size=9),
    request_id=st.integers(0, 2**64 - 1),
)
def test_the_kernel_writes_the_batch_that_the_encoder_writes(
    module: ModuleType,
    *,
    form: Form,
    topic: bytes,
    queue_id: int,
    bodies: list[bytes],
    request_id: int,
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("time.time_ns", lambda: NOW_MS * 1_000_000)
        ids = UniqueIdMaker("10.0.0.1")
        encoder = RecordEncoder(form, born_host=("10.1.2.3", 4_711), ids=ids)
        properties = properties_bytes(None, (), None)
        records = encoder.encode_bodies(Target(topic, queue_id), bodies, properties)
        run = SendRun(len(bodies), queue_id, topic)
        expected, _ = batch_frame(form, run, records, Nobody(), None)
    prefix = records.id_prefix
    forms = encoder.lone_forms(topic, queue_id, properties, prefix)

    whole, sizes = module.write_batch(
        forms.frame,
        forms.begin,
        forms.tail,
        bodies,
        request_id,
        records.first_id,
        NOW_MS,
        form.entry_header_size,
        crc32,
    )
    future: SendFuture[BatchResult] = SendFuture(Nobody(), lambda _answer: pytest.fail(), "")
    frame = WholeFrame(form, run, whole, sizes, future)

    head, payload = parts = expected.encode(request_id, is_resumed=False)
    assert whole == message_head(parts)[0] + head + payload
    assert (frame.size, frame.sizes, frame.runs) == (expected.size, expected.sizes, expected.runs)
    frame.may_be_stored = expected.may_be_stored = True
    assert frame.encode(7, is_resumed=True) == expected.encode(7, is_resumed=True)


def test_the_largest_body_is_that_which_the_encoder_takes() -> None:
    ids = UniqueIdMaker("10.0.0.1")
    encoder = RecordEncoder(Form(48, 8, 2**31 - 1), born_host=("10.0.0.1", 1), ids=ids)
    forms = encoder.lone_forms(b"orders", 0, b"", ids.reserve(1)[0])

    assert encoder.encode_one(b"orders", 0, OutgoingMessage(bytes(forms.body_max)), b"")
    with pytest.raises(Exception, match="too large"):
        encoder.encode_one(b"orders", 0, OutgoingMessage(bytes(forms.body_max + 1)), b"")
