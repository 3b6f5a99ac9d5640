"""The kernel of single sends, compiled and plain, against the codecs that read everything."""

from __future__ import annotations

import json
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgermq.client.sending.record_encoder import Form
from ledgermq.formats.kernels import kernel
from ledgermq.formats.kernels.crc32 import crc32
from ledgermq.formats.records.host_address import encode_host
from ledgermq.gateway.producing.remoting_records import RemotingRecords
from ledgermq.gateway.producing.sent_properties import SentProperties
from ledgermq.model.errors import LedgerError
from ledgermq.remoting.codes import Language, RequestCode
from ledgermq.remoting.command import Command
from ledgermq.remoting.send_request import SendRequest, decode_send

KERNELS = [kernel, kernel.load_plain("ledgermq.formats.kernels._sends")]
JAVA = (
    b'{"code":310,"extFields":{"a":"producers","b":"orders","c":"TBW102","d":"4","e":"3","f":"0",'
    b'"g":"1700000000123","h":"0","i":"KEYS\\u0001k\\u0002WAIT\\u0001true\\u0002","j":"0",'
    b'"k":"false","m":"false"},"flag":0,"language":"JAVA","opaque":7,'
    b'"serializeTypeCurrentRPC":"JSON","version":401}'
)
"""As RocketMQ 4.9.4 writes it."""

HOST = ("10.1.2.3", 4_711)
NUMBERS = st.integers(-(10**10), 10**10).map(str) | st.sampled_from(
    ["", "-", "07", "+1", "1 ", "x"]
)
FIELDS = st.fixed_dictionaries(
    {"a": st.just("g"), "b": st.text("ab%é", max_size=3), "e": NUMBERS, "g": NUMBERS},
    optional={
        **dict.fromkeys("dfhjl", NUMBERS),
        "i": st.text('AB\x01\x02\t"\\é', max_size=9),
        "m": st.sampled_from(["true", "false", "False"]),
        "n": st.just("more"),
    },
)
PARTS = ("WAIT\x01true", "WAIT\x01false", "WAIT\x01x", "A\x01b", "", "K\x01WAIT", "A\x01DELAY", "C")
PROPERTIES = st.lists(st.sampled_from(PARTS), max_size=4).map("\x02".join)


def scanned(module: ModuleType, header: bytes) -> tuple[object, ...] | None:
    """What the kernel makes of a header with other bytes around it."""
    found = module.scan_send(memoryview(b"x" + header + b"}"), 1, 1 + len(header), 310)
    assert found is None or isinstance(found, tuple)
    return found


@pytest.mark.parametrize("module", KERNELS)
def test_a_header_of_javas_is_read_with_its_properties(module: ModuleType) -> None:
    assert scanned(module, JAVA) == (
        7, 0, 401, "JAVA", "orders", 3, 0, 1_700_000_000_123, 0, 0,
        b"KEYS\x01k\x02WAIT\x01true\x02",
    )  # fmt: skip


@pytest.mark.parametrize("module", KERNELS)
@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"code":310', b'"code":320'),
        (b'"code":310', b'"code":0310'),
        (b'"opaque":7', b'"opaque":2147483648'),
        (b'"opaque":7', b'"opaque":-0'),
        (b'"opaque":7', b'"opaque":7.5'),
        (b'"opaque":7', b'"flag":7'),
        (b'"opaque":7', b'"remark":"r"'),
        (b'"flag":0', b'"flag": 0'),
        (b'"a":"producers",', b""),
        (b'"a":"producers",', b'"a":"x","a":"y",'),
        (b'"a":"producers"', b'"a":"\\u0041"'),
        (b'"b":"orders"', b'"b":"\xc3\xa9"'),
        (b'"e":"3"', b'"e":3'),
        (b'"e":"3"', b'"e":"1234567890"'),
        (b'"g":"1700000000123"', b'"g":""'),
        (b"u0001k", b"u0101k"),
        (b"u0001k", b"x0001k"),
        (b"u0001k", b"u03fgk"),
        (b'"m":"false"', b'"m":"true"'),
        (b'"m":"false"', b'"n":"false"'),
        (b'"m":"false"', b'"AccessKey":"k"'),
        (b'"language":"JAVA",', b""),
        (b"401}", b"401},"),
        (b"401}", b"401"),
    ],
)
def test_what_is_not_regular_is_left_to_others(module: ModuleType, old: bytes, new: bytes) -> None:
    assert old in JAVA

    assert scanned(module, JAVA.replace(old, new, 1)) is None


