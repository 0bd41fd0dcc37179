package differential;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.ByteBuffer;
import kafka.log.BatchMetadata;
import kafka.log.CompletedTxn;
import kafka.log.ProducerAppendInfo;
import kafka.log.ProducerStateEntry;
import kafka.log.ProducerStateManager;
import kafka.log.ValidationType;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.record.ControlRecordType;
import org.apache.kafka.common.record.DefaultRecordBatch;
import org.apache.kafka.common.record.EndTransactionMarker;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.RecordBatch;
import org.apache.kafka.common.record.TimestampType;
import scala.Option;
import scala.collection.Iterator;

/**
 * ProducerStateManager of brokers before KIP-360 (policy pre-kip-360). Of level "log" it has what Log asks before: whether
 * a client's batch is there already.
 */
final class Manager23 extends ProducerMap<ProducerAppendInfo, CompletedTxn> {
    private static final TopicPartition PARTITION = new TopicPartition("topic", 0);

    private final boolean withLog;
    private ProducerStateManager manager;

    Manager23(JsonNode start) throws Exception {
        super(start);
        withLog = start.path("level").asText().equals("log");
        open();
    }

    @Override
    ObjectNode append(ArrayNode items, String origin) throws Exception {
        for (JsonNode item : items) {
            Option<BatchMetadata> same = withLog && origin.equals("client") && item.has("first_seq")
                ? duplicate(item) : Option.empty();
            if (same.isDefined()) {
                return Harness.object()
                    .put("outcome", "duplicate")
                    .put("first_offset", same.get().firstOffset())
                    .put("last_offset", same.get().lastOffset());
            }
        }
        return super.append(items, origin);
    }

    private Option<BatchMetadata> duplicate(JsonNode batch) {
        Option<ProducerStateEntry> known = manager.lastEntry(batch.get("pid").asLong());
        if (known.isEmpty()) {
            return Option.empty();
        }
        ByteBuffer buffer = ByteBuffer.allocate(DefaultRecordBatch.RECORD_BATCH_OVERHEAD);
        DefaultRecordBatch.writeEmptyHeader(
            buffer, RecordBatch.CURRENT_MAGIC_VALUE, batch.get("pid").asLong(), (short) batch.get("epoch").asInt(),
            batch.get("first_seq").asInt(), batch.get("first_offset").asLong(), batch.get("last_offset").asLong(), 0,
            TimestampType.CREATE_TIME, 0L, batch.get("transactional").asBoolean(), false);
        buffer.flip();
        return known.get().findDuplicateBatch(MemoryRecords.readableRecords(buffer).batches().iterator().next());
    }

    @Override
    void open() {
        int expirationMs = config.path("producer_id_expiration_ms").asInt(86_400_000);
        manager = new ProducerStateManager(PARTITION, dir, expirationMs);
    }

    /** Coordinators write to internal topics, where this version checks epochs only. */
    @Override
    ProducerAppendInfo prepareUpdate(long producerId, String origin) {
        if (!origin.equals("coordinator")) {
            return manager.prepareUpdate(producerId, origin.equals("client"));
        }
        Option<ProducerStateEntry> known = manager.lastEntry(producerId);
        ProducerStateEntry entry = known.isDefined() ? known.get() : ProducerStateEntry.empty(producerId);
        return new ProducerAppendInfo(PARTITION, producerId, entry, ValidationType.EpochOnly$.MODULE$);
    }

    @Override
    void appendData(ProducerAppendInfo info, JsonNode batch) {
        info.append(
            (short) batch.get("epoch").asInt(),
            batch.get("first_seq").asInt(),
            batch.get("last_seq").asInt(),
            batch.get("timestamp").asLong(),
            batch.get("first_offset").asLong(),
            batch.get("last_offset").asLong(),
            batch.get("transactional").asBoolean());
    }

