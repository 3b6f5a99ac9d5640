"""What the broker promises, without I/O: topics, groups, offsets, holds."""
