import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.Scheduler;
import org.apache.kafka.storage.internals.log.Cleaner;
import org.apache.kafka.storage.internals.log.CleanerStats;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogToClean;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.SkimpyOffsetMap;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.utils.Throttler;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.lang.reflect.Proxy;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ScheduledFuture;

/**
 * Kafka's log cleaner as a peer: one round over a log for each line on stdin, one line on stdout for it.
 *
 *   java KafkaCleaner SEGMENT_BYTES MAP_BYTES
 *   first line         PID/task/TID: its file in /proc counts this thread's waits for a processor
 *   clean DIR END      -> SECONDS RECORDS BYTES; all of the log at DIR, cleanly stopped at END, below its last segment
 *   a run that fails   -> error: WHAT
 *
 * The buffers are those of a broker: 512 KiB shared by reading and writing, one map, no throttle. Opening and closing the
 * log is not measured, and the replaced files stay as .deleted.
 */
public final class KafkaCleaner {
    private static final int IO_BUFFER_BYTES = 256 << 10;

    public static void main(String[] args) throws Exception {
        LogConfig config = new LogConfig(Map.of("internal.segment.bytes", args[0], "cleanup.policy", "compact", "retention.ms", "-1"));
        Throttler unlimited = new Throttler(Double.MAX_VALUE, 300, "cleaner-io", "bytes", Time.SYSTEM);
        SkimpyOffsetMap map = new SkimpyOffsetMap(Integer.parseInt(args[1]));
        Cleaner cleaner = new Cleaner(0, map, IO_BUFFER_BYTES, config.maxMessageSize(), 0.9, unlimited, Time.SYSTEM, partition -> { });
        BufferedReader questions = new BufferedReader(new InputStreamReader(System.in));
        answer(Files.readSymbolicLink(Path.of("/proc/thread-self")).toString());
        for (String line; (line = questions.readLine()) != null; ) {
            try {
                String[] words = line.split(" ");
                if (!words[0].equals("clean")) throw new IllegalArgumentException("no such task: " + line);
                answer(clean(new File(words[1]), Long.parseLong(words[2]), config, cleaner));
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

    private static String clean(File directory, long end, LogConfig config, Cleaner cleaner) throws Exception {
        UnifiedLog log = UnifiedLog.create(directory, config, 0L, end, new Never(), new BrokerTopicStats(false), Time.SYSTEM,
            300_000, new ProducerStateManagerConfig(86_400_000, false), 600_000, new LogDirFailureChannel(10), true, Optional.empty());
        try {
            log.updateHighWatermark(log.logEndOffset());
            LogToClean range = new LogToClean(log, 0, log.activeSegment().baseOffset(), false);
            long started = System.nanoTime();
            Map.Entry<Long, CleanerStats> done = cleaner.doClean(range, Time.SYSTEM.milliseconds());
            long nanos = System.nanoTime() - started;
            if (done.getKey() != range.firstUncleanableOffset()) throw new IllegalStateException("the map is too small: " + done.getKey());
            return nanos / 1e9 + " " + done.getValue().messagesRead() + " " + done.getValue().bytesRead();
        } finally {
            log.close();
        }
    }

    /** Ignores tasks that are scheduled for later. */
    private static final class Never implements Scheduler {
        @Override
        public ScheduledFuture<?> schedule(String name, Runnable task, long delayMs, long periodMs) {
            return (ScheduledFuture<?>) Proxy.newProxyInstance(
                Never.class.getClassLoader(), new Class<?>[] {ScheduledFuture.class}, (proxy, method, args) -> true);
        }

        @Override
        public void startup() { }

        @Override
        public void shutdown() { }

        @Override
        public void resizeThreadPool(int size) { }
    }
}
