"""systemd: sockets that it holds, its journal, its programs."""
