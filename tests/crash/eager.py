"""The broker, looking every moment for segments that it can free, so that this happens in lives as short as these."""

from headway.cli import main
from headway.server.journal import keeper

assert keeper.TIDY_EVERY_S
keeper.TIDY_EVERY_S = 0.1

if __name__ == "__main__":
    main()
