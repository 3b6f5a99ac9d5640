"""The verbs of a broker: what each takes, needs and tells, said once for all who ask and answer."""
