# The bundle, by Terraform: applications, options, constraints and relations are read from bundles/, so that both deploy
# the same.

locals {
  bundles  = "${path.module}/../bundles"
  layers   = [for file in concat(["scale.yaml"], [for name in var.overlays : "overlays/${name}.yaml"]) : yamldecode(file("${local.bundles}/${file}"))]
  names    = toset(flatten([for layer in local.layers : keys(try(layer.applications, {}))]))
  ours     = toset(["container-spawner", "load-claimer", "metrics-collector"])
  machines = merge([for layer in local.layers : try(layer.machines, {})]...)
  offers   = merge(concat([for layer in local.layers : { for name, offer in try(layer.saas, {}) : name => offer.url }], [var.offers])...)

  # A later layer replaces the fields of an application, and adds to its options.
  fields = { for name in local.names : name => merge([for layer in local.layers : try(layer.applications[name], {})]...) }
  applications = {
    for name in local.names : name => {
      charm       = try(local.fields[name].charm, name)
      channel     = try(local.fields[name].channel, var.channel)
      base        = try(local.fields[name].base, local.layers[0].default-base)
      units       = lookup(var.units, name, try(local.fields[name].num_units, null))
      constraints = lookup(var.constraints, name, try(local.fields[name].constraints, null))
      on          = [for machine in try(local.fields[name].to, []) : tostring(machine)]
      config = merge(concat(
        [for layer in local.layers : { for option, value in try(layer.applications[name].options, {}) : option => tostring(value) }],
        [
          lookup(var.config, name, {}),
          { for option, version in lookup(var.secret_versions, name, {}) : option => juju_secret.this["${name} ${option}"].secret_uri },
        ],
      )...)
    }
  }
  placed = { for name, application in local.applications : name => length(application.on) == 0 ? null : toset([for machine in application.on : juju_machine.this[machine].machine_id]) }
  relations = {
    for ends in concat([for layer in local.layers : try(layer.relations, [])]...) : join(" ", ends) => [
      for end in ends : { name = split(":", end)[0], endpoint = split(":", end)[1] }
    ]
  }
  secrets = merge([for name, options in var.secret_versions : { for option, version in options : "${name} ${option}" => { application = name, option = option, version = version } }]...)
  deployed = merge(
    {
      container-spawner = module.container_spawner.app_name
      load-claimer      = module.load_claimer.app_name
      metrics-collector = module.metrics_collector.app_name
    },
    { for name, application in juju_application.others : name => application.name },
  )
}

module "load_claimer" {
  source      = "../charms/load-claimer/terraform"
  model_uuid  = var.model_uuid
  channel     = var.channel
  revision    = lookup(var.revisions, "load-claimer", null)
  base        = local.applications["load-claimer"].base
  units       = local.applications["load-claimer"].units
  machines    = local.placed["load-claimer"]
  constraints = local.applications["load-claimer"].constraints
  config      = local.applications["load-claimer"].config
}

module "container_spawner" {
  source      = "../charms/container-spawner/terraform"
  model_uuid  = var.model_uuid
  channel     = var.channel
  revision    = lookup(var.revisions, "container-spawner", null)
  base        = local.applications["container-spawner"].base
  units       = local.applications["container-spawner"].units
  machines    = local.placed["container-spawner"]
  constraints = local.applications["container-spawner"].constraints
  config      = local.applications["container-spawner"].config
}

module "metrics_collector" {
  source      = "../charms/metrics-collector/terraform"
  model_uuid  = var.model_uuid
  channel     = var.channel
  revision    = lookup(var.revisions, "metrics-collector", null)
  base        = local.applications["metrics-collector"].base
  units       = local.applications["metrics-collector"].units
  machines    = local.placed["metrics-collector"]
  constraints = local.applications["metrics-collector"].constraints
  config      = local.applications["metrics-collector"].config
}

resource "juju_application" "others" {
  for_each    = { for name, application in local.applications : name => application if !contains(local.ours, name) }
  name        = each.key
  model_uuid  = var.model_uuid
  units       = each.value.units
  constraints = each.value.constraints
  config      = each.value.config

  charm {
    name     = each.value.charm
    channel  = each.value.channel
    revision = lookup(var.revisions, each.key, null)
    base     = each.value.base
  }
}

resource "juju_machine" "this" {
  for_each    = local.machines
  model_uuid  = var.model_uuid
  base        = each.value.base
  constraints = each.value.constraints
}

resource "juju_integration" "this" {
  for_each   = local.relations
  model_uuid = var.model_uuid

  dynamic "application" {
    for_each = each.value
    content {
      name      = contains(keys(local.offers), application.value.name) ? null : local.deployed[application.value.name]
      endpoint  = contains(keys(local.offers), application.value.name) ? null : application.value.endpoint
      offer_url = lookup(local.offers, application.value.name, null)
    }
  }
}

resource "juju_secret" "this" {
  for_each         = local.secrets
  model_uuid       = var.model_uuid
  name             = replace(each.key, " ", "-")
  value_wo         = var.secrets[each.value.application][each.value.option]
  value_wo_version = each.value.version
}

resource "juju_access_secret" "this" {
  for_each     = local.secrets
  model_uuid   = var.model_uuid
  secret_id    = juju_secret.this[each.key].secret_id
  applications = [local.deployed[each.value.application]]
}
