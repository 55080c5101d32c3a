"""Imports the package of the same name when something of it is used.

It comes with Jupyter. Ray's copy of tabulate imports it wherever it is installed; 59 ms
(wcwidth 0.9.4).
"""

from sunspot_deferred import attributes_of, folders_of

__path__ = folders_of(__name__)
__getattr__ = attributes_of(__name__)
