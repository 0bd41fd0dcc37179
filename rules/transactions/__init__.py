"""What several rules ask of transactions: whose a marker is, which are open, who holds readers back, what is safe."""
