"""What a rule sees: one log with all its replicas, what the coordinators wrote, the cluster around it; and a finding's
shape."""
