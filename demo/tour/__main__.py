"""``python -m demo.tour``."""

import sys

from demo.tour.tour import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
