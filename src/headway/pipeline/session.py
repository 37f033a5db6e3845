"""The session: Spark, started quietly for one piece of work, and ended after it.

Theory of operation. A JVM of our own is started with the driver in it, and in the driver a Spark Connect server, which
only this machine, with a token made for the occasion, can reach. The session given out is a Connect client. So the same
code runs on ``local[*]`` and on a cluster, and pipelines (which are made for Connect) run beside ordinary jobs.

Rules:
- One at a time per process: what PySpark keeps of a session, it keeps in globals.
- What Spark prints goes to a file, unless ``verbose``. When the start fails, the line that says why is shown.
- Whatever way the block is left, the JVM has ended and the scratch folder is removed. The JVM reads from a pipe of
  ours, so it ends even if this process is killed.
- Local work listens on the loopback interface only. With a cluster the driver must be reachable for the executors;
  Spark's own settings (``conf``, SPARK_LOCAL_IP, spark-defaults.conf) decide how.
- Executors run the driver's version of Headway: the package is sent along. What it needs (``headway[spark]``) has to be
  installed there, for the Python that PYSPARK_PYTHON names. On the driver that Python finds the package in its path:
  what plans and drives a stream is started without what was sent.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, cast
from zipfile import ZipFile

import pyspark
from pyspark.conf import SparkConf
from pyspark.java_gateway import launch_gateway
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

import headway
from headway.core.base import ConfigError
from headway.pipeline.java import check_java

MEMORY = "2g"
"""The heap of the driver, which in local mode is also the executor's."""
STOP_S = 30.0
"""The longest time that a JVM may take to end before it is killed."""
RETRIES_MAX = 4
"""Retries before a driver that does not answer counts as gone: five seconds, and not PySpark's ten minutes."""
LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")

_one = threading.Lock()


@contextmanager
def open_session(
    name: str,
    *,
    master: str = "local[*]",
    memory: str = MEMORY,
    verbose: bool = False,
    home: Path | None = None,
    conf: Mapping[str, str] | None = None,
) -> Iterator[SparkSession]:
    """A quiet session of its own, always stopped.

    ``master`` is ``local[N]`` or ``spark://host:port``. ``memory`` is the driver's. ``home`` is a folder where tables
    and their catalog are kept from one session to the next; without it there is nothing to keep. ``conf`` has the last
    word on any setting.
    Raises ConfigError where there is no Java, the master cannot be had, or this process has a session already.
    """
    memory = (conf or {}).get("spark.driver.memory", memory)
    if not re.fullmatch(r"\d+[kmgt]b?", memory, re.IGNORECASE):
        raise ConfigError(f"{memory!r} is no size of memory for Java; give one such as 2g")
    check_java()
    if not _one.acquire(blocking=False):
        raise ConfigError("there is a Spark session in this process already; close it before another is opened")
    with ExitStack() as stack:
        stack.callback(_one.release)
        stack.enter_context(_terminable())
        scratch = Path(tempfile.mkdtemp(prefix="headway-spark-"))
        stack.callback(shutil.rmtree, scratch, ignore_errors=True)
        local = master.startswith("local")
        loopback = local or master.startswith(("spark://127.0.0.1:", "spark://localhost:"))
        token = secrets.token_hex(16)
        package = None if local else _package(scratch)
        stack.enter_context(_environ(package, loopback, verbose, token))
        settings = _settings(name, master, memory, loopback, verbose, home, scratch) | dict(conf or {})
        yield stack.enter_context(_connected(settings, None if verbose else scratch / "spark.log", package))