@pytest.mark.parametrize("module", KERNELS)
def test_a_header_that_is_cut_anywhere_is_left_to_others(module: ModuleType) -> None:
    for size in range(len(JAVA)):
        header = JAVA[:size]

        assert module.scan_send(memoryview(header), 0, size, 310) is None


@pytest.mark.parametrize("module", KERNELS)
@given(fields=FIELDS, opaque=st.integers(-(2**31), 2**31), data=st.data())
def test_what_is_read_is_what_the_codec_reads(
    module: ModuleType, fields: dict[str, str], opaque: int, data: st.DataObject
) -> None:
    names = data.draw(st.permutations(["code", "extFields", "language", "opaque", "version"]))
    told = {"code": 310, "extFields": fields, "language": "GO", "opaque": opaque, "version": 5}
    header = json.dumps({name: told[name] for name in names}, separators=(",", ":")).encode()

    found = scanned(module, header)

    if found is None:
        return
    request = decode_send(Command(RequestCode.SEND_MESSAGE_V2, fields=fields))
    assert found == (
        opaque, 0, 5, Language.GO.name, request.topic, request.queue_id, request.sys_flag,
        request.born_timestamp, request.flag, request.reconsume_times, request.properties.encode(),
    )  # fmt: skip
    assert not request.is_batch
    assert fields.keys() <= set("abcdefghijklm")


@pytest.mark.parametrize("module", KERNELS)
@given(
    properties=PROPERTIES,
    log=st.sampled_from([(Form(48, 8, 100), HOST), (Form(0, 20, 100), ("2001:db8::1", 80))]),
    number=st.integers(-(2**31), 2**31 - 1),
    body=st.binary(max_size=100),
)
def test_a_record_is_what_the_encoder_makes(
    module: ModuleType,
    properties: str,
    log: tuple[Form, tuple[str, int]],
    number: int,
    body: bytes,
) -> None:
    form, host = log
    rules, records, born_host = SentProperties("c"), RemotingRecords(form), encode_host(host)
    request = SendRequest("g", "t", "", 0, 0, 0, number << 20, number, "", 3, False, None, False)
    head = records.head(born_host)

    made = module.send_record(
        head, form.entry_header_size, 5, number, records.flags(request, born_host), number << 20, 3,
        memoryview(body), b"\x01t", properties.encode(), *rules.for_kernel, crc32,
    )  # fmt: skip

    plain = rules.plain(properties)
    if made is None:
        is_odd = properties.startswith("\x02") or "\x02\x02" in properties
        assert plain is None or is_odd or properties.count("WAIT\x01") > 1
        return
    assert plain is not None
    expected = records.one(
        request, body, topic=b"t", queue_id=5, properties=plain, born_host=born_host
    )
    assert bytes(made) == b"".join(expected.parts)


@pytest.mark.parametrize("module", KERNELS)
def test_properties_that_are_too_long_are_left_to_others(module: ModuleType) -> None:
    rules, records = SentProperties("c"), RemotingRecords(Form(48, 8, 100))
    born_host = encode_host(HOST)
    added = len(rules.plain("") or b"")
    for size, is_made in ((32_767 - added - 1, True), (32_767 - added, False)):
        properties = b"A\x01" + b"b" * (size - 2)
        made = module.send_record(
            records.head(born_host), 48, 0, 0, 0, 0, 0, memoryview(b""), b"\x01t", properties,
            *rules.for_kernel, crc32,
        )  # fmt: skip

        assert (made is not None) == is_made
        if not is_made:
            with pytest.raises(LedgerError, match="properties are too large"):
                rules.plain(properties.decode())
