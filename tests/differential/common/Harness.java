package differential;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.OutputStreamWriter;
import java.io.PrintWriter;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.CompletionException;
import org.apache.kafka.common.protocol.Errors;

/** Reads one case a line from standard input, and answers each with one line: the result of every step. */
final class Harness {
    static final ObjectMapper JSON = new ObjectMapper();

    private Harness() {
    }

    static ObjectNode object() {
        return JsonNodeFactory.instance.objectNode();
    }

    static ArrayNode array() {
        return JsonNodeFactory.instance.arrayNode();
    }

    static void run(Subject.Factory factory) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintWriter out = new PrintWriter(new OutputStreamWriter(System.out, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.println(JSON.writeValueAsString(answer(factory, JSON.readTree(line))));
            out.flush();
        }
    }

    private static ArrayNode answer(Subject.Factory factory, JsonNode start) throws Exception {
        ArrayNode results = array();
        Subject subject = factory.create(start);
        try {
            ObjectNode before = object();
            for (JsonNode step : start.get("steps")) {
                ObjectNode result = step(subject, step);
                ObjectNode state = subject.state();
                result.set("state", changes(before, state));
                results.add(result);
                before = state;
            }
        } finally {
            subject.close();
        }
        return results;
    }

    private static ObjectNode step(Subject subject, JsonNode step) throws Exception {
        ObjectNode result = object();
        try {
            ObjectNode returns = subject.apply(step.get("op").asText(), step.get("args"));
            JsonNode outcome = returns.remove("outcome");
            result.put("outcome", outcome == null ? "ok" : outcome.asText());
            result.set("returns", returns);
        } catch (Exception refusal) {
            result.put("outcome", "error");
            result.put("error", errorName(refusal));
            result.put("message", String.valueOf(refusal));
        }
        return result;
    }

    /** What is not as before: whole parts of the state, but of objects only their parts, null where one is gone. */
    private static ObjectNode changes(ObjectNode before, ObjectNode now) {
        ObjectNode news = object();
        for (Map.Entry<String, JsonNode> part : (Iterable<Map.Entry<String, JsonNode>>) now::fields) {
            JsonNode old = before.get(part.getKey());
            if (part.getValue().equals(old)) {
                continue;
            }
            boolean objects = part.getValue().isObject() && old != null;
            news.set(part.getKey(), objects ? replaced((ObjectNode) old, (ObjectNode) part.getValue()) : part.getValue());
        }
        return news;
    }

    private static ObjectNode replaced(ObjectNode old, ObjectNode now) {
        ObjectNode news = object();
        now.fields().forEachRemaining(part -> {
            if (!part.getValue().equals(old.get(part.getKey()))) {
                news.set(part.getKey(), part.getValue());
            }
        });
        old.fieldNames().forEachRemaining(name -> {
            if (!now.has(name)) {
                news.putNull(name);
            }
        });
        return news;
    }

    /** Kafka's name of an error, or that of the conformance cases for an internal one. */
    static String errorName(Throwable thrown) {
        Throwable cause = thrown instanceof CompletionException ? thrown.getCause() : thrown;
        String type = cause.getClass().getSimpleName();
        if (type.equals("OffsetsOutOfOrderException")) {
            return "OFFSETS_OUT_OF_ORDER";
        }
        if (type.equals("UnexpectedAppendOffsetException")) {
            return "UNEXPECTED_APPEND_OFFSET";
        }
        Errors known = Errors.forException(cause);
        if (known != Errors.UNKNOWN_SERVER_ERROR) {
            return known.name();
        }
        if (cause instanceof IllegalStateException) {
            return "ILLEGAL_STATE";
        }
        return cause instanceof IllegalArgumentException ? "ILLEGAL_ARGUMENT" : cause.getClass().getName();
    }

    /** A private field of one of Kafka's classes, which has no accessor. */
    static Object field(Object owner, String name) throws ReflectiveOperationException {
        Field field = owner.getClass().getDeclaredField(name);
        field.setAccessible(true);
        return field.get(owner);
    }
}
