"""What all tests here have."""

from tests.unit.store.closed_files import closed_files

__all__ = ["closed_files"]
