"""A stack on AKS: what `pulumi up` makes of a stack file whose target is Kubernetes."""
