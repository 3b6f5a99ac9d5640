"""Java's properties text, by the rules of ``java.util.Properties.load``."""

from __future__ import annotations

import pytest

from ledgermq.model.config.broker_conf import Property, read_properties


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1", Property(1, "a", "1")),
        ("\n  a : 1 ", Property(2, "a", "1 ")),
        ("a 1", Property(1, "a", "1")),
        ("a", Property(1, "a", "")),
        ("# b=2\n! c=3\na==1", Property(3, "a", "=1")),
        ("a=1;\\\n    2", Property(1, "a", "1;2")),
        ("a=C\\:\\\\x", Property(1, "a", "C:\\x")),
        ("a=\\u0416\\t.", Property(1, "a", "Ж\t.")),
        ("a=1\r\n\r\n", Property(1, "a", "1")),
        ("a=1\na=2", Property(2, "a", "2")),
        ("a=1\\", Property(1, "a", "1")),
    ],
)
def test_an_entry_is_read_as_java_reads_it(text: str, expected: Property) -> None:
    assert read_properties(text) == {"a": expected}


def test_an_escaped_separator_belongs_to_the_key() -> None:
    assert read_properties("a\\=b\\ c = 1") == {"a=b c": Property(1, "a=b c", "1")}
