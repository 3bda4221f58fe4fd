# What is planned equals the bundle with its overlays. No controller is asked: the provider is a mock.
mock_provider "juju" {}

variables {
  model_uuid = "11111111-2222-4333-8444-555555555555"
}

run "the_bundle_alone" {
  command = apply
  assert {
    condition     = toset(keys(output.applications)) == toset(keys(yamldecode(file("../bundles/scale.yaml")).applications))
    error_message = "other applications than the bundle's"
  }
  assert {
    condition     = toset(output.relations) == toset([for ends in yamldecode(file("../bundles/scale.yaml")).relations : join(" ", ends)])
    error_message = "other relations than the bundle's"
  }
  assert {
    condition     = module.load_claimer.app_name == "load-claimer" && length(juju_application.others) == 0
    error_message = "an application of others"
  }
}

run "every_overlay_together" {
  command = apply
  variables {
    overlays = ["juju", "lxd", "etcd", "openstack", "pacemaker", "maas", "cos"]
    units    = { load-claimer = 4 }
    config   = { load-claimer = { target = "juju" } }
    offers   = { keystone = "admin/cloud.keystone" }
  }
  assert {
    condition = toset(output.relations) == toset(flatten([
      for file in concat(["../bundles/scale.yaml"], [for name in var.overlays : "../bundles/overlays/${name}.yaml"]) : [
        for ends in try(yamldecode(file(file)).relations, []) : join(" ", ends)
      ]
    ]))
    error_message = "other relations than the bundle's with its overlays"
  }
  assert {
    condition     = toset(keys(juju_application.others)) == toset(["lxd", "etcd", "easyrsa", "opentelemetry-collector"])
    error_message = "other applications than the overlays'"
  }
  assert {
    condition     = juju_application.others["lxd"].units == 3 && juju_application.others["lxd"].config["lxd-listen-https"] == "true"
    error_message = "lxd is not as its overlay says"
  }
  assert {
    condition     = length(juju_machine.this) == 3
    error_message = "not the machines of maas.yaml"
  }
  assert {
    condition     = one([for end in juju_integration.this["container-spawner:identity-credentials keystone:identity-credentials"].application : end.offer_url if end.offer_url != null]) == "admin/cloud.keystone"
    error_message = "not the offer that was given"
  }
}

run "secrets_reach_options_and_no_state" {
  command = apply
  variables {
    secrets         = { load-claimer = { credentials = { user = "admin", password = "hidden" } } }
    secret_versions = { load-claimer = { credentials = 1 } }
  }
  assert {
    condition     = juju_access_secret.this["load-claimer credentials"].applications == toset(["load-claimer"])
    error_message = "the secret is not granted to its application"
  }
  assert {
    condition     = juju_secret.this["load-claimer credentials"].value_wo == null
    error_message = "the secret's value is in the state"
  }
}
