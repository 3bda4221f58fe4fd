output "app_name" {
  description = "Name of the deployed application."
  value       = juju_application.load_claimer.name
}

output "provides" {
  description = "Endpoints that the application provides."
  value = {
    scale_run         = "scale-run"
    metrics_endpoint  = "metrics-endpoint"
    cos_agent         = "cos-agent"
    grafana_dashboard = "grafana-dashboard"
  }
}

output "requires" {
  description = "Endpoints that the application requires."
  value = {
    controller           = "controller"
    controller_http      = "controller-http"
    lxd                  = "lxd"
    identity_credentials = "identity-credentials"
    etcd                 = "etcd"
    etcd_client          = "etcd-client"
    prometheus_api       = "prometheus-api"
    charm_tracing        = "charm-tracing"
    receive_ca_cert      = "receive-ca-cert"
  }
}
