"""Nodes of real processes, as ``tests/process`` has them; failed checks show both sides."""

import pytest

from tests.process.conftest import make_node

__all__ = ["make_node"]

pytest.register_assert_rewrite("tests.compat.dump_checks", "tests.compat.varied_load")
