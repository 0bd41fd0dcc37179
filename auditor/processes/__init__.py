"""Work in processes apart, since compiled code may die of a file: the pool, its workers, what they have in common."""
