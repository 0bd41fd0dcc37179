import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintWriter;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.Properties;
import java.util.Queue;
import java.util.Random;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ListOffsetsResult;
import org.apache.kafka.clients.admin.NewPartitionReassignment;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionReplica;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.serialization.Deserializer;

/** Real clients, driven by lines on stdin: {@code command arguments... option=value...}; one line answers each. */
public final class Driver {
    private static final Random RANDOM = new Random(7);
    private static final String ALL = "everything";
    private final String servers;
    private final Admin admin;
    private final Map<String, KafkaProducer<byte[], byte[]>> producers = new ConcurrentHashMap<>();
    private final List<Thread> running = new ArrayList<>();
    private final Queue<String> said = new ConcurrentLinkedQueue<>();
    private volatile String stopped = "";

    private Driver(String servers) {
        this.servers = servers;
        admin = Admin.create(settings(Map.of()));
    }

    public static void main(String[] args) throws Exception {
        Driver driver = new Driver(args[0]);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            System.out.println(driver.answer(line.trim()));
        }
        System.exit(0);
    }

    private String answer(String line) {
        String answer;
        try {
            answer = "ok " + run(line.split(" +"));
        } catch (Exception e) {
            Throwable cause = e.getCause() == null ? e : e.getCause();
            answer = "error " + cause.getClass().getSimpleName() + ": " + cause.getMessage();
        }
        return answer.replace('\n', ' ');
    }

    private Properties settings(Map<String, String> options) {
        Properties p = new Properties();
        p.put("bootstrap.servers", servers);
        p.put("default.api.timeout.ms", "240000"); // of a machine that has much else to do
        p.putAll(options);
        return p;
    }

    private String run(String[] words) throws Exception {
        List<String> a = new ArrayList<>();
        Map<String, String> o = new HashMap<>();
        for (String word : words) {
            int eq = word.indexOf('=');
            if (eq > 0) {
                o.put(word.substring(0, eq), word.substring(eq + 1));
            } else {
                a.add(word);
            }
        }
        switch (a.get(0)) {
            case "topic": return topic(a.get(1), a.get(2), a.get(3), o);
            case "partitions": return partitions(a.get(1), Integer.parseInt(a.get(2)));
            case "delete-topic": return done(admin.deleteTopics(List.of(a.get(1))).all());
            case "delete-records": return deleteRecords(a.get(1), Integer.parseInt(a.get(2)), Long.parseLong(a.get(3)));
            case "config": return config(a.get(1), a.get(2), o);
            case "producer": return producer(a.get(1), o);
            case "init": producers.get(a.get(1)).initTransactions(); return "";
            case "begin": producers.get(a.get(1)).beginTransaction(); return "";
            case "send": return send(a.get(1), a.get(2), Integer.parseInt(a.get(3)), Integer.parseInt(a.get(4)), o);
            case "commit": producers.get(a.get(1)).commitTransaction(); return "";
            case "abort": producers.get(a.get(1)).abortTransaction(); return "";
            case "kill": producers.remove(a.get(1)).close(Duration.ZERO); return "";
            case "close": producers.remove(a.get(1)).close(); return "";
            case "load": return start(o, () -> load(a.get(1), a.get(2), Integer.parseInt(a.get(3)), o));
            case "ledger": return start(o, () -> ledger(a.get(1), a.get(2), Integer.parseInt(a.get(3)), o));
            case "copy": return start(o, () -> copy(a.get(1), a.get(2), a.get(3), Integer.parseInt(a.get(4)), o));
            case "consume": return start(o, () -> consume(a.get(1), a.get(2), Integer.parseInt(a.get(3)), o));
            case "share-take": return shareTake(a.get(1), a.get(2), Integer.parseInt(a.get(3)), o);
            case "share": return start(o, () -> share(a.get(1), a.get(2), Integer.parseInt(a.get(3))));
            case "move": return move(a.get(1), Integer.parseInt(a.get(2)), Integer.parseInt(a.get(3)), a.get(4));
            case "reassign": return reassign(a.get(1), Integer.parseInt(a.get(2)), a.get(3));
            case "leader": return leader(a.get(1), Integer.parseInt(a.get(2)));
            case "end": return end(a.get(1));
            case "read": return read(a.get(1), Integer.parseInt(a.get(2)), a.get(3), o);
            case "end-of": return endOf(a.get(1), Integer.parseInt(a.get(2)));
            case "stop-group": return stopGroup(a.get(1), a.get(2), Integer.parseInt(a.get(3)), Integer.parseInt(a.get(4)), o);
            case "open": return open(a.get(1), Integer.parseInt(a.get(2)));
            case "commit-offset": return commit(a.get(1), a.get(2), Integer.parseInt(a.get(3)), Long.parseLong(a.get(4)));
            case "delete-group": return deleteGroup(a.get(1), a.get(2));
            case "meanwhile": return meanwhile(String.join(" ", a.subList(1, a.size())), o);
            case "answers": return answers();
            case "wait": return join(ALL);
            case "stop": return stop(a.size() > 1 ? a.get(1) : ALL);
            default: throw new IllegalArgumentException("what is " + a.get(0));
        }
    }

    private interface Work {
        void run() throws Exception;
    }

    /** In the background; as=NAME: "stop NAME" ends it apart from all else. */
    private String start(Map<String, String> o, Work work) {
        Thread thread = new Thread(() -> {
            try {
                work.run();
            } catch (Exception e) {
                System.err.println("in the background: " + (e.getCause() == null ? e : e.getCause()));
            }
        });
        thread.setName(o.getOrDefault("as", "-"));
        thread.setDaemon(true);
        running.add(thread);
        thread.start();
        return "";
    }

    /** One command in the background; "answers" waits for all of these and tells what they said. */
    private String meanwhile(String line, Map<String, String> o) {
        StringBuilder whole = new StringBuilder(line);
        o.forEach((k, v) -> whole.append(' ').append(k).append('=').append(v));
        return start(Map.of("as", "meanwhile"),
            () -> {
                String answer = answer(whole.toString());
                said.add(System.currentTimeMillis() + " " + line + ": " + answer);
            });
    }

    /** Each with when it came, in ms. */
    private String answers() throws Exception {
        join("meanwhile");
        String all = String.join("; ", said);
        said.clear();
        return all;
    }

    private String join(String name) throws Exception {
        for (Thread thread : List.copyOf(running)) {
            if (name.equals(ALL) || name.equals(thread.getName())) {
                thread.join();
                running.remove(thread);
            }
        }
        return "";
    }

    /** Ends what is running under a name, or everything, as if its time were over, and waits for it. */
    private String stop(String name) throws Exception {
        stopped = name;
        join(name);
        stopped = "";
        return "";
    }

    private boolean goesOn(long end) {
        boolean over = stopped.equals(ALL) || stopped.equals(Thread.currentThread().getName());
        return !over && System.currentTimeMillis() < end;
    }

    private static String done(Future<?> future) throws Exception {
        future.get();
        return "";
    }

    private String topic(String name, String parts, String copies, Map<String, String> o) throws Exception {
        String on = o.remove("on"); // the brokers that get all partitions, "2,3"; the first one leads
        NewTopic topic = new NewTopic(name, Integer.parseInt(parts), Short.parseShort(copies));
        if (on != null) {
            Map<Integer, List<Integer>> brokers = new HashMap<>();
            for (int k = 0; k < topic.numPartitions(); k++) {
                brokers.put(k, numbers(on));
            }
            topic = new NewTopic(name, brokers);
        }
        return done(admin.createTopics(List.of(topic.configs(o))).all());
    }

    private String partitions(String topic, int count) throws Exception {
        return done(admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(count))).all());
    }

    private String deleteRecords(String topic, int partition, long before) throws Exception {
        RecordsToDelete upTo = RecordsToDelete.beforeOffset(before);
        return done(admin.deleteRecords(Map.of(new TopicPartition(topic, partition), upTo)).all());
    }

    /** To another log directory of the same broker. */
    private String move(String topic, int partition, int broker, String folder) throws Exception {
        return done(admin.alterReplicaLogDirs(
            Map.of(new TopicPartitionReplica(topic, partition, broker), folder)).all());
    }

    /** To other brokers, "2,3". */
    private String reassign(String topic, int partition, String brokers) throws Exception {
        return done(admin.alterPartitionReassignments(Map.of(new TopicPartition(topic, partition),
            Optional.of(new NewPartitionReassignment(numbers(brokers))))).all());
    }

    private static List<Integer> numbers(String brokers) {
        List<Integer> all = new ArrayList<>();
        for (String broker : brokers.split(",")) {
            all.add(Integer.valueOf(broker));
        }
        return all;
    }

    /** An offset committed from outside, as tools do. */
    private String commit(String group, String topic, int partition, long offset) throws Exception {
        return done(admin.alterConsumerGroupOffsets(group,
            Map.of(new TopicPartition(topic, partition), new OffsetAndMetadata(offset))).all());
    }

    /** Delete a group without members: Consumer (classic ones too), Share or Streams. */
    private String deleteGroup(String kind, String group) throws Exception {
        Object found = Admin.class.getMethod("delete" + kind + "Groups", Collection.class).invoke(admin, List.of(group));
        return done(future(found, "all"));
    }

    /** Which broker leads a partition. By reflection, as what follows: clients of 2.8 have no such methods. */
    private String leader(String topic, int partition) throws Exception {
        Object found = Admin.class.getMethod("describeTopics", Collection.class).invoke(admin, List.of(topic));
        Map<?, ?> all = (Map<?, ?>) future(found, "allTopicNames").get();
        return String.valueOf(((TopicDescription) all.get(topic)).partitions().get(partition).leader().id());
    }

    /** The end offsets of all partitions of a topic, added up. */
    private String end(String topic) throws Exception {
        Object found = Admin.class.getMethod("describeTopics", Collection.class).invoke(admin, List.of(topic));
        Map<?, ?> all = (Map<?, ?>) future(found, "allTopicNames").get();
        Map<TopicPartition, OffsetSpec> asked = new HashMap<>();
        ((TopicDescription) all.get(topic)).partitions()
            .forEach(p -> asked.put(new TopicPartition(topic, p.partition()), OffsetSpec.latest()));
        long sum = 0;
        for (ListOffsetsResult.ListOffsetsResultInfo one : admin.listOffsets(asked).all().get().values()) {
            sum += one.offset();
        }
        return String.valueOf(sum);
    }

    /** The end offset of a partition. */
    private String endOf(String topic, int partition) throws Exception {
        TopicPartition at = new TopicPartition(topic, partition);
        return String.valueOf(admin.listOffsets(Map.of(at, OffsetSpec.latest())).all().get().get(at).offset());
    }

    /** The transactions that a leader has as open (DescribeProducers): "producer id:first offset" of each. */
    private String open(String topic, int partition) throws Exception {
        TopicPartition at = new TopicPartition(topic, partition);
        Object found = Admin.class.getMethod("describeProducers", Collection.class).invoke(admin, List.of(at));
        Object state = ((Future<?>) found.getClass().getMethod("partitionResult", TopicPartition.class)
            .invoke(found, at)).get();
        List<String> said = new ArrayList<>();
        for (Object one : (List<?>) state.getClass().getMethod("activeProducers").invoke(state)) {
            OptionalLong start = (OptionalLong) one.getClass().getMethod("currentTransactionStartOffset").invoke(one);
            if (start.isPresent()) {
                said.add(one.getClass().getMethod("producerId").invoke(one) + ":" + start.getAsLong());
            }
        }
        return String.join(" ", said);
    }

    /** The offsets that a consumer gets of a partition, up to the end that it may see now, or what is stored there with
     *  show=values, or OFFSET:VALUE with show=both: from its start, or with group=ID from where that group goes on; its
     *  ways as options with a dot. */
    private String read(String topic, int partition, String isolation, Map<String, String> o) {
        TopicPartition at = new TopicPartition(topic, partition);
        Map<String, String> own = new HashMap<>(Map.of("isolation.level", isolation, "enable.auto.commit", "false"));
        if (o.containsKey("group")) {
            own.put("group.id", o.get("group"));
        }
        o.forEach((k, v) -> {
            if (k.contains(".")) {
                own.put(k, v);
            }
        });
        List<String> got = new ArrayList<>();
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings(own), new ByteArrayDeserializer(),
                new ByteArrayDeserializer())) {
            consumer.assign(List.of(at));
            if (own.containsKey("group.id")) {
                consumer.seek(at, consumer.committed(Collections.singleton(at)).get(at).offset());
            } else {
                consumer.seekToBeginning(List.of(at));
            }
            long end = consumer.endOffsets(List.of(at)).get(at);
            while (consumer.position(at) < end) {
                consumer.poll(Duration.ofMillis(200)).forEach(r -> {
                    String value = o.containsKey("show") ? new String(r.value()) : "";
                    got.add("values".equals(o.get("show")) ? value
                        : "both".equals(o.get("show")) ? r.offset() + ":" + value : String.valueOf(r.offset()));
                });
            }
        }
        return String.join(" ", got);
    }

    /** A group that reads a partition from its start, and commits and ends when it has got so many records, or all;
     *  what it committed. Its ways as options with a dot. */
    private String stopGroup(String group, String topic, int partition, int n, Map<String, String> o) {
        TopicPartition at = new TopicPartition(topic, partition);
        Map<String, String> own = new HashMap<>(Map.of("group.id", group, "enable.auto.commit", "false",
            "max.poll.records", "1"));
        own.putAll(o);
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings(own), new ByteArrayDeserializer(),
                new ByteArrayDeserializer())) {
            consumer.assign(List.of(at));
            consumer.seekToBeginning(List.of(at));
            long end = consumer.endOffsets(List.of(at)).get(at);
            for (int got = 0; got < n && consumer.position(at) < end; ) {
                got += consumer.poll(Duration.ofMillis(200)).count();
            }
            consumer.commitSync();
            return String.valueOf(consumer.position(at));
        }
    }

    private static Future<?> future(Object result, String name) throws Exception {
        return (Future<?>) result.getClass().getMethod(name).invoke(result);
    }

    private String config(String type, String name, Map<String, String> o) throws Exception {
        ConfigResource.Type kind = ConfigResource.Type.valueOf(type.toUpperCase());
        List<AlterConfigOp> ops = new ArrayList<>();
        o.forEach((k, v) -> ops.add(new AlterConfigOp(new ConfigEntry(k, v), AlterConfigOp.OpType.SET)));
        return done(admin.incrementalAlterConfigs(
            Map.of(new ConfigResource(kind, name.equals("-") ? "" : name), ops)).all());
    }

    private String producer(String name, Map<String, String> o) {
        KafkaProducer<byte[], byte[]> old = producers.put(name, make(o));
        if (old != null) {
            old.close(Duration.ZERO);
        }
        return "";
    }

    private KafkaProducer<byte[], byte[]> make(Map<String, String> o) {
        Properties p = settings(o);
        p.putIfAbsent("enable.idempotence", "true");
        p.putIfAbsent("acks", "all");
        p.putIfAbsent("linger.ms", "5");
        p.putIfAbsent("max.block.ms", "240000");
        return new KafkaProducer<>(p, new ByteArraySerializer(), new ByteArraySerializer());
    }

    /** send producer topic partition n [size=] [per=records a batch] [keys=, 0 none] [at=timestamp] [dead=every]. */
    private String send(String name, String topic, int partition, int n, Map<String, String> o) throws Exception {
        return send(producers.get(name), topic, partition, n, o);
    }

    private String send(KafkaProducer<byte[], byte[]> producer, String topic, int partition, int n,
                        Map<String, String> o) throws Exception {
        int size = Integer.parseInt(o.getOrDefault("size", "80"));
        int per = Integer.parseInt(o.getOrDefault("per", "10"));
        int keys = Integer.parseInt(o.getOrDefault("keys", "7"));
        int dead = Integer.parseInt(o.getOrDefault("dead", "1000000"));
        Long at = o.containsKey("at") ? Long.valueOf(o.get("at")) : null;
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (int i = 0; i < n; i++) {
            byte[] value = new byte[1 + RANDOM.nextInt(2 * size)];
            Arrays.fill(value, (byte) ('a' + i % 26));
            byte[] key = keys == 0 ? null : ("k" + RANDOM.nextInt(keys)).getBytes();
            sent.add(producer.send(new ProducerRecord<>(topic, partition, at, key, i % dead == 1 ? null : value)));
            if ((i + 1) % per == 0) {
                producer.flush();
            }
        }
        producer.flush();
        long first = sent.get(0).get().offset();
        return first + " " + sent.get(sent.size() - 1).get().offset();
    }

    /** load id topic ms: transactions (with id "-": plain sends) one after another, parts=, n=, abort=every, pause=ms. */
    private void load(String id, String topic, int ms, Map<String, String> o) throws Exception {
        Map<String, String> own = new HashMap<>();
        o.forEach((k, v) -> {
            if (k.contains(".")) {
                own.put(k, v);
            }
        });
        boolean transactional = !id.equals("-");
        if (transactional) {
            own.put("transactional.id", id);
        }
        int parts = Integer.parseInt(o.getOrDefault("parts", "1"));
        int each = Integer.parseInt(o.getOrDefault("n", "5"));
        int abort = Integer.parseInt(o.getOrDefault("abort", "9"));
        int pause = Integer.parseInt(o.getOrDefault("pause", "20"));
        int restart = Integer.parseInt(o.getOrDefault("restart", "1000000"));
        KafkaProducer<byte[], byte[]> producer = make(own);
        if (transactional) {
            producer.initTransactions();
        }
        long end = System.currentTimeMillis() + ms;
        for (int k = 1; goesOn(end); k++) {
            try {
                if (transactional) {
                    producer.beginTransaction();
                }
                for (int i = 0; i < 1 + k % 3; i++) {
                    send(producer, topic, (k + i) % parts, each, o);
                }
                if (k % restart == 0) {
                    producer.close(Duration.ZERO);
                    producer = make(own);
                    if (transactional) {
                        producer.initTransactions();
                    }
                } else if (transactional && k % abort == 0) {
                    producer.abortTransaction();
                } else if (transactional) {
                    producer.commitTransaction();
                }
            } catch (Exception e) {
                System.err.println(id + ": " + e);
                producer.close(Duration.ZERO);
                producer = make(own);
                if (transactional) {
                    producer.initTransactions();
                }
            }
            Thread.sleep(pause);
        }
        producer.close(o.containsKey("leave") ? Duration.ZERO : Duration.ofSeconds(5));
    }

    /**
     * ledger name topic ms file=F: sends NAME.PARTITION.NUMBER to parts=N partitions, n=records to each, pauses for
     * pause=ms, and so on. It writes to F, a line each: "sent P N T" (T: the transaction, 0 for none), "ack P N OFFSET",
     * "fail P N ERROR" and "end T commit|abort|unknown". id=ID: in transactions, of which abort=every is aborted. As
     * applications do, it aborts what has failed, and begins again as the same id where that fails.
     */
    private void ledger(String name, String topic, int ms, Map<String, String> o) throws Exception {
        Map<String, String> own = new HashMap<>();
        o.forEach((k, v) -> {
            if (k.contains(".") || k.equals("acks")) {
                own.put(k, v);
            }
        });
        boolean transactional = o.containsKey("id");
        if (transactional) {
            own.put("transactional.id", o.get("id"));
        }
        int parts = Integer.parseInt(o.getOrDefault("parts", "1"));
        int each = Integer.parseInt(o.getOrDefault("n", "3"));
        int abort = Integer.parseInt(o.getOrDefault("abort", "1000000"));
        int pause = Integer.parseInt(o.getOrDefault("pause", "40"));
        long end = System.currentTimeMillis() + ms;
        int number = 0;
        KafkaProducer<byte[], byte[]> producer = null;
        try (PrintWriter book = new PrintWriter(o.get("file"))) {
            for (int k = 1; goesOn(end); k++) {
                try {
                    if (producer == null) {
                        producer = make(own);
                        if (transactional) {
                            producer.initTransactions();
                        }
                    }
                    if (transactional) {
                        producer.beginTransaction();
                    }
                    for (int i = 0; i < each; i++, number++) {
                        for (int p = 0; p < parts; p++) {
                            String entry = p + " " + number;
                            book.println("sent " + entry + " " + (transactional ? k : 0));
                            byte[] value = (name + "." + p + "." + number).getBytes();
                            producer.send(new ProducerRecord<>(topic, p, null, value), (at, e) ->
                                book.println(e == null ? "ack " + entry + " " + at.offset()
                                    : "fail " + entry + " " + e.getClass().getSimpleName()));
                        }
                    }
                    if (transactional && k % abort == 0) {
                        producer.flush();
                        producer.abortTransaction();
                        book.println("end " + k + " abort");
                    } else if (transactional) {
                        producer.commitTransaction();
                        book.println("end " + k + " commit");
                    }
                } catch (Exception e) {
                    System.err.println(name + ": " + e);
                    number += each;
                    producer = aborted(producer, k, transactional, book);
                }
                Thread.sleep(pause);
            }
            if (producer != null) {
                producer.close(Duration.ofSeconds(30));
            }
        }
    }

    /** The producer, if what it had open could be aborted. */
    private static KafkaProducer<byte[], byte[]> aborted(KafkaProducer<byte[], byte[]> producer, int k,
                                                         boolean transactional, PrintWriter book) {
        if (producer == null) {
            return null;
        }
        try {
            if (transactional) {
                producer.abortTransaction();
                book.println("end " + k + " abort");
                return producer;
            }
        } catch (Exception e) {
            book.println("end " + k + " unknown");
        }
        producer.close(Duration.ZERO);
        return null;
    }

    /**
     * copy group from to ms: read_committed from one topic, written to partition 0 of another with its offsets.
     *
     * <p>producers=N: a pool of as many, the next one for each transaction, as Spring-Kafka has them. abort=every: then
     * the next one gets the same input. stall=K: the K-th transaction waits nap=ms before it sends its offsets,
     * and "answers" tells what it has committed.
     * unnamed=1: without the group's metadata, as before KIP-447. Ways of the consumer as options with a dot.
     */
    private void copy(String group, String from, String to, int ms, Map<String, String> o) throws Exception {
        Map<String, String> own = new HashMap<>(Map.of("group.id", group, "isolation.level", "read_committed",
            "enable.auto.commit", "false", "auto.offset.reset", "earliest", "max.poll.records", "20"));
        o.forEach((k, v) -> {
            if (k.contains(".")) {
                own.put(k, v);
            }
        });
        KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings(own), new ByteArrayDeserializer(),
            new ByteArrayDeserializer());
        consumer.subscribe(Collections.singleton(from));
        List<String> ids = new ArrayList<>(List.of(o.getOrDefault("id", group)));
        for (int k = 1; k < Integer.parseInt(o.getOrDefault("producers", "1")); k++) {
            ids.add(ids.get(0) + "-" + k);
        }
        List<KafkaProducer<byte[], byte[]>> pool = new ArrayList<>();
        for (String id : ids) {
            pool.add(ready(id));
        }
        int abort = Integer.parseInt(o.getOrDefault("abort", "9"));
        int stall = Integer.parseInt(o.getOrDefault("stall", "-1"));
        long end = System.currentTimeMillis() + ms;
        for (int k = 1; goesOn(end); k++) {
            ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(200));
            if (records.isEmpty()) {
                continue;
            }
            int free = k % pool.size();
            KafkaProducer<byte[], byte[]> producer = pool.get(free);
            try {
                producer.beginTransaction();
                Map<TopicPartition, OffsetAndMetadata> next = new HashMap<>();
                for (ConsumerRecord<byte[], byte[]> r : records) {
                    producer.send(new ProducerRecord<>(to, 0, r.key(), r.value()));
                    next.put(new TopicPartition(r.topic(), r.partition()),
                        new OffsetAndMetadata(r.offset() + 1, Optional.empty(), ""));
                }
                boolean stalls = --stall == 0;
                if (stalls) {
                    Thread.sleep(Long.parseLong(o.get("nap")));
                }
                producer.sendOffsetsToTransaction(next,
                    o.containsKey("unnamed") ? new ConsumerGroupMetadata(group) : consumer.groupMetadata());
                if (k % abort != 0) {
                    producer.commitTransaction();
                    if (stalls) {
                        next.forEach((tp, at) ->
                            said.add(ids.get(free) + " " + tp.topic() + " " + tp.partition() + " " + at.offset()));
                    }
                    continue;
                }
                producer.abortTransaction();
            } catch (Exception e) {  // as applications do: give up the transaction, and begin again as the same id
                System.err.println(group + ": " + e);
                producer.close(Duration.ZERO);
                pool.set(free, ready(ids.get(free)));
            }
            for (TopicPartition tp : consumer.assignment()) {
                OffsetAndMetadata committed = consumer.committed(Collections.singleton(tp)).get(tp);
                consumer.seek(tp, committed == null ? 0 : committed.offset());
            }
        }
        consumer.close();
        pool.forEach(KafkaProducer::close);
    }

    private KafkaProducer<byte[], byte[]> ready(String id) {
        KafkaProducer<byte[], byte[]> producer = make(Map.of("transactional.id", id));
        producer.initTransactions();
        return producer;
    }

    /** share group topic ms: takes records as a member of a share group (KIP-932). */
    private void share(String group, String topic, int ms) throws Exception {
        Object consumer = sharer(group, topic, Map.of());
        long end = System.currentTimeMillis() + ms;
        while (goesOn(end)) {
            on(consumer, "poll", Duration.ofMillis(200));
        }
        on(consumer, "close");
    }

    private Object sharer(String group, String topic, Map<String, String> ways) throws Exception {
        Map<String, String> own = new HashMap<>(Map.of("group.id", group));
        own.putAll(ways);
        Class<?> kind = Class.forName("org.apache.kafka.clients.consumer.KafkaShareConsumer");
        Object consumer = kind.getConstructor(Properties.class, Deserializer.class, Deserializer.class).newInstance(
            settings(own), new ByteArrayDeserializer(), new ByteArrayDeserializer());
        kind.getMethod("subscribe", Collection.class).invoke(consumer, List.of(topic));
        return consumer;
    }

    private static Object on(Object target, String name, Object... given) throws Exception {
        for (java.lang.reflect.Method method : target.getClass().getMethods()) {
            boolean fits = method.getName().equals(name) && method.getParameterCount() == given.length;
            for (int k = 0; fits && k < given.length; k++) {
                fits = method.getParameterTypes()[k].isInstance(given[k]);
            }
            if (fits) {
                return method.invoke(target, given);
            }
        }
        throw new NoSuchMethodException(name);
    }

    /** The offsets that a share group is given of a topic of one partition until it has got n of them, or nothing comes
     *  for idle=ms. They are accepted; with seed=N of some the first delivery is released, some are rejected, and some of
     *  the last ones are left unsettled. */
    private String shareTake(String group, String topic, int n, Map<String, String> o) throws Exception {
        Object consumer = sharer(group, topic, Map.of("share.acknowledgement.mode", "explicit"));
        Random random = o.containsKey("seed") ? new Random(Long.parseLong(o.get("seed"))) : null;
        long idle = Long.parseLong(o.getOrDefault("idle", "15000"));
        Object[] types = Class.forName("org.apache.kafka.clients.consumer.AcknowledgeType").getEnumConstants();
        Map<String, Object> named = new HashMap<>();
        for (Object type : types) {
            named.put(type.toString().toUpperCase(), type);
        }
        java.util.Set<Long> got = new java.util.TreeSet<>();
        for (long last = System.currentTimeMillis(); got.size() < n && System.currentTimeMillis() < last + idle; ) {
            ConsumerRecords<?, ?> records = (ConsumerRecords<?, ?>) on(consumer, "poll", Duration.ofMillis(500));
            for (ConsumerRecord<?, ?> record : records) {
                last = System.currentTimeMillis();
                boolean first = got.add(record.offset());
                if (random != null && got.size() > n && random.nextBoolean()) {
                    continue;
                }
                double dice = random == null ? 1 : random.nextDouble();
                String what = dice < 0.2 && first ? "RELEASE" : dice < 0.4 ? "REJECT" : "ACCEPT";
                on(consumer, "acknowledge", record, named.get(what));
            }
            on(consumer, "commitSync");
        }
        on(consumer, "close");
        List<String> said = new ArrayList<>();
        got.forEach(offset -> said.add(String.valueOf(offset)));
        return String.join(" ", said);
    }

    /** consume group topic ms: polls and commits by itself, as most consumers do; its ways as options with a dot. */
    private void consume(String group, String topic, int ms, Map<String, String> o) throws Exception {
        Map<String, String> own = new HashMap<>(Map.of("group.id", group, "auto.offset.reset", "earliest",
            "max.poll.records", "50", "auto.commit.interval.ms", "100"));
        o.forEach((k, v) -> {
            if (k.contains(".")) {
                own.put(k, v);
            }
        });
        KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings(own), new ByteArrayDeserializer(),
            new ByteArrayDeserializer());
        consumer.subscribe(Collections.singleton(topic));
        long end = System.currentTimeMillis() + ms;
        while (goesOn(end)) {
            consumer.poll(Duration.ofMillis(100));
        }
        consumer.close();
    }
}
