"""`python -m offcut`: the command `offcut`."""

from offcut.cli import main

if __name__ == "__main__":
    main()
