"""``python -m polyc``."""

from polyc.cli import main

if __name__ == "__main__":
    main()
