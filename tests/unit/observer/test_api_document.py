"""The OpenAPI document: valid, whole, and of the same rows as the routes."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from openapi_spec_validator import validate

from ledgermq.observer.api.call_rows import CALLS, PREFIX, ApiCall
from ledgermq.observer.api.document import REFUSALS, STATUSES, document


@pytest.fixture(scope="module")
def made() -> Any:
    return json.loads(json.dumps(document(CALLS)))


def test_the_document_is_one_of_openapi_3_1(made: Any) -> None:
    validate(made)

    assert made["openapi"] == "3.1.0"


def test_it_has_every_call_and_no_other(made: Any) -> None:
    told = {
        (method.upper(), path, operation["operationId"])
        for path, operations in made["paths"].items()
        for method, operation in operations.items()
    }

    assert told == {(call.method, PREFIX + call.path, call.name) for call in CALLS}
    assert len({call.name for call in CALLS}) == len(CALLS)


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.name)
def test_what_is_in_braces_is_a_field_of_the_path(call: ApiCall) -> None:
    assert re.findall(r"{(\w+)}", call.path) == [field.name for field in call.path_fields]
    assert call.changes or not call.body


def test_it_tells_of_every_status_that_a_refusal_may_have(made: Any) -> None:
    may_be = {str(status.value) for status in STATUSES.values()} - {"500"}

    assert may_be <= REFUSALS.keys()
    for operations in made["paths"].values():
        for operation in operations.values():
            assert REFUSALS.keys() <= operation["responses"].keys()
