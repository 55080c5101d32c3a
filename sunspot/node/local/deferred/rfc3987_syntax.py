"""Imports the package of the same name when it is called.

The package builds a grammar when it is imported, 1.7 s of CPU (1.1.0). It comes with Jupyter;
jsonschema imports it wherever it is installed (jsonschema/_format.py): a cluster came up in 17 to
28 s instead of 6.
"""

from sunspot_deferred import attributes_of, folders_of, package

__path__ = folders_of(__name__)
__getattr__ = attributes_of(__name__)


def is_valid_syntax(term: str, value: str) -> bool:
    """Whether a value is of a term of RFC 3987: the one function that jsonschema imports."""
    return package(__name__).is_valid_syntax(term, value)
