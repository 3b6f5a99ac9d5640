"""Fields are texts: what Java's parsers take is taken, and the rest is named."""

from __future__ import annotations

import pytest

from ledgermq.model.errors import ProtocolError
from ledgermq.remoting.fields import flag, int32, int64, text


@pytest.mark.parametrize(("value", "number"), [("0", 0), ("-1", -1), ("+7", 7), ("007", 7)])
def test_numbers_are_those_of_java(value: str, number: int) -> None:
    assert int32({"n": value}, "n") == number
    assert int64({"n": value}, "n") == number


@pytest.mark.parametrize("value", ["", "-", "1_0", " 1", "1.0", "0x1", "²", "٣", "9" * 30])
def test_what_is_no_number_is_named(value: str) -> None:
    with pytest.raises(ProtocolError) as refused:
        int64({"n": value}, "n")

    assert refused.value.details["field"] == "n"
    assert refused.value.details["value"] == value


def test_a_number_has_the_range_of_its_type() -> None:
    assert int32({"n": "-2147483648"}, "n") == -(2**31)
    assert int64({"n": "9223372036854775807"}, "n") == 2**63 - 1
    with pytest.raises(ProtocolError, match="too large"):
        int32({"n": "2147483648"}, "n")


def test_what_is_missing_has_a_default_or_is_named() -> None:
    assert int32({}, "n", 4) == 4
    for read in (int32, int64, text):
        with pytest.raises(ProtocolError, match="missing"):
            read({"m": "1"}, "n")


@pytest.mark.parametrize(("value", "is_true"), [("true", True), ("TRUE", True), ("1", False)])
def test_only_true_is_true(value: str, is_true: bool) -> None:
    assert flag({"f": value}, "f") is is_true
    assert flag({}, "f") is False
