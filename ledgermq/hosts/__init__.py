"""Hosts by name, asked of the system's resolver beside all other work; bells that wake a thread."""
