"""klog dump PATH"""

from __future__ import annotations

import json
import os
import sys
from itertools import chain
from typing import TYPE_CHECKING, Any

import click

from klog.cli.group import DATA_PROBLEM
from klog.cli.output import F, json_list, json_option, jsonl_option, printable, styled
from klog.shown import to_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from klog.inspect import DumpedFile

# Options of Kafka's tool that klog dump does not have, and what to use instead.
_INSTEAD = {
    "verify-index-only": "klog verify DIR checks every entry of the indexes",
    "index-sanity-check": "klog verify DIR checks every entry of the indexes",
    "max-bytes": "klog cat --from OFFSET --max N prints N records",
    "key-decoder-class": "klog export --decode-key and --decode decode keys and values",
    "value-decoder-class": "klog export --decode-key and --decode decode keys and values",
}
LABELS = {"create_time": "CreateTime", "log_append_time": "LogAppendTime", "none": "NoTimestampType"}


def _kafkas_decoders(function: F) -> F:
    """Accept the options of Kafka's tool for internal topics, which are decoded anyway; for others name what to use."""
    for name in ("offsets", "transaction-log", "cluster-metadata", "remote-log-metadata", "share-group-state"):
        function = click.option(f"--{name}-decoder", hidden=True, is_flag=True, expose_value=False)(function)
    for name in _INSTEAD:
        flag = name.startswith(("verify", "index"))
        option = click.option(f"--{name}", hidden=True, is_flag=flag, expose_value=False, callback=_not_here)
        function = option(function)
    return function


def _not_here(ctx: click.Context, parameter: click.Parameter, value: object) -> None:
    if value:
        option = parameter.opts[0]
        raise click.UsageError(f"{option} of Kafka's tool is not here: {_INSTEAD[option.removeprefix('--')]}", ctx)


@click.command("dump")
@click.argument("paths", metavar="PATH...", nargs=-1, type=click.Path())
@click.option("--batches", is_flag=True, help="Only the headers of batches, without records.")
@click.option("--raw", is_flag=True, help="Do not decode the records of Kafka's internal topics.")
@click.option("--files", hidden=True, help="Kafka's spelling of PATH: a comma-separated list.")
@click.option("--print-data-log", hidden=True, is_flag=True)
@click.option("--deep-iteration", hidden=True, is_flag=True)
@click.option("--max-message-size", hidden=True, expose_value=False)  # there is no limit
@click.option("--skip-record-metadata", hidden=True, is_flag=True)
@_kafkas_decoders
@json_option
@jsonl_option
@click.pass_context
def command(
    ctx: click.Context,
    paths: tuple[str, ...],
    batches: bool,
    raw: bool,
    files: str | None,
    print_data_log: bool,
    deep_iteration: bool,
    skip_record_metadata: bool,
    as_json: bool,
    as_jsonl: bool,
) -> None:
    """Decode any file of a log directory: batches and records, index entries, snapshots, checkpoints.

    PATH is a file, a partition directory or a log.dir; nothing in it is changed. The text has the format of Kafka's
    dump tool. Records of __consumer_offsets, __transaction_state, __cluster_metadata and other internal topics are
    decoded; in JSON they have "decoded". Exit code 3 means that some bytes could not be read.

    PATH may be a URL of an object store: s3://, gs://, abfs://, hdfs://, file://. Its files are copied to a temporary
    directory first. That needs pyarrow, whose environment variables hold the credentials.

    \b
    klog dump data/flights-0/00000000000000000000.log --batches
    klog dump data/flights-0 --jsonl | jq 'select(.type == "batch") | .size'
    klog dump s3://backup/kafka/flights-0/00000000000000000000.log
    """
    from klog.inspect import dump
    from klog.inspect.remote import is_url

    named = [*paths, *(part for part in (files or "").split(",") if part)]
    if not named:
        raise click.UsageError("Name a file or a directory.", ctx)
    for path in named:
        if not is_url(path) and not os.path.lexists(path):
            raise click.UsageError(f"{path}: no such file or directory", ctx)
    try:
        found = chain.from_iterable([dump(path, records=not batches, raw=raw) for path in named])
    except (ValueError, ImportError) as error:  # of a URL
        raise click.UsageError(str(error), ctx) from None
    if as_json:
        bad = _as_json(found)
    elif as_jsonl:
        bad = _as_lines(found)
    else:
        bad = _as_text(found, _RecordText(skip_record_metadata))
    sys.stdout.flush()
    if bad:
        ctx.exit(DATA_PROBLEM)


