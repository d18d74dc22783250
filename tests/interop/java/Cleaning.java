import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;

import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.Scheduler;
import org.apache.kafka.storage.internals.log.Cleaner;
import org.apache.kafka.storage.internals.log.CleanerStats;
import org.apache.kafka.storage.internals.log.LogCleanerManager;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogToClean;
import org.apache.kafka.storage.internals.log.SkimpyOffsetMap;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.utils.Throttler;

import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ScheduledFuture;

/**
 * Cleans a partition directory with Kafka's own Cleaner, round by round as a cleaner thread does it: the range and the
 * checkpoint are LogCleanerManager's; expired producers are dropped before a round, delayed deletions run after it.
 * Then the log is closed as by a broker that stops cleanly.
 *
 * Requests: the fields of Loader.open, with now_ms as the clock while loading, and
 *   high_watermark      offset, null: the log end
 *   slots, load_factor  of the offset map; io_buffer_size, max_io_buffer_size
 *   rounds              [{now_ms, first_dirty_offset: offset | null: none | "previous" | "checkpoint", roll}]
 *   until_clean         repeat the last round, each from where the previous one ended
 *   only_dirty          a round without dirty bytes is skipped: no cleaner thread would choose such a log
 */
final class Cleaning {
    private static final int ROUNDS_MAX = 1000;

    private final JsonNode request;
    private final ArrayNode rounds;
    private final Clock clock;
    private final Later later = new Later();
    private final UnifiedLog log;
    private final LogCleanerManager manager;
    private final SkimpyOffsetMap map;
    private final Cleaner cleaner;
    private Long previous;

    static ObjectNode clean(String path, JsonNode request) throws Exception {
        ObjectNode answer = KafkaClasses.JSON.createObjectNode();
        Cleaning cleaning = new Cleaning(path, request, answer.putArray("rounds"));
        try {
            cleaning.run();
            Loader.state(cleaning.log, answer);
        } finally {
            cleaning.manager.removeMetrics();
            cleaning.log.close();
            cleaning.later.run();
        }
        return answer;
    }

    private Cleaning(String path, JsonNode request, ArrayNode rounds) throws Exception {
        this.request = request;
        this.rounds = rounds;
        clock = new Clock(request.get("now_ms").asLong());
        log = Loader.open(path, request, later, clock.time);
        map = new SkimpyOffsetMap(24 * request.get("slots").asInt(), "MD5");
        cleaner = new Cleaner(0, map, request.get("io_buffer_size").asInt(), request.get("max_io_buffer_size").asInt(),
            request.get("load_factor").asDouble(), new Throttler(Double.MAX_VALUE, 300, "cleaner-io", "bytes", clock.time), clock.time,
            partition -> { });
        manager = new LogCleanerManager(List.of(log.parentDirFile()),
            new ConcurrentHashMap<>(Map.of(log.topicPartition(), log)), new LogDirFailureChannel(10));
    }

    private void run() throws Exception {
        log.updateHighWatermark(request.hasNonNull("high_watermark") ? request.get("high_watermark").asLong() : log.logEndOffset());
        boolean going = true;
        for (JsonNode round : request.get("rounds")) going = round(round, firstDirty(round.get("first_dirty_offset")));
        JsonNode last = request.get("rounds").get(request.get("rounds").size() - 1);
        for (int n = 0; request.path("until_clean").asBoolean() && going; n++) {
            if (n == ROUNDS_MAX) throw new IllegalStateException("still dirty after " + n + " rounds");
            going = round(last, Optional.of(previous));
        }
    }

    private Optional<Long> firstDirty(JsonNode given) {
        if (given == null || given.isNull()) return Optional.empty();
        return switch (given.asText()) {
            case "previous" -> Optional.of(previous);
            case "checkpoint" -> Optional.ofNullable(manager.allCleanerCheckpoints().get(log.topicPartition()));
            default -> Optional.of(given.asLong());
        };
    }

    /** Whether there is more to clean after its end. */
    private boolean round(JsonNode round, Optional<Long> firstDirty) throws Exception {
        long now = round.get("now_ms").asLong();
        clock.now = now;
        if (round.path("roll").asBoolean() && log.activeSegment().size() > 0) {
            log.roll();
            log.flush(false);
        }
        log.removeExpiredProducers(now);
        Record offsets = cleanable(firstDirty, now);
        LogToClean range = new LogToClean(log, offset(offsets, "firstDirtyOffset"), offset(offsets, "firstUncleanableDirtyOffset"), false);
        long from = range.firstDirtyOffset(), to = range.firstUncleanableOffset();
        if (request.path("only_dirty").asBoolean() && range.cleanableBytes() == 0) return false;
        Map.Entry<Long, CleanerStats> done = cleaner.doClean(range, now);
        previous = done.getKey();
        later.run();
        manager.updateCheckpoints(log.parentDirFile(), Optional.of(Map.entry(log.topicPartition(), previous)), Optional.empty());
        CleanerStats stats = done.getValue();
        ObjectNode node = rounds.addObject();
        node.put("now_ms", now).put("first_dirty_offset", from).put("first_uncleanable_offset", to)
            .put("clean_bytes", range.cleanBytes()).put("cleanable_bytes", range.cleanableBytes())
            .put("first_dirty_offset_after", previous).put("last_stable_offset", log.lastStableOffset())
            .put("offset_map_entries", map.size()).put("offset_map_latest_offset", map.latestOffset())
            .put("records_read", stats.messagesRead()).put("records_written", stats.messagesWritten())
            .put("records_invalid", stats.invalidMessagesRead()).put("map_records_read", stats.mapMessagesRead())
            .put("bytes_read", stats.bytesRead()).put("bytes_written", stats.bytesWritten());
        Loader.segments(log, node.putArray("segments"));
        return previous < to && previous > from;
    }

    /** LogCleanerManager.cleanableOffsets: package-private in Kafka 4.3. */
    private Record cleanable(Optional<Long> firstDirty, long now) throws Exception {
        Method method = LogCleanerManager.class.getDeclaredMethod("cleanableOffsets", UnifiedLog.class, Optional.class, long.class);
        method.setAccessible(true);
        return (Record) method.invoke(null, log, firstDirty, now);
    }

    private static long offset(Record offsets, String name) throws Exception {
        Method method = offsets.getClass().getDeclaredMethod(name);
        method.setAccessible(true);
        return (long) method.invoke(offsets);
    }

    /** A clock that the requests set. */
    private static final class Clock {
        volatile long now;
        final Time time = Loader.clock(() -> this.now);

        Clock(long now) {
            this.now = now;
        }
    }

    /** Runs delayed tasks, such as file deletions, on request; periodic tasks never. */
    private static final class Later implements Scheduler {
        /** Can only be cancelled. */
        private static final ScheduledFuture<?> NEVER = (ScheduledFuture<?>) Proxy.newProxyInstance(
            Later.class.getClassLoader(), new Class<?>[] {ScheduledFuture.class}, (proxy, method, args) -> true);

        private final List<Runnable> tasks = new ArrayList<>();

        @Override
        public synchronized ScheduledFuture<?> schedule(String name, Runnable task, long delayMs, long periodMs) {
            if (periodMs < 0) tasks.add(task);
            return NEVER;
        }

        void run() {
            List<Runnable> due;
            synchronized (this) {
                due = List.copyOf(tasks);
                tasks.clear();
            }
            due.forEach(Runnable::run);
        }

        @Override
        public void startup() { }

        @Override
        public void shutdown() { }

        @Override
        public void resizeThreadPool(int size) { }
    }
}
