"""What runs on a node that is a virtual machine of Azure."""
