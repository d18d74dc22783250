import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;

import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.FileLogInputStream;
import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;

import java.io.File;
import java.nio.ByteBuffer;
import java.util.Base64;
import java.util.Locale;
import java.util.OptionalLong;

/** Every batch and record of a .log file as Kafka's FileRecords returns them. Field names: tests/golden/README.md. */
final class Records {
    static ObjectNode read(String path) throws Exception {
        ObjectNode answer = KafkaClasses.JSON.createObjectNode();
        ArrayNode batches = answer.putArray("batches");
        long bytes = 0;
        try (FileRecords file = FileRecords.open(new File(path), false)) {
            for (FileLogInputStream.FileChannelRecordBatch batch : file.batches()) {
                batch.ensureValid();
                batches.add(describe(batch).put("position", batch.position()));
                bytes += batch.sizeInBytes();
            }
            answer.put("trailing_bytes", file.sizeInBytes() - bytes);
        }
        return answer;
    }

    static ObjectNode describe(RecordBatch batch) {
        ObjectNode node = KafkaClasses.JSON.createObjectNode();
        OptionalLong horizon = batch.deleteHorizonMs();
        node.put("base_offset", batch.baseOffset()).put("last_offset", batch.lastOffset())
            .put("count", batch.countOrNull()).put("base_sequence", batch.baseSequence())
            .put("last_sequence", batch.lastSequence()).put("producer_id", batch.producerId())
            .put("producer_epoch", batch.producerEpoch()).put("leader_epoch", batch.partitionLeaderEpoch())
            .put("is_transactional", batch.isTransactional()).put("is_control", batch.isControlBatch())
            .put("timestamp_type", label(batch.timestampType())).put("max_timestamp", batch.maxTimestamp())
            .put("size", batch.sizeInBytes()).put("magic", batch.magic()).put("codec", batch.compressionType().name)
            .put("crc", batch.checksum());
        if (horizon.isPresent()) node.put("delete_horizon_ms", horizon.getAsLong()); else node.putNull("delete_horizon_ms");
        ArrayNode records = node.putArray("records");
        for (Record record : batch) records.add(describe(batch, record));
        return node;
    }

    static ObjectNode describe(RecordBatch batch, Record record) {
        record.ensureValid();
        ObjectNode node = KafkaClasses.JSON.createObjectNode();
        node.put("o", record.offset()).put("ts", record.timestamp()).put("tt", label(batch.timestampType()));
        node.put("k", base64(record.key())).put("v", base64(record.value()));
        ArrayNode headers = node.putArray("h");
        for (Header header : record.headers())
            headers.addArray().add(header.key()).add(header.value() == null ? null : base64(ByteBuffer.wrap(header.value())));
        node.put("le", batch.partitionLeaderEpoch()).put("pid", batch.producerId()).put("pe", batch.producerEpoch());
        node.put("seq", record.sequence()).put("tx", batch.isTransactional());
        node.put("ctl", batch.isControlBatch() ? ControlRecordType.parse(record.key()).name().toLowerCase(Locale.ROOT) : null);
        node.put("codec", batch.compressionType().name);
        return node;
    }

    private static String label(TimestampType type) {
        switch (type) {
            case CREATE_TIME: return "create";
            case LOG_APPEND_TIME: return "append";
            default: return "none";
        }
    }

    private static String base64(ByteBuffer bytes) {
        if (bytes == null) return null;
        byte[] copy = new byte[bytes.remaining()];
        bytes.duplicate().get(copy);
        return Base64.getEncoder().encodeToString(copy);
    }
}
