"""Ray itself: its ports, its jobs, and what they need."""
