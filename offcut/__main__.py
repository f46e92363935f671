"""`python -m offcut`, and the script that is installed: the command `offcut`, or what it lacks to run."""

import sys

from offcut.core.extras import base_imports
from offcut.errors import TargetError


def main() -> None:
    """Run the command; exit with 2 where a package that it needs is not installed."""
    try:
        with base_imports("the command offcut"):
            from offcut import cli
    except TargetError as refused:
        sys.stderr.write(f"{refused}\n")
        sys.exit(2)
    cli.main()


if __name__ == "__main__":
    main()
