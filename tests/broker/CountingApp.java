import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.processor.api.ContextualProcessor;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorSupplier;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.processor.internals.DefaultKafkaClientSupplier;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.StoreBuilder;
import org.apache.kafka.streams.state.Stores;

/**
 * A Streams application that writes for each record of its input that record's offset and how many it has counted so
 * far in a store, exactly once: servers, application id, group protocol (classic or streams), state folder, input topic,
 * output topic, transaction.timeout.ms, and a file. While that exists, the JVM ends as by {@code kill -9} with all that
 * a transaction has written and its input's offsets sent, and nothing committed.
 */
public class CountingApp {
    private static final String COUNTS = "counts";

    public static void main(String[] a) {
        Properties p = new Properties();
        p.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, a[0]);
        p.put(StreamsConfig.APPLICATION_ID_CONFIG, a[1]);
        p.put("group.protocol", a[2]);
        p.put(StreamsConfig.STATE_DIR_CONFIG, a[3]);
        p.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        p.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, "500");
        p.put("producer.transaction.timeout.ms", a[6]);
        p.put("consumer.auto.offset.reset", "earliest");
        p.put("consumer.max.poll.records", "10");
        if (a[2].equals("classic")) { // of the other protocol the group's settings say so
            p.put("consumer.session.timeout.ms", "6000");
            p.put("consumer.heartbeat.interval.ms", "1000");
        }
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(a[4], Consumed.with(Serdes.ByteArray(), Serdes.ByteArray()))
            .process(new Counting())
            .to(a[5], Produced.with(Serdes.ByteArray(), Serdes.String()));
        KafkaStreams streams = new KafkaStreams(builder.build(), p, new Halting(Path.of(a[7])));
        Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
        streams.start();
    }

    /** Its offset and the count, of each record. */
    private static class Counting implements ProcessorSupplier<byte[], byte[], byte[], String> {
        @Override
        public Set<StoreBuilder<?>> stores() {
            return Set.of(Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore(COUNTS), Serdes.String(),
                Serdes.Long()));
        }

        @Override
        public Processor<byte[], byte[], byte[], String> get() {
            return new ContextualProcessor<>() {
                @Override
                public void process(Record<byte[], byte[]> record) {
                    KeyValueStore<String, Long> store = context().getStateStore(COUNTS);
                    Long before = store.get("all");
                    long count = before == null ? 1 : before + 1;
                    store.put("all", count);
                    context().forward(record.withValue(context().recordMetadata().get().offset() + ":" + count));
                }
            };
        }
    }

    /** Makes producers that never commit while a file exists. */
    private static class Halting extends DefaultKafkaClientSupplier {
        private final Path file;

        Halting(Path file) {
            this.file = file;
        }

        @Override
        public Producer<byte[], byte[]> getProducer(Map<String, Object> settings) {
            return new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer()) {
                @Override
                public void commitTransaction() {
                    if (Files.exists(file)) {
                        flush(); // what was sent is written
                        Runtime.getRuntime().halt(137);
                    }
                    super.commitTransaction();
                }
            };
        }
    }
}
