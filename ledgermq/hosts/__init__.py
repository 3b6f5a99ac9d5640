"""Hosts by name: what a name stands for, asked of the system's resolver beside all other work."""
