import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;

import java.io.BufferedReader;
import java.io.BufferedWriter;
import java.io.InputStreamReader;
import java.io.OutputStreamWriter;
import java.nio.charset.StandardCharsets;

/**
 * Runs Kafka's own classes on files: one JSON request per line on stdin, one JSON result per line on stdout,
 * {"error": ...} if Kafka threw. It stays alive because starting a JVM costs more than any query.
 *
 *   {"ask": "records", "path": FILE}                                    -> Records.read
 *   {"ask": "load", "path": DIRECTORY, "clean": bool, ...}              -> Loader.load
 *   {"ask": "loads", "path": "", "cases": [{"path": DIRECTORY, ...}]}   -> Loader.loads
 *   {"ask": "append", "path": NEW DIRECTORY, "from": [FILE], ...}       -> Loader.append
 *   {"ask": "clean", "path": DIRECTORY, "rounds": [...], ...}           -> Cleaning.clean
 *   {"ask": "validate", "path": "", "cases": [...]}                     -> Leader.validate
 *   {"ask": "authorize", "path": "", "cases": [...]}                    -> Security.authorize
 *   {"ask": "throttle", "path": "", "cases": [...]}                     -> Security.throttle
 *   {"ask": "configs", "path": ""}                                      -> Configs.list
 *   {"ask": "lock", "path": FILE}   {"ask": "unlock", "path": FILE}     -> Locks
 */
public final class KafkaClasses {
    static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        BufferedWriter out = new BufferedWriter(new OutputStreamWriter(System.out, StandardCharsets.UTF_8));
        for (String line; (line = in.readLine()) != null; ) {
            ObjectNode answer;
            try {
                answer = answer(JSON.readTree(line));
            } catch (Throwable error) {
                answer = JSON.createObjectNode().put("error", error.getClass().getName() + ": " + error.getMessage());
            }
            out.write(JSON.writeValueAsString(answer));
            out.newLine();
            out.flush();
        }
        System.exit(0);   // Kafka's scheduler threads would keep the JVM alive
    }

    private static ObjectNode answer(JsonNode request) throws Exception {
        String path = request.get("path").asText();
        switch (request.get("ask").asText()) {
            case "records": return Records.read(path);
            case "load": return Loader.load(path, request);
            case "loads": return Loader.loads(request);
            case "append": return Loader.append(path, request);
            case "clean": return Cleaning.clean(path, request);
            case "validate": return Leader.validate(request);
            case "authorize": return Security.authorize(request);
            case "throttle": return Security.throttle(request);
            case "configs": return Configs.list();
            case "lock": return Locks.lock(path);
            case "unlock": return Locks.unlock(path);
            default: throw new IllegalArgumentException("unknown question: " + request);
        }
    }
}
