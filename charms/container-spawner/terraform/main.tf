resource "juju_application" "container_spawner" {
  name        = var.app_name
  model_uuid  = var.model_uuid
  units       = var.machines == null ? var.units : null
  machines    = var.machines
  constraints = var.constraints
  config      = var.config

  charm {
    name     = "container-spawner"
    channel  = var.channel
    revision = var.revision
    base     = var.base
  }
}
