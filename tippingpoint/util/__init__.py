"""What every package may use: files, keys, durations, HTTP and words."""
