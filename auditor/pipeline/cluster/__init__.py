"""What is known of a cluster beyond a single log: settings, moments, who led, which policy each broker worked under."""
