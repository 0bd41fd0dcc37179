import java.io.File;
import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.lang.reflect.ParameterizedType;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.jar.JarFile;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.types.BoundField;
import org.apache.kafka.common.protocol.types.Schema;
import org.apache.kafka.common.protocol.types.TaggedFields;
import org.apache.kafka.common.protocol.types.Type;
import org.apache.kafka.server.common.Feature;
import org.apache.kafka.server.common.MetadataVersion;

/**
 * Prints, as JSON, what Kafka's jars on the class path may store on disk: the schema of each message in every version,
 * the highest level of each feature, the versions of files, and what is stored as a number, by name.
 */
public final class Schemas {
    private static final List<String> PACKAGES = List.of(
        "org/apache/kafka/common/metadata/",
        "org/apache/kafka/coordinator/group/generated/",
        "org/apache/kafka/coordinator/share/generated/",
        "org/apache/kafka/coordinator/transaction/generated/",
        "org/apache/kafka/server/log/remote/metadata/storage/generated/",
        "org/apache/kafka/storage/internals/log/",
        "org/apache/kafka/raft/generated/");
    private static final List<String> CONTROL_RECORDS = List.of(
        "LeaderChangeMessage", "SnapshotHeaderRecord", "SnapshotFooterRecord", "KRaftVersionRecord", "VotersRecord",
        "EndTxnMarker", "ControlRecordTypeSchema", "AbortedTxn", "ConsumerProtocolSubscription",
        "ConsumerProtocolAssignment");
    // Some of them are no messages, or were none before: their classes by simple names, wherever a release has them.
    private static final Map<String, String> VERSIONS = Map.of(
        "RecordBatch", "CURRENT_MAGIC_VALUE",
        "LeaderEpochCheckpointFile", "CURRENT_VERSION",
        "OffsetCheckpointFile", "CURRENT_VERSION",
        "PartitionMetadataFile", "CURRENT_VERSION");
    private static final List<String> NAMES = List.of(
        "CompressionType", "ControlRecordType", "coordinator/transaction/TransactionState", "MetaPropertiesVersion",
        "LeaderRecoveryState", "RemoteLogSegmentState", "RemotePartitionDeleteState", "share/fetch/RecordState");
    private static final Map<String, String> CLASSES = new TreeMap<>();

    public static void main(String[] arguments) throws Exception {
        Map<String, Class<?>> found = new TreeMap<>();
        for (String path : System.getProperty("java.class.path").split(File.pathSeparator)) {
            if (!path.endsWith(".jar")) continue;
            try (JarFile jar = new JarFile(path)) {
                for (var entry : Collections.list(jar.entries())) {
                    String name = entry.getName();
                    note(name);
                    if (wanted(name)) add(name.replace('/', '.').replace(".class", ""), found);
                }
            }
        }
        Map<String, Object> messages = new LinkedHashMap<>();
        for (Class<?> message : found.values()) messages.put(message.getName(), describe(message));
        Map<String, Object> all = new LinkedHashMap<>();
        all.put("messages", messages);
        all.put("features", features());
        all.put("versions", versions());
        all.put("names", names());
        System.out.println(json(all));
    }

    /** Where a class of these is; tests' jars are not on the class path. */
    private static void note(String name) {
        for (Collection<String> wanted : List.of(VERSIONS.keySet(), NAMES))
            for (String simple : wanted)
                if (name.endsWith("/" + simple + ".class")) CLASSES.put(simple, name);
    }

    private static Class<?> find(String simple) throws Exception {
        String name = CLASSES.get(simple);
        if (name == null) throw new ClassNotFoundException(simple + " is in none of the jars");
        return Class.forName(name.replace('/', '.').replace(".class", ""));
    }

    /** The highest level of each feature that brokers take without asking for unstable ones. */
    private static Map<String, Object> features() {
        Map<String, Object> out = new TreeMap<>();
        out.put(MetadataVersion.FEATURE_NAME, (int) MetadataVersion.latestProduction().featureLevel());
        for (Feature feature : Feature.PRODUCTION_FEATURES) out.put(feature.featureName(), (int) feature.latestProduction());
        return out;
    }

    private static Map<String, Object> versions() throws Exception {
        Map<String, Object> out = new TreeMap<>();
        for (var one : VERSIONS.entrySet()) {
            Field field = find(one.getKey()).getDeclaredField(one.getValue());
            field.setAccessible(true);
            out.put(one.getKey(), ((Number) field.get(null)).intValue());
        }
        return out;
    }

    private static Map<String, Object> names() throws Exception {
        Map<String, Object> out = new TreeMap<>();
        for (String simple : NAMES) {
            List<Object> names = new ArrayList<>();
            for (Object constant : find(simple).getEnumConstants()) names.add(((Enum<?>) constant).name());
            out.put(simple.substring(simple.lastIndexOf('/') + 1), names);
        }
        return out;
    }

