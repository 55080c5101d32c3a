"""`python -m sunspot.cli`: the command, where its script is not on the PATH."""

from sunspot.cli import main

main()
