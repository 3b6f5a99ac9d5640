"""``ledgermq top``: the live view's figures, screen and terminal."""
