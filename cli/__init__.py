"""The `ledgermq` command."""
