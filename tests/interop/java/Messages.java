import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;

/* Kafka's message classes compared with given bytes. Each line of stdin: class, version, bytes in hex, JSON; separated by
 * tabs. One line of stdout for each: "ok", "none" for a version that this Kafka lacks, or what differs. First come the
 * error codes: code, name and whether it is retriable. */
public class Messages {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final String[] PACKAGES = {
        "common.message", "common.metadata", "coordinator.group.generated", "coordinator.transaction.generated",
        "coordinator.share.generated", "server.log.remote.metadata.storage.generated",
    };

    public static void main(String[] arguments) throws Exception {
        for (Errors error : Errors.values())
            System.out.println(error.code() + " " + error + " " + (error.exception() instanceof RetriableException));
        System.out.println();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        for (String line; (line = in.readLine()) != null;) {
            String[] parts = line.split("\t", 4);
            String answer;
            try {
                answer = compare(parts[0], Short.parseShort(parts[1]), HexFormat.of().parseHex(parts[2]), parts[3]);
            } catch (InvocationTargetException failed) {
                answer = "raises " + failed.getCause();
            } catch (Exception failed) {
                answer = "raises " + failed;
            }
            System.out.println(answer.replace('\n', ' '));
        }
    }

    private static String compare(String name, short version, byte[] bytes, String text) throws Exception {
        Class<?> type = find(name);
        if (version > type.getField("HIGHEST_SUPPORTED_VERSION").getShort(null))
            return "none";
        Method read = Class.forName(type.getName() + "JsonConverter").getMethod("read", JsonNode.class, short.class);
        Message built = (Message) read.invoke(null, JSON.readTree(text), version);
        byte[] written = write(built, version);
        if (!java.util.Arrays.equals(written, bytes))
            return "writes " + HexFormat.of().formatHex(written);
        Message parsed = (Message) type.getConstructor().newInstance();
        ByteBuffer buffer = ByteBuffer.wrap(bytes);
        parsed.read(new ByteBufferAccessor(buffer), version);
        if (buffer.hasRemaining())
            return "leaves " + buffer.remaining() + " bytes";
        return parsed.equals(built) ? "ok" : "reads " + parsed;
    }

    private static Class<?> find(String name) throws ClassNotFoundException {
        for (String place : PACKAGES)
            try {
                return Class.forName("org.apache.kafka." + place + "." + name);
            } catch (ClassNotFoundException elsewhere) {
                continue;
            }
        throw new ClassNotFoundException(name);
    }

    private static byte[] write(Message message, short version) {
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer out = ByteBuffer.allocate(message.size(cache, version));
        message.write(new ByteBufferAccessor(out), cache, version);
        return out.array();
    }
}