    private static boolean wanted(String name) {
        if (!name.endsWith(".class") || name.contains("$")) return false;
        for (String folder : PACKAGES)
            if (name.startsWith(folder) && name.indexOf('/', folder.length()) < 0) return true;
        for (String record : CONTROL_RECORDS)
            if (name.equals("org/apache/kafka/common/message/" + record + ".class")) return true;
        return false;
    }

    private static void add(String name, Map<String, Class<?>> found) {
        try {
            Class<?> loaded = Class.forName(name, false, Schemas.class.getClassLoader());
            loaded.getField("SCHEMAS");
            found.put(name, loaded);
        } catch (NoSuchFieldException | ClassNotFoundException | LinkageError other) {
            // no message
        }
    }

    private static Map<String, Object> describe(Class<?> message) throws Exception {
        Map<String, Object> out = new LinkedHashMap<>();
        out.put("apiKey", (int) ((ApiMessage) message.getConstructor().newInstance()).apiKey());
        Schema[] schemas = (Schema[]) message.getField("SCHEMAS").get(null);
        Map<String, Object> versions = new LinkedHashMap<>();
        for (int version = 0; version < schemas.length; version++)
            if (schemas[version] != null) versions.put(String.valueOf(version), fields(schemas[version], message));
        out.put("versions", versions);
        return out;
    }

    private static Map<String, Object> fields(Schema schema, Class<?> owner) throws Exception {
        Map<String, Object> out = new LinkedHashMap<>();
        List<Object> list = new ArrayList<>();
        boolean flexible = false;
        for (BoundField bound : schema.fields()) {
            if (bound.def.type instanceof TaggedFields tagged) {
                flexible = true;
                for (var entry : tagged.fields().entrySet())
                    list.add(field(entry.getValue().name, entry.getValue().type, owner, entry.getKey()));
            } else {
                list.add(field(bound.def.name, bound.def.type, owner, null));
            }
        }
        out.put("flexible", flexible);
        out.put("fields", list);
        return out;
    }

    private static Map<String, Object> field(String name, Type type, Class<?> owner, Integer tag) throws Exception {
        Field field = declared(owner, name);
        Map<String, Object> out = new LinkedHashMap<>();
        out.put("name", field.getName());
        boolean array = type.isArray();
        Type inner = array ? type.arrayElementType().get() : type;
        boolean struct = inner instanceof Schema;
        out.put("type", (array ? "[]" : "") + (struct ? "struct" : plain(inner)));
        out.put("nullable", type.isNullable());
        if (tag != null) {
            out.put("tag", tag);
            out.put("default", defaultOf(field, owner));
        }
        if (struct) {
            out.put("struct", fields((Schema) inner, array ? element(field) : field.getType()));
        }
        return out;
    }

    private static Class<?> element(Field field) {
        boolean list = field.getGenericType() instanceof ParameterizedType;
        var container = list ? field.getGenericType() : field.getType().getGenericSuperclass();  // a map's collection
        return (Class<?>) ((ParameterizedType) container).getActualTypeArguments()[0];
    }

    private static String plain(Type type) {
        return type.toString().toLowerCase().replace("compact_", "").replace("nullable_", "")
            .replace("boolean", "bool").replace("records", "bytes");
    }

    private static Field declared(Class<?> owner, String snake) {
        for (Field field : owner.getDeclaredFields())
            if (!Modifier.isStatic(field.getModifiers()) && toSnake(field.getName()).equals(snake.replace("_", ""))) return field;
        throw new IllegalStateException(owner + " has no " + snake);
    }

    private static String toSnake(String camel) {
        return camel.replace("_", "").toLowerCase();
    }

    private static Object defaultOf(Field field, Class<?> owner) throws Exception {
        field.setAccessible(true);
        Object value = field.get(owner.getConstructor().newInstance());
        if (value instanceof Collection<?> several) return several.isEmpty() ? List.of() : several.toString();
        if (value == null || value instanceof Number || value instanceof Boolean) return value;
        return value.toString();
    }

    private static String json(Object value) {
        StringBuilder out = new StringBuilder();
        if (value instanceof Map<?, ?> map) {
            out.append('{');
            for (var entry : map.entrySet())
                out.append(out.length() > 1 ? "," : "").append(json(entry.getKey())).append(':').append(json(entry.getValue()));
            return out.append('}').toString();
        }
        if (value instanceof List<?> list) {
            out.append('[');
            for (Object item : list) out.append(out.length() > 1 ? "," : "").append(json(item));
            return out.append(']').toString();
        }
        return value instanceof String text ? '"' + text + '"' : String.valueOf(value);
    }
}
