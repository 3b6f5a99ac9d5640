"""A store becomes another one: upgrade, downgrade, backup, and the manifests that compare them."""
