variable "model_uuid" {
  description = "UUID of the model to deploy to."
  type        = string
}

variable "overlays" {
  description = "Overlays of bundles/overlays to deploy with, such as lxd or cos. A later one wins over an earlier one."
  type        = list(string)
  default     = []
}

variable "channel" {
  description = "Channel of our three charms on Charmhub."
  type        = string
  default     = "latest/edge"
}

variable "revisions" {
  description = "Revision of a charm by its name; the newest of the channel where it is not given."
  type        = map(number)
  default     = {}
}

variable "units" {
  description = "Number of units by application, in place of the bundle's, such as {load-claimer = 4}."
  type        = map(number)
  default     = {}
}

variable "constraints" {
  description = "Constraints by application, in place of the bundle's."
  type        = map(string)
  default     = {}
}

variable "config" {
  description = "Options by application, besides the bundle's, such as {load-claimer = {target = \"etcd\"}}."
  type        = map(map(string))
  default     = {}
}

variable "offers" {
  description = "URL of an offer by the name that an overlay gives it, in place of the overlay's."
  type        = map(string)
  default     = {}
}

variable "secrets" {
  description = <<-EOT
    Values of secret options by application and option, such as
    {"load-claimer" = {credentials = {user = "admin", password = "..."}}}. They reach the model and no state or plan.
  EOT
  type        = map(map(map(string)))
  default     = {}
  ephemeral   = true
}

variable "secret_versions" {
  description = <<-EOT
    Which of the secrets there are, and the version of each, such as {"load-claimer" = {credentials = 1}}. A secret's
    new value is taken when its version goes up.
  EOT
  type        = map(map(number))
  default     = {}
}
