output "applications" {
  description = "Names of the deployed applications."
  value       = local.deployed
}

output "relations" {
  description = "The relations of the model, each as two endpoints; the end of an offer has the name of the overlay."
  value       = keys(local.relations)
}
