"""The replay of batches: what the model answers to each, under the broker's policy and under others."""
