"""Resolves the formats of keys and values on the driver, once: options → decoders, which readers carry to the tasks.

C1  Schemas are read when a query is planned (a stream: when it starts), never by a task. A schema id that was
    registered later is a bad value that names it.
C2  All rows of a query have one reader's schema: the option valueSchema, else the newest of the subject <topic>-value,
    which is one only if all topics of the query have the same.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import klog
from klog.decode import (
    TOPIC,
    ConfluentAvroDecoder,
    Decoder,
    JsonDecoder,
    Schemas,
    TextDecoder,
    from_file,
    from_records,
    parse_ddl,
)
from klog.decode.formats import reader_of
from klog.disk import is_directory
from klog.spark.bounds import TopicPartition
from klog.spark.format_options import Format
from klog.spark.opening import is_partition_directory
from klog.spark.options import Options
from klog.spark.survey import matches


def decoder_of(column: str, options: Options) -> Decoder | None:
    """Return the decoder of the column `key` or `value`, None for bytes. Raises ValueError with the option's name."""
    wanted = options.formats.of[column]
    try:
        match wanted.word:
            case "string":
                return TextDecoder()
            case "json":
                return JsonDecoder(parse_ddl(wanted.schema or ""))
            case "confluentAvro":
                return _avro(column, wanted, options)
    except ValueError as error:
        option = f"{column}Schema" if wanted.schema is not None else f"{column}Format"
        raise ValueError(f"option '{option}': {error}") from None
    return None


def _avro(column: str, wanted: Format, options: Options) -> Decoder:
    schemas = _schemas(options)
    if wanted.schema is not None:
        return ConfluentAvroDecoder(schemas, reader_of(wanted.schema))
    if options.formats.schemas is not None:
        if len(schemas.by_id) > 1:
            raise ValueError(f"{schemas.origin} has several schemas; name the reader's by {column}Schema")
        return ConfluentAvroDecoder(schemas, next(iter(schemas.by_id.values())))
    return _of_subjects(column, schemas, options)


def _of_subjects(column: str, schemas: Schemas, options: Options) -> Decoder:
    """The decoder of the newest schema of the topics' subjects (C2)."""
    found: dict[str, ConfluentAvroDecoder] = {}
    for topic in _topics(options):
        subject = f"{topic}-{column}"
        if subject not in schemas.newest:
            raise ValueError(
                f"{schemas.origin} has no subject {subject!r}; name the schema by {column}Schema, or the topics by "
                f"subscribe"
            )
        found[topic] = ConfluentAvroDecoder(schemas, schemas.of(schemas.newest[subject]))
    if not found:
        raise ValueError(f"the query reads no topic yet, so no subject names a schema; name it by {column}Schema")
    first = next(iter(found.values()))
    others = [topic for topic, each in found.items() if each.reader != first.reader]
    if others:
        raise ValueError(
            f"the subjects of topics {next(iter(found))} and {', '.join(others[:20])} have different schemas; name one "
            f"by {column}Schema, or read one topic"
        )
    return first


def _topics(options: Options) -> Sequence[str]:
    """The topics of a query, by name alone: no partition is opened."""
    subscription = options.subscription
    if subscription.topics is not None:
        return subscription.topics
    if subscription.assigned is not None:
        return sorted({pair.topic for pair in subscription.assigned})
    found: set[str] = set()
    for path in options.paths:
        if is_partition_directory(path):
            found.add(os.path.basename(path).rpartition("-")[0])
        else:
            with klog.open(path, read_only=True) as logs:
                found.update(logs.topics())
    return sorted(topic for topic in found if matches(subscription, TopicPartition(topic, 0)))


def _schemas(options: Options) -> Schemas:
    file = options.formats.schemas
    if file is not None:
        try:
            with open(file, encoding="utf-8") as opened:
                return from_file(opened.read(), file)
        except (OSError, ValueError) as error:
            raise ValueError(f"the file of the option 'schemas', {file}, cannot be used: {error}") from None
    for path in options.paths:
        root = os.path.dirname(path) if is_partition_directory(path) else path
        place = os.path.join(root, f"{TOPIC}-0")
        if is_directory(place):
            with klog.Log.open(place, read_only=True) as log:
                return from_records(((record.key, record.value) for record in log.read()), place)
    raise ValueError(
        f"Avro values need schemas, but there is no topic {TOPIC} in {', '.join(options.paths)}; give a JSON file of "
        f"schemas by their ids with the option 'schemas'"
    )