def _bad(entry: dict[str, Any]) -> bool:
    return entry["type"] == "problem" or entry.get("valid") is False


def _head(file: DumpedFile) -> dict[str, Any]:
    return {
        "path": file.path,
        "kind": file.kind,
        "size": file.size,
        "base_offset": file.base_offset,
        "leftover": file.leftover,
    }


def _as_json(files: Iterator[DumpedFile]) -> bool:
    bad = False
    with json_list({}, "files") as item:
        for file in files:
            item(to_json(_head(file))[:-1] + ',"entries":[')
            first = True
            try:
                for entry in file.entries:
                    bad |= _bad(entry)
                    sys.stdout.write(("\n" if first else ",\n") + to_json(entry))
                    first = False
            finally:  # also after an error: the object must be complete
                sys.stdout.write("]}")
    return bad


def _as_lines(files: Iterator[DumpedFile]) -> bool:
    bad = False
    for file in files:
        for entry in file.entries:
            bad |= _bad(entry)
            print(to_json({"path": file.path, "kind": file.kind, **entry}))
    return bad


def _as_text(files: Iterator[DumpedFile], records: _RecordText) -> bool:
    bad = False
    for file in files:
        print(styled(f"Dumping {printable(file.path)}", bold=True))
        if file.kind == "log" and file.base_offset is not None:
            print(f"Log starting offset: {file.base_offset}")
        empty = True
        for entry in file.entries:
            empty = False
            bad |= _bad(entry)
            print(_LINES[entry["type"]](entry))
            for record in entry.get("records", ()):
                print(records(record, entry))
        if empty and file.kind != "log":
            print(f"{printable(file.path)} is empty.")
    return bad


def _optional(value: int | None) -> str:
    return "OptionalLong.empty" if value is None else f"OptionalLong[{value}]"


def _flag(value: bool) -> str:
    return "true" if value else "false"


def _batch(e: dict[str, Any]) -> str:
    last_sequence = (
        -1 if e["base_sequence"] < 0 else (e["base_sequence"] + e["last_offset"] - e["base_offset"]) & 0x7FFFFFFF
    )
    line = (
        f"baseOffset: {e['base_offset']} lastOffset: {e['last_offset']} count: {e['count']} "
        f"baseSequence: {e['base_sequence']} lastSequence: {last_sequence} producerId: {e['producer_id']} "
        f"producerEpoch: {e['producer_epoch']} partitionLeaderEpoch: {e['leader_epoch']} "
        f"isTransactional: {_flag(e['is_transactional'])} isControl: {_flag(e['is_control'])} "
        f"deleteHorizonMs: {_optional(e['delete_horizon_ms'])} position: {e['position']} "
        f"{LABELS[e['timestamp_type']]}: {e['max_timestamp']} size: {e['size']} magic: {e['magic']} "
        f"compresscodec: {e['compression']} crc: {e['crc']} isvalid: {_flag(e['valid'])}"
    )
    return line if e["valid"] else styled(f"{line} ({printable(e['error'])})", fg="red")


class _RecordText:
    """Formats the line of a record; bare: only key and payload."""

    def __init__(self, bare: bool) -> None:
        self._bare = bare

    def __call__(self, e: dict[str, Any], batch: dict[str, Any]) -> str:
        parts = ["|"]
        if not self._bare:
            parts.append(
                f"offset: {e['offset']} {LABELS[e['timestamp_type']]}: {e['timestamp']} keySize: {_length(e, 'key')} "
                f"valueSize: {_length(e, 'value')} sequence: {e['sequence']} "
                f"headerKeys: [{','.join(printable(header['key']) for header in e['headers'])}]"
            )
        control = e["control_type"]
        if control in ("commit", "abort"):
            parts.append(f"endTxnMarker: {control.upper()} coordinatorEpoch: {e.get('coordinator_epoch')}")
        elif control is not None:
            fields = "".join(f" {name}: {json.dumps(value)}" for name, value in e.get("control", {}).items())
            parts.append(f"controlType: {control.upper()}{fields}")
        elif "decoded" in e:
            parts += _decoded(e["decoded"])
        else:
            for name, label in (("key", "key"), ("value", "payload")):
                text = _content(e, name)
                if text is not None:
                    parts.append(f"{label}: {text}")
            if "decode_problem" in e:
                parts.append(f"({printable(e['decode_problem'])})")
        return " ".join(parts)


