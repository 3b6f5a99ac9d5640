"""The simulated machine: clock, disk, network, processes, connections."""
