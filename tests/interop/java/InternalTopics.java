/*
 * Writes a JSON line for each type and version of the records in Kafka's internal topics: their bytes, with every field
 * set to a value that is not its default, and the same as Kafka's own JSON. One more line for each has all fields at
 * their defaults.
 *
 *   javac -cp 'LIB/*' -d OUT InternalTopics.java && java -cp 'OUT:LIB/*' InternalTopics JAR...
 */
import com.fasterxml.jackson.databind.JsonNode;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.ParameterizedType;
import java.lang.reflect.Type;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collections;
import java.util.List;
import java.util.jar.JarEntry;
import java.util.jar.JarFile;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.MessageUtil;

public class InternalTopics {
    static int count;

    public static void main(String[] jars) throws Exception {
        for (String jar : jars)
            try (JarFile file = new JarFile(jar)) {
                List<String> names = new ArrayList<>();
                for (JarEntry entry : Collections.list(file.entries())) {
                    String name = entry.getName();
                    if (name.endsWith("JsonConverter.class") && !name.contains("$") && (name.contains("/generated/") || name.contains("common/metadata/")))
                        names.add(name.substring(0, name.length() - "JsonConverter.class".length()).replace('/', '.'));
                }
                Collections.sort(names);
                for (String name : names)
                    write(Class.forName(name));
            }
    }

    static void write(Class<?> type) throws Exception {
        Method toJson = Class.forName(type.getName() + "JsonConverter").getMethod("write", type, short.class);
        Message empty = (Message) type.getConstructor().newInstance();
        for (short version = empty.lowestSupportedVersion(); version <= empty.highestSupportedVersion(); version++)
            for (boolean full : new boolean[] {false, true}) {
                Message message = (Message) type.getConstructor().newInstance();
                count = 0;
                if (full)
                    fill(message, version);
                ByteBuffer bytes;
                JsonNode json;
                try {
                    bytes = MessageUtil.toByteBufferAccessor(message, version).buffer();
                    json = (JsonNode) toJson.invoke(null, message, version);
                } catch (Exception unsupported) {
                    throw new RuntimeException(type + " version " + version, unsupported);
                }
                byte[] data = new byte[bytes.remaining()];
                bytes.get(data);
                System.out.println("{\"type\":\"" + type.getSimpleName() + "\",\"version\":" + version + ",\"bytes\":\""
                    + Base64.getEncoder().encodeToString(data) + "\",\"json\":" + json + "}");
            }
    }

    static void fill(Object message, short version) throws Exception {
        for (Method method : message.getClass().getMethods())
            if (method.getName().startsWith("set") && method.getParameterCount() == 1) {
                Object before = message.getClass().getMethod(method.getName().substring(3, 4).toLowerCase() + method.getName().substring(4)).invoke(message);
                try {
                    method.invoke(message, value(method.getGenericParameterTypes()[0], version));
                } catch (InvocationTargetException tooLarge) {
                    method.invoke(message, 4242); // a uint16
                }
                if (!writable(message, version))
                    method.invoke(message, before);
            }
    }

    static boolean writable(Object message, short version) {
        try {
            MessageUtil.toByteBufferAccessor((Message) message, version);
            return true;
        } catch (Exception unsupported) {
            return false;
        }
    }

    static Object value(Type type, short version) throws Exception {
        count++;
        if (type instanceof ParameterizedType list)
            return new ArrayList<>(List.of(value(list.getActualTypeArguments()[0], version), value(list.getActualTypeArguments()[0], version)));
        if (type == String.class)
            return "text-" + count + (count % 3 == 0 ? "-\u00e9" : "");
        if (type == byte.class || type == Byte.class)
            return (byte) (count % 100 + 1);
        if (type == short.class || type == Short.class)
            return (short) (count * 101);
        if (type == int.class || type == Integer.class)
            return count * 1_000_003;
        if (type == long.class || type == Long.class)
            return count * 1_000_000_000_039L;
        if (type == double.class)
            return count + 0.5;
        if (type == boolean.class)
            return true;
        if (type == byte[].class)
            return new byte[] {(byte) count, (byte) 0xff, 0};
        if (type == Uuid.class)
            return new Uuid(count * 0x123456789abcdefL, -count);
        Object made = ((Class<?>) type).getConstructor().newInstance();
        if (made instanceof Message)
            fill(made, version);
        return made;
    }
}
