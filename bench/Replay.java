import java.io.File;
import java.nio.file.Files;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogOffsetMetadata;
import org.apache.kafka.storage.internals.log.ProducerAppendInfo;
import org.apache.kafka.storage.internals.log.ProducerStateManager;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;

/**
 * Kafka's own ProducerStateManager: batches of one record, the producers in turn, as a log replays them.
 * Arguments: producers, batches, origin (CLIENT checks sequences, REPLICATION takes all). Prints batches a second.
 */
public final class Replay {
    public static void main(String[] args) throws Exception {
        int producers = Integer.parseInt(args[0]);
        long batches = Long.parseLong(args[1]);
        AppendOrigin origin = AppendOrigin.valueOf(args[2]);
        replay(producers, Math.min(batches, 2_000_000), origin); // the JVM compiles
        long began = System.nanoTime();
        ProducerStateManager manager = replay(producers, batches, origin);
        double seconds = (System.nanoTime() - began) / 1e9;
        if (manager.activeProducers().size() != producers || manager.mapEndOffset() != batches) {
            throw new AssertionError("the state is not that of the batches");
        }
        System.out.println(batches / seconds);
    }

    private static ProducerStateManager replay(int producers, long batches, AppendOrigin origin) throws Exception {
        File folder = Files.createTempDirectory("bench-replay").toFile();
        folder.deleteOnExit();
        ProducerStateManager manager = new ProducerStateManager(new TopicPartition("bench", 0), folder, 300_000,
            new ProducerStateManagerConfig(86_400_000, false), Time.SYSTEM);
        for (long offset = 0; offset < batches; offset++) {
            int sequence = (int) (offset / producers);
            ProducerAppendInfo info = manager.prepareUpdate(1000 + offset % producers, origin);
            info.appendDataBatch((short) 0, sequence, sequence, offset, new LogOffsetMetadata(offset), offset, false);
            manager.update(info);
            manager.updateMapEndOffset(offset + 1);
        }
        return manager;
    }
}
