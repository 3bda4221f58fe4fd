"""What Prometheus has of a target: the query packs, scrape jobs, rules and dashboards."""
