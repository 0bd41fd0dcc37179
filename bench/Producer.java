import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.Random;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Sends records of one size to partition 0: bootstrap servers, topic, count, bytes of a value, client settings as a=b. */
public final class Producer {
    private static final String[] STATES = {"placed", "paid", "packed", "sent", "returned"};

    public static void main(String[] args) throws Exception {
        Map<String, Object> settings = new HashMap<>(Map.of("bootstrap.servers", args[0]));
        for (int i = 4; i < args.length; i++) {
            settings.put(args[i].split("=")[0], args[i].split("=")[1]);
        }
        int count = Integer.parseInt(args[2]);
        int size = Integer.parseInt(args[3]);
        Random random = new Random(7);
        try (var producer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            for (int i = 0; i < count; i++) {
                byte[] key = String.format("k%09d", i).getBytes(StandardCharsets.US_ASCII);
                producer.send(new ProducerRecord<>(args[1], 0, key, value(random, size)));
            }
        }
    }

    /** An order as JSON, cut or filled to a number of bytes. */
    private static byte[] value(Random random, int size) {
        StringBuilder text = new StringBuilder(String.format(
            "{\"order\":\"%016x\",\"customer\":%d,\"state\":\"%s\",\"cents\":%d,\"at\":\"2026-11-%02dT%02d:%02d:%02dZ\"",
            random.nextLong(), random.nextInt(100_000), STATES[random.nextInt(STATES.length)], random.nextInt(50_000),
            1 + random.nextInt(28), random.nextInt(24), random.nextInt(60), random.nextInt(60)));
        while (text.length() < size) {
            text.append(String.format(",\"item-%d\":%d", random.nextInt(1000), random.nextInt(10)));
        }
        return text.substring(0, size).getBytes(StandardCharsets.US_ASCII);
    }
}
