resource "juju_application" "load_claimer" {
  name        = var.app_name
  model_uuid  = var.model_uuid
  units       = var.machines == null ? var.units : null
  machines    = var.machines
  constraints = var.constraints
  config      = var.config

  charm {
    name     = "load-claimer"
    channel  = var.channel
    revision = var.revision
    base     = var.base
  }
}
