"""What a segment comes to by itself: headers, indexes, checksums, records, what a recovery would meet."""
