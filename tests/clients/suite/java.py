"""Java: the command-line programs of Apache Kafka, with its verifiable and performance clients, and a program of Kafka
Streams. Each check runs a few of them and compares their output with what is expected."""

from __future__ import annotations

import hashlib
import json
import re
import tempfile
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.clients.servers import KAFKA_VERSION, Server
from tests.clients.suite.base import Outcomes, Suite, command, need
from tools import kafka_jars

__all__ = ["SUITE"]

RECORDS = 5000
_JAVA = ("java", "-Xmx192m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")
_STREAMS = Path(__file__).with_name("streams")
_TOOLS = "org.apache.kafka.tools."
_CHECKS: dict[str, Callable[[Tools, str], None]] = {}


class Tools:
    """Runs programs against one broker, and appends their output to a log."""

    def __init__(self, server: Server, folder: Path, log: Path) -> None:
        self._server = server
        self.folder = folder
        self._log = log
        self._lib = kafka_jars.get(KAFKA_VERSION).lib

    def run(self, tool: str, *arguments: object, bootstrap: str = "--bootstrap-server") -> str:
        """Run a program and return its output. Its option `bootstrap` gets the address of the broker; an empty one is left
        out."""
        name = tool if tool.startswith("kafka.") else _TOOLS + tool
        where = [bootstrap, self._server.bootstrap] if bootstrap else []
        line = [*_JAVA, "-cp", f"{self._lib}/*", name, *where, *[str(each) for each in arguments]]
        return command(line, cwd=self.folder, log=self._log, timeout=300)

    def streams(self, application: str, total: int, guarantee: str) -> dict[str, int]:
        """Run WordCount.java, and return the counts that it prints."""
        line = [*_JAVA, "-cp", f"{self.folder}/classes:{self._lib}/*:{self.folder}/lib/*", "WordCount"]
        line += [self._server.bootstrap, application, f"{application}-in", f"{application}-out", str(total), guarantee]
        with tempfile.TemporaryDirectory() as state:
            output = command([*line, state], cwd=self.folder, log=self._log, timeout=300)
        words: dict[str, int] = json.loads([each for each in output.splitlines() if each.startswith("{")][-1])
        return words

    @property
    def properties(self) -> str:
        """The address of the broker as name=value."""
        return f"bootstrap.servers={self._server.bootstrap}"

    def create(self, topic: str, partitions: int = 1, *options: str) -> None:
        self.run("TopicCommand", "--create", "--topic", topic, "--partitions", partitions, *options)

    def produce(self, topic: str, count: int = RECORDS, *options: str) -> None:
        output = self.run("VerifiableProducer", "--topic", topic, "--max-messages", count, *options)
        (facts,) = events(output, "tool_data")
        assert (facts["sent"], facts["acked"]) == (count, count), facts
        assert len(events(output, "producer_send_success")) == count

    def ends(self, topic: str, *options: str) -> list[int]:
        """The end offsets of all partitions."""
        output = self.run("GetOffsetShell", "--topic", topic, *options)
        return [int(line.rpartition(":")[2]) for line in output.splitlines() if line.startswith(f"{topic}:")]


def events(output: str, name: str) -> list[dict[str, object]]:
    """The events of this name, which a verifiable client prints as lines of JSON."""
    lines = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    return [line for line in lines if line["name"] == name]


def check(function: Callable[[Tools, str], None]) -> Callable[[Tools, str], None]:
    """Decorator: register a check. It is called with the programs and a name for its topics and groups."""
    _CHECKS[function.__name__] = function
    return function


@check
def topics_are_created_described_changed_and_deleted(tools: Tools, name: str) -> None:
    tools.create(name, 3, "--config", "retention.ms=86400000")
    shown = tools.run("TopicCommand", "--describe", "--topic", name)
    assert "PartitionCount: 3" in shown and "retention.ms=86400000" in shown, shown
    assert len(re.findall(r"Leader: 1\s+Replicas: 1\s+Isr: 1", shown)) == 3, shown
    tools.run("TopicCommand", "--alter", "--topic", name, "--partitions", 5)
    assert "PartitionCount: 5" in tools.run("TopicCommand", "--describe", "--topic", name)
    tools.run("TopicCommand", "--delete", "--topic", name)
    assert name not in tools.run("TopicCommand", "--list").split()


