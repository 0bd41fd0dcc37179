"""Local paths and object stores: listing, reading, retrying, and writing results."""
