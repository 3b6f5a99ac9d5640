"""The kernel of headers, compiled and plain, against the JSON decoder of the standard library."""

from __future__ import annotations

import json
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgermq.formats.kernels import kernel

KERNELS = [kernel, kernel.load_plain("ledgermq.formats.kernels._headers")]
NUMBERS = ("code", "opaque", "flag", "version")
JAVA = (
    b'{"code":310,"extFields":{"a":"producers","b":"orders","i":"KEYS\\u0001k\\u0002TAGS\\u0001t"},'
    b'"flag":0,"language":"JAVA","opaque":7,"serializeTypeCurrentRPC":"JSON","version":401}'
)
"""As RocketMQ 4.9.4 writes it."""

TEXTS = st.text(max_size=9) | st.text(st.characters(codec="ascii"), max_size=9)
HEADERS = st.fixed_dictionaries(
    {},
    optional={
        **{name: st.integers(-(2**31) - 1, 2**31) for name in NUMBERS},
        "language": TEXTS | st.none() | st.integers(),
        "serializeTypeCurrentRPC": TEXTS,
        "remark": TEXTS | st.none(),
        "extFields": st.dictionaries(TEXTS, TEXTS | st.integers() | st.none(), max_size=4),
        "more": TEXTS,
    },
)


def check(module: ModuleType, header: bytes) -> bool:
    """Whether the header is read; what it says is what JSON says then."""
    found = module.scan_header(memoryview(b"x" + header + b"}"), 1, 1 + len(header))
    if found is None:
        return False
    told = json.loads(header)
    numbers = {name: told.pop(name, 0) for name in NUMBERS}
    code, opaque, fields, flag, remark, language, version = found

    assert numbers == {"code": code, "opaque": opaque, "flag": flag, "version": version}
    assert (told.pop("extFields", {}), told.pop("remark", None)) == (fields, remark)
    assert told.pop("language", None) == language
    assert told.keys() <= {"serializeTypeCurrentRPC"}
    return True


@pytest.mark.parametrize("module", KERNELS)
def test_a_header_of_javas_is_read_with_its_escapes(module: ModuleType) -> None:
    assert check(module, JAVA)

    fields = module.scan_header(memoryview(JAVA), 0, len(JAVA))[2]

    assert fields == {"a": "producers", "b": "orders", "i": "KEYS\1k\2TAGS\1t"}


@pytest.mark.parametrize("module", KERNELS)
@pytest.mark.parametrize(
    ("header", "is_read"),
    [
        (b'{"code":0}', True),
        (b'{"code":-2147483648,"flag":2147483647,"extFields":{}}', True),
        (rb'{"remark":"\"\\\/\b\f\n\r\t\u0000\u007F\u002f"}', True),
        (b"{}", False),
        (b'{"code":2147483648}', False),
        (b'{"code":01}', False),
        (b'{"code":-}', False),
        (b'{"code":1.5}', False),
        (b'{"code":true}', False),
        (b'{"code":"1"}', False),
        (b'{"code":1,"code":2}', False),
        (b'{"code": 1}', False),
        (b'{"code":1,}', False),
        (b'{"code":1}}', False),
        (b'{"code":1', False),
        (b'{"other":1}', False),
        (b'{"extFields":{"a":1}}', False),
        (b'{"extFields":{"a":"b",}}', False),
        (b'{"extFields":{"a"}}', False),
        (b'{"extFields":{', False),
        (b'{"extFields":', False),
        (b'{"remark":null}', False),
        (b'{"remark":"\xc3\xa4"}', False),
        (b'{"remark":"\x01"}', False),
        (b'{"remark":"\\u0080"}', False),
        (b'{"remark":"\\u00g1"}', False),
        (b'{"remark":"\\x"}', False),
        (b'{"remark":"\\', False),
        (b'{"remark":"', False),
        (b'{"', False),
        (b"{", False),
        (b"", False),
    ],
)
def test_what_is_not_regular_is_left_to_another_decoder(
    module: ModuleType, header: bytes, is_read: bool
) -> None:
    assert check(module, header) == is_read


@given(HEADERS, st.booleans(), st.sampled_from([(",", ":"), (", ", ": ")]))
def test_what_is_read_is_what_json_says(
    header: dict[str, object], is_ascii: bool, separators: tuple[str, str]
) -> None:
    data = json.dumps(header, separators=separators, ensure_ascii=is_ascii).encode(errors="replace")

    assert len({check(module, data) for module in KERNELS}) == 1


@given(st.data())
def test_no_byte_that_is_another_makes_it_say_something_else(data: st.DataObject) -> None:
    changed = bytearray(JAVA)
    for _ in range(data.draw(st.integers(1, 3))):
        changed[data.draw(st.integers(0, len(JAVA) - 1))] = data.draw(
            st.integers(0, 255) | st.sampled_from(b'{}",:\\u0')
        )
    cut = bytes(changed[: data.draw(st.integers(0, len(JAVA)))])

    assert len({check(module, bytes(changed)) for module in KERNELS}) == 1
    assert len({check(module, cut) for module in KERNELS}) == 1
