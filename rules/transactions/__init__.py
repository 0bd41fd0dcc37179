"""Transactions for several rules: matching of markers, open transactions, blocked readers, safe actions."""
