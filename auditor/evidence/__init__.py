"""What the input can prove: what time it is, how complete a log is, which copy counts, what absence and clocks explain.

Times that brokers wrote are compared here and nowhere else.
"""
