import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;

import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.storage.log.FetchIsolation;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.server.util.Scheduler;
import org.apache.kafka.storage.internals.log.AbortedTxn;
import org.apache.kafka.storage.internals.log.CorruptIndexException;
import org.apache.kafka.storage.internals.log.FetchDataInfo;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogSegment;
import org.apache.kafka.storage.internals.log.OffsetIndex;
import org.apache.kafka.storage.internals.log.ProducerStateEntry;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.TimeIndex;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

import java.io.DataOutputStream;
import java.io.File;
import java.io.IOException;
import java.io.OutputStream;
import java.lang.reflect.Proxy;
import java.nio.ByteBuffer;
import java.security.DigestOutputStream;
import java.security.MessageDigest;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.Iterator;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.TreeMap;
import java.util.function.LongSupplier;

/**
 * Opens a partition directory with Kafka's own loader and reports the result; then closes it as a broker that stops
 * cleanly does; or fills a new directory with Kafka's own appends.
 * Requests: clean, recovery_point, log_start_offset, now_ms, config {name: value}, topic_id?, producer_id_expiration_ms?;
 * timestamps [ms] | from [file].
 */
final class Loader {
    private static final KafkaScheduler SCHEDULER = new KafkaScheduler(1);

    static {
        SCHEDULER.startup();
    }

    static ObjectNode load(String path, JsonNode request) throws Exception {
        UnifiedLog log = open(path, request);
        try {
            return describe(log, request);
        } finally {
            log.close();
        }
    }

    /**
     * Many directories in one request, each closed before the next is opened: the state of each log, and instead of its
     * records their count and a digest. "error" if Kafka refuses a directory; "read_error" and "read_error_at" if a
     * fetch fails; then count and digest cover the records before it. "bad_indexes": the index files that fail Kafka's
     * own checks, which its loader does not run.
     */
    static ObjectNode loads(JsonNode request) throws Exception {
        ObjectNode answer = KafkaClasses.JSON.createObjectNode();
        ArrayNode verdicts = answer.putArray("verdicts");
        for (JsonNode each : request.get("cases")) {
            ObjectNode verdict = verdicts.addObject();
            try {
                UnifiedLog log = open(each.get("path").asText(), each);
                try {
                    offsets(log, verdict);
                    beside(log, verdict);
                    ArrayNode segments = verdict.putArray("segments"), bad = verdict.putArray("bad_indexes");
                    for (LogSegment segment : log.logSegments()) {
                        segments.addArray().add(segment.baseOffset()).add(segment.size());
                        check(segment, bad);
                    }
                    OptionalLong undecided = log.producerStateManager().firstUndecidedOffset();
                    if (undecided.isPresent()) verdict.put("first_undecided_offset", undecided.getAsLong());
                    else verdict.putNull("first_undecided_offset");
                    digest(log, verdict);
                } finally {
                    log.close();
                }
            } catch (Throwable error) {
                verdict.put("error", error.getClass().getName() + ": " + error.getMessage());
            }
        }
        return answer;
    }

    /** Appends each batch of the files `from`, in order and one by one, as a follower does; then closes. */
    static ObjectNode append(String path, JsonNode request) throws Exception {
        if (!new File(path).mkdirs()) throw new IOException("not a new directory: " + path);
        UnifiedLog log = open(path, request);
        long batches = 0;
        try {
            for (JsonNode from : request.get("from")) {
                try (FileRecords file = FileRecords.open(new File(from.asText()), false)) {
                    for (RecordBatch batch : file.batches()) {
                        ByteBuffer bytes = ByteBuffer.allocate(batch.sizeInBytes());
                        batch.writeTo(bytes);
                        bytes.flip();
                        log.appendAsFollower(MemoryRecords.readableRecords(bytes), batch.partitionLeaderEpoch());
                        batches++;
                    }
                }
            }
        } finally {
            log.close();
        }
        return KafkaClasses.JSON.createObjectNode().put("batches", batches);
    }

    private static UnifiedLog open(String path, JsonNode request) throws Exception {
        return open(path, request, SCHEDULER, standingStill(request.get("now_ms").asLong()));
    }

