package differential;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.nio.ByteBuffer;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.CompressionType;
import org.apache.kafka.common.record.DefaultRecordBatch;
import org.apache.kafka.common.record.LegacyRecord;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.MemoryRecordsBuilder;
import org.apache.kafka.common.record.RecordBatch;
import org.apache.kafka.common.record.SimpleRecord;
import org.apache.kafka.common.record.TimestampType;

/** Record sets of any format, wrong ones too, from the words of the validator's cases. */
final class RecordSets {
    private static final int ATTRIBUTES_OFFSET = 22;
    private static final int BASE_SEQUENCE_OFFSET = 53;
    private static final byte[] VALUE = "value".getBytes();

    private RecordSets() {
    }

    static MemoryRecords of(JsonNode batches) {
        ByteBuffer buffer = ByteBuffer.allocate(1 << 16);
        for (JsonNode batch : batches) {
            buffer.put(batch(batch));
        }
        buffer.flip();
        return MemoryRecords.readableRecords(buffer);
    }

    static TimestampType timestampType(JsonNode owner) {
        return TimestampType.forName(owner.get("timestamp_type").asText());
    }

    static Compression compression(String name) {
        return Compression.of(CompressionType.forName(name)).build();
    }

    private static ByteBuffer batch(JsonNode batch) {
        byte magic = (byte) batch.get("magic").asInt();
        ByteBuffer bytes = batch.get("records").isEmpty() ? empty(batch) : filled(batch, magic);
        if (magic >= RecordBatch.MAGIC_VALUE_V2) {
            bytes.putInt(DefaultRecordBatch.LAST_OFFSET_DELTA_OFFSET, batch.get("last_offset_delta").asInt());
            bytes.putInt(BASE_SEQUENCE_OFFSET, batch.get("base_sequence").asInt());
            bytes.putInt(DefaultRecordBatch.RECORDS_COUNT_OFFSET, batch.get("declared_count").asInt());
        }
        return bytes;
    }

    /** A header alone, as the cleaner leaves it. */
    private static ByteBuffer empty(JsonNode batch) {
        ByteBuffer bytes = ByteBuffer.allocate(DefaultRecordBatch.RECORD_BATCH_OVERHEAD);
        long base = batch.get("base_offset").asLong();
        DefaultRecordBatch.writeEmptyHeader(
            bytes, RecordBatch.CURRENT_MAGIC_VALUE, batch.get("producer_id").asLong(),
            (short) batch.get("producer_epoch").asInt(), 0, base, base, RecordBatch.NO_PARTITION_LEADER_EPOCH,
            timestampType(batch), RecordBatch.NO_TIMESTAMP, batch.get("transactional").asBoolean(),
            batch.get("control").asBoolean());
        byte codec = CompressionType.forName(batch.get("compression").asText()).id;
        bytes.put(ATTRIBUTES_OFFSET, (byte) (bytes.get(ATTRIBUTES_OFFSET) | codec));
        bytes.flip();
        return bytes;
    }

    private static ByteBuffer filled(JsonNode batch, byte magic) {
        JsonNode records = batch.get("records");
        long base = batch.get("base_offset").asLong();
        MemoryRecordsBuilder builder = new MemoryRecordsBuilder(
            ByteBuffer.allocate(1 << 14), magic, compression(batch.get("compression").asText()),
            magic == 0 ? TimestampType.NO_TIMESTAMP_TYPE : timestampType(batch), base,
            records.get(0).get("timestamp").asLong(), batch.get("producer_id").asLong(),
            (short) batch.get("producer_epoch").asInt(), 0, batch.get("transactional").asBoolean(),
            batch.get("control").asBoolean(), RecordBatch.NO_PARTITION_LEADER_EPOCH, 1 << 14);
        for (JsonNode record : records) {
            append(builder, base + record.get("offset").asLong(), magic, timestampType(batch), record);
        }
        return builder.build().buffer().duplicate();
    }

    private static void append(
        MemoryRecordsBuilder builder, long offset, byte magic, TimestampType type, JsonNode record) {
        byte[] key = record.get("key").isNull() ? null : record.get("key").asText().getBytes();
        long timestamp = record.get("timestamp").asLong();
        try {
            if (magic >= RecordBatch.MAGIC_VALUE_V2) {
                builder.appendUncheckedWithOffset(offset, new SimpleRecord(timestamp, key, VALUE));
                return;
            }
            boolean claims = record.get("compressed").asBoolean();
            CompressionType claimed = claims ? CompressionType.GZIP : CompressionType.NONE;
            LegacyRecord legacy = LegacyRecord.create(
                (byte) record.get("magic").asInt(), timestamp, key, VALUE, claimed, type);
            if (!record.get("crc_ok").asBoolean()) {
                legacy.buffer().put(LegacyRecord.CRC_OFFSET, (byte) ~legacy.buffer().get(LegacyRecord.CRC_OFFSET));
            }
            builder.appendUncheckedWithOffset(offset, legacy);
        } catch (IOException impossible) {
            throw new AssertionError(impossible);
        }
    }
}
