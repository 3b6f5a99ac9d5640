"""Measures what a node needs of its host, its disk and its group (``ledgermq doctor``)."""
