package differential;

import com.fasterxml.jackson.databind.JsonNode;
import java.nio.ByteBuffer;
import org.apache.kafka.common.record.ControlRecordType;
import org.apache.kafka.common.record.DefaultRecordBatch;
import org.apache.kafka.common.record.EndTransactionMarker;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.RecordBatch;
import org.apache.kafka.common.record.TimestampType;

/** Record batches from the words of the conformance cases, built with what all versions of Kafka's clients have. */
abstract class Batches {
    static final int ROOM = 1 << 16;

    /** Writes uncompressed records of one timestamp, from {@code first} to {@code last}. */
    abstract void writeData(
        ByteBuffer buffer, long first, long last, long timestamp, long producerId, short epoch, int sequence,
        boolean transactional);

    /** Batches at the offsets given for followers; for leaders as clients send them, from 0 on. */
    MemoryRecords of(Iterable<JsonNode> items, boolean fromZero) {
        ByteBuffer buffer = ByteBuffer.allocate(ROOM);
        for (JsonNode item : items) {
            write(buffer, item, fromZero ? first(item) : 0);
        }
        buffer.flip();
        return MemoryRecords.readableRecords(buffer);
    }

    private static long first(JsonNode item) {
        return (item.has("offset") ? item.get("offset") : item.get("first_offset")).asLong();
    }

    private void write(ByteBuffer buffer, JsonNode item, long zero) {
        long producerId = item.path("pid").asLong(RecordBatch.NO_PRODUCER_ID);
        short epoch = (short) item.path("epoch").asInt(RecordBatch.NO_PRODUCER_EPOCH);
        long first = first(item) - zero;
        switch (item.get("kind").asText()) {
            case "plain":
            case "batch":
                writeData(
                    buffer, first, item.get("last_offset").asLong() - zero,
                    item.path("timestamp").asLong(RecordBatch.NO_TIMESTAMP), producerId, epoch,
                    item.path("first_seq").asInt(RecordBatch.NO_SEQUENCE), item.path("transactional").asBoolean());
                break;
            case "marker":
                ControlRecordType type = ControlRecordType.valueOf(item.get("type").asText());
                MemoryRecords.writeEndTransactionalMarker(
                    buffer, first, item.get("timestamp").asLong(), 0, producerId, epoch,
                    new EndTransactionMarker(type, item.get("coordinator_epoch").asInt()));
                break;
            case "empty_control":
                DefaultRecordBatch.writeEmptyHeader(
                    buffer, RecordBatch.CURRENT_MAGIC_VALUE, producerId, epoch, RecordBatch.NO_SEQUENCE, first, first,
                    0, TimestampType.CREATE_TIME, 0L, true, true);
                break;
            default:
                throw new AssertionError("no item " + item);
        }
    }
}
