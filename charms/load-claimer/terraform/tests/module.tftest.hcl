# What is planned with the defaults, and with each variable. No controller is asked: the provider is a mock.
mock_provider "juju" {}

variables {
  model_uuid = "11111111-2222-4333-8444-555555555555"
}

run "with_the_defaults" {
  assert {
    condition     = juju_application.load_claimer.name == "load-claimer" && juju_application.load_claimer.charm[0].name == "load-claimer"
    error_message = "not the charm under its own name"
  }
  assert {
    condition     = juju_application.load_claimer.charm[0].base == "ubuntu@24.04" && juju_application.load_claimer.units == 1
    error_message = "not one unit on 24.04"
  }
  assert {
    condition     = output.app_name == "load-claimer" && output.provides != null && output.requires.prometheus_api == "prometheus-api"
    error_message = "other outputs than the application's"
  }
}

run "with_every_variable" {
  variables {
    app_name    = "other"
    channel     = "latest/stable"
    revision    = 7
    base        = "ubuntu@26.04"
    units       = 3
    constraints = "cores=8 mem=16G"
    config      = { target = "etcd" }
  }
  assert {
    condition     = output.app_name == "other" && juju_application.load_claimer.units == 3
    error_message = "another name or number of units"
  }
  assert {
    condition     = juju_application.load_claimer.charm[0].revision == 7 && juju_application.load_claimer.charm[0].channel == "latest/stable"
    error_message = "another revision or channel"
  }
  assert {
    condition     = juju_application.load_claimer.charm[0].base == "ubuntu@26.04" && juju_application.load_claimer.constraints == "cores=8 mem=16G"
    error_message = "another base or other constraints"
  }
  assert {
    condition     = juju_application.load_claimer.config == tomap({ target = "etcd" })
    error_message = "other options"
  }
}

run "on_machines_that_are_there" {
  variables {
    machines = ["4", "5"]
    units    = 3 # the machines say how many
  }
  assert {
    condition     = juju_application.load_claimer.machines == toset(["4", "5"])
    error_message = "other machines"
  }
}
