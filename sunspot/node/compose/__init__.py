"""What runs only in containers of a cluster in Docker Compose."""
