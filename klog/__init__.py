"""klog: Apache Kafka's storage engine, embeddable.

    import klog

    with klog.open("data", create=True) as logs:
        logs.create_topic("events")
        log = logs.log("events")
        log.append([(b"key", b"value")])
        for record in log.read():
            print(record.offset, record.key, record.value)

The files are Kafka's own. Rooms, left to right: codec, record, disk, segment, log; beside them inspect, cli, spark, demo.
"""

__version__ = "0.1.0"
