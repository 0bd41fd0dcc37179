package differential;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ScheduledFuture;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.server.common.RequestLocal;
import org.apache.kafka.server.util.Scheduler;
import org.apache.kafka.storage.internals.log.AbortedTxn;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogAppendInfo;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogOffsetsListener;
import org.apache.kafka.storage.internals.log.LogSegment;
import org.apache.kafka.storage.internals.log.LogStartOffsetIncrementReason;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.log.VerificationGuard;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/** Today's UnifiedLog with files, under the operations of level "log". A snapshot is taken by rolling a segment. */
final class Log41 extends Manager41 {
    private static final LogConfig CONFIG = new LogConfig(Map.of(
        "segment.index.bytes", 1024,
        "segment.ms", Long.MAX_VALUE,
        "message.timestamp.after.max.ms", Long.MAX_VALUE));
    private static final Batches BATCHES = new Batches41();
    private static final BrokerTopicStats STATS = new BrokerTopicStats(false);
    private static final Scheduler NOTHING_LATER = new Scheduler() {
        @Override
        public void startup() {
        }

        @Override
        public void shutdown() {
        }

        @Override
        public ScheduledFuture<?> schedule(String name, Runnable task, long delayMs, long periodMs) {
            return null;
        }

        @Override
        public void resizeThreadPool(int size) {
        }
    };

    private UnifiedLog log;

    Log41(JsonNode start) throws Exception {
        super(start);
    }

    @Override
    void open() throws IOException {
        log = UnifiedLog.create(
            dir, CONFIG, 0L, 0L, NOTHING_LATER, STATS, time, transactionTimeoutMs(), settings, Integer.MAX_VALUE,
            new LogDirFailureChannel(1), true, Optional.empty(), new ConcurrentHashMap<>(), false,
            LogOffsetsListener.NO_OP_OFFSETS_LISTENER);
        manager = log.producerStateManager();
    }

    @Override
    ObjectNode append(ArrayNode items, String origin) throws Exception {
        MemoryRecords records = BATCHES.of(items, !origin.equals("replication"));
        long end = log.logEndOffset();
        ObjectNode returns = Harness.object();
        if (origin.equals("replication")) {
            log.appendAsFollower(records, 0);
            return returns.put("outcome", "accepted");
        }
        AppendOrigin from = origin.equals("coordinator") ? AppendOrigin.COORDINATOR : AppendOrigin.CLIENT;
        String label = items.get(0).path("guard").asText();
        VerificationGuard guard = guards.getOrDefault(label, VerificationGuard.SENTINEL);
        LogAppendInfo info = log.appendAsLeader(records, 0, from, RequestLocal.noCaching(), guard);
        if (info.firstOffset() >= end) {
            return returns.put("outcome", "accepted");
        }
        return returns
            .put("outcome", "duplicate")
            .put("first_offset", info.firstOffset())
            .put("last_offset", info.lastOffset());
    }

    @Override
    ObjectNode snapshot() throws Exception {
        if (log.logEndOffset() == log.activeSegment().baseOffset()) {
            return Harness.object().putNull("snapshot_offset");
        }
        return super.snapshot();
    }

    @Override
    void takeSnapshot() throws IOException {
        log.roll();
    }

    @Override
    VerificationGuard startVerification(long producerId, int sequence, short epoch, boolean supportsEpochBump) {
        return log.maybeStartTransactionVerification(producerId, sequence, epoch, supportsEpochBump);
    }

    @Override
    ObjectNode other(String op, JsonNode args) throws Exception {
        time.now = args.path("now").asLong(time.now);
        switch (op) {
            case "advance_hw" -> log.updateHighWatermark(args.get("hw").asLong());
            case "increment_log_start" -> log.maybeIncrementLogStartOffset(
                args.get("log_start").asLong(), LogStartOffsetIncrementReason.ClientRecordDeletion);
            case "rebuild" -> {
                log.truncateTo(args.get("log_end").asLong());
                // Until a fetch brings the high watermark again, the log answers with its old first unstable offset.
                log.updateHighWatermark(log.highWatermark());
            }
            case "truncate_fully" -> log.truncateFullyAndStartAt(args.get("offset").asLong(), Optional.empty());
            default -> {
                return super.other(op, args);
            }
        }
        return Harness.object();
    }

    @Override
    Long firstUnstable() {
        return log.firstUnstableOffset().orElse(null);
    }

    @Override
    void moreState(ObjectNode state) {
        super.moreState(state);
        state.put("lso", log.lastStableOffset());
        state.put("hw", log.highWatermark());
        state.put("log_start", log.logStartOffset());
        state.put("log_end", log.logEndOffset());
        ArrayNode aborted = state.putArray("aborted_txns");
        for (LogSegment segment : log.logSegments()) {
            for (AbortedTxn one : segment.txnIndex().allAbortedTxns()) {
                aborted.addObject()
                    .put("pid", one.producerId())
                    .put("first_offset", one.firstOffset())
                    .put("last_offset", one.lastOffset())
                    .put("last_stable_offset", one.lastStableOffset());
            }
        }
    }

    @Override
    public void close() throws Exception {
        log.closeHandlers();
        log.removeLogMetrics();
        super.close();
    }
}
