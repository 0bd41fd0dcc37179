import java.util.Properties;

import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Produced;

/**
 * A Streams application with a store and a repartition topic, exactly once, until it is killed or sent SIGTERM:
 * servers, application id, group protocol (classic or streams), state folder, input topic, output topic, and the
 * guarantee if it is not exactly_once_v2.
 */
public class StreamsApp {
    public static void main(String[] a) {
        Properties p = new Properties();
        p.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, a[0]);
        p.put(StreamsConfig.APPLICATION_ID_CONFIG, a[1]);
        p.put("group.protocol", a[2]);
        p.put(StreamsConfig.STATE_DIR_CONFIG, a[3]);
        p.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, a.length > 6 ? a[6] : StreamsConfig.EXACTLY_ONCE_V2);
        p.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, "200");
        p.put("consumer.auto.offset.reset", "earliest");
        if (a[2].equals("classic")) { // of the other protocol the group's settings say so
            p.put("consumer.session.timeout.ms", "6000");
            p.put("consumer.heartbeat.interval.ms", "1000");
        }
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(a[4], Consumed.with(Serdes.String(), Serdes.String()))
            .filter((key, value) -> value != null)
            .map((key, value) -> KeyValue.pair(value.substring(0, 1), value))
            .groupByKey(Grouped.with(Serdes.String(), Serdes.String()))
            .count()
            .toStream()
            .to(a[5], Produced.with(Serdes.String(), Serdes.Long()));
        KafkaStreams streams = new KafkaStreams(builder.build(), p);
        Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
        streams.start();
    }
}
