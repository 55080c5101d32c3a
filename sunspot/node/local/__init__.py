"""The code of a local cluster's nodes, which are processes of this machine."""
