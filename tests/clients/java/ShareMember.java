import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Scanner;
import java.util.stream.Collectors;

import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * A member of a share group. It reads one command per line from stdin, and prints one line of JSON for each:
 *
 *   poll MS                    [[topic, partition, offset, delivery count, value], ...]
 *   acknowledge TYPE OFFSET... acknowledges records of the last poll (ACCEPT, RELEASE, REJECT, RENEW)
 *   commit                     {"topic-partition": "the exception, or an empty string"}
 *   close
 *
 * Arguments: bootstrap servers, group, acknowledgement mode, topic, further properties as name=value.
 */
public class ShareMember {
    public static void main(String[] arguments) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments[0]);
        properties.put("group.id", arguments[1]);
        properties.put("share.acknowledgement.mode", arguments[2]);
        for (int number = 4; number < arguments.length; number++) {
            String[] parts = arguments[number].split("=", 2);
            properties.put(parts[0], parts[1]);
        }
        try (KafkaShareConsumer<String, String> consumer = new KafkaShareConsumer<>(properties,
                new StringDeserializer(), new StringDeserializer());
             Scanner commands = new Scanner(System.in)) {
            consumer.subscribe(List.of(arguments[3]));
            ConsumerRecords<String, String> polled = ConsumerRecords.empty();
            while (commands.hasNextLine()) {
                String[] words = commands.nextLine().split(" ");
                String result = "null";
                try {
                    switch (words[0]) {
                        case "poll" -> {
                            polled = consumer.poll(Duration.ofMillis(Long.parseLong(words[1])));
                            result = records(polled);
                        }
                        case "acknowledge" -> acknowledge(consumer, polled, words);
                        case "commit" -> result = results(consumer.commitSync());
                        case "close" -> {
                            consumer.close();
                            System.out.println("null");
                            return;
                        }
                        default -> throw new IllegalArgumentException(words[0]);
                    }
                } catch (KafkaException | IllegalStateException error) {
                    result = "{\"error\": " + quoted(error.toString()) + "}";
                }
                System.out.println(result);
            }
        }
    }

    private static void acknowledge(KafkaShareConsumer<String, String> consumer,
                                    ConsumerRecords<String, String> polled, String[] words) {
        for (int number = 2; number < words.length; number++) {
            long offset = Long.parseLong(words[number]);
            for (ConsumerRecord<String, String> record : polled) {
                if (record.offset() == offset) {
                    consumer.acknowledge(record, AcknowledgeType.valueOf(words[1]));
                }
            }
        }
    }

    private static String records(ConsumerRecords<String, String> polled) {
        List<String> found = new ArrayList<>();
        for (ConsumerRecord<String, String> record : polled) {
            found.add("[" + quoted(record.topic()) + "," + record.partition() + "," + record.offset() + ","
                + record.deliveryCount().map(Object::toString).orElse("null") + "," + quoted(record.value()) + "]");
        }
        return "[" + String.join(",", found) + "]";
    }

    private static String results(Map<TopicIdPartition, Optional<KafkaException>> results) {
        return results.entrySet().stream()
            .map(each -> quoted(each.getKey().topicPartition().toString()) + ":"
                + quoted(each.getValue().map(Object::toString).orElse("")))
            .collect(Collectors.joining(",", "{", "}"));
    }

    private static String quoted(String text) {
        return text == null ? "null" : "\"" + text.replace("\\", "\\\\").replace("\"", "\\\"").replace("\n", "\\n") + "\"";
    }
}
