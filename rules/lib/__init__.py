"""Terms that several rules share: limits of cleaning, comparison of replicas, repairs of brokers and replicas."""
