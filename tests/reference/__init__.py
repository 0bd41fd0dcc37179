"""The reference for what no log can hold: what brokers, coordinators and clients do with requests.

Requests and their refusals, InitProducerId's table, appends of several batches with what is pending of them,
verification with the coordinator, the record sets that producers send, what a client does with an answer, and what the
map in a broker's memory does on restart and truncation. No audit comes here: the conformance cases judge it, random
cases hold it against Kafka's own classes, and other programs may call it. What a log shows too is decided where audits
run, in the modules of :mod:`auditor.model`: the ones here call those, never the other way round.
"""
