output "app_name" {
  description = "Name of the deployed application."
  value       = juju_application.metrics_collector.name
}

output "provides" {
  description = "Endpoints that the application provides."
  value = {
    receive_remote_write = "receive-remote-write"
    metrics_endpoint     = "metrics-endpoint"
    grafana_dashboard    = "grafana-dashboard"
  }
}

output "requires" {
  description = "Endpoints that the application requires."
  value = {
    scale_run       = "scale-run"
    metrics         = "metrics"
    prometheus_api  = "prometheus-api"
    certificates    = "certificates"
    charm_tracing   = "charm-tracing"
    receive_ca_cert = "receive-ca-cert"
  }
}
