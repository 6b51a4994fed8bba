"""`python -m keyrange`: the command line, where the directory of scripts is not on PATH."""

from keyrange.cli.main import main

if __name__ == "__main__":
    main()
