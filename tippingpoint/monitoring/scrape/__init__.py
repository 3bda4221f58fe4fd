"""What Prometheus should scrape, and where it finds that out."""
