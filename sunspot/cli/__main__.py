"""`python -m sunspot.cli`: the command, for when its script is not on the PATH."""

from sunspot.cli import main

main()
