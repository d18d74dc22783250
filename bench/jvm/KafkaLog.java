import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.server.common.RequestLocal;
import org.apache.kafka.server.storage.log.FetchIsolation;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogSegment;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.log.VerificationGuard;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

import java.io.BufferedReader;
import java.io.DataInputStream;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.LongBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Random;

/**
 * Kafka's log engine as a peer, without broker and network: one run for each line on stdin, one line on stdout for it.
 *
 *   java KafkaLog SEGMENT_BYTES
 *   first line                     PID/task/TID: its file in /proc counts this thread's waits for a processor
 *   open DIR END | recover DIR END -> SECONDS LOGS BYTES; every partition of DIR, after a clean stop or none, up to END
 *                                  in each
 *   leader | follower FETCHES REPEATS DIR
 *                                  -> SECONDS RECORDS BYTES; a new log at DIR, each batch of FETCHES appended REPEATS
 *                                  times, one in each request; DIR is gone afterwards
 *   fetch DIR OFFSETS MAX_BYTES    -> SECONDS FETCHES BYTES; a read at each of the offsets, i64 big-endian in a file, at
 *                                  least one batch
 *   translate DIR COUNT            -> SECONDS COUNT SUM; random offsets of the log at DIR to positions in its segments
 *   a run that fails               -> error: WHAT
 *
 * FETCHES := (size:i32 batches)*, big-endian. Closing logs and reading FETCHES and OFFSETS is not measured.
 */
public final class KafkaLog {
    private static final KafkaScheduler SCHEDULER = new KafkaScheduler(1);
    private static final BrokerTopicStats STATS = new BrokerTopicStats(false);
    private static LogConfig config;
    private static UnifiedLog opened;   // opened by the first request for it

    public static void main(String[] args) throws Exception {
        config = new LogConfig(Map.of("segment.bytes", args[0], "max.message.bytes", "16777216", "retention.ms", "-1"));
        SCHEDULER.startup();
        BufferedReader questions = new BufferedReader(new InputStreamReader(System.in));
        answer(Files.readSymbolicLink(Path.of("/proc/thread-self")).toString());
        for (String line; (line = questions.readLine()) != null; ) {
            try {
                String[] words = line.split(" ");
                switch (words[0]) {
                    case "open", "recover" -> load(new File(words[1]), words[0].equals("open"), Long.parseLong(words[2]));
                    case "leader", "follower" ->
                        append(words[0].equals("leader"), batches(Path.of(words[1])), Integer.parseInt(words[2]), new File(words[3]));
                    case "fetch" -> fetch(new File(words[1]), Path.of(words[2]), Integer.parseInt(words[3]));
                    case "translate" -> translate(new File(words[1]), Integer.parseInt(words[2]));
                    default -> answer("error: no such task: " + line);
                }
            } catch (Exception failed) {
                answer("error: " + failed);
            }
        }
        System.exit(0);   // Kafka's metrics leave threads running
    }

    private static void answer(String line) {
        System.out.println(line);
        System.out.flush();
    }

    private static void answer(long nanos, long count, long bytes) {
        answer(nanos / 1e9 + " " + count + " " + bytes);
    }

    private static UnifiedLog open(File directory, boolean clean, long end) throws IOException {
        return UnifiedLog.create(directory, config, 0L, clean ? end : 0L, SCHEDULER, STATS, Time.SYSTEM, 300_000,
            new ProducerStateManagerConfig(86_400_000, false), 600_000, new LogDirFailureChannel(10), clean, Optional.empty());
    }

    private static void load(File root, boolean clean, long end) throws IOException {
        File[] directories = root.listFiles(file -> file.isDirectory() && file.getName().contains("-"));
        Arrays.sort(directories);
        List<UnifiedLog> logs = new ArrayList<>();
        long started = System.nanoTime();
        for (File directory : directories) logs.add(open(directory, clean, end));
        long nanos = System.nanoTime() - started, bytes = 0;
        for (UnifiedLog log : logs) {
            if (log.logEndOffset() != end) throw new IllegalStateException(log + " ends at " + log.logEndOffset());
            bytes += log.size();
            log.close();
        }
        answer(nanos, logs.size(), bytes);
    }

    private static List<ByteBuffer> batches(Path file) throws IOException {
        List<ByteBuffer> found = new ArrayList<>();
        try (DataInputStream in = new DataInputStream(Files.newInputStream(file))) {
            while (in.available() > 0) {
                byte[] fetch = new byte[in.readInt()];
                in.readFully(fetch);
                for (MutableRecordBatch batch : MemoryRecords.readableRecords(ByteBuffer.wrap(fetch)).batches()) {
                    ByteBuffer request = ByteBuffer.allocate(batch.sizeInBytes());
                    batch.writeTo(request);
                    request.flip();
                    found.add(request);
                }
            }
        }
        return found;
    }

    private static void append(boolean leader, List<ByteBuffer> batches, int repeats, File directory) throws IOException {
        UnifiedLog log = open(directory, true, 0);
        RequestLocal local = RequestLocal.withThreadConfinedCaching();
        long bytes = 0, started = System.nanoTime();
        for (int repeat = 0; repeat < repeats; repeat++) {
            for (ByteBuffer batch : batches) {
                // As a client sends it; another base offset than 0 has a leader compress again. As it is replicated.
                batch.putLong(0, leader ? 0L : log.logEndOffset());
                MemoryRecords records = MemoryRecords.readableRecords(batch.duplicate());
                if (leader)
                    log.appendAsLeader(records, 0, AppendOrigin.CLIENT, local, VerificationGuard.SENTINEL);
                else
                    log.appendAsFollower(records, 0);
                bytes += batch.limit();
            }
        }
        long nanos = System.nanoTime() - started, count = log.logEndOffset();
        log.close();
        Utils.delete(directory);
        answer(nanos, count, bytes);
    }

    private static void fetch(File directory, Path file, int maxBytes) throws IOException {
        if (opened == null) opened = open(directory, false, 0);
        LongBuffer offsets = ByteBuffer.wrap(Files.readAllBytes(file)).asLongBuffer();
        int count = offsets.remaining();
        long bytes = 0, started = System.nanoTime();
        for (int i = 0; i < count; i++)
            bytes += opened.read(offsets.get(i), maxBytes, FetchIsolation.LOG_END, true).records.sizeInBytes();
        answer(System.nanoTime() - started, count, bytes);
    }

    private static void translate(File directory, int count) throws IOException {
        if (opened == null) opened = open(directory, false, 0);
        LogSegment segment = opened.activeSegment();
        long first = segment.baseOffset(), end = opened.logEndOffset(), sum = 0;
        Random chance = new Random(count);
        long[] offsets = new long[count];
        for (int i = 0; i < count; i++) offsets[i] = first + (long) (chance.nextDouble() * (end - first));
        long started = System.nanoTime();
        for (long offset : offsets) sum += segment.translateOffset(offset).position;
        answer(System.nanoTime() - started, count, sum);
    }
}
