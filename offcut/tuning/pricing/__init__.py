"""What search goes by: predicted seconds of schedules."""