@check
def configurations_are_altered_and_described(tools: Tools, name: str) -> None:
    tools.create(name)
    entity = ("--entity-type", "topics", "--entity-name", name)
    tools.run("kafka.admin.ConfigCommand", "--alter", *entity, "--add-config", "segment.bytes=2097152")
    shown = tools.run("kafka.admin.ConfigCommand", "--describe", *entity)
    assert "segment.bytes=2097152" in shown and "DYNAMIC_TOPIC_CONFIG" in shown, shown
    tools.run("kafka.admin.ConfigCommand", "--alter", *entity, "--delete-config", "segment.bytes")
    assert "segment.bytes=" not in tools.run("kafka.admin.ConfigCommand", "--describe", *entity)
    everything = tools.run("kafka.admin.ConfigCommand", "--describe", "--all", *entity)
    assert "segment.bytes=1073741824" in everything and "DEFAULT_CONFIG" in everything, everything
    assert "log.dirs=" in tools.run(
        "kafka.admin.ConfigCommand", "--describe", "--all", "--entity-type", "brokers", "--entity-name", 1
    )


def _consumed(tools: Tools, name: str, protocol: str) -> None:
    tools.create(name, 3)
    tools.produce(name)
    options = ["--topic", name, "--group-id", name, "--max-messages", RECORDS, "--group-protocol", protocol]
    output = tools.run("VerifiableConsumer", *options)
    counts = [int(str(each["count"])) for each in events(output, "records_consumed")]
    assert sum(counts) == RECORDS, sum(counts)
    assert events(output, "shutdown_complete") and events(output, "offsets_committed"), output[-2000:]
    shown = tools.run("consumer.group.ConsumerGroupCommand", "--describe", "--group", name)
    lags = [line.split()[5] for line in shown.splitlines() if line.startswith(name)]
    assert set(lags) == {"0"}, shown


@check
def a_group_consumes_what_was_produced(tools: Tools, name: str) -> None:
    _consumed(tools, name, "classic")


@check
def a_group_of_the_consumer_protocol_consumes_what_was_produced(tools: Tools, name: str) -> None:
    _consumed(tools, name, "consumer")


@check
def groups_are_listed_reset_and_deleted(tools: Tools, name: str) -> None:
    tools.create(name)
    tools.produce(name, 100)
    tools.run("VerifiableConsumer", "--topic", name, "--group-id", name, "--max-messages", 100)
    assert name in tools.run("consumer.group.ConsumerGroupCommand", "--list").split()
    assert "Empty" in tools.run("consumer.group.ConsumerGroupCommand", "--describe", "--group", name, "--state")
    tools.run(
        "consumer.group.ConsumerGroupCommand",
        "--reset-offsets",
        "--group",
        name,
        "--topic",
        name,
        "--to-offset",
        40,
        "--execute",
    )
    assert re.search(
        rf"{name}\s+{name}\s+0\s+40\s+100\s+60",
        tools.run("consumer.group.ConsumerGroupCommand", "--describe", "--group", name),
    )
    tools.run("consumer.group.ConsumerGroupCommand", "--delete-offsets", "--group", name, "--topic", name)
    tools.run("consumer.group.ConsumerGroupCommand", "--delete", "--group", name)
    assert name not in tools.run("consumer.group.ConsumerGroupCommand", "--list").split()


@check
def a_copier_moves_records_in_transactions(tools: Tools, name: str) -> None:
    _copied(tools, name)


@check
def a_copier_that_aborts_at_random_copies_each_record_once(tools: Tools, name: str) -> None:
    _copied(tools, name, "--enable-random-aborts")


def _copied(tools: Tools, name: str, *options: str) -> None:
    source, target = f"{name}-in", f"{name}-out"
    for topic in (source, target):
        tools.create(topic)
    tools.produce(source, 1000)
    output = tools.run(
        "TransactionalMessageCopier",
        *("--input-topic", source, "--input-partition", 0, "--output-topic", target, "--consumer-group", name),
        *("--transaction-size", 100, "--transactional-id", name, "--max-messages", 1000, *options),
        bootstrap="--broker-list",
    )
    last = json.loads([line for line in output.splitlines() if line.startswith("{")][-1])
    assert last["remaining"] == 0, last
    read = tools.run(
        "consumer.ConsoleConsumer",
        *("--topic", target, "--from-beginning", "--isolation-level", "read_committed", "--timeout-ms", 4000),
    )
    values = [line for line in read.splitlines() if line.isdigit()]
    assert values == [str(number) for number in range(1000)], (len(values), values[:5])


@check
def performance_clients_run(tools: Tools, name: str) -> None:
    tools.create(name, 2)
    shown = tools.run(
        "ProducerPerformance",
        *("--topic", name, "--num-records", 20000, "--record-size", 500, "--throughput", -1),
        *("--producer-props", tools.properties, "compression.type=lz4"),
        bootstrap="",
    )
    assert "20000 records sent" in shown, shown
    assert sum(tools.ends(name)) == 20000
    shown = tools.run("ConsumerPerformance", "--topic", name, "--messages", 20000)
    assert re.search(r", 20000, ", shown), shown


