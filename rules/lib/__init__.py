"""Terms that several rules share: what cleaning may take, how replicas are compared, what may be done to a broker."""
