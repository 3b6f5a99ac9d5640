"""What the producer encodes is what the store's codec reads, in every form of log."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgermq.client.sending.outgoing import OutgoingMessage, properties_bytes, topic_bytes
from ledgermq.client.sending.record_encoder import (
    EncodedRecords,
    Form,
    RecordEncoder,
    Target,
    unique_id,
)
from ledgermq.formats.records.host_address import Host
from ledgermq.formats.records.message import BORN_HOST_V6, STORE_HOST_V6, Message, decode_message
from ledgermq.formats.records.message_id import UniqueIdMaker
from ledgermq.model.errors import MessageIllegalError
from ledgermq.model.limits import (
    ENTRY_SIZE_MAX,
    PROPERTIES_SIZE_MAX,
    TOPIC_SIZE_MAX,
    UNIQUE_ID_SIZE_MAX,
)

FORMS = [Form(hole, host, 4_096) for hole, host in itertools.product((0, 48), (8, 20))]
BORN_V4: Host = ("192.0.2.7", 0)
BORN_V6: Host = ("2001:db8::7", 0)
ORDERS = Target(b"orders", 3)


def encoder(form: Form, born: Host = BORN_V4) -> RecordEncoder:
    return RecordEncoder(form, born_host=born, ids=UniqueIdMaker(born[0]))


def decoded(form: Form, records: EncodedRecords) -> list[Message]:
    payload = memoryview(b"".join(records.parts))
    assert len(payload) == records.size == sum(records.sizes)
    messages, at = [], 0
    for size in records.sizes:
        assert bytes(payload[at : at + form.entry_header_size]) == bytes(form.entry_header_size)
        message = decode_message(payload, at + form.entry_header_size, end=at + size)
        assert message.size == size - form.entry_header_size
        messages.append(message)
        at += size
    return messages


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("born", [BORN_V4, BORN_V6])
def test_a_record_is_read_back_with_what_the_leader_fills_in_left_zero(
    form: Form, born: Host
) -> None:
    records = encoder(form, born).encode_bodies(
        ORDERS._replace(flag=-5), [b"one", b""], properties_bytes("TagA", ["k1", "k2"], {"a": "ö"})
    )
    messages = decoded(form, records)
    first = messages[0]

    assert [bytes(message.body) for message in messages] == [b"one", b""]
    assert (first.topic, first.queue_id, first.flag, first.tags) == ("orders", 3, -5, "TagA")
    assert first.keys == ("k1", "k2")
    assert first.parsed_properties()["a"] == "ö"
    assert first.born_host == born
    assert bool(first.sys_flag & BORN_HOST_V6) == (born is BORN_V6)
    assert bool(first.sys_flag & STORE_HOST_V6) == (form.store_host_size == 20)
    assert first.queue_offset == first.physical_offset == first.store_timestamp == 0
    assert first.prepared_transaction_offset == first.reconsume_times == 0
    assert first.store_host[1] == 0


@given(
    st.lists(
        st.tuples(st.binary(max_size=200), st.sampled_from([None, "A", "été"]), st.booleans()),
        min_size=1,
        max_size=30,
    )
)
def test_messages_of_one_batch_keep_their_own_tag_key_flag_and_order(
    rows: list[tuple[bytes, str | None, bool]],
) -> None:
    batch = [
        OutgoingMessage(body, tag, keys=("k",) if keyed else (), flag=number)
        for number, (body, tag, keyed) in enumerate(rows)
    ]
    form = FORMS[2]
    messages = decoded(form, encoder(form).encode_messages(ORDERS, batch))

    assert [(bytes(m.body), m.tags or None, m.keys == ("k",)) for m in messages] == rows
    assert [message.flag for message in messages] == list(range(len(rows)))


def test_unique_ids_are_those_that_the_records_name_and_never_the_same() -> None:
    form = FORMS[0]
    made = encoder(form)
    batches = [made.encode_bodies(ORDERS, [b"x"] * 70_000, b"UNIQ_KEY\x01") for _ in range(2)]
    stored = [message.unique_id for batch in batches for message in decoded(form, batch)]
    told = [
        unique_id(batch.id_prefix, batch.first_id + row)
        for batch in batches
        for row in range(70_000)
    ]

    assert stored == told
    assert len(set(stored)) == 140_000


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("born", [BORN_V4, BORN_V6])
def test_a_record_by_itself_is_that_of_a_batch_of_one(
    form: Form, born: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    properties = properties_bytes("TagA", ["k"], {"a": "b"})
    monkeypatch.setattr("time.time_ns", lambda: 1_700_000_000_000_000_000)
    batch = encoder(form, born).encode_bodies(ORDERS._replace(flag=-5), [b"one"], properties)
    message = OutgoingMessage(b"one", flag=-5)
    made = encoder(form, born).encode_one(ORDERS.topic, ORDERS.queue_id, message, properties)
    data, size, unique_id_ = b"".join(made[0]), made[1], made[2]

    assert data[: -len(unique_id_)] == b"".join(batch.parts)[: -len(unique_id_)]
    assert data.endswith(unique_id_.encode())
    assert size == batch.size == len(data)


@pytest.mark.parametrize(
    "message",
    [
        OutgoingMessage(bytes(4_097)),
        OutgoingMessage(b"x", flag=2**31),
        OutgoingMessage(b"x", sys_flag=1 << 20),
    ],
)
def test_a_record_by_itself_is_refused_as_that_of_a_batch(message: OutgoingMessage) -> None:
    with pytest.raises(MessageIllegalError):
        encoder(FORMS[0]).encode_one(b"t", 0, message, b"")


def test_a_body_behind_the_limit_is_refused_with_its_number_and_the_setting() -> None:
    with pytest.raises(MessageIllegalError) as refused:
        encoder(FORMS[0]).encode_bodies(ORDERS, [b"", bytes(4_097)], b"")

    assert refused.value.details == {
        "record": 1,
        "size": 4_097,
        "limit": 4_096,
        "setting": "store.max_message_size",
    }


def test_a_record_that_no_entry_can_hold_is_refused() -> None:
    form = Form(48, 8, ENTRY_SIZE_MAX)
    with pytest.raises(MessageIllegalError) as refused:
        encoder(form).encode_bodies(ORDERS, [bytes(ENTRY_SIZE_MAX)], b"")

    assert refused.value.details["limit"] == ENTRY_SIZE_MAX


@pytest.mark.parametrize("target", [Target(b"t", 2**31), Target(b"t", 0, 2**31)])
def test_a_number_that_does_not_fit_its_field_is_refused(target: Target) -> None:
    with pytest.raises(MessageIllegalError):
        encoder(FORMS[0]).encode_bodies(target, [b"x"], b"")


@pytest.mark.parametrize("topic", ["", "a b", "a.b", "é", "x" * (TOPIC_SIZE_MAX + 1), "\ud800"])
def test_a_topic_that_rocketmq_would_not_take_is_refused(topic: str) -> None:
    with pytest.raises(MessageIllegalError) as refused:
        topic_bytes(topic)

    assert refused.value.details["topic"] == topic


@pytest.mark.parametrize(
    ("tag", "keys", "properties"),
    [
        ("", (), None),
        ("a\x02b", (), None),
        ("a\x01b", (), None),
        (None, ("a b",), None),
        (None, ("",), None),
        (None, (), {"": "v"}),
        (None, (), {"n": ""}),
        (None, (), {"UNIQ_KEY": "mine"}),
        (None, (), {"TAGS": "mine"}),
        (None, (), {"n": "\ud800"}),
    ],
)
def test_properties_that_a_reader_would_cut_are_refused(
    tag: str | None, keys: tuple[str, ...], properties: dict[str, str] | None
) -> None:
    with pytest.raises(MessageIllegalError):
        properties_bytes(tag, keys, properties)


def test_properties_may_fill_their_field_and_not_more() -> None:
    form = FORMS[0]
    environment = len(properties_bytes(None, (), {"n": "v"})) - 1 + 32
    fits = properties_bytes(None, (), {"n": "v" * (PROPERTIES_SIZE_MAX - environment)})
    message = decoded(form, encoder(form).encode_bodies(ORDERS, [b"x"], fits))[0]
    too_long = properties_bytes(None, (), {"n": "v" * (PROPERTIES_SIZE_MAX - environment + 1)})

    assert len(message.properties) == PROPERTIES_SIZE_MAX
    with pytest.raises(MessageIllegalError):
        encoder(form).encode_bodies(ORDERS, [b"x"], too_long)


@pytest.mark.parametrize("form", FORMS)
def test_a_message_has_the_unique_id_that_it_was_given(form: Form) -> None:
    batch = [
        OutgoingMessage(b"one", "TagA", ["k"], {"a": "b"}, unique_id="order-17"),
        OutgoingMessage(b"two", "TagA", ["k"], {"a": "b"}),
        OutgoingMessage(b"three", unique_id="x" * UNIQUE_ID_SIZE_MAX),
    ]
    records = encoder(form).encode_messages(ORDERS, batch)
    messages = decoded(form, records)

    assert [one.unique_id for one in messages] == [records.id_of(row) for row in range(3)]
    assert (records.id_of(0), records.id_of(2)) == ("order-17", "x" * UNIQUE_ID_SIZE_MAX)
    assert len(records.id_of(1)) == 32
    assert messages[0].parsed_properties() == {
        "a": "b", "TAGS": "TagA", "KEYS": "k", "UNIQ_KEY": "order-17",
    }  # fmt: skip
    assert [bytes(one.body) for one in messages] == [b"one", b"two", b"three"]


@pytest.mark.parametrize("bad", ["", "with space", "ümlaut", "x" * 129, "a\x01b", "a\nb", 17])
def test_an_id_that_cannot_be_one_is_refused(bad: object) -> None:
    message = OutgoingMessage(b"x", unique_id=bad)  # type: ignore[arg-type]

    with pytest.raises(MessageIllegalError, match="unique id"):
        encoder(FORMS[0]).encode_messages(ORDERS, [OutgoingMessage(b"y"), message])


def test_the_property_of_the_unique_id_is_not_given_as_one() -> None:
    with pytest.raises(MessageIllegalError, match="unique_id"):
        properties_bytes(None, (), {"UNIQ_KEY": "a"})
