"""Query packs, scrape jobs, alert rules and dashboards, for figures of a target from Prometheus."""
