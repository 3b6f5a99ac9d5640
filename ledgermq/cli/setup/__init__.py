"""Commands that make what a node needs before its first start: settings, keys, users."""
