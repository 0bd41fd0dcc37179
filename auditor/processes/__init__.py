"""Work in processes apart: compiled code may die of a file, the program must not."""
