"""Tables of RocketMQ's as they are met are read as RocketMQ reads them."""

from __future__ import annotations

import pytest

from tests.compat.table_texts import ours
from tests.table_forms import FORMS, Form


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_a_form_is_read_as_rocketmq_reads_it(form: Form) -> None:
    assert ours(form.kind, form.text) == form.read
