"""Users: keys, addresses, rights, sealed secrets."""
