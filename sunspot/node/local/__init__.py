"""What runs on the nodes of a local cluster: processes of this machine."""
