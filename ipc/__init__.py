"""How our processes talk on one machine: cursor page, append ring, sockets, doorbells."""