@contextmanager
def _terminable() -> Iterator[None]:
    """Has SIGTERM leave the block as Ctrl-C does, so that everything in it is closed."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _settings(
    name: str, master: str, memory: str, loopback: bool, verbose: bool, home: Path | None, scratch: Path
) -> dict[str, str]:
    java_options = [
        f'"-Dlog4j2.configurationFile={LOG_SETTINGS.as_uri()}"',
        f"-Dheadway.log={'info' if verbose else 'warn'}",
        f'"-Djava.io.tmpdir={scratch}"',
        f'"-Dderby.system.home={scratch}"',
        "-XX:-UsePerfData",
    ]
    settings = {
        "spark.app.name": name,
        "spark.master": master,
        "spark.driver.memory": memory,
        "spark.driver.extraJavaOptions": " ".join(java_options),
        "spark.local.dir": str(scratch),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
        "spark.sql.connect.serverStacktrace.enabled": str(verbose).lower(),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.python.filterPushdown.enabled": "true",  # for who asks for it: source/batch.py
        "spark.sql.warehouse.dir": f"file://{(home or scratch / 'tables').absolute()}",
    }
    if loopback:
        settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    if master.startswith("local"):
        settings["spark.sql.shuffle.partitions"] = "32"
    if home is not None:
        settings |= {
            "spark.sql.catalogImplementation": "hive",
            "spark.hadoop.javax.jdo.option.ConnectionURL": (
                f"jdbc:derby:;databaseName={(home / '_catalog').absolute()};create=true"
            ),
        }
    return settings


@contextmanager
def _environ(package: Path | None, loopback: bool, verbose: bool, token: str) -> Iterator[None]:
    """Sets what PySpark and its JVM take from the environment, for as long as the session lives."""
    wanted = {
        "SPARK_HOME": str(Path(pyspark.__file__).parent),  # not another Spark that happens to be installed
        "SPARK_CONNECT_AUTHENTICATE_TOKEN": token,
        "SPARK_CONNECT_MODE_ENABLED": "1",
        "PYSPARK_PYTHON": sys.executable,
        "LC_ALL": "C.UTF-8",  # names of files as Python has them
    }
    if package is not None:
        wanted["PYSPARK_PYTHON"] = os.environ.get("PYSPARK_PYTHON", sys.executable)
        wanted["PYTHONPATH"] = os.pathsep.join(filter(None, (str(package), os.environ.get("PYTHONPATH"))))
    if loopback:
        wanted["SPARK_LOCAL_IP"] = "127.0.0.1"
    if not verbose:
        wanted["GRPC_VERBOSITY"] = "NONE"
    before = {key: os.environ.get(key) for key in (*wanted, "SPARK_REMOTE")}
    os.environ.pop("SPARK_REMOTE", None)
    os.environ.update(wanted)
    try:
        yield
    finally:
        for key, value in before.items():
            if value is None:
                os.environ.pop(key, None)
            else:
                os.environ[key] = value


@contextmanager
def _connected(settings: Mapping[str, str], log: Path | None, package: Path | None) -> Iterator[SparkSession]:
    """Starts the JVM and the driver in it, and connects to it; ends it after the block."""
    from pyspark.sql.connect.client.retries import DefaultPolicy
    from pyspark.sql.connect.session import SparkSession as ConnectSession

    with ExitStack() as stack:
        out = stack.enter_context(log.open("wb")) if log is not None else None
        conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
        try:
            gateway = cast(Any, launch_gateway)(conf, {"stdout": out or sys.stderr, "stderr": out})
            stack.callback(_end, gateway)
            port = _start_driver(gateway.jvm)
        except Exception as error:
            raise ConfigError(f"Spark did not start on {settings['spark.master']}: {_why(error, log)}") from error
        if log is not None:
            stack.enter_context(warnings.catch_warnings())
            warnings.filterwarnings("ignore", module=r"pyspark\..*")
            stack.enter_context(_hushed())
        spark = ConnectSession.builder.remote(f"sc://localhost:{port}").create()
        stack.callback(_leave, spark)
        cast(Any, spark).client.set_retry_policies([DefaultPolicy(max_retries=RETRIES_MAX)])
        if package is not None:
            spark.addArtifacts(str(package), pyfile=True)
        yield cast(SparkSession, spark)


@contextmanager
def _hushed() -> Iterator[None]:
    """Silences PySpark's log of every error that it raises."""
    logger = PySparkLogger.getLogger("SQLQueryContextLogger")
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before


def _start_driver(jvm: Any) -> int:
    """Starts the driver, and with it the Connect server; returns the port that it listens on."""
    jvm.org.apache.spark.sql.classic.SparkSession.builder().getOrCreate()
    service = getattr(jvm, "org.apache.spark.sql.connect.service.SparkConnectService$")
    return int(getattr(service, "MODULE$").localPort())


def _package(folder: Path) -> Path:
    """Packs Headway into a zip that Python imports from and in which Spark finds the format "headway"."""
    path, source = folder / "headway.zip", Path(headway.__file__).parent.parent
    with ZipFile(path, "w") as package:
        for file in (*source.glob("headway/**/*"), *source.glob("pyspark_headway/*")):
            if "__pycache__" not in file.parts:
                package.write(file, file.relative_to(source))
    return path


def _leave(spark: Any) -> None:
    """Closes the session; does not wait long, as a driver that is gone never answers."""

    def stop() -> None:
        with suppress(Exception):
            spark.stop()

    leaving = threading.Thread(target=stop, daemon=True)
    leaving.start()
    leaving.join(STOP_S)


def _end(gateway: Any) -> None:
    """Ends the JVM: closes the pipe that it reads from, so that it stops the driver and exits."""
    process: subprocess.Popen[bytes] = gateway.proc
    with suppress(OSError):
        if process.stdin is not None:
            process.stdin.close()
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    with suppress(Exception):
        gateway.shutdown()


def _why(error: Exception, log: Path | None) -> str:
    """One line: what Java says was the matter, or else the last thing it wrote."""
    text = str(getattr(error, "java_exception", None) or "")
    if not text and log is not None:
        lines = [line.strip() for line in log.read_text(errors="replace").splitlines()]
        text = next((line for line in reversed(lines) if line and not line.startswith(("at ", "..."))), "")
    return (text or str(error)).strip().splitlines()[0]