@check
def a_transactional_performance_producer_runs(tools: Tools, name: str) -> None:
    tools.create(name)
    tools.run(
        "ProducerPerformance",
        *("--topic", name, "--num-records", 3000, "--record-size", 100, "--throughput", 3000),
        *("--transaction-duration-ms", 100, "--producer-props", tools.properties),
        bootstrap="",
    )
    (end,) = tools.ends(name)
    assert end > 3000, end  # with a marker after each transaction
    shown = tools.run("TransactionsCommand", "list")
    assert "CompleteCommit" in shown or "Empty" in shown, shown


@check
def records_are_deleted(tools: Tools, name: str) -> None:
    tools.create(name)
    tools.produce(name, 100)
    asked = tools.folder / f"{name}.json"
    asked.write_text(json.dumps({"version": 1, "partitions": [{"topic": name, "partition": 0, "offset": 60}]}))
    shown = tools.run("DeleteRecordsCommand", "--offset-json-file", asked)
    assert f"partition: {name}-0\tlow_watermark: 60" in shown, shown
    assert tools.ends(name, "--time", "earliest") == [60]
    assert tools.ends(name) == [100]


@check
def offsets_are_found_by_time(tools: Tools, name: str) -> None:
    tools.create(name)
    tools.produce(name, 10, "--message-create-time", "1700000000000", "--throughput", "1000")
    assert tools.ends(name, "--time", "max-timestamp") == [9]
    assert tools.ends(name, "--time", "1600000000000") == [0]
    assert tools.ends(name, "--time", "earliest") == [0]


@check
def the_cluster_and_its_log_dirs_are_described(tools: Tools, name: str) -> None:
    assert "Cluster ID: " in tools.run(
        "ClusterTool", "cluster-id", "--bootstrap-server", tools.properties.split("=")[1], bootstrap=""
    )
    shown = tools.run("BrokerApiVersionsCommand")
    assert "Produce(0): 0 to 1" in shown and "Fetch(1): 4 to 1" in shown and "ERROR" not in shown, shown
    tools.create(name)
    tools.produce(name, 10)
    found = re.search(r"^\{.*\}$", tools.run("LogDirsCommand", "--describe", "--topic-list", name), re.MULTILINE)
    assert found
    (broker,) = json.loads(found[0])["brokers"]
    ((partition,),) = [directory["partitions"] for directory in broker["logDirs"]]
    assert partition["partition"] == f"{name}-0" and partition["size"] > 0, partition


def _streamed(tools: Tools, name: str, guarantee: str) -> None:
    """Count in two runs of the application. The second one restores its state from the changelog topic."""
    tools.create(f"{name}-in", 3)
    tools.create(f"{name}-out", 2)
    for rounds in (1, 2):
        tools.produce(f"{name}-in", 1000, "--repeating-keys", "10")
        words = tools.streams(name, 1000 * rounds, guarantee)
        assert words == {str(number): rounds for number in range(1000)}, words
    assert f"{name}-counts-changelog" in tools.run("TopicCommand", "--list")
    shown = tools.run("TopicCommand", "--describe", "--topic", f"{name}-counts-changelog")
    assert "cleanup.policy=compact" in shown, shown


@check
def streams_count_at_least_once(tools: Tools, name: str) -> None:
    _streamed(tools, name, "at_least_once")


@check
def streams_count_exactly_once(tools: Tools, name: str) -> None:
    _streamed(tools, name, "exactly_once_v2")


def _prepare(folder: Path) -> None:
    need("mvn")
    jars = kafka_jars.get(KAFKA_VERSION)
    for artifact in (f"org.apache.kafka:kafka-streams:{KAFKA_VERSION}", "org.rocksdb:rocksdbjni:9.7.3"):
        copy = ["mvn", "-q", "-B", "dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={folder / 'lib'}"]
        command(copy, cwd=folder)
    compiler = ["javac", "-nowarn", "-proc:none", "-cp", f"{jars.lib}/*:{folder / 'lib'}/*", "-d", folder / "classes"]
    command([*map(str, compiler), *sorted(_STREAMS.glob("*.java"))], cwd=folder)


def _run(folder: Path, server: Server, only: Sequence[str], without: Sequence[str], log: Path) -> Outcomes:
    tools = Tools(server, folder, log)
    found: Outcomes = {}
    for number, (name, function) in enumerate(_CHECKS.items()):
        if name in without or (only and name not in only):
            continue
        try:
            function(tools, f"java-{number}")
            found[name] = "passed"
        except (AssertionError, ValueError, LookupError):
            found[name] = "failed"
            with log.open("a") as file:
                file.write(f"---- {name} ----\n{traceback.format_exc()}\n")
    return found


_VERSION = f"{KAFKA_VERSION} {hashlib.sha256((_STREAMS / 'WordCount.java').read_bytes()).hexdigest()}"
SUITE = Suite("java", _VERSION, _prepare, _run)
