"""The whole group in one process, one seed a run: real workers; fake network, disk and clock."""