    @Override
    CompletedTxn appendMarker(ProducerAppendInfo info, JsonNode marker) {
        ControlRecordType type = ControlRecordType.valueOf(marker.get("type").asText());
        return info.appendEndTxnMarker(
            new EndTransactionMarker(type, marker.get("coordinator_epoch").asInt()),
            (short) marker.get("epoch").asInt(),
            marker.get("offset").asLong(),
            marker.get("timestamp").asLong());
    }

    @Override
    void appendEmptyControl(ProducerAppendInfo info, JsonNode batch) {
        ByteBuffer buffer = ByteBuffer.allocate(DefaultRecordBatch.RECORD_BATCH_OVERHEAD);
        long offset = batch.get("offset").asLong();
        DefaultRecordBatch.writeEmptyHeader(
            buffer, RecordBatch.CURRENT_MAGIC_VALUE, batch.get("pid").asLong(), (short) batch.get("epoch").asInt(),
            -1, offset, offset, 0, TimestampType.CREATE_TIME, 0L, true, true);
        buffer.flip();
        info.append(MemoryRecords.readableRecords(buffer).batches().iterator().next());
    }

    @Override
    void update(ProducerAppendInfo info) {
        manager.update(info);
    }

    @Override
    ObjectNode complete(CompletedTxn completed) {
        long lso = manager.lastStableOffset(completed);
        manager.completeTxn(completed);
        return Harness.object()
            .put("pid", completed.producerId())
            .put("first_offset", completed.firstOffset())
            .put("last_offset", completed.lastOffset())
            .put("aborted", completed.isAborted())
            .put("lso", lso);
    }

    @Override
    void updateMapEndOffset(long offset) {
        manager.updateMapEndOffset(offset);
    }

    @Override
    ObjectNode other(String op, JsonNode args) throws Exception {
        switch (op) {
            case "advance_hw" -> manager.onHighWatermarkUpdated(args.get("hw").asLong());
            case "increment_log_start" -> manager.truncateHead(args.get("log_start").asLong());
            case "truncate_and_reload" -> manager.truncateAndReload(
                args.get("log_start").asLong(), args.get("log_end").asLong(), args.get("now").asLong());
            case "truncate_fully" -> {
                manager.truncate();
                manager.updateMapEndOffset(args.get("offset").asLong());
            }
            case "delete_snapshots_before" -> manager.deleteSnapshotsBefore(args.get("offset").asLong());
            case "expire_producers" -> manager.removeExpiredProducers(args.get("now").asLong());
            default -> throw new AssertionError("no operation " + op);
        }
        return Harness.object();
    }

    @Override
    ObjectNode producers() {
        ObjectNode all = Harness.object();
        Iterator<ProducerStateEntry> entries = manager.activeProducers().values().iterator();
        while (entries.hasNext()) {
            ProducerStateEntry entry = entries.next();
            Option<Object> first = entry.currentTxnFirstOffset();
            all.putObject(Long.toString(entry.producerId()))
                .put("epoch", entry.producerEpoch())
                .put("first_seq", entry.firstSeq())
                .put("last_seq", entry.lastSeq())
                .put("first_offset", entry.firstOffset())
                .put("last_offset", entry.lastDataOffset())
                .put("offset_delta", entry.lastOffsetDelta())
                .put("coordinator_epoch", entry.coordinatorEpoch())
                .put("txn_first_offset", first.isDefined() ? (Long) first.get() : null)
                .put("last_timestamp", entry.lastTimestamp())
                .put("batch_count", entry.batchMetadata().size());
        }
        return all;
    }

    @Override
    Long firstUndecided() {
        Option<Object> first = manager.firstUndecidedOffset();
        return first.isDefined() ? (Long) first.get() : null;
    }

    @Override
    Long firstUnstable() {
        Option<kafka.server.LogOffsetMetadata> first = manager.firstUnstableOffset();
        return first.isDefined() ? (Long) first.get().messageOffset() : null;
    }

    @Override
    long mapEnd() {
        return manager.mapEndOffset();
    }

    @Override
    long lastSnapshotOffset() throws Exception {
        return (long) Harness.field(manager, "lastSnapOffset");
    }

    @Override
    void takeSnapshot() {
        manager.takeSnapshot();
    }
}