    static UnifiedLog open(String path, JsonNode request, Scheduler scheduler, Time clock) throws Exception {
        Map<String, String> properties = new HashMap<>();
        for (Iterator<String> names = request.get("config").fieldNames(); names.hasNext(); ) {
            String name = names.next();
            properties.put(name, request.get("config").get(name).asText());
        }
        return UnifiedLog.create(
            new File(path), new LogConfig(properties), request.get("log_start_offset").asLong(),
            request.get("recovery_point").asLong(), scheduler, new BrokerTopicStats(false),
            clock, 900_000, new ProducerStateManagerConfig(request.path("producer_id_expiration_ms").asInt(86_400_000), false),
            600_000, new LogDirFailureChannel(10), request.get("clean").asBoolean(),
            request.hasNonNull("topic_id") ? Optional.of(Uuid.fromString(request.get("topic_id").asText())) : Optional.empty());
    }

    /** A fixed clock for Kafka: producers expire by it. */
    static Time standingStill(long nowMs) {
        return clock(() -> nowMs);
    }

    static Time clock(LongSupplier nowMs) {
        return (Time) Proxy.newProxyInstance(Loader.class.getClassLoader(), new Class<?>[] {Time.class}, (proxy, method, args) ->
            method.getName().equals("milliseconds") ? (Object) nowMs.getAsLong() : method.invoke(Time.SYSTEM, args));
    }

    private static ObjectNode describe(UnifiedLog log, JsonNode request) throws Exception {
        ObjectNode answer = KafkaClasses.JSON.createObjectNode();
        state(log, answer);
        ArrayNode times = answer.putArray("timestamps");
        for (JsonNode query : request.get("timestamps")) times.add(lookUp(log, query.asLong()));
        records(log, answer.putArray("records"));
        return answer;
    }

    /** All state of a log that needs no read of its records. */
    static void state(UnifiedLog log, ObjectNode answer) throws Exception {
        offsets(log, answer);
        segments(log, answer.putArray("segments"));
        beside(log, answer);
    }

    private static void offsets(UnifiedLog log, ObjectNode answer) {
        answer.put("log_start_offset", log.logStartOffset()).put("log_end_offset", log.logEndOffset())
            .put("recovery_point", log.recoveryPoint()).put("topic_id", log.topicId().map(Object::toString).orElse(null));
    }

    private static void beside(UnifiedLog log, ObjectNode answer) throws IOException {
        ArrayNode epochs = answer.putArray("leader_epochs");
        log.leaderEpochCache().epochWithOffsets().forEach((epoch, start) -> epochs.addArray().add(epoch).add(start));
        ArrayNode producers = answer.putArray("producers");
        Map<Long, Integer> sequences = log.activeProducersWithLastSequence();
        new TreeMap<>(log.producerStateManager().activeProducers()).forEach((id, entry) ->
            producers.add(describe(entry).put("last_sequence", sequences.get(id))));
        ArrayNode aborted = answer.putArray("aborted");
        for (AbortedTxn txn : log.collectAbortedTransactions(log.logStartOffset(), log.logEndOffset()))
            aborted.addArray().add(txn.producerId()).add(txn.firstOffset()).add(txn.lastOffset()).add(txn.lastStableOffset());
    }

    static void segments(UnifiedLog log, ArrayNode into) throws Exception {
        for (LogSegment segment : log.logSegments()) into.add(describe(segment));
    }

    private static ObjectNode describe(LogSegment segment) throws Exception {
        ObjectNode node = KafkaClasses.JSON.createObjectNode();
        node.put("base_offset", segment.baseOffset()).put("size", segment.size()).put("max_timestamp", segment.largestTimestamp());
        ArrayNode offsets = node.putArray("offset_index");
        OffsetIndex offsetIndex = segment.offsetIndex();
        offsetIndex.sanityCheck();
        for (int n = 0; n < offsetIndex.entries(); n++) offsets.addArray().add(offsetIndex.entry(n).indexKey()).add(offsetIndex.entry(n).indexValue());
        ArrayNode times = node.putArray("time_index");
        TimeIndex timeIndex = segment.timeIndex();
        timeIndex.sanityCheck();
        for (int n = 0; n < timeIndex.entries(); n++) times.addArray().add(timeIndex.entry(n).indexKey()).add(timeIndex.entry(n).indexValue());
        return node;
    }

