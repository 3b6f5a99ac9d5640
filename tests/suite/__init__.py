"""How the suite itself runs: order, progress, space, what it says at its end."""
