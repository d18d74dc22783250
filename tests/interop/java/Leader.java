import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;

import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.requests.ProduceResponse.RecordError;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.PrimitiveRef;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogValidator;
import org.apache.kafka.storage.internals.log.RecordValidationException;

import java.nio.ByteBuffer;
import java.util.Base64;

/**
 * Kafka's LogValidator over produced buffers, each after the checksums that UnifiedLog.analyzeAndValidateRecords compares.
 * Request: cases [{bytes, compression, level?, compacted, stamped, before_max, after_max, offset, now, leader_epoch, origin}].
 * Answer: answers, in the same order: bytes and records of the batches to store, or the exception; the meters in both cases.
 */
final class Leader {
    static ObjectNode validate(JsonNode request) throws Exception {
        ObjectNode answer = KafkaClasses.JSON.createObjectNode();
        ArrayNode answers = answer.putArray("answers");
        for (JsonNode one : request.get("cases")) answers.add(validateOne(one));
        return answer;
    }

    private static ObjectNode validateOne(JsonNode one) throws Exception {
        ObjectNode answer = KafkaClasses.JSON.createObjectNode();
        Meters meters = new Meters(answer.putObject("meters"));
        try {
            MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(Base64.getDecoder().decode(one.get("bytes").asText())));
            CompressionType source = CompressionType.NONE;
            for (RecordBatch batch : records.batches()) {
                try {
                    batch.ensureValid();
                } catch (Exception broken) {
                    meters.recordInvalidChecksums();
                    throw broken;
                }
                if (batch.compressionType() != CompressionType.NONE) source = batch.compressionType();
            }
            PrimitiveRef.LongRef offset = PrimitiveRef.ofLong(one.get("offset").asLong());
            LogValidator.ValidationResult result = new LogValidator(
                records, new TopicPartition("t", 0), Loader.standingStill(one.get("now").asLong()), source, target(one, source),
                one.get("compacted").asBoolean(), RecordBatch.MAGIC_VALUE_V2,
                one.get("stamped").asBoolean() ? TimestampType.LOG_APPEND_TIME : TimestampType.CREATE_TIME,
                one.get("before_max").asLong(), one.get("after_max").asLong(), one.get("leader_epoch").asInt(),
                AppendOrigin.valueOf(one.get("origin").asText().toUpperCase(java.util.Locale.ROOT))
            ).validateMessagesAndAssignOffsets(offset, meters, BufferSupplier.NO_CACHING);
            MemoryRecords validated = (MemoryRecords) field(result, "validatedRecords");
            Object stats = field(result, "recordValidationStats");
            ByteBuffer buffer = validated.buffer();
            byte[] bytes = new byte[buffer.remaining()];
            buffer.duplicate().get(bytes);
            answer.put("bytes", Base64.getEncoder().encodeToString(bytes)).put("next_offset", offset.value)
                .put("max_timestamp", (long) field(result, "maxTimestampMs"))
                .put("changed", (boolean) field(result, "messageSizeMaybeChanged"))
                .put("converted", (int) field(stats, "numRecordsConverted"))
                .put("temporary", (long) field(stats, "temporaryMemoryBytes"));
            ArrayNode batches = answer.putArray("batches");
            for (RecordBatch batch : validated.batches()) {
                ObjectNode node = KafkaClasses.JSON.createObjectNode();
                try {
                    node = Records.describe(batch);
                } catch (Exception unreadable) {
                    node.put("unreadable", unreadable.toString());
                }
                batches.add(node);
            }
        } catch (RecordValidationException refused) {
            answer.put("exception", refused.invalidException().getClass().getSimpleName()).put("message", refused.invalidException().getMessage());
            ArrayNode errors = answer.putArray("record_errors");
            for (RecordError error : refused.recordErrors()) errors.addArray().add(error.batchIndex).add(error.message);
        } catch (Exception refused) {
            answer.put("exception", refused.getClass().getSimpleName()).put("message", refused.getMessage());
            answer.putArray("record_errors");
        }
        return answer;
    }

    /** A public field in 4.1 is a Java record's in 4.3, in a class of another package. */
    private static Object field(Object of, String name) throws ReflectiveOperationException {
        java.lang.reflect.Field field = of.getClass().getDeclaredField(name);
        field.setAccessible(true);
        return field.get(of);
    }

    /** compression.type and compression.TYPE.level, as BrokerCompressionType reads them. */
    private static Compression target(JsonNode one, CompressionType source) {
        String name = one.get("compression").asText();
        boolean leveled = one.hasNonNull("level");
        int level = leveled ? one.get("level").asInt() : 0;
        switch (name) {
            case "producer": return Compression.of(source).build();
            case "uncompressed": return Compression.NONE;
            case "gzip": return leveled ? Compression.gzip().level(level).build() : Compression.gzip().build();
            case "lz4": return leveled ? Compression.lz4().level(level).build() : Compression.lz4().build();
            case "zstd": return leveled ? Compression.zstd().level(level).build() : Compression.zstd().build();
            default: return Compression.of(name).build();
        }
    }

    private static final class Meters implements LogValidator.MetricsRecorder {
        private final ObjectNode counts;

        Meters(ObjectNode counts) {
            this.counts = counts;
        }

        private void mark(String name) {
            counts.put(name, counts.path(name).asInt(0) + 1);
        }

        @Override public void recordInvalidMagic() { mark("InvalidMagicNumberRecordsPerSec"); }
        @Override public void recordInvalidOffset() { mark("InvalidOffsetOrSequenceRecordsPerSec"); }
        @Override public void recordInvalidSequence() { mark("InvalidOffsetOrSequenceRecordsPerSec"); }
        @Override public void recordInvalidChecksums() { mark("InvalidMessageCrcRecordsPerSec"); }
        @Override public void recordNoKeyCompactedTopic() { mark("NoKeyCompactedTopicRecordsPerSec"); }
    }
}
