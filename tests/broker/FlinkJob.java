import java.util.concurrent.CountDownLatch;

import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.RichMapFunction;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.api.common.state.CheckpointListener;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.connector.source.util.ratelimit.RateLimiterStrategy;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.datagen.source.DataGeneratorSource;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.sink.KafkaSinkBuilder;
import org.apache.flink.core.execution.JobClient;
import org.apache.flink.core.execution.SavepointFormatType;
import org.apache.flink.runtime.state.FunctionInitializationContext;
import org.apache.flink.runtime.state.FunctionSnapshotContext;
import org.apache.flink.streaming.api.checkpoint.CheckpointedFunction;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;

/**
 * A Flink job in this JVM that writes the numbers from 0 on, each once, with an exactly-once KafkaSink: servers, topic,
 * transactional id prefix, folder of the checkpoints, how many numbers, transaction.timeout.ms, the checkpoint to
 * restore (or -), the checkpoint to halt at (or 0; -N: stop with a savepoint after N seconds), and the naming strategy if it is not the connector's default.
 *
 * It halts when that checkpoint is complete, and before the sink commits what was prepared with it. Each subtask has then
 * written records of its next transaction, too.
 */
public class FlinkJob {
    private static final int RATE = 100; // records a second, of both subtasks together
    private static final int SUBTASKS = 2;
    private static final int NEWER = 20; // records of each subtask in the transaction behind the last checkpoint

    public static void main(String[] a) throws Exception {
        Configuration c = new Configuration();
        c.setString("parallelism.default", String.valueOf(SUBTASKS));
        c.setString("execution.checkpointing.dir", a[3]);
        c.setString("execution.checkpointing.num-retained", "3");
        c.setString("execution.checkpointing.interval", "1s");
        c.setString("execution.checkpointing.mode", "EXACTLY_ONCE");
        c.setString("execution.checkpointing.externalized-checkpoint-retention", "RETAIN_ON_CANCELLATION");
        c.setString("restart-strategy.type", "none");
        for (String host : new String[] {"rest.address", "rest.bind-address", "jobmanager.bind-host", "taskmanager.bind-host"}) {
            c.setString(host, "127.0.0.1");
        }
        c.setString("rest.bind-port", "0");
        c.setString("taskmanager.memory.network.min", "16mb");
        c.setString("taskmanager.memory.network.max", "16mb");
        if (!a[6].equals("-")) {
            c.setString("execution.state-recovery.path", a[6]);
        }
        StreamExecutionEnvironment env = StreamExecutionEnvironment.getExecutionEnvironment(c);
        DataGeneratorSource<String> numbers = new DataGeneratorSource<>(
            String::valueOf, Long.parseLong(a[4]), RateLimiterStrategy.perSecond(RATE), Types.STRING);
        KafkaSinkBuilder<String> sink = KafkaSink.<String>builder()
            .setBootstrapServers(a[0])
            .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
            .setTransactionalIdPrefix(a[2])
            .setProperty("transaction.timeout.ms", a[5])
            .setRecordSerializer(KafkaRecordSerializationSchema.builder()
                .setTopic(a[1]).setKeySerializationSchema(new SimpleStringSchema())
                .setValueSerializationSchema(new SimpleStringSchema()).build());
        if (a.length > 8) {
            name(sink, a[8]);
        }
        DataStream<String> stream = env.fromSource(numbers, WatermarkStrategy.noWatermarks(), "numbers").uid("numbers");
        long last = Long.parseLong(a[7]);
        stream.map(new Gate(last)).uid("gate").sinkTo(sink.build()).uid("sink");
        stream.map(new Watcher(last)).uid("watcher").setParallelism(1).sinkTo(new DiscardingSink<>()).uid("watched");
        if (last < 0) {
            JobClient job = env.executeAsync("numbers");
            Thread.sleep(-1000 * last);
            System.out.println(job.stopWithSavepoint(false, a[3], SavepointFormatType.CANONICAL).get());
        } else {
            env.execute("numbers");
        }
    }

    /** Of connectors from 4.0 on. */
    @SuppressWarnings({"unchecked", "rawtypes"})
    private static void name(KafkaSinkBuilder<String> sink, String strategy) throws Exception {
        Class kind = Class.forName("org.apache.flink.connector.kafka.sink.TransactionNamingStrategy");
        KafkaSinkBuilder.class.getMethod("setTransactionNamingStrategy", kind).invoke(sink, Enum.valueOf(kind, strategy));
    }

    /** Stops a subtask of the sink within the transaction behind the last checkpoint: no commit comes after it. */
    private static class Gate extends RichMapFunction<String, String> implements CheckpointedFunction {
        private static final CountDownLatch STOPPED = new CountDownLatch(SUBTASKS);
        private final long last;
        private int left = -1; // records until it stops; below 0 before the last checkpoint

        Gate(long last) {
            this.last = last;
        }

        @Override
        public String map(String value) throws Exception {
            if (left-- == 0) {
                STOPPED.countDown();
                Thread.sleep(Long.MAX_VALUE);
            }
            return value;
        }

        @Override
        public void initializeState(FunctionInitializationContext context) {
        }

        @Override
        public void snapshotState(FunctionSnapshotContext context) {
            if (context.getCheckpointId() == last) {
                left = NEWER;
            }
        }
    }

    /** A task without which no checkpoint is complete: the last one only once the sink has stopped. Then it halts. */
    private static class Watcher extends RichMapFunction<String, String> implements CheckpointedFunction, CheckpointListener {
        private final long last;

        Watcher(long last) {
            this.last = last;
        }

        @Override
        public String map(String value) {
            return value;
        }

        @Override
        public void initializeState(FunctionInitializationContext context) {
        }

        @Override
        public void snapshotState(FunctionSnapshotContext context) throws Exception {
            if (context.getCheckpointId() == last) {
                Gate.STOPPED.await();
            }
        }

        @Override
        public void notifyCheckpointComplete(long checkpoint) throws Exception {
            if (checkpoint == last) {
                Thread.sleep(1000); // until the producers have sent what they have
                Runtime.getRuntime().halt(42);
            }
        }
    }
}
