"""Machines whose power fails, how often, and from which seed."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator

import pytest

from tests.power.forgetful_disk import why_not
from tests.power.machines import Machine
from tests.process.conftest import nodes_made

IS_ON = os.environ.get("LEDGERMQ_POWER", "") == "1"
CUTS = int(os.environ.get("LEDGERMQ_POWER_CUTS", "3"))
SEED = int(os.environ.get("LEDGERMQ_POWER_SEED", random.randrange(2**32)))
REASON = "power failures take minutes: LEDGERMQ_POWER=1, or make check-all"

MakeMachine = Callable[[], Machine]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out what takes minutes, or cannot be here, with the reason."""
    for item in items:
        if item.get_closest_marker("power") is None:
            continue
        if why_not():
            item.add_marker(pytest.mark.skip(reason=why_not()))
        elif not IS_ON:
            item.add_marker(pytest.mark.skip(reason=REASON))


@pytest.fixture
def make_machine() -> Iterator[MakeMachine]:
    """Makes machines that do not run yet."""
    with nodes_made(Machine) as make:
        yield make


@pytest.fixture
def cuts() -> int:
    """How many power failures a test makes."""
    return CUTS


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """Of the test's chances; printed, so that a run can be had again."""
    print(f"LEDGERMQ_POWER_SEED={SEED} LEDGERMQ_POWER_CUTS={CUTS}: {request.node.nodeid}")
    return SEED
