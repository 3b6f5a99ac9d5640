"""``ledgermq spark``: its jobs and their options."""
