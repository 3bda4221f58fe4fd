"""What every room may use: files, keys, durations, HTTP and words."""
