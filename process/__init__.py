"""What every process of a node needs: loop, clock, log lines, settings, keys, client sockets."""
