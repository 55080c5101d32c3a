"""The places where a cluster can run, each a package behind the `Target` protocol."""
