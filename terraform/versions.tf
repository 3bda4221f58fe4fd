terraform {
  required_version = ">= 1.11" # for write-only arguments, which keep secrets out of the state
  required_providers {
    juju = {
      source  = "juju/juju"
      version = ">= 2.2, < 3"
    }
  }
}
