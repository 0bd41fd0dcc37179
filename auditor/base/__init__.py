"""What everything rests on: errors as values, limits, how kernels are compiled. Imports nothing of ours."""