    private static ObjectNode describe(ProducerStateEntry entry) {
        ObjectNode node = KafkaClasses.JSON.createObjectNode();
        node.put("producer_id", entry.producerId()).put("epoch", entry.producerEpoch())
            .put("last_offset", entry.lastDataOffset()).put("coordinator_epoch", entry.coordinatorEpoch()).put("last_timestamp", entry.lastTimestamp());
        if (entry.currentTxnFirstOffset().isPresent()) node.put("current_txn_first_offset", entry.currentTxnFirstOffset().getAsLong());
        else node.putNull("current_txn_first_offset");
        return node;
    }

    private static ArrayNode lookUp(UnifiedLog log, long timestamp) {
        ArrayNode answer = KafkaClasses.JSON.createArrayNode();
        log.fetchOffsetByTimestamp(timestamp, Optional.empty()).timestampAndOffsetOpt()
            .ifPresent(found -> answer.add(found.timestamp).add(found.offset));
        return answer;
    }

    private static void records(UnifiedLog log, ArrayNode into) throws Exception {
        fetch(log, new long[1], (batch, record) -> into.add(Records.describe(batch, record)));
    }

    private static void check(LogSegment segment, ArrayNode bad) throws IOException {
        try {
            segment.offsetIndex().sanityCheck();
            segment.timeIndex().sanityCheck();
        } catch (CorruptIndexException error) {
            bad.add(error.getMessage());
        }
    }

    /** SHA-256 over offset, timestamp, producer id, key and value of each record; big-endian, a length of -1 for null. */
    private static void digest(UnifiedLog log, ObjectNode verdict) throws Exception {
        MessageDigest digest = MessageDigest.getInstance("SHA-256");
        DataOutputStream out = new DataOutputStream(new DigestOutputStream(OutputStream.nullOutputStream(), digest));
        long[] next = new long[1], count = new long[1];
        try {
            fetch(log, next, (batch, record) -> {
                record.ensureValid();
                out.writeLong(record.offset());
                out.writeLong(record.timestamp());
                out.writeLong(batch.producerId());
                write(out, record.key());
                write(out, record.value());
                count[0]++;
            });
            if (next[0] < log.logEndOffset()) verdict.put("read_error", "a fetch returned nothing").put("read_error_at", next[0]);
        } catch (Exception error) {
            verdict.put("read_error", error.getClass().getName() + ": " + error.getMessage()).put("read_error_at", next[0]);
        }
        verdict.put("records", count[0]).put("digest", HexFormat.of().formatHex(digest.digest()));
    }

    private static void write(DataOutputStream out, ByteBuffer bytes) throws IOException {
        out.writeInt(bytes == null ? -1 : bytes.remaining());
        if (bytes != null) for (ByteBuffer left = bytes.duplicate(); left.hasRemaining(); ) out.writeByte(left.get());
    }

    interface Taker {
        void take(RecordBatch batch, Record record) throws IOException;
    }

    /** Every record by fetches of 64 KiB, as a consumer reads them; next[0] is the offset of the next fetch. */
    private static void fetch(UnifiedLog log, long[] next, Taker taker) throws Exception {
        for (next[0] = log.logStartOffset(); next[0] < log.logEndOffset(); ) {
            FetchDataInfo fetched = log.read(next[0], 64 << 10, FetchIsolation.LOG_END, true);
            long from = next[0];
            for (RecordBatch batch : fetched.records.batches()) {
                batch.ensureValid();
                for (Record record : batch) if (record.offset() >= from) taker.take(batch, record);
                next[0] = batch.nextOffset();
            }
            if (next[0] == from) break;   // nothing below the log end: a gap, which the caller sees as missing records
        }
    }
}
