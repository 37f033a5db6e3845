"""Isolation: what do stuck subscribers cost the healthy ones, and the broker?

    python -m bench.isolation                      50 healthy, 0 and then 100 stuck, several rounds in turn
    python -m bench.isolation --healthy 100 --stuck 0,100,500 --rounds 5 --seconds 4

For each round and number of stuck subscribers a broker of its own is started on a free port of 127.0.0.1. One process
publishes as fast as the broker reads (QoS 0, batches written with ``send``), another reads the healthy subscribers'
sockets and counts bytes of whole frames. Stuck subscribers subscribe and never read. What counts are the ratios
within one run; absolute figures depend on the machine, and publisher, subscribers and broker share its cores.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing as mp
import os
import select
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from headway.wire.mqtt.client import connect, encode_publish, encode_subscribe

TOPIC = "bench/isolation"
BATCH_BYTES = 128 * 1024
CONFIG = """
[server]
admin = "http://127.0.0.1:0"
[listeners.mqtt]
url = "mqtt://127.0.0.1:0"
[pool]
memory = "{memory}"
disk = "1GB"
disk_path = "{folder}"
[[policy]]
name = "bench"
[[policy.rule]]
when = {{ blocked_time = "1s" }}
then = "notify"
{more}
"""
DISCONNECT = """[[policy.rule]]
when = { blocked_time = "2s" }
then = "disconnect"
"""


def open_client(port: int, name: str, *, subscribe: bool, version: int = 4, receive_buffer: int = 0) -> socket.socket:
    """A connected client; its answers (CONNACK, SUBACK) are read."""
    sock = socket.socket()
    if receive_buffer:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    sock.connect(("127.0.0.1", port))
    sock.sendall(connect(name, version))
    _answer(sock)
    if subscribe:
        sock.sendall(encode_subscribe(1, [TOPIC], version=version))
        _answer(sock)
    return sock


def _answer(sock: socket.socket) -> None:
    """Read one short packet and nothing behind it."""
    head = sock.recv(2, socket.MSG_WAITALL)
    sock.recv(head[1], socket.MSG_WAITALL)


def publish(port: int, payload_bytes: int, seconds: float, go: object, sent: object) -> None:
    """Publish as fast as the broker takes it, for so long."""
    frame = encode_publish(TOPIC, b"x" * payload_bytes, version=4)
    batch = frame * max(1, BATCH_BYTES // len(frame))
    sock = open_client(port, "publisher", subscribe=False)
    go.wait()
    end = time.monotonic() + seconds
    total = 0
    while time.monotonic() < end:
        sock.sendall(batch)
        total += len(batch) // len(frame)
    sent.value = total
    sock.close()


def receive(port: int, healthy: int, frame_bytes: int, go: object, stop: object, out: object) -> None:
    """Read ``healthy`` subscribers until told to stop and nothing more comes; report deliveries per second."""
    socks = [open_client(port, f"healthy-{n}", subscribe=True) for n in range(healthy)]
    poll = select.epoll()
    by_fd = {sock.fileno(): sock for sock in socks}
    taken = dict.fromkeys(by_fd, 0)
    for fd in by_fd:
        poll.register(fd, select.EPOLLIN)
    buffer = bytearray(1 << 20)
    out.put("ready")
    go.wait()
    began, at_stop = time.monotonic(), None
    while True:
        events = poll.poll(0.5)
        for fd, _ in events:
            got = by_fd[fd].recv_into(buffer)
            taken[fd] += got
            if not got:
                poll.unregister(fd)
        if stop.is_set():
            if at_stop is None:
                at_stop = (time.monotonic(), sum(taken.values()))
            if not events:
                break
    seconds = at_stop[0] - began
    out.put((at_stop[1] / frame_bytes / seconds, [count / frame_bytes for count in taken.values()]))


class Server:
    """A Headway of its own for one round."""

    def __init__(self, folder: Path, memory: str, more: str) -> None:
        config, ready = folder / "bench.toml", folder / "ready.json"
        ready.unlink(missing_ok=True)
        config.write_text(CONFIG.format(folder=folder / "spill", memory=memory, more=more))
        command = [sys.executable, "-m", "headway", "serve", "--config", str(config), "--ready-file", str(ready)]
        with (folder / "log").open("w") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=log)
        deadline = time.monotonic() + 20
        while not ready.exists():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"the broker did not start:\n{(folder / 'log').read_text()}")
            time.sleep(0.02)
        told = json.loads(ready.read_text())
        self.port = int(told["listeners"]["mqtt"].rsplit(":", 1)[1])
        self.admin = told["admin"]

    def stats(self) -> dict:
        with urllib.request.urlopen(f"{self.admin}/v1/broker", timeout=10) as answer:
            return json.load(answer)

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def one_round(args: argparse.Namespace, stuck: int) -> dict:
    """One broker, one measurement."""
    with tempfile.TemporaryDirectory() as folder:
        server = Server(Path(folder), args.memory, DISCONNECT if args.disconnect else "")
        context = mp.get_context("spawn")
        go, stop, out, sent = context.Event(), context.Event(), context.Queue(), context.Value("q", 0)
        frame_bytes = len(encode_publish(TOPIC, b"x" * args.bytes, version=4))
        reader = context.Process(target=receive, args=(server.port, args.healthy, frame_bytes, go, stop, out))
        writer = context.Process(target=publish, args=(server.port, args.bytes, args.seconds, go, sent))
        try:
            reader.start()
            assert out.get(timeout=30) == "ready"
            stuck_socks = [open_client(server.port, f"stuck-{n}", subscribe=True) for n in range(stuck)]
            idle_bytes = server.stats()["memory_rss_bytes"]
            writer.start()
            time.sleep(0.3)
            cpu = server.cpu_seconds()
            go.set()
            writer.join(args.seconds + 30)
            stop.set()
            rate, counts = out.get(timeout=60)
            reader.join(10)
            cpu = server.cpu_seconds() - cpu
            told = server.stats()
            for sock in stuck_socks:
                sock.close()
        finally:
            for process in (reader, writer):
                if process.is_alive():
                    process.kill()
            server.stop()
    return {
        "stuck": stuck, "deliveries_per_s": rate, "published_per_s": sent.value / args.seconds,
        "lost": sum(round(sent.value - count) for count in counts), "peak_bytes": told["memory_peak_bytes"],
        "idle_bytes": idle_bytes, "pool_peak_bytes": told["pools"][0]["memory_peak_bytes"],
        "disk_peak_bytes": told["pools"][0]["disk_peak_bytes"], "broker_cpu": cpu / args.seconds,
        "longest_turn_ms": told["longest_turn_ms"],
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--healthy", type=int, default=50)
    parser.add_argument("--stuck", default="0,100", help="numbers of stuck subscribers, compared with the first")
    parser.add_argument("--bytes", type=int, default=128, help="payload bytes")
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--memory", default="32MB", help="the pool's memory")
    parser.add_argument("--disconnect", action="store_true", help="disconnect who takes nothing for 2 s")
    parser.add_argument("--json", type=Path, help="write all rounds here")
    args = parser.parse_args()
    numbers = [int(n) for n in args.stuck.split(",")]
    rounds = []
    for number in range(args.rounds):
        for stuck in numbers:
            print(f"round {number + 1}/{args.rounds}, {stuck} stuck ...", file=sys.stderr, flush=True)
            rounds.append(one_round(args, stuck))
    if args.json:
        args.json.write_text(json.dumps(rounds, indent=1))
    report(args, numbers, rounds)


def report(args: argparse.Namespace, numbers: list[int], rounds: list[dict]) -> None:
    """Medians, and the ratio to the first number of stuck subscribers."""
    def middle(stuck: int, what: str) -> float:
        return statistics.median(row[what] for row in rounds if row["stuck"] == stuck)

    first = middle(numbers[0], "deliveries_per_s")
    columns = [
        ("published/s", "published_per_s", 1, 0), ("lost", "lost", 1, 0), ("peak MB", "peak_bytes", 1e6, 0),
        ("idle MB", "idle_bytes", 1e6, 0), ("disk MB", "disk_peak_bytes", 1e6, 0), ("CPU", "broker_cpu", 1, 2),
        ("turn ms", "longest_turn_ms", 1, 1),
    ]  # fmt: skip
    print(f"{args.healthy} healthy subscribers, {args.bytes} B payload, medians of {args.rounds} x {args.seconds:g} s")
    print(f"{'stuck':>6} {'deliveries/s':>14} {'ratio':>6} " + " ".join(f"{title:>11}" for title, *_ in columns))
    for stuck in numbers:
        rate = middle(stuck, "deliveries_per_s")
        rest = (f"{middle(stuck, what) / unit:>11,.{digits}f}" for _, what, unit, digits in columns)
        print(f"{stuck:>6} {rate:>14,.0f} {rate / first:>6.2f} " + " ".join(rest))


if __name__ == "__main__":
    main()
