package differential;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.ByteBuffer;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.Set;
import java.util.TreeSet;
import java.util.stream.Collectors;
import java.util.stream.StreamSupport;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.record.ControlRecordType;
import org.apache.kafka.common.record.DefaultRecordBatch;
import org.apache.kafka.common.record.EndTransactionMarker;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.RecordBatch;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.CompletedTxn;
import org.apache.kafka.storage.internals.log.LogOffsetMetadata;
import org.apache.kafka.storage.internals.log.ProducerAppendInfo;
import org.apache.kafka.storage.internals.log.ProducerStateEntry;
import org.apache.kafka.storage.internals.log.ProducerStateManager;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.VerificationGuard;
import org.apache.kafka.storage.internals.log.VerificationStateEntry;

/** Today's ProducerStateManager (policies kip-360 with verification off, kip-890-p1, kip-890-p2). */
class Manager41 extends ProducerMap<ProducerAppendInfo, CompletedTxn> {
    static final TopicPartition PARTITION = new TopicPartition("topic", 0);

    final ManualTime time = new ManualTime();
    final ProducerStateManagerConfig settings;
    final Map<String, VerificationGuard> guards = new HashMap<>();
    private final Map<String, Long> guardOwners = new HashMap<>();
    ProducerStateManager manager;

    Manager41(JsonNode start) throws Exception {
        super(start);
        settings = new ProducerStateManagerConfig(
            config.path("producer_id_expiration_ms").asInt(86_400_000),
            config.path("transaction_verification").asBoolean(false));
        open();
    }

    @Override
    void open() throws Exception {
        manager = new ProducerStateManager(PARTITION, dir, transactionTimeoutMs(), settings, time);
    }

    int transactionTimeoutMs() {
        return config.path("max_transaction_timeout_ms").asInt(300_000);
    }

    @Override
    ProducerAppendInfo prepareUpdate(long producerId, String origin) {
        return manager.prepareUpdate(producerId, AppendOrigin.valueOf(origin.toUpperCase()));
    }

    @Override
    void appendData(ProducerAppendInfo info, JsonNode batch) {
        info.appendDataBatch(
            (short) batch.get("epoch").asInt(),
            batch.get("first_seq").asInt(),
            batch.get("last_seq").asInt(),
            batch.get("timestamp").asLong(),
            new LogOffsetMetadata(batch.get("first_offset").asLong()),
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
            marker.get("timestamp").asLong()).orElse(null);
    }

    @Override
    void appendEmptyControl(ProducerAppendInfo info, JsonNode batch) {
        ByteBuffer buffer = ByteBuffer.allocate(DefaultRecordBatch.RECORD_BATCH_OVERHEAD);
        long offset = batch.get("offset").asLong();
        DefaultRecordBatch.writeEmptyHeader(
            buffer, RecordBatch.CURRENT_MAGIC_VALUE, batch.get("pid").asLong(), (short) batch.get("epoch").asInt(),
            -1, offset, offset, 0, TimestampType.CREATE_TIME, 0L, true, true);
        buffer.flip();
        info.append(MemoryRecords.readableRecords(buffer).firstBatch(), Optional.empty());
    }

    @Override
    void update(ProducerAppendInfo info) {
        manager.update(info);
    }

    @Override
    void clearVerification(long producerId) {
        manager.clearVerificationStateEntry(producerId);
    }

    @Override
    ObjectNode complete(CompletedTxn completed) {
        long lso = manager.lastStableOffset(completed);
        manager.completeTxn(completed);
        return Harness.object()
            .put("pid", completed.producerId)
            .put("first_offset", completed.firstOffset)
            .put("last_offset", completed.lastOffset)
            .put("aborted", completed.isAborted)
            .put("lso", lso);
    }

    @Override
    void updateMapEndOffset(long offset) {
        manager.updateMapEndOffset(offset);
    }

