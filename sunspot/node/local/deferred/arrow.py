"""Imports the package of the same name when something of it is used.

It comes with Jupyter, by isoduration, which jsonschema imports wherever it is installed; 39 ms
(arrow 1.4.0).
"""

from sunspot_deferred import attributes_of, folders_of

__path__ = folders_of(__name__)
__getattr__ = attributes_of(__name__)
