package differential;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.record.CompressionType;
import org.apache.kafka.common.record.Record;
import org.apache.kafka.common.requests.ProduceResponse;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.PrimitiveRef;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogValidator;
import org.apache.kafka.storage.internals.log.RecordValidationException;

/** LogValidator under the operation "validate". A record error is reported by its index: its kind is only in a message. */
final class Validator41 implements Subject, LogValidator.MetricsRecorder {
    private static final TopicPartition PARTITION = new TopicPartition("topic", 0);

    private final Map<String, Integer> metrics = new TreeMap<>();
    private List<ProduceResponse.RecordError> recordErrors = List.of();

    @Override
    public ObjectNode apply(String op, JsonNode args) {
        ManualTime time = new ManualTime();
        time.now = args.get("now").asLong();
        LogValidator validator = new LogValidator(
            RecordSets.of(args.get("batches")), PARTITION, time,
            CompressionType.forName(args.get("source_compression").asText()),
            RecordSets.compression(args.get("target_compression").asText()), args.get("compacted").asBoolean(),
            (byte) args.get("target_magic").asInt(), RecordSets.timestampType(args), args.get("before_max_ms").asLong(),
            args.get("after_max_ms").asLong(), 0, AppendOrigin.valueOf(args.get("origin").asText().toUpperCase()));
        recordErrors = List.of();
        try {
            return described(validator.validateMessagesAndAssignOffsets(
                PrimitiveRef.ofLong(args.get("next_offset").asLong()), this, BufferSupplier.NO_CACHING));
        } catch (RecordValidationException refusal) {
            recordErrors = refusal.recordErrors();
            throw refusal.invalidException();
        }
    }

    private static ObjectNode described(LogValidator.ValidationResult result) {
        ObjectNode returns = Harness.object().put("outcome", "accepted");
        ArrayNode offsets = returns.putArray("offsets");
        for (Record record : result.validatedRecords.records()) {
            offsets.add(record.offset());
        }
        return returns
            .put("max_timestamp", result.maxTimestampMs)
            .put("size_maybe_changed", result.messageSizeMaybeChanged)
            .put("converted_records", result.recordValidationStats.numRecordsConverted())
            .put("output_compression", result.validatedRecords.batches().iterator().next().compressionType().name);
    }

    @Override
    public ObjectNode state() {
        ObjectNode state = Harness.object();
        ArrayNode errors = state.putArray("record_errors");
        recordErrors.forEach(error -> errors.add(error.batchIndex));
        state.set("metrics", Harness.JSON.valueToTree(metrics));
        return state;
    }

    private void count(String metric) {
        metrics.merge(metric, 1, Integer::sum);
    }

    @Override
    public void recordInvalidMagic() {
        count("invalid_magic");
    }

    @Override
    public void recordInvalidOffset() {
        count("invalid_offset");
    }

    @Override
    public void recordInvalidSequence() {
        count("invalid_sequence");
    }

    @Override
    public void recordInvalidChecksums() {
        count("invalid_checksum");
    }

    @Override
    public void recordNoKeyCompactedTopic() {
        count("no_key_compacted");
    }
}
