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
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, cast
from zipfile import ZipFile

import pyspark
from pyspark.conf import SparkConf
from pyspark.java_gateway import launch_gateway
from pyspark.logger import PySparkLogger
from pyspark.pipelines.add_pipeline_analysis_context import add_pipeline_analysis_context
from pyspark.pipelines.block_session_mutations import block_session_mutations
from pyspark.pipelines.graph_element_registry import graph_element_registration_context
from pyspark.pipelines.spark_connect_graph_element_registry import SparkConnectGraphElementRegistry
from pyspark.pipelines.spark_connect_pipeline import create_dataflow_graph, start_run
from pyspark.sql import SparkSession
from rich.console import Console
from rich.text import Text

import headway
from headway.console import printable
from headway.core.base import ConfigError, format_duration
from headway.pipeline.java import check_java

# -- session -----------------------------------------------------------------------------------------------------------


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
        "spark.sql.python.filterPushdown.enabled": "true",  # for who asks for it: source/source.py
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


# -- stop signal -------------------------------------------------------------------------------------------------------
#
# The stop signal of long runs: Ctrl-C, or SIGTERM.


@contextmanager
def stop_signal() -> Iterator[threading.Event]:
    """Gives an event that is set by the first signal; the second time it ends as it stands."""
    stop = threading.Event()
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def on_signal(number: int, frame: object) -> None:
        if stop.is_set():
            sys.exit(128 + number)
        stop.set()

    for number in before:
        signal.signal(number, on_signal)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# -- error text --------------------------------------------------------------------------------------------------------
#
# Errors of Spark and its Python workers in one line: the part that a person can act on.


_END = re.compile(r"^(?:=== Streaming Query ===|JVM stacktrace:)$", re.MULTILINE)
"""The end of the message; the rest is Spark's own context."""
_OURS = re.compile(r"^headway\.\S+: (.+)$", re.MULTILINE)
"""The line with which Python shows an error of ours below its traceback; the next one, that of any error."""
_PYTHONS = re.compile(r"^(?!SQLSTATE)[A-Za-z_][\w.]*: (.+)$", re.MULTILINE)
_RAISED = re.compile(r"\[USER_RAISED_EXCEPTION\] (.+?)(?: SQLSTATE: \w+)?$", re.MULTILINE)
_CLASS = re.compile(r"^(?:\([A-Z0-9_.]+\) |\[[A-Z0-9_.]+\] )+")
_STATE = re.compile(r"\.?\s*SQLSTATE: \w{5}")


def error_text(error: BaseException | str) -> str:
    """Returns the error's line without its stack, class names and codes."""
    text = _END.split(str(error))[0]
    for pattern in (_OURS, _RAISED):
        if found := pattern.findall(text):
            return str(found[-1]).strip()
    found = _PYTHONS.findall(text) if "Traceback (most recent call last)" in text else []
    line = found[-1] if found else text.strip().splitlines()[0]
    return _STATE.sub("", _CLASS.sub("", line)).strip().rstrip(";")


# -- progress ----------------------------------------------------------------------------------------------------------
#
# Progress: one line on stderr that says what is being done.
#
# On a terminal it is one live line that is gone at the end. Elsewhere (a log, CI) it is a plain line now and then, and
# nothing at all for what is done at once.


QUIET_S = 2.0
"""The time before a step is first reported where there is no terminal."""
EVERY_S = 10.0

Tell = Callable[[str], None]
"""Tells how far it is; may be called as often as one likes."""


@contextmanager
def progress(what: str, spark: SparkSession | None = None) -> Iterator[Tell]:
    """Reports ``what``, and what is told of it, until the block ends.

    With ``spark``, each of its jobs is reported by itself: ``what: 12 of 64 tasks``.
    """
    console = Console(stderr=True)
    with _live(what, console) if console.is_terminal else _plain(what) as tell:
        if spark is None:
            yield tell
            return
        handler: Any = _tasks(tell)
        spark.registerProgressHandler(handler)
        try:
            yield tell
        finally:
            spark.removeProgressHandler(handler)


@contextmanager
def _live(what: str, console: Console) -> Iterator[Tell]:
    started = time.monotonic()

    def line(text: str) -> Text:
        took = time.monotonic() - started
        ago = f" ({format_duration(int(took))})" if took >= QUIET_S else ""
        return Text(_joined(what, text) + ago, overflow="ellipsis", no_wrap=True)

    with console.status(line("")) as status:
        yield lambda text: status.update(line(text))


@contextmanager
def _plain(what: str) -> Iterator[Tell]:
    due = time.monotonic() + QUIET_S

    def tell(text: str) -> None:
        nonlocal due
        if time.monotonic() >= due:
            due = time.monotonic() + EVERY_S
            print(_joined(what, text), file=sys.stderr, flush=True)

    yield tell


def _joined(what: str, text: str) -> str:
    return printable(f"{what}: {text}" if text else what)


def _tasks(tell: Tell) -> Callable[..., None]:
    """A handler as ``registerProgressHandler`` wants it."""

    def handle(stages: Any, inflight_tasks: int, operation_id: str | None, done: bool) -> None:
        total = sum(stage.num_tasks for stage in stages or ())
        if total and not done:
            tell(f"{sum(stage.num_completed_tasks for stage in stages)} of {total} tasks")

    return handle


# -- graph -------------------------------------------------------------------------------------------------------------
#
# A Spark Declarative Pipeline from within a program: its graph is defined and run once.


def run_graph(
    spark: SparkSession, database: str, home: Path, define: Callable[[], None], *,
    full_refresh: bool = False, runner: SparkSession | None = None,
) -> Iterator[dict[str, Any]]:  # fmt: skip
    """Runs the graph that ``define`` defines, and yields what Spark reports meanwhile. Its tables are in the database,
    made if it is not there; Spark's state of it is in ``home``. ``runner``: the session that runs it, if another."""
    spark.sql(f"CREATE DATABASE IF NOT EXISTS {database}")
    graph = create_dataflow_graph(spark, default_catalog=None, default_database=database, sql_conf={})
    with (
        graph_element_registration_context(SparkConnectGraphElementRegistry(spark, graph)),
        add_pipeline_analysis_context(spark=spark, dataflow_graph_id=graph, flow_name=None),
        block_session_mutations(),
    ):
        define()
    with tempfile.TemporaryDirectory(prefix=f"headway-{database}-") as scratch:
        (home / "_state").mkdir(exist_ok=True)
        state = Path(scratch, "state")
        state.symlink_to(home / "_state")  # Spark would escape what is special in the folder's own path
        yield from start_run(
            runner or spark, graph, full_refresh=[], full_refresh_all=full_refresh, refresh=[], dry=False,
            storage=f"file://{state}",
        )  # fmt: skip
