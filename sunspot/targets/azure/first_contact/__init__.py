"""A first contact with Azure: the smallest cluster, what no test could decide, and it is gone.

`sunspot doctor --first-contact`. Nothing of this is loaded by another command.
"""

from sunspot.targets.azure.first_contact.contact import prepared

__all__ = ["prepared"]
