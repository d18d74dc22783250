import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;

import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AccessControlEntryFilter;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.metrics.MeasurableStat;
import org.apache.kafka.common.metrics.MetricConfig;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.Quota;
import org.apache.kafka.common.metrics.QuotaViolationException;
import org.apache.kafka.common.metrics.Sensor;
import org.apache.kafka.common.metrics.internals.PluginMetricsImpl;
import org.apache.kafka.common.metrics.stats.Rate;
import org.apache.kafka.common.metrics.stats.TokenBucket;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourcePatternFilter;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.utils.SecurityUtils;
import org.apache.kafka.metadata.authorizer.StandardAcl;
import org.apache.kafka.metadata.authorizer.StandardAuthorizer;
import org.apache.kafka.security.authorizer.AclEntry;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.authorizer.AuthorizationResult;
import org.apache.kafka.server.quota.QuotaUtils;

import java.net.InetAddress;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;

/** Decisions of Kafka's authorizer, and throttle times of its quotas. */
final class Security {
    private static final long START_MS = 1_700_000_000_000L;

    /** {"cases": [{"acls": [[type, pattern, name, principal, host, operation, permission]], "super_users", "default",
     *  "questions": [[principal, host, operation, type, name]], "some": [[principal, host, operation, type]],
     *  "filters": [[type, pattern, name, principal, host, operation, permission]]}]}
     *  -> {"answers": [{"questions": [bool], "some": [bool], "filters": [[rule number]]}], "operations": {type: [number]}} */
    static ObjectNode authorize(JsonNode request) throws Exception {
        ObjectNode answer = KafkaClasses.JSON.createObjectNode();
        ArrayNode answers = answer.putArray("answers");
        for (JsonNode each : request.get("cases")) {
            try (Metrics metrics = new Metrics()) {
                decide(each, answers.addObject(), metrics);
            }
        }
        ObjectNode operations = answer.putObject("operations");
        for (ResourceType type : ResourceType.values()) {
            if (type == ResourceType.UNKNOWN || type == ResourceType.ANY) continue;
            ArrayNode numbers = operations.putArray(type.name());
            AclEntry.supportedOperations(type).forEach(operation -> numbers.add(operation.code()));
        }
        return answer;
    }

    private static void decide(JsonNode each, ObjectNode answer, Metrics metrics) throws Exception {
        StandardAuthorizer authorizer = new StandardAuthorizer();
        authorizer.configure(Map.of(
            "super.users", each.get("super_users").asText(),
            "allow.everyone.if.no.acl.found", each.get("default").asText()));
        authorizer.withPluginMetrics(new PluginMetricsImpl(metrics, new LinkedHashMap<>()));
        Map<Uuid, StandardAcl> acls = new HashMap<>();
        Map<AclBinding, Integer> numbers = new HashMap<>();
        for (JsonNode acl : each.get("acls")) {
            StandardAcl rule = new StandardAcl(ResourceType.valueOf(text(acl, 0)), text(acl, 2), PatternType.valueOf(text(acl, 1)),
                text(acl, 3), text(acl, 4), AclOperation.valueOf(text(acl, 5)), AclPermissionType.valueOf(text(acl, 6)));
            if (numbers.putIfAbsent(rule.toBinding(), numbers.size()) == null) acls.put(Uuid.randomUuid(), rule);
        }
        authorizer.loadSnapshot(acls);
        authorizer.completeInitialLoad();
        ArrayNode decisions = answer.putArray("questions");
        for (JsonNode asked : each.get("questions")) {
            Action action = new Action(AclOperation.valueOf(text(asked, 2)),
                new ResourcePattern(ResourceType.valueOf(text(asked, 3)), text(asked, 4), PatternType.LITERAL), 1, false, false);
            AuthorizableRequestContext context = new Client(text(asked, 0), text(asked, 1));
            decisions.add(authorizer.authorize(context, List.of(action)).get(0) == AuthorizationResult.ALLOWED);
        }
        ArrayNode some = answer.putArray("some");
        for (JsonNode asked : each.get("some")) {
            some.add(authorizer.authorizeByResourceType(new Client(text(asked, 0), text(asked, 1)),
                AclOperation.valueOf(text(asked, 2)), ResourceType.valueOf(text(asked, 3))) == AuthorizationResult.ALLOWED);
        }
        ArrayNode found = answer.putArray("filters");
        for (JsonNode filter : each.get("filters")) {
            ArrayNode matching = found.addArray();
            authorizer.acls(new AclBindingFilter(
                new ResourcePatternFilter(ResourceType.valueOf(text(filter, 0)), text(filter, 2), PatternType.valueOf(text(filter, 1))),
                new AccessControlEntryFilter(text(filter, 3), text(filter, 4), AclOperation.valueOf(text(filter, 5)),
                    AclPermissionType.valueOf(text(filter, 6))))).forEach(binding -> matching.add(numbers.get(binding)));
        }
    }

    private static String text(JsonNode row, int column) {
        return row.get(column).isNull() ? null : row.get(column).asText();
    }

    /** {"cases": [{"kind": "rate" | "bucket", "bound", "samples", "seconds", "events": [[ms since the start, amount]]}]}
     *  -> {"answers": [[throttle ms]]} */
    static ObjectNode throttle(JsonNode request) {
        ObjectNode answer = KafkaClasses.JSON.createObjectNode();
        ArrayNode answers = answer.putArray("answers");
        for (JsonNode each : request.get("cases")) {
            boolean bucket = each.get("kind").asText().equals("bucket");
            MetricConfig config = new MetricConfig().samples(each.get("samples").asInt())
                .timeWindow(each.get("seconds").asLong(), TimeUnit.SECONDS).quota(Quota.upperBound(each.get("bound").asDouble()));
            ArrayNode waits = answers.addArray();
            try (Metrics metrics = new Metrics()) {
                Sensor sensor = metrics.sensor("quota");
                MeasurableStat stat = bucket ? new TokenBucket() : new Rate();
                sensor.add(metrics.metricName("quota", "quota"), stat, config);
                for (JsonNode event : each.get("events")) {
                    long now = START_MS + event.get(0).asLong();
                    try {
                        sensor.record(event.get(1).asDouble(), now, true);
                        waits.add(0);
                    } catch (QuotaViolationException error) {
                        waits.add(bucket ? Math.round(-error.value() / error.bound() * 1000) : QuotaUtils.throttleTime(error, now));
                    }
                }
            }
        }
        return answer;
    }

    private static final class Client implements AuthorizableRequestContext {
        private final KafkaPrincipal principal;
        private final InetAddress address;

        Client(String principal, String host) throws Exception {
            this.principal = SecurityUtils.parseKafkaPrincipal(principal);
            this.address = InetAddress.getByName(host);
        }

        @Override public String listenerName() { return "PLAINTEXT"; }
        @Override public SecurityProtocol securityProtocol() { return SecurityProtocol.PLAINTEXT; }
        @Override public KafkaPrincipal principal() { return principal; }
        @Override public InetAddress clientAddress() { return address; }
        @Override public int requestType() { return 0; }
        @Override public int requestVersion() { return 0; }
        @Override public String clientId() { return "client"; }
        @Override public int correlationId() { return 0; }
    }
}