    @Override
    ObjectNode other(String op, JsonNode args) throws Exception {
        time.now = args.path("now").asLong(time.now);
        ObjectNode returns = Harness.object();
        switch (op) {
            case "advance_hw" -> manager.onHighWatermarkUpdated(args.get("hw").asLong());
            case "increment_log_start" -> manager.onLogStartOffsetIncremented(args.get("log_start").asLong());
            case "truncate_and_reload" ->
                manager.truncateAndReload(args.get("log_start").asLong(), args.get("log_end").asLong(), time.now);
            case "truncate_fully" -> manager.truncateFullyAndStartAt(args.get("offset").asLong());
            case "delete_snapshots_before" -> manager.deleteSnapshotsBefore(args.get("offset").asLong());
            case "expire_producers" -> manager.removeExpiredProducers(time.now);
            case "clear_verification" -> manager.clearVerificationStateEntry(args.get("pid").asLong());
            case "set_verification_enabled" ->
                settings.setTransactionVerificationEnabled(args.get("enabled").asBoolean());
            case "has_late_transaction" -> returns.put("late", manager.hasLateTransaction(time.now));
            case "start_verification" -> startVerification(args, returns);
            case "create_snapshot_files" -> createSnapshotFiles(args.get("offsets"));
            case "remove_stray_snapshots" -> manager.removeStraySnapshots(
                StreamSupport.stream(args.get("segment_base_offsets").spliterator(), false)
                    .map(JsonNode::asLong).collect(Collectors.toList()));
            default -> throw new AssertionError("no operation " + op);
        }
        return returns;
    }

    private void startVerification(JsonNode args, ObjectNode returns) {
        VerificationGuard guard = startVerification(
            args.get("pid").asLong(), args.get("seq").asInt(), (short) args.get("epoch").asInt(),
            args.path("supports_epoch_bump").asBoolean(false));
        String label = args.get("label").asText();
        guards.put(label, guard);
        guardOwners.put(label, args.get("pid").asLong());
        returns.put("guard_needed", guard != VerificationGuard.SENTINEL);
    }

    VerificationGuard startVerification(long producerId, int sequence, short epoch, boolean supportsEpochBump) {
        return manager.maybeCreateVerificationStateEntry(producerId, sequence, epoch, supportsEpochBump)
            .verificationGuard();
    }

    /** Files made behind the manager's back are seen by the next one, as after a restart of the broker. */
    private void createSnapshotFiles(JsonNode offsets) throws Exception {
        for (JsonNode offset : offsets) {
            file(offset.asLong()).createNewFile();
        }
        open();
    }

    @Override
    ObjectNode producers() {
        ObjectNode all = Harness.object();
        for (ProducerStateEntry entry : manager.activeProducers().values()) {
            OptionalLong first = entry.currentTxnFirstOffset();
            all.putObject(Long.toString(entry.producerId()))
                .put("epoch", entry.producerEpoch())
                .put("first_seq", entry.firstSeq())
                .put("last_seq", entry.lastSeq())
                .put("first_offset", entry.firstDataOffset())
                .put("last_offset", entry.lastDataOffset())
                .put("offset_delta", entry.lastOffsetDelta())
                .put("coordinator_epoch", entry.coordinatorEpoch())
                .put("txn_first_offset", first.isPresent() ? (Long) first.getAsLong() : null)
                .put("last_timestamp", entry.lastTimestamp())
                .put("batch_count", entry.batchMetadata().size());
        }
        return all;
    }

    @Override
    Long firstUndecided() {
        OptionalLong first = manager.firstUndecidedOffset();
        return first.isPresent() ? (Long) first.getAsLong() : null;
    }

    @Override
    Long firstUnstable() {
        return manager.firstUnstableOffset().map(metadata -> metadata.messageOffset).orElse(null);
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
    void takeSnapshot() throws Exception {
        manager.takeSnapshot(false);
    }

    @Override
    void moreState(ObjectNode state) {
        ObjectNode verification = state.putObject("verification");
        for (long producerId : Set.copyOf(guardOwners.values())) {
            VerificationStateEntry entry = manager.verificationStateEntry(producerId);
            if (entry == null) {
                continue;
            }
            Set<String> live = new TreeSet<>();
            guardOwners.forEach((label, owner) -> {
                if (owner == producerId && guards.get(label).verify(entry.verificationGuard())) {
                    live.add(label);
                }
            });
            ObjectNode described = verification.putObject(Long.toString(producerId))
                .put("lowest_seq", entry.lowestSequence())
                .put("epoch", entry.epoch());
            live.forEach(described.putArray("guards")::add);
        }
    }
}
