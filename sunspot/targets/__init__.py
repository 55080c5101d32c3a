"""The targets that a cluster can run on, each a package behind the `Target` protocol."""
