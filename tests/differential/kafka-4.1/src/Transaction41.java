package differential;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.HashSet;
import java.util.Set;
import java.util.TreeSet;
import kafka.coordinator.transaction.TransactionMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.coordinator.transaction.TransactionState;
import org.apache.kafka.coordinator.transaction.TxnTransitMetadata;
import org.apache.kafka.server.common.TransactionVersion;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;
import scala.util.Either;

/** The coordinator's TransactionMetadata of one id under the operations that prepare and complete its transitions. */
final class Transaction41 implements Subject {
    private final String id;
    private final TransactionMetadata metadata;
    private TxnTransitMetadata prepared;

    Transaction41(JsonNode start) {
        JsonNode txns = start.get("initial").get("txns");
        id = txns.fieldNames().next();
        JsonNode first = txns.get(id);
        metadata = new TransactionMetadata(
            id, first.get("producer_id").asLong(), first.get("previous_producer_id").asLong(),
            first.get("next_producer_id").asLong(), (short) first.get("producer_epoch").asInt(),
            (short) first.get("last_producer_epoch").asInt(), first.get("timeout_ms").asInt(),
            TransactionState.fromName(first.get("state").asText()).orElseThrow(),
            CollectionConverters.asScala(partitions(first.get("partitions"))), first.get("start_ts").asLong(),
            first.get("last_update_ts").asLong(), version(first.get("client_tv")));
    }

    private static Set<TopicPartition> partitions(JsonNode names) {
        Set<TopicPartition> all = new HashSet<>();
        for (JsonNode name : names) {
            int dash = name.asText().lastIndexOf('-');
            all.add(new TopicPartition(
                name.asText().substring(0, dash), Integer.parseInt(name.asText().substring(dash + 1))));
        }
        return all;
    }

    private static TransactionVersion version(JsonNode level) {
        return TransactionVersion.fromFeatureLevel((short) level.asInt());
    }

    @Override
    public ObjectNode apply(String op, JsonNode args) {
        switch (op) {
            case "complete_transition" -> {
                if (prepared == null) {
                    throw new IllegalStateException("nothing was prepared");
                }
                metadata.completeTransitionTo(prepared);
                return Harness.object();
            }
            case "clear_pending" -> {
                metadata.pendingState_$eq(Option.empty());
                return Harness.object();
            }
            default -> {
                prepared = prepare(op, args, args.path("now").asLong());
                return described(prepared);
            }
        }
    }

    private TxnTransitMetadata prepare(String op, JsonNode args, long now) {
        return switch (op) {
            case "prepare_increment_epoch" -> incremented(args, now);
            case "prepare_rotation" -> metadata.prepareProducerIdRotation(
                args.get("new_producer_id").asLong(), args.get("timeout_ms").asInt(), now,
                args.get("record_last_epoch").asBoolean());
            case "prepare_add_partitions" -> metadata.prepareAddPartitions(
                CollectionConverters.asScala(partitions(args.get("partitions"))).toSet(), now, TransactionVersion.TV_0);
            case "prepare_end" -> metadata.prepareAbortOrCommit(
                TransactionState.fromName(args.get("state").asText()).orElseThrow(), version(args.get("client_tv")),
                args.get("next_producer_id").asLong(), now, false);
            case "prepare_complete" -> metadata.prepareComplete(now);
            case "prepare_fence" -> metadata.prepareFenceProducerEpoch();
            default -> throw new AssertionError("no operation " + op);
        };
    }

    private TxnTransitMetadata incremented(JsonNode args, long now) {
        JsonNode expected = args.get("expected_epoch");
        Option<Object> epoch = expected.isNull() ? Option.empty() : Option.apply((short) expected.asInt());
        Either<Errors, TxnTransitMetadata> either =
            metadata.prepareIncrementProducerEpoch(args.get("timeout_ms").asInt(), epoch, now);
        if (either.isLeft()) {
            throw either.swap().toOption().get().exception();
        }
        return either.toOption().get();
    }

    private static ObjectNode described(TxnTransitMetadata next) {
        ObjectNode described = Harness.object()
            .put("producer_id", next.producerId())
            .put("previous_producer_id", next.prevProducerId())
            .put("next_producer_id", next.nextProducerId())
            .put("producer_epoch", next.producerEpoch())
            .put("last_producer_epoch", next.lastProducerEpoch())
            .put("timeout_ms", next.txnTimeoutMs())
            .put("state", next.txnState().stateName())
            .put("start_ts", next.txnStartTimestamp())
            .put("last_update_ts", next.txnLastUpdateTimestamp())
            .put("client_tv", next.clientTransactionVersion().featureLevel());
        return sorted(described, next.topicPartitions());
    }

    private static ObjectNode sorted(ObjectNode owner, Iterable<TopicPartition> partitions) {
        Set<String> names = new TreeSet<>();
        partitions.forEach(partition -> names.add(partition.toString()));
        ArrayNode array = owner.putArray("partitions");
        names.forEach(array::add);
        return owner;
    }

    @Override
    public ObjectNode state() {
        ObjectNode state = Harness.object();
        ObjectNode described = state.putObject("txns").putObject(id)
            .put("producer_id", metadata.producerId())
            .put("previous_producer_id", metadata.prevProducerId())
            .put("next_producer_id", metadata.nextProducerId())
            .put("producer_epoch", metadata.producerEpoch())
            .put("last_producer_epoch", metadata.lastProducerEpoch())
            .put("timeout_ms", metadata.txnTimeoutMs())
            .put("state", metadata.state().stateName())
            .put("start_ts", metadata.txnStartTimestamp())
            .put("last_update_ts", metadata.txnLastUpdateTimestamp())
            .put("client_tv", metadata.clientTransactionVersion().featureLevel())
            .put("pending_state", metadata.pendingState().isEmpty() ? null : metadata.pendingState().get().stateName())
            .put("has_failed_epoch_fence", metadata.hasFailedEpochFence());
        sorted(described, CollectionConverters.asJava(metadata.topicPartitions()));
        return state;
    }
}
