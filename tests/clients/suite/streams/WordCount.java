import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.LongDeserializer;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.Stores;

/**
 * Counts how often each value of a topic occurs. Prints the counts in the output topic as soon as their sum is SUM.
 *
 * <p>WordCount BOOTSTRAP APPLICATION INPUT OUTPUT SUM GUARANTEE STATE_DIR
 */
public final class WordCount {
    private static final Duration LIMIT = Duration.ofSeconds(90);

    public static void main(String[] args) throws Exception {
        String input = args[2];
        String output = args[3];
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(input, Consumed.with(Serdes.String(), Serdes.String()))
                .groupBy((key, value) -> value, Grouped.with(Serdes.String(), Serdes.String()))
                .count(Materialized.<String, Long>as(Stores.inMemoryKeyValueStore("counts"))
                        .withKeySerde(Serdes.String())
                        .withValueSerde(Serdes.Long()))
                .toStream()
                .to(output, Produced.with(Serdes.String(), Serdes.Long()));

        Properties properties = new Properties();
        properties.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, args[0]);
        properties.put(StreamsConfig.APPLICATION_ID_CONFIG, args[1]);
        properties.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, args[5]);
        properties.put(StreamsConfig.STATE_DIR_CONFIG, args[6]);
        properties.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, 2);
        properties.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 100);
        properties.put(StreamsConfig.REPLICATION_FACTOR_CONFIG, 1);
        properties.put(StreamsConfig.consumerPrefix(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG), "earliest");

        Map<String, Long> counts;
        try (KafkaStreams streams = new KafkaStreams(builder.build(), properties)) {
            streams.start();
            counts = read(args[0], output, Long.parseLong(args[4]));
        }
        StringBuilder line = new StringBuilder();
        counts.forEach((word, count) -> line.append(line.length() == 0 ? "{" : ", ").append("\"" + word + "\": " + count));
        System.out.println(line + "}");
    }

    private static Map<String, Long> read(String bootstrap, String output, long sum) {
        Map<String, Object> config = Map.of(
                ConsumerConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap,
                ConsumerConfig.ISOLATION_LEVEL_CONFIG, "read_committed",
                ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "earliest");
        Map<String, Long> counts = new TreeMap<>();
        long until = System.nanoTime() + LIMIT.toNanos();
        try (var consumer = new KafkaConsumer<>(config, new StringDeserializer(), new LongDeserializer())) {
            List<TopicPartition> partitions = consumer.partitionsFor(output).stream()
                    .map(each -> new TopicPartition(each.topic(), each.partition()))
                    .toList();
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            while (counts.values().stream().mapToLong(each -> each).sum() != sum) {
                if (System.nanoTime() > until) {
                    throw new IllegalStateException("not in time: " + counts);
                }
                for (ConsumerRecord<String, Long> record : consumer.poll(Duration.ofMillis(100))) {
                    counts.put(record.key(), record.value());
                }
            }
        }
        return counts;
    }
}
