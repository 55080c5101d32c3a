"""Code that runs on a node that is an Azure virtual machine."""
