import com.fasterxml.jackson.databind.node.ObjectNode;

import java.nio.channels.FileChannel;
import java.nio.channels.FileLock;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.HashMap;
import java.util.Map;

/** The lock of a log directory as a broker locks it: FileChannel.tryLock over the whole `.lock` file. */
final class Locks {
    private static final Map<String, FileChannel> HELD = new HashMap<>();

    /** got: false if another process holds the file (tryLock returned null). */
    static ObjectNode lock(String path) throws Exception {
        FileChannel channel = FileChannel.open(Path.of(path), StandardOpenOption.CREATE, StandardOpenOption.READ, StandardOpenOption.WRITE);
        FileLock lock = channel.tryLock();
        if (lock == null) channel.close(); else HELD.put(path, channel);
        return KafkaClasses.JSON.createObjectNode().put("got", lock != null).put("pid", ProcessHandle.current().pid());
    }

    static ObjectNode unlock(String path) throws Exception {
        HELD.remove(path).close();
        return KafkaClasses.JSON.createObjectNode();
    }
}
