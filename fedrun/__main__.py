"""``python -m fedrun``: the command line where the ``fedrun`` command is not on the path."""

from fedrun.cli.main import main

main()
