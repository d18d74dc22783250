import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;

import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.server.config.ServerTopicConfigSynonyms;
import org.apache.kafka.storage.internals.log.LogConfig;

import java.util.Map;
import java.util.TreeMap;

/** Kafka's config keys, each with its type, default and bounds as Kafka prints them. */
final class Configs {
    static ObjectNode list() throws Exception {
        ObjectNode answer = KafkaClasses.JSON.createObjectNode();
        ConfigDef broker = (ConfigDef) Class.forName("kafka.server.KafkaConfig").getMethod("configDef").invoke(null);
        keys(answer.putArray("broker"), broker);
        keys(answer.putArray("topic"), LogConfig.configDefCopy());
        ObjectNode synonyms = answer.putObject("synonyms");
        new TreeMap<>(ServerTopicConfigSynonyms.ALL_TOPIC_CONFIG_SYNONYMS).forEach((topic, all) -> {
            ArrayNode names = synonyms.putArray(topic);
            all.forEach(synonym -> names.add(synonym.name()));
        });
        return answer;
    }

    private static void keys(ArrayNode rows, ConfigDef def) {
        for (Map.Entry<String, ConfigDef.ConfigKey> entry : new TreeMap<>(def.configKeys()).entrySet()) {
            ConfigDef.ConfigKey key = entry.getValue();
            rows.addArray().add(key.name).add(key.type.toString()).add(String.valueOf(key.hasDefault() ? key.defaultValue : ""))
                .add(String.valueOf(key.validator));
        }
    }
}
