package differential;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Spliterators;
import java.util.stream.StreamSupport;

/**
 * A ProducerStateManager under the operations of the conformance cases, level "manager".
 *
 * @param <A> the version's ProducerAppendInfo
 * @param <C> the version's CompletedTxn
 */
abstract class ProducerMap<A, C> implements Subject {
    private static int made = 0;

    final JsonNode config;
    final File dir;

    ProducerMap(JsonNode start) throws IOException {
        config = start.path("initial").path("config");
        dir = new File(System.getProperty("java.io.tmpdir"), "topic-" + made++);
        dir.mkdir();
    }

    // What differs between versions, by the names of 4.1.

    abstract void open() throws Exception;

    abstract A prepareUpdate(long producerId, String origin) throws Exception;

    abstract void appendData(A info, JsonNode batch) throws Exception;

    /** The transaction that the marker closed, or null. */
    abstract C appendMarker(A info, JsonNode marker) throws Exception;

    abstract void appendEmptyControl(A info, JsonNode batch) throws Exception;

    abstract void update(A info);

    /** Ends the verification of a producer, as the log does for every transactional batch that it takes. */
    void clearVerification(long producerId) {
    }

    /** Completes a transaction, and describes it as the README does. */
    abstract ObjectNode complete(C completed);

    abstract void updateMapEndOffset(long offset);

    /** Operations other than appends, snapshots, and damage to files. */
    abstract ObjectNode other(String op, JsonNode args) throws Exception;

    abstract ObjectNode producers();

    abstract Long firstUndecided();

    abstract Long firstUnstable();

    abstract long mapEnd();

    abstract long lastSnapshotOffset() throws Exception;

    abstract void takeSnapshot() throws Exception;

    void moreState(ObjectNode state) {
    }

    @Override
    public ObjectNode apply(String op, JsonNode args) throws Exception {
        switch (op) {
            case "append_batch":
            case "append_marker":
            case "append_plain":
            case "append_empty_control_batch":
                ObjectNode item = args.deepCopy();
                item.put("kind", op.substring("append_".length()).replace("_control_batch", "_control"));
                return append(Harness.array().add(item), args.path("origin").asText());
            case "append_group":
                return append((ArrayNode) args.get("items"), args.get("origin").asText());
            case "take_snapshot":
                return snapshot();
            case "restart":
                open();
                return Harness.object();
            case "set_map_end":
                updateMapEndOffset(args.get("map_end").asLong());
                return Harness.object();
            case "corrupt_snapshot":
                corrupt(file(args.get("offset").asLong()), args.get("how").asText());
                return Harness.object();
            default:
                return other(op, args);
        }
    }

    /** One append as the log makes it: all are checked, then all producers updated, then all completions computed. */
    ObjectNode append(ArrayNode items, String origin) throws Exception {
        Map<Long, A> pending = new LinkedHashMap<>();
        List<C> closed = new ArrayList<>();
        for (JsonNode item : items) {
            String kind = item.get("kind").asText();
            if (kind.equals("plain")) {
                continue;
            }
            long producerId = item.get("pid").asLong();
            if (!pending.containsKey(producerId)) {
                pending.put(producerId, prepareUpdate(producerId, origin));
            }
            A info = pending.get(producerId);
            if (kind.equals("batch")) {
                appendData(info, item);
            } else if (kind.equals("empty_control")) {
                appendEmptyControl(info, item);
            } else {
                C completed = appendMarker(info, item);
                if (completed != null) {
                    closed.add(completed);
                }
            }
        }
        pending.values().forEach(this::update);
        for (JsonNode item : items) {
            if (item.path("transactional").asBoolean() || item.has("offset")) {
                clearVerification(item.get("pid").asLong());
            }
        }
        ObjectNode returns = Harness.object().put("outcome", "accepted");
        ArrayNode completed = returns.putArray("completed");
        closed.forEach(one -> completed.add(complete(one)));
        JsonNode last = items.get(items.size() - 1);
        updateMapEndOffset((last.has("offset") ? last.get("offset") : last.get("last_offset")).asLong() + 1);
        return returns;
    }

    ObjectNode snapshot() throws Exception {
        long before = lastSnapshotOffset();
        takeSnapshot();
        long offset = lastSnapshotOffset();
        ObjectNode returns = Harness.object();
        if (offset == before) {
            return returns.putNull("snapshot_offset");
        }
        StringBuilder hex = new StringBuilder();
        for (byte one : Files.readAllBytes(file(offset).toPath())) {
            hex.append(String.format("%02x", one));
        }
        return returns.put("snapshot_offset", offset).put("hex", hex.toString());
    }

    File file(long offset) {
        return new File(dir, String.format("%020d.snapshot", offset));
    }

    private static void corrupt(File file, String how) throws IOException {
        if (!file.exists()) {
            throw new IllegalArgumentException("no " + file.getName());
        }
        byte[] bytes = Files.readAllBytes(file.toPath());
        if (how.equals("garbage") && bytes.length > 0) {
            bytes[bytes.length - 1] += 1; // added, not flipped: damaged twice must not be whole again
        }
        int length = how.equals("empty") ? 0 : how.equals("truncated") ? Math.max(0, bytes.length - 1) : bytes.length;
        Files.write(file.toPath(), Arrays.copyOf(bytes, length));
    }

    @Override
    public ObjectNode state() throws Exception {
        ObjectNode state = Harness.object();
        ObjectNode producers = producers();
        state.set("producers", producers);
        ArrayNode ids = state.putArray("producer_ids");
        StreamSupport.stream(Spliterators.spliteratorUnknownSize(producers.fieldNames(), 0), false)
            .map(Long::valueOf).sorted().forEach(ids::add);
        state.put("first_undecided", firstUndecided());
        state.put("first_unstable", firstUnstable());
        state.put("map_end", mapEnd());
        ArrayNode snapshots = state.putArray("snapshots");
        String[] names = dir.list((parent, name) -> name.endsWith(".snapshot"));
        Arrays.stream(names).map(name -> Long.valueOf(name.substring(0, 20))).sorted().forEach(snapshots::add);
        moreState(state);
        return state;
    }

    @Override
    public void close() throws Exception {
        for (File file : dir.listFiles()) {
            file.delete();
        }
        dir.delete();
    }
}
