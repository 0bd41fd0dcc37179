"""What a worker is given to read, and the batches of a chunk as kernels see them."""
