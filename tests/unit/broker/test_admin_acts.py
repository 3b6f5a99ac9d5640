"""Lines about what admins do: none is missing, and nobody drowns them."""

from __future__ import annotations

import logging

import pytest

from ledgermq.broker.call_rights import act_of, audit
from ledgermq.model.errors import NoPermissionError
from ledgermq.sessions.refusal_lines import LINES_MAX


def test_all_that_is_done_has_a_line_and_of_what_is_refused_a_few_of_each(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "ledgermq.audit")
    refused = NoPermissionError("only an admin may")
    for number in range(1_000):
        audit(act_of("from 192.0.2.9", "acl_set", {"user": f"u{number}"}), refused)
        audit(act_of("operator (uid 0)", "acl_set", {"user": "orders"}), None)
    audit(act_of("from 192.0.2.1", "acl_set", {"user": "x"}), refused)
    told = [(record.__dict__["who"], record.__dict__["outcome"]) for record in caplog.records]

    assert told.count(("operator (uid 0)", "done")) == 1_000
    assert told.count(("from 192.0.2.9", "refused")) == LINES_MAX
    assert told[-1] == ("from 192.0.2.1", "refused")
    assert int(caplog.records[-1].__dict__["untold"]) >= 1_000 - LINES_MAX
