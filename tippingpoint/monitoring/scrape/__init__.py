"""What Prometheus is to scrape, and from whom it learns of it."""
