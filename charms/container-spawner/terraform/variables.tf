variable "model_uuid" {
  description = "UUID of the model to deploy to."
  type        = string
}

variable "app_name" {
  description = "Name of the application in the model."
  type        = string
  default     = "container-spawner"
}

variable "channel" {
  description = "Channel of the charm on Charmhub."
  type        = string
  default     = "latest/edge"
}

variable "revision" {
  description = "Revision of the charm; the newest of the channel when null."
  type        = number
  default     = null
}

variable "base" {
  description = "Operating system of the units' machines."
  type        = string
  default     = "ubuntu@24.04"
}

variable "units" {
  description = "Number of units, which share the load."
  type        = number
  default     = 1
}

variable "machines" {
  description = "IDs of machines to place one unit on each, in place of units on new machines."
  type        = set(string)
  default     = null
}

variable "constraints" {
  description = "Constraints of the units' machines."
  type        = string
  default     = "cores=2 mem=4G"
}

variable "config" {
  description = "Options of the charm. An option of type secret takes the URI of a secret that the application was granted."
  type        = map(string)
  default     = {}
}
