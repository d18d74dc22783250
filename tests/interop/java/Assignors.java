/*
 * Kafka's server assignors. Takes a JSON line for each group from stdin and writes one with the assignment:
 *
 *   {"assignor": "uniform", "homogeneous": true, "sizes": {TOPIC_ID: N},
 *    "members": {NAME: {"instance": ID or null, "topics": [TOPIC_ID], "target": {TOPIC_ID: [PARTITION]}}}}
 *   {NAME: {TOPIC_ID: [PARTITION]}}
 *
 *   javac -cp 'LIB/*' -d OUT Assignors.java && java -cp 'OUT:LIB/*' Assignors < GROUPS
 */
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Collection;
import java.util.Collections;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.group.api.assignor.ConsumerGroupPartitionAssignor;
import org.apache.kafka.coordinator.group.api.assignor.GroupSpec;
import org.apache.kafka.coordinator.group.api.assignor.MemberAssignment;
import org.apache.kafka.coordinator.group.api.assignor.MemberSubscription;
import org.apache.kafka.coordinator.group.api.assignor.SubscribedTopicDescriber;
import org.apache.kafka.coordinator.group.api.assignor.SubscriptionType;
import org.apache.kafka.coordinator.group.assignor.RangeAssignor;
import org.apache.kafka.coordinator.group.assignor.UniformAssignor;

public class Assignors {
    record Member(Optional<String> rackId, Optional<String> instanceId, Set<Uuid> subscribedTopicIds) implements MemberSubscription {}

    record Target(Map<Uuid, Set<Integer>> partitions) implements MemberAssignment {}

    record Group(Map<String, Member> members, Map<String, Target> targets, Set<String> assigned, SubscriptionType subscriptionType) implements GroupSpec {
        public Collection<String> memberIds() { return members.keySet(); }
        public boolean isPartitionAssigned(Uuid topic, int partition) { return assigned.contains(topic + "/" + partition); }
        public boolean isPartitionAssignable(Uuid topic, int partition) { return true; }
        public MemberSubscription memberSubscription(String name) { return members.get(name); }
        public MemberAssignment memberAssignment(String name) { return targets.get(name); }
    }

    record Topics(Map<Uuid, Integer> sizes) implements SubscribedTopicDescriber {
        public int numPartitions(Uuid topic) { return sizes.getOrDefault(topic, -1); }
        public Set<String> racksForPartition(Uuid topic, int partition) { return Set.of(); }
    }

    public static void main(String[] args) throws Exception {
        ObjectMapper json = new ObjectMapper();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine())
            System.out.println(json.writeValueAsString(assign(json.readTree(line))));
    }

    static Map<String, Map<String, Set<Integer>>> assign(JsonNode group) {
        Map<Uuid, Integer> sizes = new LinkedHashMap<>();
        group.get("sizes").fields().forEachRemaining(size -> sizes.put(Uuid.fromString(size.getKey()), size.getValue().asInt()));
        Map<String, Member> members = new LinkedHashMap<>();
        Map<String, Target> targets = new LinkedHashMap<>();
        Set<String> assigned = new HashSet<>();
        group.get("members").fields().forEachRemaining(entry -> {
            JsonNode member = entry.getValue();
            Set<Uuid> topics = new TreeSet<>();
            member.get("topics").forEach(topic -> topics.add(Uuid.fromString(topic.asText())));
            Optional<String> instance = member.get("instance").isNull() ? Optional.empty() : Optional.of(member.get("instance").asText());
            members.put(entry.getKey(), new Member(Optional.empty(), instance, topics));
            Map<Uuid, Set<Integer>> target = new LinkedHashMap<>();
            member.get("target").fields().forEachRemaining(topic -> {
                Set<Integer> partitions = new TreeSet<>();
                topic.getValue().forEach(partition -> partitions.add(partition.asInt()));
                Uuid id = Uuid.fromString(topic.getKey());
                target.put(id, partitions);
                partitions.forEach(partition -> assigned.add(id + "/" + partition));
            });
            targets.put(entry.getKey(), new Target(Collections.unmodifiableMap(target)));
        });
        SubscriptionType type = group.get("homogeneous").asBoolean() ? SubscriptionType.HOMOGENEOUS : SubscriptionType.HETEROGENEOUS;
        ConsumerGroupPartitionAssignor assignor = group.get("assignor").asText().equals("range") ? new RangeAssignor() : new UniformAssignor();
        Map<String, Map<String, Set<Integer>>> result = new TreeMap<>();
        assignor.assign(new Group(members, targets, assigned, type), new Topics(sizes)).members().forEach((name, found) -> {
            Map<String, Set<Integer>> partitions = new TreeMap<>();
            found.partitions().forEach((topic, some) -> partitions.put(topic.toString(), new TreeSet<>(some)));
            result.put(name, partitions);
        });
        return result;
    }
}
