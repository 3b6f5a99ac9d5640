"""Bare roots, each with a checkout, for what somebody does who has just cloned it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest

from tests.bare.bare_root import SUITES, BareRoot, Suite, why_not

SHORT = "trixie"
"""The suite of the short form: the newest Debian, which is seldom that of the machine."""


@pytest.fixture(scope="module", params=SUITES, ids=[suite.name for suite in SUITES])
def suite(request: pytest.FixtureRequest) -> Suite:
    """A suite; left out unless LEDGERMQ_BARE=1, and all but one unless LEDGERMQ_BARE_LONG=1."""
    chosen: Suite = request.param
    if os.environ.get("LEDGERMQ_BARE") != "1":
        pytest.skip("installs in bare roots: make check-bare")
    if chosen.name != SHORT and os.environ.get("LEDGERMQ_BARE_LONG") != "1":
        pytest.skip("only with LEDGERMQ_BARE_LONG=1")
    reason = why_not(chosen)
    if reason and chosen.title.startswith("Debian"):
        pytest.fail(f"LEDGERMQ_BARE=1, and yet: {reason}")
    if reason:
        pytest.skip(reason)
    return chosen


@pytest.fixture(scope="module")
def bare_root(
    suite: Suite, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BareRoot]:
    """A root of ``suite`` with a checkout that nobody has typed anything in.

    What was changed in it is kept until the next run where something has failed.
    """
    folder = tmp_path_factory.mktemp(suite.name)
    failed_before = request.session.testsfailed
    yield BareRoot(folder, suite)
    if request.session.testsfailed == failed_before:
        shutil.rmtree(folder, ignore_errors=True)
