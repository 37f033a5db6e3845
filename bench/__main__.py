"""Headway side by side with its peers.

    python -m bench all --json bench.json               every workload, every peer that is installed (an hour or two)
    python -m bench isolation --peers headway,nats      one workload, two brokers
    python -m bench fanout,latency --rounds 5 --seconds 5 --plots docs/plots
    python -m bench fanout,isolation,workqueue --peers headway-amqp,rabbitmq    both over AMQP
    python -m bench state --cases share --rounds 1      of one workload only the cases with this word in their name
    python -m bench freshness --link 1500 --peers headway    with subscribers on another host (needs root)
    python -m bench all --tiny --peers headway,limit    does everything still work? (half a minute)
    python -m bench peers                               how each peer is configured, in full, and why
    python -m bench tables bench.json                   the tables in Markdown
    python -m bench tables bench.json PAGE.md           ... put between <!-- figures --> and <!-- /figures --> on a page
    python -m bench plots bench.json docs/plots         the plots of the README

Each measurement starts a broker of its own on free ports of the loopback, with its data in a temporary folder, and ends
it. A peer that is not installed is named, with the command that installs it, and left out. How to read the figures:
docs/BENCHMARKS.md.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.errors import BenchError


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 0, 1 when a measurement failed, 2 for a mistake of the user, 130 when interrupted."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    try:
        if arguments[:1] in (["peers"], ["tables"], ["plots"]):
            return _show(arguments)
        return _bench(arguments)
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("bench: interrupted; nothing is left running", file=sys.stderr)
        return 130


def _show(arguments: list[str]) -> int:
    from bench import results
    from bench.peers.every import EVERY
    from bench.tables import insert, markdown

    match arguments:
        case ["peers"]:
            for peer in EVERY.values():
                found = "" if peer.find() else f"  (not installed: {peer.install})"
                print(f"## {peer.title}{found}\n\n{peer.settings()}\n")
                print("\n".join(f"- {reason}" for reason in peer.why) + "\n")
        case ["tables", path]:
            print(markdown(results.load(Path(path))), end="")
        case ["tables", path, page]:
            insert(markdown(results.load(Path(path))), Path(page))
        case ["plots", path, folder]:
            from bench.plots import draw

            for written in draw(results.load(Path(path)), Path(folder)):
                print(written)
        case [command, *_]:
            follows = {"peers": "", "tables": " FILE.json [PAGE.md]", "plots": " FILE.json FOLDER"}[command]
            raise BenchError(f"usage: python -m bench {command}{follows}")
    return 0


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:  # type: ignore[override]
        raise BenchError(f"{message}; see python -m bench --help")


def _bench(arguments: list[str]) -> int:
    from bench.peers.every import EVERY as PEERS
    from bench.workloads.every import EVERY as WORKLOADS

    parser = _Parser(prog="python -m bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", help=f"all, or some of: {', '.join(WORKLOADS)}")
    parser.add_argument("--peers", default="", help=f"some of: {','.join(PEERS)}")
    parser.add_argument("--cases", default="", metavar="TEXT", help="only cases with this in their name")
    parser.add_argument("--rounds", type=_more_than_none(int), default=3, help="how often all is measured in turn (3)")
    parser.add_argument("--seconds", type=_more_than_none(float), default=3.0, help="publish so long each time (3)")
    parser.add_argument("--link", type=_more_than_none(int), metavar="MTU",
                        help="subscribers of freshness are on another host, behind a link (1500: Ethernet; needs root)")
    parser.add_argument("--tiny", action="store_true", help="small sizes, one round of 0.3 s: does it work?")
    parser.add_argument("--json", type=Path, metavar="FILE", help="every round's figures go here")
    parser.add_argument("--plots", type=Path, metavar="FOLDER", help="SVG files go here")
    given = parser.parse_args(arguments)

    from bench.link import far_namespace, run_over
    from bench.session import session

    if given.link and not far_namespace():
        return run_over(given.link, arguments)

    return session(given, arguments)


def _more_than_none(kind: Callable[[str], float]) -> Callable[[str], float]:
    def number(text: str) -> float:
        found = kind(text)
        if not found > 0:
            raise ValueError
        return found

    return number


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    sys.exit(main())
