"""What stands for Pulumi's Kubernetes provider, which only its download site has."""
