"""Commands about a node and its group: settings, keys, service, status, doctor, demonstrations."""
