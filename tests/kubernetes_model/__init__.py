"""What stands for Pulumi's Kubernetes provider, which cannot be had without its download site."""
