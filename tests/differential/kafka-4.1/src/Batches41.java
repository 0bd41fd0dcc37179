package differential;

import java.nio.ByteBuffer;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.MemoryRecordsBuilder;
import org.apache.kafka.common.record.RecordBatch;
import org.apache.kafka.common.record.TimestampType;

/** Record batches with the classes of 4.1. */
final class Batches41 extends Batches {
    @Override
    void writeData(
        ByteBuffer buffer, long first, long last, long timestamp, long producerId, short epoch, int sequence,
        boolean transactional) {
        ByteBuffer rest = buffer.slice();
        try (MemoryRecordsBuilder builder = MemoryRecords.builder(
            rest, RecordBatch.CURRENT_MAGIC_VALUE, Compression.NONE, TimestampType.CREATE_TIME, first, timestamp,
            producerId, epoch, sequence, transactional, 0)) {
            for (long offset = first; offset <= last; offset++) {
                builder.appendWithOffset(offset, timestamp, null, new byte[0]);
            }
            buffer.position(buffer.position() + builder.build().sizeInBytes());
        }
    }
}
