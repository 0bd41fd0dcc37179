"""One module a command of the console script."""
