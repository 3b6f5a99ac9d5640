"""What commands print: one document or a text, and times."""

from __future__ import annotations

import argparse

import pytest

from ledgermq.cli.output import tell, time_text, when


@pytest.mark.parametrize(
    ("as_json", "told"), [(True, '{"deleted": "orders"}\n'), (False, "orders: deleted\n")]
)
def test_a_command_prints_its_document_or_its_text(
    capsys: pytest.CaptureFixture[str], as_json: bool, told: str
) -> None:
    arguments = argparse.Namespace(json=as_json)

    texts = ("orders: deleted", lambda: print("orders: deleted"))
    statuses = [tell(arguments, {"deleted": "orders"}, text) for text in texts]

    assert statuses == [0, 0]
    assert capsys.readouterr().out == told * 2


def test_a_time_is_shown_in_utc_and_as_a_number_where_no_calendar_has_it() -> None:
    assert time_text(1_700_000_000_123) == "2023-11-14T22:13:20.123+00:00"
    assert time_text(1_700_000_000_123, unit="seconds") == "2023-11-14T22:13:20+00:00"
    assert time_text(2**62) == str(2**62)
    assert when(None) == "-"
