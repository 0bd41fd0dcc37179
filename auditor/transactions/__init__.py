"""Transactions: one record of each, made once after the replay and read everywhere."""
