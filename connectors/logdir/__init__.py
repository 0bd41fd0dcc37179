"""Log directories and copies of them: their files, their brokers, and which parts are read."""
