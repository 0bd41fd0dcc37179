import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerInterceptor;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.ProducerInterceptor;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.connect.connector.Task;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.source.ExactlyOnceSupport;
import org.apache.kafka.connect.source.SourceConnector;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.source.SourceTask;

/** A source connector for Kafka Connect whose one task numbers its records from 0: so many to a {@code topic} at a time. */
public class NumberSource extends SourceConnector {
    static final int RECORDS = 7; // of each poll, which is a transaction unless transaction.boundary says otherwise
    private Map<String, String> settings;

    @Override
    public void start(Map<String, String> settings) {
        this.settings = settings;
    }

    @Override
    public void stop() { }

    @Override
    public Class<? extends Task> taskClass() {
        return Numbers.class;
    }

    @Override
    public List<Map<String, String>> taskConfigs(int most) {
        return List.of(settings);
    }

    @Override
    public ConfigDef config() {
        return new ConfigDef().define("topic", ConfigDef.Type.STRING, ConfigDef.Importance.HIGH, "where to");
    }

    @Override
    public String version() {
        return "1";
    }

    @Override
    public ExactlyOnceSupport exactlyOnceSupport(Map<String, String> settings) {
        return ExactlyOnceSupport.SUPPORTED;
    }

    /** The task: its source offset is the next number. */
    public static class Numbers extends SourceTask {
        private static final Map<String, String> SOURCE = Map.of("source", "numbers");
        private String topic;
        private long next;

        @Override
        public void start(Map<String, String> settings) {
            topic = settings.get("topic");
            Map<String, Object> committed = context.offsetStorageReader().offset(SOURCE);
            next = committed == null ? 0 : (Long) committed.get("next");
        }

        @Override
        public List<SourceRecord> poll() throws InterruptedException {
            Thread.sleep(100);
            List<SourceRecord> records = new ArrayList<>();
            for (int i = 0; i < RECORDS; i++) {
                String number = String.valueOf(next++);
                records.add(new SourceRecord(SOURCE, Collections.singletonMap("next", next), topic, 0, null, null,
                    Schema.STRING_SCHEMA, number));
            }
            return records;
        }

        @Override
        public void stop() { }

        @Override
        public String version() {
            return "1";
        }
    }

    /**
     * Ends the JVM as {@code kill -9} would as soon as a broker has a record of the topic that {@code halt.file} names:
     * once it is acknowledged, the producer may send the end of its transaction, not before. A consumer's too, since
     * Connect gives the settings of its workers to both.
     */
    public static class Halt implements ProducerInterceptor<Object, Object>, ConsumerInterceptor<Object, Object> {
        private Path file;

        @Override
        public void configure(Map<String, ?> settings) {
            file = Path.of((String) settings.get("halt.file"));
        }

        @Override
        public void onAcknowledgement(RecordMetadata record, Exception error) {
            try {
                if (error == null && Files.exists(file) && Files.readString(file).equals(record.topic())) {
                    Runtime.getRuntime().halt(137);
                }
            } catch (java.io.IOException e) {
                throw new java.io.UncheckedIOException(e);
            }
        }

        @Override
        public ProducerRecord<Object, Object> onSend(ProducerRecord<Object, Object> record) {
            return record;
        }

        @Override
        public ConsumerRecords<Object, Object> onConsume(ConsumerRecords<Object, Object> records) {
            return records;
        }

        @Override
        public void onCommit(Map<TopicPartition, OffsetAndMetadata> offsets) { }

        @Override
        public void close() { }
    }
}