def _decoded(found: dict[str, Any]) -> list[str]:
    """Return key and payload in the form of Kafka's decoders, with klog's names of types and fields."""
    kind, value = {"type": found["type"]}, {"version": found["version"], "data": found["value"]}
    if found["key"] is None:
        return [f"payload: {printable(to_json(kind | value))}"]
    payload = "<DELETE>" if found["value"] is None else printable(to_json(value))
    return [f"key: {printable(to_json({**kind, 'data': found['key']}))}", f"payload: {payload}"]


def _length(e: dict[str, Any], name: str) -> int:
    if f"{name}_b64" in e:
        import base64

        return len(base64.b64decode(e[f"{name}_b64"]))
    return -1 if e[name] is None else len(e[name].encode())


def _content(e: dict[str, Any], name: str) -> str | None:
    if f"{name}_b64" in e:
        import base64

        return f"hex:{base64.b64decode(e[name + '_b64']).hex()}"
    return None if e[name] is None else printable(e[name])


def _producer(e: dict[str, Any]) -> str:
    line = (
        f"producerId: {e['producer_id']} producerEpoch: {e['epoch']} coordinatorEpoch: {e['coordinator_epoch']} "
        f"currentTxnFirstOffset: {_optional(e['current_txn_first_offset'])} lastTimestamp: {e['timestamp']}"
    )
    if e["last_offset"] < 0:
        return line
    first = e["last_sequence"] - e["offset_delta"]
    first = first if first >= 0 or e["last_sequence"] < 0 else first + 2**31
    return (
        f"{line} firstSequence: {first} lastSequence: {e['last_sequence']} lastOffset: {e['last_offset']} "
        f"offsetDelta: {e['offset_delta']} timestamp: {e['timestamp']}"
    )


def _problem(e: dict[str, Any]) -> str:
    where = "" if e["position"] is None else f" at position {e['position']}"
    if "size" in e:
        end = " at the end" if e["torn"] else ""
        return styled(f"Found {e['size']} invalid bytes{end}{where}: {printable(e['message'])}", fg="red")
    return styled(f"Cannot be read{where}: {printable(e['message'])}", fg="red")


def _document(e: dict[str, Any]) -> str:
    content = e["content"]
    if isinstance(content, dict):
        return "\n".join(
            f"{printable(str(k))}: {printable(v if isinstance(v, str) else to_json(v))}" for k, v in content.items()
        )
    return printable(str(content)) if content else "(empty)"


_LINES: dict[str, Callable[[dict[str, Any]], str]] = {
    "batch": _batch,
    "legacy": lambda e: (
        f"offset: {e['offset']} position: {e['position']} size: {e['size']} magic: {e['magic']} "
        f"isvalid: {_flag(e['valid'])}"
    ),
    "offset_entry": lambda e: f"offset: {e['offset']} position: {e['position']}",
    "time_entry": lambda e: f"timestamp: {e['timestamp']} offset: {e['offset']}",
    "unused": lambda e: f"{e['size']} unused bytes from position {e['position']}",
    "aborted_transaction": lambda e: (
        f"version: 0 producerId: {e['producer_id']} firstOffset: {e['first_offset']} lastOffset: {e['last_offset']} "
        f"lastStableOffset: {e['last_stable_offset']}"
    ),
    "producer": _producer,
    "offset": lambda e: f"{printable(e['topic'])} {e['partition']} {e['offset']}",
    "audit": lambda e: printable(to_json(e["content"])),
    "epoch": lambda e: f"epoch: {e['epoch']} startOffset: {e['start_offset']}",
    "gap": lambda e: f"end: {e['end']} baseOffset: {e['base_offset']}",
    "document": _document,
    "problem": _problem,
}
