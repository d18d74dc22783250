import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.record.internal.TimestampType;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.CloseableIterator;
import org.apache.kafka.common.utils.PrimitiveRef;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogValidator;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

import java.io.BufferedReader;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

/**
 * Kafka's own classes as a peer: one run for each line on stdin, one line on stdout for each run. One JVM does all runs,
 * so that everything is compiled before figures count.
 *
 *   java KafkaLoop FETCHES REPEATS  FETCHES := (size:i32 batches)*, big-endian
 *   first line                    PID/task/TID: its file in /proc counts this thread's waits for a processor
 *   encode | decode | validate    -> SECONDS RECORDS BYTES
 *   encoded FILE                  -> the same; FILE holds the batches that encode made, one after the other
 *   a run that fails              -> error: WHAT
 *
 * Each run handles all fetches REPEATS times; `encoded` handles them once. The data of a task is prepared in its first
 * run and not measured.
 */
public final class KafkaLoop {
    private record Sum(long records, long bytes) { }

    private interface Task {
        Sum run() throws IOException;
    }

    public static void main(String[] args) throws Exception {
        List<ByteBuffer> fetches = read(Path.of(args[0]));
        int repeats = Integer.parseInt(args[1]);
        BufferedReader questions = new BufferedReader(new InputStreamReader(System.in));
        Encode encode = null;
        Task decode = new Decode(fetches);
        Task validate = null;
        answer(Files.readSymbolicLink(Path.of("/proc/thread-self")).toString());
        for (String line; (line = questions.readLine()) != null; ) {
            try {
                String[] words = line.split(" ", 2);
                if (words[0].startsWith("encode") && encode == null) encode = new Encode(fetches);
                if (words[0].equals("validate") && validate == null) validate = new Validate(fetches);
                switch (words[0]) {
                    case "encode" -> answer(timed(encode, repeats));
                    case "decode" -> answer(timed(decode, repeats));
                    case "validate" -> answer(timed(validate, repeats));
                    case "encoded" -> answer(timed(encode.into(Path.of(words[1])), 1));
                    default -> answer("error: no such task: " + line);
                }
            } catch (Exception failed) {
                answer("error: " + failed);
            }
        }
        System.exit(0);   // Kafka's metrics leave threads running
    }

    private static void answer(String text) {
        System.out.println(text);
        System.out.flush();
    }

    private static String timed(Task task, int repeats) throws IOException {
        long started = System.nanoTime(), records = 0, bytes = 0;
        for (int i = 0; i < repeats; i++) {
            Sum sum = task.run();
            records += sum.records;
            bytes += sum.bytes;
        }
        return (System.nanoTime() - started) / 1e9 + " " + records + " " + bytes;
    }

    private static List<ByteBuffer> read(Path file) throws IOException {
        List<ByteBuffer> fetches = new ArrayList<>();
        try (DataInputStream in = new DataInputStream(Files.newInputStream(file))) {
            for (long left = Files.size(file); left > 0; ) {
                byte[] fetch = new byte[in.readInt()];
                in.readFully(fetch);
                fetches.add(ByteBuffer.wrap(fetch));
                left -= Integer.BYTES + fetch.length;
            }
        }
        return fetches;
    }

    /** As a producer: a MemoryRecordsBuilder for each batch, over a reused buffer. */
    private static final class Encode implements Task {
        private record Rows(long baseOffset, CompressionType codec, long[] stamps, byte[][] keys, byte[][] values) { }

        private final List<Rows> batches = new ArrayList<>();
        private int largest = 0;

        Encode(List<ByteBuffer> fetches) {
            for (ByteBuffer fetch : fetches) {
                for (MutableRecordBatch batch : MemoryRecords.readableRecords(fetch.duplicate()).batches()) {
                    batches.add(rows(batch));
                    largest = Math.max(largest, batch.sizeInBytes());
                }
            }
        }

        private static Rows rows(RecordBatch batch) {
            int count = batch.countOrNull();
            Rows rows = new Rows(
                batch.baseOffset(), batch.compressionType(), new long[count], new byte[count][], new byte[count][]);
            int at = 0;
            for (Record record : batch) {
                rows.stamps[at] = record.timestamp();
                rows.keys[at] = Utils.toArray(record.key());
                rows.values[at++] = Utils.toArray(record.value());
            }
            return rows;
        }

        @Override
        public Sum run() {
            ByteBuffer out = ByteBuffer.allocate(largest);
            long records = 0, bytes = 0;
            for (Rows rows : batches) {
                bytes += build(rows, out).limit();
                records += rows.stamps.length;
            }
            return new Sum(records, bytes);
        }

        Task into(Path file) {
            return () -> {
                ByteBuffer out = ByteBuffer.allocate(largest);
                long records = 0, bytes = 0;
                try (DataOutputStream written = new DataOutputStream(Files.newOutputStream(file))) {
                    for (Rows rows : batches) {
                        ByteBuffer batch = build(rows, out);
                        written.write(batch.array(), batch.arrayOffset(), batch.limit());
                        records += rows.stamps.length;
                        bytes += batch.limit();
                    }
                }
                return new Sum(records, bytes);
            };
        }

        private static ByteBuffer build(Rows rows, ByteBuffer out) {
            out.clear();
            MemoryRecordsBuilder builder = MemoryRecords.builder(
                out, Compression.of(rows.codec).build(), TimestampType.CREATE_TIME, rows.baseOffset);
            for (int i = 0; i < rows.stamps.length; i++) builder.append(rows.stamps[i], rows.keys[i], rows.values[i]);
            return builder.build().buffer();
        }
    }

    /** As a consumer: the checksum, then keys and values as arrays that escape the loop, or the JIT would remove them. */
    private static final class Decode implements Task {
        private final List<ByteBuffer> fetches;
        private final BufferSupplier buffers = BufferSupplier.create();
        private byte[] key;
        private byte[] value;

        Decode(List<ByteBuffer> fetches) {
            this.fetches = fetches;
        }

        @Override
        public Sum run() {
            long records = 0, bytes = 0;
            for (ByteBuffer fetch : fetches) {
                for (MutableRecordBatch batch : MemoryRecords.readableRecords(fetch.duplicate()).batches()) {
                    batch.ensureValid();
                    try (CloseableIterator<Record> iterator = batch.streamingIterator(buffers)) {
                        while (iterator.hasNext()) {
                            Record record = iterator.next();
                            key = Utils.toArray(record.key());
                            value = Utils.toArray(record.value());
                            bytes += key.length + value.length;
                            records++;
                        }
                    }
                }
            }
            return new Sum(records, bytes);
        }
    }

    /** As a leader: one batch in each request, Kafka's limit; the checksum, then LogValidator. */
    private static final class Validate implements Task {
        private static final TopicPartition PARTITION = new TopicPartition("t", 0);

        private final List<ByteBuffer> requests = new ArrayList<>();
        private final LogValidator.MetricsRecorder metrics =
            UnifiedLog.newValidatorMetricsRecorder(new BrokerTopicStats(false).allTopicsStats());
        private final BufferSupplier buffers = BufferSupplier.create();

        Validate(List<ByteBuffer> fetches) {
            for (ByteBuffer fetch : fetches) {
                for (MutableRecordBatch batch : MemoryRecords.readableRecords(fetch.duplicate()).batches()) {
                    ByteBuffer request = ByteBuffer.allocate(batch.sizeInBytes());
                    batch.writeTo(request);
                    request.flip();
                    request.putLong(0, 0L);   // as clients send it; another base offset has a leader compress again
                    requests.add(request);
                }
            }
        }

        @Override
        public Sum run() {
            long records = 0, bytes = 0;
            for (ByteBuffer request : requests) {
                MemoryRecords sent = MemoryRecords.readableRecords(request.duplicate());
                CompressionType codec = CompressionType.NONE;
                for (MutableRecordBatch batch : sent.batches()) {
                    batch.ensureValid();
                    codec = batch.compressionType();
                }
                PrimitiveRef.LongRef offset = PrimitiveRef.ofLong(0);
                LogValidator validator = new LogValidator(
                    sent, PARTITION, Time.SYSTEM, codec, Compression.of(codec).build(), false, RecordBatch.MAGIC_VALUE_V2,
                    TimestampType.CREATE_TIME, Long.MAX_VALUE, Long.MAX_VALUE, 0, AppendOrigin.CLIENT);
                bytes += validator.validateMessagesAndAssignOffsets(offset, metrics, buffers).validatedRecords.sizeInBytes();
                records += offset.value;
            }
            return new Sum(records, bytes);
        }
    }
}
